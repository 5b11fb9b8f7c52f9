//! Repair in the background: what lacks copies is rebuilt, devices that came back are caught up, devices that leave are
//! emptied, hot spares take over, and now and then everything is verified.
//!
//! Requests go first: while there are any, repair rests at least twice as long as it works, and stays below its rate. Nobody
//! waits for it otherwise, so an idle mount repairs as fast as the devices can.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stere_format::{DeviceEntry, DeviceIndex, DeviceState};

use crate::daemon::{Daemon, UnmountOnPanic};
use crate::options::Options;
use stere_machine::error::{Error, Result};
use stere_online::elsewhere::Elsewhere;
use stere_online::rebuild::STEP_BYTES;

/// How often somebody looks whether there is something to repair.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// So many times as long as a step took, while there are requests. Once would leave readers less than half of what they have
/// otherwise: of two copies one is being rebuilt, so they have fewer devices to read from, and repair reads from the same.
const RESTS_PER_STEP: u32 = 2;

/// How often what could not be read is read again, and how many blobs of it.
const REVIEW_EVERY: Duration = Duration::from_secs(30);
const REVIEWED_AT_ONCE: usize = 256;

/// Free slots of each device that are discarded between two looks.
const DISCARDED_AT_ONCE: usize = 256;
const IDLE_AFTER: Duration = Duration::from_secs(1);
const SCRUB_STEP_IDLE_BYTES: u64 = 64 << 20;

/// A device that does not answer is looked for so often at first, and ever less often while it fails.
const RETURN_AFTER: std::ops::Range<Duration> = Duration::from_secs(2)..Duration::from_secs(300);

struct Repairer<F> {
    daemon: Arc<Daemon>,
    served: F,
    last_served: u64,
    last_request: Instant,
    /// When devices that are away are tried next, and how long after that again.
    tries: HashMap<DeviceIndex, (Instant, Duration)>,
    elsewhere: Elsewhere,
    next_look: Instant,
    next_review: Instant,
    rate_bytes: u64,
    spare_after: Option<Duration>,
    device_timeout: Option<Duration>,
    discards: bool,
    /// Devices that were silent when that was looked at last.
    silent: Vec<DeviceIndex>,
    scrub_every: Option<Duration>,
    /// Since when devices have been away.
    away_since: HashMap<DeviceIndex, Instant>,
    entries: Vec<DeviceEntry>,
    complaint: String,
}

/// Starts the thread. It ends when the daemon stops; if it panics, the mount is taken down.
pub fn start(
    daemon: Arc<Daemon>,
    served: impl Fn() -> u64 + Send + 'static,
    options: &Options,
) -> Result<JoinHandle<()>> {
    let (rate_bytes, spare_after, scrub_every) = (options.repair_rate_bytes, options.spare, options.scrub);
    let (device_timeout, discards) = (options.device_timeout, options.discard);
    daemon.running.store.devices.set_deadlines(device_timeout);
    let run = move || {
        if daemon.running.read_only {
            return;
        }
        let guard = UnmountOnPanic(daemon.clone());
        let now = Instant::now();
        let entries = daemon.running.store.device_entries();
        let mut repairer = Repairer {
            daemon,
            served,
            last_served: 0,
            last_request: now,
            tries: HashMap::new(),
            elsewhere: Elsewhere::default(),
            next_look: now,
            next_review: now + REVIEW_EVERY,
            rate_bytes,
            spare_after,
            device_timeout,
            discards,
            silent: Vec::new(),
            scrub_every,
            away_since: HashMap::new(),
            entries,
            complaint: String::new(),
        };
        repairer.run();
        drop(guard);
    };
    std::thread::Builder::new().name("repair".into()).spawn(run).map_err(Error::System)
}

impl<F: Fn() -> u64> Repairer<F> {
    fn is_stopped(&self) -> bool {
        self.daemon.stop.load(Ordering::Acquire)
    }

    fn run(&mut self) {
        while !self.is_stopped() {
            if Instant::now() >= self.next_look {
                self.next_look = Instant::now() + LOOK_EVERY;
                self.look_after_devices();
            }
            self.review_damage();
            let worked = self.work(|running| running.mend_step(STEP_BYTES)) || self.scrub();
            if !worked {
                if self.discards {
                    let discarded = self.daemon.running.store.space().discard_freed(DISCARDED_AT_ONCE);
                    self.told(discarded.map_err(Error::from));
                }
                self.daemon.running.mending.sleep(LOOK_EVERY);
            }
        }
    }

    /// One step of something; tells whether there was anything to do.
    fn work(&mut self, step: impl FnOnce(&stere_online::running::Running) -> Result<u64>) -> bool {
        let start = Instant::now();
        let outcome = step(&self.daemon.running);
        let bytes = self.told(outcome).unwrap_or(0);
        if bytes == 0 {
            return false;
        }
        // Bookkeeping moves nothing; whatever it waits for gets a moment.
        if bytes == 1 {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.rest(bytes, start.elapsed());
        true
    }

    /// Lets requests go first.
    fn rest(&mut self, bytes: u64, worked: Duration) {
        let served = (self.served)();
        if served != self.last_served {
            (self.last_served, self.last_request) = (served, Instant::now());
        }
        if self.last_request.elapsed() >= IDLE_AFTER {
            return;
        }
        let at_rate = Duration::from_secs_f64(bytes as f64 / self.rate_bytes as f64);
        let rest = (worked * RESTS_PER_STEP).max(at_rate.saturating_sub(worked));
        let end = Instant::now() + rest;
        while Instant::now() < end && !self.is_stopped() {
            std::thread::sleep(end.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
        }
    }

    fn scrub(&mut self) -> bool {
        let due = self.daemon.running.begin_scheduled_scrub(self.scrub_every);
        self.told(due);
        // Nothing is read ahead between steps, so they are large where nobody waits.
        let is_idle = self.last_request.elapsed() >= IDLE_AFTER;
        let step_bytes = if is_idle { SCRUB_STEP_IDLE_BYTES } else { STEP_BYTES };
        self.daemon.running.scrubbing.is_wanted() && self.work(|running| running.scrub_step(step_bytes))
    }

    /// What could not be read may be gone, or be readable again.
    fn review_damage(&mut self) {
        if Instant::now() < self.next_review {
            return;
        }
        let running = self.daemon.running.clone();
        let reviewed = running.store.damage().review_damage(REVIEWED_AT_ONCE).map_err(Error::from);
        self.told(reviewed);
        self.next_review = Instant::now() + REVIEW_EVERY;
    }

    fn look_after_devices(&mut self) {
        let running = self.daemon.running.clone();
        let entries = running.store.device_entries();
        if entries != self.entries {
            // Somebody left the table, or changed.
            running.remember();
            self.entries.clone_from(&entries);
        }
        running.store.devices.set_deadlines(self.device_timeout);
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
        self.told(taken_over);
    }

    /// Devices that were lost while the pool is open are used again when they answer again.
    fn bring_back(&mut self, entries: &[DeviceEntry]) {
        let running = self.daemon.running.clone();
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
        if let Some(said) = self.told(outcome) {
            tracing::info!("{said}");
            crate::answer::reconcile::try_again(&self.daemon.filesystem, &self.daemon.running);
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
        self.daemon.running.spare_takes_over(due)
    }

    /// The value, or a complaint: once, not in every round.
    fn told<T>(&mut self, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                let text = error.to_string();
                if self.complaint != text {
                    tracing::error!("repair: {text}");
                    self.complaint = text;
                }
                None
            }
        }
    }
}
