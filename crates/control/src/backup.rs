//! Destinations of backups: what is asked of them and told of them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stere_machine::error::{Result, refused};

/// What is asked of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Add {
        name: String,
        path: PathBuf,
        every_seconds: u32,
        keep: u16,
        only: String,
        adopt: bool,
    },
    Remove {
        name: String,
    },
    /// All of them without a name.
    Run {
        name: Option<String>,
    },
    List,
}

/// A destination, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    pub name: String,
    pub path: PathBuf,
    pub every_seconds: u32,
    pub keep: u16,
    pub only: String,
    /// When the last complete run began, in seconds since 1970; null: there was none.
    pub done_seconds: Option<i64>,
    pub is_attached: bool,
    pub is_running: bool,
    pub is_asked: bool,
    /// The last run since the mount, or the one under way.
    pub last: Option<Outcome>,
}

/// What became of a run, and of the one under way.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Why it did not happen, or ended early.
    pub problem: Option<String>,
    /// Files that were to be there.
    pub files: u64,
    pub copied_files: u64,
    pub copied_bytes: u64,
    pub taken_files: u64,
    /// Files whose copies were there under another name.
    #[serde(default)]
    pub renamed_files: u64,
    /// What could not be copied, and why; some of them by path.
    pub failed_files: u64,
    pub failed: Vec<(String, String)>,
}

/// The refusal where a pool has no such destination.
pub fn no_destination<T>(pool: &str, name: &str) -> Result<T> {
    refused(format!("the pool has no destination '{name}'; `stere backup status {pool}` tells which it has"))
}
