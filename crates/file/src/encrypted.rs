//! Files and keys: what has to be encrypted, what cannot be read, and storing anew what is encrypted otherwise than asked for.
//!
//! An encrypted record opens only at its place in its file. So what is encrypted is never shared and never shifted, and a change of
//! encryption stores content anew, with the file locked, through the same appending and entering as a write: it can be crashed at
//! any point, and copes with whatever shares or splits the blobs of before. Times stay as they are.

use std::ops::Range;

use stere_policy::Effective;
use stere_store::Owner;

use crate::block::BLOCK;
use crate::context::Context;
use crate::encode::is_as_asked;
use crate::encoding::{AskedEncoding, Storing};
use crate::error::Error;
use crate::facts::{StoredExtent, stored_extents};
use crate::reconcile::Converter;
use crate::record::RECORD_BYTES;
use crate::state::Content;

/// Extents looked at in one step.
const EXTENTS_PER_STEP: usize = 64;

/// What came of storing content anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StoredAnew {
    pub moved_bytes: u64,
    /// Bytes that wait for a key.
    pub locked_bytes: u64,
    pub damaged_blobs: u32,
}

/// Whether a blob is encrypted otherwise than asked for, passed other plugins, or did either and is otherwise compressed.
pub(crate) fn is_of_other_key(extent: &StoredExtent, asked: AskedEncoding) -> bool {
    let value = &extent.blob.value;
    let is_own = value.key != 0 || value.stack != 0;
    let is_other =
        value.key != asked.key || value.stack != asked.stack || (is_own && !is_as_asked(&extent.blob, asked));
    is_other && value.encoding.is_known()
}

impl Converter {
    /// Stores anew, through the file and as `effective` asks, those of the extents in a range that are meant. The file is locked for a
    /// step at a time.
    pub(crate) fn store_anew(
        &self,
        context: &Context<'_>,
        inode: u64,
        range: Range<u64>,
        effective: &Effective,
        is_meant: impl Fn(&StoredExtent) -> bool,
    ) -> Result<StoredAnew, Error> {
        let (mut all, mut from) = (StoredAnew::default(), Some(range.start));
        while let Some(start) = from.filter(|start| *start < range.end) {
            let (done, next) = self.store_some_anew(context, inode, start..range.end, effective, &is_meant)?;
            all.moved_bytes += done.moved_bytes;
            all.locked_bytes += done.locked_bytes;
            all.damaged_blobs += done.damaged_blobs;
            from = next;
        }
        Ok(all)
    }

    /// One step of it; and where to go on.
    fn store_some_anew(
        &self,
        context: &Context<'_>,
        inode: u64,
        range: Range<u64>,
        effective: &Effective,
        is_meant: impl Fn(&StoredExtent) -> bool,
    ) -> Result<(StoredAnew, Option<u64>), Error> {
        let mut done = StoredAnew::default();
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        let content = self.writeback.load(context, inode, &mut state)?;
        if content.is_dirty() {
            self.writeback.save_all(context, inode, content)?;
        }
        let (extents, next) = stored_extents(&self.store, context.io, inode, range.start, EXTENTS_PER_STEP)?;
        let mut others: Vec<StoredExtent> = extents.into_iter().filter(|extent| extent.start < range.end).collect();
        others.retain(is_meant);
        let storing = match self.policies.storing_of(effective) {
            Ok(storing) => storing,
            Err(Error::Key(_) | Error::Plugin(_)) => {
                done.locked_bytes = others.iter().map(|extent| u64::from(extent.length)).sum();
                return Ok((done, next));
            }
            Err(error) => return Err(error),
        };
        others.retain(|extent| {
            let number = extent.blob.value.key;
            let is_readable = number == 0 || self.policies.keyring.closing_key(number).is_ok();
            done.locked_bytes += if is_readable { 0 } else { u64::from(extent.length) };
            is_readable
        });
        for run in runs(&others) {
            match self.store_run(context, inode, content, &storing, &run) {
                Ok(()) => done.moved_bytes += run.end - run.start,
                Err(
                    Error::Undecodable { .. } | Error::Plugin(_) | Error::Store(stere_store::Error::Damaged { .. }),
                ) => {
                    done.damaged_blobs += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok((done, next))
    }

    fn store_run(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        storing: &Storing,
        run: &Range<u64>,
    ) -> Result<(), Error> {
        assert!(run.start < run.end && run.start % BLOCK == 0, "{run:?} is stored anew from a block on");
        let bytes = run.end - run.start;
        let mut data = vec![0; bytes as usize];
        self.codec.read_stored(context.io, inode, run.start, &mut data)?;
        let _room_until_entered =
            self.store.space().reserve(context.io, storing.placement, storing.stored_bytes_max(bytes))?;
        let home = self.policies.home(context.io, inode, content.home, storing.placement)?;
        let owner = Owner { inode, offset: run.start };
        let appended = self.codec.append_whole(context, storing, home, owner, &data)?;
        // The file holds what it held; but what is encrypted now keeps no digest of it (P-144).
        self.writeback.enter_as(context, inode, content, &appended, &[], storing.sealing.is_none())
    }
}

/// What lies one behind the other in a record is stored as one.
fn runs(extents: &[StoredExtent]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for extent in extents {
        assert!(runs.last().is_none_or(|run| run.end <= extent.start), "extents are in the order of the file");
        let follows = |run: &&mut Range<u64>| run.end == extent.start && run.end % RECORD_BYTES != 0;
        match runs.last_mut().filter(follows) {
            Some(run) => run.end = extent.end(),
            None => runs.push(extent.start..extent.end()),
        }
    }
    runs
}
