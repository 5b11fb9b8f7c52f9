//! Whether the owner is reached, since when not, and why: for those who ask how a mount is.
//!
//! Read next: `link.rs`, which notes it.

use std::time::{Duration, Instant};

use crate::link::Link;
use crate::state::Phase;

#[cfg(test)]
mod tests;

/// How a mount reaches its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Requests are sent there.
    Connected,
    /// Requests wait, and for how long there was no owner.
    Away { since: Duration, why: String },
    /// The pool does not take this machine.
    Refused { why: String },
}

/// What the link notes: since when it has no owner, and what it complained of last.
#[derive(Debug)]
pub(crate) struct Reaching {
    away_since: Option<Instant>,
    why: String,
}

impl Default for Reaching {
    fn default() -> Reaching {
        Reaching { away_since: Some(Instant::now()), why: String::new() }
    }
}

impl Reaching {
    /// There is an owner.
    pub fn succeeds(&mut self) {
        self.away_since = None;
        self.why.clear();
    }

    /// A connection ended, or did not come to be.
    pub fn fails(&mut self, why: &str) {
        self.away_since.get_or_insert_with(Instant::now);
        why.clone_into(&mut self.why);
    }

    fn away(&self) -> (Duration, String) {
        (self.away_since.map_or(Duration::ZERO, |since| since.elapsed()), self.why.clone())
    }
}

/// An owner that has been away for less is waited for: a mount that has just begun, or an owner that follows another in order.
const AWAY_BRIEFLY: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

impl Link {
    /// The same, when an owner had a moment to appear.
    #[must_use]
    pub fn reach_soon(&self) -> Reach {
        loop {
            match self.reach() {
                Reach::Away { since, .. } if since < AWAY_BRIEFLY => std::thread::sleep(LOOK),
                reach => return reach,
            }
        }
    }

    /// How the owner is reached now.
    #[must_use]
    pub fn reach(&self) -> Reach {
        let (is_connected, is_refused) = {
            let state = self.shared.state.lock();
            (matches!(state.phase, Phase::Ready(_)), state.is_refused)
        };
        let (since, why) = self.shared.reaching.lock().away();
        match (is_refused, is_connected) {
            (true, _) => Reach::Refused { why },
            (false, true) => Reach::Connected,
            (false, false) => Reach::Away { since, why },
        }
    }
}
