//! `stere device`: the devices of a pool, and what can be done with them.
//!
//! A mounted pool's daemon does it; on a pool that is not mounted the command opens it, does the work to its end, and closes it.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stere_device::Access;
use stere_multihost::Multihost;
use stere_pool::OpenOptions;

use crate::claim;
use crate::cli::{DeviceCommand, How};
use crate::control::{Answer, Connection, Request};
use crate::create::{MadeFiles, make_file};
use crate::devices::{Target, absolute};
use crate::error::{DATA_LOST, DEGRADED, DONE, Error, Result, refused};
use crate::lose::LostLine;
use crate::registry::Registry;
use crate::report::{DeviceReport, count, print_devices, work_text};
use crate::running::Running;
use crate::running::change::{Change, Outcome, parse_label};
use crate::running::forecast::Forecast;
use crate::running::mend::WorkReport;
use crate::spec::DeviceSpec;
use crate::{progress, resize, status};

const MEMORY_BYTES: usize = 512 << 20;
const POLL: Duration = Duration::from_millis(200);
/// So often nothing was left to do and a device was still there, before that is told.
const IDLE_POLLS_MAX: u32 = 150;

pub fn run(registry: &Registry, command: &DeviceCommand) -> Result<u8> {
    let immediate = How { dry_run: false, wait: false, yes: true };
    match command {
        DeviceCommand::List { words, json, bytes } => list(registry, words, *json, *bytes),
        DeviceCommand::Add { pool, devices, spare, force, rebalance, how } => {
            add(registry, pool, devices, (*spare, *force, *rebalance), *how)
        }
        DeviceCommand::Remove { pool, device, how } => {
            let warning =
                format!("{device} is emptied and taken out of {pool}; then it is no part of the pool any more");
            change(registry, pool, &Change::Remove { device: device.clone() }, Some(warning), *how)
        }
        DeviceCommand::Replace { pool, old, new: Some(new), force, how, .. } => {
            replace(registry, pool, old, new, *force, *how)
        }
        DeviceCommand::Replace { pool, old, new: None, how, .. } => {
            change(registry, pool, &Change::ReplaceBySpare { old: old.clone() }, None, *how)
        }
        DeviceCommand::Evacuate { pool, device, how } => {
            change(registry, pool, &Change::Evacuate { device: device.clone() }, None, *how)
        }
        DeviceCommand::Offline { pool, device, force, how } => {
            let warning = force.then(|| format!("{device} goes offline even if files cannot be read without it"));
            change(registry, pool, &Change::Offline { device: device.clone(), force: *force }, warning, *how)
        }
        DeviceCommand::Online { pool, device, path, wipe, how } => {
            let warning = wipe.then(|| format!("what is on {device} is given up, and it is filled anew"));
            let path = path.as_ref().map(|path| found_at(registry, pool, path)).transpose()?;
            let online = Change::Online { device: device.clone(), path, wipe: *wipe };
            change(registry, pool, &online, warning, *how)
        }
        DeviceCommand::Fail { pool, device, how } => {
            let warning = format!("{device} is given up: it is not written to any more");
            change(registry, pool, &Change::Fail { device: device.clone() }, Some(warning), *how)
        }
        DeviceCommand::Label { pool, device, settings } => {
            parse_label(settings)?;
            let label = Change::Label { device: device.clone(), settings: settings.clone() };
            change(registry, pool, &label, None, immediate)
        }
        DeviceCommand::Resize { pool, device, how } => resize::run(registry, pool, device, *how),
    }
}

/// Where a device or a volume is now, from the root.
fn found_at(registry: &Registry, pool: &str, path: &Path) -> Result<PathBuf> {
    let text = path.display().to_string();
    crate::volumes::refuse_own(registry, pool, &text)?;
    match crate::volumes::is_place(&text) {
        true => Ok(PathBuf::from(crate::volumes::whole_place(&text)?)),
        false => Ok(absolute(path)),
    }
}

fn list(registry: &Registry, words: &[String], json: bool, bytes: bool) -> Result<u8> {
    let report = status::of(registry, words)?;
    if json {
        println!("{}", status::to_json(&report.devices)?);
    } else {
        print_devices(&report.devices, bytes);
        crate::tier::print_volumes_if_any(&report.volumes);
        if let Some(work) = work_text(&report.work) {
            println!("{work}");
        }
    }
    Ok(report.exit_code())
}

fn add(
    registry: &Registry,
    pool: &str,
    devices: &[DeviceSpec],
    (spare, force, rebalance): (bool, bool, bool),
    how: How,
) -> Result<u8> {
    let mut made = MadeFiles::default();
    let mut specs = Vec::with_capacity(devices.len());
    for spec in devices {
        if crate::volumes::is_place(&spec.path.display().to_string()) {
            crate::volumes::refuse_own(registry, pool, &spec.path.display().to_string())?;
            specs.push(spec.clone());
            continue;
        }
        make_file(spec, &mut made)?;
        specs.push(DeviceSpec { path: absolute(&spec.path), ..spec.clone() });
    }
    let warning = force.then(|| format!("everything on {} is destroyed", paths(&specs)));
    let outcome = change(registry, pool, &Change::Add { devices: specs, spare, force, rebalance }, warning, how);
    made.keep = outcome.is_ok() && !how.dry_run;
    outcome
}

fn replace(registry: &Registry, pool: &str, old: &str, new: &DeviceSpec, force: bool, how: How) -> Result<u8> {
    let mut made = MadeFiles::default();
    make_file(new, &mut made)?;
    let new = DeviceSpec { path: absolute(&new.path), ..new.clone() };
    let warning = force.then(|| format!("everything on {} is destroyed", new.path.display()));
    let outcome = change(registry, pool, &Change::Replace { old: old.into(), new, force }, warning, how);
    made.keep = outcome.is_ok() && !how.dry_run;
    outcome
}

fn paths(specs: &[DeviceSpec]) -> String {
    specs.iter().map(|spec| spec.path.display().to_string()).collect::<Vec<_>>().join(", ")
}

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
enum Place {
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

/// Opens a pool that is not mounted, for changing its devices.
pub fn open_here(registry: &Registry, pool: &str, read_only: bool) -> Result<Running> {
    let target = Target::parse(registry, &[pool.to_owned()])?;
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let (assembly, claim) = claim::assemble(registry, &target, access, Duration::ZERO, None, Multihost::default())?;
    let options =
        OpenOptions { memory_bytes: MEMORY_BYTES, read_only, epoch_nonce: epoch_nonce(), ..OpenOptions::default() };
    let place_of =
        |entry: &stere_format::DeviceEntry| registry.place_of(&assembly.newest.pool_name, &entry.id.to_string());
    let opened = assembly.open(&options, &place_of)?;
    opened.warnings.iter().for_each(|warning| eprintln!("stere: {warning}"));
    Ok(Running::new(registry, &assembly, Some(claim), opened))
}

/// Random, from the operating system.
pub fn epoch_nonce() -> u32 {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    u32::from_le_bytes(bytes)
}

/// Forecasts a change, asks, and carries it out.
pub fn change(registry: &Registry, pool: &str, change: &Change, warning: Option<String>, how: How) -> Result<u8> {
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
            return Ok(DONE);
        }
    }
    if how.dry_run {
        println!("nothing has to be moved");
        return Ok(DONE);
    }
    if let Some(warning) = warning.or(asks) {
        confirm(&warning, how)?;
    }
    println!("{}", place.perform(change)?);
    if matches!(change, Change::Label { .. }) {
        return finish(place);
    }
    match place {
        Place::Here(running) => {
            let mut bar = progress::Bar::new("repairing");
            let work = running.mend_all(|work| bar.show(work.bytes_done, work.bytes_done + work.bytes_left))?;
            bar.end();
            let (lost, has_more) = match work.unreadable_chunks {
                0 => (Vec::new(), false),
                _ => crate::report::lost_files(&running.store),
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
fn wait(mut connection: Connection, pool: &str) -> Result<u8> {
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
                crate::size::show(device.used_bytes)
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
        lost.iter().for_each(LostLine::print);
        if has_more {
            println!("and more: `stere find state=lost PATH` names them all");
        }
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
            Ok(DEGRADED)
        }
    }
}
