//! Reading: the extents' blobs in one call to the store, zeros where there are none, and what is dirty laid over.

use std::sync::Arc;

use stere_format::{FileKind, InodeValue};
use stere_store::{BlobHandle, Io, Owner, Piece, Store};

use crate::context::Context;
use crate::encode::Codec;
use crate::error::Error;
use crate::facts::stored_extents;
use crate::keys;
use crate::pieces::{fill_holes, gather, is_any_released};
use crate::recalled::Recalled;
use crate::record::RECORD_BYTES;
use crate::state::{Content, State, laid_over};
use crate::table::FileTable;

/// Of a released file that is read from its beginning so many extents are looked at ahead: 64 MiB of one that was written at once.
const EXPECTED_EXTENTS_MAX: usize = 512;

/// What a read gives besides the bytes.
#[derive(Debug)]
pub struct ReadOutcome {
    /// Bytes read; fewer than asked for only at the end of the file.
    pub length: usize,
    /// The file, for the times.
    pub value: InodeValue,
}

/// A range of a file: what there is of it, and in which blobs.
pub(crate) struct Located {
    pub value: InodeValue,
    pub length: usize,
    pub pieces: Vec<Piece>,
}

/// Reads files, with what is dirty of them.
pub struct Reader {
    pub(crate) store: Arc<Store>,
    pub(crate) table: Arc<FileTable>,
    pub(crate) codec: Arc<Codec>,
    pub(crate) recalled: Arc<Recalled>,
}

impl Reader {
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
        let Located { value, length, pieces } = self.locate(context.io, inode, offset, out.len(), state.as_deref())?;
        let is_recalled = context.io.may_recall() && is_any_released(&pieces);
        if is_recalled && offset == 0 {
            self.expect_rest(context.io, inode)?;
        }
        let out = &mut out[..length];
        fill_holes(&pieces, out);
        if !pieces.is_empty() {
            let read = self.codec.read_pieces(context.io, &pieces, out, Owner { inode, offset });
            if is_recalled {
                self.recalled.note(inode, &read);
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

    /// What is stored of a range, with what is in memory of the file's size.
    pub(crate) fn locate(
        &self,
        io: Io<'_>,
        inode: u64,
        offset: u64,
        length_max: usize,
        state: Option<&State>,
    ) -> Result<Located, Error> {
        self.store.view(io, |view| {
            let mut value = keys::inode(view, inode)?;
            match value.kind() {
                Some(FileKind::File) => {}
                Some(FileKind::Directory) => return Err(Error::IsDirectory(inode)),
                _ => return Err(Error::NotAFile(inode)),
            }
            let stored_size = value.size;
            if let Some(state) = state {
                value = laid_over(value, state);
            }
            let length = value.size.saturating_sub(offset).min(length_max as u64) as usize;
            let stored_length = stored_size.saturating_sub(offset).min(length as u64) as usize;
            let pieces = gather(view, inode, offset, stored_length)?;
            Ok(Located { value, length, pieces })
        })
    }

    /// Tells the store where a released file lies that is read from its beginning.
    pub(crate) fn expect_rest(&self, io: Io<'_>, inode: u64) -> Result<(), Error> {
        let (extents, _) = stored_extents(&self.store, io, inode, 0, EXPECTED_EXTENTS_MAX)?;
        let blobs: Vec<BlobHandle> = extents.into_iter().map(|extent| extent.blob).collect();
        self.store.tier.recalls.expect(io, &blobs);
        Ok(())
    }
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
