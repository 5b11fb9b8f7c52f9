//! A mount for reading that found no owner reads the devices itself. It gives way to the first owner: what an owner moves it cannot follow.
//!
//! Invariant: nothing of a mount for reading is lost by its end but open files. Read next: `seek_owner.rs`, `serve.rs`.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stere_fuse::{Unmount, Unmounter};

use crate::daemon::{Daemon, spawn};
use crate::seek_owner;
use stere_machine::error::{Error, Result};

/// Between two looks for an owner.
const LOOK: Duration = Duration::from_secs(1);

/// Looks for an owner while the mount lasts, and ends the mount when there is one; the answer tells whether that happened.
pub fn watch(daemon: &Arc<Daemon>) -> Result<Arc<AtomicBool>> {
    let gives_way = Arc::new(AtomicBool::new(false));
    let log = daemon.running.with_log_claim(|claim| claim.tail().log().clone());
    let Some(log) = log.filter(|_| daemon.running.read_only) else { return Ok(gives_way) };
    let (daemon, told, unmounter) = (Arc::downgrade(daemon), gives_way.clone(), daemon.unmounter.clone());
    spawn("give-way", move || {
        while daemon.upgrade().is_some_and(|daemon| !daemon.stop.load(Ordering::Acquire)) {
            if seek_owner::has_owner(&*log, seek_owner::BEAT_SEEN_MAX) {
                return end(&told, &unmounter);
            }
            std::thread::sleep(LOOK);
        }
    })?;
    Ok(gives_way)
}

fn end(gives_way: &AtomicBool, unmounter: &Unmounter) {
    tracing::info!("the pool has an owner: this mount begins anew and reads through it");
    gives_way.store(true, Ordering::Release);
    if let Err(error) = unmounter.unmount(Unmount::Force) {
        tracing::error!(%error, "the mount cannot be ended; what is read here may be older than the pool");
    }
}

/// Begins this process anew, with the same words: there is an owner now. Gives why that was not possible.
pub fn begin_anew() -> Error {
    match std::env::current_exe() {
        Ok(program) => Error::System(Command::new(program).args(std::env::args_os().skip(1)).exec()),
        Err(error) => Error::System(error),
    }
}
