//! What is lost with devices: files, and what it comes to.

use serde::{Deserialize, Serialize};
use stere_naming::LostFile;

/// A file that loses content.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LostLine {
    pub path: String,
    pub inode: u64,
    pub size_bytes: u64,
    pub lost_bytes: u64,
    /// Start and end of each.
    pub ranges: Vec<(u64, u64)>,
    pub has_more_ranges: bool,
}

/// What a loss means for a class.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassLine {
    pub class: String,
    pub survives: bool,
    pub live_bytes: u64,
    /// In segments that lose something.
    pub touched_bytes: u64,
}

/// What is lost in all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LossReport {
    pub pool: String,
    /// Names of the devices and media that were asked about.
    pub devices: Vec<String>,
    /// The hosts that were asked about; their devices are among these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Names of devices that are not there now.
    pub absent: Vec<String>,
    pub files: u64,
    pub lost_bytes: u64,
    /// Whether names stay, so that everything that is not lost can be reached.
    pub names_survive: bool,
    pub classes: Vec<ClassLine>,
}

impl From<LostFile> for LostLine {
    fn from(file: LostFile) -> LostLine {
        LostLine {
            path: String::from_utf8_lossy(&file.path).into_owned(),
            inode: file.inode,
            size_bytes: file.size_bytes,
            lost_bytes: file.lost_bytes,
            ranges: file.ranges.into_iter().map(|range| (range.start, range.end)).collect(),
            has_more_ranges: file.has_more_ranges,
        }
    }
}
