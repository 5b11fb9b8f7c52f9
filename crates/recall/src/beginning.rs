//! A file that is read from its beginning: its part of each segment comes by one request.
//!
//! Whoever reads a file knows where all of it lies; the store knows segments only. So the first read of a released file tells which
//! ranges of which segments the rest of it takes, in the order of the file (`Recalls::expect`). The first read in one of these ranges
//! asks for all of the range, and readers go on as their bytes arrive. A range that is most of its segment is asked for as the whole
//! segment, which can come back to devices then. Invariants: nothing is asked for before somebody reads in it, but for the range
//! behind one of which a part is read; what is kept is bounded and dropped when it was given once; bytes prove themselves as everywhere,
//! and where a range cannot be had or is wrong, the reader asks for his own part. Read next: `fetch.rs`, `sequence.rs`.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_format::range_in_object;
use stere_log::{Io, Segment, SegmentTable};

use super::Volumes;
use super::fetch::Fetch;
use crate::blob::BlobHandle;
use crate::object::object_bytes;

/// Ranges that are remembered to be expected.
const EXPECTED_MAX: usize = 1024;
/// A longer one is asked for up to here.
const RANGE_BYTES_MAX: usize = 8 << 20;
/// What of ranges is in memory at most, unless it is a single one.
pub(super) const KEPT_BYTES_MAX: usize = 16 << 20;
/// A whole segment arrives from its front: a range that begins farther behind would wait for what nobody asked for.
const FRONT_BYTES_MAX: usize = 256 << 10;

/// Who has read one part of so many of a range goes on: late enough that who looks at the front only fetches no more, and so early that
/// the next request's first byte is here when this one's last is.
const NEXT_PART: usize = 4;

/// What the kernel reads ahead for who goes on is asked for by several requests at a time, which pass each other by: this far.
const PASSED_BYTES: usize = 2 << 20;

/// A file's part of a segment.
#[derive(Debug)]
pub(super) struct Expected {
    pub segment: u64,
    /// Where it is in the segment's object.
    range: Range<usize>,
    /// Bytes in it that are the file's.
    wanted_bytes: usize,
    is_whole: bool,
    /// The segment in which the file goes on.
    next: Option<u64>,
    /// It is several files' part.
    is_shared: bool,
}

impl Expected {
    /// What several files that belong together have in a segment.
    pub fn part(segment: u64, range: Range<usize>, wanted_bytes: usize, next: Option<u64>) -> Expected {
        Expected { segment, range, wanted_bytes, is_whole: false, next, is_shared: true }
    }
}

struct Beginning {
    expected: Expected,
    fetch: Option<Arc<Fetch>>,
    given_bytes: usize,
    is_end_given: bool,
    /// How far it was asked for by who goes on from its beginning.
    run_end: usize,
    /// The next one was asked for.
    is_through: bool,
}

/// What a read has to do with a range that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    Not,
    InRange(Pace),
    InWhole(Pace),
}

/// How a range is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// On end from its beginning: what is asked for comes next, however far behind what has arrived it is.
    OnEnd,
    /// Here and there.
    Somewhere,
}

#[derive(Default)]
pub(super) struct Beginnings(Mutex<VecDeque<Beginning>>);

impl Beginning {
    fn holds(&self, segment: u64, range: &Range<usize>) -> bool {
        let own = &self.expected.range;
        self.expected.segment == segment && own.start <= range.start && range.end <= own.end
    }

    fn bytes(&self) -> usize {
        self.fetch.as_ref().map_or(0, |_| self.expected.range.len())
    }

    fn assert_invariants(&self) {
        let own = &self.expected.range;
        let run_end = self.run_end;
        assert!(own.start <= run_end && run_end <= own.end, "a run ends at {run_end} of {own:?}");
        let is_its = |fetch: &Arc<Fetch>| fetch.segment.id == self.expected.segment && fetch.length() == own.len();
        assert!(self.fetch.as_ref().is_none_or(is_its), "what is fetched is what was expected");
    }
}

/// One range for each segment, in the order of the file. A file that lies scattered over a segment is not read by ranges.
fn ranges_of(blobs: &[BlobHandle]) -> Vec<(Arc<Segment>, Range<usize>, usize)> {
    let mut ranges: Vec<(Arc<Segment>, Range<usize>, usize)> = Vec::new();
    let mut last = None;
    for blob in blobs.iter().filter(|blob| blob.segment.is_released()) {
        let one = range_in_object(blob.segment.scheme.data, &blob.value.address);
        let known = ranges.iter_mut().rev().find(|(segment, _, _)| segment.id == blob.segment.id);
        // A blob may be used by several extents, one after the other.
        let added_bytes = if last == Some(blob.id) { 0 } else { one.len() };
        last = Some(blob.id);
        match known {
            Some((_, range, bytes)) => {
                *range = range.start.min(one.start)..range.end.max(one.end);
                *bytes += added_bytes;
            }
            None => ranges.push((blob.segment.clone(), one, added_bytes)),
        }
    }
    ranges.retain(|(_, range, bytes)| bytes * 2 > range.len());
    ranges
}

/// One range of a segment is expected, the one that was told last.
fn put(beginnings: &mut VecDeque<Beginning>, expected: Expected) {
    beginnings.retain(|one| one.expected.segment != expected.segment);
    if beginnings.len() >= EXPECTED_MAX {
        beginnings.pop_front();
    }
    let (given_bytes, is_end_given, is_through, run_end) = (0, false, false, expected.range.start);
    beginnings.push_back(Beginning { expected, fetch: None, given_bytes, is_end_given, run_end, is_through });
}

impl Volumes {
    /// Notes that a file goes on through these blobs.
    pub fn expect(&self, blobs: &[BlobHandle]) {
        let ranges = ranges_of(blobs);
        let mut expected = Vec::with_capacity(ranges.len());
        for (number, (segment, range, wanted_bytes)) in ranges.iter().enumerate() {
            let is_used = self.references.lock().contains_key(&segment.id);
            if is_used || self.fetches.is_there(segment.id) || self.is_on_media(segment.tertiary().there) {
                // It comes whole.
                continue;
            }
            let is_most = range.len() as u64 * 2 > object_bytes(segment) && range.start <= FRONT_BYTES_MAX;
            let range = range.start..range.end.min(range.start + RANGE_BYTES_MAX);
            let next = ranges.get(number + 1).map(|(next, _, _)| next.id);
            expected.push(Expected {
                segment: segment.id,
                wanted_bytes: (*wanted_bytes).min(range.len()),
                range,
                is_whole: is_most,
                next,
                is_shared: false,
            });
        }
        let mut beginnings = self.beginnings.0.lock();
        for expected in expected {
            // It comes with what it belongs to.
            let is_in = |one: &Beginning| one.expected.is_shared && one.holds(expected.segment, &expected.range);
            if !beginnings.iter().any(is_in) {
                put(&mut beginnings, expected);
            }
        }
    }

    /// Notes a part of a segment that is wanted; false if it is known, or the segment is here.
    pub(super) fn expect_part(&self, expected: Expected) -> bool {
        if self.fetches.is_there(expected.segment) {
            return false;
        }
        let mut beginnings = self.beginnings.0.lock();
        let is_coming = |one: &Beginning| one.expected.is_shared || one.fetch.is_some();
        let is_known = beginnings.iter().any(|one| is_coming(one) && one.holds(expected.segment, &expected.range));
        if !is_known {
            put(&mut beginnings, expected);
        }
        !is_known
    }

    /// The part that is wanted of a segment, if not all of it is.
    fn part_expected(&self, segment: u64) -> Option<Range<usize>> {
        let beginnings = self.beginnings.0.lock();
        let known = beginnings.iter().find(|one| one.expected.segment == segment && !one.expected.is_whole);
        known.map(|one| one.expected.range.clone())
    }

    /// Begins to fetch the part that is wanted of a segment; none if all of it is.
    pub(super) fn begin_part_ahead(&self, segment: &Arc<Segment>) -> Option<(Arc<Fetch>, bool)> {
        let range = self.part_expected(segment.id)?;
        self.begin_range(segment, &range, true)
    }

    /// Whether a read belongs to a file that is read from its beginning.
    pub(super) fn is_expected(&self, segment: u64, offset: u64, length: usize) -> Begun {
        let range = offset as usize..offset as usize + length;
        let mut beginnings = self.beginnings.0.lock();
        let Some(one) = beginnings.iter_mut().find(|one| one.holds(segment, &range)) else { return Begun::Not };
        let is_on_end = range.start <= one.run_end + PASSED_BYTES;
        if is_on_end {
            one.run_end = one.run_end.max(range.end);
        }
        one.assert_invariants();
        let pace = if is_on_end { Pace::OnEnd } else { Pace::Somewhere };
        if one.expected.is_whole { Begun::InWhole(pace) } else { Begun::InRange(pace) }
    }

    /// How much of a file's part of a segment was asked for on end.
    pub fn asked_on_end(&self, segment: u64) -> usize {
        let beginnings = self.beginnings.0.lock();
        let one = beginnings.iter().find(|one| one.expected.segment == segment);
        one.map_or(0, |one| one.run_end - one.expected.range.start)
    }

    pub(super) fn expect_no_more(&self, segment: u64) {
        self.beginnings.0.lock().retain(|one| one.expected.segment != segment);
    }

    pub fn is_any_range_under_way(&self) -> bool {
        let beginnings = self.beginnings.0.lock();
        beginnings.iter().filter_map(|one| one.fetch.as_ref()).any(|fetch| !fetch.is_over())
    }

    /// Ends what is under way of ranges and nobody asked for.
    pub fn cancel_ranges_ahead(&self) {
        self.beginnings.0.lock().iter().filter_map(|one| one.fetch.as_ref()).for_each(|fetch| fetch.cancel());
    }

    /// The fetch of an expected range, and whether the caller has to see to it.
    fn begin_range(&self, segment: &Arc<Segment>, range: &Range<usize>, is_ahead: bool) -> Option<(Arc<Fetch>, bool)> {
        let mut beginnings = self.beginnings.0.lock();
        let at = beginnings.iter().position(|one| one.holds(segment.id, range))?;
        if let Some(fetch) = &beginnings[at].fetch {
            if !is_ahead {
                fetch.set_ahead(false);
            }
            return Some((fetch.clone(), false));
        }
        let own = beginnings[at].expected.range.clone();
        let mut bytes: usize = beginnings.iter().map(Beginning::bytes).sum();
        for one in beginnings.iter_mut().filter(|one| one.fetch.is_some()) {
            if bytes + own.len() <= KEPT_BYTES_MAX {
                break;
            }
            bytes -= one.bytes();
            one.fetch = None;
        }
        assert!(bytes == 0 || bytes + own.len() <= KEPT_BYTES_MAX, "{bytes} bytes of ranges are kept beside one more");
        let fetch = Fetch::of_range(segment.clone(), own);
        fetch.set_ahead(is_ahead);
        beginnings[at].fetch = Some(fetch.clone());
        beginnings[at].assert_invariants();
        Some((fetch, true))
    }

    /// Gives a reader his part of an expected range, as soon as it is there; false if he has to ask for it.
    pub(super) fn give_expected(
        &self,
        io: Io<'_>,
        segment: &Arc<Segment>,
        offset: u64,
        into: &mut [u8],
        pace: Pace,
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> bool {
        let range = offset as usize..offset as usize + into.len();
        let Some((fetch, is_mine)) = self.begin_range(segment, &range, false) else { return false };
        match is_mine {
            // Nobody gets anything sooner from another thread.
            true if fetch.is_no_more_than(&range) => self.run(&fetch, &io.cancellation()),
            true => self.run_somewhere(io, &fetch),
            false => {}
        }
        let is_given = fetch.give(io, offset, into, pace == Pace::OnEnd, is_right);
        let mut beginnings = self.beginnings.0.lock();
        let is_it = |one: &Beginning| one.fetch.as_ref().is_some_and(|known| Arc::ptr_eq(known, &fetch));
        let Some(at) = beginnings.iter().position(is_it) else { return is_given };
        let one = &mut beginnings[at];
        one.given_bytes += if is_given { range.len() } else { 0 };
        one.is_end_given |= range.end == one.expected.range.end;
        // Who wants it a second time wants the segment.
        let is_all_given = one.is_end_given && one.given_bytes >= one.expected.wanted_bytes;
        if is_all_given || fetch.has_failed() || one.given_bytes > 2 * one.expected.range.len() {
            beginnings.remove(at);
        }
        is_given
    }

    /// The segment in which a file goes on whose part of this one is being read on; told once.
    pub(super) fn goes_on_in(
        &self,
        segment: u64,
        offset: u64,
        length: usize,
        segments: &SegmentTable,
    ) -> Option<Arc<Segment>> {
        let range = offset as usize..offset as usize + length;
        let mut beginnings = self.beginnings.0.lock();
        let one = beginnings.iter_mut().find(|one| one.holds(segment, &range))?;
        let own = &one.expected.range;
        if one.is_through || (range.end - own.start) * NEXT_PART <= own.len() {
            return None;
        }
        one.is_through = true;
        segments.get(one.expected.next?).filter(|next| next.is_released())
    }

    /// Begins to fetch what is expected of a segment, or all of it, if a thread is free for it.
    pub(super) fn fetch_expected_ahead(&self, segment: &Arc<Segment>) {
        let Some(range) = self.part_expected(segment.id) else { return self.fetch_ahead(segment) };
        if !self.has_idle_thread() {
            return;
        }
        if let Some((fetch, true)) = self.begin_range(segment, &range, true) {
            if !self.hand_over_or_end(&fetch) {
                // Whoever reads there first asks for it.
                self.beginnings
                    .0
                    .lock()
                    .iter_mut()
                    .filter(|one| one.holds(segment.id, &range))
                    .for_each(|one| one.fetch = None);
            }
        }
    }
}
