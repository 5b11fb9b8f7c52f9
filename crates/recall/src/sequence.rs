//! What readers of released segments did lately: how often a segment was read, and whether somebody reads on through it, so that the
//! next one is fetched before it is asked for.

use std::ops::Range;
use std::sync::Arc;

use stere_log::{Segment, SegmentTable};

use super::{Prefetch, Volumes};
use crate::object::object_bytes;

/// Segments that are remembered to have been read.
const REFERENCES_MAX: usize = 4096;
/// Reads that go on no farther than this from where the last one ended are of one run: the kernel asks for several at a time.
const RUN_GAP_BYTES: u64 = 1 << 20;
/// What was written at the same time has numbers that are near each other.
const NEXT_MAX: u64 = 16;

/// How a segment was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reference {
    count: u32,
    /// Where the run of reads is, and how long it is.
    at: u64,
    run_bytes: u64,
    /// The next segment was asked for.
    is_through: bool,
}

/// What one read comes to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Referred {
    /// Reads so far; what goes on through an expected range is one.
    pub count: u32,
    pub is_first: bool,
    /// Just now more than half of the segment was read on end.
    pub is_on_to_next: bool,
}

impl Volumes {
    /// Notes a read of a released segment.
    pub(super) fn refer(&self, segment: &Segment, offset: u64, length: usize, is_expected: bool) -> Referred {
        let mut references = self.references.lock();
        if references.len() >= REFERENCES_MAX {
            references.clear();
        }
        let one = references.entry(segment.id).or_default();
        let is_first = one.count == 0;
        if !is_expected || is_first {
            one.count = one.count.saturating_add(1);
        }
        if one.at.abs_diff(offset) > RUN_GAP_BYTES {
            (one.run_bytes, one.at) = (0, offset);
        }
        one.run_bytes += length as u64;
        one.at = one.at.max(offset + length as u64);
        let is_half = one.run_bytes * 2 > object_bytes(segment);
        let is_on_to_next = is_half && !one.is_through;
        one.is_through |= is_on_to_next;
        Referred { count: one.count, is_first, is_on_to_next }
    }

    /// Begins to fetch what a reader will want next: where his file goes on, else what was written next.
    pub(super) fn look_ahead(
        &self,
        segment: &Segment,
        range: Range<u64>,
        is_on_to_next: bool,
        segments: &SegmentTable,
    ) {
        if self.prefetch() == Prefetch::Nothing {
            return;
        }
        let length = (range.end - range.start) as usize;
        match self.goes_on_in(segment.id, range.start, length, segments) {
            Some(next) => self.fetch_expected_ahead(&next),
            None if is_on_to_next => self.fetch_next(segment, segments),
            None => {}
        }
    }

    /// Begins to fetch the segment that was written next to the same volumes.
    fn fetch_next(&self, segment: &Segment, segments: &SegmentTable) {
        let is_next = |other: &Arc<Segment>| {
            other.is_released() && other.tertiary() == segment.tertiary() && other.stream_key() == segment.stream_key()
        };
        let near = (segment.id + 1..=segment.id + NEXT_MAX).filter_map(|id| segments.get(id));
        if let Some(next) = near.into_iter().find(is_next) {
            self.fetch_ahead(&next);
        }
    }
}
