//! Group commit: a batch, with what devices failed to take of it, freezes for a checkpoint or proves that slots are free.
//!
//! Rows and the journal record that names their blobs are written together and made durable by one flush per device: recovery
//! verifies the blobs that the last, unproven records name. Invariants: changes reach the journal in the order in which they
//! took effect; nothing counts as durable before rows that devices did not take are elsewhere. Read next: `batch.rs`,
//! `stranded.rs`, `durable.rs`.

use parking_lot::MutexGuard;
use stere_faults::{Bug, is_planted};
use stere_format::JournalPosition;

use crate::batch::{Batches, Frozen};
use crate::engine::Engine;
use crate::error::Error;
use crate::freed::release_freed;
use crate::mirrors::wanted_journal;
use crate::stranded::Rerouting;
use stere_journal::Journal;

impl Engine {
    /// Commits, and in the same instant freezes the overlay for a checkpoint; `None` when the journal has no room.
    pub(crate) fn commit_and_freeze(&self, journal: &mut MutexGuard<'_, Journal>) -> Result<Option<Frozen>, Error> {
        let Some(batch) = Batches::of(self).write_batch(journal, true)? else { return Ok(None) };
        let overlay = batch.frozen.expect("the batch was taken with freezing");
        let journal_start = JournalPosition { position: journal.position, sequence: journal.sequence };
        assert_eq!(journal.durable_sequence + 1, journal.sequence, "a checkpoint begins behind what is durable");
        // What devices did not take is elsewhere before the checkpoint names it.
        Rerouting::of(self).settle_failures(journal)?;
        let (mirrors, region_bytes) = (journal.mirrors.clone(), journal.region_bytes);
        let (counters, change) = (batch.counters, batch.change);
        Ok(Some(Frozen { overlay, journal_start, counters, change, mirrors, region_bytes }))
    }

    /// Freezes without writing to the journal: the caller holds the journal until the checkpoint is durable.
    pub(crate) fn freeze_unjournaled(&self, journal: &mut MutexGuard<'_, Journal>) -> Frozen {
        let batch = Batches::of(self).take_batch(true, None).expect("without a journal there is no lack of room in it");
        let overlay = batch.frozen.expect("the batch was taken with freezing");
        let journal_start = JournalPosition { position: journal.position, sequence: journal.sequence };
        let (mirrors, region_bytes) = wanted_journal(self, &journal.mirrors, journal.region_bytes);
        Frozen { overlay, journal_start, counters: batch.counters, change: batch.change, mirrors, region_bytes }
    }

    /// Commits, proves it, and gives back the slots of what was emptied, without a checkpoint: recovery takes what is proven as it
    /// is, whatever lies where it came from. False if that cannot be done, and a checkpoint is due.
    pub fn release_by_proof(&self) -> Result<bool, Error> {
        let mut journal = self.journal.lock();
        self.check_writable()?;
        if is_planted(Bug::EarlyReuse) {
            self.release_unproven();
            return Ok(true);
        }
        if !journal.is_somewhere() || Batches::of(self).write_batch(&mut journal, false)?.is_none() {
            return Ok(false);
        }
        if !Rerouting::of(self).settle_failures(&mut journal)? || !journal.has_room(0) {
            return Ok(false);
        }
        Batches::of(self).prove(&mut journal)?;
        let mut inner = self.inner.write();
        assert!(inner.proven_batch < inner.batch, "batch {} was proven before it was taken", inner.batch);
        // With the journal held: nobody has taken another batch since.
        inner.proven_batch = inner.batch;
        release_freed(self, &mut inner);
        Ok(true)
    }

    /// What a planted bug does: gives slots back whose end is in memory only.
    fn release_unproven(&self) {
        let mut inner = self.inner.write();
        Batches::of(self).record_segments(&mut inner);
        inner.proven_batch = inner.batch;
        release_freed(self, &mut inner);
    }

    /// When nothing follows the last commit: from then on no device that fails can make recovery take it for one that nobody was
    /// told of.
    pub(crate) fn prove_at_rest(&self) -> Result<(), Error> {
        let mut journal = self.journal.lock();
        if journal.is_end_proven || journal.is_unsettled || !journal.is_somewhere() || !journal.has_room(0) {
            return Ok(());
        }
        self.check_writable()?;
        Batches::of(self).prove(&mut journal)
    }
}
