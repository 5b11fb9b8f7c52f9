//! Errors that the person should hear of, a few a second: a damaged file that is read in a loop must not fill the log.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

#[cfg(test)]
mod tests;

const PER_SECOND_MAX: u32 = 8;

/// Counts what was logged in the current second.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    second: AtomicI64,
    count: AtomicU32,
}

impl Complaints {
    /// Whether one more may be logged now. Two threads may both pass at the turn of a second, which does no harm.
    pub fn may_log(&self, second: i64) -> bool {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed) < PER_SECOND_MAX
    }
}
