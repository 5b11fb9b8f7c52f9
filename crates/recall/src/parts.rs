//! What belongs together and lies scattered over segments, among what does not: its part of each segment comes, and not all of them.
//!
//! Who asks for such a unit tells where all of it lies (`Parts`). If it is most of its segments, they come back to devices whole, in the
//! order in which they lie on volumes. If it is less than a quarter of them, what is small in its segment is fetched as one range,
//! into memory, as far as that is kept for ranges, and before its readers ask; the rest as they come to it, the next one ahead of them.
//! Nothing of that comes to devices: a segment that is not wanted but for a small part would take room for nothing. Invariant: what is
//! given is proven and bounded as all that `beginning.rs` keeps. Where nobody lends threads, and on media, segments come whole. Read next: `beginning.rs`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use stere_format::range_in_object;
use stere_log::Segment;

use super::Volumes;
use super::beginning::{Expected, KEPT_BYTES_MAX};
use crate::blob::BlobHandle;
use crate::object::object_bytes;

/// What is no more than one part of so many of its segments is fetched by ranges.
const SCATTERED_PART: u64 = 4;

pub struct Part {
    pub segment: Arc<Segment>,
    /// From its first byte in the segment's chunk to its last.
    range: Range<usize>,
    bytes: usize,
}

impl Part {
    pub fn is_small(&self) -> bool {
        self.range.len() as u64 * SCATTERED_PART <= object_bytes(&self.segment)
    }
}

/// Where something lies that belongs together, as far as it is on volumes only.
#[derive(Default)]
pub struct Parts {
    pub of: BTreeMap<u64, Part>,
    /// Segments that are wanted, nobody knows where in them.
    pub whole: Vec<u64>,
    last: Option<(u64, u32)>,
}

impl Parts {
    /// Counts in a blob. One that several extents use counts once if they are told one after the other.
    pub fn add(&mut self, blob: &BlobHandle) {
        if !blob.segment.is_released() {
            return;
        }
        let address = &blob.value.address;
        let range = range_in_object(blob.segment.scheme.data, address);
        let place = (blob.segment.id, range.start as u32);
        let bytes = if self.last.replace(place) == Some(place) { 0 } else { range.len() };
        match self.of.get_mut(&blob.segment.id) {
            Some(part) => {
                part.range = part.range.start.min(range.start)..part.range.end.max(range.end);
                part.bytes += bytes;
            }
            None => drop(self.of.insert(blob.segment.id, Part { segment: blob.segment.clone(), range, bytes })),
        }
    }

    /// Counts in segments of which nothing else is known, if none of their blobs were counted in.
    pub fn add_segments(&mut self, segments: impl IntoIterator<Item = u64>) {
        let of = &self.of;
        self.whole.extend(segments.into_iter().filter(|segment| !of.contains_key(segment)));
    }

    pub fn is_scattered(&self) -> bool {
        let wanted: u64 = self.of.values().map(|part| part.range.len() as u64).sum();
        let all: u64 = self.of.values().map(|part| object_bytes(&part.segment)).sum();
        wanted * SCATTERED_PART <= all
    }
}

impl Volumes {
    /// Has these parts fetched, as far as they are kept; in this order.
    pub fn fetch_parts(&self, parts: &[Part]) -> u64 {
        let mut room = KEPT_BYTES_MAX;
        let mut asked_for = 0;
        for (number, part) in parts.iter().enumerate() {
            let next = parts.get(number + 1).map(|next| next.segment.id);
            if !self.expect_part(Expected::part(part.segment.id, part.range.clone(), part.bytes, next)) {
                continue;
            }
            asked_for += 1;
            if let Some(left) = room.checked_sub(part.range.len()) {
                room = left;
                self.fetch_part_ahead(&part.segment);
            }
        }
        asked_for
    }
}
