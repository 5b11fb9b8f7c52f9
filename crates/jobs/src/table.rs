//! Every background job, and all that is said of it: one table.
//!
//! A new job is a variant of `Job` and a row: the table has a row for each variant in their order, which the compiler
//! checks, and a worker runs its jobs in that order. Read next: `scheduler.rs` (what the columns make a worker do),
//! `steps.rs`.

use std::time::Duration;

/// In so many steps a change gets old enough to be handed to the store.
pub const STEPS_PER_COMMIT: u64 = 5;

/// A background job. Jobs of one worker run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// Work of the layers above the store: old changes are handed to it, orphans freed, names counted and indexed.
    Files,
    /// What was handed to the store is made durable.
    Commit,
    /// Existing files are converted to a changed policy.
    Reconcile,
    /// Work of the store: segments are cleaned, checkpoints made, failing devices retired.
    Clean,
    /// Devices that answer again come back, and spares take over.
    LookAfterDevices,
    /// What could not be read is read again.
    ReviewDamage,
    /// Full redundancy is given back.
    Rebuild,
    /// Everything is read and verified.
    Scrub,
    /// Free slots are discarded.
    Discard,
    /// Plugins are told of what was done to files.
    FollowEvents,
    /// What was written below directories that are archived is looked for.
    LookForNewFiles,
    /// Archived data is released where devices are too full.
    KeepRoom,
    /// Units of which something was recalled come back as a whole.
    StageUnits,
    /// How archived segments were used is kept in the pool.
    KeepHeat,
    /// A copy of changed metadata to media is begun.
    CopyMetadata,
    /// Segments are copied out, staged and deleted on media.
    Archive,
    /// Objects that are mostly dead are emptied.
    Repack,
    /// Destinations of backups are brought up to date.
    BackUp,
}

/// Who drives jobs: a thread of the daemon each, one after the other in the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worker {
    Background,
    Repair,
    Events,
    Media,
    Backups,
}

/// How long after a step began that left nothing to do the next one is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Every {
    /// In every round of its worker.
    Round,
    Time(Duration),
    /// As often as the mount commits.
    Commit,
    /// So many times in that.
    PartOfCommit(u32),
}

/// What follows a step that left more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// So long after the step began nothing more is done.
    pub since_begin: Duration,
    /// After its end it rests so many times as long as it took, divided by this.
    pub times: u32,
    pub parts: u32,
    pub longest: Duration,
    /// It rests until its bytes are paid for at the worker's rate.
    pub keeps_rate: bool,
    /// The whole worker rests, not only this job.
    pub holds_worker: bool,
}

impl Rest {
    pub const NONE: Rest = Rest {
        since_begin: Duration::ZERO,
        times: 0,
        parts: 1,
        longest: Duration::MAX,
        keeps_rate: false,
        holds_worker: false,
    };

    const fn share(times: u32, parts: u32) -> Rest {
        assert!(parts > 0, "a share is a part of the step's time");
        Rest { times, parts, ..Rest::NONE }
    }
}

/// How an error of a step is told: by the worker's name once, or by what could not be done each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Once(&'static str),
    EachTime(&'static str),
}

/// All that is said of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub job: Job,
    pub worker: Worker,
    pub every: Every,
    /// Whether the first step comes at once, and not after the interval.
    pub starts_at_once: bool,
    /// What one step may do while the mount is in use, and while it is idle: bytes, files, pieces, as the step counts.
    pub budget: u64,
    pub budget_idle: u64,
    /// The rest after a step that left more to do, while the mount is in use, and while it is idle.
    pub rest: Rest,
    pub rest_idle: Rest,
    /// It runs only in rounds in which no job before it has anything left to do, or waits for something.
    pub yields: bool,
    pub said: Said,
    /// After an error the worker rests so long, and jobs that yield do not run.
    pub pause_after_error: Option<Duration>,
}

impl Row {
    /// A job that runs in each round of a worker, without rests.
    const fn of(job: Job, worker: Worker, said: Said) -> Row {
        Row {
            job,
            worker,
            every: Every::Round,
            starts_at_once: true,
            budget: 0,
            budget_idle: 0,
            rest: Rest::NONE,
            rest_idle: Rest::NONE,
            yields: false,
            said,
            pause_after_error: None,
        }
    }

    /// What one step may do, whoever uses the mount.
    const fn budget(self, budget: u64) -> Row {
        Row { budget, budget_idle: budget, ..self }
    }

    const fn every(self, every: Every, starts_at_once: bool) -> Row {
        Row { every, starts_at_once, ..self }
    }

    const fn rests(self, rest: Rest, rest_idle: Rest) -> Row {
        Row { rest, rest_idle, ..self }
    }

    const fn yields(self) -> Row {
        Row { yields: true, ..self }
    }

    const fn pauses_after_errors(self, pause: Duration) -> Row {
        Row { pause_after_error: Some(pause), ..self }
    }
}

const fn seconds(seconds: u64) -> Every {
    Every::Time(Duration::from_secs(seconds))
}

const BACKGROUND_TICK: Duration = Duration::from_millis(200);
const EVENTS_TICK: Duration = Duration::from_millis(200);
const MIB: u64 = 1 << 20;

const BACKGROUND: Said = Said::Once("background work");
const REPAIR: Said = Said::Once("repair");

/// While others work, a pause of a quarter of the step's time: a reader's median stays, and a fifth of what devices
/// can is left.
const RECONCILE_REST: Rest = Rest { longest: BACKGROUND_TICK, ..Rest::share(1, 4) };

/// Twice as long as the step took. Once would leave readers less than half of what they have otherwise: of two copies
/// one is being rebuilt, so they have fewer devices to read from, and repair reads from the same.
const REPAIR_REST: Rest = Rest { keeps_rate: true, holds_worker: true, ..Rest::share(2, 1) };

/// Idle or in use, plugins take at most half of a processor.
const EVENTS_REST: Rest = Rest { longest: EVENTS_TICK, ..Rest::share(1, 1) };

/// Looking takes a small part of the time, however many names there are.
const LOOK_REST: Rest = Rest::share(20, 1);
const REPACK_REST: Rest = Rest { keeps_rate: true, ..Rest::share(20, 1) };
const REPACK_REST_IDLE: Rest = Rest { keeps_rate: true, ..Rest::share(1, 1) };

/// How long media that cannot be used are left alone.
pub(crate) const AWAY: Duration = Duration::from_secs(3);

const TABLE: [Row; Job::COUNT] = [
    Row::of(Job::Files, Worker::Background, BACKGROUND)
        .every(Every::PartOfCommit(STEPS_PER_COMMIT as u32), false)
        .budget(1024)
        .rests(
            Rest { since_begin: BACKGROUND_TICK, ..Rest::NONE },
            Rest { since_begin: BACKGROUND_TICK, ..Rest::NONE },
        ),
    Row::of(Job::Commit, Worker::Background, BACKGROUND).every(Every::Commit, false),
    Row::of(Job::Reconcile, Worker::Background, BACKGROUND)
        .every(Every::Time(BACKGROUND_TICK), true)
        .budget(32 * MIB)
        .rests(RECONCILE_REST, Rest::NONE),
    Row::of(Job::Clean, Worker::Background, BACKGROUND),
    Row::of(Job::LookAfterDevices, Worker::Repair, REPAIR).every(seconds(2), true),
    // At once: what a device did not give may be read again since the last mount, and status tells of it.
    Row::of(Job::ReviewDamage, Worker::Repair, REPAIR).every(seconds(30), true).budget(256),
    Row::of(Job::Rebuild, Worker::Repair, REPAIR).budget(8 * MIB).rests(REPAIR_REST, Rest::NONE),
    // Nothing is read ahead between steps, so they are large where nobody waits.
    Row { budget_idle: 64 * MIB, ..Row::of(Job::Scrub, Worker::Repair, REPAIR).budget(8 * MIB) }
        .rests(REPAIR_REST, Rest::NONE)
        .yields(),
    Row::of(Job::Discard, Worker::Repair, REPAIR).budget(256).yields(),
    Row::of(
        Job::FollowEvents,
        Worker::Events,
        Said::EachTime("plugins cannot be told of what was done to files; that is tried again"),
    )
    .budget(16)
    .rests(EVENTS_REST, EVENTS_REST)
    .pauses_after_errors(Duration::from_secs(5)),
    Row::of(Job::LookForNewFiles, Worker::Media, Said::EachTime("new files that go down could not be looked for"))
        .every(seconds(60), false)
        .rests(LOOK_REST, LOOK_REST),
    Row::of(Job::KeepRoom, Worker::Media, Said::EachTime("archived files could not be released"))
        .every(seconds(1), true),
    // Before what was read alone is brought back: all of it comes in the order in which it lies.
    Row::of(
        Job::StageUnits,
        Worker::Media,
        Said::EachTime("a directory of which something was recalled does not come back as one"),
    ),
    Row::of(Job::KeepHeat, Worker::Media, Said::EachTime("how archived segments were used could not be kept"))
        .every(seconds(300), false),
    Row::of(Job::CopyMetadata, Worker::Media, Said::EachTime("the metadata could not be copied to volumes"))
        .every(seconds(60), false),
    Row::of(Job::Archive, Worker::Media, Said::Once("tertiary work")).pauses_after_errors(AWAY),
    Row::of(Job::Repack, Worker::Media, Said::EachTime("objects could not be repacked"))
        .every(seconds(10), false)
        .rests(REPACK_REST, REPACK_REST_IDLE)
        .yields(),
    Row::of(Job::BackUp, Worker::Backups, Said::EachTime("destinations of backups cannot be read")),
];

/// Each row stands where its job's number is.
const _: () = {
    let mut at = 0;
    while at < TABLE.len() {
        assert!(TABLE[at].job as usize == at, "the table has a row for each job, in their order");
        assert!(TABLE[at].budget_idle >= TABLE[at].budget, "an idle mount does no less in a step than one in use");
        assert!(!matches!(TABLE[at].every, Every::PartOfCommit(0)), "an interval is a part of the time to a commit");
        let is_behind_another = at > 0 && TABLE[at - 1].worker as usize == TABLE[at].worker as usize;
        assert!(!TABLE[at].yields || is_behind_another, "a job yields to jobs of its own worker before it");
        assert!(TABLE[at].rest.parts > 0 && TABLE[at].rest_idle.parts > 0, "a rest is a part of a step's time");
        at += 1;
    }
};

impl Job {
    const COUNT: usize = Job::BackUp as usize + 1;

    pub(crate) fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    pub fn worker(self) -> Worker {
        self.row().worker
    }

    /// How an error of this job is told.
    pub fn said(self) -> Said {
        self.row().said
    }

    /// The budget of a step while the mount is in use.
    pub fn budget(self) -> u64 {
        self.row().budget
    }
}

impl Worker {
    pub const ALL: [Worker; 5] = [Worker::Background, Worker::Repair, Worker::Events, Worker::Media, Worker::Backups];

    /// So long a worker rests at most where there is nothing to do.
    pub fn tick(self) -> Duration {
        match self {
            Worker::Background => BACKGROUND_TICK,
            Worker::Repair => Duration::from_secs(2),
            Worker::Events => EVENTS_TICK,
            Worker::Media | Worker::Backups => Duration::from_millis(500),
        }
    }

    /// Its rows, in the order in which they run.
    pub(crate) fn rows(self) -> impl Iterator<Item = &'static Row> {
        TABLE.iter().filter(move |row| row.worker == self)
    }
}
