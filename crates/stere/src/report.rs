//! The state of a pool as `stere status` tells it: gathered from an open store, sent over the control socket, shown.

mod devices;
mod findings;
mod judge;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use stere_format::Scheme;
use stere_naming::{FileSystem, Io};
use stere_policy::{Class, Classes, Wish};
use stere_store::{RecoveryReport, Store};

use crate::error::{DATA_LOST, DEGRADED, DONE};
use crate::lose::LostLine;
use crate::running::Running;
use crate::running::forecast::show_duration;
use crate::running::mend::WorkReport;
use crate::running::scrub::ScrubReport;
use crate::size;

pub use findings::Finding;

/// So many files are named by `status`.
const LOST_FILES_MAX: usize = 20;

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
    /// `online`, `sick`, `slow`, `silent` (does not answer), `failing` (takes no writes), `catching up`, `leaving`, `removing`, `spare`, `offline`, `failed`, `left out` or `missing`.
    pub state: String,
    pub size_bytes: u64,
    pub used_bytes: u64,
    pub read_errors: u64,
    pub checksum_errors: u64,
    pub id: String,
    pub host: String,
    pub shelf: String,
    pub tags: Vec<String>,
    /// Its number in the pool, from 1.
    pub number: u16,
    pub write_errors: u64,
    /// Blocks that were found wrong and written again.
    pub repaired_blocks: u64,
    /// What it still lacks of what it should hold.
    pub behind_bytes: u64,
    /// Of its size, what no segment of two or more copies can use because the other devices are too small.
    pub unusable_bytes: u64,
    /// Why it is left out, how it is silent or slow, or why it is sick and not given up.
    pub why: Option<String>,
    /// Whether it is to leave the pool, and has not yet.
    #[serde(default)]
    pub leaves: bool,
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
    /// Bytes of files that cannot be read from the devices that are there.
    pub unreadable_bytes: u64,
    /// The first files that lose something by that; `stere lose` names them all.
    pub lost_files: Vec<LostLine>,
    pub has_more_lost_files: bool,
    /// What is being repaired, caught up or moved.
    pub work: WorkReport,
    pub scrub: ScrubReport,
    /// Tertiary volumes.
    #[serde(default)]
    pub volumes: Vec<crate::tier::VolumeReport>,
    /// What is wrong beside the devices, each with what to do.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// What is known of a pool beside its store.
pub struct Facts {
    pub mountpoint: Option<String>,
    /// What was said when it was opened.
    pub warnings: Vec<String>,
    /// Of that, what is true no longer than devices are away.
    pub warnings_of_absent: Vec<String>,
    pub recovery: RecoveryFacts,
}

impl Facts {
    /// What of it is true still.
    fn warnings_now(&self, devices: &[DeviceReport]) -> Vec<String> {
        let is_away = |device: &DeviceReport| matches!(device.state.as_str(), "missing" | "left out" | "offline");
        let is_complete = !devices.iter().any(is_away);
        let is_true = |warning: &&String| !(is_complete && self.warnings_of_absent.contains(warning));
        self.warnings.iter().filter(is_true).cloned().collect()
    }
}

/// The devices of an open pool.
pub fn devices(running: &Running) -> Vec<DeviceReport> {
    devices::reports(running)
}

/// Gathers the state of an open pool; of one that is mounted with what its file system tells.
pub fn gather(running: &Running, facts: &Facts, filesystem: Option<&FileSystem>) -> StatusReport {
    let store = &running.store;
    store.forget_freed_damage();
    let devices = devices::reports(running);
    let floors = stere_pool::floors(store);
    let work = running.work();
    let judgement = judge::judge(running, &devices, &floors, &work);
    let classes = classes(store);
    let default = classes.wish(Class::default());
    let statistics = store.statistics(scheme(default, devices.len()));
    let (lost_files, has_more_lost_files) = lost_files(store);
    let class_reports = class_reports(store, &classes, devices.len(), &floors.by_class);
    running.look_for_volumes();
    let volumes = crate::tier::volume_reports(running);
    let known = findings::Known { devices: &devices, classes: &class_reports, volumes: &volumes };
    let findings = findings::find(running, filesystem, &known);
    let (state, next) = with_findings(judgement.state, judgement.next, &findings);
    let warnings = facts.warnings_now(&devices);
    StatusReport {
        lost_files,
        has_more_lost_files,
        pool: running.pool.clone(),
        state,
        // The least of what files have, whatever class they are of.
        survives: floors.by_class.values().copied().fold(judgement.survives, u8::min),
        next,
        id: running.id.clone(),
        mountpoint: facts.mountpoint.clone(),
        read_only: running.read_only,
        classes: class_reports,
        devices,
        raw_bytes: statistics.raw_bytes,
        live_raw_bytes: statistics.live_raw_bytes,
        generation: statistics.generation,
        journal_bytes: statistics.journal_bytes,
        journal_used_bytes: statistics.journal_used_bytes,
        warnings,
        recovery: facts.recovery.clone(),
        unreadable_bytes: floors.lost_bytes + floors.lost_single_bytes + store.damaged_blobs().1,
        work,
        scrub: running.scrub_report(),
        volumes,
        findings,
    }
}

/// How the pool is with all that was found: where the devices are well, the first finding says what to do.
fn with_findings(state: State, next: String, findings: &[Finding]) -> (State, String) {
    if state != State::Healthy {
        return (state, next);
    }
    let first = findings.iter().find(|finding| finding.degrades);
    match (first, findings.first()) {
        (Some(finding), _) => (State::Degraded, format!("{}: {}", finding.what, finding.next)),
        (None, Some(finding)) => (State::Healthy, format!("{}: {}", finding.what, finding.next)),
        (None, None) => (state, next),
    }
}

/// The first files that lose content without the devices that are away, and whether there are more.
pub fn lost_files(store: &Store) -> (Vec<LostLine>, bool) {
    let mut found: Vec<LostLine> = Vec::new();
    let mut has_more = false;
    let walked = stere_naming::lost_files(store, &store.loss(&|_| false), &mut |file| {
        if found.len() == LOST_FILES_MAX {
            has_more = true;
            return ControlFlow::Break(());
        }
        if !file.is_repeated {
            found.push(file.into());
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = walked {
        tracing::warn!(%error, "files that cannot be read could not all be named");
        has_more = true;
    }
    (found, has_more)
}

fn scheme(wish: Wish, devices: usize) -> Scheme {
    let (data, parity) = wish.scheme(devices.max(1));
    Scheme { data, parity }
}

/// The pool's classes; the built-in ones where they cannot be read.
pub fn classes(store: &Store) -> Classes {
    stere_naming::read_classes(store, Io::BLOCKING).unwrap_or_else(|error| {
        tracing::warn!(%error, "the pool's classes cannot be read");
        Classes::default()
    })
}

pub fn class_reports(store: &Store, classes: &Classes, devices: usize, have: &BTreeMap<u8, u8>) -> Vec<ClassReport> {
    let report = |class: Class| {
        let scheme = store.fit(scheme(classes.wish(class), devices));
        let statistics = store.statistics(scheme);
        ClassReport {
            class: classes.name(class),
            scheme: format!("{}+{}", scheme.data, scheme.parity),
            // What new files get, or what files have if that is less.
            survives: have.get(&class.code()).copied().unwrap_or(scheme.parity).min(scheme.parity),
            total_bytes: statistics.total_bytes,
            free_bytes: statistics.free_bytes.min(statistics.total_bytes),
        }
    };
    classes.in_use().map(|(class, _)| report(class)).collect()
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
            State::AtRisk => "degraded, at risk",
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
        println!("survives the loss of {}; next: {}", count(u64::from(self.survives), "device"), self.next);
        if let Some(work) = work_text(&self.work) {
            println!("{work}");
        }
        if let Some(scrub) = self.scrub.text() {
            println!("{scrub}");
        }
        let is_told = |finding: &&Finding| !self.next.starts_with(&finding.what);
        for Finding { what, next, .. } in self.findings.iter().filter(is_told) {
            println!("{what}: {next}");
        }
        self.lost_files.iter().for_each(LostLine::print);
        if self.has_more_lost_files {
            let first =
                self.devices.iter().find(|device| matches!(device.state.as_str(), "missing" | "left out" | "offline"));
            match first {
                Some(device) => println!("and more: `stere lose {}` names all", device.name),
                None => println!("and more: `stere find state=lost PATH` names all"),
            }
        }
        for warning in &self.warnings {
            println!("note: {warning}");
        }
        println!();
        print_devices(&self.devices, exact);
        crate::tier::print_volumes_if_any(&self.volumes);
        println!();
        print_classes(&self.classes, exact);
    }
}

/// A number with its word, which ends in s if it is not one.
pub fn count(number: u64, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// The work in the background, if there is any.
pub fn work_text(work: &WorkReport) -> Option<String> {
    if work.is_done() {
        return None;
    }
    if work.chunks_left == 0 {
        return Some(format!("evening out how full the devices are: {} moved", size::show(work.bytes_done)));
    }
    let hopeless = match work.impossible_chunks {
        0 => String::new(),
        chunks => format!("; {chunks} chunks find no place or no source"),
    };
    Some(format!(
        "repairing: {} left, about {}{hopeless}",
        size::show(work.bytes_left),
        show_duration(work.seconds_left)
    ))
}

pub fn print_devices(devices: &[DeviceReport], exact: bool) {
    let width = devices.iter().map(|device| device.name.len()).max().unwrap_or(0).max(6);
    let states = devices.iter().map(|device| device.state.len()).max().unwrap_or(0).max(7);
    println!(
        "{:width$}  {:states$}  {:7}  {:>10}  {:>10}  {:>6}  path",
        "device", "state", "class", "size", "used", "errors"
    );
    for device in devices {
        let (size, used) = (size::show_as(device.size_bytes, exact), size::show_as(device.used_bytes, exact));
        let errors = device.read_errors + device.write_errors + device.checksum_errors;
        let DeviceReport { name, state, class, path, .. } = device;
        println!("{name:width$}  {state:states$}  {class:7}  {size:>10}  {used:>10}  {errors:>6}  {path}");
    }
    for device in devices {
        if device.behind_bytes > 0 {
            println!("{} lacks {} of what it should hold", device.name, size::show_as(device.behind_bytes, exact));
        }
        if let Some(why) = &device.why {
            match device.state.as_str() {
                "silent" | "slow" | "sick" => println!("{}: {why}", device.name),
                _ => println!("{} is left out: {why}", device.name),
            }
        }
        if device.unusable_bytes > 0 {
            println!(
                "{} of {} cannot be used for two copies: the other devices together are smaller than it",
                size::show_as(device.unusable_bytes, exact),
                device.name
            );
        }
    }
}

pub fn print_classes(classes: &[ClassReport], exact: bool) {
    println!("{:9}  {:6}  {:8}  {:>10}  {:>10}", "class", "scheme", "survives", "total", "free");
    for class in classes {
        let (total, free) = (size::show_as(class.total_bytes, exact), size::show_as(class.free_bytes, exact));
        println!("{:9}  {:6}  {:8}  {total:>10}  {free:>10}", class.class, class.scheme, class.survives);
    }
}
