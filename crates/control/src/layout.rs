//! Where a file lies, run by run, and what has to be fetched to read it.

use serde::{Deserialize, Serialize};

/// Bytes of a file that lie alike.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub start: u64,
    pub end: u64,
    pub scheme: String,
    /// How many device losses they survive.
    pub survives: u8,
    /// Data before parity; then media.
    pub devices: Vec<String>,
    /// The hosts of the devices, each once, in the order of the devices; a device without one is not told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// How many hosts may be lost with all their devices; a device without one counts as a host of its own. None where no host is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survives_hosts: Option<u8>,
    /// Whether it has to be fetched from a volume to be read.
    #[serde(default)]
    pub is_released: bool,
    /// The medium that it has to be fetched from, where its volume has many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Source>,
}

/// A medium that bytes have to be fetched from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    pub volume: String,
    pub cartridge: String,
    /// Until the first byte, as things were up to now.
    pub seconds: f64,
}

/// A part of a file's runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Layout {
    pub runs: Vec<Run>,
    /// Where the next part begins.
    pub next: Option<u64>,
    /// Media that have to be fetched to read the file, where its volume has many.
    #[serde(default)]
    pub fetches: Vec<Fetch>,
}

/// A medium that has to be brought to a drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fetch {
    pub volume: String,
    pub cartridge: String,
    pub segments: u64,
    /// Until the first byte, as things were up to now.
    pub seconds: f64,
}
