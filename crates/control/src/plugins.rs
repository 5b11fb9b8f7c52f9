//! Plugins of a pool, and the events that wait for them.

use serde::{Deserialize, Serialize};

/// What is asked about plugins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    List,
    Add {
        name: String,
        module: Vec<u8>,
    },
    Remove {
        name: String,
    },
    Queue,
    Change {
        change: Change,
    },
    /// What a stack is made of, for machines that run it themselves.
    Stack {
        number: u16,
    },
}

/// What is to be done about what waits for plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Retry,
    DropGivenUp,
    DropAll,
}

/// What waits for plugins that are told afterwards, for people and programs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct QueueReport {
    pub waiting: u64,
    pub given_up: u64,
    /// Removals that nobody is told of, since the mount.
    pub lost: u64,
    /// At most a thousand of them, those given up first.
    pub files: Vec<WaitingReport>,
}

/// A file of which plugins are still to be told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WaitingReport {
    pub path: String,
    pub events: Vec<String>,
    pub plugins: String,
    pub since_seconds: i64,
    pub failures: u8,
    pub next_seconds: i64,
    pub is_given_up: bool,
    pub cause: String,
}

/// Files that a report names.
pub const NAMED_MAX: usize = 1000;

/// A plugin, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PluginReport {
    pub name: String,
    pub number: u16,
    pub module_bytes: u32,
    pub added_seconds: i64,
    /// Whether its name means it, and not a newer one.
    pub is_current: bool,
    /// Whether it turns records into something else.
    pub is_codec: bool,
    /// What it is asked about.
    pub events: Vec<String>,
    /// What it is told of afterwards.
    #[serde(default)]
    pub follows: Vec<String>,
    /// Why it cannot be run, if it cannot.
    pub failure: Option<String>,
}

/// What was done about what waits.
pub fn changed(is_retry: bool, files: u64) -> String {
    let what = if is_retry { "are tried again now" } else { "are forgotten; their plugins are not told" };
    format!("{files} files {what}")
}
