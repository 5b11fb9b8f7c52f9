//! Copying between files without moving bytes: whole blocks by reference, the rest by reading and writing.
//!
//! A call has an end: it copies so much at most, and less when whoever asked has got a signal. What was copied is told, and the
//! caller asks for the rest.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use stere_store::{Store, Transaction};

use crate::block::BLOCK;
use crate::context::Context;
use crate::encode::Codec;
use crate::error::Error;
use crate::extents::{self, Allocation, part};
use crate::keys::{self, Keys, extents_touching, visit_extents};
use crate::on_media::Beginning;
use crate::options::FILE_BYTES_MAX;
use crate::policies::Policies;
use crate::save::Writeback;
use crate::state::Content;
use crate::table::{FileTable, Held};
use crate::write::Writer;
use crate::written::Written;

/// Extents that one transaction shares at most.
pub(crate) const SHARED_PER_STEP: usize = 256;
/// Bytes of the target that one transaction replaces at most.
pub(crate) const SHARED_BYTES_PER_STEP: u64 = 32 << 20;
/// Bytes copied at a time where sharing is not possible.
const COPY_BYTES: u64 = 1 << 20;
/// Bytes that one call copies where sharing is not possible: both files are locked meanwhile, and in a full pool room is made for each.
const COPY_BYTES_PER_CALL: u64 = 64 << 20;

/// A copy from one place to another.
pub(crate) struct Copy {
    pub from: u64,
    pub to: u64,
    pub length: u64,
}

/// Copies between files.
pub struct Copier {
    pub(crate) store: Arc<Store>,
    pub(crate) table: Arc<FileTable>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) codec: Arc<Codec>,
    pub(crate) written: Arc<Written>,
    pub(crate) writeback: Arc<Writeback>,
    pub(crate) writer: Arc<Writer>,
}

impl Copier {
    pub(crate) fn new(writer: &Arc<Writer>) -> Copier {
        let Writer { store, table, policies, codec, writeback, .. } = &**writer;
        let (store, table, policies) = (store.clone(), table.clone(), policies.clone());
        let (written, writeback) = (writeback.written.clone(), writeback.clone());
        Copier { store, table, policies, codec: codec.clone(), written, writeback, writer: writer.clone() }
    }

    /// Copies up to `length` bytes; gives how many were copied: fewer at the end of the source.
    pub fn copy_range(
        &self,
        context: &Context<'_>,
        source: u64,
        from: u64,
        target: u64,
        to: u64,
        length: u64,
    ) -> Result<u64, Error> {
        let (first, second) = (self.table.hold(source.min(target)), self.table.hold(source.max(target)));
        let mut first_state = first.write(context.io)?;
        if source == target {
            let content = self.writeback.load(context, source, &mut first_state)?;
            let Some(copy) = self.bounded(content.size, from, to, length)? else { return Ok(0) };
            if from < to + copy.length && to < from + copy.length {
                return Err(Error::Invalid("source and target overlap in the same file"));
            }
            self.writeback.save_all(context, source, content)?;
            let size = content.size;
            return self.copy_for_call(context, source, size, target, content, &copy);
        }
        let mut second_state = lock_second(&second, context)?;
        let (source_state, target_state) = if source < target {
            (&mut *first_state, &mut *second_state)
        } else {
            (&mut *second_state, &mut *first_state)
        };
        let source_content = self.writeback.load(context, source, source_state)?;
        let target_content = self.writeback.load(context, target, target_state)?;
        let Some(copy) = self.bounded(source_content.size, from, to, length)? else { return Ok(0) };
        if source_content.is_dirty() {
            self.writeback.save_all(context, source, source_content)?;
        }
        if target_content.is_dirty() {
            self.writeback.save_all(context, target, target_content)?;
        }
        self.copy_for_call(context, source, source_content.size, target, target_content, &copy)
    }

    /// As `copy`, but what lies on media only is read where the target is to be on devices: up to where that changes.
    fn copy_for_call(
        &self,
        context: &Context<'_>,
        source: u64,
        source_size: u64,
        target: u64,
        content: &mut Content,
        copy: &Copy,
    ) -> Result<u64, Error> {
        let is_aligned = copy.from % BLOCK == copy.to % BLOCK;
        // What is not shared is read anyway.
        if !is_aligned
            || !self.stays_on_devices(context, target)?
            || self.is_encrypted(context, source, target, copy)?
        {
            return self.copy(context, source, source_size, target, content, copy);
        }
        let mut done = 0;
        while done < copy.length {
            let rest = Copy { from: copy.from + done, to: copy.to + done, length: copy.length - done };
            let length = match self.beginning(context, source, &rest)? {
                Beginning::OnDevices(length) => length,
                Beginning::OnMedia(length) if done == 0 => {
                    self.policies.check_not_retained(context, target)?;
                    return self.copy_bytes(context, source, target, content, &Copy { length, ..rest });
                }
                // Reading it may take long: what was done before is told first.
                Beginning::OnMedia(_) => break,
            };
            let copied = match self.copy(context, source, source_size, target, content, &Copy { length, ..rest }) {
                Err(error) if done > 0 && is_full(&error) => break,
                copied => copied?,
            };
            done += copied;
            if copied < length || (done < copy.length && context.io.is_cancelled()) {
                break;
            }
        }
        Ok(done)
    }

    fn bounded(&self, source_size: u64, from: u64, to: u64, length: u64) -> Result<Option<Copy>, Error> {
        if to >= FILE_BYTES_MAX && length > 0 {
            return Err(Error::TooBig);
        }
        let length = length.min(source_size.saturating_sub(from)).min(FILE_BYTES_MAX.saturating_sub(to));
        Ok((length > 0).then_some(Copy { from, to, length }))
    }

    pub(crate) fn copy(
        &self,
        context: &Context<'_>,
        source: u64,
        source_size: u64,
        target: u64,
        content: &mut Content,
        copy: &Copy,
    ) -> Result<u64, Error> {
        self.policies.check_not_retained(context, target)?;
        let Copy { from, to, length } = *copy;
        assert!(length > 0 && from + length <= source_size, "{length} bytes at {from} of {source_size} are copied");
        if from % BLOCK != to % BLOCK {
            return self.copy_bytes(context, source, target, content, copy);
        }
        if self.is_encrypted(context, source, target, copy)? {
            return self.copy_encrypted(context, source, target, content, copy);
        }
        let head = (from.next_multiple_of(BLOCK) - from).min(length);
        // The last block may be shared though it is not full where both files end in it.
        let ends_both = from + length == source_size && to + length >= content.size;
        let shared = if ends_both { length - head } else { (length - head) / BLOCK * BLOCK };
        let mut done = 0;
        if head > 0 {
            done += self.copy_bytes(context, source, target, content, &Copy { from, to, length: head })?;
            self.writeback.save_all(context, target, content)?;
        }
        if shared > 0 {
            let whole = Copy { from: from + head, to: to + head, length: shared };
            match self.share(context, source, target, content, &whole) {
                Ok(copied) => done += copied,
                Err(error) if done > 0 && is_full(&error) => {}
                Err(error) => return Err(error),
            }
            assert!(done <= head + shared, "no more is shared than was asked for");
            if done < head + shared {
                return Ok(done);
            }
        }
        let tail = Copy { from: from + done, to: to + done, length: length - done };
        if tail.length > 0 {
            match self.copy_bytes(context, source, target, content, &tail) {
                Ok(copied) => done += copied,
                Err(error) if done > 0 && is_full(&error) => {}
                Err(error) => return Err(error),
            }
        }
        assert!(done <= length, "{done} bytes are copied of {length}");
        Ok(done)
    }

    /// Whether either is encrypted: an encrypted record opens only at its place in its file, so it is copied.
    fn is_encrypted(&self, context: &Context<'_>, source: u64, target: u64, copy: &Copy) -> Result<bool, Error> {
        Ok(self.policies.is_encrypted(context.io, source, copy.from..copy.from + copy.length)?
            || self.policies.is_encrypted(context.io, target, copy.to..copy.to + 1)?)
    }

    /// Copies bytes, passing over what neither file holds.
    fn copy_encrypted(
        &self,
        context: &Context<'_>,
        source: u64,
        target: u64,
        content: &mut Content,
        copy: &Copy,
    ) -> Result<u64, Error> {
        let (mut done, mut copied_bytes) = (0, 0);
        while done < copy.length && copied_bytes < COPY_BYTES_PER_CALL {
            let rest = Copy { from: copy.from + done, to: copy.to + done, length: copy.length - done };
            let (hole, held) = self.store.view(context.io, |view| {
                let hole = if rest.from % BLOCK == 0 { hole_bytes(view, source, target, &rest)? } else { 0 };
                Ok::<_, Error>((hole, held_bytes(view, source, target, &rest)?))
            })?;
            let ends = rest.from + hole == copy.from + copy.length;
            let hole = if ends { hole } else { hole / BLOCK * BLOCK };
            let step = if hole > 0 {
                self.share(context, source, target, content, &Copy { length: hole, ..rest })
            } else {
                // To the end of the block at least, where a hole may be passed over.
                let length = held.clamp(BLOCK - rest.from % BLOCK, COPY_BYTES).min(rest.length);
                copied_bytes += length;
                self.copy_bytes(context, source, target, content, &Copy { length, ..rest })
            };
            let step = match step {
                Err(error) if done > 0 && is_full(&error) => break,
                step => step?,
            };
            done += step;
            if step == 0 || (done < copy.length && context.io.is_cancelled()) {
                break;
            }
        }
        assert!(done <= copy.length, "{done} bytes are copied of {}", copy.length);
        Ok(done)
    }

    fn copy_bytes(
        &self,
        context: &Context<'_>,
        source: u64,
        target: u64,
        content: &mut Content,
        copy: &Copy,
    ) -> Result<u64, Error> {
        let mut done = 0;
        let end = copy.length.min(COPY_BYTES_PER_CALL);
        while done < end {
            let length = COPY_BYTES.min(end - done);
            let mut bytes = vec![0; length as usize];
            self.codec.read_stored(context.io, source, copy.from + done, &mut bytes)?;
            let written = self.writer.write_with_edges(context, target, content, copy.to + done, &bytes, Vec::new());
            let written = match written {
                Err(error) if done > 0 && is_full(&error) => break,
                written => written?,
            };
            // The source may be the same file: what was written has to be where it is read.
            self.writeback.save_all(context, target, content)?;
            done += written as u64;
            assert!(done <= end, "{done} bytes are copied of {end}");
            if written < bytes.len() || (done < end && context.io.is_cancelled()) {
                break;
            }
        }
        Ok(done)
    }

    fn share(
        &self,
        context: &Context<'_>,
        source: u64,
        target: u64,
        content: &mut Content,
        copy: &Copy,
    ) -> Result<u64, Error> {
        let mut done = 0;
        while done < copy.length {
            let rest = Copy { from: copy.from + done, to: copy.to + done, length: copy.length - done };
            let shared = self.store.update(context.io, |transaction| {
                let step = share_step(transaction, source, target, &rest)?;
                let mut value = keys::inode(transaction, target)?;
                value.size = value.size.max(rest.to + step.0);
                value.blocks_bytes = step.1.apply(value.blocks_bytes);
                (value.mtime, value.ctime) = (context.now, context.now);
                keys::put_inode(transaction, target, &value);
                Ok::<_, Error>((step.0, value.size))
            });
            let (step, size) = match shared {
                Err(error) if done > 0 && is_full(&error) => break,
                shared => shared?,
            };
            (content.size, content.stored_size) = (size, size);
            content.extents_end = content.extents_end.max((rest.to + step).next_multiple_of(BLOCK));
            done += step;
            self.written.note(target);
            if done < copy.length && context.io.is_cancelled() {
                break;
            }
        }
        content.assert_invariants();
        Ok(done)
    }
}

/// No room or quota is left: what was copied before is told.
fn is_full(error: &Error) -> bool {
    matches!(error, Error::Store(stere_store::Error::NoSpace | stere_store::Error::OverLimit { .. }))
}

fn lock_second<'a>(
    held: &'a Held<'_>,
    context: &Context<'_>,
) -> Result<parking_lot::RwLockWriteGuard<'a, crate::state::State>, Error> {
    held.write(context.io)
}

/// Bytes from the start of a copy on of which neither file holds any.
fn hole_bytes(keys: &impl Keys, source: u64, target: u64, copy: &Copy) -> Result<u64, Error> {
    let hole = |inode: u64, at: u64| {
        let first = extents_touching(keys, inode, at, at + copy.length, 1)?;
        Ok::<_, Error>(first.first().map_or(copy.length, |extent| extent.start.saturating_sub(at)))
    };
    let bytes = hole(source, copy.from)?.min(hole(target, copy.to)?);
    assert!(bytes <= copy.length, "a hole of {bytes} bytes in a copy of {}", copy.length);
    Ok(bytes)
}

/// Bytes from the start of a copy on until both files have a hole; more than is copied at a time are not counted.
fn held_bytes(keys: &impl Keys, source: u64, target: u64, copy: &Copy) -> Result<u64, Error> {
    let held = |inode: u64, at: u64| {
        let mut end = at;
        visit_extents(keys, inode, at, &mut |extent| {
            if extent.start > end || end >= at + COPY_BYTES {
                return ControlFlow::Break(());
            }
            end = extent.block_end();
            ControlFlow::Continue(())
        })?;
        Ok::<_, Error>(end.saturating_sub(at))
    };
    Ok(held(source, copy.from)?.max(held(target, copy.to)?))
}

/// Shares a bounded number of extents; gives how many bytes that covered and what it allocated.
pub(crate) fn share_step(
    transaction: &mut Transaction<'_>,
    source: u64,
    target: u64,
    copy: &Copy,
) -> Result<(u64, Allocation), Error> {
    assert!(copy.from % BLOCK == 0 && copy.to % BLOCK == 0, "whole blocks are shared");
    let mut end = copy.from + copy.length.min(SHARED_BYTES_PER_STEP);
    let sources = extents_touching(transaction, source, copy.from, end, SHARED_PER_STEP)?;
    if sources.is_empty() {
        // What neither holds takes no work.
        end = end.max(copy.from + hole_bytes(transaction, source, target, copy)?);
    }
    let reached = match sources.last() {
        Some(last) if sources.len() == SHARED_PER_STEP => last.end().next_multiple_of(BLOCK).min(end),
        _ => end,
    };
    assert!(reached > copy.from && reached <= end, "each step shares some of the range");
    let to = |offset: u64| copy.to + (offset - copy.from);
    let cleared: Range<u64> = copy.to..to(reached).next_multiple_of(BLOCK);
    let mut allocation = Allocation::default();
    // References first: clearing the target may drop the last other reference to the same blob.
    let mut pieces = Vec::with_capacity(sources.len());
    for extent in sources.iter().filter(|extent| !extent.is_preallocated()) {
        let piece = part(extent, extent.start.max(copy.from)..extent.end().min(end));
        transaction.reference_blob(piece.value.blob, true)?;
        pieces.push(piece);
    }
    let (freed, _) = extents::clear(transaction, target, cleared, usize::MAX - 1)?;
    allocation.add(freed);
    for piece in pieces {
        let value = piece.value;
        allocation.add(extents::put_plain(
            transaction,
            target,
            to(piece.start),
            value.blob,
            value.blob_offset,
            value.length,
        ));
    }
    Ok((reached - copy.from, allocation))
}
