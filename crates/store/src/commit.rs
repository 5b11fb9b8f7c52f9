//! Group commit: everything done before becomes durable, for all waiting callers at once.
//!
//! Rows and the journal record that names their blobs are written together and made durable by one flush per device: recovery
//! verifies the blobs that the last, unproven records name. Invariants: changes reach the journal in the order in which they
//! took effect; a caller returns only when all it did before is durable. Read next: `journal.rs`, `checkpoint.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use stere_device::Completion;
use stere_device::planted::{Bug, is_planted};
use stere_format::{Counters, DeviceIndex, JournalPosition, Key, SegmentKind};
use stere_log::{Segment, Wait};

use crate::error::Error;
use crate::journal::{Change, Journal};
use crate::overlay::Overlay;
use crate::{Inner, Store};

/// What the freezing of the overlay leaves for the checkpoint.
pub(crate) struct Frozen {
    pub overlay: Arc<Overlay>,
    pub journal_start: JournalPosition,
    pub counters: Counters,
    pub change: u64,
}

struct Batch {
    changes: Vec<Change>,
    counters: Counters,
    change: u64,
    frozen: Option<Arc<Overlay>>,
}

impl Store {
    /// Makes everything done before this call durable.
    pub fn commit(&self, wait: Wait) -> Result<(), Error> {
        let target = self.inner.read().change;
        loop {
            self.check_writable()?;
            let mut journal = match wait {
                Wait::Never => self.journal.try_lock().ok_or(Error::WouldBlock)?,
                Wait::Allowed => self.journal.lock(),
            };
            if journal.durable_change >= target {
                return Ok(());
            }
            if wait == Wait::Never {
                return Err(Error::WouldBlock);
            }
            if journal.has_room(self.pending_bytes()) {
                return self.commit_locked(&mut journal);
            }
            drop(journal);
            self.checkpoint_whole()?;
        }
    }

    /// An estimate of what the next commit writes to the journal.
    pub(crate) fn pending_bytes(&self) -> usize {
        // Open segments' table entries ride along.
        self.inner.read().active.pending_bytes() + 16 * 1024
    }

    pub(crate) fn commit_locked(&self, journal: &mut MutexGuard<'_, Journal>) -> Result<(), Error> {
        self.write_batch(journal, false).map(|_| ())
    }

    /// Commits, and in the same instant freezes the overlay for a checkpoint.
    pub(crate) fn commit_and_freeze(&self, journal: &mut MutexGuard<'_, Journal>) -> Result<Frozen, Error> {
        let batch = self.write_batch(journal, true)?;
        let overlay = batch.frozen.expect("the batch was taken with freezing");
        let journal_start = JournalPosition { position: journal.position, sequence: journal.sequence };
        Ok(Frozen { overlay, journal_start, counters: batch.counters, change: batch.change })
    }

    /// Freezes without writing to the journal: the caller holds the journal until the checkpoint is durable.
    pub(crate) fn freeze_unjournaled(&self, journal: &mut MutexGuard<'_, Journal>) -> Frozen {
        let batch = self.take_batch(true);
        let overlay = batch.frozen.expect("the batch was taken with freezing");
        let journal_start = JournalPosition { position: journal.position, sequence: journal.sequence };
        Frozen { overlay, journal_start, counters: batch.counters, change: batch.change }
    }

    fn write_batch(&self, journal: &mut MutexGuard<'_, Journal>, freeze: bool) -> Result<Batch, Error> {
        let batch = self.take_batch(freeze);
        let outcome = self.write_durably(journal, &batch);
        match outcome {
            Ok(()) => {
                journal.durable_sequence = journal.sequence - 1;
                journal.durable_change = batch.change;
                Ok(batch)
            }
            // What was taken from the overlay cannot be journaled again in order: stop writing.
            Err(error) => Err(self.fail(error)),
        }
    }

    fn write_durably(&self, journal: &mut MutexGuard<'_, Journal>, batch: &Batch) -> Result<(), Error> {
        let completion = Completion::new();
        if !batch.changes.is_empty() {
            journal.submit(&self.log.stripe, &batch.changes, &batch.counters, &completion)?;
        }
        self.log.wait_for_rows()?;
        let mut failed: Vec<_> = completion.wait().iter().map(|(device, _)| *device as DeviceIndex).collect();
        if !is_planted(Bug::CommitWithoutFlush) {
            failed.append(&mut self.log.flush()?);
        }
        journal.drop_failed_mirrors(&failed)
    }

    /// Takes what the journal does not hold yet, with all rows it names on their way.
    fn take_batch(&self, freeze: bool) -> Batch {
        let mut inner = self.inner.write();
        self.log.begin_commit();
        self.log.close_rows(SegmentKind::Data);
        self.record_segments(&mut inner);
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
        Batch { changes, counters, change, frozen }
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

    fn put_segment(&self, inner: &mut Inner, segment: &Segment) {
        let mut bytes = Vec::with_capacity(64);
        segment.to_value().encode_to(&mut bytes);
        inner.active.insert(Key::segment(segment.id), Some(Arc::from(bytes)));
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
        inner.active.insert(Key::segment(segment.id), None);
        let generation = inner.active_generation;
        if is_planted(Bug::EarlyReuse) {
            inner.freed.push((0, segment));
            return self.release_freed(inner);
        }
        inner.freed.push((generation, segment));
    }
}
