//! Reads that their caller may leave behind: threads of the device read into memory of their own, and the caller waits only for so
//! long. What comes later is thrown away.
//!
//! The threads are started by the first such read. They are nobody's to wait for: one that is stuck in the kernel ends when the kernel
//! lets it go. They hold nothing of the device but the reads themselves: once it is dropped, and no read is under way, its file is closed.

use crate::buffer::Buffer;
use crate::error::DeviceError;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Such reads of one device at the same time.
const THREADS: usize = 4;
/// Beyond so many that wait for a thread nobody waits behind them.
const WAITING_MAX: usize = 16;

/// Holds what it reads from until it is done or thrown away.
type Read = Box<dyn FnOnce() -> Result<Buffer, DeviceError> + Send>;

#[derive(Default)]
struct Answer {
    outcome: Mutex<Option<Result<Buffer, DeviceError>>>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Read, Arc<Answer>)>,
    idle: usize,
    threads: usize,
    is_closing: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
pub(super) struct Readers {
    shared: Arc<Shared>,
}

impl Readers {
    /// Reads, and gives the bytes if they come in time. `None`: the caller is to have them elsewhere.
    pub(super) fn read(
        &self,
        patience: Duration,
        read: impl FnOnce() -> Result<Buffer, DeviceError> + Send + 'static,
    ) -> Option<Result<Buffer, DeviceError>> {
        let deadline = Instant::now() + patience;
        let answer = Arc::new(Answer::default());
        {
            let mut state = self.shared.state.lock();
            if state.waiting.len() >= WAITING_MAX {
                return None;
            }
            state.waiting.push_back((Box::new(read), answer.clone()));
            let needs_thread = state.idle < state.waiting.len() && state.threads < THREADS;
            if needs_thread && self.start_thread() {
                state.threads += 1;
            }
            if state.threads == 0 {
                return None;
            }
        }
        self.shared.arrived.notify_one();
        let mut outcome = answer.outcome.lock();
        while outcome.is_none() {
            if answer.arrived.wait_until(&mut outcome, deadline).timed_out() {
                break;
            }
        }
        outcome.take()
    }

    fn start_thread(&self) -> bool {
        let shared = self.shared.clone();
        let builder = std::thread::Builder::new().name("stere-read".into());
        builder.spawn(move || shared.serve()).is_ok()
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((read, answer)) = state.waiting.pop_front() {
                drop(state);
                // Nobody waits any more: that read is not worth it.
                if Arc::strong_count(&answer) > 1 {
                    // By now the read has let go of the file, so who is answered may close it.
                    let outcome = read();
                    *answer.outcome.lock() = Some(outcome);
                    answer.arrived.notify_one();
                } else {
                    drop(read);
                }
                state = self.state.lock();
            } else if state.is_closing {
                return;
            } else {
                state.idle += 1;
                assert!(state.idle <= state.threads, "{} of {} threads are idle", state.idle, state.threads);
                self.arrived.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_closing = true;
        // Whoever asked for these went away before.
        let left = std::mem::take(&mut state.waiting);
        drop(state);
        drop(left);
        self.shared.arrived.notify_all();
    }
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Readers({} threads)", self.shared.state.lock().threads)
    }
}
