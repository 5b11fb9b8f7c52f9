//! Doing several blocking things at once, if the devices bring the threads for it.
//!
//! The layers above spawn no thread; they hand jobs to what `Device::parallel` gives them and go on when all have run.
//! Devices in memory and simulated ones bring nothing, so there everything runs inline and in order. What takes processors and not devices
//! (compressing) has threads of its own, which whoever runs the layers for real hands to them.

use std::sync::{Arc, OnceLock};

/// A piece of work that may borrow from its maker, who waits for it.
pub type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Runs jobs, returning when all have run. Jobs do not wait for each other.
pub trait Parallel: Send + Sync {
    fn run<'a>(&self, jobs: Vec<Job<'a>>);
}

/// How many reads of all devices together may be under way beside those of the callers' own threads.
const READER_THREADS: usize = 8;

/// Threads that are there for as long as the process is.
struct Threads {
    pool: rayon::ThreadPool,
}

impl Parallel for Threads {
    fn run<'a>(&self, mut jobs: Vec<Job<'a>>) {
        let Some(own) = jobs.pop() else { return };
        self.pool.in_place_scope(|scope| {
            jobs.into_iter().for_each(|job| scope.spawn(move |_| job()));
            // The last on this thread, which would only wait otherwise.
            own();
        });
    }
}

impl Threads {
    /// None if the system gives no threads, which is slower and nothing worse.
    fn start(count: usize, what: &'static str) -> Option<Arc<dyn Parallel>> {
        let name = move |number| format!("stere-{what}-{number}");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(count).thread_name(name).build();
        pool.ok().map(|pool| Arc::new(Threads { pool }) as Arc<dyn Parallel>)
    }
}

/// Threads for reads, shared by all devices of the process.
pub fn reader_threads() -> Option<Arc<dyn Parallel>> {
    static THREADS: OnceLock<Option<Arc<dyn Parallel>>> = OnceLock::new();
    THREADS.get_or_init(|| Threads::start(READER_THREADS, "read")).clone()
}

/// Threads for work that waits for nothing, one for each processor, and how many that are. None where there is one processor only.
pub fn processor_threads() -> Option<(usize, Arc<dyn Parallel>)> {
    static THREADS: OnceLock<Option<Arc<dyn Parallel>>> = OnceLock::new();
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = THREADS.get_or_init(|| (count > 1).then(|| Threads::start(count, "code")).flatten());
    threads.clone().map(|threads| (count, threads))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn all_jobs_run_at_the_same_time() {
        let threads = reader_threads().unwrap();
        // Each job waits for the three others: one after the other they would never end.
        let (barrier, count) = (Barrier::new(4), AtomicU32::new(0));
        let job = || {
            barrier.wait();
            count.fetch_add(1, Ordering::SeqCst);
        };
        threads.run((0..4).map(|_| Box::new(job) as Job<'_>).collect());
        assert_eq!(count.load(Ordering::SeqCst), 4);
        threads.run(Vec::new());
    }
}
