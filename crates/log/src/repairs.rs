//! What reads found bad: totals, and what waits for somebody to look at it. Read next: `repair.rs`.

use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

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

/// Totals, and what waits for somebody to look at it.
#[derive(Default)]
pub(crate) struct Repairs {
    pub reads: AtomicU64,
    pub blocks: AtomicU64,
    pub failures: AtomicU64,
    pub unwritable: Mutex<Vec<(u64, usize)>>,
}
