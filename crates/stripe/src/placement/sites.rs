//! Data that shall lie on some of the devices: a *place* is a set of them, a *site* what data asks for.
//!
//! What is asked for with `only` is done as if there were no other devices: redundancy, room and turns are those of a smaller
//! pool. What is asked for with `on` is tried first; where the devices do not suffice, as many chunks as can lie there do, and
//! where there is no room at all the others take them. Room that is kept for data of a place is kept on its devices.
//! Invariant: no chunk of a segment with `only` is ever placed on a device that the place did not name at that moment.
//! Read next: `docs/design/placement.md`.

use super::{DeviceSlots, Kept, Placement, free_slots};
use crate::error::StripeError;
use std::collections::{BTreeMap, BTreeSet};
use stere_faults::{Bug, is_planted};
use stere_format::{DeviceIndex, Scheme, SegmentChunks, Site};

/// Free slots below which a device is no home for new files because somebody would rather have them there.
const HOME_SLOTS_MIN: u32 = 2;

impl Placement {
    /// Says which devices a place means from now on. Tells whether it meant others.
    pub(crate) fn set_place(&mut self, number: u8, devices: BTreeSet<DeviceIndex>) -> bool {
        let before = self.places.insert(number, devices);
        before.is_some_and(|before| self.places.get(&number) != Some(&before))
    }

    fn is_of(&self, place: u8, device: DeviceIndex) -> bool {
        place == 0 || self.places.get(&place).is_some_and(|devices| devices.contains(&device))
    }

    /// Whether data of this site may lie on a device.
    pub(crate) fn allows(&self, site: Site, device: DeviceIndex) -> bool {
        self.is_of(site.only, device)
    }

    /// Whether data of this site had better lie on this device than on others.
    pub(crate) fn prefers(&self, site: Site, device: DeviceIndex) -> bool {
        self.allows(site, device) && self.is_of(site.on, device)
    }

    /// Does something as if there were only the devices that are wanted.
    fn with_devices<T>(
        &mut self,
        is_wanted: impl Fn(&Placement, DeviceIndex) -> bool,
        act: impl FnOnce(&mut Placement) -> T,
    ) -> T {
        let indexes: Vec<DeviceIndex> = self.devices.keys().copied().collect();
        let unwanted: Vec<DeviceIndex> = indexes.into_iter().filter(|index| !is_wanted(self, *index)).collect();
        let mut hidden = Vec::new();
        for index in unwanted {
            let Some(slots) = self.devices.get_mut(&index).filter(|slots| !slots.is_hidden) else { continue };
            hidden.push((index, slots.is_open));
            (slots.is_hidden, slots.is_open) = (true, false);
        }
        let outcome = act(self);
        for (index, is_open) in hidden {
            if let Some(slots) = self.devices.get_mut(&index) {
                assert!(slots.is_hidden && !slots.is_open, "a hidden device stays closed");
                (slots.is_hidden, slots.is_open) = (false, is_open);
            }
        }
        outcome
    }

    /// Does something as if there were only the devices of a place.
    pub(crate) fn within<T>(&mut self, place: u8, act: impl FnOnce(&mut Placement) -> T) -> T {
        match place {
            0 => act(self),
            _ => self.with_devices(|placement, index| placement.is_of(place, index), act),
        }
    }

    /// Does something as if these devices were not there.
    pub(crate) fn without<T>(&mut self, avoided: &[DeviceIndex], act: impl FnOnce(&mut Placement) -> T) -> T {
        self.with_devices(|_, index| !avoided.contains(&index), act)
    }

    /// Places a segment of this site, unless what is kept for others would then not fit any more.
    pub(crate) fn allocate_at(
        &mut self,
        site: Site,
        scheme: Scheme,
        kept: &[Kept],
    ) -> Result<SegmentChunks, StripeError> {
        if site.on != 0
            && let Some(places) = self.allocate_near(site, scheme, kept)
        {
            return Ok(places);
        }
        if site.on != 0 && is_planted(Bug::WishRequired) {
            return Err(StripeError::NoSpace { scheme, segments_free: 0, segments_kept: 0 });
        }
        let same: Vec<Kept> = kept.iter().filter(|one| one.only == site.only).copied().collect();
        let within = if is_planted(Bug::RequirementForgotten) { 0 } else { site.only };
        let places = self.within(within, |placement| placement.allocate(scheme, &same))?;
        if self.keeps(kept, free_slots) {
            return Ok(places);
        }
        self.free_now(&places.chunks);
        // What may lie anywhere leaves the last slots of devices to those that can lie nowhere else.
        let mut wanted: Vec<DeviceIndex> = self.devices.keys().copied().collect();
        let numbers: BTreeSet<u8> = kept.iter().map(|one| one.only).filter(|number| *number != 0).collect();
        wanted.retain(|index| numbers.iter().any(|number| self.is_of(*number, *index)));
        if site.only == 0 && !wanted.is_empty() {
            let places = self.without(&wanted, |placement| placement.allocate(scheme, &same))?;
            if self.keeps(kept, free_slots) {
                return Ok(places);
            }
            self.free_now(&places.chunks);
        }
        let segments_free = self.room_within(site.only, scheme, &[], &BTreeMap::new()).0;
        let segments_kept = kept.iter().map(|kept| kept.segments).sum();
        Err(StripeError::NoSpace { scheme, segments_free, segments_kept })
    }

    /// Places a segment where it had better lie, as many chunks of it as can.
    fn allocate_near(&mut self, site: Site, scheme: Scheme, kept: &[Kept]) -> Option<SegmentChunks> {
        let can = |index: &DeviceIndex, slots: &DeviceSlots| {
            slots.is_open && slots.map.free_count() > 0 && self.prefers(site, *index)
        };
        let near: Vec<DeviceIndex> =
            self.devices.iter().filter(|(index, slots)| can(index, slots)).map(|(index, _)| *index).collect();
        let places = match near.len() {
            0 => return None,
            count if count >= scheme.width() => {
                self.with_devices(|_, index| near.contains(&index), |placement| placement.allocate(scheme, &[])).ok()?
            }
            count => {
                let wanted = scheme.width() - count;
                let others = self.within(site.only, |placement| {
                    placement.without(&near, |placement| placement.choose_if_any(wanted))
                })?;
                self.take(scheme, near.into_iter().chain(others).collect())
            }
        };
        if self.keeps(kept, free_slots) {
            return Some(places);
        }
        self.free_now(&places.chunks);
        None
    }

    fn choose_if_any(&mut self, width: usize) -> Option<Vec<DeviceIndex>> {
        let with_room = self.devices.values().filter(|slots| slots.is_open && slots.map.free_count() > 0).count();
        (with_room >= width).then(|| self.choose(width))
    }

    /// Whether what is kept fits: on all devices together, and what can lie on those of a place only, there.
    pub(super) fn keeps(&mut self, kept: &[Kept], slots_of: impl Fn(DeviceIndex, &DeviceSlots) -> u64 + Copy) -> bool {
        let numbers: BTreeSet<u8> = kept.iter().map(|one| one.only).filter(|number| *number != 0).collect();
        self.all_fit(kept, slots_of)
            && numbers.into_iter().all(|number| {
                let same: Vec<Kept> = kept.iter().filter(|one| one.only == number).copied().collect();
                self.within(number, |placement| placement.all_fit(&same, slots_of))
            })
    }

    /// How many chunks of a segment of this site would lie where they had better, if it were begun now; none if it cannot be.
    pub(crate) fn nearest(&mut self, site: Site, scheme: Scheme, kept: &[Kept]) -> Option<usize> {
        let turns = (self.spread.clone(), self.order_turn);
        let places = self.allocate_at(site, scheme, kept);
        (self.spread, self.order_turn) = turns;
        let places = places.ok()?;
        self.free_now(&places.chunks);
        Some(places.chunks.iter().filter(|place| self.prefers(site, place.device)).count())
    }

    /// As `room` with the devices of a place alone, on some of which so many slots are used whatever is cleaned. What is kept on
    /// devices of other places is not to be had.
    pub(crate) fn room_within(
        &mut self,
        only: u8,
        scheme: Scheme,
        kept: &[Kept],
        used: &BTreeMap<DeviceIndex, u64>,
    ) -> (u64, u64) {
        let same: Vec<Kept> = kept.iter().filter(|one| one.only == only).copied().collect();
        let others: Vec<Kept> = kept.iter().filter(|one| one.only != only && one.only != 0).copied().collect();
        let mut taken: BTreeMap<DeviceIndex, u64> = BTreeMap::new();
        for index in self.devices.keys().copied().filter(|_| only == 0) {
            let of = others.iter().filter(|one| self.is_of(one.only, index));
            taken.insert(index, of.map(|one| one.segments).sum());
        }
        let taken = &taken;
        let left = |index: DeviceIndex, slots: u64| slots.saturating_sub(taken.get(&index).copied().unwrap_or(0));
        self.within(only, |placement| {
            placement.room_of(
                scheme,
                &same,
                |index, slots| left(index, free_slots(index, slots)),
                |index, slots| {
                    let used = used.get(&index).copied().unwrap_or(0);
                    left(index, u64::from(slots.map.slot_count()).saturating_sub(used))
                },
            )
        })
    }

    /// The device for the next file that lies whole on one: all that may take it in turn, those with more free slots more often.
    pub(crate) fn choose_home(&mut self, site: Site) -> Option<DeviceIndex> {
        let open = self.devices.iter().filter(|(index, slots)| slots.is_open && self.allows(site, **index));
        let mut free: Vec<(DeviceIndex, u32)> = open.map(|(&index, slots)| (index, slots.map.free_count())).collect();
        let is_near = |one: &(DeviceIndex, u32)| one.1 > HOME_SLOTS_MIN && self.prefers(site, one.0);
        if site.on != 0 && free.iter().any(is_near) {
            free.retain(is_near);
        }
        self.homes.entry(site).or_default().next(&free)
    }

    /// Open devices of a place.
    pub(crate) fn open_devices(&self, place: u8) -> Vec<DeviceIndex> {
        let open = self.devices.iter().filter(|(index, slots)| slots.is_open && self.is_of(place, **index));
        open.map(|(&index, _)| index).collect()
    }

    /// The best scheme for the devices of a place.
    #[inline]
    pub(crate) fn fit_within(&mut self, place: u8, scheme: Scheme) -> Result<Scheme, StripeError> {
        self.within(place, |placement| placement.fit(scheme))
    }
}

#[cfg(test)]
mod tests;
