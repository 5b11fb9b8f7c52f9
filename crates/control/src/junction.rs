//! Junctions: directories at which other pools are mounted; what is asked and told of them.

use serde::{Deserialize, Serialize};

/// What is asked about junctions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "junction_order", rename_all = "snake_case")]
pub enum Order {
    List,
    /// Mounts a pool at an empty directory, on every machine that has the other one mounted.
    Attach {
        inode: u64,
        pool: String,
        pool_id: String,
        /// Addresses of devices that mean the same on every machine.
        places: Vec<String>,
    },
    Detach {
        inode: u64,
    },
}

/// A junction as the pool knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JunctionLine {
    pub inode: u64,
    /// From the root of the pool that it is in.
    pub path: String,
    /// The pool that is mounted there.
    pub pool: String,
    pub pool_id: String,
    pub places: Vec<String>,
}

/// A junction on one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JunctionReport {
    pub path: String,
    pub pool: String,
    /// Whether the pool is mounted there.
    pub is_mounted: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}
