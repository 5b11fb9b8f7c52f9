//! The scheduler in virtual time: intervals, the idle test, rests, rates, errors.

use std::time::Duration;

use super::*;
use crate::complaints::Complaint;

const SETTINGS: Settings = Settings {
    commit: Duration::from_secs(5),
    repair_rate_bytes: 1 << 20,
    tier_rate_bytes: Some(1 << 20),
    repack_percent: Some(50),
    discards: true,
    budget_divisor: 1,
};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A worker in virtual time.
struct Rig {
    scheduler: Scheduler,
    moment: Moment,
    /// What was complained of.
    told: Vec<Complaint>,
}

impl Rig {
    fn new(worker: Worker) -> Rig {
        let moment = Moment { now: Duration::from_secs(1000), served: 7 };
        Rig { scheduler: Scheduler::new(worker, SETTINGS, moment), moment, told: Vec::new() }
    }

    fn pass(&mut self, time: Duration) {
        self.moment.now += time;
    }

    /// Somebody uses the mount.
    fn serve(&mut self) {
        self.moment.served += 1;
    }

    /// A round in which each step takes this time and ends as `outcome` says. Gives what ran and the rest that follows.
    fn round(
        &mut self,
        took: Duration,
        outcome: impl Fn(Job) -> Result<Progress, &'static str>,
    ) -> (Vec<(Job, Budget)>, Duration) {
        let mut ran = Vec::new();
        loop {
            match self.scheduler.next(self.moment) {
                Next::Rest(rest) => return (ran, rest),
                Next::Run(job, budget) => {
                    ran.push((job, budget));
                    self.pass(took);
                    let complaint = self.scheduler.ended(job, self.moment, &outcome(job));
                    self.told.extend(complaint);
                }
            }
        }
    }

    /// A round in which nothing is left to do and nothing takes time.
    fn quiet_round(&mut self) -> (Vec<Job>, Duration) {
        let (ran, rest) = self.round(Duration::ZERO, |_| Ok(Progress::NOTHING));
        (ran.into_iter().map(|(job, _)| job).collect(), rest)
    }
}

/// Left as `left` says by one job, nothing by the others.
fn only(chosen: Job, progress: Progress) -> impl Fn(Job) -> Result<Progress, &'static str> {
    move |job| Ok(if job == chosen { progress } else { Progress::NOTHING })
}

#[test]
fn each_job_runs_in_its_interval() {
    let mut rig = Rig::new(Worker::Background);
    let (ran, rest) = rig.quiet_round();
    assert_eq!(ran, [Job::Reconcile, Job::Clean], "commits come after their interval");
    assert_eq!(rest, ms(200));
    rig.pass(ms(999));
    assert_eq!(rig.quiet_round().0, [Job::Reconcile, Job::Clean]);
    rig.pass(ms(1));
    assert_eq!(rig.quiet_round().0, [Job::Files, Job::Clean], "five steps a commit");
    rig.pass(ms(4000));
    assert_eq!(rig.quiet_round().0, [Job::Files, Job::Commit, Job::Reconcile, Job::Clean]);
    rig.pass(ms(999));
    assert_eq!(rig.quiet_round().0, [Job::Reconcile, Job::Clean]);
}

#[test]
fn files_with_more_to_do_come_again_after_a_tick() {
    let mut rig = Rig::new(Worker::Background);
    rig.pass(ms(1000));
    let (ran, rest) = rig.round(Duration::ZERO, only(Job::Files, Progress::more(true)));
    assert_eq!(ran[0].0, Job::Files);
    assert_eq!(rest, ms(200));
    rig.pass(ms(200));
    assert_eq!(rig.quiet_round().0[0], Job::Files);
    rig.pass(ms(200));
    assert_ne!(rig.quiet_round().0[0], Job::Files, "with nothing more it waits for its interval");
}

#[test]
fn an_idle_mount_is_told_by_a_second_without_requests() {
    let mut rig = Rig::new(Worker::Background);
    let is_idle = |(ran, _): (Vec<(Job, Budget)>, Duration)| ran.last().map(|(_, budget)| budget.is_idle);
    let quiet = |_| Ok(Progress::NOTHING);
    rig.pass(ms(999));
    assert_eq!(is_idle(rig.round(Duration::ZERO, quiet)), Some(false), "it may have been used just before");
    rig.pass(ms(1));
    assert_eq!(is_idle(rig.round(Duration::ZERO, quiet)), Some(true));
    rig.serve();
    assert_eq!(is_idle(rig.round(Duration::ZERO, quiet)), Some(false));
    rig.pass(ms(1000));
    assert_eq!(is_idle(rig.round(Duration::ZERO, quiet)), Some(true));
}

#[test]
fn moving_rests_a_quarter_of_its_time_while_the_mount_is_in_use() {
    let mut rig = Rig::new(Worker::Background);
    // Only moving takes time.
    let round = |rig: &mut Rig, took: Duration, progress: Progress| {
        let budget = loop {
            match rig.scheduler.next(rig.moment) {
                Next::Run(Job::Reconcile, budget) => break budget,
                Next::Run(job, _) => drop(rig.scheduler.ended(job, rig.moment, &Ok::<_, String>(Progress::NOTHING))),
                Next::Rest(rest) => panic!("moving is due, and not in {rest:?}"),
            }
        };
        rig.pass(took);
        assert_eq!(rig.scheduler.ended(Job::Reconcile, rig.moment, &Ok::<_, String>(progress)), None);
        let (jobs, rest) = rig.quiet_round();
        assert_eq!(jobs, [Job::Clean]);
        (budget.is_idle, rest)
    };
    assert_eq!(round(&mut rig, ms(400), Progress::more(true)), (false, ms(100)));
    rig.pass(ms(99));
    assert_eq!(rig.quiet_round(), (vec![Job::Clean], ms(1)), "woken, it rests on");
    rig.pass(ms(1));
    rig.serve();
    assert_eq!(round(&mut rig, ms(900), Progress::more(true)), (false, ms(200)), "a tick at most");
    rig.pass(ms(200));
    rig.serve();
    assert_eq!(round(&mut rig, ms(9), Progress::of(Left::Urgent)), (false, Duration::ZERO));
    rig.pass(ms(1000));
    assert_eq!(round(&mut rig, ms(9), Progress::more(true)).1, Duration::ZERO, "nobody waits for devices");
}

#[test]
fn repair_rests_twice_its_time_or_keeps_to_its_rate() {
    let mut rig = Rig::new(Worker::Repair);
    rig.serve();
    let (ran, rest) = rig.round(ms(100), only(Job::Rebuild, Progress::moved(1000, false)));
    assert_eq!(ran.last().map(|(job, _)| *job), Some(Job::Rebuild), "the rest ends the round");
    assert_eq!(rest, ms(200));
    rig.pass(ms(150));
    rig.serve();
    assert_eq!(rig.quiet_round(), (Vec::new(), ms(50)), "nothing of this worker runs meanwhile, though it is woken");
    rig.pass(ms(50));
    rig.serve();
    let (_, rest) = rig.round(ms(100), only(Job::Rebuild, Progress::moved(1 << 20, false)));
    assert_eq!(rest, ms(900), "1 MiB takes a second at 1 MiB/s");
    rig.pass(ms(900));
    // Nobody waits.
    rig.pass(ms(1000));
    let (ran, rest) = rig.round(ms(100), only(Job::Rebuild, Progress::moved(1 << 20, false)));
    assert!(ran.iter().all(|(_, budget)| budget.is_idle));
    assert_eq!(rest, Duration::ZERO);
    let (_, rest) = rig.round(ms(100), only(Job::Rebuild, Progress::moved(0, false)));
    assert_eq!(rest, ms(2), "what bookkeeping waits for gets a moment");
}

#[test]
fn what_yields_runs_when_there_is_nothing_else() {
    let mut rig = Rig::new(Worker::Repair);
    rig.pass(ms(2000));
    let (ran, _) = rig.round(ms(1), only(Job::Rebuild, Progress::moved(9, false)));
    let jobs: Vec<Job> = ran.into_iter().map(|(job, _)| job).collect();
    assert_eq!(jobs, [Job::LookAfterDevices, Job::ReviewDamage, Job::Rebuild], "neither scrub nor discard");
    let (ran, rest) = rig.round(ms(1), only(Job::Scrub, Progress::moved(9, false)));
    assert_eq!(ran[1], (Job::Scrub, Budget { amount: 64 << 20, is_idle: true }));
    assert_eq!(rest, Duration::ZERO);
    assert!(!ran.iter().any(|(job, _)| *job == Job::Discard));
    let (jobs, rest) = rig.quiet_round();
    assert_eq!(jobs, [Job::Rebuild, Job::Scrub, Job::Discard]);
    assert_eq!(rest, ms(2000));
}

#[test]
fn an_error_is_told_once_and_another_one_again() {
    let mut rig = Rig::new(Worker::Background);
    for _ in 0..3 {
        rig.round(Duration::ZERO, |_| Err("no room"));
        rig.pass(ms(200));
    }
    assert_eq!(rig.told, [Complaint::Error("background work: no room".into())]);
    rig.round(Duration::ZERO, |_| Err("no device"));
    rig.pass(ms(200));
    assert_eq!(rig.told.len(), 2, "{:?}", rig.told);
    assert_eq!(rig.told[1], Complaint::Error("background work: no device".into()));
}

#[test]
fn events_rest_longer_after_an_error_and_tell_of_each() {
    let mut rig = Rig::new(Worker::Events);
    for _ in 0..2 {
        let (ran, rest) = rig.round(ms(1), |_| Err("unreadable"));
        assert_eq!(ran[0], (Job::FollowEvents, Budget { amount: 16, is_idle: false }));
        assert_eq!(rest, Duration::from_secs(5));
    }
    assert_eq!(rig.told.len(), 2);
    assert!(matches!(&rig.told[0], Complaint::Warning { why, .. } if why == "unreadable"));
    let (_, rest) = rig.round(ms(30), |_| Ok(Progress::more(true)));
    assert_eq!(rest, ms(30), "half of the time");
    rig.pass(rest);
    let (_, rest) = rig.round(ms(900), |_| Ok(Progress::more(true)));
    assert_eq!(rest, ms(200));
    rig.pass(rest);
    assert_eq!(rig.quiet_round(), (vec![Job::FollowEvents], ms(200)));
}

#[test]
fn media_that_are_away_are_left_alone_but_for_a_wake() {
    let mut rig = Rig::new(Worker::Media);
    rig.pass(ms(10_000));
    let away = only(Job::Archive, Progress::of(Left::Waits(ms(3000))));
    let (ran, rest) = rig.round(ms(1), &away);
    let jobs: Vec<Job> = ran.into_iter().map(|(job, _)| job).collect();
    assert_eq!(jobs, [Job::KeepRoom, Job::StageUnits, Job::Archive], "nothing is repacked meanwhile");
    assert_eq!(rest, ms(3000));
    // Woken after a moment.
    rig.pass(ms(5));
    let (ran, rest) = rig.round(ms(1), &away);
    assert!(ran.iter().any(|(job, _)| *job == Job::Archive));
    assert_eq!(rest, ms(3000));
    let (_, rest) = rig.round(ms(1), |job| if job == Job::Archive { Err("broken") } else { Ok(Progress::NOTHING) });
    assert_eq!(rest, ms(3000));
    assert_eq!(rig.told, [Complaint::Error("tertiary work: broken".into())]);
}

#[test]
fn repacking_takes_a_small_part_of_the_time() {
    let mut rig = Rig::new(Worker::Media);
    rig.pass(ms(10_000));
    let moved = only(Job::Repack, Progress { bytes: 1 << 20, ..Progress::more(true) });
    let (ran, _) = rig.round(ms(100), &moved);
    assert_eq!(ran.last().map(|(job, budget)| (*job, budget.is_idle)), Some((Job::Repack, true)));
    let idle_from = rig.moment.now;
    while !rig.quiet_round().0.contains(&Job::Repack) {
        rig.pass(ms(100));
    }
    assert_eq!(rig.moment.now - idle_from, ms(900), "a mebibyte takes a second");
    rig.pass(ms(10_000));
    rig.serve();
    let (ran, _) = rig.round(ms(100), &moved);
    assert!(ran.iter().any(|(job, budget)| *job == Job::Repack && !budget.is_idle));
    let busy_from = rig.moment.now;
    while !rig.quiet_round().0.contains(&Job::Repack) {
        rig.pass(ms(100));
    }
    assert_eq!(rig.moment.now - busy_from, ms(2000), "twenty times the step");
}

#[test]
fn looking_for_new_files_takes_a_twentieth_of_the_time_that_it_and_what_it_began_take() {
    let mut rig = Rig::new(Worker::Media);
    let begun = only(Job::LookForNewFiles, Progress::of(Left::Begun));
    rig.pass(ms(60_000));
    assert_eq!(rig.round(Duration::ZERO, &begun).0[0].0, Job::LookForNewFiles);
    rig.pass(ms(10_000));
    let over = Progress { concludes: Some(Job::LookForNewFiles), ..Progress::NOTHING };
    rig.round(Duration::ZERO, only(Job::Archive, over));
    rig.pass(ms(199_999));
    assert!(!rig.round(Duration::ZERO, &begun).0.iter().any(|(job, _)| *job == Job::LookForNewFiles));
    rig.pass(ms(1));
    assert!(rig.round(Duration::ZERO, &begun).0.iter().any(|(job, _)| *job == Job::LookForNewFiles));
    // Nothing is over: it comes again in its interval.
    rig.pass(ms(60_000));
    assert!(rig.round(Duration::ZERO, &begun).0.iter().any(|(job, _)| *job == Job::LookForNewFiles));
}

#[test]
fn a_hopeless_job_waits_unless_it_is_hastened() {
    let mut rig = Rig::new(Worker::Media);
    let hopeless = only(Job::KeepRoom, Progress::of(Left::NothingFor(ms(300_000))));
    assert_eq!(rig.round(Duration::ZERO, &hopeless).0[0].0, Job::KeepRoom);
    rig.pass(ms(59_000));
    assert!(!rig.quiet_round().0.contains(&Job::KeepRoom));
    rig.round(Duration::ZERO, only(Job::Archive, Progress { hastens: Some(Job::KeepRoom), ..Progress::more(true) }));
    rig.pass(ms(999));
    assert!(!rig.quiet_round().0.contains(&Job::KeepRoom));
    rig.pass(ms(1));
    assert!(rig.quiet_round().0.contains(&Job::KeepRoom));
}

#[test]
fn budgets_are_divided_for_small_pools() {
    let moment = Moment::default();
    let mut scheduler = Scheduler::new(Worker::Background, Settings { budget_divisor: 256, ..SETTINGS }, moment);
    let Next::Run(job, budget) = scheduler.next(moment) else { panic!("there is something to do") };
    assert_eq!((job, budget.amount), (Job::Reconcile, 128 << 10));
    assert_eq!(scheduler.ended(job, moment, &Ok::<_, String>(Progress::NOTHING)), None);
}

#[test]
#[should_panic(expected = "ends that did not begin")]
fn a_step_ends_once() {
    let mut rig = Rig::new(Worker::Events);
    rig.quiet_round();
    rig.scheduler.ended(Job::FollowEvents, rig.moment, &Ok::<_, String>(Progress::NOTHING));
}
