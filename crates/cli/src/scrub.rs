//! `stere scrub`: everything is verified and repaired, in the background of a mount or here if the pool is not mounted.

use std::time::Duration;

use crate::arguments::device::ScrubCommand;
use crate::json::to_json;
use crate::progress;
use crate::terminal::plain;
use stere_control::connection::Connection;
use stere_control::message::{Answer, Request, ScrubOrder};
use stere_control::scrub::ScrubReport;
use stere_machine::error::{DATA_LOST, DEGRADED, DONE, Result, refused};
use stere_machine::registry::Registry;
use stere_online::open::open_here;

const POLL: Duration = Duration::from_millis(200);

/// Large, because nothing is read ahead between steps.
const STEP_BYTES: u64 = 128 << 20;

pub fn run(registry: &Registry, command: &ScrubCommand) -> Result<u8> {
    match command {
        ScrubCommand::Start { pool, restart, wait } => start(registry, pool, *restart, *wait),
        ScrubCommand::Status { pool, json } => {
            let report = match Connection::open(registry, pool) {
                Some(mut connection) => ask(&mut connection, ScrubOrder::Tell)?,
                None => open_here(registry, pool, true)?.scrub_report(),
            };
            match json {
                true => println!("{}", to_json(&report)?),
                false => print(&report),
            }
            Ok(code(&report))
        }
        ScrubCommand::Pause { pool } => {
            let Some(mut connection) = Connection::open(registry, pool) else {
                registry.get(pool)?;
                return refused(format!("the pool '{pool}' is not mounted, so nothing is scrubbed now"));
            };
            print(&ask(&mut connection, ScrubOrder::Pause)?);
            Ok(DONE)
        }
    }
}

fn start(registry: &Registry, pool: &str, restart: bool, wait: bool) -> Result<u8> {
    let order = if restart { ScrubOrder::Restart } else { ScrubOrder::Start };
    let mut bar = progress::Bar::new("scrubbing");
    let report = match Connection::open(registry, pool) {
        Some(mut connection) => {
            connection.wait_without_limit()?;
            let mut report = ask(&mut connection, order)?;
            if !wait {
                println!("scrubbing {pool}; `stere scrub status {pool}` tells how far it is");
                return Ok(DONE);
            }
            while report.state == "running" {
                std::thread::sleep(POLL);
                report = ask(&mut connection, ScrubOrder::Tell)?;
                bar.show(report.bytes_checked, report.bytes_total);
            }
            report
        }
        None => {
            let running = open_here(registry, pool, false)?;
            let mut report = running.scrub_order(order)?;
            while report.state == "running" {
                // A step that fails is tried again; the pass is given up if it goes on failing.
                if let Err(error) = running.scrub_step(STEP_BYTES) {
                    eprintln!("stere: {error}");
                }
                report = running.scrub_report();
                bar.show(report.bytes_checked, report.bytes_total);
            }
            // What could not be written back where it was is rebuilt elsewhere.
            running.mend_all(|_| ())?;
            running.store.close()?;
            report
        }
    };
    bar.end();
    print(&report);
    Ok(code(&report))
}

fn ask(connection: &mut Connection, order: ScrubOrder) -> Result<ScrubReport> {
    match connection.ask(Request::Scrub { order })? {
        Answer::Scrub(report) => Ok(report),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

fn print(report: &ScrubReport) {
    match report.text() {
        Some(text) => println!("{text}"),
        None => println!("never scrubbed"),
    }
    for damage in &report.damages {
        if damage.inode == 0 {
            println!("lost: metadata, or what no file names any more, {} bytes", damage.length);
            continue;
        }
        let place = damage.path.clone().unwrap_or_else(|| format!("inode {}", damage.inode));
        let (place, length, offset) = (plain(&place), damage.length, damage.offset);
        println!("lost: {place}, {length} bytes at {offset}: restore this file from a backup");
    }
}

fn code(report: &ScrubReport) -> u8 {
    match report.state.as_str() {
        _ if !report.damages.is_empty() || report.known > 0 => DATA_LOST,
        "given up" => DEGRADED,
        _ if report.findings > 0 => DEGRADED,
        _ => DONE,
    }
}
