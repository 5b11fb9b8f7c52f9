//! What a reader of a released file tells: where the rest of it lies, and that it was recalled.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stere_store::{BlobHandle, Io, Piece, Refusal};

use crate::Files;
use crate::error::Error;
use crate::facts::stored_extents;

/// Of a released file that is read from its beginning so many extents are looked at ahead: 64 MiB of one that was written at once.
const EXPECTED_EXTENTS_MAX: usize = 512;
/// Files that are remembered to have been recalled.
const RECALLED_MAX: usize = 4096;

/// Wakes whoever looks what was recalled.
type Wake = Box<dyn Fn() + Send + Sync>;

/// Files of which something was recalled lately.
#[derive(Default)]
pub(crate) struct Recalled {
    files: Mutex<BTreeSet<u64>>,
    /// Somebody acts on it at once.
    is_awaited: AtomicBool,
    wake: OnceLock<Wake>,
}

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
