//! Writing: whole records go straight to the store, the rest gathers in memory.
//!
//! Invariants: what a write accepted has room reserved in the store; the call accepts all of it, or nothing, or (when
//! the pool gets full half-way) says how much; `WouldBlock` means nothing of it was accepted.

use std::ops::Range;
use std::sync::Arc;

use stere_format::{BlobEncoding, BlobFlags};
use stere_store::{Owner, Reservation, Store, View};

use crate::block::BLOCK;
use crate::context::Context;
use crate::edges::Edge;
use crate::encode::{Appended, Codec};
use crate::encoding::Storing;
use crate::error::Error;
use crate::grants::Grants;
use crate::keys::extents_touching;
use crate::options::FILE_BYTES_MAX;
use crate::policies::Policies;
use crate::record::RECORD_BYTES;
use crate::reservations::Reservations;
use crate::save::{Writeback, growing};
use crate::state::Content;
use crate::stored_grants::StoredGrant;
use crate::table::FileTable;

/// So often what is beside a write is read with the file unlocked, before it is read with the file locked.
const EDGES_READ_MAX: u32 = 4;

/// A part of a write that lies in one record.
struct Part<'data> {
    record: u64,
    start: u32,
    data: &'data [u8],
}

impl Part<'_> {
    fn is_whole(&self) -> bool {
        self.data.len() as u64 == RECORD_BYTES
    }

    fn ends_its_record(&self) -> bool {
        u64::from(self.range().end) == RECORD_BYTES
    }

    fn range(&self) -> Range<u32> {
        self.start..self.start + self.data.len() as u32
    }
}

fn parts(offset: u64, data: &[u8]) -> Vec<Part<'_>> {
    let mut parts = Vec::with_capacity(data.len() / RECORD_BYTES as usize + 2);
    let (mut at, mut rest) = (offset, data);
    while !rest.is_empty() {
        let start = at % RECORD_BYTES;
        let length = (RECORD_BYTES - start).min(rest.len() as u64);
        let (data, behind) = rest.split_at(length as usize);
        parts.push(Part { record: at / RECORD_BYTES, start: start as u32, data });
        (at, rest) = (at + length, behind);
    }
    assert_eq!(at, offset + data.len() as u64, "the parts are the whole write");
    parts
}

/// Takes writes in.
pub struct Writer {
    pub(crate) store: Arc<Store>,
    pub(crate) table: Arc<FileTable>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) codec: Arc<Codec>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) reservations: Arc<Reservations>,
    pub(crate) writeback: Arc<Writeback>,
}

impl Writer {
    /// Writes `data` at `offset`; gives how much was accepted.
    pub fn write(&self, context: &Context<'_>, inode: u64, offset: u64, data: &[u8]) -> Result<usize, Error> {
        self.write_at(context, inode, Some(offset), data).map(|(_, written)| written)
    }

    /// Writes `data` at the end, wherever that is when the file is locked for it; tells where that was, and how much was accepted.
    pub fn append(&self, context: &Context<'_>, inode: u64, data: &[u8]) -> Result<(u64, usize), Error> {
        self.write_at(context, inode, None, data)
    }

    fn write_at(
        &self,
        context: &Context<'_>,
        inode: u64,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<(u64, usize), Error> {
        if let Some(offset) = offset {
            offset.checked_add(data.len() as u64).ok_or(Error::TooBig)?;
        }
        if data.is_empty() {
            return Ok((offset.unwrap_or(0), 0));
        }
        let is_append = offset.is_none();
        let mut edges = Vec::new();
        for attempt in 0.. {
            let held = self.table.hold(inode);
            let mut state = held.write(context.io)?;
            let content = self.writeback.load(context, inode, &mut state)?;
            let offset = offset.unwrap_or(content.size);
            // A write across the largest size is cut there; only one that starts behind fails.
            if offset >= FILE_BYTES_MAX {
                return Err(Error::TooBig);
            }
            let data = &data[..(FILE_BYTES_MAX - offset).min(data.len() as u64) as usize];
            let range = offset..offset + data.len() as u64;
            edges = self.edges_needed(context, inode, content, &range, edges)?;
            if attempt == EDGES_READ_MAX || !edges.iter().any(Edge::is_lacking) {
                self.writeback.relieve(context, inode, content, data.len() as u64)?;
                let request = context.request.filter(|_| is_append);
                request.into_iter().for_each(|request| content.begin_append(request, offset));
                let written = self.write_with_edges(context, inode, content, offset, data, edges);
                if !matches!(written, Ok(1..)) {
                    request.into_iter().for_each(|request| content.forget_append(request));
                }
                return Ok((offset, written?));
            }
            // Other calls on this file do not wait for a medium.
            drop(state);
            self.read_edges(context, inode, &mut edges)?;
        }
        unreachable!("the last attempt writes")
    }

    /// Writes where these edges were read before; none where there are none.
    pub(crate) fn write_with_edges(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        offset: u64,
        data: &[u8],
        edges: Vec<Edge>,
    ) -> Result<usize, Error> {
        let storing = self.policies.storing_change(context, inode)?;
        let granted = self.grants.grant_write(context, inode, content, offset, data.len())?;
        assert!(granted > 0 && granted <= data.len(), "{granted} bytes are granted of {}", data.len());
        let range = offset..offset + granted as u64;
        let stored = self.grant_stored(context, inode, content, &storing, range);
        if stored.is_err() {
            self.grants.keep_promised(inode, content);
        }
        let StoredGrant { length: granted, at_once } = stored?;
        assert!(granted > 0 && granted <= data.len(), "stored bytes are granted for what was written");
        let range = offset..offset + granted as u64;
        let mut edges = self.edges_needed(context, inode, content, &range, edges)?;
        self.read_edges(context, inode, &mut edges)?;
        let written = self.write_granted(context, inode, content, &storing, offset, &data[..granted]);
        if written.is_ok() {
            self.put_edges(content, &edges);
        }
        self.grants.keep_promised(inode, content);
        if at_once && written.is_ok() {
            let _stays_in_memory = self.writeback.save_all(context, inode, content);
        }
        content.assert_invariants();
        let is_some = written.as_ref().is_ok_and(|accepted| *accepted > 0 && *accepted <= granted);
        assert!(is_some || written.is_err(), "a write accepts some of {granted} bytes: {written:?}");
        written
    }

    /// Writes what no quota refuses.
    fn write_granted(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        storing: &Storing,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Error> {
        let parts = parts(offset, data);
        self.policies.check_keys(context.io, inode, storing, offset..offset + data.len() as u64)?;
        if !context.io.may_block() && storing.is_slow() && parts.iter().any(Part::ends_its_record) {
            // Those who call without waiting have others to serve.
            return Err(Error::Store(stere_store::Error::WouldBlock));
        }
        if parts.len() == 1 && !parts[0].is_whole() {
            let part = &parts[0];
            self.buffer(context, inode, storing, content, part, true)?;
            self.hand_over_full(context, inode, content, part.record);
            return Ok(data.len());
        }
        self.write_many(context, inode, content, storing, &parts)
    }

    /// Several parts, or a whole record: blobs are appended first, because only that may have to wait.
    fn write_many<'data>(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        storing: &Storing,
        parts: &[Part<'data>],
    ) -> Result<usize, Error> {
        let placement = storing.placement;
        let mut appended = Vec::with_capacity(parts.len());
        let mut failure = None;
        let _room_until_entered = self.reserve_whole(context, inode, storing, parts)?;
        let mut home = self.policies.home(context.io, inode, content.home, placement)?;
        let whole = || parts.iter().filter(|part| part.is_whole());
        let cut = |part: &Part<'data>| storing.cut(Content::record_start(part.record), part.data);
        let mut passed = self.codec.pass_many(storing, whole().flat_map(cut).map(|(_, piece)| piece).collect());
        for part in whole() {
            let start = Content::record_start(part.record);
            match self.codec.append_cut(context, storing, home, Owner { inode, offset: start }, part.data, &mut passed)
            {
                Ok(blobs) => {
                    home = blobs.last().map_or(home, |last| last.blob.home());
                    content.home = home;
                    appended.push((part.record, blobs));
                }
                Err(error) if appended.is_empty() => return Err(error),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let (mut accepted, mut accepted_parts) = (0, 0);
        let mut streamed = Vec::new();
        for part in parts {
            let blobs = appended.iter_mut().find(|(record, _)| *record == part.record);
            match blobs {
                Some((_, blobs)) => {
                    streamed.append(blobs);
                    self.extend(context, content, part);
                    self.drop_record(content, part.record);
                }
                // Not appended because the store would have had to wait: memory takes it. What was appended already
                // must not be for nothing.
                None => match self.buffer(context, inode, storing, content, part, streamed.is_empty()) {
                    Ok(()) => {}
                    Err(error) if accepted == 0 => return Err(failure.unwrap_or(error)),
                    Err(_) => break,
                },
            }
            accepted += part.data.len();
            accepted_parts += 1;
        }
        self.enter_streamed(context, inode, content, streamed, &parts[..accepted_parts])?;
        Ok(accepted)
    }

    /// Enters what was streamed of these parts, which were accepted. Records before it that are dirty go first where the size on media would grow over them.
    fn enter_streamed(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        streamed: Vec<Appended>,
        parts: &[Part<'_>],
    ) -> Result<(), Error> {
        let Some(last) = streamed.last() else { return Ok(()) };
        let last_record = last.start / RECORD_BYTES;
        let mut before = Ok(());
        if Content::record_start(last_record + 1) > content.stored_size {
            for record in growing(content, last_record) {
                before = before.and_then(|()| self.writeback.save_record(context, inode, content, record));
            }
        }
        let entered = before.and_then(|()| self.writeback.enter(context, inode, content, &streamed, &[]));
        if entered.is_ok() {
            return Ok(());
        }
        // The blobs cannot be entered without waiting (or at all): keep their bytes in memory; they will be tried again.
        drop(streamed);
        for part in parts.iter().filter(|part| part.is_whole()) {
            self.put_in_memory(content, part);
        }
        Ok(())
    }

    /// Room for the whole records of a write, held until they are entered and count themselves.
    fn reserve_whole(
        &self,
        context: &Context<'_>,
        inode: u64,
        storing: &Storing,
        parts: &[Part<'_>],
    ) -> Result<Option<Reservation>, Error> {
        let mut whole = parts.iter().filter(|part| part.is_whole());
        let Some(first) = whole.next() else { return Ok(None) };
        let count = 1 + whole.count() as u64;
        let start = Content::record_start(first.record);
        self.reserve(context, inode, storing, start..start + count * RECORD_BYTES, count * RECORD_BYTES)
    }

    /// Reserves room for new bytes in `range`. In a full pool bytes that replace as many of the file's own may still come.
    pub(crate) fn reserve(
        &self,
        context: &Context<'_>,
        inode: u64,
        storing: &Storing,
        range: Range<u64>,
        bytes: u64,
    ) -> Result<Option<Reservation>, Error> {
        assert!(!range.is_empty() && bytes > 0, "room is reserved for something");
        let (placement, bytes) = (storing.placement, storing.stored_bytes_max(bytes));
        match self.reservations.promise(context.io, placement, bytes) {
            Ok(reservation) => Ok(Some(reservation)),
            // Its room is held, that of its metadata too.
            Err(Error::Store(stere_store::Error::NoSpace)) if self.is_set_aside(context, inode, &range)? => Ok(None),
            Err(Error::Store(stere_store::Error::NoSpace))
                if self.is_replacement(context, inode, &range, true)?
                    && self.store.space().may_replace(context.io)? =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether all of `range` is set aside, and room for that is held.
    fn is_set_aside(&self, context: &Context<'_>, inode: u64, range: &Range<u64>) -> Result<bool, Error> {
        if !self.reservations.holds_set_aside() {
            return Ok(false);
        }
        let blocks = range.start / BLOCK * BLOCK..range.end.next_multiple_of(BLOCK);
        self.store.view(context.io, |view| {
            let mut covered_to = blocks.start;
            for extent in extents_touching(view, inode, blocks.start, blocks.end, usize::MAX - 1)? {
                if extent.start > covered_to || !extent.is_preallocated() {
                    return Ok(false);
                }
                covered_to = extent.end().next_multiple_of(BLOCK);
            }
            Ok(covered_to >= blocks.end)
        })
    }

    /// Whether every block of `range` is the file's own already (written or, if that counts, set aside; and not shared) and replacing it makes
    /// its room free, which replacing a part of an encoded blob does not.
    pub(crate) fn is_replacement(
        &self,
        context: &Context<'_>,
        inode: u64,
        range: &Range<u64>,
        set_aside_counts: bool,
    ) -> Result<bool, Error> {
        let blocks = range.start / BLOCK * BLOCK..range.end.next_multiple_of(BLOCK);
        self.store.view(context.io, |view| {
            let mut covered_to = blocks.start;
            for extent in extents_touching(view, inode, blocks.start, blocks.end, usize::MAX - 1)? {
                if extent.start > covered_to {
                    return Ok(false);
                }
                let is_replaced = match extent.is_preallocated() {
                    true => set_aside_counts,
                    false => is_free_when_replaced(view, extent.value.blob)?,
                };
                if !is_replaced {
                    return Ok(false);
                }
                covered_to = extent.end().next_multiple_of(BLOCK);
            }
            Ok(covered_to >= blocks.end)
        })
    }

    /// Takes a part into memory, with room reserved for it. `may_fail`: whether a lack of room is told; otherwise
    /// (something of the same request is in the store already) it is tried and done without.
    fn buffer(
        &self,
        context: &Context<'_>,
        inode: u64,
        storing: &Storing,
        content: &mut Content,
        part: &Part<'_>,
        may_fail: bool,
    ) -> Result<(), Error> {
        let lacking = content.records.get(&part.record).map_or_else(
            || crate::record::Record::default().reservation_lacking(part.range()),
            |record| record.reservation_lacking(part.range()),
        );
        let mut reservation = None;
        if lacking > 0 {
            let start = Content::record_start(part.record);
            let range = start + u64::from(part.range().start)..start + u64::from(part.range().end);
            match self.reserve(context, inode, storing, range, lacking) {
                Ok(reserved) => reservation = reserved,
                Err(error) if error.would_block() && !may_fail => {}
                Err(error) => return Err(error),
            }
        }
        self.extend(context, content, part);
        self.put_in_memory(content, part);
        if let Some(reservation) = reservation {
            self.keep_reservation(content, part.record, reservation, lacking);
        }
        Ok(())
    }

    fn keep_reservation(&self, content: &mut Content, record: u64, reservation: Reservation, bytes: u64) {
        let record = content.records.get_mut(&record).expect("the part was put in memory just now");
        record.add_reservation(reservation, bytes);
    }

    fn extend(&self, context: &Context<'_>, content: &mut Content, part: &Part<'_>) {
        self.table.note_dirty(content);
        let end = Content::record_start(part.record) + u64::from(part.range().end);
        assert!(end <= FILE_BYTES_MAX, "a write does not reach to {end}");
        content.size = content.size.max(end);
        content.touch(context.now);
    }

    fn put_in_memory(&self, content: &mut Content, part: &Part<'_>) {
        let record = content.records.entry(part.record).or_default();
        let before = record.memory_bytes();
        record.write(part.start, part.data);
        let after = record.memory_bytes();
        self.table.note_memory(before, after);
    }

    fn drop_record(&self, content: &mut Content, record: u64) {
        if let Some(record) = content.records.remove(&record) {
            self.table.note_memory(record.memory_bytes(), 0);
        }
    }

    /// Hands a record that has become full to the store. A failure is no failure of the write: the record stays in memory,
    /// with its room reserved, and the next save tells.
    fn hand_over_full(&self, context: &Context<'_>, inode: u64, content: &mut Content, record: u64) {
        if content.records.get(&record).is_some_and(crate::record::Record::is_full) {
            let _stays_in_memory = self.writeback.save_record(context, inode, content, record);
        }
    }
}

pub(crate) fn is_shared(view: &View<'_>, blob: u64) -> Result<bool, Error> {
    Ok(view.blob(blob)?.value.flags.contains(BlobFlags::SHARED))
}

fn is_free_when_replaced(view: &View<'_>, blob: u64) -> Result<bool, Error> {
    let value = view.blob(blob)?.value;
    Ok(!value.flags.contains(BlobFlags::SHARED) && value.encoding == BlobEncoding::PLAIN)
}
