//! What is known to be damaged, in memory. Read next: `damage.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stere_format::DeviceIndex;

/// So many blobs are known one by one; more are found again by the next scrub.
pub(crate) const BLOBS_MAX: usize = 1 << 16;

/// What is known to be damaged.
#[derive(Default)]
pub(crate) struct KnownDamage {
    pub(crate) state: Mutex<State>,
    /// Whether any of it may be on volumes, for those who read.
    pub(crate) may_be_on_volumes: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    /// By blob: the bytes of its content that could not be read, and the devices that gave none or wrong ones.
    pub(crate) blobs: BTreeMap<u64, Harm>,
    /// Entries to be written to the pool or to be taken out of it.
    pub(crate) changed: BTreeSet<u64>,
    /// Segments with metadata that no copy gives.
    pub(crate) metadata: BTreeSet<u64>,
    /// Of them, those that the pass of scrubbing under way has met.
    pub(crate) metadata_of_pass: BTreeSet<u64>,
    /// The last blob that a review has looked at.
    pub(crate) reviewed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Harm {
    pub(crate) segment: u64,
    pub(crate) range: Range<u32>,
    pub(crate) devices: Vec<DeviceIndex>,
    /// Its segment was on media only: whether it is right again tells who reads it there.
    pub(crate) on_volumes: bool,
}

impl KnownDamage {
    /// Ranges of blobs that cannot be read.
    pub fn ranges(&self) -> BTreeMap<u64, Range<u32>> {
        self.state.lock().blobs.iter().map(|(blob, harm)| (*blob, harm.range.clone())).collect()
    }

    pub fn range_of(&self, blob: u64) -> Option<Range<u32>> {
        self.state.lock().blobs.get(&blob).map(|harm| harm.range.clone())
    }

    /// A segment holds metadata that no copy gives.
    pub fn note_metadata(&self, segment: u64) {
        let mut state = self.state.lock();
        state.metadata_of_pass.insert(segment);
        if state.metadata.insert(segment) {
            tracing::error!(segment, "metadata in this segment is damaged on every copy");
        }
        let (of_pass, all) = (state.metadata_of_pass.len(), state.metadata.len());
        assert!(of_pass <= all, "one pass met {of_pass} damaged segments, and {all} are known");
    }

    pub(crate) fn note(&self, blob: u64, harm: Harm) {
        assert!(!harm.range.is_empty(), "damage of blob {blob} is of some bytes");
        let mut state = self.state.lock();
        let harm = match state.blobs.get(&blob) {
            Some(known) if known.range.start <= harm.range.start && known.range.end >= harm.range.end => return,
            Some(known) => {
                let range = known.range.start.min(harm.range.start)..known.range.end.max(harm.range.end);
                Harm { range, ..harm }
            }
            None if state.blobs.len() >= BLOBS_MAX => return,
            None => harm,
        };
        if harm.on_volumes {
            self.may_be_on_volumes.store(true, Ordering::Release);
        }
        state.blobs.insert(blob, harm);
        state.changed.insert(blob);
    }

    /// Segments with damage that is on volumes.
    pub fn segments_on_volumes(&self) -> BTreeSet<u64> {
        let state = self.state.lock();
        state.blobs.values().filter(|harm| harm.on_volumes).map(|harm| harm.segment).collect()
    }

    pub(crate) fn is_on_volumes(&self, blob: u64) -> bool {
        self.state.lock().blobs.get(&blob).is_some_and(|harm| harm.on_volumes)
    }

    /// A volume has this segment right.
    pub fn forget_on_volumes(&self, segment: u64) {
        let is_meant = |harm: &Harm| harm.on_volumes && harm.segment == segment;
        let mut state = self.state.lock();
        let right: Vec<u64> = state.blobs.iter().filter(|(_, harm)| is_meant(harm)).map(|(blob, _)| *blob).collect();
        for blob in right {
            state.blobs.remove(&blob);
            state.changed.insert(blob);
        }
    }

    /// Blobs that are right again, and of which the pool may still say that they are damaged.
    pub fn forgotten(&self) -> Vec<u64> {
        let state = self.state.lock();
        state.changed.iter().filter(|blob| !state.blobs.contains_key(*blob)).copied().collect()
    }

    /// These bytes of a blob could be read: what is left of its damage on volumes is what lies before or behind.
    pub fn note_read(&self, blob: u64, read: &Range<u32>) {
        if !self.may_be_on_volumes.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        let Some(harm) = state.blobs.get_mut(&blob).filter(|harm| harm.on_volumes) else { return };
        if read.start <= harm.range.start {
            harm.range.start = harm.range.start.max(read.end);
        } else if read.end >= harm.range.end {
            harm.range.end = harm.range.end.min(read.start);
        } else {
            return;
        }
        if harm.range.is_empty() {
            state.blobs.remove(&blob);
        }
        state.changed.insert(blob);
    }

    pub(crate) fn forget(&self, blob: u64) {
        let mut state = self.state.lock();
        if state.blobs.remove(&blob).is_some() {
            state.changed.insert(blob);
        }
    }
}
