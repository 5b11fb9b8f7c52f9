//! `stere reconcile` and `stere policy apply`: files that exist are brought in line with their policy in the background.

use std::path::Path;
use std::time::Duration;

use crate::arguments::ReconcileCommand;
use crate::json::to_json;
use crate::terminal::plain;
use stere_control::connection::Connection;
use stere_control::locate;
use stere_control::message::{Answer, Request};
use stere_control::reconcile::{Order, ReconcileReport};
use stere_machine::error::{DEGRADED, DONE, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

const POLL: Duration = Duration::from_millis(50);

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
    report.pending.iter().for_each(|path| println!("to do: {}", plain(path)));
    report.blocked.iter().for_each(|one| println!("blocked: {}: {}", plain(&one.path), plain(&one.why)));
}
