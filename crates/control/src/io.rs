//! What the load on a mount is like, on its way between commands and daemons.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What is asked about the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// What was counted; with an inode of what is below that directory, which is counted for itself from now on.
    Tell { below: Option<u64> },
    /// The same as pictures.
    Draw { below: Option<u64> },
    /// What follows from it.
    Advise { below: Option<u64> },
    /// Write a trace into a new file of the daemon's machine.
    Record { file: PathBuf, seconds: u64, bytes_max: u64, names: Names },
    /// How that is.
    Recording,
    /// End it.
    Stop,
}

/// What of names comes into a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    Plain,
    /// Hashed under a key that nobody keeps.
    Hashed,
    None,
}

/// Calls of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindLine {
    pub kind: String,
    pub calls: u64,
    pub errors: u64,
    pub bytes: u64,
    pub latency_median_ns: u64,
    pub latency_p99_ns: u64,
}

/// The Hurst parameter, with its 95 % interval; or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HurstLine {
    pub estimator: String,
    pub value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub why_none: Option<String>,
}

/// What was counted of one subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubjectLine {
    /// `pool`, `volume`, `class`, `machine`, `directory`, or `other` of these.
    pub of: String,
    pub name: String,
    pub calls: u64,
    pub data_calls: u64,
    pub calls_per_second: Option<f64>,
    pub read_share: Option<f64>,
    pub sequential_share: Option<f64>,
    pub files: u64,
    pub read_median_bytes: Option<u64>,
    pub write_median_bytes: Option<u64>,
    pub arrival_median_ns: Option<u64>,
    pub in_flight_mean: Option<f64>,
    pub kinds: Vec<KindLine>,
    pub hurst: Vec<HurstLine>,
    /// Sizes of a cache of content, and what share of requests each misses.
    pub misses: Vec<(u64, f64)>,
}

/// All that was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IoReport {
    pub seconds: f64,
    pub missed_calls: u64,
    pub subjects: Vec<SubjectLine>,
    /// The same for people.
    pub text: String,
}

/// One advice, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdviceLine {
    pub key: String,
    /// As `stere policy set` takes it, but for `memory`, an option of the mount; none where there is no advice.
    pub setting: Option<String>,
    pub because: String,
    pub confidence: Option<String>,
    pub gain: Option<String>,
}

/// How a recording is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingReport {
    pub is_going_on: bool,
    pub calls: u64,
    pub failure: Option<String>,
}
