//! The thread of the worker `Repair`: what lacks copies is rebuilt, devices that came back are caught up, devices
//! that leave are emptied, hot spares take over, and now and then everything is verified.
//!
//! Requests go first: while there are any, repair rests at least twice as long as it works, and stays below its rate.
//! Nobody waits for it otherwise, so an idle mount repairs as fast as the devices can. The crate `jobs` says so; what
//! only a machine can do is here. Read next: `worker.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stere_format::{DeviceEntry, DeviceIndex, DeviceState};
use stere_jobs::{Budget, Job, MachineJob, Progress, Ran};

use crate::daemon::Daemon;
use crate::options::Options;
use crate::worker::{self, Served, Worker};
use stere_machine::error::Result;
use stere_online::elsewhere::Elsewhere;

/// A device that does not answer is looked for so often at first, and ever less often while it fails.
const RETURN_AFTER: std::ops::Range<Duration> = Duration::from_secs(2)..Duration::from_secs(300);

struct Repairer {
    worker: Worker,
    /// When devices that are away are tried next, and how long after that again.
    tries: HashMap<DeviceIndex, (Instant, Duration)>,
    elsewhere: Elsewhere,
    spare_after: Option<Duration>,
    device_timeout: Option<Duration>,
    /// Devices that were silent when that was looked at last.
    silent: Vec<DeviceIndex>,
    scrub_every: Option<Duration>,
    /// Since when devices have been away.
    away_since: HashMap<DeviceIndex, Instant>,
    entries: Vec<DeviceEntry>,
}

/// Starts the thread.
pub fn start(daemon: Arc<Daemon>, served: Served, options: &Options) -> Result<JoinHandle<()>> {
    let (spare_after, scrub_every, device_timeout) = (options.spare, options.scrub, options.device_timeout);
    let settings = worker::settings(options);
    worker::start("repair", daemon, move |daemon| {
        let entries = daemon.running.store.device_entries();
        let mut repairer = Repairer {
            worker: Worker::new(daemon, stere_jobs::Worker::Repair, settings, served),
            tries: HashMap::new(),
            elsewhere: Elsewhere::default(),
            spare_after,
            device_timeout,
            silent: Vec::new(),
            scrub_every,
            away_since: HashMap::new(),
            entries,
        };
        repairer.run();
    })
}

impl Repairer {
    fn run(&mut self) {
        let daemon = self.worker.daemon.clone();
        while let Some(job) = self.worker.next(|rest| daemon.running.mending.sleep(rest)) {
            let outcome = self.step(job);
            self.worker.ended(job.0, &outcome);
        }
    }

    fn step(&mut self, (job, budget): (Job, Budget)) -> Result<Progress> {
        let start = Instant::now();
        match self.worker.run((job, budget), Duration::ZERO)? {
            Ran::Done(progress, _) => {
                if job == Job::Rebuild {
                    self.worker.daemon.running.mending.note(progress.bytes, start.elapsed());
                }
                Ok(progress)
            }
            Ran::OfMachine(MachineJob::LookAfterDevices) => {
                self.look_after_devices();
                Ok(Progress::NOTHING)
            }
            Ran::OfMachine(MachineJob::Scrub) => self.scrub(budget),
            Ran::OfMachine(MachineJob::BackUp) => unreachable!("the thread of backups makes them"),
        }
    }

    fn scrub(&mut self, budget: Budget) -> Result<Progress> {
        let running = self.worker.daemon.running.clone();
        let due = running.begin_scheduled_scrub(self.scrub_every);
        self.worker.told(Job::Scrub, due);
        if !running.scrubbing.is_wanted() {
            return Ok(Progress::NOTHING);
        }
        Ok(Progress::moved(running.scrub_step(budget.amount)?, false))
    }

    fn look_after_devices(&mut self) {
        let running = self.worker.daemon.running.clone();
        let entries = running.store.device_entries();
        if entries != self.entries {
            // Somebody left the table, or changed.
            running.remember();
            self.entries.clone_from(&entries);
        }
        running.store.devices.set_deadlines(self.device_timeout);
        running.note_slow();
        stere_online::shrink::finish(&running);
        let silent: Vec<DeviceIndex> =
            entries.iter().map(|entry| entry.index).filter(|index| running.is_silent(*index)).collect();
        if self.silent.iter().any(|index| !silent.contains(index)) {
            // What it missed is made up for.
            tracing::info!("a device that was silent answers again");
            running.mending.wake();
        }
        self.silent = silent;
        self.bring_back(&entries);
        let taken_over = self.let_spares_take_over(&entries);
        self.worker.told(Job::LookAfterDevices, taken_over);
    }

    /// Devices that were lost while the pool is open are used again when they answer again.
    fn bring_back(&mut self, entries: &[DeviceEntry]) {
        let running = self.worker.daemon.running.clone();
        let is_away = |entry: &&DeviceEntry| {
            running.attached(entry.index).is_none()
                && running.left_out(entry.index).is_none()
                // Asking it would wait for it; it is taken back in place when it answers.
                && !running.is_silent(entry.index)
                && !matches!(
                    DeviceState::from_code(entry.state),
                    Some(DeviceState::Offline | DeviceState::Failed) | None
                )
        };
        let away: Vec<&DeviceEntry> = entries.iter().filter(is_away).collect();
        let silent = self.silent.clone();
        let is_gone = |index: &DeviceIndex| silent.contains(index) || away.iter().any(|entry| entry.index == *index);
        self.away_since.retain(|index, _| is_gone(index));
        for entry in entries.iter().filter(|entry| is_gone(&entry.index)) {
            self.away_since.entry(entry.index).or_insert_with(Instant::now);
        }
        let now = Instant::now();
        // Where it was it is looked for below.
        if let Some((entry, path)) = self.elsewhere.find(&running, &away) {
            let outcome = running.return_of(entry, &path);
            self.returned(outcome);
        }
        for entry in away {
            let (due, delay) = self.tries.get(&entry.index).copied().unwrap_or((now, RETURN_AFTER.start));
            let Some(path) = running.path_of(entry).filter(|_| now >= due) else { continue };
            let is_there = running.is_there(entry, &path);
            let delay = if is_there { (delay * 2).min(RETURN_AFTER.end) } else { RETURN_AFTER.start };
            self.tries.insert(entry.index, (now + delay, delay));
            if is_there {
                let outcome = running.return_of(entry, &path);
                self.returned(outcome);
            }
        }
    }

    fn returned(&mut self, outcome: Result<String>) {
        if let Some(said) = self.worker.told(Job::LookAfterDevices, outcome) {
            tracing::info!("{said}");
            crate::answer::reconcile::try_again(&self.worker.daemon.filesystem, &self.worker.daemon.running);
        }
    }

    /// A hot spare takes the place of a device that was away for too long.
    fn let_spares_take_over(&mut self, entries: &[DeviceEntry]) -> Result<()> {
        let Some(patience) = self.spare_after else { return Ok(()) };
        let is_due = |entry: &&DeviceEntry| match DeviceState::from_code(entry.state) {
            Some(DeviceState::Active) => {
                self.away_since.get(&entry.index).is_some_and(|since| since.elapsed() >= patience)
            }
            _ => false,
        };
        let Some(due) = entries.iter().find(is_due) else { return Ok(()) };
        self.worker.daemon.running.spare_takes_over(due)
    }
}
