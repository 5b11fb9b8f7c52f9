//! The thread of the worker `Background`: old changes are made durable, space is cleaned, orphans are freed, files
//! are converted to a changed policy. Read next: `worker.rs`.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use stere_jobs::{Budget, Job, Progress, Report};

use crate::daemon::Daemon;
use crate::options::Options;
use crate::worker::{self, Served, Worker};
use stere_machine::error::Result;

/// Starts the thread.
pub fn start(daemon: Arc<Daemon>, served: Served, options: &Options) -> Result<JoinHandle<()>> {
    let settings = worker::settings(options);
    worker::start("background", daemon, move |daemon| {
        let mut worker = Worker::new(daemon, stere_jobs::Worker::Background, settings, served);
        while let Some(job) = worker.next(std::thread::park_timeout) {
            let outcome = step(&mut worker, job);
            worker.ended(job.0, &outcome);
        }
    })
}

fn step(worker: &mut Worker, job: (Job, Budget)) -> Result<Progress> {
    let (progress, report) = worker.run_on_stack(job, Duration::ZERO)?;
    if report == Report::FeedsMedia {
        worker.daemon.running.tertiary.wake();
    }
    Ok(progress)
}
