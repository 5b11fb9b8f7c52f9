//! Rules of a pool or directory: what is asked, and what they would change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is asked about rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// All versions.
    Show,
    /// A new version.
    Load { text: String },
    /// What rules changed.
    Log,
}

/// A version of the pool's rules.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VersionReport {
    pub version: u64,
    pub seconds: i64,
    pub user: u32,
    pub text: String,
}

/// Something that rules changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogReport {
    pub seconds: i64,
    pub inode: u64,
    pub version: u64,
    pub what: String,
}

/// A file that rules would change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangeReport {
    pub path: String,
    pub bytes: u64,
    pub before: String,
    pub after: String,
    /// What it takes on devices now, by their names.
    #[serde(default)]
    pub on_devices: BTreeMap<String, u64>,
    /// What it would take on all of them, encoded as it is now.
    #[serde(default)]
    pub would_take_bytes: u64,
    #[serde(default)]
    pub may_lie_on: Vec<String>,
}

/// What stays on devices: each now, and with the rules.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ResidencyForecast {
    pub pinned_files: [u64; 2],
    pub units: [u64; 2],
    pub names: [u64; 2],
}

impl ResidencyForecast {
    /// On one line.
    pub fn line(&self) -> String {
        let counts = [
            ("files are pinned", self.pinned_files),
            ("directories are units", self.units),
            ("let names go that nobody uses", self.names),
        ];
        let counts = counts.map(|(what, [now, then])| format!("{then} {what} (now {now})"));
        format!("with them {}", counts.join(", "))
    }
}
