//! Places: the words by which policy names devices, kept in the pool under numbers, and the devices that have them now.
//!
//! Data notes numbers ([`Site`]), in its segment; what they mean follows from the tags, classes and names of the devices whenever
//! one comes, goes or is labelled. New segments are begun accordingly, and mending moves chunks that do not lie as their segment
//! asks. Invariant: where a device is labelled otherwise, nothing is appended to segments that may not lie on it any more.
//! Read next: `place_table.rs`, `docs/design/placement.md`, the stripe layer's `placement/sites.rs`.

use std::collections::BTreeSet;

use stere_faults::{Bug, is_planted};
use stere_format::{DEVICE_CLASS_WORDS, DeviceEntry, DeviceIndex, DeviceState, Scheme, SegmentKind, Site, WIDTH_MAX};
use stere_log::{Segment, StreamKey};

use crate::content::Placement;
use crate::engine::Engine;
use stere_recall::BlobHandle;
use stere_stripe::{MetadataWish, usual_metadata_copies};

/// Segments that stay free for the cleaner and for checkpoints when chunks are moved.
const SEGMENTS_KEPT: u64 = 3;

/// Free slots of a device that chunks which lie well enough elsewhere leave alone.
const WISH_SLOTS_KEPT: u32 = 4;

/// How something lies, beside how it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// As asked, or as near to it as can be now.
    Well,
    /// Not so, and background work brings it there.
    Movable,
    /// Where it must not lie, and there is no room where it must.
    Wrongly,
}

/// Whether people know a device by this word.
fn is_known_by(entry: &DeviceEntry, word: &str) -> bool {
    let class = DEVICE_CLASS_WORDS.get(usize::from(entry.class)).filter(|_| entry.class != 0);
    entry.name == word || entry.tags.iter().any(|tag| tag == word) || class == Some(&word)
}

/// Which devices data of a place may lie on, and where new data goes.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    pub(crate) engine: &'a Engine,
}

impl<'a> Places<'a> {
    pub(crate) fn of(engine: &'a Engine) -> Places<'a> {
        Places { engine }
    }
}

impl Places<'_> {
    /// The devices have other words, or are others.
    pub(crate) fn resolve_places(&self) {
        let devices = self.engine.devices.lock().clone();
        for (number, words) in &*self.engine.places.lock() {
            let is_meant = |entry: &&DeviceEntry| words.iter().any(|word| is_known_by(entry, word));
            let meant: BTreeSet<DeviceIndex> = devices.iter().filter(is_meant).map(|entry| entry.index).collect();
            self.engine.log.stripe.set_told(*number, words.join(","));
            if self.engine.log.stripe.slots.set_place(*number, meant) {
                self.engine.changed_places.lock().insert(*number);
            }
        }
        let may_not_stay = |segment: &Segment| segment.kind == SegmentKind::Data && !self.may_stay(segment);
        self.engine.log.end_segments(&may_not_stay);
    }

    /// The number of the place that these words stand for, if there is one.
    pub fn find_place(&self, words: &[String]) -> Option<u8> {
        self.engine.places.lock().iter().find(|(_, known)| known.as_slice() == words).map(|(number, _)| *number)
    }

    /// The words of a place.
    pub fn place_words(&self, number: u8) -> Option<Vec<String>> {
        self.engine.places.lock().get(&number).cloned()
    }

    /// Places that mean other devices than when this was asked last.
    pub fn take_changed_places(&self) -> BTreeSet<u8> {
        std::mem::take(&mut *self.engine.changed_places.lock())
    }

    /// These are to be told again.
    pub fn put_changed_places(&self, numbers: BTreeSet<u8>) {
        self.engine.changed_places.lock().extend(numbers);
    }

    /// How many devices of the table data may lie on that must lie there and nowhere else.
    pub fn devices_of_place(&self, only: u8) -> usize {
        self.devices_allowed(only).len()
    }

    /// Which devices of the table these are.
    pub fn devices_allowed(&self, only: u8) -> Vec<DeviceIndex> {
        let devices = self.engine.devices.lock();
        let site = Site { only, ..Site::ANYWHERE };
        devices
            .iter()
            .map(|entry| entry.index)
            .filter(|index| self.engine.log.stripe.slots.allows(site, *index))
            .collect()
    }

    /// The scheme that data of this placement gets with the devices that it may lie on.
    pub fn fit_for(&self, placement: Placement) -> Scheme {
        self.engine.log.stripe.slots.fit_within(placement.site.only, placement.scheme).unwrap_or(placement.scheme)
    }

    /// Whether a file of this placement that lies whole on one device may go on there, or had better do so elsewhere.
    pub fn suits(&self, placement: Placement, home: DeviceIndex) -> bool {
        let stripe = &self.engine.log.stripe;
        let is_near = |index: DeviceIndex| stripe.slots.prefers(placement.site, index);
        let is_nearer = |index: &DeviceIndex| is_near(*index) && self.has_room_at_home(placement, *index);
        stripe.slots.allows(placement.site, home)
            && (placement.site.on == 0
                || is_near(home)
                || !stripe.slots.open_devices_of(placement.site.only).iter().any(is_nearer))
    }

    fn may_stay(&self, segment: &Segment) -> bool {
        segment.site.only == 0
            || segment.chunks().iter().all(|place| self.engine.log.stripe.slots.allows(segment.site, place.device))
    }

    /// A device for a chunk that does not lie as its segment asks: none if it lies well, or as near as it can.
    pub(crate) fn nearer_device(&self, segment: &Segment, chunk: usize) -> Option<DeviceIndex> {
        let (stripe, place) = (&self.engine.log.stripe, segment.placed());
        let from = place.chunks.get(chunk)?.device;
        let stays = is_planted(Bug::WishForgotten) && stripe.slots.allows(segment.site, from);
        if segment.site.is_anywhere() || stays || stripe.slots.prefers(segment.site, from) {
            return None;
        }
        let best = stripe.slots.best_beside(segment.site, &crate::rebuild::others(&place, chunk), from)?;
        assert_ne!(best, from, "a chunk moves to another device");
        // What is only a wish leaves the last slots to those that can lie nowhere else.
        let has_room = stripe.slots.usage(best).is_some_and(|usage| usage.free > WISH_SLOTS_KEPT);
        let is_better =
            (has_room && stripe.slots.prefers(segment.site, best)) || !stripe.slots.allows(segment.site, from);
        (is_better && self.has_room_to_move()).then_some(best)
    }

    /// Whether a chunk lies no worse on another device than on this one, as its segment asks.
    pub(crate) fn is_no_worse(&self, segment: &Segment, from: DeviceIndex, to: DeviceIndex) -> bool {
        let (stripe, site) = (&self.engine.log.stripe, segment.site);
        stripe.slots.allows(site, to) && (stripe.slots.prefers(site, to) || !stripe.slots.prefers(site, from))
    }

    /// How a blob lies, as its segment asks.
    pub fn lies(&self, blob: &BlobHandle) -> Lies {
        let segment = &blob.segment;
        if segment.site.is_anywhere() || segment.is_released() {
            return Lies::Well;
        }
        let chunks = segment.chunks();
        if (0..chunks.len()).any(|chunk| self.nearer_device(segment, chunk).is_some()) {
            return Lies::Movable;
        }
        if self.may_stay(segment) { Lies::Well } else { Lies::Wrongly }
    }

    /// The device for the next file whose data is unreplicated; none if this placement is not.
    pub fn choose_home(&self, placement: Placement) -> Option<DeviceIndex> {
        if self.fit_for(placement).width() > 1 {
            None
        } else {
            self.engine.log.stripe.slots.choose_home(placement.site)
        }
    }

    /// Whether this device has room for more unreplicated data.
    pub fn has_room_at_home(&self, placement: Placement, home: DeviceIndex) -> bool {
        self.engine.log.room.can_begin(&self.engine.stream_for(placement, 0, Some(home)))
    }

    /// Whether data of this placement is unreplicated with the devices there are.
    #[inline]
    pub fn is_unreplicated(&self, placement: Placement) -> bool {
        self.fit_for(placement).width() == 1
    }

    /// The stream of another device that would take a record which the home of this one has no room for.
    pub(crate) fn other_home(&self, key: &StreamKey, length: usize) -> Option<StreamKey> {
        let home = key.home?;
        let mut others = self.engine.log.stripe.slots.open_devices_of(key.site.only);
        let free = |index: &DeviceIndex| self.engine.log.stripe.slots.usage(*index).map_or(0, |usage| usage.free);
        others.retain(|index| *index != home);
        let is_far = |index: &DeviceIndex| !self.engine.log.stripe.slots.prefers(key.site, *index);
        others.sort_by_key(|index| (is_far(index), std::cmp::Reverse(free(index))));
        let mut streams = others.into_iter().map(|index| StreamKey { home: Some(index), ..*key });
        streams.find(|stream| self.engine.log.can_take(stream, length))
    }

    /// The scheme that metadata shall have.
    pub fn meta_scheme(&self) -> Scheme {
        let copies = match *self.engine.metadata_wish.lock() {
            None if !self.engine.options.metadata_follows_devices => return self.engine.options.meta_scheme,
            None => usual_metadata_copies(&self.staying_sizes()).max(self.engine.options.meta_scheme.width()),
            Some(MetadataWish::Copies(copies)) => usize::from(copies),
            Some(MetadataWish::All) => self.staying_sizes().len(),
        };
        Scheme { data: 1, parity: copies.clamp(1, WIDTH_MAX) as u8 - 1 }
    }

    /// Sizes of the devices on which chunks may stay.
    fn staying_sizes(&self) -> Vec<u64> {
        let stays = |state| matches!(state, DeviceState::Active | DeviceState::Offline);
        let devices = self.engine.devices.lock();
        devices.iter().filter(|entry| stays(entry.device_state())).map(|entry| entry.size_bytes).collect()
    }

    pub fn metadata_wish(&self) -> Option<MetadataWish> {
        *self.engine.metadata_wish.lock()
    }

    /// The stream of tree nodes: copies on as many devices as the pool keeps metadata on.
    pub(crate) fn meta_stream(&self) -> StreamKey {
        let scheme = self.engine.fit(self.meta_scheme());
        StreamKey {
            scheme,
            class: 0,
            kind: SegmentKind::Meta,
            temperature: 0,
            home: None,
            tertiary: 0,
            site: Site::ANYWHERE,
            of_others: false,
        }
    }

    /// Moving must leave the cleaner and the next checkpoint their room.
    pub(crate) fn has_room_to_move(&self) -> bool {
        let capacity = self.engine.log.stripe.slots.capacity(self.engine.fit(self.meta_scheme()));
        capacity.segments_free > SEGMENTS_KEPT.min(capacity.segments_total / 8)
    }
}

impl Engine {
    pub fn places(&self) -> Places<'_> {
        Places::of(self)
    }

    /// The stream that takes data of this placement, given the devices there are; of unreplicated data that of its home.
    pub(crate) fn stream_for(&self, placement: Placement, temperature: u8, home: Option<DeviceIndex>) -> StreamKey {
        let (scheme, site, stripe) = (self.places().fit_for(placement), placement.site, &self.log.stripe);
        let may_take = |home: &DeviceIndex| stripe.slots.is_open(*home) && stripe.slots.allows(site, *home);
        let home = match scheme.width() {
            1 => home.filter(may_take).or_else(|| stripe.slots.choose_home(site)),
            _ => None,
        };
        StreamKey {
            scheme,
            class: placement.class,
            kind: SegmentKind::Data,
            temperature,
            home,
            tertiary: 0,
            site,
            of_others: false,
        }
    }
}
