//! Whether anybody uses the mount: only a mount that served nothing for a while does work at full speed that nobody
//! waits for.
//!
//! Read next: `scheduler.rs`, which asks.

use std::time::Duration;

/// A mount that served nothing for so long is idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// What a worker knows of the world when it asks what to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Time since some moment before the worker began. It never goes back.
    pub now: Duration,
    /// Requests that the mount has served.
    pub served: u64,
}

/// The idle test.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    served: u64,
    last_request: Duration,
}

impl Idle {
    /// A mount counts as in use when it begins.
    pub fn new(begins: Moment) -> Idle {
        Idle { served: begins.served, last_request: begins.now }
    }

    /// Notes how many requests were served by now, and tells whether there was none for a while.
    pub fn look(&mut self, moment: Moment) -> bool {
        assert!(moment.now >= self.last_request, "time does not go back");
        if moment.served != self.served {
            (self.served, self.last_request) = (moment.served, moment.now);
        }
        moment.now - self.last_request >= IDLE_AFTER
    }
}
