//! Which bytes of a record are dirty: a short sorted list of ranges.
//!
//! Invariants: ranges are not empty, ascending, and neither overlap nor touch.

use std::ops::Range;

/// A set of bytes within one record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u32>>);

impl Ranges {
    pub fn iter(&self) -> impl Iterator<Item = &Range<u32>> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn start(&self) -> Option<u32> {
        self.0.first().map(|range| range.start)
    }

    pub fn end(&self) -> Option<u32> {
        self.0.last().map(|range| range.end)
    }

    /// Adds a range, joining what it touches.
    pub fn insert(&mut self, mut range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        if let Some(last) = self.0.last_mut().filter(|last| last.start <= range.start && range.start <= last.end) {
            last.end = last.end.max(range.end);
            return;
        }
        let first = self.0.partition_point(|other| other.end < range.start);
        let behind = self.0.partition_point(|other| other.start <= range.end);
        if first < behind {
            range.start = range.start.min(self.0[first].start);
            range.end = range.end.max(self.0[behind - 1].end);
        }
        self.0.splice(first..behind, [range]);
        let is_before = |pair: &[Range<u32>]| pair[0].end < pair[1].start;
        let neighbours = &self.0[first.saturating_sub(1)..self.0.len().min(first + 2)];
        assert!(neighbours.windows(2).all(is_before), "ranges rise, and neither overlap nor touch");
    }

    /// Removes everything from `end` on.
    pub fn truncate(&mut self, end: u32) {
        self.0.retain(|range| range.start < end);
        if let Some(last) = self.0.last_mut() {
            last.end = last.end.min(end);
        }
    }

    /// The same bytes rounded outward to blocks of `block`, ending at `end` at the latest.
    pub fn rounded(&self, block: u32, end: u32) -> Ranges {
        let mut rounded = Ranges::default();
        for range in &self.0 {
            rounded.insert(range.start / block * block..range.end.next_multiple_of(block).min(end));
        }
        rounded
    }

    /// Blocks of `block` bytes that hold at least one of the bytes.
    pub fn blocks(&self, block: u32) -> u32 {
        let mut blocks = 0;
        let mut counted_to = 0;
        for range in &self.0 {
            let first = (range.start / block).max(counted_to);
            let behind = range.end.div_ceil(block);
            blocks += behind.saturating_sub(first);
            counted_to = behind;
        }
        blocks
    }

    /// The parts of `within` that are not in the set.
    pub fn gaps(&self, within: Range<u32>) -> Vec<Range<u32>> {
        assert!(within.start <= within.end, "a range does not end before it begins");
        let mut gaps = Vec::new();
        let mut at = within.start;
        for range in self.0.iter().filter(|range| range.end > within.start && range.start < within.end) {
            if range.start > at {
                gaps.push(at..range.start);
            }
            at = at.max(range.end);
        }
        if at < within.end {
            gaps.push(at..within.end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests;
