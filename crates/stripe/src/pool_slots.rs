//! The slots of all devices of a pool: which are in use, and where new segments go.
//!
//! `Placement` decides, by what it knows of slots; here it is asked under its lock, with what the devices are like now: those that
//! are very slow or have many writes waiting get nothing new while others suffice.
//! Invariant: a slot is used by one chunk at most, and discarded only while it is free. Read next: `placement.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use stere_device::{Device, DeviceError};
use stere_format::{ChunkPlace, DeviceIndex, DeviceState, Scheme, SegmentChunks, Site, SlotExtent};

use crate::devices::Devices;
use crate::error::StripeError;
use crate::placement::{Capacity, Kept, Placement, SlotUsage};

/// The slots of a pool's devices.
#[derive(Debug)]
pub struct Slots {
    chunk_bytes: u32,
    devices: Arc<Devices>,
    placement: Mutex<Placement>,
}

impl Slots {
    pub(crate) fn new(chunk_bytes: u32, devices: Arc<Devices>) -> Slots {
        Slots { chunk_bytes, devices, placement: Mutex::default() }
    }

    /// A device is there, with so many slots.
    pub(crate) fn attach(&self, index: DeviceIndex, slot_count: u32) {
        let mut placement = self.placement.lock();
        placement.set_slot_count(index, slot_count);
        placement.set_attached(index, true);
    }

    /// A device is away; what is known of its slots stays, so it can come back.
    pub(crate) fn detach(&self, index: DeviceIndex) {
        self.placement.lock().set_attached(index, false);
    }

    /// Forgets the slots of a device for good.
    pub(crate) fn forget(&self, index: DeviceIndex) {
        self.placement.lock().forget(index);
    }

    /// Whether new chunks may go to a device that is there (false while it is being emptied).
    pub fn set_accepts_chunks(&self, index: DeviceIndex, accepts: bool) {
        let is_there = self.devices.get(index).is_some();
        self.placement.lock().set_open(index, accepts && is_there);
    }

    /// Tells the size of a device that is away, so that its slots can be checked.
    pub fn declare(&self, index: DeviceIndex, slot_count: u32) {
        self.placement.lock().set_slot_count(index, slot_count);
    }

    /// What the pool means to do with a device: only active ones take new chunks, or have them deferred while they are away.
    pub fn set_state(&self, index: DeviceIndex, state: DeviceState) {
        self.placement.lock().set_state(index, state);
    }

    /// Which accidents a device shares with others: chunks of one segment are kept apart where that costs no room.
    pub fn set_domain(&self, index: DeviceIndex, host: &str, shelf: &str) {
        self.placement.lock().set_domain(index, host, shelf);
    }

    /// Puts nothing new on a device until it is attached again; what it still answers is read.
    pub fn suspend(&self, index: DeviceIndex) {
        self.placement.lock().suspend(index);
    }

    /// Ends a suspension: the device seems to answer again. The next error suspends it again.
    pub fn resume(&self, index: DeviceIndex) {
        self.placement.lock().resume(index);
    }

    /// Whether a device failed so that nothing new is put on it until it is attached again.
    pub fn is_suspended(&self, index: DeviceIndex) -> bool {
        self.placement.lock().is_suspended(index)
    }

    /// Whether enough devices that did not fail have their part of a segment.
    pub fn is_stored(&self, place: &SegmentChunks) -> bool {
        let has = |chunk: &usize| {
            let device = place.chunks[*chunk].device;
            !place.is_missing(*chunk) && self.devices.get(device).is_some() && !self.is_suspended(device)
        };
        (0..place.chunks.len()).filter(has).count() >= usize::from(place.scheme.data)
    }

    /// Whether new chunks may go to a device now.
    pub fn is_open(&self, index: DeviceIndex) -> bool {
        self.placement.lock().is_open(index)
    }

    /// Counts a failed write; a device that is gone, or fails again and again, is suspended. True if that happened just now.
    pub fn note_write_error(&self, index: DeviceIndex, error: &DeviceError) -> bool {
        let is_final = error.is_absence() || matches!(error, DeviceError::FlushFailed { .. });
        self.placement.lock().note_write_error(index, is_final)
    }

    /// Places a new segment, unless fewer than `keep_free` further ones of this scheme would then fit. Chunks that go to devices
    /// which are away, because too few are there, are marked as missing. Devices that are very slow now get none while the
    /// others suffice.
    pub fn allocate(&self, scheme: Scheme, keep_free: u64) -> Result<SegmentChunks, StripeError> {
        self.allocate_keeping(Site::ANYWHERE, scheme, &[Kept { scheme, segments: keep_free, only: 0 }])
    }

    /// The same where a site wants it, unless what is kept for others, of whatever schemes, would then not fit any more.
    pub fn allocate_keeping(&self, site: Site, scheme: Scheme, kept: &[Kept]) -> Result<SegmentChunks, StripeError> {
        let mut slow = self.devices.slow();
        slow.extend(self.devices.congested());
        slow.sort_unstable();
        slow.dedup();
        let mut placement = self.placement.lock();
        if !site.is_anywhere() || kept.iter().any(|kept| kept.only != 0) {
            // Who asks for devices rather than others gets them although they are slow.
            if !slow.is_empty()
                && site.on == 0
                && let Ok(places) = placement.without(&slow, |placement| placement.allocate_at(site, scheme, kept))
            {
                return Ok(places);
            }
            return placement.allocate_at(site, scheme, kept);
        }
        if !slow.is_empty()
            && let Some(places) = placement.allocate_without(&slow, scheme, kept)
        {
            return Ok(places);
        }
        placement.allocate(scheme, kept)
    }

    /// How many segments of the scheme fit beside what is kept for others: now, and if all devices were empty.
    pub fn room(&self, scheme: Scheme, kept: &[Kept]) -> (u64, u64) {
        self.placement.lock().room(scheme, kept)
    }

    /// The same with the devices of a place alone, of which so many slots stay used.
    pub fn room_within(
        &self,
        only: u8,
        scheme: Scheme,
        kept: &[Kept],
        used: &BTreeMap<DeviceIndex, u64>,
    ) -> (u64, u64) {
        self.placement.lock().room_within(only, scheme, kept, used)
    }

    /// Says which devices a place means from now on. Tells whether it meant others.
    pub fn set_place(&self, number: u8, devices: BTreeSet<DeviceIndex>) -> bool {
        self.placement.lock().set_place(number, devices)
    }

    /// Whether data of this site may lie on a device.
    pub fn allows(&self, site: Site, device: DeviceIndex) -> bool {
        self.placement.lock().allows(site, device)
    }

    /// Whether data of this site had better lie on this device than on others.
    pub fn prefers(&self, site: Site, device: DeviceIndex) -> bool {
        self.placement.lock().prefers(site, device)
    }

    /// How many chunks of a segment of this site would lie where they had better, if it were begun now; none if it cannot be.
    pub fn nearest(&self, site: Site, scheme: Scheme, kept: &[Kept]) -> Option<usize> {
        self.placement.lock().nearest(site, scheme, kept)
    }

    /// The device with the fewest free slots, if moving chunks away from it would even the devices out.
    pub fn overfull(&self) -> Option<DeviceIndex> {
        self.placement.lock().overfull()
    }

    /// A slot for a chunk that leaves the device `from`, beside those on the devices `others`, where its site wants it; `only` names
    /// the one device that will do.
    pub fn place_beside(
        &self,
        site: Site,
        others: &[DeviceIndex],
        from: DeviceIndex,
        only: Option<DeviceIndex>,
    ) -> Option<ChunkPlace> {
        self.placement.lock().place_beside(site, others, from, only)
    }

    /// The device on which `place_beside` would find a slot.
    pub fn best_beside(&self, site: Site, others: &[DeviceIndex], from: DeviceIndex) -> Option<DeviceIndex> {
        self.placement.lock().best_beside(site, others, from, None)
    }

    /// Places an unreplicated segment on this device, under the same condition as `allocate_keeping`; `slots_kept` free slots of the device are
    /// left alone while other devices have more.
    pub fn allocate_on(
        &self,
        site: Site,
        device: DeviceIndex,
        kept: &[Kept],
        slots_kept: u32,
    ) -> Result<SegmentChunks, StripeError> {
        self.placement.lock().allocate_on(site, device, kept, slots_kept)
    }

    /// Whether this device has room for one, what is kept for others and `slots_kept` left alone.
    pub fn has_room_for_home(&self, site: Site, device: DeviceIndex, kept: &[Kept], slots_kept: u32) -> bool {
        self.placement.lock().has_room_for_home(site, device, kept, slots_kept)
    }

    /// The device for the next file that lies whole on one: all take turns, those with more free slots more often.
    pub fn choose_home(&self, site: Site) -> Option<DeviceIndex> {
        self.placement.lock().choose_home(site)
    }

    /// Devices that take new chunks, by index.
    pub fn open_devices(&self) -> Vec<DeviceIndex> {
        self.open_devices_of(0)
    }

    /// Those of a place.
    pub fn open_devices_of(&self, place: u8) -> Vec<DeviceIndex> {
        self.placement.lock().open_devices(place)
    }

    /// Says that these slots are in use, when a pool is opened.
    pub fn mark_used(&self, places: &[ChunkPlace]) -> Result<(), StripeError> {
        self.placement.lock().mark_used(places)
    }

    /// Whether a chunk lies where its device is not to be used any more.
    pub fn is_beyond(&self, place: ChunkPlace) -> bool {
        self.placement.lock().is_beyond(place)
    }

    /// Slots in use, or waiting to be free, where the device is not to be used any more.
    pub fn used_beyond(&self, index: DeviceIndex) -> u32 {
        self.placement.lock().used_beyond(index)
    }

    pub fn is_used(&self, place: ChunkPlace) -> bool {
        self.placement.lock().is_used(place)
    }

    /// Frees slots that nothing durable ever named (an allocation that came to nothing).
    pub fn free_now(&self, places: &[ChunkPlace]) {
        self.placement.lock().free_now(places);
    }

    /// Frees slots once `release` is called for this generation or a later one.
    pub fn free_later(&self, places: &[ChunkPlace], generation: u64) {
        self.placement.lock().free_later(places, generation);
    }

    /// The checkpoint of this generation is durable: what waited for it is free. Returns it, to be discarded if wanted.
    pub fn release(&self, generation: u64) -> Vec<ChunkPlace> {
        self.placement.lock().release(generation)
    }

    /// Tells a device that a free slot holds nothing of value.
    pub fn discard(&self, place: ChunkPlace) -> Result<(), StripeError> {
        assert!(!self.is_used(place), "only free slots are discarded");
        let device = self.devices.get(place.device).ok_or(StripeError::Absent { index: place.device })?;
        let offset = device.slot_offset(place)?;
        Ok(device.discard(offset, u64::from(self.chunk_bytes))?)
    }

    /// The owner of the pool before may still write to these slots: they are given to nobody until `release_held`.
    pub fn hold(&self, extents: &[SlotExtent]) {
        self.placement.lock().hold(extents);
    }

    /// Whoever had these slots before does not write to them any more; how many those are.
    pub fn release_held(&self, extents: &[SlotExtent]) -> usize {
        self.placement.lock().release_held(extents)
    }

    /// Whether there is room that only is held for writes of an owner before.
    pub fn holds_free(&self) -> bool {
        self.placement.lock().holds_free()
    }

    /// Every free slot is to be discarded by `discard_freed`, also those that were so before; how many that are.
    pub fn discard_again(&self) -> usize {
        self.placement.lock().discard_again()
    }

    /// Tells devices that slots which were freed hold nothing of value, at most so many of each; how many that were.
    pub fn discard_freed(&self, slots_max: usize) -> usize {
        let places = self.placement.lock().begin_discard(slots_max);
        for place in &places {
            // Advice: a device that does not take it loses nothing.
            let device = self.devices.get(place.device);
            let offset = device.as_ref().and_then(|device| device.slot_offset(*place).ok());
            if let (Some(device), Some(offset)) = (device, offset)
                && device.silent_for().is_none()
            {
                drop(device.discard(offset, u64::from(self.chunk_bytes)));
            }
        }
        self.placement.lock().end_discard(&places);
        places.len()
    }

    pub fn capacity(&self, scheme: Scheme) -> Capacity {
        self.placement.lock().capacity(scheme)
    }

    /// The best scheme that the devices which are there allow: `scheme` itself if there are k+m, else fewer copies, or
    /// of k+m first a smaller k (as many losses survived), then a smaller m. Full devices count as there: redundancy
    /// never shrinks for lack of room, that is `NoSpace`.
    pub fn fit(&self, scheme: Scheme) -> Result<Scheme, StripeError> {
        self.placement.lock().fit(scheme)
    }

    /// The same for the devices of a place.
    #[inline]
    pub fn fit_within(&self, place: u8, scheme: Scheme) -> Result<Scheme, StripeError> {
        self.placement.lock().fit_within(place, scheme)
    }

    pub fn usage(&self, index: DeviceIndex) -> Option<SlotUsage> {
        self.placement.lock().usage(index)
    }
}
