//! The thread that tells plugins afterwards what was done to files. Nobody waits for it; it takes at most half of a processor.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stere_naming::Io;

use crate::daemon::{Daemon, UnmountOnPanic};
use stere_machine::clock;
use stere_machine::error::{Error, Result};

const TICK: Duration = Duration::from_millis(200);

/// How long it rests when the list itself cannot be read or written.
const FAILED: Duration = Duration::from_secs(5);

/// Files in one step.
const FILES: usize = 16;

/// Starts the thread.
pub fn start(daemon: Arc<Daemon>, read_only: bool) -> Result<JoinHandle<()>> {
    let run = move || {
        if read_only {
            return;
        }
        let guard = UnmountOnPanic(daemon.clone());
        while !daemon.stop.load(Ordering::Acquire) {
            std::thread::park_timeout(step(&daemon));
        }
        drop(guard);
    };
    std::thread::Builder::new().name("follow".into()).spawn(run).map_err(Error::System)
}

/// Does a piece of the work; tells how long to rest then.
fn step(daemon: &Daemon) -> Duration {
    let began = Instant::now();
    let is_stopped = || daemon.stop.load(Ordering::Acquire);
    match daemon.filesystem.asynchronous_events().follow_step(&clock::own_caller(Io::BLOCKING), FILES, &is_stopped) {
        Ok(true) => began.elapsed().min(TICK),
        Ok(false) => TICK,
        Err(error) => {
            tracing::warn!(%error, "plugins cannot be told of what was done to files; that is tried again");
            FAILED
        }
    }
}
