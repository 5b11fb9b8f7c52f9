//! Batches: what the journal does not hold yet, taken and written in one go, and the records that prove it durable.
//!
//! Invariants: changes reach the journal in the order in which they took effect; a batch is taken with all rows that it names on
//! their way. Read next: `commit.rs`, the crate `journal`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use stere_device::Completion;
use stere_faults::{Bug, is_planted};
use stere_format::{Counters, DeviceIndex, JournalPosition, Key, SegmentKind};
use stere_journal::{Change, Journal, Mirror};
use stere_log::Segment;
use stere_tree::Overlay;

use crate::engine::Engine;
use crate::error::Error;
use crate::{FreedSegment, Inner};

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
    pub(crate) changes: Vec<Change>,
    pub(crate) counters: Counters,
    pub(crate) change: u64,
    pub(crate) frozen: Option<Arc<Overlay>>,
}

/// Enters a segment in the table as it is now.
pub(crate) fn put_segment(inner: &mut Inner, segment: &Segment) {
    assert_eq!(segment.kind, SegmentKind::Data, "the checkpoint record tells of metadata segments, not the tree");
    let is_on_media = segment.tertiary().there != 0;
    assert!(is_on_media || !segment.is_released(), "segment {} is neither on devices nor on media", segment.id);
    let mut bytes = Vec::with_capacity(64);
    segment.to_value().encode_to(&mut bytes);
    inner.record(Key::segment(segment.id), Some(Arc::from(bytes)));
}

/// Takes and writes batches.
#[derive(Clone, Copy)]
pub(crate) struct Batches<'a> {
    engine: &'a Engine,
}

impl<'a> Batches<'a> {
    pub fn of(engine: &'a Engine) -> Batches<'a> {
        Batches { engine }
    }
}

impl Batches<'_> {
    /// An estimate of what the next commit writes to the journal.
    pub(crate) fn pending_bytes(&self) -> usize {
        // Open segments' table entries ride along.
        self.engine.inner.read().active.pending_bytes() + 16 * 1024
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
                let (before, now) = (journal.durable_change, batch.change);
                assert!(before <= now, "change {before} was durable, and a later batch ends at {now}");
                journal.durable_sequence = journal.sequence - 1;
                journal.durable_change = now;
                Ok(Some(batch))
            }
            // What was taken from the overlay cannot be journaled again in order: stop writing.
            Err(error) => Err(self.engine.fail(error)),
        }
    }

    /// Writes a record that says that all before it is durable, which it is.
    pub(crate) fn prove(&self, journal: &mut MutexGuard<'_, Journal>) -> Result<(), Error> {
        assert!(!journal.is_unsettled, "what devices did not take is elsewhere before the rest is proven");
        journal.durable_sequence = journal.sequence - 1;
        // What is in a shared log is proven by that.
        if journal.tail.is_none() {
            self.write_proof(journal)?;
        }
        journal.durable_sequence = journal.sequence - 1;
        journal.is_end_proven = true;
        Ok(())
    }

    /// Writes a record that tells what is known to be durable, and nothing else.
    pub(crate) fn write_proof(&self, journal: &mut MutexGuard<'_, Journal>) -> Result<(), Error> {
        assert!(journal.is_somewhere(), "a proof that nothing takes proves nothing");
        let counters = self.counters_of(&self.engine.inner.read());
        let completion = Completion::new();
        journal.submit_proof(&self.engine.log.stripe, &counters, &completion);
        self.finish_durably(journal, &completion).map_err(|error| self.engine.fail(error))
    }

    fn write_durably(&self, journal: &mut MutexGuard<'_, Journal>, batch: &Batch) -> Result<(), Error> {
        let completion = Completion::new();
        if !batch.changes.is_empty() {
            if !journal.is_somewhere() {
                return Err(Error::Pool("no device takes the journal; add one that is large enough".into()));
            }
            journal.submit(&self.engine.log.stripe, &batch.changes, &batch.counters, &completion)?;
        }
        self.finish_durably(journal, &completion)
    }

    fn finish_durably(&self, journal: &mut MutexGuard<'_, Journal>, completion: &Completion) -> Result<(), Error> {
        self.engine.log.wait_for_rows()?;
        let mut failed = Vec::new();
        for (device, error) in completion.wait() {
            let device = device as DeviceIndex;
            self.engine.log.note_write_error(device, &error);
            failed.push(device);
        }
        if is_planted(Bug::PutBeforeFlush) {
            journal.put_submitted(true)?;
        }
        if !is_planted(Bug::CommitWithoutFlush) {
            failed.append(&mut self.engine.log.flush()?);
        }
        journal.drop_failed_mirrors(&failed)?;
        // After the flush: whoever takes the pool over believes what is in the log.
        Ok(journal.put_submitted(!self.engine.log.rows.has_failures())?)
    }

    /// Takes what the journal does not hold yet, with all rows it names on their way.
    /// `None` when that does not fit into `journal`, which only the lock that stops further changes lets one tell.
    pub(crate) fn take_batch(&self, freeze: bool, journal: Option<&Journal>) -> Option<Batch> {
        let mut inner = self.engine.inner.write();
        inner.batch += 1;
        self.engine.log.rows.begin_commit();
        self.engine.log.close_rows(SegmentKind::Data);
        self.record_segments(&mut inner);
        if journal.is_some_and(|journal| !journal.has_room(inner.active.pending_bytes())) {
            return None;
        }
        let mut changes = inner.active.take_pending();
        if is_planted(Bug::ChangeForgotten) && changes.len() > 3 {
            changes.remove(1);
        }
        let counters = self.counters_of(&inner);
        let change = inner.change;
        let frozen = freeze.then(|| {
            assert!(inner.frozen.is_none(), "one checkpoint at a time");
            let overlay = Arc::new(std::mem::take(&mut inner.active));
            assert_eq!(overlay.pending_bytes(), 0, "the journal has all that is frozen");
            inner.frozen = Some(overlay.clone());
            inner.active_generation += 1;
            inner.assert_invariants();
            overlay
        });
        Some(Batch { changes, counters, change, frozen })
    }

    pub(crate) fn counters_of(&self, inner: &Inner) -> Counters {
        let (next_segment, next_sequence) = self.engine.log.counters.get();
        Counters {
            next_inode: inner.next_inode,
            next_blob: self.engine.next_blob.load(Ordering::Acquire),
            next_segment,
            next_sequence,
        }
    }

    /// Brings the segment table up to date with the segments that changed, and frees the ones nobody needs.
    pub(crate) fn record_segments(&self, inner: &mut Inner) {
        self.engine.space.note_peak();
        let mut changed = self.engine.log.changed.take();
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
                put_segment(inner, &segment);
            }
        }
    }

    fn free_data_segment(&self, inner: &mut Inner, segment: Arc<Segment>) {
        if self.engine.log.segments.get(segment.id).is_none() {
            return;
        }
        // The table, this handle and nobody else: no reader, no blob that is not in the map yet.
        if Arc::strong_count(&segment) > 2 {
            // It stays for now; what is recorded of it must not be from when it still had live bytes.
            put_segment(inner, &segment);
            inner.perhaps_free.push(segment);
            return;
        }
        assert!(segment.is_sealed() && segment.live_bytes() == 0, "segment {} is not emptied", segment.id);
        self.engine.log.segments.remove(segment.id);
        inner.record(Key::segment(segment.id), None);
        let (needed, batch) = (inner.active_generation, inner.batch);
        inner.freed.push(FreedSegment { needed, batch, segment });
    }
}
