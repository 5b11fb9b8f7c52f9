//! Lanes of worker threads: where requests go that have to wait.
//!
//! Each lane has a queue and threads of its own, started as they are needed and ended when they were idle for long.
//! The queues are bounded by the transports: a request in a queue still occupies its slot there.
//! Invariant: a job that was handed over is run exactly once, also when the lanes are being stopped.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[cfg(test)]
mod tests;

/// Threads that enter what other machines wrote: each waits for one file.
const ENTERING: usize = 8;
/// How long a thread waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// What a job does while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Reads of content and metadata.
    Reading,
    /// Changes: writes, names, attributes. They wait for metadata, or for room.
    Changing,
    /// Flushes and long work: fsync, syncfs, fallocate, copies, orphans.
    Syncing,
    /// Reads of what is on media only: they may wait for a person with a medium in the hand.
    Recalling,
    /// Searches of users, which look at all inodes.
    Searching,
    /// Writes of other machines that become a file's: all others may wait for them.
    Entering,
}

/// What the threads do with a job.
pub(crate) type Work<J> = Arc<dyn Fn(J) + Send + Sync>;

/// The lanes.
pub(crate) struct Lanes<J: Send + 'static> {
    lanes: [Arc<LaneShared<J>>; 6],
}

struct LaneShared<J> {
    name: &'static str,
    threads_max: usize,
    state: Mutex<LaneState<J>>,
    arrived: Condvar,
}

struct LaneState<J> {
    queue: VecDeque<J>,
    work: Option<Work<J>>,
    threads: Vec<JoinHandle<()>>,
    running: usize,
    idle: usize,
    stopping: bool,
}

impl<J: Send + 'static> Lanes<J> {
    pub fn new(reading: usize, changing: usize, syncing: usize, recalling: usize, searching: usize) -> Self {
        let lane = |name, threads_max: usize| {
            let state = LaneState {
                queue: VecDeque::new(),
                work: None,
                threads: Vec::new(),
                running: 0,
                idle: 0,
                stopping: false,
            };
            let (threads_max, state, arrived) = (threads_max.max(1), Mutex::new(state), Condvar::new());
            Arc::new(LaneShared { name, threads_max, state, arrived })
        };
        // In this order they are stopped: what reads hand on finds its lane open.
        let lanes = [
            ("read", reading),
            ("change", changing),
            ("sync", syncing),
            ("recall", recalling),
            ("search", searching),
            ("enter", ENTERING),
        ];
        Self { lanes: lanes.map(|(name, threads_max)| lane(name, threads_max)) }
    }

    /// Starts one thread a lane, so that a later lack of threads only makes it slower.
    pub fn start(&self, work: &Work<J>) -> io::Result<()> {
        for lane in &self.lanes {
            let mut state = lane.state.lock();
            state.work = Some(Arc::clone(work));
            LaneShared::spawn(lane, &mut state)?;
        }
        Ok(())
    }

    /// Hands a job over.
    pub fn submit(&self, lane: Lane, job: J) {
        let lane = &self.lanes[lane as usize];
        let mut state = lane.state.lock();
        let (idle, running) = (state.idle, state.running);
        assert!(idle <= running, "{idle} threads of {running} wait in {}", lane.name);
        state.queue.push_back(job);
        if state.idle >= state.queue.len() {
            drop(state);
            lane.arrived.notify_one();
        } else if state.running < lane.threads_max && !state.stopping {
            if let Err(error) = LaneShared::spawn(lane, &mut state) {
                tracing::warn!(lane = lane.name, %error, "no further worker thread");
            }
        }
    }

    /// Runs what is queued and ends all threads.
    pub fn stop(&self) {
        for lane in &self.lanes {
            let threads = {
                let mut state = lane.state.lock();
                state.stopping = true;
                std::mem::take(&mut state.threads)
            };
            lane.arrived.notify_all();
            for thread in threads {
                // The work catches its panics; there is nothing to learn here.
                drop(thread.join());
            }
            let mut state = lane.state.lock();
            state.work = None;
            assert!(state.queue.is_empty(), "a job was left in lane {}", lane.name);
            assert_eq!((state.running, state.idle), (0, 0), "threads that have ended are counted in {}", lane.name);
        }
    }
}

impl<J: Send + 'static> LaneShared<J> {
    fn spawn(lane: &Arc<Self>, state: &mut LaneState<J>) -> io::Result<()> {
        let Some(work) = state.work.clone() else { return Err(io::Error::other("the lanes are not started")) };
        let shared = Arc::clone(lane);
        let builder = std::thread::Builder::new().name(format!("stere-{}", lane.name));
        let thread = builder.spawn(move || shared.serve(&*work))?;
        state.running += 1;
        assert!(state.running <= lane.threads_max, "{} threads run in {}", state.running, lane.name);
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.push(thread);
        Ok(())
    }

    fn serve(&self, work: &(dyn Fn(J) + Send + Sync)) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                work(job);
                state = self.state.lock();
                continue;
            }
            if state.stopping {
                break;
            }
            state.idle += 1;
            let waited = self.arrived.wait_for(&mut state, IDLE_MAX);
            state.idle -= 1;
            // The last thread stays, see `start`.
            if waited.timed_out() && state.queue.is_empty() && state.running > 1 {
                break;
            }
        }
        assert!(state.running > state.idle, "the thread that ends in {} runs, and does not wait", self.name);
        state.running -= 1;
    }
}
