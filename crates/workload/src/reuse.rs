//! How much a cache of each size would have hit, from sampled reuse distances: SHARDS of fixed size (Waldspurger 2015).
//!
//! A block is sampled if its hash lies below a threshold, so that all its references are seen or none; the number of sampled
//! blocks between two references to one, divided by the rate of sampling, is its reuse distance, and the block is found in
//! every cache (LRU) that holds more blocks. Invariants: at most 512 blocks are remembered; when one more comes, the one with
//! the greatest hash goes and the threshold falls to it. Each reference weighs the inverse of the rate at its time. Sampling
//! begins at 1 of 16, since a cache of less than 16 blocks is no question. Read next: `advise.rs`.

use crate::distinct::mixed;
use crate::histogram::{bucket_end, bucket_of};

/// The unit of a cache.
pub const CACHE_BLOCK_BYTES: u64 = 64 << 10;
const SAMPLES: usize = 512;
/// Buckets of distances, as in `histogram.rs`: up to 2^41 blocks.
const DISTANCES: usize = 160;
/// Of 2^32: one block of sixteen.
const THRESHOLD_FIRST: u64 = 1 << 28;
/// Blocks of one request that are looked at; a larger request is rare, and its first 8 MiB tell enough.
const REQUEST_BLOCKS_MAX: u64 = 128;
/// A hash that is never sampled, since every threshold is less.
const UNUSED: u32 = u32::MAX;

/// Sampled reuse distances.
#[derive(Clone, Debug)]
pub struct Reuse {
    hashes: [u32; SAMPLES],
    /// When each block was referred to last; 0 where none is.
    ticks: [u32; SAMPLES],
    used: usize,
    /// The place of the block that was referred to last.
    newest: usize,
    tick: u32,
    threshold: u64,
    weights: [f64; DISTANCES],
    /// Weight of references to blocks that were never seen before.
    first_weight: f64,
    references: u64,
}

/// A point of the miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MissPoint {
    pub cache_bytes: u64,
    /// Share of references that a cache of this size misses.
    pub miss_ratio: f64,
}

impl Default for Reuse {
    fn default() -> Self {
        Reuse {
            hashes: [UNUSED; SAMPLES],
            ticks: [0; SAMPLES],
            used: 0,
            newest: 0,
            tick: 0,
            threshold: THRESHOLD_FIRST,
            weights: [0.0; DISTANCES],
            first_weight: 0.0,
            references: 0,
        }
    }
}

impl Reuse {
    /// Notes a request for a range; `hash` is the file's, as `distinct.rs` mixes it.
    #[inline]
    pub fn note(&mut self, hash: u64, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let first = offset / CACHE_BLOCK_BYTES;
        let last = offset.saturating_add(length - 1) / CACHE_BLOCK_BYTES;
        let last = last.min(first + REQUEST_BLOCKS_MAX - 1);
        assert!(first <= last, "a request has a block");
        self.references += last - first + 1;
        for block in first..=last {
            let hash = (mixed(hash.wrapping_add(block.wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 32) as u32;
            if u64::from(hash) < self.threshold {
                self.note_sampled(hash);
            }
        }
    }

    fn note_sampled(&mut self, hash: u32) {
        let inverse_rate = (1u64 << 32) as f64 / self.threshold as f64;
        if self.hashes[self.newest] == hash {
            self.weights[0] += inverse_rate;
            return;
        }
        if self.tick == u32::MAX {
            self.renumber();
        }
        self.tick += 1;
        match self.place_of(hash) {
            Some(place) => {
                let before = self.ticks[place];
                let between: u32 = self.ticks.iter().map(|tick| u32::from(*tick > before)).sum();
                let distance = (f64::from(between) * inverse_rate) as u64;
                self.weights[bucket_of(distance).min(DISTANCES - 1)] += inverse_rate;
                (self.ticks[place], self.newest) = (self.tick, place);
            }
            None => {
                self.first_weight += inverse_rate;
                self.remember(hash);
            }
        }
    }

    /// Looks at all places of a chunk without branching, which takes vector instructions.
    fn place_of(&self, hash: u32) -> Option<usize> {
        let (chunks, _) = self.hashes.as_chunks::<32>();
        let chunk = chunks.iter().position(|chunk| chunk.iter().fold(false, |found, one| found | (*one == hash)))?;
        let inside = chunks[chunk].iter().position(|one| *one == hash)?;
        Some(chunk * 32 + inside)
    }

    fn remember(&mut self, hash: u32) {
        let place = if self.used < SAMPLES {
            self.used += 1;
            self.used - 1
        } else {
            let greatest = self.hashes.iter().copied().max().unwrap_or(UNUSED);
            assert!(u64::from(greatest) < self.threshold, "every block that is remembered is sampled");
            self.threshold = u64::from(greatest.max(hash)).max(1);
            if hash > greatest {
                return;
            }
            self.place_of(greatest).expect("the greatest hash is there")
        };
        (self.hashes[place], self.ticks[place], self.newest) = (hash, self.tick, place);
        assert!(self.used <= SAMPLES, "no more blocks are remembered than there are places");
    }

    /// Begins to count anew, in the same order.
    #[cold]
    fn renumber(&mut self) {
        let mut order: Vec<usize> = (0..self.used).collect();
        order.sort_unstable_by_key(|place| self.ticks[*place]);
        for (rank, place) in order.into_iter().enumerate() {
            self.ticks[place] = rank as u32 + 1;
        }
        self.tick = self.used as u32;
        assert!(self.ticks.iter().all(|tick| *tick <= self.tick), "no block was used after now");
    }

    /// Adds what another one counted. The blocks remembered are those of the one that saw more references: distances between
    /// blocks of both are not known.
    pub fn merge(&mut self, other: &Reuse) {
        let threshold = self.threshold.min(other.threshold);
        if other.references > self.references {
            (self.hashes, self.ticks, self.used) = (other.hashes, other.ticks, other.used);
            (self.newest, self.tick) = (other.newest, other.tick);
        }
        self.references += other.references;
        self.first_weight += other.first_weight;
        self.weights.iter_mut().zip(&other.weights).for_each(|(weight, theirs)| *weight += theirs);
        self.lower_threshold(threshold);
    }

    fn lower_threshold(&mut self, threshold: u64) {
        let kept: Vec<(u32, u32)> = (0..self.used)
            .map(|place| (self.hashes[place], self.ticks[place]))
            .filter(|(hash, _)| u64::from(*hash) < threshold)
            .collect();
        (self.hashes, self.ticks) = ([UNUSED; SAMPLES], [0; SAMPLES]);
        for (place, (hash, tick)) in kept.iter().enumerate() {
            (self.hashes[place], self.ticks[place]) = (*hash, *tick);
        }
        self.used = kept.len();
        self.newest = (0..self.used).max_by_key(|place| self.ticks[*place]).unwrap_or(0);
        assert!(threshold > 0 && threshold <= self.threshold, "a threshold only falls");
        self.threshold = threshold;
    }

    /// References to blocks, all of them.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// About how many bytes of different blocks were referred to.
    pub fn footprint_bytes(&self) -> f64 {
        self.first_weight * CACHE_BLOCK_BYTES as f64
    }

    /// References that were sampled, in sum of weights; differs from all by the luck of sampling.
    fn weight(&self) -> f64 {
        self.first_weight + self.weights.iter().sum::<f64>()
    }

    /// The miss ratio by size of cache, from none on; empty where nothing was referred to.
    pub fn curve(&self) -> Vec<MissPoint> {
        if self.references == 0 || self.weight() == 0.0 {
            return Vec::new();
        }
        let all = self.references as f64;
        // The difference to what was expected belongs to blocks that are referred to again and again (SHARDS-adj).
        let mut hits = all - self.weight();
        let mut points = vec![MissPoint { cache_bytes: 0, miss_ratio: 1.0 }];
        let used = self.weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
        for (bucket, weight) in self.weights[..=used].iter().enumerate() {
            hits += weight;
            let miss_ratio = (1.0 - hits / all).clamp(0.0, 1.0);
            let lowest = points.last().map_or(1.0, |point: &MissPoint| point.miss_ratio);
            let cache_bytes = bucket_end(bucket).saturating_add(1).saturating_mul(CACHE_BLOCK_BYTES);
            points.push(MissPoint { cache_bytes, miss_ratio: miss_ratio.min(lowest) });
        }
        assert!(
            points.windows(2).all(|pair| pair[0].miss_ratio >= pair[1].miss_ratio),
            "a larger cache misses no more"
        );
        points
    }

    /// The miss ratio of a cache of this size, between the points that are known.
    pub fn miss_ratio(&self, cache_bytes: u64) -> Option<f64> {
        let curve = self.curve();
        let below = curve.iter().rev().find(|point| point.cache_bytes <= cache_bytes)?;
        Some(below.miss_ratio)
    }
}

#[cfg(test)]
mod tests;
