//! The thread that tells plugins afterwards what was done to files. Nobody waits for it; it takes at most half of a
//! processor. Read next: `worker.rs`.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::daemon::Daemon;
use crate::options::Options;
use crate::worker::{self, Served, Worker};
use stere_machine::error::Result;

/// Starts the thread.
pub fn start(daemon: Arc<Daemon>, served: Served, options: &Options) -> Result<JoinHandle<()>> {
    let settings = worker::settings(options);
    worker::start("follow", daemon, move |daemon| {
        let mut worker = Worker::new(daemon, stere_jobs::Worker::Events, settings, served);
        while let Some(job) = worker.next(std::thread::park_timeout) {
            let outcome = worker.run_on_stack(job, Duration::ZERO).map(|(progress, _)| progress);
            worker.ended(job.0, &outcome);
        }
    })
}
