//! What is told of tertiary volumes and of what lies there, as the daemon tells it and as people read it.

use serde::{Deserialize, Serialize};

use super::{costs, media, retire};
use crate::size;

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
    pub media: Vec<media::CartridgeReport>,
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
    Retire(retire::RetireReport),
    Costs(Vec<costs::CostsReport>),
    Price(costs::PriceReport),
}

/// The same below a list of devices.
pub fn print_volumes_if_any(volumes: &[VolumeReport]) {
    if !volumes.is_empty() {
        println!("\ntertiary volumes:");
        print_volumes(volumes);
    }
}

pub(super) fn print_volumes(volumes: &[VolumeReport]) {
    if volumes.is_empty() {
        println!("the pool has no tertiary volumes; add one: stere device add POOL dir:/path,name=NAME");
    }
    for volume in volumes {
        println!(
            "{}  {}  {}  {} in {} segments of {}, {} nowhere else, {} to be copied  {}",
            volume.name,
            volume.class,
            volume.state,
            size::show(volume.live_bytes),
            volume.segments,
            size::show(volume.stored_bytes),
            size::show(volume.only_here_bytes),
            size::show(volume.waiting_bytes),
            volume.place
        );
        if let Some(generation) = volume.metadata_generation {
            println!("  with the pool's metadata, as of checkpoint {generation}");
        }
        if volume.damaged_segments > 0 {
            println!("  {} segments of it are damaged, or lacking", volume.damaged_segments);
        }
        if let Some(heir) = &volume.heir {
            let (left, segments) = (size::show(volume.left_bytes), volume.left_segments);
            println!("  is being retired to {heir}: {left} in {segments} segments are left");
        }
        if let Some(complaint) = &volume.complaint {
            println!("  {complaint}");
        }
    }
}

pub(super) fn print_queue(report: &TierReport) {
    for volume in report.volumes.iter().filter(|volume| volume.waiting_segments > 0) {
        println!(
            "to {}: {} in {} segments wait to be copied out",
            volume.name,
            size::show(volume.waiting_bytes),
            volume.waiting_segments
        );
    }
    println!("to come back: {} segments", report.staging_segments);
    if report.reads_under_way + report.reads_waiting > 0 {
        let (under_way, waiting) = (report.reads_under_way, report.reads_waiting);
        println!("reads that wait for volumes: {under_way}; for their turn: {waiting}");
    }
    println!(
        "since the mount: {} in {} segments copied out, {} fetched in {} requests, {} bad objects",
        size::show(report.bytes_uploaded),
        report.segments_uploaded,
        size::show(report.bytes_fetched),
        report.fetches,
        report.bad_objects
    );
    if report.bundles > 0 {
        println!("names put away: {} keys in {} bundles", report.keys_put_away, report.bundles);
    }
    report.stuck.iter().for_each(|text| println!("cannot be copied out: {text}"));
    report.pinned.iter().for_each(|path| println!("stays on devices: {path}"));
    if let Some(why) = &report.waits_for {
        println!("waits: {why}");
    }
}
