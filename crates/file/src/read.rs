//! Reading: the extents' blobs in one call to the store, zeros where there are none, and what is dirty laid over.

use std::ops::ControlFlow;

use stere_format::{FileKind, InodeValue};
use stere_store::{Io, Owner, Piece, View};

use crate::error::Error;
use crate::keys::{self, visit_extents};
use crate::recall::is_any_released;
use crate::record::RECORD_BYTES;
use crate::state::{Content, laid_over};
use crate::{Context, Files};

/// What a read gives besides the bytes.
#[derive(Debug)]
pub struct ReadOutcome {
    /// Bytes read; fewer than asked for only at the end of the file.
    pub length: usize,
    /// The file, for the times.
    pub value: InodeValue,
}

impl Files {
    /// Reads at `offset`.
    pub fn read(&self, context: &Context<'_>, inode: u64, offset: u64, out: &mut [u8]) -> Result<ReadOutcome, Error> {
        self.read_and_note(context, inode, offset, out, true)
    }

    /// The same for who uses nothing: copies, proves, counts.
    pub fn read_unnoted(
        &self,
        context: &Context<'_>,
        inode: u64,
        offset: u64,
        out: &mut [u8],
    ) -> Result<ReadOutcome, Error> {
        self.read_and_note(context, inode, offset, out, false)
    }

    fn read_and_note(
        &self,
        context: &Context<'_>,
        inode: u64,
        offset: u64,
        out: &mut [u8],
        is_use: bool,
    ) -> Result<ReadOutcome, Error> {
        let held = self.table.find(inode);
        let state = match &held {
            Some(held) => Some(held.read(context.io)?),
            None => None,
        };
        let content = state.as_ref().and_then(|state| state.content.as_ref());
        let length_max = out.len();
        let (value, length, pieces) = self.store.view(context.io, |view| {
            let mut value = keys::inode(view, inode)?;
            match value.kind() {
                Some(FileKind::File) => {}
                Some(FileKind::Directory) => return Err(Error::IsDirectory(inode)),
                _ => return Err(Error::NotAFile(inode)),
            }
            let stored_size = value.size;
            if let Some(state) = &state {
                value = laid_over(value, state);
            }
            let length = value.size.saturating_sub(offset).min(length_max as u64) as usize;
            let stored_length = stored_size.saturating_sub(offset).min(length as u64) as usize;
            let pieces = gather(view, inode, offset, stored_length)?;
            Ok((value, length, pieces))
        })?;
        let is_recalled = context.io.may_recall() && is_any_released(&pieces);
        if is_recalled && offset == 0 {
            self.expect_rest(context.io, inode)?;
        }
        let out = &mut out[..length];
        fill_holes(&pieces, out);
        if !pieces.is_empty() {
            let read = self.read_pieces(context.io, &pieces, out, Owner { inode, offset });
            if is_recalled {
                self.note_recalled(inode, &read);
            }
            read?;
            if is_use {
                self.store.tier.heat.note_use(&pieces, context.now.seconds);
            }
        }
        if let Some(content) = content {
            lay_dirty_over(content, offset, out);
        }
        Ok(ReadOutcome { length, value })
    }

    /// Reads what the store has, whatever is dirty in memory; zeros in holes and behind the end.
    pub(crate) fn read_stored(&self, io: Io<'_>, inode: u64, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let length = out.len();
        let pieces = self.store.view(io, |view| gather(view, inode, offset, length))?;
        fill_holes(&pieces, out);
        if !pieces.is_empty() {
            self.read_pieces(io, &pieces, out, Owner { inode, offset })?;
        }
        Ok(())
    }
}

/// The pieces of blobs that `length` bytes at `offset` consist of.
fn gather(view: &View<'_>, inode: u64, offset: u64, length: usize) -> Result<Vec<Piece>, Error> {
    let end = offset + length as u64;
    let mut pieces = Vec::new();
    if length == 0 {
        return Ok(pieces);
    }
    let mut failure = None;
    visit_extents(view, inode, offset, &mut |extent| {
        if extent.start >= end {
            return ControlFlow::Break(());
        }
        if extent.is_preallocated() {
            return ControlFlow::Continue(());
        }
        let (from, to) = (extent.start.max(offset), extent.end().min(end));
        match view.blob(extent.value.blob) {
            Ok(blob) => pieces.push(Piece {
                blob,
                offset: extent.value.blob_offset + (from - extent.start) as u32,
                length: (to - from) as u32,
                at: (from - offset) as usize,
            }),
            Err(error) => {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(pieces),
    }
}

/// Zeros between the pieces, which are in order.
fn fill_holes(pieces: &[Piece], out: &mut [u8]) {
    let mut at = 0;
    for piece in pieces {
        out[at..piece.at].fill(0);
        at = piece.at + piece.length as usize;
    }
    out[at..].fill(0);
}

fn lay_dirty_over(content: &Content, offset: u64, out: &mut [u8]) {
    if content.records.is_empty() || out.is_empty() {
        return;
    }
    let end = offset + out.len() as u64;
    for (index, record) in content.records.range(offset / RECORD_BYTES..=(end - 1) / RECORD_BYTES) {
        let start = Content::record_start(*index);
        let (from, to) = (offset.max(start), end.min(start + RECORD_BYTES));
        record.lay_over((from - start) as u32, &mut out[(from - offset) as usize..(to - offset) as usize]);
    }
}
