//! Many histories of the area `cluster`, on all processors, and what happened in them.
//!
//! Invariants: a history is played by one thread, to which planted bugs belong; what is told does not depend on how many threads there are.
//! Read next: `cluster.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use stere_faults::Bug;

use super::run;

const THREADS_MAX: u64 = 16;

/// Events of histories, so that nobody takes quiet ones for proof.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    pub histories: u64,
    pub acknowledged: u64,
    pub takeovers: u64,
    /// Owners that went on after they were replaced.
    pub woken: u64,
    pub crashes: u64,
    /// Times that an owner was cut off a node.
    pub parted: u64,
    /// Owners that lost the pool because the log did not answer them.
    pub without_log: u64,
    /// Attempts to take the pool that came to nothing.
    pub taken_in_vain: u64,
    /// Writes, and records of the log, that arrived when nobody waited for them.
    pub arrived_late: u64,
    pub records_late: u64,
    /// Times that everything which a node had missed was written to it.
    pub caught_up: u64,
    /// Owners whose clock stood still when they were replaced.
    pub stopped_clocks: u64,
    /// Owners that woke and found their lease over.
    pub lease_over: u64,
    /// Blocks of copies that changed.
    pub rotten: u64,
    /// Reads of a file whose only node was away.
    pub away: u64,
}

/// Plays so many histories on all processors, with a bug planted if asked; what was seen before the first failure, and that.
pub fn run_many(first: u64, count: u64, bug: Option<Bug>) -> (Seen, Option<(u64, String)>) {
    #[cfg(not(feature = "planted-bugs"))]
    assert!(bug.is_none(), "this build plants no bugs");
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64).min(THREADS_MAX);
    let failed = AtomicU64::new(u64::MAX);
    let played: Vec<Played> = std::thread::scope(|scope| {
        let failed = &failed;
        let seeds = |thread: u64| (first + thread..first + count).step_by(threads as usize);
        let begin = |thread| scope.spawn(move || run_some(seeds(thread), bug, failed));
        let running: Vec<_> = (0..threads).map(begin).collect();
        running.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let (passed, failures): (Vec<_>, Vec<_>) = played.into_iter().unzip();
    let failure = failures.into_iter().flatten().min();
    let end = failure.as_ref().map_or(u64::MAX, |(seed, _)| *seed);
    // Others may have gone on behind the failure.
    let seen = passed
        .into_iter()
        .flatten()
        .filter(|(seed, _)| *seed < end)
        .fold(Seen::default(), |all, (_, seen)| all.and(seen));
    assert_eq!(seen.histories, end.min(first + count) - first, "every history before the end was played");
    (seen, failure)
}

/// The histories of one thread that passed, and the first failure.
type Played = (Vec<(u64, Seen)>, Option<(u64, String)>);

/// Plays histories until one fails, or one before them did.
fn run_some(seeds: impl Iterator<Item = u64>, bug: Option<Bug>, failed: &AtomicU64) -> Played {
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

impl Seen {
    fn and(self, other: Seen) -> Seen {
        Seen {
            histories: self.histories + other.histories,
            acknowledged: self.acknowledged + other.acknowledged,
            takeovers: self.takeovers + other.takeovers,
            woken: self.woken + other.woken,
            crashes: self.crashes + other.crashes,
            parted: self.parted + other.parted,
            without_log: self.without_log + other.without_log,
            taken_in_vain: self.taken_in_vain + other.taken_in_vain,
            arrived_late: self.arrived_late + other.arrived_late,
            records_late: self.records_late + other.records_late,
            caught_up: self.caught_up + other.caught_up,
            stopped_clocks: self.stopped_clocks + other.stopped_clocks,
            lease_over: self.lease_over + other.lease_over,
            rotten: self.rotten + other.rotten,
            away: self.away + other.away,
        }
    }
}
