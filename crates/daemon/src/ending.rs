//! How the mount ends when it is told to: by signals, by force, or because another machine took the pool.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stere_fuse::{Unmount, Unmounter};
use stere_naming::Io;
use stere_store::SharedLog;

use crate::clients::Clients;
use crate::daemon::{Daemon, lock, spawn};
use stere_control::connection;
use stere_control::message::Answer;
use stere_machine::clock;
use stere_machine::error::Result;

/// How long files may stay open after a signal before the mount is broken off.
pub const OPEN_FILES_PATIENCE: Duration = Duration::from_secs(10);
/// How long the last device that may answer is waited for when nothing but closing the pool is left.
const LAST_DEVICE_WAIT_MAX: Duration = Duration::from_secs(30);

/// SIGTERM, SIGINT and SIGHUP end the mount in order. Who still has files open gets a little time.
pub fn start_signals(daemon: Arc<Daemon>, signals: signal_hook::iterator::Signals) -> Result<()> {
    // Also where it could be unmounted: other mounts of it may keep it.
    unmount_on_signals(signals, daemon.unmounter.clone(), move |_| end_soon(&daemon))
}

/// Unmounts on each signal; `then` hears whether nobody had files open: else the mount left the name space and goes on for those.
pub fn unmount_on_signals(
    mut signals: signal_hook::iterator::Signals,
    unmounter: Unmounter,
    then: impl Fn(bool) + Send + 'static,
) -> Result<()> {
    spawn("signals", move || {
        for signal in signals.forever() {
            tracing::info!(signal, "told to stop");
            let is_unmounted = unmounter.unmount(Unmount::Normal).is_ok();
            if !is_unmounted {
                tracing::warn!("files are open: the mount leaves the name space now and ends when they are closed");
                if let Err(error) = unmounter.unmount(Unmount::Lazy) {
                    tracing::error!(%error, "the mount cannot be ended");
                }
            }
            then(is_unmounted);
        }
    })
}

/// Another machine took the pool while this process stood still: nothing may be written any more, and what is read may be wrong.
pub fn end_when_taken_over(daemon: &Arc<Daemon>, clients: Option<Clients>) {
    let daemon_of_claim = Arc::downgrade(daemon);
    daemon.running.on_claim_lost(Box::new(move |cause| {
        if let Some(daemon) = daemon_of_claim.upgrade() {
            daemon.running.store.stop_writing(cause);
            // They ask the next owner.
            if let Some(clients) = &clients {
                clients.end();
            }
            daemon.take_down();
        }
    }));
}

/// Slots that the owner before may still write to are free after a while.
pub fn release_foreign_slots(daemon: &Arc<Daemon>) {
    if !SharedLog::of(&daemon.running.store).is_used() {
        return;
    }
    let daemon = Arc::downgrade(daemon);
    drop(spawn("foreign-slots", move || {
        std::thread::sleep(Duration::from_millis(stere_multihost::FOREIGN_SLOTS_MS));
        if let Some(daemon) = daemon.upgrade() {
            let count = SharedLog::of(&daemon.running.store).release_foreign_slots();
            tracing::debug!(count, "slots of the owner before are free");
        }
    }));
}

/// Ends the process after a while, if the mount has not ended by then. Without a thread it ends when nobody uses it any more.
pub fn end_soon(daemon: &Arc<Daemon>) {
    let daemon = daemon.clone();
    drop(spawn("patience", move || {
        std::thread::sleep(OPEN_FILES_PATIENCE);
        if !daemon.stop.load(Ordering::Acquire) {
            tracing::warn!("the mount is still in use: writing what is there and ending");
            end_by_force(&daemon);
        }
    }));
}

/// Nothing is asked of the mount any more. The last changes become durable, but no device is waited for without an end.
pub fn close_soon(daemon: &Arc<Daemon>) {
    let daemon = daemon.clone();
    drop(spawn("last-wait", move || {
        std::thread::sleep(LAST_DEVICE_WAIT_MAX);
        tracing::warn!(
            "closing takes long: from now on a device that does not answer is waited for no longer than 30 s"
        );
        daemon.running.store.devices.wait_for_none(LAST_DEVICE_WAIT_MAX);
    }));
}

/// A lazy mount cannot be unmounted any more, so the process makes everything durable and ends.
fn end_by_force(daemon: &Daemon) {
    daemon.running.gate.close();
    daemon.running.store.devices.wait_for_none(LAST_DEVICE_WAIT_MAX);
    let synced = daemon.filesystem.syncfs(&clock::own_caller(Io::BLOCKING));
    let answer = match synced {
        Ok(()) => Answer::Done,
        Err(error) => {
            tracing::error!(%error, "the last changes could not be made durable");
            Answer::Failed { message: error.to_string(), ended: true }
        }
    };
    for mut stream in lock(&daemon.ending).drain(..) {
        connection::send(&mut stream, &answer);
    }
    std::process::exit(i32::from(stere_machine::error::ERROR));
}

/// Whoever started us may have blocked the signals that end a mount; a blocked one would wait for ever.
pub fn unblock_signals() {
    // SAFETY: the set is initialised by sigemptyset before it is used, and lives on this stack.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}
