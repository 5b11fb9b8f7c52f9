//! `stere device`: the devices of a pool, and what can be done with them.
//!
//! A mounted pool's daemon does it; on a pool that is not mounted the command opens it, does the work to its end, and closes it.

use std::path::{Path, PathBuf};

use crate::arguments::device::{DeviceCommand, How};
use crate::change::change;
use crate::create::{MadeFiles, make_file};
use crate::report::{print_devices, work_text};
use crate::{json, resize, status};
use stere_control::change::Change;
use stere_control::spec::DeviceSpec;
use stere_machine::devices::absolute;
use stere_machine::error::{Error, Result, refused};
use stere_machine::registry::Registry;
use stere_online::change::parse_label;

/// Refuses a directory that is in the pool itself: what was put there would be put there again, and nobody could reach it when the pool is lost.
/// A path without `dir:` is one, too, if it is a directory's.
pub fn refuse_own(registry: &Registry, pool: &str, place: &str) -> Result<()> {
    let path = match place.strip_prefix("dir:") {
        Some(path) => path,
        None if Path::new(place).is_dir() => place,
        None => return Ok(()),
    };
    let path = std::path::absolute(path).map_err(Error::System)?;
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(&path);
    let daemons = stere_control::connection::daemons(registry);
    match stere_control::locate::mount_of(&daemons, there) {
        Ok(about) if about.pool == pool => refused(format!(
            "{} is in the pool '{pool}' itself, which would keep its copies in itself; name a directory on another disk",
            path.display()
        )),
        _ => Ok(()),
    }
}

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
        DeviceCommand::Resize { pool, device, size, how } => resize::run(registry, pool, device, size.as_deref(), *how),
    }
}

/// Where a device or a volume is now, from the root.
fn found_at(registry: &Registry, pool: &str, path: &Path) -> Result<PathBuf> {
    let text = path.display().to_string();
    refuse_own(registry, pool, &text)?;
    match stere_machine::places::is_place(&text) {
        true => Ok(PathBuf::from(stere_machine::places::whole_place(&text)?)),
        false => Ok(absolute(path)),
    }
}

fn list(registry: &Registry, words: &[String], json: bool, bytes: bool) -> Result<u8> {
    let report = status::of(registry, words)?;
    if json {
        println!("{}", json::to_json(&report.devices)?);
    } else {
        print_devices(&report.devices, bytes);
        crate::tier::report::print_volumes_if_any(&report.volumes);
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
        if stere_machine::places::is_place(&spec.path.display().to_string()) {
            refuse_own(registry, pool, &spec.path.display().to_string())?;
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
