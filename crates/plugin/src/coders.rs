//! Records of one request that are encoded or decoded by several processors at once.
//!
//! A request of 1 MiB has eight records, and each is compressed on its own, so a single writer need not have one processor alone. The
//! threads are brought by who runs the file system; without them (the simulator) everything runs inline and in order. Where as many requests
//! are at work as there are processors, each works alone: another thread would only take the processor from one that is on it already.
//! Invariant: what comes out is in the order of what went in, whoever did it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use stere_device::{Job, Parallel, processor_threads};

/// Who encodes and decodes beside the thread that asks.
#[derive(Clone, Default)]
pub struct Coders(Option<Shared>);

#[derive(Clone)]
struct Shared {
    processors: usize,
    threads: Arc<dyn Parallel>,
    /// Threads that encode or decode at this moment, or were asked to.
    working: Arc<AtomicUsize>,
}

impl fmt::Debug for Coders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Coders").field(&self.0.as_ref().map(|shared| shared.processors)).finish()
    }
}

impl Coders {
    /// A thread for each processor of this machine.
    pub fn of_processors() -> Coders {
        processor_threads().map_or_else(Coders::default, |(count, threads)| Coders::new(count, threads))
    }

    /// So many jobs at once, run by these threads.
    pub fn new(processors: usize, threads: Arc<dyn Parallel>) -> Coders {
        Coders(Some(Shared { processors, threads, working: Arc::default() }))
    }

    /// What `work` makes of each item.
    pub fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        let inline = |items: Vec<T>| items.into_iter().map(&work).collect();
        let Some(Shared { processors, threads, working }) = &self.0 else { return inline(items) };
        // The caller, and as many as there are processors left for. Who counts wrong for a moment is slower and nothing else.
        let idle = processors.saturating_sub(working.load(Ordering::Relaxed));
        let jobs = items.len().min(idle).max(1);
        let _at_work = AtWork::begin(working, jobs);
        if jobs == 1 {
            return inline(items);
        }
        let count = items.len();
        let done = Mutex::new(Vec::with_capacity(count));
        let waiting = Mutex::new(items.into_iter().enumerate());
        let work_on = || {
            loop {
                // Taken under the lock, worked on without it.
                let next = waiting.lock().next();
                let Some((index, item)) = next else { break };
                let made = work(item);
                done.lock().push((index, made));
            }
        };
        threads.run((0..jobs).map(|_| Box::new(work_on) as Job<'_>).collect());
        let mut done = done.into_inner();
        assert_eq!(done.len(), count, "every item is worked on once");
        done.sort_unstable_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, made)| made).collect()
    }
}

/// Threads that count as working until all of them are done, or one has panicked.
struct AtWork<'a> {
    working: &'a AtomicUsize,
    jobs: usize,
}

impl AtWork<'_> {
    fn begin(working: &AtomicUsize, jobs: usize) -> AtWork<'_> {
        working.fetch_add(jobs, Ordering::Relaxed);
        AtWork { working, jobs }
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let before = self.working.fetch_sub(self.jobs, Ordering::Relaxed);
        assert!(before >= self.jobs, "{} threads end of {before} that are at work", self.jobs);
    }
}

#[cfg(test)]
mod tests;
