//! Waiting for queued writes. A `Completion` counts what is under way; every write holds a `Ticket` with a tag that says
//! which part it is (a chunk's index, say).
//!
//! Invariant: each ticket finishes exactly once; one that is dropped unfinished counts as failed, so no waiter hangs
//! and no lost write passes for a good one.

use crate::error::DeviceError;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
struct State {
    pending: usize,
    errors: Vec<(u64, DeviceError)>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    done: Condvar,
}

/// Clonable handle on a group of writes.
#[derive(Clone, Default)]
pub struct Completion {
    shared: Arc<Shared>,
}

impl Completion {
    pub fn new() -> Completion {
        Completion::default()
    }

    /// Counts one more write, known by `tag`.
    pub fn ticket(&self, tag: u64) -> Ticket {
        self.shared.state.lock().pending += 1;
        Ticket { shared: Some(Arc::clone(&self.shared)), tag, counters: None }
    }

    /// Whether nothing is under way now.
    pub fn is_done(&self) -> bool {
        self.shared.state.lock().pending == 0
    }

    /// Waits until every ticket has finished, and takes the errors (each is handed out once).
    pub fn wait(&self) -> Vec<(u64, DeviceError)> {
        let mut state = self.shared.state.lock();
        while state.pending > 0 {
            self.shared.done.wait(&mut state);
        }
        std::mem::take(&mut state.errors)
    }

    /// Waits until every ticket has finished; the errors stay for `wait`.
    pub fn wait_done(&self) {
        let mut state = self.shared.state.lock();
        while state.pending > 0 {
            self.shared.done.wait(&mut state);
        }
    }

    /// The errors if all is done, `None` while something is under way.
    pub fn try_wait(&self) -> Option<Vec<(u64, DeviceError)>> {
        let mut state = self.shared.state.lock();
        (state.pending == 0).then(|| std::mem::take(&mut state.errors))
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.state.lock();
        write!(formatter, "Completion({} pending, {} errors)", state.pending, state.errors.len())
    }
}

/// The right and the duty to report the outcome of one write.
pub struct Ticket {
    shared: Option<Arc<Shared>>,
    tag: u64,
    counters: Option<Counters>,
}

/// Where a ticket is counted: when it finishes, and when it failed.
struct Counters {
    finished: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl Ticket {
    /// Also counts one in `finished`, and in `failed` where it failed (not where the device is away), before any waiter learns of it. Once a ticket.
    pub fn counted_in(mut self, finished: &Arc<AtomicU64>, failed: &Arc<AtomicU64>) -> Ticket {
        assert!(self.counters.is_none(), "a ticket is counted once");
        self.counters = Some(Counters { finished: Arc::clone(finished), failed: Arc::clone(failed) });
        self
    }

    pub fn tag(&self) -> u64 {
        self.tag
    }

    pub fn finish(mut self, outcome: Result<(), DeviceError>) {
        self.settle(outcome);
    }

    fn settle(&mut self, outcome: Result<(), DeviceError>) {
        let Some(shared) = self.shared.take() else {
            return;
        };
        if let Some(counters) = &self.counters {
            if outcome.as_ref().is_err_and(|error| !error.is_absence()) {
                counters.failed.fetch_add(1, Ordering::AcqRel);
            }
            counters.finished.fetch_add(1, Ordering::AcqRel);
        }
        let mut state = shared.state.lock();
        assert!(state.pending > 0, "a ticket is counted until it finishes");
        state.pending -= 1;
        if let Err(error) = outcome {
            state.errors.push((self.tag, error));
        }
        if state.pending == 0 {
            shared.done.notify_all();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle(Err(DeviceError::Abandoned));
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Ticket({})", self.tag)
    }
}

#[cfg(test)]
mod tests;
