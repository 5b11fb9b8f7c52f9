//! What files and directories take on the devices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a path takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UsageReport {
    pub path: String,
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    /// Sizes of the files.
    pub size_bytes: u64,
    pub allocated_bytes: u64,
    /// What is stored, before copies and parity.
    pub stored_bytes: u64,
    /// What other files share.
    pub shared_bytes: u64,
    /// What that takes on all devices.
    pub raw_bytes: u64,
    pub devices: BTreeMap<String, u64>,
    /// Stored bytes by scheme, such as `1+1`.
    pub schemes: BTreeMap<String, u64>,
}
