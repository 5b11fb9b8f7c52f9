//! A thread of background work: it asks the scheduler of its worker what to do, does that, and rests as the scheduler
//! says.
//!
//! Which jobs there are, when they are due and what their steps do stands in the crate `jobs`; here are the clock,
//! the log and the threads. Read next: `work.rs`, `repair.rs`, `tertiary.rs`, `follow.rs`, `backup.rs`, each the loop
//! of one thread.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stere_jobs::{Budget, Complaint, Job, Moment, Next, Progress, Ran, Report, Scheduler, Settings, Steps, World};
use stere_naming::Io;

use crate::answer::describe::describe;
use crate::daemon::{Daemon, UnmountOnPanic};
use crate::options::Options;
use stere_machine::clock;
use stere_machine::error::{Error, Result};

/// Counts the requests that the mount has served.
pub type Served = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What the options of a mount say of background work.
pub fn settings(options: &Options) -> Settings {
    Settings {
        commit: options.commit,
        repair_rate_bytes: options.repair_rate_bytes,
        tier_rate_bytes: options.tier_rate_bytes,
        repack_percent: options.repack_percent,
        discards: options.discard,
        budget_divisor: 1,
    }
}

/// Starts a thread of background work, which a pool that is open for reading only has none of. It ends when the
/// daemon stops; if it panics, the mount is taken down.
pub fn start(
    name: &str,
    daemon: Arc<Daemon>,
    work: impl FnOnce(Arc<Daemon>) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let run = move || {
        if daemon.running.read_only {
            return;
        }
        let guard = UnmountOnPanic(daemon.clone());
        work(daemon);
        drop(guard);
    };
    std::thread::Builder::new().name(name.into()).spawn(run).map_err(Error::System)
}

/// The jobs of one worker, by the clock of this machine.
pub struct Worker {
    pub daemon: Arc<Daemon>,
    which: stere_jobs::Worker,
    scheduler: Scheduler,
    steps: Steps,
    served: Served,
    began: Instant,
}

impl Worker {
    pub fn new(daemon: Arc<Daemon>, which: stere_jobs::Worker, settings: Settings, served: Served) -> Worker {
        let begins = Moment { now: Duration::ZERO, served: served() };
        let (scheduler, steps) = (Scheduler::new(which, settings, begins), Steps::new(settings, begins));
        Worker { daemon, which, scheduler, steps, served, began: Instant::now() }
    }

    fn moment(&self) -> Moment {
        Moment { now: self.began.elapsed(), served: (self.served)() }
    }

    pub fn is_stopped(&self) -> bool {
        self.daemon.stop.load(Ordering::Acquire)
    }

    /// What to do next, after the rests that come before it; nothing when the mount ends.
    pub fn next(&mut self, rest: impl Fn(Duration)) -> Option<(Job, Budget)> {
        while !self.is_stopped() {
            if !Steps::is_wanted(&self.daemon.filesystem, self.which) {
                rest(self.which.tick());
                continue;
            }
            match self.scheduler.next(self.moment()) {
                Next::Run(job, budget) => return Some((job, budget)),
                Next::Rest(Duration::ZERO) => {}
                Next::Rest(pause) => rest(pause),
            }
        }
        None
    }

    /// Runs a step; copying out is held back for its rate for so long.
    pub fn run(&mut self, job: (Job, Budget), held: Duration) -> Result<Ran> {
        assert_eq!(job.0.worker(), self.which, "each thread has its own jobs");
        let (daemon, moment) = (self.daemon.clone(), self.moment());
        let world = World {
            caller: clock::own_caller(Io::BLOCKING),
            describe: &|inodes: &BTreeSet<u64>| describe(&daemon.filesystem, inodes),
            takes_push: &|| daemon.running.tertiary.take_push(),
            is_stopped: &|| daemon.stop.load(Ordering::Acquire),
            held,
        };
        self.steps.run(&daemon.filesystem, job, moment, &world).map_err(|error| match error {
            stere_jobs::Error::Files(error) => Error::Naming(error),
            stere_jobs::Error::Store(error) => Error::Store(error),
        })
    }

    /// The same for a worker of which no job needs the machine.
    pub fn run_on_stack(&mut self, job: (Job, Budget), held: Duration) -> Result<(Progress, Report)> {
        match self.run(job, held)? {
            Ran::Done(progress, report) => Ok((progress, report)),
            Ran::OfMachine(job) => unreachable!("{job:?} is done by another thread"),
        }
    }

    /// A step ended so.
    pub fn ended(&mut self, job: Job, outcome: &Result<Progress>) {
        let moment = self.moment();
        let complaint = self.scheduler.ended(job, moment, outcome);
        complaint.into_iter().for_each(tell);
    }

    /// The value, or a complaint: once, not in every round.
    pub fn told<T>(&mut self, job: Job, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| self.scheduler.complain(job, &error).into_iter().for_each(tell)).ok()
    }

    /// Whether nobody uses the mount.
    pub fn is_idle(&mut self) -> bool {
        let moment = self.moment();
        self.scheduler.is_idle(moment)
    }
}

fn tell(complaint: Complaint) {
    match complaint {
        Complaint::Error(text) => tracing::error!("{text}"),
        Complaint::Warning { what, why } => tracing::warn!(error = %why, "{what}"),
    }
}
