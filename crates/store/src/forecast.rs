//! What a change of devices would cost and leave, told before anything moves. Reads the segment table; changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use stere_format::{BLOCK_BYTES, DeviceIndex, Scheme, SegmentChunks, SegmentKind};

use stere_engine::{Engine, Error};

/// A change that somebody thinks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Everything on a device moves to the others.
    Evacuate(DeviceIndex),
    /// These devices are gone, and what was on them is rebuilt on the others.
    Lose(Vec<DeviceIndex>),
    /// A device with so many slots comes, and takes its share.
    Add { slot_count: u32 },
}

/// A kind of content that is wider than what would be left for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TooWide {
    pub class: u8,
    pub data: u8,
    pub parity: u8,
    /// Where it must lie; 0 for anywhere.
    pub only: u8,
    /// Devices that would be left for it.
    pub devices_left: usize,
}

/// What would come of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Chunk bytes to be written.
    pub bytes_to_move: u64,
    /// Whether all chunks find a place.
    pub fits: bool,
    /// Chunks for which there is no place.
    pub homeless_chunks: u64,
    /// What of the chunks for which there is no place must lie on certain devices: chunk bytes by the number of the place.
    pub homeless_bytes: BTreeMap<u8, u64>,
    /// Content that needs more devices than would be left, however much room they have.
    pub too_wide: BTreeMap<TooWide, u64>,
    /// Devices that would take chunks afterwards.
    pub devices_left: usize,
    /// Devices that may be lost afterwards without loss of anything that is left.
    pub survives_after: u8,
    /// Content that would be unreadable.
    pub lost_bytes: u64,
    pub lost_segments: u64,
}

/// Free slots of the devices that could take chunks.
type Room = BTreeMap<DeviceIndex, u32>;

/// Tells what a change of devices would come to.
pub struct Forecaster {
    pub(crate) engine: Arc<Engine>,
}

impl Forecaster {
    pub(crate) fn new(engine: &Arc<Engine>) -> Forecaster {
        Forecaster { engine: engine.clone() }
    }
}

impl Forecaster {
    /// Tells what a change would cost and leave. Exact for what is stored now, but for the order in which slots are taken.
    pub fn forecast(&self, change: &Change) -> Result<Forecast, Error> {
        match change {
            Change::Evacuate(index) => {
                self.engine.device_entry(*index)?;
                Ok(self.forecast_without(&[*index], false))
            }
            Change::Lose(indexes) => {
                indexes.iter().try_for_each(|index| self.engine.device_entry(*index).map(drop))?;
                Ok(self.forecast_without(indexes, true))
            }
            Change::Add { slot_count } => Ok(self.forecast_with(*slot_count)),
        }
    }

    fn room_besides(&self, without: &[DeviceIndex]) -> Room {
        let stripe = &self.engine.log().stripe;
        let devices = self.engine.device_entries();
        let open = devices
            .iter()
            .map(|entry| entry.index)
            .filter(|index| stripe.slots.is_open(*index) && !without.contains(index));
        open.filter_map(|index| stripe.slots.usage(index).map(|usage| (index, usage.free + usage.pending))).collect()
    }

    fn forecast_without(&self, gone: &[DeviceIndex], is_loss: bool) -> Forecast {
        let mut room = self.room_besides(gone);
        let devices_left = room.len();
        let mut forecast = Forecast { devices_left, ..Forecast::default() };
        let mut survives = None;
        let unreadable: &[DeviceIndex] = if is_loss { gone } else { &[] };
        for segment in self.engine.log().segments.all().iter().filter(|segment| segment.live_bytes() > 0) {
            let place = segment.placed();
            let needed = usize::from(place.scheme.data);
            if self.engine.readable_chunks(&segment.placed(), unreadable) < needed {
                // What cannot be read now either is no loss of this change.
                if self.engine.readable_chunks(&segment.placed(), &[]) >= needed {
                    forecast.lost_bytes += segment.live_bytes();
                    forecast.lost_segments += 1;
                }
                continue;
            }
            let leaving = place.chunks.iter().filter(|chunk| gone.contains(&chunk.device)).count();
            let only = segment.site.only;
            let housed = take_room(&mut room, &place, leaving, |index| {
                self.engine.log().stripe.slots.allows(segment.site, index)
            });
            assert!(housed <= leaving, "{housed} chunks find a place, and {leaving} leave");
            // Metadata is written anew with as many copies as there are devices for; content keeps what it was promised.
            let is_fitted = segment.kind == SegmentKind::Meta && place.chunks.len() - leaving + housed >= devices_left;
            if !is_fitted {
                let (chunks, chunk_bytes) =
                    ((leaving - housed) as u64, u64::from(segment.blocks_in_use()) * BLOCK_BYTES as u64);
                forecast.homeless_chunks += chunks;
                let allows = |index: &&DeviceIndex| self.engine.log().stripe.slots.allows(segment.site, **index);
                let left_for_it = || room.keys().filter(allows).count();
                if chunks > 0 && segment.kind == SegmentKind::Data && place.chunks.len() > left_for_it() {
                    let (class, Scheme { data, parity }) = (segment.class, place.scheme);
                    let wide = TooWide { class, data, parity, only, devices_left: left_for_it() };
                    *forecast.too_wide.entry(wide).or_default() += segment.live_bytes();
                } else if chunks > 0 && only != 0 {
                    *forecast.homeless_bytes.entry(only).or_default() += chunks * chunk_bytes;
                }
            }
            forecast.bytes_to_move += leaving as u64 * u64::from(segment.blocks_in_use()) * BLOCK_BYTES as u64;
            let left = (self.engine.readable_chunks(&segment.placed(), gone) + housed).saturating_sub(needed);
            survives = Some(survives.map_or(left, |least: usize| least.min(left)));
        }
        forecast.fits = forecast.homeless_chunks == 0;
        let default = usize::from(self.engine.fit(self.engine.places().meta_scheme()).parity);
        forecast.survives_after = u8::try_from(survives.unwrap_or(default)).unwrap_or(u8::MAX);
        forecast
    }

    fn forecast_with(&self, slot_count: u32) -> Forecast {
        let (mut slots, mut used) = (u64::from(slot_count), 0);
        for device in self
            .engine
            .log()
            .stripe
            .devices
            .all()
            .iter()
            .filter(|device| self.engine.log().stripe.slots.is_open(device.index()))
        {
            let usage = self.engine.log().stripe.slots.usage(device.index());
            slots += usage.map_or(0, |usage| u64::from(usage.slot_count));
            used += usage.map_or(0, |usage| u64::from(usage.slot_count - usage.free));
        }
        let share = used * u64::from(slot_count) / slots.max(1);
        assert!(share <= used, "a device that comes takes a share of the {used} slots in use, not {share}");
        let now = self.forecast_without(&[], false);
        Forecast { bytes_to_move: share * u64::from(self.engine.log().chunk_bytes()), fits: true, ..now }
    }
}

/// Takes a slot for each leaving chunk on a device where it may lie and that the segment does not use yet, most room first; how many
/// found one.
fn take_room(room: &mut Room, place: &SegmentChunks, leaving: usize, may_lie: impl Fn(DeviceIndex) -> bool) -> usize {
    assert!(leaving <= place.chunks.len(), "{leaving} of {} chunks leave", place.chunks.len());
    let mut taken: Vec<DeviceIndex> = place.chunks.iter().map(|chunk| chunk.device).collect();
    for housed in 0..leaving {
        let found = room.iter().filter(|(index, free)| **free > 0 && !taken.contains(index) && may_lie(**index));
        let Some(index) =
            found.max_by_key(|(index, free)| (**free, std::cmp::Reverse(**index))).map(|(index, _)| *index)
        else {
            return housed;
        };
        *room.get_mut(&index).expect("found in this map") -= 1;
        taken.push(index);
    }
    leaving
}
