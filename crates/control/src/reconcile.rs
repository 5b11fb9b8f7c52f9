//! Bringing files in line with their policy: what is asked and told.

use serde::{Deserialize, Serialize};

/// What is asked of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Tell,
    Pause,
    Resume,
    /// Look at everything below this inode.
    Apply(u64),
}

/// Something that cannot go on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BlockedReport {
    pub path: String,
    pub why: String,
}

/// How far the work is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReconcileReport {
    pub state: String,
    /// Paths whose subtrees are not done yet.
    pub pending: Vec<String>,
    pub blocked: Vec<BlockedReport>,
    /// Since the mount.
    pub moved_bytes: u64,
    pub files: u64,
    pub damaged_blobs: u64,
}
