//! A change of devices as a command carries it out: forecast, asked about, done by the daemon or here, and waited for.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use crate::arguments::device::How;
use crate::lose::print_lost;
use crate::progress;
use crate::report::work_text;
use stere_control::change::{Change, Forecast};
use stere_control::connection::Connection;
use stere_control::lose::LostLine;
use stere_control::message::{Answer, Request};
use stere_control::status::{DeviceReport, WorkReport};
use stere_machine::error::{DATA_LOST, DEGRADED, DONE, Error, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size::count;
use stere_online::open::open_here;
use stere_online::outcome::Outcome;
use stere_online::running::Running;

const POLL: Duration = Duration::from_millis(200);

/// So often nothing was left to do and a device was still there, before that is told.
const IDLE_POLLS_MAX: u32 = 150;

/// Asks, where something is destroyed or given up.
pub fn confirm(warning: &str, how: How) -> Result<()> {
    if how.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return refused(format!("{warning}; repeat with --yes if that is what you want"));
    }
    eprint!("{warning}. Go on? [y/N] ");
    std::io::stderr().flush().map_err(Error::System)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(Error::System)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => refused("nothing was changed"),
    }
}

/// Where the work is done.
pub enum Place {
    Daemon(Connection),
    Here(Box<Running>),
}

impl Place {
    fn open(registry: &Registry, pool: &str, dry_run: bool) -> Result<Place> {
        if let Some(mut connection) = Connection::open(registry, pool) {
            connection.wait_without_limit()?;
            return Ok(Place::Daemon(connection));
        }
        Ok(Place::Here(Box::new(open_here(registry, pool, dry_run)?)))
    }

    fn forecast(&mut self, change: &Change) -> Result<Option<Forecast>> {
        match self {
            Place::Daemon(connection) => {
                match connection.ask(Request::Change { change: change.clone(), dry_run: true })? {
                    Answer::Forecast(forecast) => Ok(Some(forecast)),
                    _ => Ok(None),
                }
            }
            Place::Here(running) => match running.change(change, true)? {
                Outcome::Forecast(forecast) => Ok(Some(forecast)),
                Outcome::Done(_) => Ok(None),
            },
        }
    }

    fn perform(&mut self, change: &Change) -> Result<String> {
        match self {
            Place::Daemon(connection) => {
                match connection.ask(Request::Change { change: change.clone(), dry_run: false })? {
                    Answer::Changed { said } => Ok(said),
                    _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
                }
            }
            Place::Here(running) => match running.change(change, false)? {
                Outcome::Done(said) => Ok(said),
                Outcome::Forecast(_) => refused("nothing was changed"),
            },
        }
    }
}

/// Forecasts a change, asks, and begins it; none where that was all that was asked for.
pub fn begin(
    registry: &Registry,
    pool: &str,
    change: &Change,
    warning: Option<String>,
    how: How,
) -> Result<Option<Place>> {
    let mut place = Place::open(registry, pool, how.dry_run)?;
    let mut asks = None;
    if !change.is_at_once()
        && let Some(forecast) = place.forecast(change)?
    {
        println!("{}", forecast.text);
        asks.clone_from(&forecast.asks);
        let is_forced = matches!(change, Change::Offline { force: true, .. });
        if !is_forced {
            forecast.refuse_if_hopeless()?;
        }
        if how.dry_run {
            return Ok(None);
        }
    }
    if how.dry_run {
        println!("nothing has to be moved");
        return Ok(None);
    }
    if let Some(warning) = warning.or(asks) {
        confirm(&warning, how)?;
    }
    println!("{}", place.perform(change)?);
    Ok(Some(place))
}

/// Forecasts a change, asks, and carries it out.
pub fn change(registry: &Registry, pool: &str, change: &Change, warning: Option<String>, how: How) -> Result<u8> {
    match begin(registry, pool, change, warning, how)? {
        None => Ok(DONE),
        Some(place) if matches!(change, Change::Label { .. }) => finish(place),
        Some(place) => finish_work(place, pool, how),
    }
}

/// Data is moved here, or by the daemon, which is waited for where that was asked.
pub fn finish_work(place: Place, pool: &str, how: How) -> Result<u8> {
    match place {
        Place::Here(running) => {
            let mut bar = progress::Bar::new("repairing");
            let work = running.mend_all(|work| bar.show(work.bytes_done, work.bytes_done + work.bytes_left))?;
            bar.end();
            let (lost, has_more) = match work.impossible_chunks {
                0 => (Vec::new(), false),
                _ => stere_online::lose::lost_files(&running.store),
            };
            running.store.close()?;
            tell(&work, &lost, has_more)
        }
        Place::Daemon(connection) if how.wait => wait(connection, pool),
        Place::Daemon(_) => {
            println!(
                "`stere device list {pool}` tells how far it is; with --wait this command returns when it is done"
            );
            Ok(DONE)
        }
    }
}

fn finish(place: Place) -> Result<u8> {
    if let Place::Here(running) = place {
        running.store.close()?;
    }
    Ok(DONE)
}

/// Follows the daemon's work to its end.
pub fn wait(mut connection: Connection, pool: &str) -> Result<u8> {
    let mut idle_polls = 0;
    let mut bar = progress::Bar::new("repairing");
    loop {
        let report = match connection.ask(Request::Status)? {
            Answer::Status(report) => report,
            _ => return refused("the pool's daemon gave an answer that was not asked for; see its log"),
        };
        let work = report.work;
        bar.show(work.bytes_done, work.bytes_done + work.bytes_left);
        let is_stuck = work.impossible_chunks > 0 && work.impossible_chunks >= work.chunks_left;
        let leaving: Vec<&DeviceReport> = report.devices.iter().filter(|device| device.leaves).collect();
        let is_idle = work.is_done() && !work.settling;
        // Done is what stays done when the device is pulled out now.
        if (is_idle && leaving.is_empty()) || is_stuck {
            bar.end();
            return tell(&work, &report.lost_files, report.has_more_lost_files);
        }
        // Nothing is left to do, and yet a device does not leave: that is no end, but no reason to wait for ever.
        idle_polls = if is_idle { idle_polls + 1 } else { 0 };
        if let Some(device) = leaving.first().filter(|_| idle_polls >= IDLE_POLLS_MAX) {
            bar.end();
            println!(
                "device {} is still in the pool with {} on it, although nothing more can be moved: what is on it is still used (an open file, a reader); `stere status {pool}` tells when it is gone",
                device.name,
                stere_machine::size::show(device.used_bytes)
            );
            return Ok(DEGRADED);
        }
        std::thread::sleep(POLL);
    }
}

/// How it ended. What cannot be read is named: it is lost unless its device reads again.
fn tell(work: &WorkReport, lost: &[LostLine], has_more: bool) -> Result<u8> {
    if work.unreadable_chunks > 0 {
        let chunks = count(work.unreadable_chunks, "chunk");
        println!("{chunks} could not be read from any device and stay where they are, so the device is not empty:");
        print_all_lost(lost, has_more);
        println!("what is moved goes on by itself when the device reads again, or when these files are removed");
        return Ok(DATA_LOST);
    }
    match work_text(work) {
        None => {
            println!("done");
            Ok(DONE)
        }
        Some(text) => {
            println!("{text}");
            if lost.is_empty() {
                return Ok(DEGRADED);
            }
            println!("what cannot be read now stays where it is:");
            print_all_lost(lost, has_more);
            Ok(DATA_LOST)
        }
    }
}

fn print_all_lost(lost: &[LostLine], has_more: bool) {
    lost.iter().for_each(print_lost);
    if has_more {
        println!("and more: `stere find state=lost PATH` names them all");
    }
}
