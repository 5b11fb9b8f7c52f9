//! How far scrubbing is, and what it found.

use serde::{Deserialize, Serialize};

use stere_machine::clock;
use stere_machine::size::{self, show_duration};

/// What could not be repaired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    pub path: Option<String>,
    pub inode: u64,
    pub offset: u64,
    pub length: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// `never`, `running`, `paused`, `done` or `given up`.
    pub state: String,
    pub bytes_checked: u64,
    pub bytes_total: u64,
    pub repaired_blocks: u64,
    pub findings: u64,
    pub passes: u64,
    /// Seconds since 1970 when the last pass ended.
    pub ended: Option<i64>,
    pub damages: Vec<Damage>,
    /// Why the last pass was given up, if it was.
    #[serde(default)]
    pub failure: Option<String>,
    /// Damaged places that are known from earlier passes and reads.
    #[serde(default)]
    pub known: u64,
}

impl ScrubReport {
    /// On one line, if there is anything to tell.
    pub fn text(&self) -> Option<String> {
        // What an earlier mount found is not forgotten.
        let findings = if self.state == "done" { self.findings.max(self.known) } else { self.findings };
        let found = format!("{} blocks repaired, {findings} not repairable", self.repaired_blocks);
        match self.state.as_str() {
            "running" | "paused" => Some(format!(
                "scrub {}: {} of {}, {found}",
                self.state,
                size::show(self.bytes_checked),
                size::show(self.bytes_total)
            )),
            "done" => {
                let ago = self.ended.map(|ended| (clock::now().seconds - ended).max(0).cast_unsigned());
                let ago = ago.map(|seconds| format!(" {} ago", show_duration(seconds))).unwrap_or_default();
                Some(format!("scrub done{ago}: {found}"))
            }
            "given up" => {
                let why = self.failure.as_deref().unwrap_or("it failed again and again");
                Some(format!("scrub given up at {}: {why}", size::show(self.bytes_checked)))
            }
            _ => None,
        }
    }
}
