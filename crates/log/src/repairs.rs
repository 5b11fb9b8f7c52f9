//! Repair on read: what a read found bad is written again, in place, from the bytes that were verified instead.
//!
//! The reader whose read found it does it, after its bytes are right and before it goes on: nobody else waits, and it takes
//! as long as the damage is large. Rows never change, so every repair of a place writes the same, only right bytes.
//! Invariants: the segment is held by the reader, so its slots are not used for anything else meanwhile; only verified bytes
//! are written; with `repairs` off (a pool that is only read) nothing is. Read next: the stripe crate's `repair.rs`, and the
//! store's `scrub.rs` for what nobody reads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use stere_faults::{Bug, is_planted};
use stere_format::{Address, SegmentChunks};
use stere_stripe::{ReadReport, Repair, Stripe};

use crate::segment::Segment;

/// What was repaired since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairTotals {
    /// Reads that found something bad and gave right bytes all the same.
    pub reads: u64,
    /// Blocks of chunks that were written again.
    pub blocks: u64,
    /// Times that a device did not take the right bytes.
    pub failures: u64,
}

/// Repairs bad places, with totals and what waits for somebody to look at it.
pub struct Repairs {
    stripe: Arc<Stripe>,
    /// Off for a pool that is only read.
    is_on: bool,
    reads: AtomicU64,
    blocks: AtomicU64,
    failures: AtomicU64,
    unwritable: Mutex<Vec<(u64, usize)>>,
}

impl Repairs {
    pub(crate) fn new(stripe: Arc<Stripe>, is_on: bool) -> Repairs {
        let (reads, blocks, failures) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Repairs { stripe, is_on, reads, blocks, failures, unwritable: Mutex::default() }
    }

    /// Counts what a read found bad and, unless the pool is only read, writes the right bytes there. `bytes` are what the
    /// read gave for `range` of the record; `segment` is held by the caller, `placed` is where the read went.
    pub fn repair(
        &self,
        segment: &Arc<Segment>,
        placed: &SegmentChunks,
        address: &Address,
        range: &Range<u32>,
        bytes: &[u8],
        report: &ReadReport,
    ) {
        if report.bad.is_empty() {
            return;
        }
        assert_eq!(bytes.len(), range.len(), "what is written again is what was read");
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.stripe.count_bad(report);
        if !self.is_on || is_planted(Bug::RepairForgotten) {
            return;
        }
        match self.stripe.repair(placed, address, range, bytes, report) {
            Ok(repair) => self.note(segment.id, &repair),
            Err(error) => tracing::warn!(segment = segment.id, %error, "damage could not be repaired"),
        }
    }

    /// Takes a repair into the totals; chunks that cannot be written wait for `take_unwritable`.
    pub fn note(&self, segment: u64, repair: &Repair) {
        if repair.blocks > 0 {
            tracing::info!(segment, blocks = repair.blocks, "bad blocks were written again");
        }
        self.blocks.fetch_add(repair.blocks, Ordering::Relaxed);
        for (chunk, error) in &repair.unwritable {
            tracing::warn!(segment, chunk, %error, "a device does not take the right bytes of a bad block");
            self.failures.fetch_add(1, Ordering::Relaxed);
            let mut unwritable = self.unwritable.lock();
            if !unwritable.contains(&(segment, *chunk)) {
                unwritable.push((segment, *chunk));
            }
        }
    }

    /// Whether bad places are written again.
    pub fn are_on(&self) -> bool {
        self.is_on
    }

    pub fn totals(&self) -> RepairTotals {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RepairTotals { reads: load(&self.reads), blocks: load(&self.blocks), failures: load(&self.failures) }
    }

    /// Segments and chunks with a bad place that could not be written.
    pub fn take_unwritable(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut *self.unwritable.lock())
    }
}
