//! What the cleaner remembers from pass to pass: segments that could not be emptied, passes that freed nothing, searches for
//! room that were in vain.
//!
//! Invariants: cleaning that frees nothing comes to rest until something changes (P-158); a search that moved W bytes and made
//! no room is not repeated before W/16 have died, or more slots are free (P-230). Nothing here moves data: the
//! engine does (`clean.rs`, `make_room.rs` there). Read next: `choice.rs`, `tally.rs`.

mod choice;
mod tally;

use std::collections::VecDeque;

pub use choice::{Look, in_order, score};
use rustc_hash::FxHashMap;
use stere_faults::{Bug, is_planted};
use stere_log::{Segment, StreamKey};
pub use tally::{CleaningFigures, CleaningTally, UTILISATION_PARTS};

/// Passes one after the other that emptied nothing, before the pool counts as full.
pub const FRUITLESS_PASSES_MAX: u32 = 3;

/// What the cleaner remembers.
#[derive(Default)]
pub struct Cleaner {
    /// Segments that could not be emptied because content is damaged.
    stuck: FxHashMap<u64, Stuck>,
    /// The last change before which no room for metadata could be made.
    pub fruitless_at: Option<u64>,
    pub futile: FutileSeries,
    pub background: Background,
}

/// What the passes of the background led to: cleaning that frees nothing comes to rest, whatever the cause is.
#[derive(Default)]
pub struct Background {
    /// Passes in a row that left no more slots free than there were.
    fruitless: u32,
    slots_free_most: u64,
    /// After the last pass.
    slots_free: u64,
    live_raw_bytes: i64,
}

impl Background {
    /// Whether passes freed nothing and nothing changed since: a segment's worth did not die, and no slot was taken or given back.
    pub fn rests(&mut self, slots_free: u64, live_raw_bytes: i64, segment_bytes: u64) -> bool {
        let died = self.live_raw_bytes.saturating_sub(live_raw_bytes);
        let is_same = slots_free == self.slots_free && died < i64::try_from(segment_bytes).unwrap_or(i64::MAX);
        if self.fruitless >= FRUITLESS_PASSES_MAX && !is_same {
            self.fruitless = 0;
        }
        self.fruitless >= FRUITLESS_PASSES_MAX && !is_planted(Bug::CleanedForNothing)
    }

    pub fn note(&mut self, slots_free_before: u64, slots_free: u64, live_raw_bytes: i64) {
        if self.fruitless == 0 {
            self.slots_free_most = slots_free_before;
        }
        self.fruitless = if slots_free > self.slots_free_most { 0 } else { self.fruitless + 1 };
        self.slots_free_most = self.slots_free_most.max(slots_free);
        (self.slots_free, self.live_raw_bytes) = (slots_free, live_raw_bytes);
    }
}

/// How a segment was when it could not be emptied: once it is otherwise, it is tried again.
#[derive(Clone, Copy)]
struct Stuck {
    live_bytes: u64,
    missing: u32,
    generation: u64,
}

/// After so many checkpoints a segment that could not be emptied is tried again although nothing is known to have changed: a
/// device may be back.
const STUCK_GENERATIONS: u64 = 32;

impl Cleaner {
    pub fn is_stuck(&self, segment: &Segment, generation: u64) -> bool {
        self.stuck.get(&segment.id).is_some_and(|stuck| {
            (stuck.live_bytes, stuck.missing) == (segment.live_bytes(), segment.missing())
                && generation < stuck.generation + STUCK_GENERATIONS
        })
    }

    pub fn note_stuck(&mut self, segment: &Segment, generation: u64) {
        let stuck = Stuck { live_bytes: segment.live_bytes(), missing: segment.missing(), generation };
        self.stuck.insert(segment.id, stuck);
        self.stuck.retain(|_, stuck| generation < stuck.generation + STUCK_GENERATIONS);
    }
}

/// Of what a series moved for nothing, such a part must have died before the next one.
const DIED_DIVISOR: u64 = 16;

/// After so many checkpoints a series is repeated although nothing is known to have changed.
const GENERATIONS_MAX: u64 = 32;

/// Kinds of data of which a series is remembered.
const SERIES_MAX: usize = 16;

/// How full a pool is, as far as that can change by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Bytes that died since the pool was opened.
    pub died_bytes: u64,
    pub slots_free: u64,
    /// Checkpoints: what nobody counts may have changed after many.
    pub generation: u64,
}

/// The last series for each kind of data that made no room.
#[derive(Debug, Default)]
pub struct FutileSeries {
    last: VecDeque<(StreamKey, Futile)>,
}

#[derive(Clone, Copy, Debug)]
struct Futile {
    moved_bytes: u64,
    /// As it was behind the series, with the fewest free slots since.
    fill: Fill,
}

impl FutileSeries {
    /// Whether a series would be as futile as the last one was.
    pub fn rests(&mut self, key: &StreamKey, now: Fill) -> bool {
        let Some((_, futile)) = self.last.iter_mut().find(|(known, _)| known == key) else { return false };
        assert!(now.died_bytes >= futile.fill.died_bytes, "what died is only counted up");
        assert!(now.generation >= futile.fill.generation, "checkpoints are only counted up");
        let died_bytes = now.died_bytes - futile.fill.died_bytes;
        let is_same = now.slots_free <= futile.fill.slots_free
            && died_bytes < futile.moved_bytes / DIED_DIVISOR
            && now.generation < futile.fill.generation + GENERATIONS_MAX;
        futile.fill.slots_free = futile.fill.slots_free.min(now.slots_free);
        is_same
    }

    pub fn note(&mut self, key: &StreamKey, moved_bytes: u64, fill: Fill) {
        self.last.retain(|(known, _)| known != key);
        self.last.truncate(SERIES_MAX - 1);
        self.last.push_front((*key, Futile { moved_bytes, fill }));
    }
}

#[cfg(test)]
mod tests;
