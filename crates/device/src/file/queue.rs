//! The write queue of one device: a few threads that take jobs in order of arrival and carry them out in any order.
//!
//! Invariant: every job's ticket is finished, also when the device is closed: dropping the queue first drains it.

use super::OpenFile;
use crate::Piece;
use crate::completion::Ticket;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

#[derive(Debug)]
pub(super) enum Job {
    Write { offset: u64, pieces: Vec<Piece>, ticket: Ticket },
    Flush { ticket: Ticket },
}

impl Job {
    fn carry_out(self, open: &OpenFile) {
        match self {
            Job::Write { offset, pieces, ticket } => {
                let outcome = open.write(offset, &pieces);
                // The memory goes back to its pool before anybody learns of the end.
                drop(pieces);
                ticket.finish(outcome);
            }
            Job::Flush { ticket } => ticket.finish(open.flush_data()),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    idle_writers: usize,
    is_closing: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug)]
pub(super) struct WriteQueue {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<()>>,
}

impl WriteQueue {
    /// With no threads, `submit` carries the job out itself.
    pub(super) fn start(open: Arc<OpenFile>, thread_count: usize) -> std::io::Result<WriteQueue> {
        let mut queue = WriteQueue { shared: Arc::default(), writers: Vec::new() };
        for _ in 0..thread_count {
            let (shared, open) = (Arc::clone(&queue.shared), Arc::clone(&open));
            let builder = std::thread::Builder::new().name("stere-write".to_owned());
            // On failure `queue` is dropped, which ends the threads already started.
            queue.writers.push(builder.spawn(move || shared.serve(&open))?);
        }
        Ok(queue)
    }

    pub(super) fn submit(&self, open: &OpenFile, job: Job) {
        if self.writers.is_empty() {
            return job.carry_out(open);
        }
        let mut state = self.shared.state.lock();
        assert!(!state.is_closing, "nobody can submit to a queue that is being dropped");
        match &job {
            Job::Write { .. } => state.jobs.push_back(job),
            // It covers only writes that have finished, so it waits for none that is queued.
            Job::Flush { .. } => state.jobs.push_front(job),
        }
        let is_anybody_idle = state.idle_writers > 0;
        drop(state);
        if is_anybody_idle {
            self.shared.arrived.notify_one();
        }
    }
}

impl Shared {
    fn serve(&self, open: &OpenFile) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job.carry_out(open);
                state = self.state.lock();
            } else if state.is_closing {
                return;
            } else {
                state.idle_writers += 1;
                self.arrived.wait(&mut state);
                state.idle_writers -= 1;
            }
        }
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        self.shared.state.lock().is_closing = true;
        self.shared.arrived.notify_all();
        for writer in self.writers.drain(..) {
            // A writer that panicked has dropped its ticket, which reported the write as abandoned.
            drop(writer.join());
        }
    }
}
