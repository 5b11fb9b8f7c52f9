//! The thread that works for tertiary volumes: copies sealed segments out, brings back what is wanted, deletes what nobody needs.
//!
//! It has helpers for copying out, who sleep while there is nothing of that: one stores an object while another reads one back. Only
//! they wait for volumes, besides those who read what is released.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stere_format::VolumeEntry;
use stere_naming::Io;
use stere_store::Repacked;

use crate::answer::describe::describe;
use crate::daemon::{Daemon, UnmountOnPanic};
use crate::options::Options;
use stere_machine::clock;
use stere_machine::error::{Error, Result};

const TICK: Duration = Duration::from_millis(500);

/// How long a volume that is away is left alone.
const AWAY: Duration = Duration::from_secs(3);

/// How often what was written below directories that go down is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How often all of what goes down is looked at, not only what was written.
const LOOK_AT_ALL_EVERY: Duration = Duration::from_secs(3600);

/// Looking takes one part of so many of the time.
const LOOK_PART: u32 = 20;

/// So long nothing may have been archived before segments that are not full are ended.
const QUIET: Duration = Duration::from_secs(5);

/// How often it is looked whether devices are too full.
const ROOM_EVERY: Duration = Duration::from_secs(1);

/// The same where there was nothing to release, and nothing was copied out since: all names are looked at for it.
const HOPELESS: Duration = Duration::from_secs(300);

/// A mount that served nothing for so long is not in use.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// How often it is looked whether a volume is worth repacking.
const REPACK_EVERY: Duration = Duration::from_secs(10);

/// Threads that help with copying out.
const HELPERS: usize = 3;

/// Threads that fetch whole segments for readers.
const FETCHERS: usize = 4;

/// So long nobody may have fetched anything before what was read again comes back to devices.
const CALM: Duration = Duration::from_millis(500);

/// How often it is kept in the pool how archived segments were used.
const HEAT_EVERY: Duration = Duration::from_secs(300);

/// How often changed metadata is copied to volumes.
const METADATA_EVERY: Duration = Duration::from_secs(60);

/// So long the end of a mount may take for the last copy.
const METADATA_LAST: Duration = Duration::from_secs(10);

/// Keeps in the pool how archived segments were used. Nothing depends on it.
pub fn keep_heat(daemon: &Daemon) {
    match daemon.running.store.tier.heat.keep_heat() {
        Ok(pages) => tracing::debug!(pages, "how segments were used is kept"),
        Err(error) => tracing::warn!(%error, "how archived segments were used could not be kept"),
    }
}

/// Copies the metadata to volumes a last time, as far as they take it in time.
pub fn copy_metadata_at_end(daemon: &Daemon) {
    let (store, until) = (&daemon.running.store, Instant::now() + METADATA_LAST);
    let mut outcome = store.tier.copier.begin_metadata_copy(false);
    while matches!(outcome, Ok(true)) && Instant::now() < until {
        outcome = store.tier.copier.copy_metadata_step();
    }
    match outcome {
        Ok(false) => {}
        Ok(true) => tracing::warn!("volumes are slow; they have the metadata as it was some time ago"),
        Err(error) => tracing::warn!(%error, "the metadata could not be copied to volumes"),
    }
}

/// Starts the thread.
pub fn start(
    daemon: Arc<Daemon>,
    served: impl Fn() -> u64 + Send + 'static,
    options: &Options,
) -> Result<JoinHandle<()>> {
    let (tier_rate_bytes, repack_percent) = (options.tier_rate_bytes, options.repack_percent);
    let run = move || {
        if daemon.running.read_only {
            return;
        }
        let guard = UnmountOnPanic(daemon.clone());
        let now = Instant::now();
        let complaint = String::new();
        let mut worker = Worker {
            daemon: daemon.clone(),
            served,
            last_served: 0,
            looked_at: 0,
            volumes: Vec::new(),
            next_look_at_all: now,
            last_request: now,
            began: now,
            tier_rate_bytes,
            repack_percent,
            next_repack: now + REPACK_EVERY,
            next_look: now + LOOK_EVERY,
            look_began: None,
            next_room: now,
            next_heat: now + HEAT_EVERY,
            next_metadata: now + METADATA_EVERY,
            busy_until: now,
            fetches: 0,
            calm_from: now,
            complaint,
        };
        std::thread::scope(|scope| {
            let _end = EndHelpers(&daemon);
            let thread = |name: &str| std::thread::Builder::new().name(name.into());
            let helpers =
                (0..HELPERS).map(|_| thread("copy-out").spawn_scoped(scope, || help(&daemon, tier_rate_bytes)));
            let fetchers = (0..FETCHERS).map(|_| thread("fetch").spawn_scoped(scope, || fetch(&daemon)));
            if let Some(error) = helpers.chain(fetchers).find_map(|started| started.err()) {
                tracing::warn!(%error, "fewer threads work for tertiary volumes than should");
            }
            worker.run();
        });
        drop(guard);
    };
    std::thread::Builder::new().name("tertiary".into()).spawn(run).map_err(Error::System)
}

/// However the main thread of this work ends, its helpers do.
struct EndHelpers<'a>(&'a Daemon);

impl Drop for EndHelpers<'_> {
    fn drop(&mut self) {
        self.0.running.tertiary.end_helpers();
        self.0.running.store.tier.recalls.end_fetching();
    }
}

/// Fetches for readers until the mount ends.
fn fetch(daemon: &Arc<Daemon>) {
    let guard = UnmountOnPanic(daemon.clone());
    daemon.running.store.tier.recalls.fetch_for_readers();
    drop(guard);
}

/// Copies out, whenever there is something, until the mount ends.
fn help(daemon: &Arc<Daemon>, rate_bytes: Option<u64>) {
    let guard = UnmountOnPanic(daemon.clone());
    let mut seen = 0;
    while let Some(uploads) = daemon.running.tertiary.wait_for_uploads(seen) {
        seen = uploads;
        let describe = |inodes: &BTreeSet<u64>| describe(&daemon.filesystem, inodes);
        // What goes wrong is told by whoever meets it in the main thread of this work.
        let step = || daemon.running.store.tier.upload_step(&describe).is_ok_and(|progress| progress.is_busy);
        let mut is_busy = true;
        while is_busy && !daemon.stop.load(Ordering::Acquire) {
            is_busy = step();
            keep_to_rate(daemon, rate_bytes);
        }
    }
    drop(guard);
}

/// Holds copying out back as long as the rate asks for it; how long that is.
fn keep_to_rate(daemon: &Daemon, rate_bytes: Option<u64>) -> Duration {
    let Some(rate_bytes) = rate_bytes else { return Duration::ZERO };
    let store = &daemon.running.store;
    let held = daemon.running.tertiary.pay(store.tier.recalls.tertiary_counts().bytes_uploaded, rate_bytes);
    store.tier.uploader.hold_uploads(!held.is_zero());
    held
}

struct Worker<F> {
    daemon: Arc<Daemon>,
    served: F,
    /// Requests that the mount had served when somebody last looked for use, and when there was one.
    last_served: u64,
    last_request: Instant,
    began: Instant,
    /// Requests that it had served when new files were last looked for.
    looked_at: u64,
    /// The volumes as they were when all that goes down was last looked at, and when that is done again.
    volumes: Vec<VolumeEntry>,
    next_look_at_all: Instant,
    tier_rate_bytes: Option<u64>,
    repack_percent: Option<u8>,
    next_repack: Instant,
    next_look: Instant,
    look_began: Option<Instant>,
    next_room: Instant,
    next_heat: Instant,
    next_metadata: Instant,
    /// Until then archiving is under way, and segments fill up by themselves.
    busy_until: Instant,
    /// Reads of objects until now, and from when on there were none for some time.
    fetches: u64,
    calm_from: Instant,
    complaint: String,
}

impl<F: Fn() -> u64> Worker<F> {
    fn run(&mut self) {
        while !self.daemon.stop.load(Ordering::Acquire) {
            let pause = match self.daemon.running.store.tier.media.has_volumes() {
                true => self.tick(),
                false => TICK,
            };
            if !pause.is_zero() {
                self.daemon.running.tertiary.sleep(pause);
            }
        }
    }

    /// One step; how long to rest then.
    fn tick(&mut self) -> Duration {
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            self.look_began = Some(now);
            self.look_for_new_files();
        }
        if now >= self.next_room {
            self.next_room = now + ROOM_EVERY;
            match self.daemon.filesystem.eviction().keep_room(&clock::own_caller(Io::BLOCKING)) {
                Ok(Some(0)) => self.next_room = now + HOPELESS,
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "archived files could not be released"),
            }
        }
        // Before what was read alone is brought back: all of it comes in the order in which it lies.
        if let Err(error) = self.daemon.filesystem.units().stage_units(&clock::own_caller(Io::BLOCKING)) {
            tracing::warn!(%error, "a directory of which something was recalled does not come back as one");
        }
        if now >= self.next_heat {
            self.next_heat = now + HEAT_EVERY;
            keep_heat(&self.daemon);
        }
        // Writers who found no room release segments too.
        let released = self.daemon.filesystem.eviction().take_released_inodes();
        self.daemon.running.tertiary.forget_attributes(&released);
        if now >= self.next_metadata {
            self.next_metadata = now + METADATA_EVERY;
            if let Err(error) = self.daemon.running.store.tier.copier.begin_metadata_copy(true) {
                tracing::warn!(%error, "the metadata could not be copied to volumes");
            }
        }
        self.defer_staging(now);
        self.daemon.running.store.tier.recalls.note_time(self.began.elapsed().as_secs());
        let is_in_use = self.is_in_use(now);
        self.daemon.running.tertiary.note_in_use(is_in_use);
        let held = keep_to_rate(&self.daemon, self.tier_rate_bytes);
        let filesystem = &self.daemon.filesystem;
        let is_archiving = filesystem.reconciler().is_reconciling(Io::BLOCKING).unwrap_or(false);
        match (is_archiving, self.look_began) {
            (true, _) => self.busy_until = now + QUIET,
            (false, Some(began)) => {
                // Looking takes a small part of the time, however many names there are.
                self.next_look = now + LOOK_EVERY.max(began.elapsed() * LOOK_PART);
                self.look_began = None;
            }
            (false, None) => {}
        }
        let ends = !is_archiving && (now >= self.busy_until || self.daemon.running.tertiary.take_push());
        match self.daemon.running.store.tier.step(ends, &|inodes| describe(filesystem, inodes)) {
            Ok(progress) => {
                let is_waiting = progress.waits_for.is_some();
                if progress.segments_uploaded > 0 {
                    self.next_room = self.next_room.min(now + ROOM_EVERY);
                    self.daemon.running.tertiary.wake_helpers();
                }
                self.daemon.running.tertiary.note_waiting(progress.waits_for);
                match (progress.is_busy, is_waiting) {
                    (true, _) => Duration::ZERO,
                    (false, true) => AWAY,
                    (false, false) if !held.is_zero() => TICK.min(held),
                    (false, false) => {
                        self.repack_now_and_then(now, is_in_use);
                        TICK
                    }
                }
            }
            Err(error) => {
                let text = error.to_string();
                if self.complaint != text {
                    tracing::error!("tertiary work: {text}");
                    self.complaint = text;
                }
                AWAY
            }
        }
    }

    fn is_in_use(&mut self, now: Instant) -> bool {
        let served = (self.served)();
        if served != self.last_served {
            (self.last_served, self.last_request) = (served, now);
        }
        now.duration_since(self.last_request) < IDLE_AFTER
    }

    /// Empties a few objects of the emptiest volume, if enough on it is dead; keeps to the rate, and to a small part of the time while the
    /// mount is in use.
    fn repack_now_and_then(&mut self, now: Instant, is_in_use: bool) {
        let Some(percent) = self.repack_percent.filter(|_| now >= self.next_repack) else { return };
        self.next_repack = now + REPACK_EVERY;
        let store = &self.daemon.running.store;
        let Some(volume) = store.tier.repacker.volume_to_repack(u64::from(percent)) else { return };
        let live_percent_max = u64::from(100 - percent);
        let filesystem = &self.daemon.filesystem;
        let describe = |inodes: &BTreeSet<u64>| describe(filesystem, inodes);
        match filesystem.units().repack_step(&clock::own_caller(Io::BLOCKING), volume, live_percent_max, &describe) {
            Ok(done) if done.segments_emptied == 0 => tracing::debug!(?done, "nothing could be repacked"),
            Ok(done) => {
                let Repacked { segments_emptied, bytes_emptied, segments_made, bytes_made, .. } = done;
                tracing::info!(segments_emptied, bytes_emptied, segments_made, bytes_made, "objects were repacked");
                let rate_bytes = self.tier_rate_bytes.unwrap_or(u64::MAX);
                let at_rate = Duration::from_secs_f64((bytes_emptied + bytes_made) as f64 / rate_bytes as f64);
                let rest = if is_in_use { now.elapsed() * LOOK_PART } else { now.elapsed() };
                self.next_repack = Instant::now() + rest.max(at_rate);
            }
            Err(error) => tracing::warn!(%error, "objects could not be repacked"),
        }
    }

    /// Readers of what is on volumes only come first.
    fn defer_staging(&mut self, now: Instant) {
        let store = &self.daemon.running.store;
        let fetches = store.tier.recalls.tertiary_counts().fetches;
        // A slow one takes longer than it has to be calm.
        if fetches != self.fetches || store.tier.recalls.is_fetching() {
            (self.fetches, self.calm_from) = (fetches, now + CALM);
        }
        store.tier.recalls.defer_staging(now < self.calm_from);
    }

    /// Files that were written since go down too.
    fn look_for_new_files(&mut self) {
        let served = (self.served)();
        if served == self.looked_at && !self.daemon.filesystem.reconciler().is_anything_new() {
            return;
        }
        self.looked_at = served;
        let volumes = self.daemon.running.store.tier.media.volumes();
        let looks_at_all = volumes != self.volumes || Instant::now() >= self.next_look_at_all;
        if looks_at_all {
            (self.volumes, self.next_look_at_all) = (volumes, Instant::now() + LOOK_AT_ALL_EVERY);
        }
        if let Err(error) =
            self.daemon.filesystem.reconciler().send_new_down(&clock::own_caller(Io::BLOCKING), looks_at_all)
        {
            tracing::warn!(%error, "new files that go down could not be looked for");
        }
    }
}
