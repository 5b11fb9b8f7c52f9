//! How segments are chosen for cleaning, and what cleaning costs, as `stere status` tells it.

use serde::{Deserialize, Serialize};

/// What `stere status` tells of cleaning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CleaningReport {
    /// For the classes of devices that the pool has: `ssd` and `cost-benefit`, for example.
    pub policies: Vec<(String, String)>,
    /// Since the pool was mounted; content as it is stored, without copies and parity.
    pub written_bytes: u64,
    pub moved_bytes: u64,
    pub emptied_segments: u64,
    /// Full segments of content by how much of them is in use, in tenths: what was written,
    pub segments_new: Vec<u64>,
    /// and what survived a cleaning.
    pub segments_survived: Vec<u64>,
}

impl CleaningReport {
    /// Bytes that cleaning moved for each byte that was written; none before anything was.
    pub fn moved_per_written(&self) -> Option<f64> {
        (self.written_bytes > 0).then(|| self.moved_bytes as f64 / self.written_bytes as f64)
    }
}
