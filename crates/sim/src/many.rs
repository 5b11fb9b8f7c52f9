//! Many histories of an area that has a run of its own, on all processors.
//!
//! Invariants: a history is played by one thread, to which planted bugs belong; what is told does not depend on how many threads there are.
//! Read next: `cluster.rs`, `clients.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use stere_faults::Bug;

const THREADS_MAX: u64 = 16;

/// Plays one history, and tells what happened in it or what was found.
type Run<Seen> = fn(u64) -> Result<Seen, String>;

/// Plays so many histories, with a bug planted if asked; what was seen in each before the first failure, and that.
pub(crate) fn run<Seen: Send>(
    first: u64,
    count: u64,
    bug: Option<Bug>,
    run: Run<Seen>,
) -> (Vec<Seen>, Option<(u64, String)>) {
    #[cfg(not(feature = "planted-bugs"))]
    assert!(bug.is_none(), "this build plants no bugs");
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64).min(THREADS_MAX);
    let failed = AtomicU64::new(u64::MAX);
    let played: Vec<Played<Seen>> = std::thread::scope(|scope| {
        let failed = &failed;
        let seeds = |thread: u64| (first + thread..first + count).step_by(threads as usize);
        let begin = |thread| scope.spawn(move || run_some(seeds(thread), bug, run, failed));
        let running: Vec<_> = (0..threads).map(begin).collect();
        running.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let (passed, failures): (Vec<_>, Vec<_>) = played.into_iter().unzip();
    let failure = failures.into_iter().flatten().min();
    let end = failure.as_ref().map_or(u64::MAX, |(seed, _)| *seed);
    // Others may have gone on behind the failure.
    let before = passed.into_iter().flatten().filter(|(seed, _)| *seed < end);
    let seen: Vec<Seen> = before.map(|(_, seen)| seen).collect();
    assert_eq!(seen.len() as u64, end.min(first + count) - first, "every history before the end was played");
    (seen, failure)
}

/// The histories of one thread that passed, and the first failure.
type Played<Seen> = (Vec<(u64, Seen)>, Option<(u64, String)>);

/// Plays histories until one fails, or one before them did.
fn run_some<Seen>(
    seeds: impl Iterator<Item = u64>,
    bug: Option<Bug>,
    run: Run<Seen>,
    failed: &AtomicU64,
) -> Played<Seen> {
    // The switch belongs to the thread, which ends with this.
    #[cfg(feature = "planted-bugs")]
    stere_faults::plant(bug);
    #[cfg(not(feature = "planted-bugs"))]
    assert!(bug.is_none(), "this build plants no bugs");
    let mut passed = Vec::new();
    for seed in seeds.take_while(|seed| *seed < failed.load(Ordering::Relaxed)) {
        // A planted bug may also be found by an assertion.
        let error = match std::panic::catch_unwind(|| run(seed)) {
            Ok(Ok(seen)) => {
                passed.push((seed, seen));
                continue;
            }
            Ok(Err(error)) => error,
            Err(_) => "it panicked; see above".into(),
        };
        failed.fetch_min(seed, Ordering::Relaxed);
        return (passed, Some((seed, error)));
    }
    (passed, None)
}
