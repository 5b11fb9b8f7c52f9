//! What is told of media and of what lies there.

use serde::{Deserialize, Serialize};

use crate::tier::costs;

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetireReport {
    pub volume: String,
    /// Who takes over.
    pub heir: String,
    pub segments_left: u64,
    pub bytes_left: u64,
    /// The volume is no part of the pool any more.
    pub is_done: bool,
    /// Why it does not go on.
    pub waits_for: Option<String>,
}

/// A volume as people see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeReport {
    pub name: String,
    pub class: String,
    pub place: String,
    pub id: String,
    /// `online`, `damaged`, `full`, `offline` (taken away on purpose) or `away`.
    pub state: String,
    pub segments: u64,
    pub live_bytes: u64,
    /// What its objects take.
    pub stored_bytes: u64,
    /// What is nowhere else.
    pub only_here_bytes: u64,
    /// What is to be copied to it.
    pub waiting_bytes: u64,
    pub waiting_segments: u64,
    /// The checkpoint whose metadata is there; none that this mount knows of.
    pub metadata_generation: Option<u64>,
    /// What it said last, where that was bad.
    pub complaint: Option<String>,
    /// Segments whose object it is known to lack, or to have wrong.
    #[serde(default)]
    pub damaged_segments: u64,
    /// Reads that wait for it now.
    #[serde(default)]
    pub waiting_reads: u64,
    /// The volume that takes over from it, if it is being retired, and what that one lacks still.
    #[serde(default)]
    pub heir: Option<String>,
    #[serde(default)]
    pub left_segments: u64,
    #[serde(default)]
    pub left_bytes: u64,
    /// Its cartridges, where it is a library.
    #[serde(default)]
    pub media: Vec<CartridgeReport>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TierReport {
    pub volumes: Vec<VolumeReport>,
    /// Segments that readers or people want back.
    pub staging_segments: u64,
    /// Reads that are under way at volumes, and those that wait for their turn (`recall_user=`, `recall_tier=`).
    #[serde(default)]
    pub reads_under_way: usize,
    #[serde(default)]
    pub reads_waiting: usize,
    pub segments_uploaded: u64,
    pub bytes_uploaded: u64,
    pub fetches: u64,
    pub bytes_fetched: u64,
    pub bad_objects: u64,
    /// Requests to volumes, of every kind, since the mount.
    pub requests: u64,
    /// Why the work stands still.
    pub waits_for: Option<String>,
    /// Segments that cannot be copied out, and why.
    pub stuck: Vec<String>,
    /// Paths that are kept on devices.
    pub pinned: Vec<String>,
    /// Percent of devices in use from which archived files are released by themselves, and down to which.
    pub high: u8,
    pub low: u8,
    pub used_percent: u8,
    /// Which segments go first: `stp`, `lru`, `once` or `size`; the power of the age for `stp`.
    #[serde(default)]
    pub order: String,
    #[serde(default)]
    pub exponent: f64,
    /// What came back to devices may take so much there, if that was said, and takes so much.
    #[serde(default)]
    pub cache_bytes: Option<u64>,
    #[serde(default)]
    pub back_bytes: u64,
    /// Keys of names that were put away, and in how many bundles.
    #[serde(default)]
    pub keys_put_away: u64,
    #[serde(default)]
    pub bundles: u64,
}

/// Stored bytes of what a path stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurveyReport {
    pub files: u64,
    pub local_bytes: u64,
    pub waiting_bytes: u64,
    pub tertiary_bytes: u64,
    pub released_bytes: u64,
    pub unreachable_bytes: u64,
    pub segments: u64,
    pub volumes: String,
    /// What was done, in words.
    pub said: String,
    /// Part of it could not be done now.
    pub is_partial: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyReport {
    pub volume: String,
    pub objects: u64,
    pub bytes: u64,
    pub deleted: u64,
    pub lacking: Vec<u64>,
    pub damaged: Vec<u64>,
}

/// What repacking did, in one step or in all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepackReport {
    pub segments_emptied: u64,
    pub bytes_emptied: u64,
    pub segments_made: u64,
    pub bytes_made: u64,
    pub segments_left: u64,
    pub waits_for: Option<String>,
}

/// What the daemon answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    Tier(TierReport),
    Survey(SurveyReport),
    Verify(VerifyReport),
    Repack(RepackReport),
    Retire(RetireReport),
    Costs(Vec<costs::CostsReport>),
    Price(costs::PriceReport),
}

/// A cartridge of a library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CartridgeReport {
    pub name: String,
    /// `unknown`, `blank`, `ours`, `full` or `foreign`.
    pub kind: String,
    /// `slot`, `drive N`, `away` or `unknown`.
    pub place: String,
    pub objects: u64,
    pub bytes: u64,
    pub complaint: Option<String>,
}

impl From<CartridgeReport> for stere_device::Medium {
    fn from(report: CartridgeReport) -> stere_device::Medium {
        let CartridgeReport { name, kind, place, objects, bytes, complaint } = report;
        stere_device::Medium { name, kind, place, objects, bytes, complaint }
    }
}

impl From<stere_device::Medium> for CartridgeReport {
    fn from(medium: stere_device::Medium) -> CartridgeReport {
        let stere_device::Medium { name, kind, place, objects, bytes, complaint } = medium;
        CartridgeReport { name, kind, place, objects, bytes, complaint }
    }
}
