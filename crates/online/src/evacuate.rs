//! A host whose devices leave the pool, all of them in one act: what that would leave, told before, and its beginning.
//!
//! Invariant: the devices of the host are judged together, so none is emptied onto another one that leaves as well. A device that is leaving
//! stays so in the table, so the work goes on after a crash, and asking again goes on with those that were not asked yet. Read next:
//! `change.rs`, `forecast.rs`, `rebuild.rs`.

use stere_format::{DeviceEntry, DeviceState};
use stere_store::{Change as StoreChange, Forecast as StoreForecast};

use crate::hosts::host_of;
use crate::outcome::Outcome;
use crate::running::Running;
use stere_control::change::Forecast;
use stere_machine::error::{Result, refused};
use stere_machine::places::host_in_address;
use stere_machine::size;

/// The devices of a host, in the order of the table.
fn standing_on(running: &Running, host: &str) -> Result<Vec<DeviceEntry>> {
    let entries = running.store.device_entries();
    let standing: Vec<DeviceEntry> = entries.iter().filter(|entry| host_of(running, entry) == host).cloned().collect();
    if !standing.is_empty() && !host.is_empty() {
        return Ok(standing);
    }
    let at_address = |entry: &&DeviceEntry| {
        running.path_of(entry).is_some_and(|path| host_in_address(&path).as_deref() == Some(host))
    };
    if let Some(entry) = entries.iter().find(at_address) {
        let (name, label) = (&entry.name, host_of(running, entry));
        return refused(format!(
            "device '{name}' at {host} is labelled with the host '{label}': name that, `stere host evacuate {label} {}`",
            running.pool
        ));
    }
    let mut hosts: Vec<String> = entries.iter().map(|entry| host_of(running, entry)).collect();
    hosts.sort();
    hosts.dedup();
    hosts.retain(|host| !host.is_empty());
    let known = match hosts.is_empty() {
        true => format!("none of them has one; `stere device label {} DEVICE host=...` tells it", running.pool),
        false => format!("they stand on {}", hosts.join(", ")),
    };
    refused(format!("no device of the pool '{}' stands on host '{host}', or none any more; {known}", running.pool))
}

/// Begins to empty the devices of a host, which leave the pool then.
pub fn evacuate(running: &Running, host: &str, dry_run: bool) -> Result<Outcome> {
    let standing = standing_on(running, host)?;
    let forecast = forecast_host(running, host, &standing)?;
    if dry_run {
        return Ok(Outcome::Forecast(forecast));
    }
    forecast.refuse_if_hopeless()?;
    let is_asked = |entry: &&DeviceEntry| DeviceState::from_code(entry.state) == Some(DeviceState::Removing);
    let goes_on = standing.iter().all(|entry| is_asked(&entry));
    for entry in standing.iter().filter(|entry| !is_asked(entry)) {
        running.store.devices.set_device_state(entry.index, DeviceState::Removing)?;
    }
    let begun = if goes_on { "emptying goes on of" } else { "emptying" };
    Ok(Outcome::Done(format!("{begun} host {host}: {}", names(running, &standing))))
}

/// The names of devices, and which of them are away.
fn names(running: &Running, entries: &[DeviceEntry]) -> String {
    let name = |entry: &DeviceEntry| match running.attached(entry.index) {
        Some(_) => entry.name.clone(),
        None => format!("{} (away)", entry.name),
    };
    let names: Vec<String> = entries.iter().map(name).collect();
    format!("{} {}", if names.len() == 1 { "device" } else { "devices" }, names.join(", "))
}

fn forecast_host(running: &Running, host: &str, standing: &[DeviceEntry]) -> Result<Forecast> {
    let gone: Vec<u16> = standing.iter().map(|entry| entry.index).collect();
    let found = running.store.forecaster.forecast(&StoreChange::Leave(gone.clone()))?;
    let refusal = why_host_stays(running, host, standing, &found, running.active_without(&gone));
    let mut forecast = running.finish(found.bytes_to_move, found.survives_after, found.lost_bytes, refusal);
    forecast.text = format!("host {host}, {}: {}", names(running, standing), forecast.text);
    for remark in remarks_on_host(running, &gone, &found) {
        forecast.text += &format!("; {remark}");
    }
    Ok(forecast)
}

/// All that is in the way of it, each with what to do.
fn why_host_stays(
    running: &Running,
    host: &str,
    standing: &[DeviceEntry],
    found: &StoreForecast,
    remaining: usize,
) -> Option<String> {
    let pool = &running.pool;
    if remaining == 0 {
        return Some(format!(
            "no other device takes data; add one on another host with `stere device add {pool} DEVICE` first"
        ));
    }
    let mut reasons = Vec::new();
    if found.lost_bytes > 0 {
        let away = standing.iter().filter(|entry| running.attached(entry.index).is_none());
        let away: Vec<&str> = away.map(|entry| entry.name.as_str()).collect();
        reasons.push(format!(
            "{} of files lie nowhere else than on {}, which is away; bring it back, or delete these files (`stere lose --host {host} --pool {pool}` names them)",
            size::show(found.lost_bytes),
            away.join(" and ")
        ));
    }
    reasons.extend(running.why_too_wide(found));
    reasons.extend(running.why_placeless(host, found));
    let is_explained = !found.too_wide.is_empty() || !found.homeless_bytes.is_empty();
    if !found.fits && !is_explained {
        reasons.push(why_no_room(running, host, found));
    }
    let others_away = others_away(running, standing).filter(|_| !found.fits);
    (!reasons.is_empty()).then(|| reasons.join("; and ") + &others_away.unwrap_or_default())
}

/// Devices that would take chunks if they were there.
fn others_away(running: &Running, standing: &[DeviceEntry]) -> Option<String> {
    let mut entries = running.store.device_entries();
    entries.retain(|entry| {
        let takes = DeviceState::from_code(entry.state) == Some(DeviceState::Active);
        let stays = !standing.iter().any(|one| one.index == entry.index);
        takes && stays && running.attached(entry.index).is_none()
    });
    (!entries.is_empty()).then(|| format!("; {} may take it when back", names(running, &entries)))
}

fn why_no_room(running: &Running, host: &str, found: &StoreForecast) -> String {
    let homeless = found.homeless_chunks * running.chunk_bytes;
    let release = match found.homeless_archived_bytes {
        0 => String::new(),
        archived => {
            format!(", release archived files (`stere tier release PATH`; {} of it is on media)", size::show(archived))
        }
    };
    format!(
        "{} of {} on host '{host}' find no room on the devices that would be left; add a device of another host with `stere device add {} DEVICE`{release}, or delete files",
        size::show(homeless),
        size::show(found.bytes_to_move),
        running.pool
    )
}

/// Each thing that would be worse afterwards, and keeps nobody from it.
fn remarks_on_host(running: &Running, gone: &[u16], found: &StoreForecast) -> Vec<String> {
    let (before, after) = (running.active_without(&[]), running.active_without(gone));
    let classes = crate::classes::classes(&running.store);
    let survives = |class, devices: usize| classes.wish(class).scheme(devices.max(1)).1;
    let reduced = |class| {
        let (now, then) = (survives(class, before), survives(class, after));
        (then < now).then(|| format!("new files of class {} will survive {then} instead of {now}", classes.name(class)))
    };
    let mut remarks: Vec<String> = classes.in_use().filter_map(|(class, _)| reduced(class)).collect();
    if found.host_bound_bytes > 0 {
        remarks.push(format!(
            "{} of files will not survive the loss of each host any more, because too few hosts have room",
            size::show(found.host_bound_bytes)
        ));
    }
    remarks
}
