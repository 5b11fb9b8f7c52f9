//! What one worker does next: the jobs of the table that are due, in rounds, each with its budget, and how long to
//! rest then.
//!
//! A worker asks `next` and gets a job or a rest. It runs the job's step and says by `ended` what came of it; by that
//! and the table the scheduler plans the next step, and says what to complain of. In a round each job that is due
//! runs once. Whoever asks again before a rest is over begins the next round, so a worker may be woken at any time;
//! only a rest of the whole worker (`Rest::holds_worker`) lasts. Invariant: a step that began ends before the next
//! one begins. Read next: `table.rs`, `steps.rs`.

use std::fmt::Display;
use std::time::Duration;

use crate::complaints::{Complaint, Complaints};
use crate::idle::{Idle, Moment};
use crate::table::{Every, Job, Rest, Row, Worker};

/// After a step that moved nothing and has more to do, what it waits for gets a moment.
const BOOKKEEPING_PAUSE: Duration = Duration::from_millis(2);

/// What the options of a mount say of background work.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often the mount commits.
    pub commit: Duration,
    /// What repair takes at most while the mount is in use, and what repacking takes at most, in bytes a second.
    pub repair_rate_bytes: u64,
    pub tier_rate_bytes: Option<u64>,
    /// How much of a medium must be dead before it is repacked; none for never.
    pub repack_percent: Option<u8>,
    pub discards: bool,
    /// Budgets are smaller by this: the pools of the simulator are.
    pub budget_divisor: u64,
}

/// What a step may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// As the job counts: bytes, files, pieces.
    pub amount: u64,
    /// Whether nobody uses the mount.
    pub is_idle: bool,
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Run(Job, Budget),
    Rest(Duration),
}

/// What a step left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// Nothing, and for so long there will be nothing.
    NothingFor(Duration),
    /// Nothing here: what the step began goes on elsewhere until another step concludes it.
    Begun,
    More,
    /// More, though nothing was moved.
    Bookkeeping,
    /// More, and others wait for it: there is no rest.
    Urgent,
    /// Something that cannot be done for so long.
    Waits(Duration),
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub left: Left,
    /// Bytes it moved or read.
    pub bytes: u64,
    /// A job that is due an interval from now at the latest, for there may be something to do for it.
    pub hastens: Option<Job>,
    /// A job whose last step began what is over now.
    pub concludes: Option<Job>,
}

impl Progress {
    pub const NOTHING: Progress = Progress::of(Left::Nothing);

    pub const fn of(left: Left) -> Progress {
        Progress { left, bytes: 0, hastens: None, concludes: None }
    }

    /// More to do, or nothing.
    pub const fn more(is_more: bool) -> Progress {
        Progress::of(if is_more { Left::More } else { Left::Nothing })
    }

    /// Bytes were moved, or nothing was left to be moved.
    pub const fn moved(bytes: u64, is_done: bool) -> Progress {
        let left = match (is_done, bytes) {
            (true, _) => Left::Nothing,
            (false, 0) => Left::Bookkeeping,
            (false, _) => Left::More,
        };
        Progress { bytes, ..Progress::of(left) }
    }
}

/// What a job left to do when it ran last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Nothing,
    More,
    Waits(Duration),
}

#[derive(Debug)]
struct State {
    row: &'static Row,
    due: Duration,
    began: Duration,
    pending: Pending,
    /// Since when what it began goes on.
    begun: Option<Duration>,
}

/// The scheduler of one worker.
#[derive(Debug)]
pub struct Scheduler {
    worker: Worker,
    settings: Settings,
    states: Vec<State>,
    idle: Idle,
    complaints: Complaints,
    /// How far this round is.
    at: usize,
    running: Option<usize>,
    held_until: Duration,
}

impl Scheduler {
    pub fn new(worker: Worker, settings: Settings, begins: Moment) -> Scheduler {
        assert!(settings.budget_divisor > 0, "budgets are divided by it");
        let due = |row: &Row| if row.starts_at_once { begins.now } else { begins.now + interval(row, &settings) };
        let state =
            |row: &'static Row| State { row, due: due(row), began: begins.now, pending: Pending::Nothing, begun: None };
        Scheduler {
            worker,
            settings,
            states: worker.rows().map(state).collect(),
            idle: Idle::new(begins),
            complaints: Complaints::default(),
            at: 0,
            running: None,
            held_until: begins.now,
        }
    }

    /// What the worker does now.
    pub fn next(&mut self, moment: Moment) -> Next {
        assert!(self.running.is_none(), "a step that began ends before the next one");
        let is_idle = self.idle.look(moment);
        if moment.now < self.held_until {
            return Next::Rest(self.held_until - moment.now);
        }
        while self.at < self.states.len() {
            let at = self.at;
            self.at += 1;
            if moment.now >= self.states[at].due && !self.must_yield(at) {
                self.states[at].began = moment.now;
                self.running = Some(at);
                let row = self.states[at].row;
                let whole = if is_idle { row.budget_idle } else { row.budget };
                let amount = whole.div_ceil(self.settings.budget_divisor);
                return Next::Run(row.job, Budget { amount, is_idle });
            }
        }
        self.at = 0;
        Next::Rest(self.pause(moment.now))
    }

    /// A step that `next` named ended so. Gives what there is to complain of.
    pub fn ended<E: Display>(&mut self, job: Job, moment: Moment, outcome: &Result<Progress, E>) -> Option<Complaint> {
        let Some(at) = self.running.take() else { panic!("a step of {job:?} ends that did not begin") };
        assert_eq!(self.states[at].row.job, job, "the step that ends is the one that began");
        assert!(moment.now >= self.states[at].began, "a step of {job:?} ends after it began");
        let is_idle = self.idle.look(moment);
        match outcome {
            Ok(progress) => {
                self.plan(at, moment.now, is_idle, progress);
                None
            }
            Err(error) => {
                let row = self.states[at].row;
                let left = row.pause_after_error.map_or(Left::Nothing, Left::Waits);
                self.plan(at, moment.now, is_idle, &Progress::of(left));
                self.complaints.about(row.said, error)
            }
        }
    }

    /// The complaint about an error within a step that goes on.
    pub fn complain(&mut self, job: Job, error: &impl Display) -> Option<Complaint> {
        assert_eq!(job.worker(), self.worker, "each worker complains of its own jobs");
        self.complaints.about(job.said(), error)
    }

    /// Whether nobody uses the mount, as it was when the worker looked last.
    pub fn is_idle(&mut self, moment: Moment) -> bool {
        self.idle.look(moment)
    }

    /// Plans the next step of a job.
    fn plan(&mut self, at: usize, now: Duration, is_idle: bool, progress: &Progress) {
        let row = self.states[at].row;
        let (began, every) = (self.states[at].began, interval(row, &self.settings));
        let rest = if is_idle { &row.rest_idle } else { &row.rest };
        let (pending, due) = match progress.left {
            Left::Nothing | Left::Begun => (Pending::Nothing, began + every),
            Left::NothingFor(time) => (Pending::Nothing, began + time.max(every)),
            Left::Waits(pause) => (Pending::Waits(pause), began + every),
            Left::Urgent => (Pending::More, now),
            Left::More => (Pending::More, self.end_of_rest(rest, began, now, progress.bytes)),
            Left::Bookkeeping => {
                let now = now + BOOKKEEPING_PAUSE;
                self.held_until = now;
                (Pending::More, self.end_of_rest(rest, began, now, progress.bytes))
            }
        };
        if rest.holds_worker && pending == Pending::More {
            self.held_until = self.held_until.max(due);
        }
        if now < self.held_until {
            // The rest ends the round.
            self.at = 0;
        }
        let state = &mut self.states[at];
        (state.pending, state.due) = (pending, due);
        state.begun = (progress.left == Left::Begun).then_some(began);
        self.hasten(progress.hastens, now);
        self.conclude(progress.concludes, now);
    }

    /// When a job goes on that left more to do.
    fn end_of_rest(&self, rest: &Rest, began: Duration, now: Duration, bytes: u64) -> Duration {
        assert!(now >= began, "a step ends after it began");
        let took = now - began;
        let share = (took * rest.times / rest.parts).min(rest.longest);
        let rate_bytes = match self.worker {
            Worker::Repair => Some(self.settings.repair_rate_bytes),
            Worker::Media => self.settings.tier_rate_bytes,
            Worker::Background | Worker::Events | Worker::Backups => None,
        };
        let price = |rate_bytes: u64| Duration::from_secs_f64(bytes as f64 / rate_bytes.max(1) as f64);
        let at_rate = rate_bytes.filter(|_| rest.keeps_rate).map_or(Duration::ZERO, price).saturating_sub(took);
        (now + share.max(at_rate)).max(began + rest.since_begin)
    }

    fn hasten(&mut self, job: Option<Job>, now: Duration) {
        assert!(job.is_none_or(|job| job.worker() == self.worker), "{job:?} is hastened by another worker");
        let settings = &self.settings;
        for state in self.states.iter_mut().filter(|state| Some(state.row.job) == job) {
            state.due = state.due.min(now + interval(state.row, settings));
        }
    }

    /// What a step of a job began is over: it took until now.
    fn conclude(&mut self, job: Option<Job>, now: Duration) {
        assert!(job.is_none_or(|job| job.worker() == self.worker), "{job:?} is concluded by another worker");
        let settings = &self.settings;
        for state in self.states.iter_mut().filter(|state| Some(state.row.job) == job) {
            if let Some(began) = state.begun.take() {
                assert_eq!(state.pending, Pending::Nothing, "what goes on elsewhere leaves nothing here");
                let rest = (now - began) * state.row.rest.times / state.row.rest.parts;
                state.due = now + rest.max(interval(state.row, settings));
            }
        }
    }

    /// Whether a job has to let others go first.
    fn must_yield(&self, at: usize) -> bool {
        self.states[at].row.yields && self.states[..at].iter().any(|state| state.pending != Pending::Nothing)
    }

    /// How long the worker may rest when a round is over.
    fn pause(&self, now: Duration) -> Duration {
        let mut next = None;
        let mut waits = None;
        for (_, state) in self.states.iter().enumerate().filter(|(at, _)| !self.must_yield(*at)) {
            assert_eq!(state.row.worker, self.worker, "a worker has its own jobs");
            match state.pending {
                Pending::Nothing => {}
                Pending::More => next = next.into_iter().chain([state.due.saturating_sub(now)]).min(),
                Pending::Waits(pause) => waits = waits.max(Some(pause)),
            }
        }
        let tick = self.worker.tick();
        next.map(|pause| pause.min(tick)).or(waits).unwrap_or(tick)
    }
}

/// From the start of a step that left nothing to do to the next one.
fn interval(row: &Row, settings: &Settings) -> Duration {
    match row.every {
        Every::Round => Duration::ZERO,
        Every::Time(time) => time,
        Every::Commit => settings.commit,
        Every::PartOfCommit(parts) => settings.commit / parts,
    }
}

#[cfg(test)]
mod tests;
