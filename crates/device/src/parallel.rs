//! Doing several blocking things at once, if the devices bring the threads for it.
//!
//! The layers above spawn no thread; they hand jobs to what `Device::parallel` gives them and go on when all have run.
//! Devices in memory and simulated ones bring nothing, so there everything runs inline and in order.

use std::sync::{Arc, OnceLock};

/// A piece of work that may borrow from its maker, who waits for it.
pub type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Runs jobs, returning when all have run. Jobs do not wait for each other.
pub trait Parallel: Send + Sync {
    fn run<'a>(&self, jobs: Vec<Job<'a>>);
}

/// How many reads of all devices together may be under way beside those of the callers' own threads.
const READER_THREADS: usize = 8;

/// Threads for reads, shared by all file devices of the process.
struct ReaderThreads {
    pool: rayon::ThreadPool,
}

impl Parallel for ReaderThreads {
    fn run<'a>(&self, mut jobs: Vec<Job<'a>>) {
        let Some(own) = jobs.pop() else { return };
        self.pool.in_place_scope(|scope| {
            jobs.into_iter().for_each(|job| scope.spawn(move |_| job()));
            // The last on this thread, which would only wait otherwise.
            own();
        });
    }
}

/// The threads of this process; none if the system gives no threads, which is slower and nothing worse.
pub(crate) fn reader_threads() -> Option<Arc<dyn Parallel>> {
    static THREADS: OnceLock<Option<Arc<ReaderThreads>>> = OnceLock::new();
    let start = || {
        let name = |number| format!("stere-read-{number}");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(READER_THREADS).thread_name(name).build();
        pool.ok().map(|pool| Arc::new(ReaderThreads { pool }))
    };
    THREADS.get_or_init(start).as_ref().map(|threads| Arc::clone(threads) as Arc<dyn Parallel>)
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
