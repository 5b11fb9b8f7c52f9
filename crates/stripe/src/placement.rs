//! On which devices a new segment goes.
//!
//! Most free slots first, which is optimal: it places exactly as many segments as `capacity` says. Devices with equally
//! many free slots take turns over all combinations, so that copies are spread over all pairs (and a lost device is
//! rebuilt from all others), and the order of chunks rotates, so that first copies and parity are spread too.
//! No clock, no random numbers: the same history places alike.
//!
//! Freeing has two stages: `free_later(places, generation)` when nothing needs them any more, `release(generation)` once
//! the checkpoint of that generation is durable; until then the old tree may still be the one that is found.

use crate::error::StripeError;
use crate::homes::Homes;
use crate::slots::SlotMap;
use std::collections::BTreeMap;
use stere_format::{ChunkPlace, ChunkPlaces, DeviceIndex, Scheme};

/// How many segments of a scheme fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// On the devices that are there, if they were empty.
    pub segments_total: u64,
    /// That can be placed now.
    pub segments_free: u64,
    /// That could be placed if everything waiting in `free_later` were released.
    pub segments_free_after_release: u64,
}

/// The slots of one device, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotUsage {
    pub slot_count: u32,
    pub free: u32,
    /// Waiting for `release`; counted neither as free nor as needed.
    pub pending: u32,
}

#[derive(Debug, Default)]
struct DeviceSlots {
    map: SlotMap,
    pending: u32,
    /// Whether new chunks may go here: the device is there and nobody is emptying it.
    is_open: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Placement {
    devices: BTreeMap<DeviceIndex, DeviceSlots>,
    pending: BTreeMap<u64, Vec<ChunkPlace>>,
    combination_turn: u64,
    order_turn: u64,
    homes: Homes,
}

/// Ties among more devices than this take turns in windows.
const TIE_WINDOW: usize = 24;

impl Placement {
    pub(crate) fn set_slot_count(&mut self, index: DeviceIndex, slot_count: u32) {
        self.devices.entry(index).or_default().map.set_slot_count(slot_count);
    }

    pub(crate) fn set_open(&mut self, index: DeviceIndex, is_open: bool) {
        self.devices.entry(index).or_default().is_open = is_open;
    }

    pub(crate) fn forget(&mut self, index: DeviceIndex) {
        self.devices.remove(&index);
        for places in self.pending.values_mut() {
            places.retain(|place| place.device != index);
        }
    }

    pub(crate) fn usage(&self, index: DeviceIndex) -> Option<SlotUsage> {
        self.devices.get(&index).map(|slots| SlotUsage {
            slot_count: slots.map.slot_count(),
            free: slots.map.free_count(),
            pending: slots.pending,
        })
    }

    pub(crate) fn is_used(&self, place: ChunkPlace) -> bool {
        self.devices.get(&place.device).is_some_and(|slots| slots.map.is_used(place.slot))
    }

    fn open_count(&self) -> usize {
        self.devices.values().filter(|slots| slots.is_open).count()
    }

    /// Places a segment, unless fewer than `keep_free` further ones of this scheme would then fit.
    pub(crate) fn allocate(&mut self, scheme: Scheme, keep_free: u64) -> Result<ChunkPlaces, StripeError> {
        let width = scheme.width();
        let present = self.open_count();
        if present < width {
            return Err(StripeError::TooFewDevices { scheme, present });
        }
        let segments_free = self.fits(scheme, |slots| u64::from(slots.map.free_count()));
        if segments_free <= keep_free {
            return Err(StripeError::NoSpace { scheme, segments_free, segments_kept: keep_free });
        }
        let mut chosen = self.choose(width);
        assert_eq!(chosen.len(), width, "a segment that fits has its devices");
        chosen.rotate_left((self.order_turn % width as u64) as usize);
        self.order_turn = self.order_turn.wrapping_add(1);
        let places = chosen.into_iter().map(|device| {
            let slots = self.devices.get_mut(&device).expect("chosen from these devices");
            let slot = slots.map.take().expect("chosen because it has a free slot");
            ChunkPlace { device, slot }
        });
        Ok(places.collect())
    }

    /// Places an unreplicated segment on this device, unless fewer than `keep_free` further ones would then fit in the pool, or
    /// the device has only `slots_kept` free slots while others have more.
    pub(crate) fn allocate_on(
        &mut self,
        device: DeviceIndex,
        keep_free: u64,
        slots_kept: u32,
    ) -> Result<ChunkPlaces, StripeError> {
        let scheme = Scheme::new(1, 0).expect("one copy is a scheme");
        let segments_free = self.fits(scheme, |slots| u64::from(slots.map.free_count()));
        if segments_free <= keep_free || !self.has_room_for_home(device, slots_kept) {
            return Err(StripeError::NoSpace { scheme, segments_free, segments_kept: keep_free });
        }
        let slots = self.devices.get_mut(&device).expect("a device with room is known");
        let slot = slots.map.take().expect("a device with room has a free slot");
        Ok([ChunkPlace { device, slot }].into_iter().collect())
    }

    /// Whether files that lie whole on this device can go on there.
    pub(crate) fn has_room_for_home(&self, device: DeviceIndex, slots_kept: u32) -> bool {
        let free = |slots: &DeviceSlots| if slots.is_open { slots.map.free_count() } else { 0 };
        let own = self.devices.get(&device).map_or(0, free);
        own > slots_kept || (own > 0 && self.devices.values().all(|slots| free(slots) <= slots_kept))
    }

    /// The device for the next file that lies whole on one: all take turns, those with more free slots more often.
    pub(crate) fn choose_home(&mut self) -> Option<DeviceIndex> {
        let open = self.devices.iter().filter(|(_, slots)| slots.is_open);
        let free: Vec<(DeviceIndex, u32)> = open.map(|(&index, slots)| (index, slots.map.free_count())).collect();
        self.homes.next(&free)
    }

    pub(crate) fn is_open(&self, device: DeviceIndex) -> bool {
        self.devices.get(&device).is_some_and(|slots| slots.is_open)
    }

    /// Devices that take new chunks.
    pub(crate) fn open_devices(&self) -> Vec<DeviceIndex> {
        self.devices.iter().filter(|(_, slots)| slots.is_open).map(|(&index, _)| index).collect()
    }

    /// The `width` open devices with most free slots; ties by turns.
    fn choose(&mut self, width: usize) -> Vec<DeviceIndex> {
        let open = self.devices.iter().filter(|(_, slots)| slots.is_open && slots.map.free_count() > 0);
        let mut by_free: Vec<(u32, DeviceIndex)> =
            open.map(|(&index, slots)| (slots.map.free_count(), index)).collect();
        by_free.sort_by_key(|&(free, index)| (std::cmp::Reverse(free), index));
        assert!(by_free.len() >= width, "enough devices have room");
        let threshold = by_free[width - 1].0;
        let first_tied = by_free.partition_point(|&(free, _)| free > threshold);
        let end_tied = by_free.partition_point(|&(free, _)| free >= threshold);
        let mut chosen: Vec<DeviceIndex> = by_free[..first_tied].iter().map(|&(_, index)| index).collect();
        let mut tied: Vec<DeviceIndex> = by_free[first_tied..end_tied].iter().map(|&(_, index)| index).collect();
        let wanted = width - first_tied;
        if tied.len() > wanted {
            let turn = self.combination_turn;
            self.combination_turn = turn.wrapping_add(1);
            if tied.len() > TIE_WINDOW.max(wanted) {
                let count = tied.len();
                tied.rotate_left((turn % count as u64) as usize);
                tied.truncate(TIE_WINDOW.max(wanted));
            }
            let combination = combination(tied.len(), wanted, turn % binomial(tied.len(), wanted));
            chosen.extend(combination.into_iter().map(|at| tied[at]));
        } else {
            chosen.extend(tied);
        }
        chosen
    }

    pub(crate) fn mark_used(&mut self, places: &[ChunkPlace]) -> Result<(), StripeError> {
        for &place in places {
            let slots = self.devices.entry(place.device).or_default();
            let slot_count = slots.map.slot_count();
            if slot_count > 0 && place.slot >= slot_count {
                return Err(StripeError::SlotOutOfRange { place, slot_count });
            }
            if !slots.map.mark_used(place.slot) {
                return Err(StripeError::SlotUsedTwice { place });
            }
        }
        Ok(())
    }

    pub(crate) fn free_now(&mut self, places: &[ChunkPlace]) {
        for place in places {
            let Some(slots) = self.devices.get_mut(&place.device) else { continue };
            let was_used = slots.map.mark_free(place.slot);
            assert!(was_used, "slot {} of device {} is freed once", place.slot, place.device);
        }
    }

    pub(crate) fn free_later(&mut self, places: &[ChunkPlace], generation: u64) {
        for place in places {
            let Some(slots) = self.devices.get_mut(&place.device) else { continue };
            assert!(slots.map.is_used(place.slot), "only a used slot can wait to be free");
            slots.pending += 1;
        }
        self.pending.entry(generation).or_default().extend_from_slice(places);
    }

    /// Frees what waited for generations up to this one, and says what it was.
    pub(crate) fn release(&mut self, generation: u64) -> Vec<ChunkPlace> {
        let later = generation.checked_add(1).map(|next| self.pending.split_off(&next)).unwrap_or_default();
        let now = std::mem::replace(&mut self.pending, later);
        let places: Vec<ChunkPlace> = now.into_values().flatten().collect();
        for place in &places {
            if let Some(slots) = self.devices.get_mut(&place.device) {
                assert!(slots.pending > 0, "what waits is counted");
                slots.pending -= 1;
            }
        }
        self.free_now(&places);
        places
    }

    pub(crate) fn capacity(&self, scheme: Scheme) -> Capacity {
        Capacity {
            segments_total: self.fits(scheme, |slots| u64::from(slots.map.slot_count())),
            segments_free: self.fits(scheme, |slots| u64::from(slots.map.free_count())),
            segments_free_after_release: self
                .fits(scheme, |slots| u64::from(slots.map.free_count()) + u64::from(slots.pending)),
        }
    }

    /// The largest n with sum(min(slots_i, n)) >= n * width: every segment takes at most one slot of a device.
    fn fits(&self, scheme: Scheme, slots_of: impl Fn(&DeviceSlots) -> u64) -> u64 {
        let width = scheme.width() as u64;
        let counts: Vec<u64> = self.devices.values().filter(|slots| slots.is_open).map(slots_of).collect();
        let has_room = |segments: u64| counts.iter().map(|&count| count.min(segments)).sum::<u64>() >= segments * width;
        let (mut low, mut high) = (0, counts.iter().sum::<u64>() / width);
        while low < high {
            let middle = high - (high - low) / 2;
            if has_room(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    /// The best scheme for the devices that are there: copies as many as there are; of k+m first k shrinks, then m.
    pub(crate) fn fit(&self, scheme: Scheme) -> Result<Scheme, StripeError> {
        let present = self.open_count();
        if present >= scheme.width() {
            return Ok(scheme);
        }
        let parity = usize::from(scheme.parity).min(present.saturating_sub(1));
        let data = present.saturating_sub(parity);
        // Both are below the scheme's own width, so they fit in a byte.
        Scheme::new(data as u8, parity as u8).ok_or(StripeError::TooFewDevices { scheme, present })
    }
}

/// n over k; callers keep n at most `TIE_WINDOW` or equal to k, so nothing overflows.
fn binomial(n: usize, k: usize) -> u64 {
    let k = k.min(n - k);
    (0..k).fold(1, |product, at| product * (n - at) as u64 / (at as u64 + 1))
}

/// The combination of this rank among all k-combinations of 0..n, in lexicographic order.
fn combination(n: usize, k: usize, rank: u64) -> Vec<usize> {
    let mut rank = rank;
    let mut picked = Vec::with_capacity(k);
    for candidate in 0..n {
        let left = k - picked.len();
        if left == 0 {
            break;
        }
        // So many combinations begin with this candidate.
        let with = binomial(n - candidate - 1, left - 1);
        if rank < with {
            picked.push(candidate);
        } else {
            rank -= with;
        }
    }
    assert_eq!(picked.len(), k, "the rank lies within the number of combinations");
    picked
}

#[cfg(test)]
mod tests;
