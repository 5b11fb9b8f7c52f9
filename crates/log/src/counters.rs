//! Numbers that never come again: of segments, and of the rows in all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use stere_format::SegmentKind;

use crate::stream::StreamKey;

/// What the next segment and the next row are called.
pub struct Counters {
    next_segment: AtomicU64,
    next_sequence: AtomicU64,
    /// Segments begun for new data in this mount.
    begun_by_users: AtomicU64,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            next_segment: AtomicU64::new(1),
            next_sequence: AtomicU64::new(1),
            begun_by_users: AtomicU64::new(0),
        }
    }
}

impl Counters {
    /// The id of a segment that a stream begins.
    pub(crate) fn next_segment(&self, key: &StreamKey) -> u64 {
        let id = self.next_segment.fetch_add(1, Ordering::AcqRel);
        let is_users = key.kind == SegmentKind::Data && key.temperature == 0;
        self.begun_by_users.fetch_add(u64::from(is_users), Ordering::AcqRel);
        id
    }

    /// The sequence of a row, or of a segment's header.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_sequence.fetch_add(1, Ordering::AcqRel)
    }

    /// Sets the counters as recovered.
    pub fn raise(&self, next_segment: u64, next_sequence: u64) {
        self.next_segment.fetch_max(next_segment, Ordering::AcqRel);
        self.next_sequence.fetch_max(next_sequence, Ordering::AcqRel);
    }

    /// The next segment id and the next row sequence, to be kept in the journal.
    #[inline]
    pub fn get(&self) -> (u64, u64) {
        (self.next_segment.load(Ordering::Acquire), self.next_sequence.load(Ordering::Acquire))
    }

    /// Segments begun in this mount for anything but metadata and what the cleaner moves.
    pub fn begun_by_users(&self) -> u64 {
        self.begun_by_users.load(Ordering::Acquire)
    }
}
