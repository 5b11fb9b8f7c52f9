//! Bringing files in line with their policy: begun, paused, told; and begun by itself when devices change.

use stere_naming::{Caller, FileSystem, Io, ROOT};

use stere_control::change::Change;
use stere_control::reconcile::{BlockedReport, Order, ReconcileReport};
use stere_machine::clock;
use stere_machine::error::Result;
use stere_online::running::Running;

/// The devices are not what they were: what was blocked for want of them is tried again, unless somebody paused all of it.
pub fn try_again(filesystem: &FileSystem, running: &Running) {
    if !running.is_reconcile_paused() {
        filesystem.reconciler().pause_reconcile(false);
    }
}

/// There are more devices: files that were written with fewer copies than their policy asks for, because there were too few,
/// get the rest of them. Nobody has a list of those, so all are looked at; where a device is only labelled otherwise, those whose policy
/// names a place that means other devices now.
pub fn use_devices(filesystem: &FileSystem, change: &Change) -> Result<()> {
    let caller = clock::own_caller(Io::BLOCKING);
    match change {
        change if change.gives_devices() => match reconcile(filesystem, &caller, ROOT) {
            // Of a pool that is only read nothing is brought in line.
            Err(stere_naming::Error::ReadOnly(_)) => Ok(()),
            outcome => Ok(outcome?),
        },
        Change::Label { .. } => Ok(filesystem.classes().follow_labels(&caller)?),
        _ => Ok(()),
    }
}

/// What is below an inode is to be brought in line.
fn reconcile(filesystem: &FileSystem, caller: &Caller<'_>, inode: u64) -> std::result::Result<(), stere_naming::Error> {
    filesystem.command(caller, || filesystem.reconciler().reconcile(caller, inode))
}

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, running: &Running, order: Order) -> Result<ReconcileReport> {
    match order {
        Order::Tell => {}
        Order::Pause | Order::Resume => {
            let is_paused = order == Order::Pause;
            filesystem.reconciler().pause_reconcile(is_paused);
            running.remember_reconcile_paused(is_paused)?;
        }
        Order::Apply(inode) => reconcile(filesystem, &clock::own_caller(Io::BLOCKING), inode)?,
    }
    let status = filesystem.reconciler().reconcile_status(Io::BLOCKING)?;
    let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
    let state = match (status.is_paused, status.pending.is_empty(), status.blocked.is_empty()) {
        (true, _, _) => "paused",
        (_, false, _) => "working",
        (_, _, false) => "blocked",
        _ => "done",
    };
    Ok(ReconcileReport {
        state: state.into(),
        pending: status.pending.iter().map(text).collect(),
        blocked: status
            .blocked
            .iter()
            .map(|one| BlockedReport { path: text(&one.path), why: one.why.clone() })
            .collect(),
        moved_bytes: status.moved_bytes,
        files: status.files,
        damaged_blobs: status.damaged_blobs,
    })
}
