//! The media of an open pool as `status` and `tier list` tell them.

use stere_pool::DeviceClass;

use crate::running::Running;
use stere_control::tier::report::VolumeReport;

/// Volumes for reports.
pub fn volume_reports(running: &Running) -> Vec<VolumeReport> {
    let statuses = running.store.tier.media.volume_statuses().into_iter();
    let report = |status: stere_store::VolumeStatus| VolumeReport {
        heir: status.entry.succession.heir().map(|heir| running.store.tier.media.tier_names(1 << heir)),
        left_segments: running.store.tier.media.left_to_retire(status.entry.number).0,
        left_bytes: running.store.tier.media.left_to_retire(status.entry.number).1,
        state: match (status.entry.is_offline, status.is_attached && status.complaint.is_none()) {
            (true, _) => "offline",
            (false, true) if status.damaged_segments > 0 => "damaged",
            (false, true) => "online",
            (false, false) if status.is_full => "full",
            (false, false) => "away",
        }
        .to_owned(),
        damaged_segments: status.damaged_segments,
        waiting_reads: running.gate.waiting_reads(status.entry.number),
        media: running.gate.media(status.entry.number).into_iter().map(Into::into).collect(),
        // Of those who wait now, rather than of who was the first.
        complaint: status.complaint.map(|text| running.gate.complaint(status.entry.number).unwrap_or(text)),
        name: status.entry.name,
        class: DeviceClass::from_code(status.entry.class).word().to_owned(),
        place: status.entry.place,
        id: status.entry.id.to_string(),
        segments: status.segments,
        live_bytes: status.live_bytes,
        stored_bytes: status.stored_bytes,
        only_here_bytes: status.only_here_bytes,
        waiting_bytes: status.waiting_bytes,
        waiting_segments: status.waiting_segments,
        metadata_generation: status.metadata_generation,
    };
    statuses.map(report).collect()
}
