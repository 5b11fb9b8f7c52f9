//! The background jobs of a mount in histories: all its workers, one after the other, in virtual time.
//!
//! Which jobs there are, when they are due and what they do is the crate `jobs`, which the daemon drives too; only
//! budgets are smaller, as the pools are. Workers but the first sit out now and then, since threads run at no known
//! speed. What only a machine has a history does by operations of its own: devices return and spares take over at
//! `BringBack`, backups are made at `Backup`. Histories without workers (`features::WORKERS`) run the same steps of
//! the stack's own jobs, due or not: what the others make good then stays as it is for longer.
//!
//! The oracle: no step fails but for what faults and media bear. Read next: `execute.rs`, `tertiary.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use stere_format::ScrubCursor;
use stere_jobs::{
    Budget, Job, Left, MachineJob, Moment, Next, Progress, Ran, Report, Scheduler, Settings, Steps, Worker, World,
};
use stere_naming::{Caller, Error};

use crate::device::Machine;
use crate::history::{History, Stop};
use crate::pool::{caller, superuser};
use crate::random::Random;
use crate::{features, retention, tertiary};

/// A mount without options.
const SETTINGS: Settings = Settings {
    commit: Duration::from_secs(5),
    repair_rate_bytes: 256 << 20,
    tier_rate_bytes: None,
    repack_percent: Some(50),
    discards: true,
    budget_divisor: 128,
};

/// After so long without requests a mount is idle.
const IDLE_NS: u64 = 1_000_000_000;

/// The background work of one mount.
pub struct Jobs {
    workers: Vec<(Worker, Scheduler)>,
    steps: Steps,
    served: u64,
    random: Random,
    /// How far a scrub is, where one is wanted. Not in each mount: it would hide what repair misses.
    scrub: Option<ScrubCursor>,
}

impl Jobs {
    /// Those of a new mount.
    pub(crate) fn new(machine: &Machine) -> Jobs {
        let mut random = machine.side_stream();
        let begins = Moment { now: now(machine), served: 0 };
        let workers = Worker::ALL.map(|worker| (worker, Scheduler::new(worker, SETTINGS, begins))).into();
        let scrub = random.chance(1, 4).then(ScrubCursor::default);
        Jobs { workers, steps: Steps::new(SETTINGS, Moment::default()), served: 0, random, scrub }
    }

    fn moment(&self, machine: &Machine) -> Moment {
        Moment { now: now(machine), served: self.served }
    }
}

fn now(machine: &Machine) -> Duration {
    Duration::from_nanos(machine.now_ns())
}

/// Background work goes on for so many rounds, while requests come or after there were none for a while.
pub(crate) fn work(history: &mut History, rounds: u8, is_idle: bool) -> Result<(), Stop> {
    let jobs = history.mounted().jobs.clone();
    let mut jobs = jobs.lock();
    if !features::WORKERS.has(history.plan.seed) {
        return work_eagerly(history, &mut jobs, rounds, is_idle);
    }
    jobs.served += 1;
    if is_idle {
        let moment = jobs.moment(&history.machine);
        for (_, scheduler) in &mut jobs.workers {
            scheduler.is_idle(moment);
        }
        pass(history, IDLE_NS);
    }
    for _ in 0..rounds {
        let (is_busy, rest) = round(history, &mut jobs)?;
        if !is_busy {
            break;
        }
        pass(history, rest.as_nanos() as u64);
        jobs.served += u64::from(!is_idle);
    }
    Ok(())
}

/// Without workers what the stack itself needs runs whenever it is asked for, due or not, and in small pieces.
fn work_eagerly(history: &mut History, jobs: &mut Jobs, rounds: u8, is_idle: bool) -> Result<(), Stop> {
    for _ in 0..rounds {
        let mut is_busy = false;
        for (job, amount) in [(Job::Files, 4), (Job::Clean, 0), (Job::Reconcile, 256 << 10)] {
            let user = caller(&history.machine);
            let outcome = step(history, jobs, (job, Budget { amount, is_idle }), user)?;
            is_busy |= outcome.is_err() || outcome.is_ok_and(|progress| progress.left != Left::Nothing);
        }
        if !is_busy {
            break;
        }
    }
    Ok(())
}

fn pass(history: &mut History, nanoseconds: u64) {
    history.machine.pass(nanoseconds);
    retention::tell_time(history);
}

/// A round of each worker. Tells whether there is more to do, and how long all of them rest.
fn round(history: &mut History, jobs: &mut Jobs) -> Result<(bool, Duration), Stop> {
    let (mut is_busy, mut rest) = (false, Duration::MAX);
    for at in 0..jobs.workers.len() {
        let worker = jobs.workers[at].0;
        let sits_out = worker != Worker::Background && jobs.random.chance(1, 2);
        if sits_out || !Steps::is_wanted(&history.mounted().files, worker) {
            continue;
        }
        loop {
            let moment = jobs.moment(&history.machine);
            match jobs.workers[at].1.next(moment) {
                Next::Rest(pause) => {
                    rest = rest.min(pause);
                    break;
                }
                Next::Run(job, budget) => {
                    assert_eq!(job.worker(), worker, "each worker has its own jobs");
                    let user = superuser(&history.machine);
                    let outcome = step(history, jobs, (job, budget), user)?;
                    is_busy |= outcome.as_ref().is_ok_and(|progress| progress.left != Left::Nothing);
                    let moment = jobs.moment(&history.machine);
                    drop(jobs.workers[at].1.ended(job, moment, &outcome));
                }
            }
        }
    }
    assert!(rest <= Duration::from_secs(10), "the background comes again soon");
    Ok((is_busy, rest))
}

/// One step; an error that volumes or a full pool may give goes to the scheduler.
fn step(
    history: &mut History,
    jobs: &mut Jobs,
    (job, budget): (Job, Budget),
    caller: Caller<'static>,
) -> Result<Result<Progress, &'static str>, Stop> {
    let files = history.mounted().files.clone();
    let describe = |inodes: &BTreeSet<u64>| format!("{inodes:?}").into_bytes();
    let world =
        World { caller, describe: &describe, takes_push: &|| false, is_stopped: &|| false, held: Duration::ZERO };
    let media_before = history.mounted().store.tier.media.volumes().len();
    let moment = jobs.moment(&history.machine);
    let ran = match jobs.steps.run(&files, (job, budget), moment, &world) {
        Ok(Ran::OfMachine(MachineJob::Scrub)) => scrub(history, jobs, budget),
        Ok(Ran::OfMachine(MachineJob::LookAfterDevices | MachineJob::BackUp)) => {
            Ok(Ran::Done(Progress::NOTHING, Report::Nothing))
        }
        Ok(done @ Ran::Done(..)) => Ok(done),
        Err(stere_jobs::Error::Files(error)) => Err(error),
        Err(stere_jobs::Error::Store(error)) => Err(Error::from(error)),
    };
    let must_have_room = job.worker() == Worker::Background;
    if matches!(ran, Err(Error::NoSpace)) && history.plan.may_fill && !must_have_room {
        return Ok(Err("the pool is full"));
    }
    let what = format!("the job {job:?}");
    let ran = match job {
        // What is on volumes keeps none of these.
        Job::Files | Job::Commit | Job::Clean => Some(history.must(&what, ran)?),
        _ => history.must_but_for_volumes(&what, ran)?,
    };
    match ran {
        Some(Ran::Done(progress, report)) => note(history, report, media_before).map(|()| Ok(progress)),
        Some(Ran::OfMachine(job)) => unreachable!("{job:?} was done"),
        None => Ok(Err("volumes are the reason")),
    }
}

/// Verifies a piece of what is stored, as far as a scrub is wanted.
fn scrub(history: &mut History, jobs: &mut Jobs, budget: Budget) -> Result<Ran, Error> {
    let Some(cursor) = jobs.scrub.as_mut() else { return Ok(Ran::Done(Progress::NOTHING, Report::Nothing)) };
    let step = history.mounted().store.scrubber.scrub_step(cursor, budget.amount)?;
    if step.is_done {
        jobs.scrub = None;
    }
    Ok(Ran::Done(Progress::moved(step.report.bytes_checked, step.is_done), Report::Nothing))
}

fn note(history: &mut History, report: Report, media_before: usize) -> Result<(), Stop> {
    match report {
        Report::Nothing | Report::FeedsMedia | Report::HeatKept(_) => Ok(()),
        Report::Media(progress) => tertiary::note_progress(history, media_before, &progress),
        Report::Repacked(repacked) => {
            history.summary.tier.segments_repacked += repacked.segments_emptied;
            Ok(())
        }
    }
}
