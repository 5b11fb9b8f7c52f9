//! The write queue of one device: a few threads that take jobs in order of arrival and carry them out in any order, and one that
//! watches how long they take.
//!
//! Past the deadline a write or flush is given up: its ticket fails, the device counts as silent, and everything that is queued or
//! comes later fails at once, until the last call that was given up has come back from the kernel. So nobody waits for a device that
//! says nothing, and when it is used again nothing old can still be on its way to it.
//!
//! Invariant: every job's ticket is finished, also when the device is closed: dropping the queue first drains it, but for threads
//! that the kernel does not let go.

use super::OpenFile;
use crate::Piece;
use crate::completion::Ticket;
use crate::deadline::Deadline;
use crate::error::DeviceError;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is asked whether another device answers again.
const LAST_ONE_ASKED: Duration = Duration::from_millis(100);
/// From such a time on a device without a deadline is said not to answer.
const TOLD_FROM: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) enum Job {
    Write { offset: u64, pieces: Vec<Piece>, ticket: Ticket },
    Flush { ticket: Ticket },
}

/// A job without its ticket.
enum Call {
    Write { offset: u64, pieces: Vec<Piece> },
    Flush,
}

impl Job {
    fn into_parts(self) -> (Call, Ticket) {
        match self {
            Job::Write { offset, pieces, ticket } => (Call::Write { offset, pieces }, ticket),
            Job::Flush { ticket } => (Call::Flush, ticket),
        }
    }
}

impl Call {
    /// The memory goes back to its pool before anybody learns of the end.
    fn carry_out(self, open: &OpenFile) -> Result<(), DeviceError> {
        match self {
            Call::Write { offset, pieces } => open.write(offset, &pieces),
            Call::Flush => open.flush_data(),
        }
    }
}

/// A call that a thread is in the kernel for.
#[derive(Debug)]
struct Running {
    begun: Instant,
    /// Not any more once it was given up.
    ticket: Option<Ticket>,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    idle_writers: usize,
    is_closing: bool,
    running: BTreeMap<u64, Running>,
    next: u64,
    deadline: Option<Deadline>,
    /// As which the device has left the others, while it is silent.
    left: Option<Deadline>,
    is_watcher_idle: bool,
}

impl State {
    /// When the oldest call that was given up began.
    fn silent_since(&self) -> Option<Instant> {
        self.running.values().filter(|running| running.ticket.is_none()).map(|running| running.begun).min()
    }

    fn oldest_waited_for(&self) -> Option<Instant> {
        self.running.values().filter(|running| running.ticket.is_some()).map(|running| running.begun).min()
    }

    /// Takes the tickets of all calls that began before this, and of all that waits behind them.
    fn give_up(&mut self, before: Instant) -> Vec<Ticket> {
        let overdue = self.running.values_mut().filter(|running| running.begun <= before);
        let mut tickets: Vec<Ticket> = overdue.filter_map(|running| running.ticket.take()).collect();
        if !tickets.is_empty() {
            tickets.extend(self.jobs.drain(..).map(|job| job.into_parts().1));
        }
        tickets
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
    /// For the one that watches: there is something to watch, or it is over.
    begun: Condvar,
    /// For the one that closes: a call has ended.
    ended: Condvar,
}

#[derive(Debug)]
pub(super) struct WriteQueue {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<()>>,
    watcher: Option<JoinHandle<()>>,
}

impl WriteQueue {
    /// With no threads, `submit` carries the job out itself.
    pub(super) fn start(open: Arc<OpenFile>, thread_count: usize) -> std::io::Result<WriteQueue> {
        let mut queue = WriteQueue { shared: Arc::default(), writers: Vec::new(), watcher: None };
        for _ in 0..thread_count {
            let (shared, open) = (Arc::clone(&queue.shared), Arc::clone(&open));
            let builder = std::thread::Builder::new().name("stere-write".to_owned());
            // On failure `queue` is dropped, which ends the threads already started.
            queue.writers.push(builder.spawn(move || shared.serve(&open))?);
        }
        if thread_count > 0 {
            let shared = Arc::clone(&queue.shared);
            let builder = std::thread::Builder::new().name("stere-deadline".to_owned());
            queue.watcher = Some(builder.spawn(move || shared.watch(&open))?);
        }
        Ok(queue)
    }

    pub(super) fn has_threads(&self) -> bool {
        !self.writers.is_empty()
    }

    /// How long a write or flush may take from now on; none: as long as it needs.
    pub(super) fn set_deadline(&self, deadline: Option<Deadline>) {
        self.shared.state.lock().deadline = deadline;
        self.shared.begun.notify_one();
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.shared.state.lock().deadline.as_ref().map(|deadline| deadline.limit)
    }

    /// For how long the device has said nothing, if calls were given up for that.
    pub(super) fn silent_for(&self) -> Option<Duration> {
        self.shared.state.lock().silent_since().map(|since| since.elapsed())
    }

    /// For how long a call has been under way beyond the deadline that nobody gave up, because no other device answers.
    pub(super) fn waited_for(&self) -> Option<Duration> {
        let state = self.shared.state.lock();
        let limit = state.deadline.as_ref().map_or(TOLD_FROM, |deadline| deadline.limit);
        let waited_for = state.oldest_waited_for()?.elapsed();
        // What has just passed its deadline is about to be given up.
        (waited_for > limit + LAST_ONE_ASKED * 2).then_some(waited_for)
    }

    pub(super) fn submit(&self, open: &OpenFile, job: Job) {
        if self.writers.is_empty() {
            let (call, ticket) = job.into_parts();
            return ticket.finish(call.carry_out(open));
        }
        let mut state = self.shared.state.lock();
        assert!(!state.is_closing, "nobody can submit to a queue that is being dropped");
        if state.silent_since().is_some() {
            drop(state);
            return job.into_parts().1.finish(Err(open.silent()));
        }
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
                assert!(state.silent_since().is_none(), "nothing new is asked of a device that says nothing");
                let (call, ticket) = job.into_parts();
                let number = state.next;
                state.next += 1;
                state.running.insert(number, Running { begun: Instant::now(), ticket: Some(ticket) });
                if std::mem::take(&mut state.is_watcher_idle) {
                    self.begun.notify_one();
                }
                drop(state);
                let outcome = call.carry_out(open);
                state = self.state.lock();
                let ticket = state.running.remove(&number).and_then(|running| running.ticket);
                let is_silent = state.silent_since().is_some();
                if ticket.is_none() && !is_silent {
                    open.is_silent.store(false, Ordering::Release);
                    state.left.take().iter().for_each(Deadline::is_back);
                }
                drop(state);
                if let Some(ticket) = ticket {
                    ticket.finish(outcome);
                }
                self.ended.notify_all();
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

    /// Gives up what takes longer than the deadline, unless no other device answers. Sleeps while nothing is under way.
    fn watch(&self, open: &OpenFile) {
        let mut state = self.state.lock();
        while !state.is_closing {
            let oldest = state.oldest_waited_for();
            let Some((deadline, oldest)) = state.deadline.clone().zip(oldest) else {
                state.is_watcher_idle = state.deadline.is_some();
                self.begun.wait(&mut state);
                state.is_watcher_idle = false;
                continue;
            };
            let due = oldest + deadline.limit;
            if Instant::now() < due {
                self.begun.wait_until(&mut state, due);
                continue;
            }
            if !deadline.may_leave() {
                self.begun.wait_for(&mut state, LAST_ONE_ASKED);
                continue;
            }
            let Some(before) = Instant::now().checked_sub(deadline.limit) else { continue };
            state.left = Some(deadline);
            let tickets = state.give_up(before);
            open.is_silent.store(true, Ordering::Release);
            drop(state);
            tickets.into_iter().for_each(|ticket| ticket.finish(Err(open.silent())));
            state = self.state.lock();
        }
    }

    /// Waits until all is done, or for as long as a call may take; whether all is.
    fn drain(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.jobs.is_empty() && state.running.is_empty() {
                return true;
            }
            if state.silent_since().is_some() {
                return false;
            }
            // With a deadline the one that watches ends this.
            self.ended.wait_for(&mut state, Duration::from_millis(100));
        }
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        let is_drained = self.shared.drain();
        {
            let mut state = self.shared.state.lock();
            state.is_closing = true;
            state.left.take().iter().for_each(Deadline::is_back);
        }
        self.shared.arrived.notify_all();
        self.shared.begun.notify_all();
        if let Some(watcher) = self.watcher.take() {
            drop(watcher.join());
        }
        for writer in self.writers.drain(..) {
            // One that the kernel does not let go is left to itself: it keeps the file, and so its lock, until it is back.
            if is_drained || writer.is_finished() {
                // A writer that panicked has dropped its ticket, which reported the write as abandoned.
                drop(writer.join());
            }
        }
    }
}
