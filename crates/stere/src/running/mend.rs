//! What repair is doing and how fast: shared by the thread that does it, the forecasts, and `status`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Running, lock};
use crate::error::Result;

/// Until something was measured: what one disk with a seeking head gives.
const ASSUMED_BYTES_PER_SECOND: u64 = 100 << 20;
/// So many bytes in one step; what is waited for is asked for again after each.
pub const STEP_BYTES: u64 = 8 << 20;

/// Work in the background, as `status` tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkReport {
    pub bytes_left: u64,
    pub chunks_left: u64,
    pub bytes_done: u64,
    /// Chunks for which there is no room, or not enough others to rebuild them from.
    pub impossible_chunks: u64,
    /// Of them, those that no device gives now: they stay where they are.
    #[serde(default)]
    pub unreadable_chunks: u64,
    /// What devices that are away lack by now.
    pub waiting_bytes: u64,
    pub bytes_per_second: u64,
    pub seconds_left: u64,
    /// Whether chunks move so that all devices are filled alike.
    pub rebalancing: bool,
    /// Whether what was written is yet to be noted on the devices.
    #[serde(default)]
    pub settling: bool,
}

impl WorkReport {
    pub fn is_done(&self) -> bool {
        self.chunks_left == 0 && !self.rebalancing
    }
}

#[derive(Default)]
pub struct Mending {
    is_awake: Mutex<bool>,
    changed: Condvar,
    bytes_done: AtomicU64,
    bytes_per_second: AtomicU64,
}

impl Mending {
    /// There may be something to do.
    pub fn wake(&self) {
        *lock(&self.is_awake) = true;
        self.changed.notify_all();
    }

    /// Waits until there may be something to do, but not longer than this.
    pub fn sleep(&self, longest: Duration) {
        let guard = lock(&self.is_awake);
        let waited = self.changed.wait_timeout_while(guard, longest, |is_awake| !*is_awake);
        let (mut guard, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        *guard = false;
    }

    /// What is expected, or measured if something was moved since the mount.
    pub fn bytes_per_second(&self) -> u64 {
        match self.bytes_per_second.load(Ordering::Relaxed) {
            0 => ASSUMED_BYTES_PER_SECOND,
            measured => measured,
        }
    }

    fn note(&self, bytes: u64, taken: Duration) {
        if bytes == 0 {
            return;
        }
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        let now = (bytes as f64 / taken.as_secs_f64().max(1e-6)) as u64;
        let before = self.bytes_per_second.load(Ordering::Relaxed);
        let smoothed = if before == 0 { now } else { (before * 7 + now) / 8 };
        self.bytes_per_second.store(smoothed.max(1), Ordering::Relaxed);
    }
}

impl Running {
    /// One step of repair; tells how many bytes it moved. Without any, nothing can be done now.
    pub fn mend_step(&self, budget_bytes: u64) -> Result<u64> {
        let start = Instant::now();
        let progress = self.store.mend_step(budget_bytes)?;
        self.mending.note(progress.bytes_written, start.elapsed());
        // Bookkeeping without bytes is work too.
        Ok(if progress.is_done { 0 } else { progress.bytes_written.max(1) })
    }

    /// Repairs until nothing is left that can be done, for pools that are not mounted.
    pub fn mend_all(&self, mut tell: impl FnMut(&WorkReport)) -> Result<WorkReport> {
        loop {
            let moved = self.mend_step(STEP_BYTES)?;
            let report = self.work();
            tell(&report);
            if moved == 0 {
                self.remember();
                return Ok(report);
            }
        }
    }

    pub fn work(&self) -> WorkReport {
        let status = self.store.mend_status();
        let bytes_per_second = self.mending.bytes_per_second();
        WorkReport {
            bytes_left: status.bytes_left,
            chunks_left: status.chunks_left,
            bytes_done: self.mending.bytes_done.load(Ordering::Relaxed),
            impossible_chunks: status.impossible_chunks,
            unreadable_chunks: status.unreadable_chunks,
            waiting_bytes: status.waiting_bytes,
            bytes_per_second,
            seconds_left: status.bytes_left.div_ceil(bytes_per_second.max(1)),
            rebalancing: status.is_rebalancing,
            settling: status.is_settling,
        }
    }
}
