//! The thread of the worker `Media`: copies sealed segments out, brings back what is wanted, deletes what nobody
//! needs. What its jobs do and when stands in the crate `jobs`; here are the threads, the rate of copying out, and
//! what the end of a mount does.
//!
//! It has helpers for copying out, who sleep while there is nothing of that: one stores an object while another reads
//! one back. Only they wait for volumes, besides those who read what is released. Read next: `worker.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stere_jobs::{Budget, Job, Progress, Report};
use stere_store::Repacked;

use crate::answer::describe::describe;
use crate::daemon::{Daemon, UnmountOnPanic};
use crate::options::Options;
use crate::worker::{self, Served, Worker};
use stere_machine::error::Result;

/// Threads that help with copying out.
const HELPERS: usize = 3;

/// Threads that fetch whole segments for readers.
const FETCHERS: usize = 4;

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
        Ok(true) => tracing::warn!("media are slow; they have the metadata as it was some time ago"),
        Err(error) => tracing::warn!(%error, "the metadata could not be copied to media"),
    }
}

/// Starts the thread.
pub fn start(daemon: Arc<Daemon>, served: Served, options: &Options) -> Result<JoinHandle<()>> {
    let (settings, tier_rate_bytes) = (worker::settings(options), options.tier_rate_bytes);
    worker::start("tertiary", daemon, move |daemon| {
        let worker = Worker::new(daemon.clone(), stere_jobs::Worker::Media, settings, served);
        std::thread::scope(|scope| {
            let _end = EndHelpers(&daemon);
            let thread = |name: &str| std::thread::Builder::new().name(name.into());
            let helpers =
                (0..HELPERS).map(|_| thread("copy-out").spawn_scoped(scope, || help(&daemon, tier_rate_bytes)));
            let fetchers = (0..FETCHERS).map(|_| thread("fetch").spawn_scoped(scope, || fetch(&daemon)));
            if let Some(error) = helpers.chain(fetchers).find_map(|started| started.err()) {
                tracing::warn!(%error, "fewer threads work for media than should");
            }
            Carrier { worker, tier_rate_bytes }.run();
        });
    })
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

struct Carrier {
    worker: Worker,
    tier_rate_bytes: Option<u64>,
}

impl Carrier {
    fn run(&mut self) {
        let daemon = self.worker.daemon.clone();
        while let Some(job) = self.worker.next(|rest| daemon.running.tertiary.sleep(rest)) {
            let outcome = self.step(job);
            self.worker.ended(job.0, &outcome);
        }
    }

    fn step(&mut self, job: (Job, Budget)) -> Result<Progress> {
        let held = if job.0 == Job::Archive { self.begin_archiving() } else { Duration::ZERO };
        let (progress, report) = self.worker.run_on_stack(job, held)?;
        let tertiary = &self.worker.daemon.running.tertiary;
        match report {
            Report::Nothing | Report::FeedsMedia => {}
            Report::HeatKept(pages) => tracing::debug!(pages, "how segments were used is kept"),
            Report::Media(done) => {
                if done.segments_uploaded > 0 {
                    tertiary.wake_helpers();
                }
                tertiary.note_waiting(done.waits_for);
            }
            Report::Repacked(done) if done.segments_emptied == 0 => {
                tracing::debug!(?done, "nothing could be repacked");
            }
            Report::Repacked(done) => {
                let Repacked { segments_emptied, bytes_emptied, segments_made, bytes_made, .. } = done;
                tracing::info!(segments_emptied, bytes_emptied, segments_made, bytes_made, "objects were repacked");
            }
        }
        Ok(progress)
    }

    /// Tells the kernel what was released, and those who help whether the mount is in use. How long copying out is
    /// held back.
    fn begin_archiving(&mut self) -> Duration {
        let is_in_use = !self.worker.is_idle();
        let daemon = &self.worker.daemon;
        // Writers who found no room release segments too.
        let released = daemon.filesystem.eviction().take_released_inodes();
        daemon.running.tertiary.forget_attributes(&released);
        daemon.running.tertiary.note_in_use(is_in_use);
        keep_to_rate(daemon, self.tier_rate_bytes)
    }
}
