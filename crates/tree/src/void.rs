//! Voids: ranges of keys that are known to hold nothing, so that a scan does not pass the same deletions again and again.
//!
//! A deletion stays in the overlay until a checkpoint, because it may hide an entry of the tree. Whoever looks for the next key behind
//! many of them pays for each: a file that is emptied and written again looked through all extents that it once had, at every write.
//!
//! Invariants: a void holds no key in any layer; whoever puts a key takes it out of its void before anybody looks again (both under
//! the lock that guards the layers). Merging layers changes nothing here. Voids are learned by scans, kept in memory only, and may be
//! forgotten at any time. Read next: the engine's `view.rs` (`scan_with`).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use parking_lot::Mutex;
use stere_faults::{Bug, is_planted};
use stere_format::Key;

/// A scan asks for a void after so many deletions in a row, and learns one where there were so many.
pub const DELETIONS_MIN: usize = 8;
/// Beyond this the first is forgotten; some 40 bytes each.
const VOIDS_MAX: usize = 1024;

/// Disjoint ranges, by where they begin; each ends before the key beside it.
#[derive(Default)]
pub struct Voids {
    ranges: Mutex<BTreeMap<Key, Key>>,
}

impl Voids {
    /// Where the void that holds `key` ends, if it lies in one.
    pub fn end_behind(&self, key: &Key) -> Option<Key> {
        let ranges = self.ranges.lock();
        ranges.range(..=*key).next_back().filter(|(_, end)| key < *end).map(|(_, end)| *end)
    }

    /// There is no key from `from` up to but not including `to`.
    pub fn learn(&self, from: Key, to: Key) {
        if from >= to {
            return;
        }
        let mut ranges = self.ranges.lock();
        let (mut from, mut to) = (from, to);
        // Those that touch it are one with it.
        while let Some((start, end)) = ranges.range(..=to).next_back().map(|(start, end)| (*start, *end)) {
            if end < from {
                break;
            }
            ranges.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        ranges.insert(from, to);
        if ranges.len() > VOIDS_MAX {
            ranges.pop_first();
        }
    }

    /// The key holds something from now on. Of its void stays what lies behind, because scans go forward.
    pub fn fill(&mut self, key: &Key) {
        let ranges = self.ranges.get_mut();
        let Some((start, end)) = ranges.range(..=*key).next_back().map(|(start, end)| (*start, *end)) else { return };
        if *key >= end || is_planted(Bug::VoidStays) {
            return;
        }
        ranges.remove(&start);
        if let Some(next) = key.successor().filter(|next| *next < end) {
            ranges.insert(next, end);
        }
    }
}
