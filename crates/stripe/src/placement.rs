//! On which devices a new segment goes.
//!
//! Devices take part by their share of what is free, in changing combinations (`placement/spread.rs`), where that costs no
//! capacity; else those with most free slots do, which is optimal: `capacity` is exact. The order of chunks rotates, so that
//! first copies and parity are spread too. Chunks of one segment go to different hosts and shelves where that costs no capacity.
//! No clock, no random numbers: the same history places alike.
//!
//! Room can be kept for segments that others will need, of any schemes (`Kept`): a segment is refused if after it those
//! would no longer all fit. Whether segments of mixed widths fit is decided exactly (Gale and Ryser 1957), and taking the
//! devices with most free slots loses nothing: if any choice of devices leaves room for what is kept, this one does.
//!
//! A device that is away but expected back may be *deferred* chunks: they are placed on it, marked as missing, when the devices
//! that are there are fewer than a segment is wide but enough to hold its content. Catching up fills them later.
//!
//! What shall lie on some devices only, or rather: `placement/sites.rs`.
//!
//! Freeing has two stages: `free_later(places, generation)` when nothing needs them any more, `release(generation)` once
//! the checkpoint of that generation is durable; until then the old tree may still be the one that is found.

mod sites;
mod spread;

use crate::error::StripeError;
use crate::homes::Homes;
use crate::slots::SlotMap;
use spread::Spread;
use std::collections::{BTreeMap, BTreeSet};
use stere_format::{ChunkPlace, ChunkPlaces, DeviceIndex, DeviceState, Scheme, SegmentChunks, Site, SlotExtent};

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

/// Room for so many segments of a scheme that must be left for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub scheme: Scheme,
    pub segments: u64,
    /// The place on whose devices alone they can lie; 0 for all.
    pub only: u8,
}

/// The slots of one device, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotUsage {
    pub slot_count: u32,
    pub free: u32,
    /// Waiting for `release`; counted neither as free nor as needed.
    pub pending: u32,
}

/// So many slots of a device stay free for others while some are discarded.
const FREE_BESIDE_DISCARD: usize = 16;

#[derive(Debug, Default)]
struct DeviceSlots {
    map: SlotMap,
    pending: u32,
    /// Whether new chunks may go here: the device is there and nobody is emptying it.
    is_open: bool,
    /// Whether the device is there.
    is_attached: bool,
    /// Whether it does not do what it is asked to, so that it counts as away until it is attached again.
    is_suspended: bool,
    /// Nobody shall see it for the moment: what is done now is none of its business.
    is_hidden: bool,
    write_errors: u32,
    /// What the pool means to do with it; none where nobody told.
    state: Option<DeviceState>,
    host: String,
    shelf: String,
    /// Slots that were freed since they were discarded last; some may be in use again.
    undiscarded: BTreeSet<u32>,
    /// Slots that count as used while they are discarded.
    discarding: BTreeSet<u32>,
}

impl DeviceSlots {
    /// Whether chunks may be placed here although the device is away.
    fn may_be_deferred(&self) -> bool {
        let is_expected = matches!(self.state, Some(DeviceState::Active | DeviceState::Offline));
        is_expected && !self.is_hidden && !self.is_open && (!self.is_attached || self.is_suspended)
    }

    fn settle(&mut self) {
        let is_active = matches!(self.state, None | Some(DeviceState::Active));
        self.is_open = self.is_attached && is_active && !self.is_suspended;
    }

    /// How much an accident takes with it if this device is chosen beside the other: 2 for the same shelf, 1 for the same host.
    fn shares_with(&self, other: &DeviceSlots) -> u32 {
        let same_host = self.host == other.host;
        let same_shelf = !self.shelf.is_empty() && self.shelf == other.shelf && same_host;
        u32::from(same_host && !self.host.is_empty()) + u32::from(same_shelf)
    }
}

/// Errors after which a device takes no new chunks until it is attached again.
const WRITE_ERRORS_MAX: u32 = 3;

#[derive(Debug, Default)]
pub(crate) struct Placement {
    devices: BTreeMap<DeviceIndex, DeviceSlots>,
    pending: BTreeMap<u64, Vec<ChunkPlace>>,
    spread: Spread,
    order_turn: u64,
    homes: BTreeMap<Site, Homes>,
    /// The devices of each place.
    places: BTreeMap<u8, BTreeSet<DeviceIndex>>,
}

impl Placement {
    pub(crate) fn set_slot_count(&mut self, index: DeviceIndex, slot_count: u32) {
        self.devices.entry(index).or_default().map.set_slot_count(slot_count);
    }

    pub(crate) fn set_open(&mut self, index: DeviceIndex, is_open: bool) {
        self.devices.entry(index).or_default().is_open = is_open;
    }

    /// The device is there now, or not any more.
    pub(crate) fn set_attached(&mut self, index: DeviceIndex, is_attached: bool) {
        let slots = self.devices.entry(index).or_default();
        slots.is_attached = is_attached;
        slots.is_suspended = false;
        slots.write_errors = 0;
        slots.settle();
    }

    pub(crate) fn set_state(&mut self, index: DeviceIndex, state: DeviceState) {
        let slots = self.devices.entry(index).or_default();
        slots.state = Some(state);
        slots.settle();
    }

    pub(crate) fn set_domain(&mut self, index: DeviceIndex, host: &str, shelf: &str) {
        let slots = self.devices.entry(index).or_default();
        slots.host = host.to_owned();
        slots.shelf = shelf.to_owned();
    }

    pub(crate) fn suspend(&mut self, index: DeviceIndex) {
        let slots = self.devices.entry(index).or_default();
        slots.is_suspended = true;
        slots.settle();
    }

    /// It may be good again; the next error suspends it again.
    pub(crate) fn resume(&mut self, index: DeviceIndex) {
        let slots = self.devices.entry(index).or_default();
        slots.is_suspended = false;
        slots.write_errors = WRITE_ERRORS_MAX - 1;
        slots.settle();
    }

    /// A write failed; true if the device is suspended for it now. The last one that takes anything goes on trying.
    pub(crate) fn note_write_error(&mut self, index: DeviceIndex, is_final: bool) -> bool {
        let is_last = self.open_count() <= 1;
        let slots = self.devices.entry(index).or_default();
        slots.write_errors += 1;
        let is_enough = is_final || (slots.write_errors >= WRITE_ERRORS_MAX && !is_last);
        let suspends = !slots.is_suspended && slots.is_attached && is_enough;
        if suspends {
            self.suspend(index);
        }
        suspends
    }

    pub(crate) fn is_suspended(&self, index: DeviceIndex) -> bool {
        self.devices.get(&index).is_some_and(|slots| slots.is_suspended)
    }

    pub(crate) fn is_open(&self, index: DeviceIndex) -> bool {
        self.devices.get(&index).is_some_and(|slots| slots.is_open)
    }

    pub(crate) fn forget(&mut self, index: DeviceIndex) {
        self.devices.remove(&index);
        self.spread.forget(index);
        for places in self.pending.values_mut() {
            places.retain(|place| place.device != index);
        }
    }

    pub(crate) fn usage(&self, index: DeviceIndex) -> Option<SlotUsage> {
        self.devices.get(&index).map(|slots| SlotUsage {
            slot_count: slots.map.slot_count(),
            free: slots.map.free_count(),
            // Some of them may lie beyond.
            pending: slots.pending.min(slots.map.slot_count() - slots.map.free_count()),
        })
    }

    /// A chunk lies where its device is not to be used any more.
    pub(crate) fn is_beyond(&self, place: ChunkPlace) -> bool {
        self.devices.get(&place.device).is_some_and(|slots| slots.is_attached && place.slot >= slots.map.slot_count())
    }

    pub(crate) fn used_beyond(&self, index: DeviceIndex) -> u32 {
        self.devices.get(&index).map_or(0, |slots| slots.map.used_beyond())
    }

    pub(crate) fn is_used(&self, place: ChunkPlace) -> bool {
        self.devices.get(&place.device).is_some_and(|slots| slots.map.is_used(place.slot))
    }

    fn open_count(&self) -> usize {
        self.devices.values().filter(|slots| slots.is_open).count()
    }

    fn deferred_count(&self) -> usize {
        self.devices.values().filter(|slots| slots.may_be_deferred()).count()
    }

    /// Whether segments of this scheme take in devices that are away.
    fn owes(&self, scheme: Scheme) -> bool {
        let open = self.open_count();
        open < scheme.width() && open >= usize::from(scheme.data) && open + self.deferred_count() >= scheme.width()
    }

    /// Places a segment, unless what is kept for others would then not fit any more.
    pub(crate) fn allocate(&mut self, scheme: Scheme, kept: &[Kept]) -> Result<SegmentChunks, StripeError> {
        let width = scheme.width();
        let present = self.open_count();
        let owes = self.owes(scheme);
        if present < width && !owes {
            return Err(StripeError::TooFewDevices { scheme, present });
        }
        let segments_free = self.fits(scheme, |slots| u64::from(slots.map.free_count()));
        let segments_kept = kept.iter().map(|kept| kept.segments).sum();
        let refused = StripeError::NoSpace { scheme, segments_free, segments_kept };
        if !self.leaves_room(scheme, 1, kept, free_slots) {
            return Err(refused);
        }
        let chosen = match owes {
            true => self.choose_owing(scheme).ok_or(refused)?,
            false => self.choose_spread(scheme, kept),
        };
        assert_eq!(chosen.len(), width, "a segment that fits has its devices");
        Ok(self.take(scheme, chosen))
    }

    /// Takes a slot of each of these devices, the order of chunks by turns.
    fn take(&mut self, scheme: Scheme, mut chosen: Vec<DeviceIndex>) -> SegmentChunks {
        let width = scheme.width();
        chosen.rotate_left((self.order_turn % width as u64) as usize);
        self.order_turn = self.order_turn.wrapping_add(1);
        let (mut chunks, mut missing) = (ChunkPlaces::new(), 0);
        for (chunk, device) in chosen.into_iter().enumerate() {
            let slots = self.devices.get_mut(&device).expect("chosen from these devices");
            let slot = slots.map.take().expect("chosen because it has a free slot");
            missing |= u32::from(!slots.is_open) << chunk;
            chunks.push(ChunkPlace { device, slot });
        }
        assert_eq!(chunks.len(), width, "a segment has as many chunks as it is wide");
        let is_alone = |at: usize| chunks[..at].iter().all(|other| other.device != chunks[at].device);
        assert!((0..width).all(is_alone), "the chunks of a segment lie on different devices");
        let missing_count = missing.count_ones() as usize;
        assert!(missing_count <= usize::from(scheme.parity), "the devices that are there hold the content");
        SegmentChunks { scheme, missing, chunks }
    }

    /// Places a segment on other devices than these, if the others suffice.
    pub(crate) fn allocate_without(
        &mut self,
        avoided: &[DeviceIndex],
        scheme: Scheme,
        kept: &[Kept],
    ) -> Option<SegmentChunks> {
        let closed: Vec<DeviceIndex> = avoided.iter().copied().filter(|index| self.is_open(*index)).collect();
        let open = self.devices.values().filter(|slots| slots.is_open).count();
        if open < closed.len() + scheme.width() {
            return None;
        }
        closed.iter().for_each(|index| self.set_open(*index, false));
        let places = self.allocate(scheme, kept).ok();
        closed.iter().for_each(|index| self.set_open(*index, true));
        // What is kept may need the avoided devices: with them it has to fit.
        let places = places?;
        if self.all_fit(kept, free_slots) {
            return Some(places);
        }
        self.free_now(&places.chunks);
        None
    }

    /// All devices that are there and have room, and so many that are away that the width is reached.
    fn choose_owing(&self, scheme: Scheme) -> Option<Vec<DeviceIndex>> {
        let by_free = |is_wanted: &dyn Fn(&DeviceSlots) -> bool| {
            let found = self.devices.iter().filter(|(_, slots)| slots.map.free_count() > 0 && is_wanted(slots));
            let mut found: Vec<_> =
                found.map(|(&index, slots)| (std::cmp::Reverse(slots.map.free_count()), index)).collect();
            found.sort_unstable();
            found.into_iter().map(|(_, index)| index).collect::<Vec<DeviceIndex>>()
        };
        let mut chosen = by_free(&|slots| slots.is_open);
        if chosen.len() < usize::from(scheme.data) {
            return None;
        }
        chosen.extend(by_free(&DeviceSlots::may_be_deferred));
        chosen.truncate(scheme.width());
        (chosen.len() == scheme.width()).then_some(chosen)
    }

    /// A slot for a chunk that leaves `from`, its segment's other chunks lying on `others`: apart from them, then where most is
    /// free, where its site allows it to be and rather where it shall. `only` names the one device that will do.
    pub(crate) fn place_beside(
        &mut self,
        site: Site,
        others: &[DeviceIndex],
        from: DeviceIndex,
        only: Option<DeviceIndex>,
    ) -> Option<ChunkPlace> {
        let device = self.best_beside(site, others, from, only)?;
        let slot = self.devices.get_mut(&device)?.map.take()?;
        Some(ChunkPlace { device, slot })
    }

    pub(crate) fn best_beside(
        &self,
        site: Site,
        others: &[DeviceIndex],
        from: DeviceIndex,
        only: Option<DeviceIndex>,
    ) -> Option<DeviceIndex> {
        let can = |index: &DeviceIndex, slots: &DeviceSlots| {
            slots.is_open
                && slots.map.free_count() > 0
                // Who names the device that it leaves means another slot there.
                && (*index != from || only == Some(from))
                && !others.contains(index)
                && self.allows(site, *index)
                && only.is_none_or(|one| one == *index)
        };
        let cost = |index: DeviceIndex, slots: &DeviceSlots| {
            let beside = others.iter().filter_map(|other| self.devices.get(other));
            let shared: u32 = beside.map(|other| slots.shares_with(other)).sum();
            (!self.prefers(site, index), shared, std::cmp::Reverse(slots.map.free_count()))
        };
        let found = self.devices.iter().filter(|(index, slots)| can(index, slots));
        let found = found.min_by_key(|(index, slots)| cost(**index, slots));
        found.map(|(index, _)| *index)
    }

    /// Places an unreplicated segment on this device, unless what is kept for others would then not fit any more, or the
    /// device has only `slots_kept` free slots while others have more.
    pub(crate) fn allocate_on(
        &mut self,
        site: Site,
        device: DeviceIndex,
        kept: &[Kept],
        slots_kept: u32,
    ) -> Result<SegmentChunks, StripeError> {
        let scheme = Scheme::new(1, 0).expect("one copy is a scheme");
        if !self.has_room_for_home(site, device, kept, slots_kept) {
            let segments_free = self.fits(scheme, |slots| u64::from(slots.map.free_count()));
            let segments_kept = kept.iter().map(|kept| kept.segments).sum();
            return Err(StripeError::NoSpace { scheme, segments_free, segments_kept });
        }
        let slots = self.devices.get_mut(&device).expect("a device with room is known");
        let slot = slots.map.take().expect("a device with room has a free slot");
        let chunks = [ChunkPlace { device, slot }].into_iter().collect();
        Ok(SegmentChunks { scheme, missing: 0, chunks })
    }

    /// Whether files that lie whole on this device can go on there.
    pub(crate) fn has_room_for_home(
        &mut self,
        site: Site,
        device: DeviceIndex,
        kept: &[Kept],
        slots_kept: u32,
    ) -> bool {
        let free = |slots: &DeviceSlots| if slots.is_open { slots.map.free_count() } else { 0 };
        let own = self.devices.get(&device).map_or(0, free);
        let mut others = self.devices.iter().filter(|(index, _)| self.allows(site, **index));
        let has_slot = own > slots_kept || (own > 0 && others.all(|(_, slots)| free(slots) <= slots_kept));
        let left = |index, slots: &DeviceSlots| free_slots(index, slots) - u64::from(index == device);
        has_slot && self.allows(site, device) && self.keeps(kept, left)
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
            slots.undiscarded.insert(place.slot);
        }
    }

    /// Takes freed slots that are to be discarded, at most so many of each device: they count as used until `end_discard`. Where few are
    /// free none is taken, for somebody may need them.
    pub(crate) fn begin_discard(&mut self, slots_max: usize) -> Vec<ChunkPlace> {
        let mut places = Vec::new();
        for (device, slots) in &mut self.devices {
            let spare = (slots.map.free_count() as usize).saturating_sub(FREE_BESIDE_DISCARD);
            if !slots.is_attached || slots.is_suspended {
                continue;
            }
            for _ in 0..slots_max.min(spare) {
                let Some(slot) = slots.undiscarded.pop_first() else { break };
                // Else it is in use again, or somebody may still write to it.
                if !slots.map.is_held(slot) && slots.map.mark_used(slot) {
                    slots.discarding.insert(slot);
                    places.push(ChunkPlace { device: *device, slot });
                }
            }
            let is_left = slots.map.free_count() as usize >= FREE_BESIDE_DISCARD;
            assert!(is_left || spare == 0, "slots stay free beside those that are discarded");
        }
        places
    }

    /// Gives these slots to nobody until `release_held`.
    pub(crate) fn hold(&mut self, extents: &[SlotExtent]) {
        for (device, slot) in crate::grants::slots_of(extents) {
            self.devices.entry(device).or_default().map.hold(slot);
        }
    }

    /// Ends these holds; how many slots that were.
    pub(crate) fn release_held(&mut self, extents: &[SlotExtent]) -> usize {
        let slots = crate::grants::slots_of(extents);
        let was_held = |(device, slot): (DeviceIndex, u32)| {
            self.devices.get_mut(&device).is_some_and(|slots| slots.map.release_held(slot))
        };
        slots.map(was_held).filter(|was_held| *was_held).count()
    }

    /// Whether slots would be free if they were not held.
    pub(crate) fn holds_free(&self) -> bool {
        self.devices.values().any(|slots| slots.map.holds_free())
    }

    /// Counts every free slot as freed just now; how many there are.
    pub(crate) fn discard_again(&mut self) -> usize {
        let mut count = 0;
        for slots in self.devices.values_mut().filter(|slots| slots.is_attached && !slots.is_suspended) {
            let free = (0..slots.map.slot_count()).filter(|slot| !slots.map.is_used(*slot));
            slots.undiscarded = free.collect();
            count += slots.undiscarded.len();
        }
        count
    }

    /// These slots are free again.
    pub(crate) fn end_discard(&mut self, places: &[ChunkPlace]) {
        for place in places {
            let Some(slots) = self.devices.get_mut(&place.device) else { continue };
            // Not if the device left meanwhile, and another has its number.
            if slots.discarding.remove(&place.slot) {
                let was_used = slots.map.mark_free(place.slot);
                assert!(was_used, "a slot that is discarded is nobody else's");
            }
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

    fn fits(&self, scheme: Scheme, slots_of: impl Fn(&DeviceSlots) -> u64) -> u64 {
        self.fits_of(scheme, |slots, _| slots_of(slots))
    }

    /// The largest n with sum(min(slots_i, n)) >= n * width: every segment takes at most one slot of a device. Where chunks are
    /// deferred, the devices that are there hold the content of all n.
    fn fits_of(&self, scheme: Scheme, slots_of: impl Fn(&DeviceSlots, &DeviceIndex) -> u64) -> u64 {
        let width = scheme.width() as u64;
        let owes = self.owes(scheme);
        let counts = |is_wanted: &dyn Fn(&DeviceSlots) -> bool| -> Vec<u64> {
            let wanted = self.devices.iter().filter(|(_, slots)| is_wanted(slots));
            wanted.map(|(index, slots)| slots_of(slots, index)).collect()
        };
        let open = counts(&|slots| slots.is_open);
        let all = if owes { counts(&|slots| slots.is_open || slots.may_be_deferred()) } else { open.clone() };
        let sum = |counts: &[u64], segments: u64| counts.iter().map(|&count| count.min(segments)).sum::<u64>();
        let has_room = |segments: u64| {
            sum(&all, segments) >= segments * width
                && (!owes || sum(&open, segments) >= segments * u64::from(scheme.data))
        };
        let (mut low, mut high) = (0, all.iter().sum::<u64>() / width);
        while low < high {
            let middle = high - (high - low) / 2;
            if has_room(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        assert!(has_room(low), "{low} segments of {scheme:?} are told to fit");
        low
    }

    /// Whether so many segments of the scheme fit, and all that is kept beside them.
    fn leaves_room(
        &self,
        scheme: Scheme,
        segments: u64,
        kept: &[Kept],
        slots_of: impl Fn(DeviceIndex, &DeviceSlots) -> u64,
    ) -> bool {
        let mut wanted = kept.to_vec();
        wanted.push(Kept { scheme, segments, only: 0 });
        self.all_fit(&wanted, slots_of)
    }

    /// Whether all these segments fit. Of those that have too few devices at all the chunks that are there count. Where chunks
    /// are deferred, the devices that are there hold the content, and what those that are away are too few for: others go nowhere else.
    fn all_fit(&self, wanted: &[Kept], slots_of: impl Fn(DeviceIndex, &DeviceSlots) -> u64) -> bool {
        let (present, away) = (self.open_count(), self.deferred_count());
        let wanted = || wanted.iter().filter(|kept| kept.segments > 0);
        let slots = |is_wanted: &dyn Fn(&DeviceSlots) -> bool| -> Vec<u64> {
            let found = self.devices.iter().filter(|(_, slots)| is_wanted(slots));
            found.map(|(&index, slots)| slots_of(index, slots)).collect()
        };
        let here = |kept: &Kept| {
            let width = kept.scheme.width();
            let owing = usize::from(kept.scheme.data).max(width.saturating_sub(away));
            (if self.owes(kept.scheme) { owing } else { width.min(present) } as u64, kept.segments)
        };
        if !widths_fit(&slots(&|slots| slots.is_open), wanted().map(here).collect()) {
            return false;
        }
        let owes = wanted().any(|kept| self.owes(kept.scheme));
        let width = |scheme: Scheme| if self.owes(scheme) { scheme.width() } else { scheme.width().min(present) };
        let everywhere = |kept: &Kept| (width(kept.scheme) as u64, kept.segments);
        !owes
            || widths_fit(&slots(&|slots| slots.is_open || slots.may_be_deferred()), wanted().map(everywhere).collect())
    }

    /// How many segments of the scheme fit beside what is kept: now, and on the same devices if they were empty.
    pub(crate) fn room(&self, scheme: Scheme, kept: &[Kept]) -> (u64, u64) {
        self.room_of(scheme, kept, free_slots, |_, slots| u64::from(slots.map.slot_count()))
    }

    /// The same with so many slots on each device.
    fn room_of(
        &self,
        scheme: Scheme,
        kept: &[Kept],
        free: impl Fn(DeviceIndex, &DeviceSlots) -> u64,
        all: impl Fn(DeviceIndex, &DeviceSlots) -> u64,
    ) -> (u64, u64) {
        let most = |high: u64, fits: &dyn Fn(u64) -> bool| {
            let (mut low, mut high) = (0, high);
            while low < high {
                let middle = high - (high - low) / 2;
                if fits(middle) {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            low
        };
        let Capacity { segments_total, segments_free, .. } = self.capacity(scheme);
        let free_segments = most(segments_free, &|segments| self.leaves_room(scheme, segments, kept, &free));
        (free_segments, most(segments_total, &|segments| self.leaves_room(scheme, segments, kept, &all)))
    }

    /// The open device with the fewest free slots, if moving a chunk from it to the one with most evens them out.
    pub(crate) fn overfull(&self) -> Option<DeviceIndex> {
        let open = || self.devices.iter().filter(|(_, slots)| slots.is_open);
        let (index, tightest) = open().min_by_key(|(_, slots)| slots.map.free_count())?;
        let most = open().map(|(_, slots)| slots.map.free_count()).max()?;
        (most >= tightest.map.free_count() + 2).then_some(*index)
    }

    /// The best scheme for the devices that are there, or expected back where those suffice for the content: copies as many as
    /// there are; of k+m first k shrinks, then m.
    pub(crate) fn fit(&self, scheme: Scheme) -> Result<Scheme, StripeError> {
        let open = self.open_count();
        for present in [open + self.deferred_count(), open] {
            if open >= scheme.width() || (present >= scheme.width() && open >= usize::from(scheme.data)) {
                return Ok(scheme);
            }
            let parity = usize::from(scheme.parity).min(present.saturating_sub(1));
            let data = present.saturating_sub(parity).min(usize::from(scheme.data));
            assert!(parity + data <= present, "a fitted scheme is as wide as there are devices at most");
            // Both are below the scheme's own width, so they fit in a byte.
            if let Some(fitted) = Scheme::new(data as u8, parity as u8).filter(|_| data <= open) {
                return Ok(fitted);
            }
        }
        Err(StripeError::TooFewDevices { scheme, present: open })
    }
}

fn free_slots(_: DeviceIndex, slots: &DeviceSlots) -> u64 {
    u64::from(slots.map.free_count())
}

/// Whether segments of these widths and numbers fit in so many slots of each device. The widest n of them need all their
/// chunks, and get at most n slots of a device; that this suffices for every n is the theorem of Gale and Ryser. Both sides
/// bend downwards in n, at places that are known, and only there it needs to be looked at.
fn widths_fit(slots: &[u64], mut wanted: Vec<(u64, u64)>) -> bool {
    wanted.sort_unstable_by_key(|&(width, _)| std::cmp::Reverse(width));
    let mut corners = slots.to_vec();
    let mut total = 0;
    for &(_, segments) in &wanted {
        total += segments;
        corners.push(total);
    }
    corners.retain(|&corner| corner <= total);
    corners.into_iter().all(|corner| {
        let mut left = corner;
        let needed = wanted.iter().map(|&(width, segments)| {
            let counted = segments.min(left);
            left -= counted;
            width * counted
        });
        needed.sum::<u64>() <= slots.iter().map(|&count| count.min(corner)).sum()
    })
}

#[cfg(test)]
mod tests;
