//! `stere reconcile` and `stere policy apply`: files that exist are brought in line with their policy in the background.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stere_naming::{FileSystem, Io, ROOT};

use crate::cli::ReconcileCommand;
use crate::control::{Answer, Connection, Request};
use crate::error::{DEGRADED, DONE, Result, refused};
use crate::registry::Registry;
use crate::running::Running;
use crate::running::change::Change;
use crate::status::to_json;
use crate::{clock, locate, size};

const POLL: Duration = Duration::from_millis(50);

/// What is asked of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Tell,
    Pause,
    Resume,
    /// Look at everything below this inode.
    Apply(u64),
}

/// Something that cannot go on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BlockedReport {
    pub path: String,
    pub why: String,
}

/// How far the work is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReconcileReport {
    pub state: String,
    /// Paths whose subtrees are not done yet.
    pub pending: Vec<String>,
    pub blocked: Vec<BlockedReport>,
    /// Since the mount.
    pub moved_bytes: u64,
    pub files: u64,
    pub damaged_blobs: u64,
}

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
        change if change.gives_devices() => match filesystem.reconciler().reconcile(&caller, ROOT) {
            // Of a pool that is only read nothing is brought in line.
            Err(stere_naming::Error::ReadOnly(_)) => Ok(()),
            outcome => Ok(outcome?),
        },
        Change::Label { .. } => Ok(filesystem.classes().follow_labels(&caller)?),
        _ => Ok(()),
    }
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
        Order::Apply(inode) => filesystem.reconciler().reconcile(&clock::own_caller(Io::BLOCKING), inode)?,
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

fn ask(connection: &mut Connection, order: Order) -> Result<ReconcileReport> {
    match connection.ask(Request::Reconcile { order })? {
        Answer::Reconcile(report) => Ok(report),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

pub fn run(registry: &Registry, command: &ReconcileCommand) -> Result<u8> {
    let (pool, order) = match command {
        ReconcileCommand::Status { pool, .. } | ReconcileCommand::Wait { pool } => (pool, Order::Tell),
        ReconcileCommand::Pause { pool } => (pool, Order::Pause),
        ReconcileCommand::Resume { pool } => (pool, Order::Resume),
    };
    let Some(mut connection) = Connection::open(registry, pool) else {
        return refused(format!("the pool '{pool}' is not mounted; files are moved while it is: mount it"));
    };
    let report = ask(&mut connection, order)?;
    match command {
        ReconcileCommand::Status { json: true, .. } => println!("{}", to_json(&report)?),
        ReconcileCommand::Wait { .. } => return wait(&mut connection),
        _ => print(&report),
    }
    Ok(if report.blocked.is_empty() { DONE } else { DEGRADED })
}

/// `stere policy apply`.
pub fn apply(registry: &Registry, path: &Path, is_waiting: bool) -> Result<u8> {
    let (about, mut connection, inode) = locate::connect(registry, path)?;
    ask(&mut connection, Order::Apply(inode))?;
    if is_waiting {
        return wait(&mut connection);
    }
    println!(
        "files below {} are brought in line; `stere reconcile status {}` tells how far",
        path.display(),
        about.pool
    );
    Ok(DONE)
}

/// Waits for the pool that a path is in.
pub fn wait_for(registry: &Registry, path: &Path) -> Result<u8> {
    let (_, mut connection, _) = locate::connect(registry, path)?;
    wait(&mut connection)
}

/// Returns when nothing is left to do, or nothing can be done.
pub fn wait(connection: &mut Connection) -> Result<u8> {
    loop {
        let report = ask(connection, Order::Tell)?;
        match report.state.as_str() {
            "working" => std::thread::sleep(POLL),
            "paused" => return refused("the work is paused; `stere reconcile resume POOL` lets it go on"),
            _ => {
                print(&report);
                return Ok(if report.blocked.is_empty() { DONE } else { DEGRADED });
            }
        }
    }
}

fn print(report: &ReconcileReport) {
    println!(
        "{}; {} moved, {} files looked at since the mount",
        report.state,
        size::show(report.moved_bytes),
        report.files
    );
    if report.damaged_blobs > 0 {
        println!("{} pieces cannot be read and stay as they are; `stere check` names the files", report.damaged_blobs);
    }
    report.pending.iter().for_each(|path| println!("to do: {path}"));
    report.blocked.iter().for_each(|one| println!("blocked: {}: {}", one.path, one.why));
}
