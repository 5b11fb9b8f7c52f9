//! What is wrong, or will be, beside the devices: no room, policies that cannot be kept, work that stands still, media.
//!
//! Each finding says what is wrong, where, and what to do. Those that take something from files or from who writes make the pool
//! degraded; the others are worth a word. Read next: `judge.rs`, which judges the devices.

use std::collections::BTreeSet;

use stere_format::SegmentKind;
use stere_naming::{FileSystem, Io};
use stere_store::SharedLog;

use crate::running::Running;
use stere_control::status::{ClassReport, DeviceReport, Finding};
use stere_control::tier::report::VolumeReport;
use stere_machine::clock;
use stere_machine::size::{self, count};

/// With less the next file finds no room.
const FULL_BELOW_BYTES: u64 = 4 << 20;

/// So many policies that cannot be kept are told, and so many places where storing anew stands still.
const TOLD_MAX: usize = 5;

fn finding(kind: &str, what: String, next: String) -> Finding {
    Finding { kind: kind.to_owned(), what, next, degrades: true }
}

/// What is gathered already.
pub struct Known<'a> {
    pub devices: &'a [DeviceReport],
    pub classes: &'a [ClassReport],
    pub volumes: &'a [VolumeReport],
}

/// All there is to say; of a pool that is not mounted what its devices tell.
pub fn find(running: &Running, filesystem: Option<&FileSystem>, known: &Known<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(shared_log(running));
    findings.extend(full(running, filesystem, known));
    findings.extend(catching_up(running, known.devices));
    findings.extend(slow(known.devices));
    if let Some(filesystem) = filesystem {
        findings.extend(policies(running, filesystem));
        findings.extend(blocked(running, filesystem));
        findings.extend(relaxed(filesystem));
    }
    for volume in known.volumes {
        findings.extend(medium(running, volume));
    }
    findings.extend(stuck(running));
    findings
}

/// Whoever syncs waits while the shared log takes nothing.
fn shared_log(running: &Running) -> Option<Finding> {
    let why = SharedLog::of(&running.store).trouble()?;
    let what = format!("whoever syncs or changes names waits: {why}");
    Some(finding("shared_log", what, "everything goes on by itself when it takes records again".into()))
}

/// Classes that take nothing more, and that files have or are as redundant as: who says `copies=1` has no class `scratch`.
fn full(running: &Running, filesystem: Option<&FileSystem>, known: &Known<'_>) -> Option<Finding> {
    let classes = crate::classes::classes(&running.store);
    let is_used = |name: &str| {
        let class = classes.find(name).unwrap_or_default();
        let is_default = class == stere_policy::Class::default();
        filesystem.map_or(is_default, |filesystem| {
            filesystem.classes().is_class_used(Io::BLOCKING, class).unwrap_or(is_default)
        })
    };
    let stored: BTreeSet<String> = stored_schemes(running);
    let is_full = |class: &&ClassReport| {
        class.free_bytes < FULL_BELOW_BYTES && (stored.contains(&class.scheme) || is_used(&class.class))
    };
    let full: Vec<&ClassReport> = known.classes.iter().filter(is_full).collect();
    let first = full.first()?;
    let names: Vec<&str> = full.iter().map(|class| class.class.as_str()).collect();
    let word = if names.len() == 1 { "class" } else { "classes" };
    let what = format!(
        "the pool is full: {} free for files of {word} {}, or as redundant; writes that need more end with ENOSPC",
        size::show(first.free_bytes),
        names.join(", ")
    );
    let release = match running.store.tier.media.has_volumes() {
        true => ", release archived files (`stere tier release PATH`)",
        false => "",
    };
    let next = format!("delete files{release}, or add a device with `stere device add {} DEVICE`", running.pool);
    Some(finding("full", what, next))
}

/// The redundancy of what is stored now.
fn stored_schemes(running: &Running) -> BTreeSet<String> {
    let segments = running.store.segments().all();
    let of_files = segments.iter().filter(|segment| segment.kind == SegmentKind::Data && segment.live_bytes() > 0);
    of_files.map(|segment| format!("{}+{}", segment.scheme.data, segment.scheme.parity)).collect()
}

/// A device that came back lacks what was written meanwhile.
fn catching_up(running: &Running, devices: &[DeviceReport]) -> Vec<Finding> {
    let behind = devices.iter().filter(|device| device.state == "catching up" && device.behind_bytes > 0);
    let told = |device: &DeviceReport| {
        let what = format!(
            "device {} is catching up: it lacks {} of what it should hold, which survives no further loss until then",
            device.name,
            size::show(device.behind_bytes)
        );
        let next = match running.read_only {
            true => "mount the pool for writing, so that it repairs itself".to_owned(),
            false => format!("wait; `stere device list {}` tells how far it is", running.pool),
        };
        finding("catching_up", what, next)
    };
    behind.map(told).collect()
}

/// A device that takes many times as long as the others.
fn slow(devices: &[DeviceReport]) -> Vec<Finding> {
    let slow = devices.iter().filter(|device| device.state == "slow");
    let told = |device: &DeviceReport| {
        let why = device.why.as_deref().unwrap_or("it takes many times what the others take");
        let next = "look at its health, its cable and what else uses it; reads and writes go round it where they can";
        finding("slow", format!("device {} is slow: {why}", device.name), next.to_owned())
    };
    slow.map(told).collect()
}

/// Policies that the devices cannot keep.
fn policies(running: &Running, filesystem: &FileSystem) -> Vec<Finding> {
    let caller = clock::own_caller(Io::BLOCKING);
    let (unkept, has_more) = match filesystem.unmet_policies().unkept_policies(&caller, TOLD_MAX) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "policies could not all be looked at");
            return Vec::new();
        }
    };
    let more = if has_more { ", and of more" } else { "" };
    let told = |one: stere_naming::Unkept| {
        let what = format!("policy of {}{more} cannot be kept: {}", one.by, one.why);
        let next = format!(
            "change the policy (`stere policy set`, `stere class change {0}`), or the devices (`stere device add {0}`, `stere device label {0}`)",
            running.pool
        );
        finding("policy", what, next)
    };
    unkept.into_iter().map(told).collect()
}

/// What programs sync and is not durable yet when that returns.
fn relaxed(filesystem: &FileSystem) -> Option<Finding> {
    let (places, has_more) = match filesystem.durability.relaxed(Io::BLOCKING) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "it cannot be told where fsync does not wait");
            return None;
        }
    };
    if places.is_empty() {
        return None;
    }
    let more = if has_more { " and more" } else { "" };
    let what = format!(
        "fsync does not wait where sync=relaxed is said ({}{more}): a crash may lose what was synced there within the mount's commit= seconds (5 unless it says otherwise)",
        places.join(", ")
    );
    let next = "nothing, if that is meant; else `stere policy unset PATH sync`".to_owned();
    Some(Finding { degrades: false, ..finding("relaxed", what, next) })
}

/// Files that cannot be stored as their policy says now.
fn blocked(running: &Running, filesystem: &FileSystem) -> Vec<Finding> {
    let status = match filesystem.reconciler().reconcile_status(Io::BLOCKING) {
        Ok(status) => status,
        Err(error) => {
            tracing::warn!(%error, "it cannot be told what stands still");
            return Vec::new();
        }
    };
    let pool = &running.pool;
    let told = |one: &stere_naming::Blocked| {
        let path = String::from_utf8_lossy(&one.path);
        let what = format!("files below {path} are not stored as their policy says: {}", one.why);
        let next =
            format!("see to that, then `stere reconcile resume {pool}`; `stere reconcile status {pool}` tells all");
        finding("reconcile", what, next)
    };
    let mut findings: Vec<Finding> = status.blocked.iter().take(TOLD_MAX).map(told).collect();
    if status.is_paused && !status.pending.is_empty() {
        let what = format!(
            "storing files as their policy says is paused, with {} to go",
            count(status.pending.len() as u64, "path")
        );
        let next = format!("let it go on with `stere reconcile resume {pool}`");
        findings.push(Finding { degrades: false, ..finding("reconcile", what, next) });
    }
    findings
}

/// A medium that is away or takes nothing more, as far as somebody depends on it.
fn medium(running: &Running, volume: &VolumeReport) -> Vec<Finding> {
    let VolumeReport { name, place, .. } = volume;
    let mut findings = Vec::new();
    let is_withheld = running.is_withheld(name);
    let online = match is_withheld {
        true => format!("see where it is, and agree: `stere device online {} {name}`", running.pool),
        false => {
            format!("bring {name} to {place}, or say where it is: `stere device online {} {name} PATH`", running.pool)
        }
    };
    let why = volume.complaint.as_deref().map(|text| format!(" ({text})")).unwrap_or_default();
    if volume.waiting_reads > 0 && matches!(volume.state.as_str(), "away" | "offline") {
        let what = format!("{} for medium {name}, which is {}{why}", waits(volume.waiting_reads), volume.state);
        findings.push(finding("medium_waits", what, online.clone()));
    }
    if volume.damaged_segments > 0 {
        let what = format!("{} of medium {name} are damaged or lacking", count(volume.damaged_segments, "segment"));
        let next = format!(
            "`stere media verify {} {name}` copies out again what devices or another medium have; what is nowhere else, restore on {place}, then verify again, or restore these files from a backup",
            running.pool
        );
        findings.push(finding("medium_damaged", what, next));
    }
    let only_here = size::show(volume.only_here_bytes);
    match volume.state.as_str() {
        "away" if volume.only_here_bytes > 0 => {
            let what = format!("medium {name} is away, and {only_here} are nowhere else{why}");
            findings.push(finding("medium_away", what, online));
        }
        "away" if volume.waiting_segments > 0 => {
            let what =
                format!("medium {name} is away, and {} wait to be copied to it{why}", size::show(volume.waiting_bytes));
            findings.push(finding("medium_away", what, online));
        }
        "away" if is_withheld => {
            let what = format!("medium {name} is not used{why}");
            findings.push(Finding { degrades: false, ..finding("medium_away", what, online) });
        }
        "offline" if volume.only_here_bytes > 0 => {
            let what = format!("medium {name} was taken away, and {only_here} are nowhere else");
            findings.push(Finding { degrades: false, ..finding("medium_away", what, online) });
        }
        "full" => {
            let what =
                format!("medium {name} is full, and {} wait to be copied to it", size::show(volume.waiting_bytes));
            let pool = &running.pool;
            let next = format!(
                "make room on it (`stere media repack {pool} {name}`), or let another one take over (`stere device add {pool} dir:PATH`, `stere media retire {pool} {name} --to NAME`)"
            );
            findings.push(finding("medium_full", what, next));
        }
        _ => {}
    }
    findings
}

fn waits(reads: u64) -> String {
    if reads == 1 { "1 read waits".to_owned() } else { format!("{reads} reads wait") }
}

/// Segments that cannot be copied out.
fn stuck(running: &Running) -> Option<Finding> {
    let stuck = running.store.tier.stager.stuck_uploads();
    let first = stuck.first()?;
    let what = format!("{} cannot be copied to media: {first}", count(stuck.len() as u64, "segment"));
    Some(finding("medium_stuck", what, format!("`stere tier queue {}` tells all", running.pool)))
}
