//! What is counted of space as it changes, and what was worked out from it lately.
//!
//! Invariant: what died and what was moved is only counted up. Read next: `space.rs`, which says what the counts mean.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use stere_format::{Scheme, Site};
use stere_log::Segment;

/// What a key takes in nodes, about, with its copies.
const KEY_BYTES: u64 = 256;

#[derive(Default)]
pub(crate) struct Space {
    /// Of segments of each scheme there is; few.
    pub(super) live_bytes: Mutex<Vec<(Scheme, i64)>>,
    pub(super) reserved_raw_bytes: Arc<AtomicI64>,
    /// Most that was live since slots were given back last.
    pub(crate) live_peak_raw_bytes: AtomicI64,
    /// Of that, what can lie on the devices of a place only.
    pub(super) reserved_within: Mutex<BTreeMap<u8, Arc<AtomicI64>>>,
    /// Changes that may gather before a checkpoint has to take them.
    pub(super) overlay_bytes_max: AtomicUsize,
    /// Counts what makes `rooms` out of date, besides segments that were begun.
    pub(super) turns: AtomicU64,
    pub(super) rooms: Mutex<Rooms>,
    pub(super) promisable: Mutex<Promisable>,
    pub(super) unmoved: Mutex<Unmoved>,
    /// Since the pool was opened: bytes that blobs gave up, and that were moved, with their copies.
    pub(super) died_raw_bytes: AtomicU64,
    pub(super) moved_raw_bytes: AtomicU64,
    /// How often somebody gave up what others still have.
    pub(super) shared_left: AtomicU64,
}

/// What there is room for, as of the last segment that was begun or given back.
#[derive(Clone, Copy, Default)]
pub(super) struct Rooms {
    /// Segments begun and turns when this was worked out.
    pub(super) as_of: Option<(u64, u64)>,
    /// Segments of metadata that could be begun.
    pub(super) meta_segments: u64,
    /// What could be promised to metadata then.
    pub(super) promisable_raw_bytes: i64,
}

/// Segments that the cleaner leaves where they are, as of the last segment that was begun or given back.
#[derive(Default)]
pub(super) struct Unmoved {
    pub(super) as_of: Option<(u64, u64)>,
    /// Scheme, segments and live bytes in them.
    pub(super) segments: Vec<(Scheme, u64, i64)>,
}

/// What could be promised to content of a scheme, class and site, as of the last segment that was begun or given back: working it out takes
/// longer than writing a block.
#[derive(Default)]
pub(super) struct Promisable {
    pub(super) as_of: Option<(u64, u64)>,
    pub(super) raw_bytes: Vec<((Scheme, u8, Site), i64)>,
}

impl Space {
    /// Live bytes of segments of this scheme changed.
    #[inline]
    pub fn add_live(&self, scheme: Scheme, delta: i64) {
        let mut live_bytes = self.live_bytes.lock();
        match live_bytes.iter_mut().find(|(known, _)| *known == scheme) {
            Some((_, live)) => {
                *live += delta;
                assert!(*live >= 0, "{} bytes of {scheme:?} are live after {delta}", *live);
            }
            None => {
                assert!(delta >= 0, "{delta} bytes of {scheme:?} that has no segment");
                live_bytes.push((scheme, delta));
            }
        }
    }

    /// Live bytes of all segments, raw.
    pub fn live_raw_bytes(&self) -> i64 {
        self.live_bytes.lock().iter().map(|(scheme, live)| raw(*scheme, *live)).sum()
    }

    /// What a change made of segments. Keys that go make nodes smaller.
    #[inline]
    pub(crate) fn note_died(&self, usage: &[(Arc<Segment>, i64)], keys_deleted: usize) {
        let died = usage.iter().filter(|(_, delta)| *delta < 0).map(|(segment, delta)| raw(segment.scheme, -delta));
        let bytes = u64::try_from(died.sum::<i64>()).unwrap_or(0) + keys_deleted as u64 * KEY_BYTES;
        self.died_raw_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// What is only moved does not die.
    pub(crate) fn note_moved(&self, bytes: i64) {
        self.moved_raw_bytes.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::AcqRel);
    }

    pub(crate) fn died_bytes(&self) -> u64 {
        self.died_raw_bytes.load(Ordering::Acquire)
    }

    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_raw_bytes.load(Ordering::Acquire)
    }

    /// Somebody gives up what others still have.
    pub(crate) fn note_left(&self, is_shared: bool) {
        self.shared_left.fetch_add(u64::from(is_shared), Ordering::AcqRel);
    }

    /// What is committed now may be emptied later.
    pub(crate) fn note_peak(&self) {
        self.live_peak_raw_bytes.fetch_max(self.live_raw_bytes(), Ordering::AcqRel);
    }
}

pub(crate) fn raw(scheme: Scheme, bytes: i64) -> i64 {
    bytes.saturating_mul(scheme.width() as i64) / i64::from(scheme.data)
}
