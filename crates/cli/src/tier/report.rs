//! Media, and what waits for them, as people read it.

use crate::terminal::plain;
use stere_control::tier::report::{TierReport, VolumeReport};
use stere_machine::size;

/// The same below a list of devices.
pub fn print_volumes_if_any(volumes: &[VolumeReport]) {
    if !volumes.is_empty() {
        println!("\nmedia:");
        print_volumes(volumes);
    }
}

pub(super) fn print_volumes(volumes: &[VolumeReport]) {
    if volumes.is_empty() {
        println!("the pool has no media; add one: stere device add POOL dir:/path,name=NAME");
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
        println!("reads that wait for media: {under_way}; for their turn: {waiting}");
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
        println!("metadata offloaded: {} keys in {} objects", report.keys_put_away, report.bundles);
    }
    report.stuck.iter().for_each(|text| println!("cannot be copied out: {}", plain(text)));
    report.pinned.iter().for_each(|path| println!("stays on devices: {}", plain(path)));
    if let Some(why) = &report.waits_for {
        println!("waits: {why}");
    }
}
