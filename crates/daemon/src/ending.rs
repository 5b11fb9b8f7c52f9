//! How the mount ends when it is told to: by signals, by force, or because another machine took the pool.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stere_fuse::{Unmount, Unmounter};
use stere_multihost::LogClaim;
use stere_naming::Io;
use stere_store::SharedLog;

use crate::control_socket::answer_waiting;
use crate::daemon::{Daemon, lock, spawn};
use crate::junctions::{How, Junctions};
use stere_control::connection;
use stere_control::message::Answer;
use stere_machine::clock;
use stere_machine::error::{Error, Result};

/// How long files may stay open after a signal before the mount is broken off.
pub const OPEN_FILES_PATIENCE: Duration = Duration::from_secs(10);
/// How long the last device that may answer is waited for when nothing but closing the pool is left.
const LAST_DEVICE_WAIT_MAX: Duration = Duration::from_secs(30);

/// SIGTERM, SIGINT and SIGHUP end the mount in order. Who still has files open gets a little time.
pub fn start_signals(daemon: Arc<Daemon>, signals: signal_hook::iterator::Signals) -> Result<()> {
    // Also where it could be unmounted: other mounts of it may keep it.
    let junctions = daemon.junctions.clone();
    unmount_on_signals(signals, daemon.unmounter.clone(), junctions, move |_| end_soon(&daemon))
}

/// Unmounts on each signal; `then` hears whether nobody had files open: else the mount left the name space and goes on for those.
pub fn unmount_on_signals(
    mut signals: signal_hook::iterator::Signals,
    unmounter: Unmounter,
    junctions: Option<Arc<Junctions>>,
    then: impl Fn(bool) + Send + 'static,
) -> Result<()> {
    spawn("signals", move || {
        for signal in signals.forever() {
            tracing::info!(signal, "told to stop");
            // They end by the same signal, at their own pace; the mount leaves with those that stay.
            junctions.iter().for_each(|junctions| junctions.end(How::Signal).unwrap_or_default());
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

/// How often whoever waits for the loss of the claim looks at the store.
const CLAIM_LOOK: Duration = Duration::from_millis(500);

/// Ends the process when the pool is another's: nothing may be written any more, and what is read may be wrong. The same when the store
/// of a pool that another may own has stopped writing: whoever is next may reach what this process does not.
///
/// The mount is left dead and not taken away, so that nobody writes into the directory below it without knowing.
pub fn end_when_lost(daemon: &Arc<Daemon>) -> Result<()> {
    let (sender, lost) = channel();
    // Whoever finds it may hold what requests wait for, so nothing is done there.
    let tell = move |cause: &str| sender.send(cause.to_owned()).unwrap_or_default();
    daemon.running.on_claim_lost(Box::new(tell));
    let is_shared = SharedLog::of(&daemon.running.store).is_used() && !daemon.running.read_only;
    let daemon = Arc::downgrade(daemon);
    spawn("claim", move || wait_for_loss(&daemon, is_shared, &lost))
}

fn wait_for_loss(daemon: &Weak<Daemon>, is_shared: bool, lost: &Receiver<String>) {
    // Else nothing but the loss itself is waited for.
    let look = if is_shared { CLAIM_LOOK } else { Duration::MAX };
    loop {
        let told = lost.recv_timeout(look);
        // A mount that ends in order tells itself what went wrong.
        let Some(daemon) = daemon.upgrade().filter(|daemon| !daemon.stop.load(Ordering::Acquire)) else { return };
        let cause = match told {
            Ok(cause) => Some(cause),
            Err(RecvTimeoutError::Timeout) => daemon.running.store.failure(),
            // There is no claim, or none any more.
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let Some(cause) = cause {
            end_at_once(&daemon, &cause);
        }
        if is_shared {
            let count = SharedLog::of(&daemon.running.store).release_foreign_slots();
            if count > 0 {
                tracing::debug!(count, "slots of owners before are free");
            }
        }
    }
}

/// What was not synced is lost. Commands that wait for the end are told.
fn end_at_once(daemon: &Daemon, cause: &str) -> ! {
    daemon.running.store.stop_writing(cause);
    if daemon.running.with_log_claim(LogClaim::lacks_records).unwrap_or(false) {
        stere_pool::note_lost_records(&daemon.running.store);
    }
    tracing::error!(
        "this process serves the pool no more ({cause}); its mount is dead until it is unmounted, or mounted again"
    );
    let outcome: Result<()> = Err(Error::Refused(cause.to_owned()));
    answer_waiting(&daemon.ending, &outcome);
    std::process::exit(i32::from(stere_machine::error::ERROR));
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
        daemon.running.store.devices.wait_for_none(Some(LAST_DEVICE_WAIT_MAX));
    }));
}

/// A lazy mount cannot be unmounted any more, so the process makes everything durable and ends.
fn end_by_force(daemon: &Daemon) {
    daemon.running.gate.close();
    daemon.running.store.devices.wait_for_none(Some(LAST_DEVICE_WAIT_MAX));
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
