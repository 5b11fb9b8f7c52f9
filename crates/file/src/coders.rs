//! Records of one request that are encoded or decoded by several processors at once.
//!
//! A request of 1 MiB has eight records, and each is compressed on its own, so a single writer need not have one processor alone. The
//! threads are brought by who runs the file system; without them (the simulator) everything runs inline and in order.
//! Invariant: what comes out is in the order of what went in, whoever did it.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_device::{Job, Parallel, processor_threads};

/// Who encodes and decodes beside the thread that asks.
#[derive(Clone, Default)]
pub struct Coders(Option<(usize, Arc<dyn Parallel>)>);

impl fmt::Debug for Coders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Coders").field(&self.0.as_ref().map(|(count, _)| count)).finish()
    }
}

impl Coders {
    /// A thread for each processor of this machine.
    pub fn of_processors() -> Coders {
        Coders(processor_threads())
    }

    /// So many jobs at once, run by these threads.
    pub fn new(count: usize, threads: Arc<dyn Parallel>) -> Coders {
        Coders(Some((count, threads)))
    }

    /// What `work` makes of each item.
    pub(crate) fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        let Some((count, threads)) = self.0.as_ref().filter(|(count, _)| items.len().min(*count) > 1) else {
            return items.into_iter().map(work).collect();
        };
        let (jobs, done) = (items.len().min(*count), Mutex::new(Vec::with_capacity(items.len())));
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
        done.sort_unstable_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, made)| made).collect()
    }
}
