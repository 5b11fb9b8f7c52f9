//! Making changes durable, by a commit or, where the journal has no room for it, by a checkpoint; and holding writers back until
//! that is done.
//!
//! Invariant: a caller returns only when all it did before is durable. Read next: `commit.rs`, `checkpoint.rs`.

use stere_log::Io;

use crate::batch::Batches;
use crate::engine::Engine;
use crate::error::Error;
use crate::stranded::Rerouting;

/// Data written without a commit; recovery verifies at most about this much.
const UNPROVEN_BYTES_MAX: u64 = 128 << 20;

impl Engine {
    /// Makes everything done before this call durable.
    pub fn commit(&self, io: Io<'_>) -> Result<(), Error> {
        let target = self.inner.read().change;
        loop {
            let mut journal = match io.may_block() {
                false => self.journal.try_lock().ok_or(Error::WouldBlock)?,
                true => self.journal.lock(),
            };
            // With the lock held: whoever had it before may have failed with this caller's changes in its batch.
            self.check_writable()?;
            if journal.durable_change >= target && !journal.is_unsettled && !self.log.rows.has_failures() {
                return Ok(());
            }
            if !io.may_block() {
                return Err(Error::WouldBlock);
            }
            if Batches::of(self).write_batch(&mut journal, false)?.is_some()
                && Rerouting::of(self).settle_failures(&mut journal)?
            {
                let durable = journal.durable_change;
                assert!(durable >= target, "change {durable} is durable and {target} was to be");
                return Ok(());
            }
            drop(journal);
            self.checkpoints().checkpoint_whole()?;
        }
    }

    /// A checkpoint beside running work: only the freezing takes the engine's lock.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.checkpoints().checkpoint()
    }

    /// Holds writers back while the overlay is larger than its part of the memory.
    pub(crate) fn throttle(&self, io: Io<'_>) -> Result<(), Error> {
        let limit = self.space().overlay_bytes_max();
        let is_over = || self.inner.read().active.bytes() > limit;
        if !is_over() {
            return Ok(());
        }
        if !io.may_block() {
            return Err(Error::WouldBlock);
        }
        // Many writers come here at once: one checkpoint is for all of them.
        self.checkpoints().checkpoint_if(is_over)
    }

    /// Commits now and then under a stream of writes, so that recovery never has much data to verify.
    pub(crate) fn bound_unproven(&self, io: Io<'_>) -> Result<(), Error> {
        if !self.log.rows.wants_commit(UNPROVEN_BYTES_MAX) {
            return Ok(());
        }
        if !io.may_block() {
            return Err(Error::WouldBlock);
        }
        self.commit(Io::BLOCKING)
    }
}
