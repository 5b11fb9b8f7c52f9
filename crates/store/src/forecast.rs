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
    /// These devices are emptied and go, all of one host, say. Those that are not there are rebuilt from the others.
    Leave(Vec<DeviceIndex>),
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
    /// Chunk bytes that find no place and are on media, too: releasing their files makes them need none.
    pub homeless_archived_bytes: u64,
    /// Content that needs more devices than would be left, however much room they have.
    pub too_wide: BTreeMap<TooWide, u64>,
    /// Devices that would take chunks afterwards.
    pub devices_left: usize,
    /// Devices that may be lost afterwards without loss of anything that is left.
    pub survives_after: u8,
    /// Content that would be unreadable.
    pub lost_bytes: u64,
    pub lost_segments: u64,
    /// Of `Leave`: content that survives the loss of any one host now and would not afterwards, because too few hosts have room.
    pub host_bound_bytes: u64,
}

/// Free slots of the devices that could take chunks.
type Room = BTreeMap<DeviceIndex, u32>;

/// The hosts of devices that have one. Without any each device is alone.
type Hosts = BTreeMap<DeviceIndex, String>;

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
                Ok(self.forecast_without(&[*index], false, &Hosts::new()))
            }
            Change::Lose(indexes) => {
                indexes.iter().try_for_each(|index| self.engine.device_entry(*index).map(drop))?;
                Ok(self.forecast_without(indexes, true, &Hosts::new()))
            }
            Change::Add { slot_count } => Ok(self.forecast_with(*slot_count)),
            Change::Leave(indexes) => {
                indexes.iter().try_for_each(|index| self.engine.device_entry(*index).map(drop))?;
                Ok(self.forecast_leaving(indexes))
            }
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

    /// Content that only devices which are away have is lost here, too: they do not come back.
    fn forecast_leaving(&self, gone: &[DeviceIndex]) -> Forecast {
        let named = self.engine.device_entries().into_iter().filter(|entry| !entry.host.is_empty());
        let hosts = named.map(|entry| (entry.index, entry.host)).collect();
        let mut forecast = self.forecast_without(gone, false, &hosts);
        let is_away = |index| gone.contains(&index) && self.engine.log().stripe.devices.get(index).is_none();
        for segment in self.engine.log().segments.all().iter().filter(|segment| segment.live_bytes() > 0) {
            let place = segment.placed();
            let is_lost = self.engine.readable_chunks(&place, &[]) < usize::from(place.scheme.data);
            if is_lost && segment.tertiary().there == 0 && place.chunks.iter().any(|chunk| is_away(chunk.device)) {
                forecast.lost_bytes += segment.live_bytes();
                forecast.lost_segments += 1;
            }
        }
        assert!(forecast.lost_segments > 0 || forecast.lost_bytes == 0, "bytes are lost with segments");
        forecast
    }

    fn forecast_without(&self, gone: &[DeviceIndex], is_loss: bool, hosts: &Hosts) -> Forecast {
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
            let taken = take_room(&mut room, (&place, gone), hosts, |index| {
                self.engine.log().stripe.slots.allows(segment.site, index)
            });
            let housed = taken.len();
            assert!(housed <= leaving, "{housed} chunks find a place, and {leaving} leave");
            // Metadata is written anew with as many copies as there are devices for; content keeps what it was promised.
            let is_fitted = segment.kind == SegmentKind::Meta && place.chunks.len() - leaving + housed >= devices_left;
            if !is_fitted {
                let (chunks, chunk_bytes) =
                    ((leaving - housed) as u64, u64::from(segment.blocks_in_use()) * BLOCK_BYTES as u64);
                forecast.homeless_chunks += chunks;
                if segment.tertiary().there != 0 {
                    forecast.homeless_archived_bytes += chunks * chunk_bytes;
                }
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
            let before = place.chunks.iter().map(|chunk| chunk.device);
            let after = before.clone().filter(|index| !gone.contains(index)).chain(taken);
            let parity = usize::from(place.scheme.parity);
            if segment.kind == SegmentKind::Data
                && on_one_host(hosts, before) <= parity
                && on_one_host(hosts, after) > parity
            {
                forecast.host_bound_bytes += segment.live_bytes();
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
        let now = self.forecast_without(&[], false, &Hosts::new());
        Forecast { bytes_to_move: share * u64::from(self.engine.log().chunk_bytes()), fits: true, ..now }
    }
}

/// Takes a slot for each leaving chunk on a device where it may lie and that the segment does not use yet, other hosts first, then most room;
/// those that were found.
fn take_room(
    room: &mut Room,
    (place, gone): (&SegmentChunks, &[DeviceIndex]),
    hosts: &Hosts,
    may_lie: impl Fn(DeviceIndex) -> bool,
) -> Vec<DeviceIndex> {
    let used: Vec<DeviceIndex> = place.chunks.iter().map(|chunk| chunk.device).collect();
    let mut staying: Vec<DeviceIndex> = used.iter().copied().filter(|index| !gone.contains(index)).collect();
    assert!(staying.len() <= used.len(), "{staying:?} of {used:?} stay");
    let mut taken = Vec::new();
    for _ in staying.len()..used.len() {
        let is_apart = |index: &DeviceIndex| {
            hosts.get(index).is_none_or(|host| !staying.iter().any(|other| hosts.get(other) == Some(host)))
        };
        let found = room.iter().filter(|(index, free)| {
            **free > 0 && !used.contains(index) && !staying.contains(index) && may_lie(**index)
        });
        let best = found.max_by_key(|(index, free)| (is_apart(index), **free, std::cmp::Reverse(**index)));
        let Some(index) = best.map(|(index, _)| *index) else { break };
        *room.get_mut(&index).expect("found in this map") -= 1;
        staying.push(index);
        taken.push(index);
    }
    taken
}

/// The most of these that are on one host.
fn on_one_host(hosts: &Hosts, devices: impl Iterator<Item = DeviceIndex>) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut most = 0;
    for index in devices {
        let count = hosts.get(&index).map_or(1, |host| {
            let count = counts.entry(host).or_default();
            *count += 1;
            *count
        });
        most = most.max(count);
        assert!(count >= 1 && most >= count, "{index} counts");
    }
    most
}
