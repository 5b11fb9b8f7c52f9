//! Room for new segments: what a stream that begins one leaves to others, and whether it finds its place beside that.
//!
//! Data leaves room for metadata; new data leaves room for the cleaner, which needs an open segment for each kind of data that it
//! may have to move. Read next: `write.rs`, the crate stripe's `placement.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_format::{DeviceIndex, Scheme, SegmentChunks, SegmentKind, Site};
use stere_stripe::{Kept, Stripe, StripeError};

use crate::error::LogError;
use crate::stream::StreamKey;

/// Room that data leaves for metadata, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaRoom {
    /// The scheme of metadata.
    pub scheme: Scheme,
    /// What the next checkpoint may need at worst: the cleaner leaves it alone.
    pub needed: u64,
    /// What users leave alone: somewhat more, so that it does not take much to need room.
    pub wanted: u64,
}

impl Default for MetaRoom {
    fn default() -> Self {
        MetaRoom { scheme: Scheme { data: 1, parity: 0 }, needed: 2, wanted: 4 }
    }
}

/// What data is alike in that may lie in the same segment, but for its temperature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataKind {
    pub scheme: Scheme,
    pub class: u8,
    pub home: Option<DeviceIndex>,
    pub tertiary: u16,
    pub site: Site,
}

impl DataKind {
    /// The kind of what a stream takes.
    pub fn of(key: &StreamKey) -> DataKind {
        let StreamKey { scheme, class, home, tertiary, site, .. } = *key;
        DataKind { scheme, class, home, tertiary, site }
    }

    /// Whether data of this scheme, class and site, for no volume, is of this kind.
    pub fn takes(&self, scheme: Scheme, class: u8, site: Site) -> bool {
        (self.scheme, self.class, self.site, self.tertiary) == (scheme, class, site, 0)
    }
}

/// Free slots of a device that its files leave to the cleaner, which then need not move them to another device.
fn home_slots_kept(key: &StreamKey) -> u32 {
    if key.temperature == 0 { 2 } else { 0 }
}

/// What is kept free for which kinds of data.
pub struct SegmentRoom {
    stripe: Arc<Stripe>,
    /// Kinds of data that there are segments of, or streams: each may come to have open segments that are not full.
    kinds: Mutex<BTreeSet<DataKind>>,
    meta_room: Mutex<MetaRoom>,
}

impl SegmentRoom {
    pub(crate) fn new(stripe: Arc<Stripe>) -> SegmentRoom {
        SegmentRoom { stripe, kinds: Mutex::default(), meta_room: Mutex::default() }
    }

    /// What a stream of this kind leaves room for when it begins a segment.
    pub fn kept_for_others(&self, key: &StreamKey) -> Vec<Kept> {
        let MetaRoom { scheme, needed, wanted } = self.meta_room();
        match (key.kind, key.temperature) {
            (SegmentKind::Meta, _) => Vec::new(),
            (_, 0) => {
                // The cleaner needs an open segment for each kind of data that it may have to move.
                let mut kept = vec![Kept { scheme, segments: wanted, only: 0 }];
                kept.push(Kept { scheme: key.scheme, segments: 1, only: key.site.only });
                kept.extend(self.kept_for_kinds());
                kept
            }
            (_, _) => vec![Kept { scheme, segments: needed, only: 0 }],
        }
    }

    /// A segment for each kind of data, where it can lie.
    pub(crate) fn kept_for_kinds(&self) -> impl Iterator<Item = Kept> {
        let kinds = self.data_kinds().into_iter();
        kinds.map(|kind| Kept { scheme: kind.scheme, segments: 1, only: kind.site.only })
    }

    /// The kinds of data that there are: each has, or may come to have, open segments that are not full.
    pub fn data_kinds(&self) -> Vec<DataKind> {
        self.kinds.lock().iter().copied().collect()
    }

    /// Whether this stream could begin a new segment now.
    pub fn can_begin(&self, key: &StreamKey) -> bool {
        let kept = self.kept_for_others(key);
        match key.home {
            Some(home) => self.stripe.slots.has_room_for_home(key.site, home, &kept, home_slots_kept(key)),
            None => self.can_place(key, &kept),
        }
    }

    /// Whether a segment would find its place beside what is kept for others.
    pub(crate) fn can_place(&self, key: &StreamKey, kept: &[Kept]) -> bool {
        match key.site.is_anywhere() && kept.iter().all(|kept| kept.only == 0) {
            true => self.stripe.slots.room(key.scheme, kept).0 > 0,
            false => self.stripe.slots.nearest(key.site, key.scheme, kept).is_some(),
        }
    }

    pub(crate) fn note_kind(&self, key: &StreamKey) {
        if key.kind == SegmentKind::Data {
            self.kinds.lock().insert(DataKind::of(key));
        }
    }

    /// Room that data leaves for metadata.
    #[inline]
    pub fn meta_room(&self) -> MetaRoom {
        *self.meta_room.lock()
    }

    /// Sets it; the store knows how large the tree is.
    pub fn set_meta_room(&self, room: MetaRoom) {
        assert!(room.needed <= room.wanted, "users leave {} segments, and {} are needed", room.wanted, room.needed);
        *self.meta_room.lock() = room;
    }

    /// Takes slots for a segment that this stream begins.
    pub(crate) fn place(&self, key: &StreamKey) -> Result<SegmentChunks, LogError> {
        let kept = self.kept_for_others(key);
        let placed = match key.home {
            Some(home) => self.stripe.slots.allocate_on(key.site, home, &kept, home_slots_kept(key)),
            None => self.stripe.slots.allocate_keeping(key.site, key.scheme, &kept),
        };
        let place = match placed {
            // The others are none of its business, so it is a small pool that is full.
            Err(StripeError::TooFewDevices { .. }) if key.site.only != 0 => return Err(LogError::NoSpace),
            placed => placed?,
        };
        assert_eq!(place.scheme, key.scheme, "a segment has the scheme that was asked for");
        assert!(key.home.is_none_or(|home| place.chunks[0].device == home), "a home takes its own segments");
        self.stripe.tell_slots(key.site, &place.chunks);
        Ok(place)
    }
}
