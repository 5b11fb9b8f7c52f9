//! Steps of the engine one by one, and where its structures lie on devices: for tests, which look between two steps or break
//! what lies there.
//!
//! What a mounted pool does in one call is done here in its parts, in the same order and by the same functions. Read next:
//! `checkpoint.rs`, `clean.rs`, `rebuild.rs`.

use stere_format::{JournalPosition, Key, NodeReference};

use crate::batch::Frozen;
use crate::engine::Engine;
use crate::error::Error;

/// A checkpoint whose changes are frozen and not merged yet.
pub struct HalfCheckpoint(Frozen);

/// Where the next record of the journal will lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEnd {
    pub epoch: u32,
    pub at: JournalPosition,
    /// On its first mirror, in bytes.
    pub offset: u64,
}

/// The steps of an engine.
#[derive(Clone, Copy)]
pub struct SingleSteps<'a> {
    engine: &'a Engine,
}

impl Engine {
    pub fn single_steps(&self) -> SingleSteps<'_> {
        SingleSteps { engine: self }
    }
}

impl SingleSteps<'_> {
    /// The first half of a checkpoint; none where the journal has no room.
    pub fn begin_checkpoint(&self) -> Result<Option<HalfCheckpoint>, Error> {
        Ok(self.engine.commit_and_freeze(&mut self.engine.journal.lock())?.map(HalfCheckpoint))
    }

    /// The second half.
    pub fn finish_checkpoint(&self, half: &HalfCheckpoint) -> Result<(), Error> {
        let HalfCheckpoint(frozen) = half;
        let superblock =
            self.engine.checkpoints().merge_and_store(&mut self.engine.checkpointer.lock(), frozen, false)?;
        self.engine.journal.lock().start_at(&frozen.journal_start, superblock.generation);
        Ok(())
    }

    /// One pass of the cleaner over segments with less than `percent` live; how many it emptied, none if none is worth it.
    pub fn clean_once(&self, percent: u64) -> Result<Option<usize>, Error> {
        self.engine.cleaning().clean_pass(&mut self.engine.cleaner.lock(), percent, crate::clean::Victims::Gaining)
    }

    /// Enters what the rebuilder has written, but for the newest so many bytes.
    pub fn enter_rebuilt_but(&self, bytes_kept: u64) -> Result<(), Error> {
        self.engine.chunk_writer().settle_but(&mut self.engine.mender.lock(), bytes_kept)
    }

    /// Where the journal begins, as the superblocks say.
    pub fn journal_start(&self) -> Option<JournalPosition> {
        self.engine.superblocks.lock().first().map(|superblock| superblock.journal_start)
    }

    /// None while no device holds the journal.
    pub fn journal_end(&self) -> Option<JournalEnd> {
        let journal = self.engine.journal.lock();
        let offset = journal.mirrors.first()?.offset + journal.position % journal.region_bytes;
        let at = JournalPosition { position: journal.position, sequence: journal.sequence };
        Some(JournalEnd { epoch: journal.epoch, at, offset })
    }

    /// The root of the tree of the last checkpoint.
    pub fn root(&self) -> Option<NodeReference> {
        self.engine.inner.read().tree.root
    }

    /// Up to where no key is known to be from this one on.
    pub fn void_end_behind(&self, key: &Key) -> Option<Key> {
        self.engine.inner.read().voids.end_behind(key)
    }
}
