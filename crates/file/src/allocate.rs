//! `fallocate` in all its modes. Data in memory is saved first, so that only extents have to be changed.
//!
//! Invariants: zeroing and punching change bytes of partial blocks as writes do, whole blocks by their extents; moving
//! bytes (COLLAPSE, INSERT) is one transaction or is refused.

use std::ops::Range;
use std::sync::Arc;

use stere_format::InodeValue;
use stere_store::Store;

use crate::block::BLOCK;
use crate::context::Context;
use crate::encode::Codec;
use crate::error::Error;
use crate::extents::{self, Allocation, EXTENTS_PER_STEP};
use crate::grants::Grants;
use crate::keys::{self, extents_touching};
use crate::options::FILE_BYTES_MAX;
use crate::orphan::Orphans;
use crate::policies::Policies;
use crate::reservations::Reservations;
use crate::save::Writeback;
use crate::state::Content;
use crate::table::FileTable;
use crate::write::{Writer, is_shared};

/// Do not change the size.
pub const KEEP_SIZE: u32 = 0x01;
/// Make a hole.
pub const PUNCH_HOLE: u32 = 0x02;
/// Take a range out and close the gap.
pub const COLLAPSE_RANGE: u32 = 0x08;
/// Make a range read as zeros, with room set aside.
pub const ZERO_RANGE: u32 = 0x10;
/// Push a hole in.
pub const INSERT_RANGE: u32 = 0x20;
/// Give the file its own copy of what it shares.
pub const UNSHARE_RANGE: u32 = 0x40;

/// Extents that COLLAPSE and INSERT move at most; they all change in one transaction.
const SHIFTED_EXTENTS_MAX: usize = 8192;

/// Bytes that are unshared (rewritten) at a time.
const UNSHARE_BYTES: u64 = 1 << 20;

/// Changes the extents and the size of files.
pub struct Allocator {
    pub(crate) writer: Arc<Writer>,
    pub(crate) writeback: Arc<Writeback>,
    pub(crate) reservations: Arc<Reservations>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) codec: Arc<Codec>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) table: Arc<FileTable>,
    pub(crate) store: Arc<Store>,
}

impl Allocator {
    pub(crate) fn new(writer: &Arc<Writer>) -> Allocator {
        let Writer { store, table, policies, codec, grants, reservations, writeback } = &**writer;
        Allocator {
            writer: writer.clone(),
            writeback: writeback.clone(),
            reservations: reservations.clone(),
            orphans: writeback.orphans.clone(),
            grants: grants.clone(),
            codec: codec.clone(),
            policies: policies.clone(),
            table: table.clone(),
            store: store.clone(),
        }
    }

    /// Changes allocation in `offset..offset + length` as `mode` says.
    pub fn allocate(
        &self,
        context: &Context<'_>,
        inode: u64,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<(), Error> {
        let end = offset.checked_add(length).ok_or(Error::TooBig)?;
        if length == 0 {
            return Err(Error::Invalid("the length is zero; give a positive one"));
        }
        if end > FILE_BYTES_MAX {
            return Err(Error::TooBig);
        }
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        let content = self.writeback.load(context, inode, &mut state)?;
        self.policies.check_not_retained(context, inode)?;
        if content.is_dirty() {
            self.writeback.save_all(context, inode, content)?;
        }
        let range = offset..end;
        let keep_size = mode & KEEP_SIZE != 0;
        if !keep_size && matches!(mode, 0 | ZERO_RANGE | UNSHARE_RANGE) {
            // Before the first of several transactions, so that what is refused has changed nothing.
            let may_grow = self.grants.grant_size(context, inode, content, end);
            self.grants.keep_promised(inode, content);
            may_grow?;
        }
        match mode & !KEEP_SIZE {
            0 => self.preallocate(context, inode, content, range, keep_size),
            PUNCH_HOLE if keep_size => self.punch(context, inode, content, range),
            ZERO_RANGE => self.zero(context, inode, content, range, keep_size),
            COLLAPSE_RANGE | INSERT_RANGE
                if self.policies.is_encrypted(context.io, inode, offset..crate::block::END)? =>
            {
                // Each record opens only at its place.
                Err(Error::Unsupported("ranges of encrypted files cannot be inserted or collapsed; copy the file"))
            }
            COLLAPSE_RANGE if !keep_size => self.collapse(context, inode, content, range),
            INSERT_RANGE if !keep_size => self.insert(context, inode, content, range),
            UNSHARE_RANGE => self.unshare(context, inode, content, range, keep_size),
            _ => Err(Error::Unsupported("fallocate knows no such combination of modes")),
        }
    }

    /// Sets room aside in the holes of `range`.
    fn preallocate(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        range: Range<u64>,
        keep_size: bool,
    ) -> Result<(), Error> {
        let blocks = range.start / BLOCK * BLOCK..range.end.next_multiple_of(BLOCK);
        let placement = self.policies.storing(context.io, inode)?.placement;
        let missing = self.hole_bytes(context, inode, &blocks)?;
        let room_until_counted = self.reservations.promise(context.io, placement, missing)?;
        // Before the first of several transactions, for the next may fail.
        content.extents_end = content.extents_end.max(blocks.end);
        let mut at = blocks.start;
        while at < blocks.end {
            let size = if keep_size { content.size } else { content.size.max(range.end) };
            at = self.store.update(context.io, |transaction| {
                transaction.set_promised();
                let (allocation, reached) = fill_holes(transaction, inode, at..blocks.end)?;
                let size = if reached == blocks.end { size } else { content.stored_size };
                self.put_changed(transaction, context, inode, &allocation, size)?;
                Ok::<_, Error>(reached)
            })?;
        }
        if !keep_size {
            content.size = content.size.max(range.end);
            content.stored_size = content.size;
        }
        content.assert_invariants();
        let held = self.reservations.hold_granted(context.io, placement.scheme, &room_until_counted);
        drop(room_until_counted);
        held
    }

    fn hole_bytes(&self, context: &Context<'_>, inode: u64, blocks: &Range<u64>) -> Result<u64, Error> {
        self.store.view(context.io, |view| {
            let mut missing = blocks.end - blocks.start;
            keys::visit_extents(view, inode, blocks.start, &mut |extent| {
                if extent.start >= blocks.end {
                    return std::ops::ControlFlow::Break(());
                }
                let end = extent.end().next_multiple_of(BLOCK).min(blocks.end);
                let present = end - extent.start.max(blocks.start);
                assert!(present <= missing, "extents do not overlap: {present} bytes of {missing}");
                missing -= present;
                std::ops::ControlFlow::Continue(())
            })?;
            Ok(missing)
        })
    }

    /// Makes `range` a hole, as far as the file reaches.
    fn punch(&self, context: &Context<'_>, inode: u64, content: &mut Content, range: Range<u64>) -> Result<(), Error> {
        let whole = self.zero_edges(context, inode, content, &range)?;
        self.clear_steps(context, inode, whole)?;
        self.writeback.save_all(context, inode, content)
    }

    /// Makes `range` read as zeros, with room set aside.
    fn zero(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        range: Range<u64>,
        keep_size: bool,
    ) -> Result<(), Error> {
        let whole = self.zero_edges(context, inode, content, &range)?;
        self.clear_steps(context, inode, whole)?;
        self.writeback.save_all(context, inode, content)?;
        self.preallocate(context, inode, content, range, keep_size)
    }

    /// Writes zeros where `range` covers blocks in part; gives the whole blocks between.
    fn zero_edges(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        range: &Range<u64>,
    ) -> Result<Range<u64>, Error> {
        let whole_start = range.start.next_multiple_of(BLOCK);
        // A last block that the file fills only up to within the range counts as whole.
        let whole_end = if range.end >= content.size && range.start < content.size {
            range.end.next_multiple_of(BLOCK)
        } else {
            range.end / BLOCK * BLOCK
        };
        let first = range.start..whole_start.min(range.end);
        let last = whole_end.max(whole_start).max(range.start)..range.end;
        for edge in [first, last] {
            let edge = edge.start..edge.end.min(content.size);
            if edge.start < edge.end && self.has_data(context, inode, &edge)? {
                let zeros = vec![0; (edge.end - edge.start) as usize];
                self.writer.write_with_edges(context, inode, content, edge.start, &zeros, Vec::new())?;
            }
        }
        Ok(whole_start..whole_end.max(whole_start))
    }

    fn has_data(&self, context: &Context<'_>, inode: u64, range: &Range<u64>) -> Result<bool, Error> {
        self.store.view(context.io, |view| {
            let extents = extents_touching(view, inode, range.start, range.end, 2)?;
            Ok(extents.iter().any(|extent| !extent.is_preallocated()))
        })
    }

    fn clear_steps(&self, context: &Context<'_>, inode: u64, whole: Range<u64>) -> Result<(), Error> {
        loop {
            let complete = self.store.update(context.io, |transaction| {
                let (allocation, complete) = extents::clear(transaction, inode, whole.clone(), EXTENTS_PER_STEP)?;
                let size = keys::inode(transaction, inode)?.size;
                self.put_changed(transaction, context, inode, &allocation, size)?;
                Ok::<_, Error>(complete)
            })?;
            if complete {
                return Ok(());
            }
        }
    }

    fn put_changed(
        &self,
        transaction: &mut stere_store::Transaction<'_>,
        context: &Context<'_>,
        inode: u64,
        allocation: &Allocation,
        size: u64,
    ) -> Result<InodeValue, Error> {
        let mut value = keys::inode(transaction, inode)?;
        value.blocks_bytes = allocation.apply(value.blocks_bytes);
        value.size = size;
        (value.mtime, value.ctime) = (context.now, context.now);
        keys::put_inode(transaction, inode, &value);
        Ok(value)
    }

    fn collapse(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        range: Range<u64>,
    ) -> Result<(), Error> {
        check_aligned(&range)?;
        if range.end >= content.size {
            return Err(Error::Invalid("the range to collapse reaches the end of the file; truncate it instead"));
        }
        assert!(content.records.is_empty(), "what is moved of inode {inode} is saved");
        let length = range.end - range.start;
        let size = content.size - length;
        self.store.update(context.io, |transaction| {
            let (allocation, complete) = extents::clear(transaction, inode, range.clone(), SHIFTED_EXTENTS_MAX)?;
            if !complete || !extents::shift(transaction, inode, range.end, -(length as i64), SHIFTED_EXTENTS_MAX)? {
                return Err(Error::Unsupported(
                    "the file has too many pieces to move them in one step; copy it instead",
                ));
            }
            self.put_changed(transaction, context, inode, &allocation, size)?;
            Ok(())
        })?;
        content.extents_end = content.extents_end.saturating_sub(length).max(size);
        (content.size, content.stored_size) = (size, size);
        content.assert_invariants();
        Ok(())
    }

    fn insert(&self, context: &Context<'_>, inode: u64, content: &mut Content, range: Range<u64>) -> Result<(), Error> {
        check_aligned(&range)?;
        if range.start >= content.size {
            return Err(Error::Invalid("the range to insert starts behind the end of the file; extend it instead"));
        }
        assert!(content.records.is_empty(), "what is moved of inode {inode} is saved");
        let length = range.end - range.start;
        let size = content.size + length;
        if size > FILE_BYTES_MAX || content.extents_end + length > FILE_BYTES_MAX + BLOCK {
            return Err(Error::TooBig);
        }
        self.store.update(context.io, |transaction| {
            extents::split(transaction, inode, range.start)?;
            if !extents::shift(transaction, inode, range.start, length as i64, SHIFTED_EXTENTS_MAX)? {
                return Err(Error::Unsupported(
                    "the file has too many pieces to move them in one step; copy it instead",
                ));
            }
            self.put_changed(transaction, context, inode, &Allocation::default(), size)?;
            Ok(())
        })?;
        content.extents_end += length;
        (content.size, content.stored_size) = (size, size);
        Ok(())
    }

    /// Rewrites what the file shares with others in `range`, and sets room aside in its holes.
    fn unshare(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        range: Range<u64>,
        keep_size: bool,
    ) -> Result<(), Error> {
        let end = range.end.min(content.size);
        let mut at = range.start.min(end);
        while at < end {
            let length = UNSHARE_BYTES.min(end - at);
            let shared = self.store.view(context.io, |view| {
                let mut shared = false;
                for extent in extents_touching(view, inode, at, at + length, usize::MAX - 1)? {
                    shared |= !extent.is_preallocated() && is_shared(view, extent.value.blob)?;
                }
                Ok::<_, Error>(shared)
            })?;
            if shared {
                let mut bytes = vec![0; length as usize];
                self.codec.read_stored(context.io, inode, at, &mut bytes)?;
                self.writer.write_with_edges(context, inode, content, at, &bytes, Vec::new())?;
                self.writeback.save_all(context, inode, content)?;
            }
            at += length;
        }
        self.preallocate(context, inode, content, range, keep_size)
    }
}

/// Puts preallocated extents in the holes of `range`, around a bounded number of extents; gives how far that reached.
fn fill_holes(
    transaction: &mut stere_store::Transaction<'_>,
    inode: u64,
    range: Range<u64>,
) -> Result<(Allocation, u64), Error> {
    let mut allocation = Allocation::default();
    let existing = extents_touching(transaction, inode, range.start, range.end, EXTENTS_PER_STEP)?;
    let reached = match existing.last() {
        Some(last) if existing.len() == EXTENTS_PER_STEP => last.end().next_multiple_of(BLOCK).min(range.end),
        _ => range.end,
    };
    assert!(reached > range.start, "each step fills some of the range");
    let mut at = range.start;
    for extent in &existing {
        if extent.start > at {
            allocation.add(extents::put_preallocated(transaction, inode, at..extent.start)?);
        }
        at = at.max(extent.end().next_multiple_of(BLOCK));
    }
    if at < reached {
        allocation.add(extents::put_preallocated(transaction, inode, at..reached)?);
    }
    assert!(allocation.bytes as u64 <= reached - range.start, "holes of {range:?} are filled, and nothing else");
    Ok((allocation, reached))
}

fn check_aligned(range: &Range<u64>) -> Result<(), Error> {
    if range.start % BLOCK == 0 && range.end % BLOCK == 0 {
        return Ok(());
    }
    Err(Error::Invalid("offset and length must be multiples of 4096"))
}
