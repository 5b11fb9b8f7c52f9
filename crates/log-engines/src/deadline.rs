//! How much time a call has left. Invariant: a part never gets more than the whole has. Read next: `postgres/session.rs`.

use std::time::{Duration, Instant};

/// Shorter waits than this are over before anything can answer.
const LEAST: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    end: Instant,
}

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Deadline { end: Instant::now() + time }
    }

    pub(crate) fn left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now()).max(LEAST)
    }

    pub(crate) fn is_over(self) -> bool {
        Instant::now() + LEAST >= self.end
    }

    /// An equal part of what is left, for the first of so many attempts.
    pub(crate) fn share(self, attempts: usize) -> Deadline {
        Deadline::after(self.left() / attempts.max(1) as u32)
    }
}
