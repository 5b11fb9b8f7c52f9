//! What a pool may still do with devices missing: the floors of its data.
//!
//! A pool goes on writing as long as everything that was to survive a loss can still be read. Data with one copy by its
//! owner's wish does not count: its loss was accepted when it was written, and only its files fail. Once data that was to
//! survive is out of reach, writing would make the way back harder (the missing devices may only be late), so the pool only
//! reads. Invariant: reads only the segment table, no data.

use std::collections::{BTreeMap, BTreeSet};

use stere_device::Device;
use stere_format::{DeviceIndex, SegmentKind};
use stere_store::{Segment, Store};

/// What cannot be read now, and how far the rest is from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Floors {
    /// Bytes that were to survive a loss and cannot be read.
    pub lost_bytes: u64,
    /// Bytes of one copy by their owner's wish that cannot be read.
    pub lost_single_bytes: u64,
    /// Segments of metadata that cannot be read.
    pub lost_metadata_segments: u64,
    /// Segments with fewer chunks than they should have.
    pub degraded_segments: u64,
    /// Device losses that everything with copies or parity still survives; none if nothing is stored.
    pub survives: Option<u8>,
    /// The same for metadata.
    pub metadata_survives: Option<u8>,
    /// Losses that all content of a class survives, by its code: what files have, whatever was asked for.
    pub by_class: BTreeMap<u8, u8>,
}

impl Floors {
    pub fn allow_writing(&self) -> bool {
        self.lost_bytes == 0 && self.lost_metadata_segments == 0
    }

    /// Whether files are lost unless the missing devices come back.
    pub fn is_lossy(&self) -> bool {
        self.lost_bytes + self.lost_single_bytes + self.lost_metadata_segments > 0
    }

    /// What that means for the mount.
    pub fn words(&self, read_only: bool) -> String {
        let open = if read_only { "it is open for reading only" } else { "it goes on with the others" };
        match (self.lost_bytes, self.lost_single_bytes, self.lost_metadata_segments) {
            (0, 0, 0) => format!("everything can be read, and {open}"),
            (0, single, 0) => format!("{single} bytes of files with a single copy cannot be read, and {open}"),
            (lost, single, _) => {
                format!("{} bytes of files cannot be read, so {open}: attach the missing devices", lost + single)
            }
        }
    }
}

/// Counts what the segment table says can be read on the devices that are attached. Of those that do not answer nothing counts as lost, and
/// nothing as something to fall back on.
pub fn floors(store: &Store) -> Floors {
    let present: BTreeSet<DeviceIndex> = store.device_statistics().into_iter().map(|(index, _)| index).collect();
    let devices = store.health.pool_devices();
    let is_silent = |index: &DeviceIndex| devices.iter().any(|one| one.index() == *index && one.silent_for().is_some());
    let answering: BTreeSet<DeviceIndex> = present.iter().copied().filter(|index| !is_silent(index)).collect();
    let mut floors = Floors::default();
    let offline =
        store.tier.media.volumes().iter().filter(|entry| entry.is_offline).fold(0, |set, one| set | one.bit());
    // A medium that was taken away, or whose object is damaged or lacking, is none to fall back on.
    let volumes_of = |segment: &Segment| (store.tier.media.good_of(segment) & !offline).count_ones() as u8;
    for segment in store.segments().everywhere() {
        if segment.kind == SegmentKind::Data && segment.live_bytes() > 0 {
            let volumes = usize::from(volumes_of(&segment));
            let placed = segment.placed();
            let is_there =
                |chunk: &usize| answering.contains(&placed.chunks[*chunk].device) && !placed.is_missing(*chunk);
            let there = (0..placed.chunks.len()).filter(is_there).count();
            // On volumes alone, the last one must stay.
            let left = match segment.is_released() {
                true => volumes.saturating_sub(1),
                false => there.saturating_sub(usize::from(placed.scheme.data)) + volumes,
            } as u8;
            floors.by_class.entry(segment.class).and_modify(|least| *least = left.min(*least)).or_insert(left);
        }
    }
    for segment in store.segments().all() {
        if segment.live_bytes() == 0 {
            continue;
        }
        let placed = segment.placed();
        let lacking = |among: &BTreeSet<DeviceIndex>| {
            let is_gone = |chunk: &usize| !among.contains(&placed.chunks[*chunk].device) || placed.is_missing(*chunk);
            (0..placed.chunks.len()).filter(is_gone).count() as u8
        };
        let gone = lacking(&present);
        let parity = placed.scheme.parity;
        floors.degraded_segments += u64::from(gone > 0);
        // What a medium has can be read from there.
        let is_lost = gone > parity && segment.tertiary().there == 0;
        let on_media = if segment.kind == SegmentKind::Data { volumes_of(&segment) } else { 0 };
        let left = parity.saturating_sub(lacking(&answering)) + on_media;
        let lowest = |known: Option<u8>| Some(known.map_or(left, |known| known.min(left)));
        match (segment.kind == SegmentKind::Meta, is_lost, parity) {
            (true, true, _) => floors.lost_metadata_segments += 1,
            (true, false, _) => floors.metadata_survives = lowest(floors.metadata_survives),
            (false, true, 0) => floors.lost_single_bytes += segment.live_bytes(),
            (false, true, _) => floors.lost_bytes += segment.live_bytes(),
            (false, false, 0) => {}
            (false, false, _) => floors.survives = lowest(floors.survives),
        }
    }
    floors
}
