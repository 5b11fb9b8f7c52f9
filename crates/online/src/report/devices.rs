//! The devices of a pool as `device list` and `status` tell them.

use stere_device::Device;
use stere_format::{DeviceEntry, DeviceIndex, DeviceState};
use stere_store::HealthState;

use crate::running::Running;
use stere_control::status::DeviceReport;
use stere_machine::places::host_of;
use stere_machine::size::show_duration;

pub fn reports(running: &Running) -> Vec<DeviceReport> {
    let entries = running.store.device_entries();
    running.note_slow();
    entries.iter().map(|entry| report(running, entry, &entries)).collect()
}

fn report(running: &Running, entry: &DeviceEntry, entries: &[DeviceEntry]) -> DeviceReport {
    let index = entry.index;
    let chunk_bytes = running.chunk_bytes;
    // Devices of the table always have a usage; a device that went in this moment has none.
    let usage = running.store.devices.device_usage(index).unwrap_or_default();
    let health = running.store.health.health(index);
    let left_out = running.left_out(index);
    let is_attached = running.attached(index).is_some();
    let device = running.store.health.pool_devices().into_iter().find(|device| device.index() == index);
    let silent_for = device.as_ref().and_then(|device| device.silent_for());
    let silent_because = device.as_ref().and_then(|device| device.silent_because());
    let slow_for = running.slow_for(index);
    let is_sick = health.is_some_and(|health| health.state == HealthState::Sick);
    let state = match DeviceState::from_code(entry.state) {
        Some(DeviceState::Failed) => "failed",
        Some(DeviceState::Offline) => "offline",
        _ if !is_attached && left_out.is_some() => "left out",
        _ if silent_for.is_some() || silent_because.is_some() => "silent",
        // One that was away and answers again is taken in within a moment; absence counts no errors.
        _ if usage.is_suspended && health.is_some_and(|health| health.write_errors > 0) => "failing",
        _ if !is_attached => "missing",
        Some(DeviceState::Leaving) => "leaving",
        Some(DeviceState::Removing) => "removing",
        _ if is_sick => "sick",
        _ if slow_for.is_some() => "slow",
        Some(DeviceState::Spare) => "spare",
        _ if usage.missing > 0 || (is_attached && usage.is_suspended) => "catching up",
        _ => "online",
    };
    let path = running.path_of(entry).unwrap_or_default();
    DeviceReport {
        name: entry.name.clone(),
        host: host_of(&entry.host, &path),
        path,
        class: Running::class_of(entry).word().into(),
        state: state.into(),
        size_bytes: entry.size_bytes,
        used_bytes: usage.chunks * chunk_bytes,
        read_errors: health.map_or(0, |health| health.read_errors),
        checksum_errors: health.map_or(0, |health| health.checksum_errors),
        id: entry.id.to_string(),
        shelf: entry.shelf.clone(),
        tags: entry.tags.clone(),
        number: index + 1,
        write_errors: health.map_or(0, |health| health.write_errors),
        repaired_blocks: health.map_or(0, |health| health.repaired),
        behind_bytes: if is_attached { usage.missing * chunk_bytes } else { 0 },
        unusable_bytes: unusable_slots(entry, entries) * chunk_bytes,
        leaves: DeviceState::from_code(entry.state) == Some(DeviceState::Removing),
        why: match silent_for {
            Some(silent_for) => {
                let because = silent_because.map(|because| format!(" ({because})")).unwrap_or_default();
                Some(format!("it has not answered for {}{because}", show_duration(silent_for.as_secs())))
            }
            None if silent_because.is_some() => silent_because,
            None if state == "slow" => slow_for.map(|slow_for| {
                let latency_ms = device.as_ref().map_or(0, |device| device.latency_us()) / 1000;
                let slow_for = show_duration(slow_for.as_secs());
                format!("it takes {latency_ms} ms for 64 KiB, many times what the others take, for {slow_for} now")
            }),
            None if state == "sick" => why_not_given_up(running, index),
            None if !is_attached => left_out.map(|left_out| left_out.why),
            None => device.as_ref().and_then(|device| device.told_in_vain()).map(|settings| {
                format!("it does not take all of {settings} (node); the log of `stere node serve` there says why")
            }),
        },
    }
}

/// Why a device that fails too often stays in use all the same.
fn why_not_given_up(running: &Running, index: DeviceIndex) -> Option<String> {
    let store = &running.store;
    let (limit, health) = (store.health.health_limits().retire_errors, store.health.health(index)?);
    if limit == 0 || health.errors() < limit {
        return None;
    }
    let why = match store.health.devices_to_retire().contains(&index) {
        true => "the other devices have no room for what it holds; add or replace one",
        false => "not all that it holds can be read without it; put another in its place while it still answers",
    };
    Some(format!(
        "it has failed {} times (retire_errors={limit}), and is not given up by itself: {why}",
        health.errors()
    ))
}

/// Two copies need two devices: of the largest, no more can be used than all others have together.
fn unusable_slots(entry: &DeviceEntry, entries: &[DeviceEntry]) -> u64 {
    let takes = |entry: &&DeviceEntry| DeviceState::from_code(entry.state) == Some(DeviceState::Active);
    if entries.len() < 2 || !takes(&entry) {
        return 0;
    }
    let others = entries.iter().filter(takes).filter(|other| other.index != entry.index);
    let others: u64 = others.map(|other| u64::from(other.slot_count)).sum();
    u64::from(entry.slot_count).saturating_sub(others)
}
