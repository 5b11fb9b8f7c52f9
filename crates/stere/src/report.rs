//! The state of a pool as `stere status` tells it: gathered from an open store, sent over the control socket, shown.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use stere_format::Scheme;
use stere_policy::{Class, Wish};
use stere_pool::{Assembly, DeviceClass};
use stere_store::{RecoveryReport, Store};

use crate::error::{DATA_LOST, DEGRADED, DONE};
use crate::size;

/// How a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Healthy,
    /// Something is missing, and another loss can still be survived.
    Degraded,
    /// The next loss would lose data, or the pool stopped writing.
    AtRisk,
    Lost,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceReport {
    pub name: String,
    pub path: String,
    pub class: String,
    /// `online`, `missing` or `stale`.
    pub state: String,
    pub size_bytes: u64,
    pub used_bytes: u64,
    pub read_errors: u64,
    pub checksum_errors: u64,
    pub id: String,
    pub host: String,
    pub shelf: String,
    pub tags: Vec<String>,
}

/// Room for content of one class.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassReport {
    pub class: String,
    /// As `1+1`: data and parity units.
    pub scheme: String,
    pub survives: u8,
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// What the last opening found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RecoveryFacts {
    pub clean: bool,
    pub groups_replayed: u64,
    pub changes_replayed: u64,
    pub groups_cut: u64,
    pub records_repaired: u64,
    pub duration_ms: u64,
}

impl RecoveryFacts {
    pub fn new(report: &RecoveryReport, duration_ms: u64) -> RecoveryFacts {
        RecoveryFacts {
            clean: report.clean,
            groups_replayed: report.groups_replayed,
            changes_replayed: report.changes_replayed,
            groups_cut: report.groups_cut,
            records_repaired: report.records_repaired,
            duration_ms,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StatusReport {
    pub pool: String,
    pub state: State,
    /// Device losses that files of the default class and all names survive from now on.
    pub survives: u8,
    pub devices: Vec<DeviceReport>,
    pub next: String,
    pub id: String,
    /// Where it is mounted, if it is.
    pub mountpoint: Option<String>,
    pub read_only: bool,
    pub classes: Vec<ClassReport>,
    pub raw_bytes: u64,
    pub live_raw_bytes: u64,
    pub generation: u64,
    pub journal_bytes: u64,
    pub journal_used_bytes: u64,
    pub warnings: Vec<String>,
    pub recovery: RecoveryFacts,
}

/// What is known of a pool beside its store.
pub struct Facts {
    pub mountpoint: Option<String>,
    pub read_only: bool,
    pub warnings: Vec<String>,
    pub recovery: RecoveryFacts,
}

/// Gathers the state of an open pool.
pub fn gather(assembly: &Assembly, store: &Store, facts: &Facts) -> StatusReport {
    let present = assembly.members.len();
    let missing = assembly.missing().len();
    let default = Wish::of_class(Class::default());
    let (_, parity) = default.scheme(assembly.entries.len());
    let metadata = assembly.newest.checkpoint.first().map_or(0, |part| part.place.scheme.parity);
    // What was stored before the loss has that many copies fewer.
    let survives = usize::from(parity.min(metadata)).saturating_sub(missing) as u8;
    let (state, next) = judge(assembly, store, survives);
    let statistics = store.statistics(scheme(default, present));
    StatusReport {
        pool: assembly.newest.pool_name.clone(),
        state,
        survives,
        devices: device_reports(assembly, store),
        next,
        id: assembly.newest.pool.to_string(),
        mountpoint: facts.mountpoint.clone(),
        read_only: facts.read_only,
        classes: class_reports(store, present),
        raw_bytes: statistics.raw_bytes,
        live_raw_bytes: statistics.live_raw_bytes,
        generation: statistics.generation,
        journal_bytes: statistics.journal_bytes,
        journal_used_bytes: statistics.journal_used_bytes,
        warnings: facts.warnings.clone(),
        recovery: facts.recovery.clone(),
    }
}

fn scheme(wish: Wish, devices: usize) -> Scheme {
    let (data, parity) = wish.scheme(devices);
    Scheme { data, parity }
}

fn judge(assembly: &Assembly, store: &Store, survives: u8) -> (State, String) {
    let missing = assembly.missing();
    let names: Vec<&str> = missing.iter().map(|entry| entry.name.as_str()).collect();
    if let Some(cause) = store.failure() {
        return (State::AtRisk, format!("the pool stopped writing ({cause}): check the devices, then mount it again"));
    }
    if !missing.is_empty() {
        let next = format!("attach the missing device {} and mount again", names.join(", "));
        return (if survives > 0 { State::Degraded } else { State::AtRisk }, next);
    }
    let damaged: Vec<&str> = assembly
        .members
        .iter()
        .filter(|member| !member.damaged.is_empty())
        .map(|member| member.path.as_str())
        .collect();
    if !damaged.is_empty() {
        let next = format!("some superblock copies on {} are damaged; watch that device", damaged.join(", "));
        return (State::Degraded, next);
    }
    let statistics = store.device_statistics();
    if let Some((index, errors)) = statistics.iter().find(|(_, of)| of.read_errors + of.checksum_errors > 0) {
        let name = assembly.entries.iter().find(|entry| entry.index == *index).map_or("?", |entry| entry.name.as_str());
        let next = format!(
            "device {name} failed {} reads and gave wrong bytes {} times since the mount; look at its health, and run `stere check` when you can unmount",
            errors.read_errors, errors.checksum_errors
        );
        return (State::Degraded, next);
    }
    (State::Healthy, "nothing".into())
}

fn device_reports(assembly: &Assembly, store: &Store) -> Vec<DeviceReport> {
    let mut chunks: HashMap<u16, u64> = HashMap::new();
    for segment in store.segments().all() {
        for place in segment.chunks() {
            *chunks.entry(place.device).or_default() += 1;
        }
    }
    let statistics: HashMap<u16, stere_store::DeviceStatistics> = store.device_statistics().into_iter().collect();
    let chunk_bytes = u64::from(assembly.newest.layout.chunk_bytes);
    let report = |entry: &stere_format::DeviceEntry| {
        let find = |list: &[stere_pool::Member]| {
            list.iter().find(|member| member.superblock.device == entry.id).map(|member| member.path.clone())
        };
        let (state, path) = match (find(&assembly.members), find(&assembly.stale)) {
            (Some(path), _) => ("online", path),
            (None, Some(path)) => ("stale", path),
            (None, None) => ("missing", String::new()),
        };
        let errors = statistics.get(&entry.index).copied().unwrap_or_default();
        DeviceReport {
            name: entry.name.clone(),
            path,
            class: DeviceClass::from_code(entry.class).word().into(),
            state: state.into(),
            size_bytes: entry.size_bytes,
            used_bytes: chunks.get(&entry.index).copied().unwrap_or(0) * chunk_bytes,
            read_errors: errors.read_errors,
            checksum_errors: errors.checksum_errors,
            id: entry.id.to_string(),
            host: entry.host.clone(),
            shelf: entry.shelf.clone(),
            tags: entry.tags.clone(),
        }
    };
    assembly.entries.iter().map(report).collect()
}

fn class_reports(store: &Store, devices: usize) -> Vec<ClassReport> {
    let report = |class: Class| {
        let scheme = store.fit(scheme(Wish::of_class(class), devices));
        let statistics = store.statistics(scheme);
        ClassReport {
            class: class.word().into(),
            scheme: format!("{}+{}", scheme.data, scheme.parity),
            survives: scheme.parity,
            total_bytes: statistics.total_bytes,
            free_bytes: statistics.free_bytes.min(statistics.total_bytes),
        }
    };
    Class::ALL.into_iter().map(report).collect()
}

impl StatusReport {
    pub fn exit_code(&self) -> u8 {
        match self.state {
            State::Healthy => DONE,
            State::Degraded | State::AtRisk => DEGRADED,
            State::Lost => DATA_LOST,
        }
    }

    fn state_text(&self) -> &'static str {
        match self.state {
            State::Healthy => "healthy",
            State::Degraded => "degraded",
            State::AtRisk => "at risk",
            State::Lost => "lost",
        }
    }

    /// One screen.
    pub fn print(&self, exact: bool) {
        let mounted = match (&self.mountpoint, self.read_only) {
            (Some(point), false) => format!("mounted on {point}"),
            (Some(point), true) => format!("mounted on {point}, read only"),
            (None, _) => "not mounted".into(),
        };
        println!("pool {}: {}, {mounted}", self.pool, self.state_text());
        println!("survives {} device losses; next: {}", self.survives, self.next);
        for warning in &self.warnings {
            println!("note: {warning}");
        }
        println!();
        print_devices(&self.devices, exact);
        println!();
        print_classes(&self.classes, exact);
    }
}

pub fn print_devices(devices: &[DeviceReport], exact: bool) {
    let width = devices.iter().map(|device| device.name.len()).max().unwrap_or(0).max(6);
    println!("{:width$}  {:7}  {:7}  {:>10}  {:>10}  path", "device", "state", "class", "size", "used");
    for device in devices {
        let (size, used) = (size::show_as(device.size_bytes, exact), size::show_as(device.used_bytes, exact));
        let name = &device.name;
        println!("{name:width$}  {:7}  {:7}  {size:>10}  {used:>10}  {}", device.state, device.class, device.path);
    }
}

pub fn print_classes(classes: &[ClassReport], exact: bool) {
    println!("{:9}  {:6}  {:8}  {:>10}  {:>10}", "class", "scheme", "survives", "total", "free");
    for class in classes {
        let (total, free) = (size::show_as(class.total_bytes, exact), size::show_as(class.free_bytes, exact));
        println!("{:9}  {:6}  {:8}  {total:>10}  {free:>10}", class.class, class.scheme, class.survives);
    }
}
