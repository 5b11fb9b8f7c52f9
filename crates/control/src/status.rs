//! The state of a pool, as `stere status` tells it to people and programs.

use serde::{Deserialize, Serialize};
use stere_store::RecoveryReport;

use crate::lose::LostLine;
use crate::scrub::ScrubReport;
use stere_machine::error::{DATA_LOST, DEGRADED, DONE};
use stere_machine::size::show_duration;

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
    /// Device losses that all files and all names survive from now on.
    pub survives: u8,
    /// Hosts that they survive with all their devices; null where no host has several, so that it is the same.
    #[serde(default)]
    pub survives_hosts: Option<u8>,
    /// The classes of the files for which that is less than for everything else.
    #[serde(default)]
    pub least_classes: Vec<String>,
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
    pub volumes: Vec<crate::tier::report::VolumeReport>,
    /// What is wrong beside the devices, each with what to do.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// How segments are chosen for cleaning, and what it costs.
    #[serde(default)]
    pub cleaning: crate::cleaning::CleaningReport,
    /// How this machine reaches the pool's owner, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<ThroughReport>,
    /// Pools that are mounted in this one, on this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub junctions: Vec<crate::junction::JunctionReport>,
}

/// How a machine that mounts a pool reaches the one that owns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThroughReport {
    /// The owner's host; null while nobody owns the pool.
    pub host: Option<String>,
    /// `connected`, `away` or `refused`.
    pub state: ThroughState,
    /// For how long the owner has not been reached; 0 while it is.
    pub away_seconds: u64,
    /// Why it is not reached.
    pub why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThroughState {
    Connected,
    /// Calls wait until there is an owner.
    Away,
    /// Calls get errors.
    Refused,
}

impl ThroughReport {
    /// What is wrong with it, for people; none while the owner is reached.
    pub fn problem(&self, pool: &str) -> Option<String> {
        let why = self.why.as_deref().filter(|why| !why.is_empty()).unwrap_or("no beat of it was seen");
        let away = show_duration(self.away_seconds);
        match (self.state, &self.host) {
            (ThroughState::Connected, _) => None,
            (ThroughState::Refused, _) => {
                Some(format!("the owner of the pool '{pool}' does not take this machine: {why}"))
            }
            (ThroughState::Away, None) => {
                let why = self.why.as_deref().filter(|why| !why.is_empty()).map(|why| format!(" ({why})"));
                let why = why.unwrap_or_default();
                Some(format!("no owner of the pool '{pool}' has been found for {away}{why}; calls wait"))
            }
            (ThroughState::Away, Some(host)) => Some(format!(
                "the pool '{pool}' is owned by host {host}, which has not been reached for {away}: {why}; calls wait for it or for the next owner"
            )),
        }
    }
}

impl StatusReport {
    pub fn exit_code(&self) -> u8 {
        match self.state {
            State::Healthy => DONE,
            State::Degraded | State::AtRisk => DEGRADED,
            State::Lost => DATA_LOST,
        }
    }

    /// How it is, in words.
    pub fn state_text(&self) -> &'static str {
        match self.state {
            State::Healthy => "healthy",
            State::Degraded => "degraded",
            State::AtRisk => "degraded, at risk",
            State::Lost => "lost",
        }
    }
}

/// Work in the background, as `status` tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkReport {
    pub bytes_left: u64,
    pub chunks_left: u64,
    pub bytes_done: u64,
    /// Chunks for which there is no room, or not enough others to rebuild them from.
    pub impossible_chunks: u64,
    /// Of them, those that no device gives now: they stay where they are.
    #[serde(default)]
    pub unreadable_chunks: u64,
    /// What devices that are away lack by now.
    pub waiting_bytes: u64,
    pub bytes_per_second: u64,
    pub seconds_left: u64,
    /// Whether chunks move so that all devices are filled alike.
    pub rebalancing: bool,
    /// Whether what was written is yet to be noted on the devices.
    #[serde(default)]
    pub settling: bool,
}

impl WorkReport {
    pub fn is_done(&self) -> bool {
        self.chunks_left == 0 && !self.rebalancing
    }
}

/// Something that is wrong, or is going to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// `full`, `policy`, `reconcile`, `catching_up`, `medium_away`, `medium_full`, `medium_damaged`, `medium_waits`,
    /// `medium_stuck` or `pool_not_mounted`.
    pub kind: String,
    /// What is wrong, and where.
    pub what: String,
    /// What to do about it.
    pub next: String,
    /// Whether the pool is degraded by it.
    pub degrades: bool,
}
