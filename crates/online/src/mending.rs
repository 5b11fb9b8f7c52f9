//! What repair is doing and how fast: shared by the thread that does it, the forecasts, and `status`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::running::lock;

/// Until something was measured: what one disk with a seeking head gives.
const ASSUMED_BYTES_PER_SECOND: u64 = 100 << 20;

#[derive(Default)]
pub struct Mending {
    is_awake: Mutex<bool>,
    changed: Condvar,
    pub(crate) bytes_done: AtomicU64,
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

    /// So many bytes were moved in this time.
    pub fn note(&self, bytes: u64, taken: Duration) {
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
