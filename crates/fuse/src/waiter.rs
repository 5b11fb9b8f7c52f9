//! Whether the process still lives that a request is for.
//!
//! The kernel sends an INTERRUPT for any signal and only for requests that a process waits for itself; what it reads ahead has none.
//! A process that handles a signal wants its bytes all the same, so what counts is whether the thread that asked is there and is
//! not about to be killed: a fatal signal of any kind makes SIGKILL pending for all threads of a process.

use fuse_wire::{Cancel, Request, is_dying, thread_status};

/// Who waits for the answer to a request.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The thread, as it is called here; 0 for one that is not seen from here.
    thread: u32,
    cancel: Cancel,
}

impl Waiter {
    pub fn of(request: &Request) -> Waiter {
        Waiter { thread: request.context().pid, cancel: request.cancel() }
    }

    /// Whoever waits got a signal: what was done so far is told, where that is possible.
    pub fn is_interrupted(&self) -> bool {
        self.cancel.is_cancelled() || self.is_gone()
    }

    /// Nobody waits any more.
    pub fn is_gone(&self) -> bool {
        if self.thread == 0 {
            return self.cancel.is_cancelled();
        }
        match thread_status(self.thread) {
            Some(status) => is_dying(&status),
            // Without /proc nobody is known to be gone.
            None => std::path::Path::new("/proc/self/status").exists(),
        }
    }
}

#[cfg(test)]
mod tests;
