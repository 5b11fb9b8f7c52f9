//! Noting damage where it is met: what is blamed for it follows from where the content lies. Read next: `damage.rs`.

use std::ops::Range;
use std::sync::Arc;

use stere_device::Device;
use stere_format::DeviceIndex;
use stere_log::Segment;

use crate::damage::Harm;
use crate::engine::Engine;

/// Notes damage, and which devices gave none of it or wrong bytes.
pub(crate) fn note_harm(engine: &Engine, blob: u64, segment: u64, range: Range<u32>, blames_devices: bool) {
    // Of units of a stripe nobody can tell which is wrong.
    let is_blamed = |segment: &Arc<Segment>| blames_devices && segment.scheme.data == 1;
    let copies = engine.log.segments.get(segment).filter(is_blamed);
    // Who missed a chunk, is not there or does not answer has given nothing wrong.
    let has_given =
        |index: &DeviceIndex| engine.log.stripe.devices.get(*index).is_some_and(|device| device.silent_for().is_none());
    let holders = |segment: &Arc<Segment>| {
        let placed = segment.placed();
        let there = placed.chunks.iter().enumerate().filter(|(chunk, _)| !placed.is_missing(*chunk));
        there.map(|(_, place)| place.device).filter(has_given).collect()
    };
    let devices = copies.as_ref().map(holders).unwrap_or_default();
    let on_volumes = engine.log.segments.get(segment).is_some_and(|segment| segment.is_released());
    engine.damage.note(blob, Harm { segment, range, devices, on_volumes });
}
