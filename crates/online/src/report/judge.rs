//! How a pool is, in one word, and what its owner should do next.
//!
//! Lost: files cannot be read from the devices that are there. At risk: the next loss would lose data that was to survive one,
//! or the pool stopped writing. Degraded: something is missing, sick or being repaired, and another loss is still survived.

use stere_pool::Floors;

use crate::running::Running;
use stere_control::status::{DeviceReport, State, WorkReport};
use stere_machine::size;

pub struct Judgement {
    pub state: State,
    pub survives: u8,
    pub next: String,
}

fn names<'a>(devices: &'a [DeviceReport], state: &str) -> Vec<&'a str> {
    devices.iter().filter(|device| device.state == state).map(|device| device.name.as_str()).collect()
}

pub fn judge(running: &Running, devices: &[DeviceReport], floors: &Floors, work: &WorkReport) -> Judgement {
    let store = &running.store;
    let normal = crate::classes::classes(store).wish(stere_policy::Class::Normal);
    let promised = crate::classes::scheme(normal, devices.len()).parity;
    let possible = store.fit(crate::classes::scheme(normal, devices.len())).parity;
    let stored = floors.survives.unwrap_or(possible).min(floors.metadata_survives.unwrap_or(possible));
    let missing = devices.iter().any(|device| matches!(device.state.as_str(), "missing" | "left out" | "failed"));
    // What is written from now on survives no more than the devices allow; what was written before, what is left of it.
    let survives = if missing { stored.min(possible.max(stored)) } else { stored.min(promised.max(stored)) };
    let (state, next) = find(running, devices, floors, work, survives, promised);
    Judgement { state, survives, next }
}

fn find(
    running: &Running,
    devices: &[DeviceReport],
    floors: &Floors,
    work: &WorkReport,
    survives: u8,
    promised: u8,
) -> (State, String) {
    if let Some(cause) = running.store.failure() {
        return (State::AtRisk, format!("the pool stopped writing ({cause}): check the devices, then mount it again"));
    }
    let pool = &running.pool;
    let away: Vec<&DeviceReport> =
        devices.iter().filter(|device| matches!(device.state.as_str(), "missing" | "left out" | "offline")).collect();
    let away_names = away.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ");
    let reduced = if survives == 0 && promised > 0 { State::AtRisk } else { State::Degraded };
    if floors.is_lossy() {
        let bytes = floors.lost_bytes + floors.lost_single_bytes;
        let way_back = match away_names.is_empty() {
            true => way_back_without_missing(pool, devices),
            false => {
                let first = away.first().map_or("NAME", |device| device.name.as_str());
                format!("attach the missing device {away_names} (`stere device online {pool} {first}`)")
            }
        };
        return (State::Lost, format!("{} of files cannot be read: {way_back}", size::show(bytes)));
    }
    // What a silent device has alone is not lost; it is told below.
    let is_silent = devices.iter().any(|device| device.state == "silent");
    if running.store.damage().is_metadata_damaged() && !is_silent {
        let next = format!(
            "names or other metadata are damaged on every copy: unmount, see what is lost with `stere check {pool}`, and copy the rest out with `stere rescue`"
        );
        return (State::Lost, next);
    }
    let (damaged, bytes) = running.store.damage().damaged_blobs();
    if damaged > 0 && !is_silent {
        let way_back = way_back_from_media(running).unwrap_or_else(|| way_back_without_missing(pool, devices));
        return (State::Lost, format!("{} of files cannot be read from any device: {way_back}", size::show(bytes)));
    }
    if let Some(device) = devices.iter().find(|device| device.state == "left out") {
        return (
            reduced,
            format!("device {0} is there but left out: see `stere device online --help` about --wipe", device.name),
        );
    }
    if let Some(device) = devices.iter().find(|device| device.state == "missing") {
        let next = format!(
            "attach the missing device {away_names}, or put another in its place: `stere device replace {pool} {} NEW`",
            device.name
        );
        return (reduced, next);
    }
    if let Some(device) = devices.iter().find(|device| device.state == "silent") {
        let why = device.why.as_deref().unwrap_or("it does not answer");
        let next = format!(
            "device {}: {why}, and writing goes on without it: look at its cable, its power, or the machine it is on; it is caught up by itself when it answers",
            device.name
        );
        return (reduced, next);
    }
    if let Some(device) = devices.iter().find(|device| matches!(device.state.as_str(), "sick" | "failing")) {
        let next = format!(
            "device {0} is failing: put another in its place with `stere device replace {pool} {0} NEW`",
            device.name
        );
        return (reduced, next);
    }
    if work.impossible_chunks > 0 && work.impossible_chunks >= work.chunks_left {
        return (
            reduced,
            format!(
                "{} of copies find no place: add a device with `stere device add {pool} DEVICE` (for files with only=, one that it names), or delete files",
                size::show(work.bytes_left)
            ),
        );
    }
    if !work.is_done() {
        let wait = match running.read_only {
            true => "mount the pool for writing, so that it repairs itself",
            false => "wait: the pool repairs itself (`stere device list` tells how far it is)",
        };
        return (reduced, wait.to_owned());
    }
    if let Some(name) = names(devices, "failed").first() {
        return (
            State::Degraded,
            format!("device {name} was given up: take it out with `stere device remove {pool} {name}`, or replace it"),
        );
    }
    if let Some(name) = names(devices, "offline").first() {
        return (reduced, format!("bring device {name} back with `stere device online {pool} {name}`"));
    }
    remarks(running, devices)
}

/// What to do about content that media give no more.
fn way_back_from_media(running: &Running) -> Option<String> {
    let volumes = running.store.tier.media.damaged_volumes();
    if volumes == 0 {
        return None;
    }
    let (names, pool) = (running.store.tier.media.tier_names(volumes), &running.pool);
    Some(format!(
        "objects on {names} are damaged or lacking: restore them there and run `stere media verify {pool} NAME`, restore these files from a backup, or remove them"
    ))
}

/// What to do about content that no device gives although none is missing.
fn way_back_without_missing(pool: &str, devices: &[DeviceReport]) -> String {
    let backup = "restore these files from a backup, or remove them";
    if let Some(name) = names(devices, "failed").first() {
        return format!(
            "device {name} was given up and may still have them: attach it, and bring it back with `stere device online {pool} {name}`; otherwise {backup}"
        );
    }
    match devices.iter().find(|device| device.read_errors > 0) {
        Some(device) => format!("device {} fails reads: see that it reads again; otherwise {backup}", device.name),
        None => format!("{backup} (`stere scrub start {pool}` looks for all)"),
    }
}

/// What is worth a word although nothing is wrong now.
fn remarks(running: &Running, devices: &[DeviceReport]) -> (State, String) {
    let is_damaged = |device: &&DeviceReport| {
        let index = device.number - 1;
        running.attached(index).is_some_and(|attached| attached.is_damaged)
    };
    let damaged: Vec<&str> = devices.iter().filter(is_damaged).map(|device| device.path.as_str()).collect();
    if !damaged.is_empty() {
        let next = format!("some superblock copies on {} are damaged; watch that device", damaged.join(", "));
        return (State::Degraded, next);
    }
    if let Some(device) = devices.iter().find(|device| device.read_errors + device.checksum_errors > 0) {
        let next = format!(
            "device {} failed {} reads and gave wrong bytes {} times since the mount; look at its health, and verify everything with `stere scrub start {}`",
            device.name, device.read_errors, device.checksum_errors, running.pool
        );
        return (State::Degraded, next);
    }
    (State::Healthy, "nothing".into())
}
