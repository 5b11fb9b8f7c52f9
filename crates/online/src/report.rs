//! The state of an open pool, gathered: devices, classes, media, findings, and one word for all of it.
//!
//! Read next: `report/judge.rs`, `report/findings.rs`.

pub mod devices;
pub mod findings;
pub mod judge;

use stere_naming::FileSystem;
use stere_policy::Class;

use crate::classes::{class_reports, classes, least_classes, scheme};
use crate::hosts::hosts_survived;
use crate::lose::lost_files;
use crate::running::Running;
use stere_control::status::{DeviceReport, Finding, RecoveryFacts, State, StatusReport};

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
    store.damage().forget_freed_damage();
    let devices = devices::reports(running);
    let floors = stere_pool::floors(store);
    let work = running.work();
    let judgement = judge::judge(running, &devices, &floors, &work);
    // The least of what files have, whatever class they are of.
    let survives = floors.by_class.values().copied().fold(judgement.survives, u8::min);
    let classes = classes(store);
    let least_classes = match survives < judgement.survives {
        true => least_classes(&classes, &floors.by_class, survives),
        false => Vec::new(),
    };
    let default = classes.wish(Class::default());
    let statistics = store.space().statistics(scheme(default, devices.len()));
    let (lost_files, has_more_lost_files) = lost_files(store);
    let class_reports = class_reports(store, &classes, devices.len(), &floors.by_class);
    running.look_for_volumes();
    let volumes = crate::media_report::volume_reports(running);
    let known = findings::Known { devices: &devices, classes: &class_reports, volumes: &volumes };
    let findings = findings::find(running, filesystem, &known);
    let (state, next) = with_findings(judgement.state, judgement.next, &findings);
    let warnings = facts.warnings_now(&devices);
    StatusReport {
        through: None,
        junctions: Vec::new(),
        lost_files,
        has_more_lost_files,
        pool: running.pool.clone(),
        state,
        survives,
        survives_hosts: hosts_survived(running),
        least_classes,
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
        unreadable_bytes: floors.lost_bytes + floors.lost_single_bytes + store.damage().damaged_blobs().1,
        work,
        scrub: running.scrub_report(),
        volumes,
        findings,
        cleaning: crate::cleaning::report(running),
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
