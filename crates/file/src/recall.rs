//! What readers tell of released files and writers of new content, and who is told of it.
//! Read next: `recalled.rs`, `written.rs`.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use stere_store::{BlobHandle, Io, Piece, Refusal};

use crate::Files;
use crate::error::Error;
use crate::facts::stored_extents;
use crate::recalled::{RECALLED_MAX, Wake};
use crate::written::WRITTEN_MAX;

/// Of a released file that is read from its beginning so many extents are looked at ahead: 64 MiB of one that was written at once.
pub(crate) const EXPECTED_EXTENTS_MAX: usize = 512;

pub(crate) fn is_any_released(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| piece.blob.is_released())
}

impl Files {
    /// Tells the store where a released file lies that is read from its beginning.
    pub(crate) fn expect_rest(&self, io: Io<'_>, inode: u64) -> Result<(), Error> {
        let (extents, _) = stored_extents(&self.store, io, inode, 0, EXPECTED_EXTENTS_MAX)?;
        let blobs: Vec<BlobHandle> = extents.into_iter().map(|extent| extent.blob).collect();
        self.store.tier.recalls.expect(io, &blobs);
        Ok(())
    }

    /// Remembers that a file was recalled, if what came of it was its content, or that it comes later.
    pub(crate) fn note_recalled(&self, inode: u64, outcome: &Result<(), Error>) {
        let is_recalled = match outcome {
            Ok(()) => true,
            Err(Error::Store(stere_store::Error::Elsewhere { refusal, .. })) => *refusal == Refusal::Later,
            Err(_) => false,
        };
        let mut recalled = self.recalled.files.lock();
        if !is_recalled || recalled.len() >= RECALLED_MAX {
            return;
        }
        let is_news = recalled.insert(inode);
        drop(recalled);
        if is_news && self.recalled.is_awaited.load(Ordering::Acquire) {
            self.recalled.wake.get().into_iter().for_each(|wake| wake());
        }
    }

    /// Who is told at once when something was recalled, as long as that is awaited.
    pub fn set_wake_on_recall(&self, wake: Wake) {
        // Set once, when the pool is mounted.
        drop(self.recalled.wake.set(wake));
    }

    /// Whether somebody acts at once on what was recalled.
    pub fn await_recalls(&self, is_awaited: bool) {
        self.recalled.is_awaited.store(is_awaited, Ordering::Release);
    }

    /// Files of which something was recalled since this was asked last.
    pub fn take_recalled(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.recalled.files.lock())
    }
}

impl Files {
    /// Something of a file lies where nobody looked yet.
    pub fn note_written(&self, inode: u64) {
        if !self.store.tier.media.has_volumes() {
            return;
        }
        let mut written = self.written.0.lock();
        if let Some(inodes) = written.as_mut() {
            inodes.insert(inode);
            if inodes.len() > WRITTEN_MAX {
                *written = None;
            }
        }
    }

    /// Whether it is known that some were written since `take_written` was asked.
    pub fn is_any_written(&self) -> bool {
        self.written.0.lock().as_ref().is_some_and(|inodes| !inodes.is_empty())
    }

    /// The files that were written since this was asked last; none if any may have been.
    pub fn take_written(&self) -> Option<BTreeSet<u64>> {
        self.written.0.lock().replace(BTreeSet::new())
    }
}
