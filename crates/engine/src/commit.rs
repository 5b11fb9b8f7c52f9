//! Group commit: everything done before becomes durable, for all waiting callers at once.
//!
//! Rows and the journal record that names their blobs are written together and made durable by one flush per device: recovery
//! verifies the blobs that the last, unproven records name. Invariants: changes reach the journal in the order in which they
//! took effect; a caller returns only when all it did before is durable. Read next: the crate `journal`, `stranded.rs`,
//! `checkpoint.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use stere_device::Completion;
use stere_faults::{Bug, is_planted};
use stere_format::{Counters, DeviceIndex, JournalPosition, Key, SegmentKind};
use stere_log::{Io, Segment};

use crate::error::Error;
use crate::overlay::Overlay;
use crate::{FreedSegment, Inner, engine::Engine};
use stere_journal::{Change, Journal, Mirror};

/// What the freezing of the overlay leaves for the checkpoint.
pub(crate) struct Frozen {
    pub overlay: Arc<Overlay>,
    pub journal_start: JournalPosition,
    pub counters: Counters,
    pub change: u64,
    /// Who mirrors the journal from this checkpoint on.
    pub mirrors: Vec<Mirror>,
    /// How large the journal is on each of them.
    pub region_bytes: u64,
}

pub(crate) struct Batch {
    changes: Vec<Change>,
    counters: Counters,
    change: u64,
    frozen: Option<Arc<Overlay>>,
}

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
            if journal.durable_change >= target && !journal.is_unsettled && !self.log.has_failures() {
                return Ok(());
            }
            if !io.may_block() {
                return Err(Error::WouldBlock);
            }
            if self.write_batch(&mut journal, false)?.is_some() && self.rerouting().settle_failures(&mut journal)? {
                return Ok(());
            }
            drop(journal);
            self.checkpoints().checkpoint_whole()?;
        }
    }

    /// An estimate of what the next commit writes to the journal.
    pub(crate) fn pending_bytes(&self) -> usize {
        // Open segments' table entries ride along.
        self.inner.read().active.pending_bytes() + 16 * 1024
    }

    /// Commits, and in the same instant freezes the overlay for a checkpoint; `None` when the journal has no room.
    pub(crate) fn commit_and_freeze(&self, journal: &mut MutexGuard<'_, Journal>) -> Result<Option<Frozen>, Error> {
        let Some(batch) = self.write_batch(journal, true)? else { return Ok(None) };
        let overlay = batch.frozen.expect("the batch was taken with freezing");
        let journal_start = JournalPosition { position: journal.position, sequence: journal.sequence };
        // What devices did not take is elsewhere before the checkpoint names it.
        self.rerouting().settle_failures(journal)?;
        let (mirrors, region_bytes) = (journal.mirrors.clone(), journal.region_bytes);
        let (counters, change) = (batch.counters, batch.change);
        Ok(Some(Frozen { overlay, journal_start, counters, change, mirrors, region_bytes }))
    }

    /// Freezes without writing to the journal: the caller holds the journal until the checkpoint is durable.
    pub(crate) fn freeze_unjournaled(&self, journal: &mut MutexGuard<'_, Journal>) -> Frozen {
        let batch = self.take_batch(true, None).expect("without a journal there is no lack of room in it");
        let overlay = batch.frozen.expect("the batch was taken with freezing");
        let journal_start = JournalPosition { position: journal.position, sequence: journal.sequence };
        let (mirrors, region_bytes) = self.checkpoints().wanted_journal(&journal.mirrors, journal.region_bytes);
        Frozen { overlay, journal_start, counters: batch.counters, change: batch.change, mirrors, region_bytes }
    }

    /// Takes and writes what the journal does not hold yet; `None`, with nothing taken, when it has no room for that.
    pub(crate) fn write_batch(
        &self,
        journal: &mut MutexGuard<'_, Journal>,
        freeze: bool,
    ) -> Result<Option<Batch>, Error> {
        let Some(batch) = self.take_batch(freeze, Some(&**journal)) else { return Ok(None) };
        let outcome = self.write_durably(journal, &batch);
        match outcome {
            Ok(()) => {
                journal.durable_sequence = journal.sequence - 1;
                journal.durable_change = batch.change;
                Ok(Some(batch))
            }
            // What was taken from the overlay cannot be journaled again in order: stop writing.
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Writes a record that says that all before it is durable, which it is.
    pub(crate) fn prove(&self, journal: &mut MutexGuard<'_, Journal>) -> Result<(), Error> {
        journal.durable_sequence = journal.sequence - 1;
        self.write_proof(journal)?;
        journal.durable_sequence = journal.sequence - 1;
        journal.is_end_proven = true;
        Ok(())
    }

    /// Writes a record that tells what is known to be durable, and nothing else.
    pub(crate) fn write_proof(&self, journal: &mut MutexGuard<'_, Journal>) -> Result<(), Error> {
        let counters = self.counters(&self.inner.read());
        let completion = Completion::new();
        journal.submit_proof(&self.log.stripe, &counters, &completion);
        self.finish_durably(journal, &completion).map_err(|error| self.fail(error))
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
        if journal.mirrors.is_empty() || self.write_batch(&mut journal, false)?.is_none() {
            return Ok(false);
        }
        if !self.rerouting().settle_failures(&mut journal)? || !journal.has_room(0) {
            return Ok(false);
        }
        self.prove(&mut journal)?;
        let mut inner = self.inner.write();
        // With the journal held: nobody has taken another batch since.
        inner.proven_batch = inner.batch;
        self.checkpoints().release_freed(&mut inner);
        Ok(true)
    }

    /// What a planted bug does: gives slots back whose end is in memory only.
    fn release_unproven(&self) {
        let mut inner = self.inner.write();
        self.record_segments(&mut inner);
        inner.proven_batch = inner.batch;
        self.checkpoints().release_freed(&mut inner);
    }

    /// When nothing follows the last commit: from then on no device that fails can make recovery take it for one that nobody was
    /// told of.
    pub(crate) fn prove_at_rest(&self) -> Result<(), Error> {
        let mut journal = self.journal.lock();
        if journal.is_end_proven || journal.is_unsettled || journal.mirrors.is_empty() || !journal.has_room(0) {
            return Ok(());
        }
        self.check_writable()?;
        self.prove(&mut journal)
    }

    fn write_durably(&self, journal: &mut MutexGuard<'_, Journal>, batch: &Batch) -> Result<(), Error> {
        let completion = Completion::new();
        if !batch.changes.is_empty() {
            if journal.mirrors.is_empty() {
                return Err(Error::Pool("no device takes the journal; add one that is large enough".into()));
            }
            journal.submit(&self.log.stripe, &batch.changes, &batch.counters, &completion)?;
        }
        self.finish_durably(journal, &completion)
    }

    fn finish_durably(&self, journal: &mut MutexGuard<'_, Journal>, completion: &Completion) -> Result<(), Error> {
        self.log.wait_for_rows()?;
        let mut failed = Vec::new();
        for (device, error) in completion.wait() {
            let device = device as DeviceIndex;
            self.log.note_write_error(device, &error);
            failed.push(device);
        }
        if !is_planted(Bug::CommitWithoutFlush) {
            failed.append(&mut self.log.flush()?);
        }
        Ok(journal.drop_failed_mirrors(&failed)?)
    }

    /// Takes what the journal does not hold yet, with all rows it names on their way.
    /// `None` when that does not fit into `journal`, which only the lock that stops further changes lets one tell.
    fn take_batch(&self, freeze: bool, journal: Option<&Journal>) -> Option<Batch> {
        let mut inner = self.inner.write();
        inner.batch += 1;
        self.log.begin_commit();
        self.log.close_rows(SegmentKind::Data);
        self.record_segments(&mut inner);
        if journal.is_some_and(|journal| !journal.has_room(inner.active.pending_bytes())) {
            return None;
        }
        let mut changes = inner.active.take_pending();
        if is_planted(Bug::ChangeForgotten) && changes.len() > 3 {
            changes.remove(1);
        }
        let counters = self.counters(&inner);
        let change = inner.change;
        let frozen = freeze.then(|| {
            assert!(inner.frozen.is_none(), "one checkpoint at a time");
            let overlay = Arc::new(std::mem::take(&mut inner.active));
            inner.frozen = Some(overlay.clone());
            inner.active_generation += 1;
            overlay
        });
        Some(Batch { changes, counters, change, frozen })
    }

    pub(crate) fn counters(&self, inner: &Inner) -> Counters {
        let (next_segment, next_sequence) = self.log.counters();
        Counters {
            next_inode: inner.next_inode,
            next_blob: self.next_blob.load(Ordering::Acquire),
            next_segment,
            next_sequence,
        }
    }

    /// Brings the segment table up to date with the segments that changed, and frees the ones nobody needs.
    fn record_segments(&self, inner: &mut Inner) {
        self.space.note_peak();
        let mut changed = self.log.take_dirty();
        changed.append(&mut inner.perhaps_free);
        // One handle each, because handles are counted below.
        changed.sort_unstable_by_key(|segment| segment.id);
        changed.dedup_by_key(|segment| segment.id);
        for segment in changed {
            if segment.kind == SegmentKind::Meta {
                continue;
            }
            if segment.is_sealed() && segment.live_bytes() == 0 {
                self.free_data_segment(inner, segment);
            } else {
                self.put_segment(inner, &segment);
            }
        }
    }

    pub(crate) fn put_segment(&self, inner: &mut Inner, segment: &Segment) {
        let mut bytes = Vec::with_capacity(64);
        segment.to_value().encode_to(&mut bytes);
        inner.record(Key::segment(segment.id), Some(Arc::from(bytes)));
    }

    fn free_data_segment(&self, inner: &mut Inner, segment: Arc<Segment>) {
        if self.log.segments.get(segment.id).is_none() {
            return;
        }
        // The table, this handle and nobody else: no reader, no blob that is not in the map yet.
        if Arc::strong_count(&segment) > 2 {
            // It stays for now; what is recorded of it must not be from when it still had live bytes.
            self.put_segment(inner, &segment);
            inner.perhaps_free.push(segment);
            return;
        }
        self.log.segments.remove(segment.id);
        inner.record(Key::segment(segment.id), None);
        let (needed, batch) = (inner.active_generation, inner.batch);
        inner.freed.push(FreedSegment { needed, batch, segment });
    }
}
