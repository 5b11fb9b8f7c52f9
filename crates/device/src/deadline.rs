//! How long a call to a device may take, and who may fall silent: all devices of a pool but the last one that answers.
//!
//! Where everything hangs at once (a network that is cut, a shared controller, the file system under all images) there is nobody to go on
//! with, so the last device is waited for, however long that takes. Invariant: of the devices that writing can go on with, at least one has
//! not left. Who leaves says so before anybody hears of it, and again when he is back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// What is said of the last device while it does not answer.
pub const WAITED_FOR: &str = "no other device answers, so whoever writes waits for it";

#[derive(Debug, Default)]
struct State {
    /// Devices that writing can go on with.
    candidates: BTreeSet<u16>,
    /// Devices that count as silent.
    left: BTreeSet<u16>,
    /// The pool is given up: nobody waits for the last one either.
    is_over: bool,
}

/// Which of a pool's devices answer, as those who ask them see it.
#[derive(Debug, Default)]
pub struct Answering {
    state: Mutex<State>,
}

impl Answering {
    /// From now on writing can go on with these.
    pub fn set(&self, candidates: BTreeSet<u16>) {
        self.state.lock().candidates = candidates;
    }

    /// From now on nobody is waited for: the pool is closed, whatever becomes of its last changes.
    pub fn wait_for_none(&self) {
        self.state.lock().is_over = true;
    }

    pub fn waits_for_none(&self) -> bool {
        self.state.lock().is_over
    }

    /// The deadline of one of the devices.
    pub fn deadline(self: &Arc<Self>, device: u16, limit: Duration) -> Deadline {
        Deadline { limit, device, answering: Some(self.clone()) }
    }
}

/// How long the calls to one device may take.
#[derive(Debug, Clone)]
pub struct Deadline {
    pub limit: Duration,
    device: u16,
    answering: Option<Arc<Answering>>,
}

impl Deadline {
    /// Of a device that may always be left behind.
    pub fn of_one_of_many(limit: Duration) -> Deadline {
        Deadline { limit, device: 0, answering: None }
    }

    /// Whether there is another device to go on with; then this one counts as silent from now on.
    pub fn may_leave(&self) -> bool {
        let Some(answering) = &self.answering else { return true };
        let mut state = answering.state.lock();
        let goes_on = |other: &u16| *other != self.device && !state.left.contains(other);
        let has_other = state.candidates.iter().any(goes_on);
        if !has_other && !state.is_over {
            return false;
        }
        state.left.insert(self.device);
        assert!(state.is_over || state.candidates.difference(&state.left).next().is_some(), "one device goes on");
        true
    }

    /// The device is not silent any more, or is closed.
    pub fn is_back(&self) {
        if let Some(answering) = &self.answering {
            answering.state.lock().left.remove(&self.device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_stays() {
        let answering = Arc::new(Answering::default());
        let deadline = |device| answering.deadline(device, Duration::from_secs(5));
        answering.set([0, 1, 2].into());
        assert!(deadline(0).may_leave() && deadline(2).may_leave());
        assert!(!deadline(1).may_leave(), "nobody else answers");
        deadline(2).is_back();
        assert!(deadline(1).may_leave());
        assert!(!deadline(2).may_leave());
        // Who takes nothing new is no reason to go on without another one, and may go itself.
        deadline(0).is_back();
        deadline(1).is_back();
        answering.set([2].into());
        assert!(!deadline(2).may_leave());
        assert!(deadline(0).may_leave());
        answering.wait_for_none();
        assert!(deadline(2).may_leave(), "the pool is closed");
    }
}
