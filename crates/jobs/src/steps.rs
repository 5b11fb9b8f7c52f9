//! What the steps of the jobs do: each calls what the layers below have.
//!
//! The daemon and the simulator run the same steps. What only a machine can do (devices that come back, where a scrub
//! is noted, destinations of backups) is named by `MachineJob`, which each driver matches in full, so a job that one
//! of them forgot does not compile. `Steps` keeps what one step has to know of earlier ones. Read next: `table.rs`,
//! `scheduler.rs`.

use std::time::Duration;

use stere_format::VolumeEntry;
use stere_naming::{Caller, FileSystem, Io};
use stere_store::{Describe, Repacked, TertiaryProgress};

use crate::idle::Moment;
use crate::scheduler::{Budget, Left, Progress, Settings};
use crate::table::{AWAY, Job, Worker};

/// How often all that is archived is looked at, not only what was written.
const LOOK_AT_ALL_EVERY: Duration = Duration::from_secs(3600);

/// So long nothing may have been archived before segments that are not full are ended.
const QUIET: Duration = Duration::from_secs(5);

/// So long nobody may have fetched anything before what was read again comes back to devices.
const CALM: Duration = Duration::from_millis(500);

/// Where there was nothing to release, all names are looked at for it: not again for so long, unless something is
/// archived.
const HOPELESS: Duration = Duration::from_secs(300);

/// Segments that wait for media before no more is moved for them than otherwise.
const WAITING_MAX: usize = 16;

/// Why a step did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Files(#[from] stere_naming::Error),
    #[error(transparent)]
    Store(#[from] stere_store::Error),
}

/// What steps ask of the world around the stack.
pub struct World<'a> {
    pub caller: Caller<'a>,
    /// Says in writing what is known of inodes, for objects on media.
    pub describe: &'a Describe<'a>,
    /// Whether everything shall get to its media now; asked once for each wish.
    pub takes_push: &'a dyn Fn() -> bool,
    /// Whether the mount ends.
    pub is_stopped: &'a dyn Fn() -> bool,
    /// How long copying out is held back for its rate.
    pub held: Duration,
}

/// A job of which a machine does the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineJob {
    LookAfterDevices,
    Scrub,
    BackUp,
}

/// What a step tells its driver besides its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    Nothing,
    /// Something is on its way to media.
    FeedsMedia,
    /// So many pages of how segments were used are kept.
    HeatKept(usize),
    Media(TertiaryProgress),
    Repacked(Repacked),
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    Done(Progress, Report),
    /// Not done here: the driver does it.
    OfMachine(MachineJob),
}

/// What steps know of earlier ones.
#[derive(Debug)]
pub struct Steps {
    settings: Settings,
    /// What had begun its way to media when that was looked at last.
    archived_bytes: u64,
    /// Requests that the mount had served when new files were last looked for.
    looked_at: u64,
    /// The media as they were when all that is archived was last looked at, and when that is done again.
    media: Vec<VolumeEntry>,
    next_look_at_all: Duration,
    /// Until then archiving is under way, and segments fill up by themselves.
    busy_until: Duration,
    /// Reads of objects until now, and from when on there were none for some time.
    fetches: u64,
    calm_from: Duration,
    began: Duration,
}

impl Steps {
    pub fn new(settings: Settings, begins: Moment) -> Steps {
        Steps {
            settings,
            archived_bytes: 0,
            looked_at: 0,
            media: Vec::new(),
            next_look_at_all: begins.now,
            busy_until: begins.now,
            fetches: 0,
            calm_from: begins.now,
            began: begins.now,
        }
    }

    /// Whether a worker has anything to do for this pool.
    pub fn is_wanted(files: &FileSystem, worker: Worker) -> bool {
        match worker {
            Worker::Media => files.store().tier.media.has_volumes(),
            Worker::Background | Worker::Repair | Worker::Events | Worker::Backups => true,
        }
    }

    /// One step of a job.
    pub fn run(
        &mut self,
        files: &FileSystem,
        (job, budget): (Job, Budget),
        moment: Moment,
        world: &World<'_>,
    ) -> Result<Ran, Error> {
        let (store, caller) = (files.store(), &world.caller);
        let count = usize::try_from(budget.amount).unwrap_or(usize::MAX);
        let progress = match job {
            Job::Files => Progress::more(files.step(caller, count)?),
            Job::Commit => store.commit(Io::BLOCKING).map(|()| Progress::NOTHING)?,
            Job::Reconcile => return self.reconcile(files, caller, budget.amount),
            Job::Clean => Progress::more(store.step(budget.is_idle)?),
            Job::LookAfterDevices => return Ok(Ran::OfMachine(MachineJob::LookAfterDevices)),
            Job::ReviewDamage => store.damage().review_damage(count).map(|_| Progress::NOTHING)?,
            Job::Rebuild => {
                let progress = store.rebuilder.mend_step(budget.amount)?;
                Progress::moved(progress.bytes_written, progress.is_done)
            }
            Job::Scrub => return Ok(Ran::OfMachine(MachineJob::Scrub)),
            Job::Discard if !self.settings.discards => Progress::NOTHING,
            Job::Discard => store.space().discard_freed(count).map(|_| Progress::NOTHING)?,
            Job::FollowEvents => {
                Progress::more(files.asynchronous_events().follow_step(caller, count, world.is_stopped)?)
            }
            Job::LookForNewFiles => self.look_for_new_files(files, caller, moment)?,
            Job::KeepRoom => match files.eviction().keep_room(caller)? {
                Some(0) => Progress::of(Left::NothingFor(HOPELESS)),
                _ => Progress::NOTHING,
            },
            Job::StageUnits => files.units().stage_units(caller).map(|_| Progress::NOTHING)?,
            Job::KeepHeat => {
                let pages = store.tier.heat.keep_heat()?;
                return Ok(Ran::Done(Progress::NOTHING, Report::HeatKept(pages)));
            }
            Job::CopyMetadata => store.tier.copier.begin_metadata_copy(true).map(|_| Progress::NOTHING)?,
            Job::Archive => return self.archive(files, moment, world),
            Job::Repack => return self.repack(files, world),
            Job::BackUp => return Ok(Ran::OfMachine(MachineJob::BackUp)),
        };
        Ok(Ran::Done(progress, Report::Nothing))
    }

    /// Moves what policy wants elsewhere. What is archived is moved as fast as media take it, so that a few segments
    /// always wait.
    fn reconcile(&mut self, files: &FileSystem, caller: &Caller<'_>, budget_bytes: u64) -> Result<Ran, Error> {
        let is_more = files.reconciler().reconcile_step(caller, budget_bytes)?;
        let tier = &files.store().tier;
        let archived_bytes = tier.recalls.tertiary_counts().bytes_archived;
        let is_feeding = archived_bytes != std::mem::replace(&mut self.archived_bytes, archived_bytes);
        let is_urgent = is_more && is_feeding && tier.uploader.waiting_uploads() < WAITING_MAX;
        let progress = if is_urgent { Progress::of(Left::Urgent) } else { Progress::more(is_more) };
        Ok(Ran::Done(progress, if is_feeding { Report::FeedsMedia } else { Report::Nothing }))
    }

    /// Files that were written since are archived too.
    fn look_for_new_files(
        &mut self,
        files: &FileSystem,
        caller: &Caller<'_>,
        moment: Moment,
    ) -> Result<Progress, Error> {
        if moment.served != self.looked_at || files.reconciler().is_anything_new() {
            self.looked_at = moment.served;
            let media = files.store().tier.media.volumes();
            let looks_at_all = media != self.media || moment.now >= self.next_look_at_all;
            if looks_at_all {
                (self.media, self.next_look_at_all) = (media, moment.now + LOOK_AT_ALL_EVERY);
            }
            files.reconciler().send_new_down(caller, looks_at_all)?;
        }
        // What is found is moved by the reconciler, which is part of the looking.
        Ok(Progress::of(Left::Begun))
    }

    fn archive(&mut self, files: &FileSystem, moment: Moment, world: &World<'_>) -> Result<Ran, Error> {
        self.defer_staging(files, moment);
        let tier = &files.store().tier;
        tier.recalls.note_time((moment.now - self.began).as_secs());
        let is_archiving = files.reconciler().is_reconciling(Io::BLOCKING).unwrap_or(false);
        if is_archiving {
            self.busy_until = moment.now + QUIET;
        }
        let ends = !is_archiving && (moment.now >= self.busy_until || (world.takes_push)());
        let done = tier.step(ends, world.describe)?;
        let tick = Worker::Media.tick();
        let left = match (done.is_busy, &done.waits_for) {
            (true, _) => Left::More,
            (false, Some(_)) => Left::Waits(AWAY),
            (false, None) if !world.held.is_zero() => Left::Waits(tick.min(world.held)),
            (false, None) => Left::Nothing,
        };
        let progress = Progress {
            hastens: (done.segments_uploaded > 0).then_some(Job::KeepRoom),
            concludes: (!is_archiving).then_some(Job::LookForNewFiles),
            ..Progress::of(left)
        };
        Ok(Ran::Done(progress, Report::Media(done)))
    }

    /// Readers of what is on media only come first.
    fn defer_staging(&mut self, files: &FileSystem, moment: Moment) {
        let recalls = &files.store().tier.recalls;
        let fetches = recalls.tertiary_counts().fetches;
        // A slow one takes longer than it has to be calm.
        if fetches != self.fetches || recalls.is_fetching() {
            (self.fetches, self.calm_from) = (fetches, moment.now + CALM);
        }
        recalls.defer_staging(moment.now < self.calm_from);
    }

    /// Empties a few objects of the emptiest medium, if enough on it is dead.
    fn repack(&mut self, files: &FileSystem, world: &World<'_>) -> Result<Ran, Error> {
        const NOTHING: Ran = Ran::Done(Progress::NOTHING, Report::Nothing);
        let Some(percent) = self.settings.repack_percent else { return Ok(NOTHING) };
        assert!(percent <= 100, "a part of a medium is repacked");
        let Some(medium) = files.store().tier.repacker.volume_to_repack(u64::from(percent)) else {
            return Ok(NOTHING);
        };
        let live_percent_max = u64::from(100 - percent);
        let done = files.units().repack_step(&world.caller, medium, live_percent_max, world.describe)?;
        let is_moving = done.segments_emptied > 0;
        let progress = Progress { bytes: done.bytes_emptied + done.bytes_made, ..Progress::more(is_moving) };
        Ok(Ran::Done(progress, Report::Repacked(done)))
    }
}
