//! Space: what is live, what is promised, what may still be promised.
//!
//! Everything is counted in raw bytes (content times (k+m)/k), so that schemes add up. Some segments stay out of reach of
//! users: the cleaner and the next checkpoint need them, so that full never means stuck. Metadata has its own limit: where
//! its room is scarce, only changes that free at least as much as they take are accepted. Read next: `space/counters.rs`, `reclaim.rs`.

mod counters;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use stere_format::{BLOCK_BYTES, DeviceIndex, NODE_BYTES_TARGET, Scheme, SegmentKind, Site};
use stere_log::{Io, MetaRoom, Segment, StreamKey};
use stere_stripe::Kept;

use crate::content::Placement;
use crate::error::Error;
use crate::transaction::Transaction;
use crate::{Inner, engine::Engine};
use counters::{Promisable, Rooms, Unmoved};
pub(crate) use counters::{Space, raw};

/// Part of the pool that users cannot fill, as a divisor.
const RESERVE_DIVISOR: u64 = 24;
/// Segments that users cannot fill, at least and at most.
const RESERVE_SEGMENTS: std::ops::RangeInclusive<u64> = 8..=512;
/// What rows lose to headers, summaries and padding once they are cleaned, in percent.
pub(crate) const OVERHEAD_PERCENT: u64 = 3;
/// The end of a segment that a record of a file (128 KiB, and its row's header) may not fit into any more.
pub(crate) const SEGMENT_END_BYTES: u64 = 132 << 10;
/// Part of the pool that changes between two checkpoints may be as large as, as a divisor.
const OVERLAY_DIVISOR: u64 = 96;
/// Nodes are at least half full, and changes are counted with what they cost in memory: a change takes so much on media.
const NODE_FILL: i64 = 2;
/// Metadata of a piece of data that waits to be written, and what each of its blocks adds: checksum, extents cut in two.
const META_BYTES_PER_PIECE: u64 = 300;
const META_BYTES_PER_BLOCK: u64 = 48;

/// Raw bytes that content of a scheme takes, with its metadata, which is of another.
fn promise_raw_bytes(scheme: Scheme, meta: Scheme, bytes: u64) -> i64 {
    let metadata = META_BYTES_PER_PIECE + bytes.div_ceil(BLOCK_BYTES as u64) * META_BYTES_PER_BLOCK;
    let metadata = NODE_FILL.saturating_mul(i64::try_from(metadata).unwrap_or(i64::MAX));
    raw(scheme, i64::try_from(bytes).unwrap_or(i64::MAX)).saturating_add(raw(meta, metadata))
}

/// The content, in whole blocks, to which so many raw bytes can be promised.
fn promised_content(scheme: Scheme, meta: Scheme, raw_bytes: i64) -> u64 {
    let block = BLOCK_BYTES as u64;
    let most = u64::try_from(raw_bytes).unwrap_or(0) / block;
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = high - (high - low) / 2;
        if promise_raw_bytes(scheme, meta, middle * block) <= raw_bytes {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let taken = promise_raw_bytes(scheme, meta, low * block);
    assert!(low == 0 || taken <= raw_bytes, "{taken} bytes are told to be free where {raw_bytes} are");
    low * block
}

/// Takes a promise, or a part of one, out of the sum of all.
fn give_back(promised: &AtomicI64, raw_bytes: i64) {
    let before = promised.fetch_sub(raw_bytes, Ordering::AcqRel);
    assert!(before >= raw_bytes, "{raw_bytes} bytes are given back where {before} were promised");
}

/// Room promised to data that was accepted but not yet appended; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    raw_bytes: i64,
    from: Arc<AtomicI64>,
    /// The same where it was promised on devices of a place.
    from_place: Option<Arc<AtomicI64>>,
}

impl Reservation {
    /// Gives back what is beyond so many raw bytes.
    fn shrink_to(&mut self, raw_bytes: i64) {
        assert!(raw_bytes >= 0, "a promise of {raw_bytes} bytes");
        let less = (self.raw_bytes - raw_bytes).max(0);
        self.raw_bytes -= less;
        give_back(&self.from, less);
        if let Some(place) = &self.from_place {
            give_back(place, less);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        give_back(&self.from, self.raw_bytes);
        if let Some(place) = &self.from_place {
            give_back(place, self.raw_bytes);
        }
    }
}

/// What `statfs` and `status` tell.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// For content of the asked scheme.
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub live_raw_bytes: u64,
    pub raw_bytes: u64,
    pub segments: u64,
    pub segments_free: u64,
    pub overlay_bytes: u64,
    pub journal_used_bytes: u64,
    pub journal_bytes: u64,
    pub generation: u64,
    pub node_cache_bytes: u64,
    pub next_inode: u64,
}

/// Whether content takes more room in the one scheme than in the other.
pub fn takes_more(one: Scheme, other: Scheme) -> bool {
    raw(one, i64::from(u32::MAX)) > raw(other, i64::from(u32::MAX))
}

/// What is free, what is promised, and what may be promised still.
#[derive(Clone, Copy)]
pub struct Capacity<'a> {
    pub(crate) engine: &'a Engine,
}

impl Engine {
    pub fn space(&self) -> Capacity<'_> {
        Capacity::of(self)
    }
}

impl<'a> Capacity<'a> {
    pub(crate) fn of(engine: &'a Engine) -> Capacity<'a> {
        Capacity { engine }
    }
}

impl Capacity<'_> {
    /// Keeps room for the next checkpoint: at worst it writes every node anew before the old ones are given back, and the
    /// changes that gather until then; `changes_bytes` are gathered already.
    pub(crate) fn reserve_for_checkpoint(&self, changes_bytes: usize) {
        let segments = self.engine.log.segments.all();
        let live: u64 = segments.iter().filter(|s| s.kind == SegmentKind::Meta).map(|s| s.live_bytes()).sum();
        let scheme = self.engine.fit(self.engine.places().meta_scheme());
        let chunk_bytes = u64::from(self.engine.log.chunk_bytes());
        let total = self.engine.log.stripe.slots.room(scheme, &[]).1;
        let share = usize::try_from(total * chunk_bytes * u64::from(scheme.data) / OVERLAY_DIVISOR);
        let changes_max = share.unwrap_or(usize::MAX).min(self.engine.options.budget().overlay_bytes);
        let changes = changes_max.max(changes_bytes) as u64;
        let wanted = live + live / 4 + NODE_FILL as u64 * changes;
        let needed = wanted.div_ceil(self.node_bytes(scheme)) + 2;
        self.engine.log.room.set_meta_room(MetaRoom { scheme, needed, wanted: needed + (needed / 8).max(2) });
        self.engine.space.overlay_bytes_max.store(changes_max, Ordering::Release);
        self.engine.space.turns.fetch_add(1, Ordering::AcqRel);
    }

    /// Changes that may gather before a checkpoint has to take them, in bytes.
    pub(crate) fn overlay_bytes_max(&self) -> usize {
        self.engine.space.overlay_bytes_max.load(Ordering::Acquire)
    }

    /// How often a file gave up what others still have: with as many live bytes as before, a segment may belong to other files then.
    pub fn shared_left(&self) -> u64 {
        self.engine.space.shared_left.load(Ordering::Acquire)
    }

    /// Slots were given back.
    pub(crate) fn note_released(&self) {
        self.engine.space.turns.fetch_add(1, Ordering::AcqRel);
    }

    /// Bytes of nodes that a segment takes at least.
    fn node_bytes(&self, scheme: Scheme) -> u64 {
        let bytes = u64::from(self.engine.log.chunk_bytes() - BLOCK_BYTES as u32) * u64::from(scheme.data);
        (bytes - 2 * NODE_BYTES_TARGET as u64) / 100 * (100 - OVERHEAD_PERCENT)
    }

    /// What stays out of reach of users, besides what they leave when they begin a segment: each kind of data has an open
    /// segment of users and one of the cleaner, and an unprotected one that of other machines, all in part empty. `new` is a class that
    /// there may be no such data of yet.
    fn kept_from_users(&self, scheme: Scheme, new: Option<(u8, Site)>) -> Vec<Kept> {
        let site = new.map_or(Site::ANYWHERE, |(_, site)| site);
        let kind = SegmentKind::Data;
        let key = StreamKey { scheme, class: 0, kind, temperature: 0, home: None, tertiary: 0, site, of_others: false };
        let mut kept = self.engine.log.room.kept_for_others(&key);
        let kinds = self.engine.log.room.data_kinds();
        let lends = self.engine.log.stripe.lending_clock_ms().is_some();
        let open = |scheme: Scheme| 2 + u64::from(lends && scheme.parity == 0);
        if new.is_some_and(|(class, site)| !kinds.iter().any(|kind| kind.takes(scheme, class, site))) {
            kept.push(Kept { scheme, segments: open(scheme), only: site.only });
        }
        kept.extend(kinds.into_iter().map(|kind| Kept {
            scheme: kind.scheme,
            segments: open(kind.scheme),
            only: kind.site.only,
        }));
        let total = self.engine.log.stripe.slots.room(scheme, &[]).1;
        let share = (total / RESERVE_DIVISOR).clamp(*RESERVE_SEGMENTS.start(), *RESERVE_SEGMENTS.end());
        let so_far = kept.iter().map(|kept| kept.segments).sum();
        kept.push(Kept { scheme, segments: share.saturating_sub(so_far), only: 0 });
        kept
    }

    /// Raw bytes that may be promised to content of this scheme in all: what would be free beside all that is live if it were
    /// cleaned and evened out, or what is free as it is.
    fn promisable_raw_bytes(&self, scheme: Scheme, new: Option<(u8, Site)>) -> i64 {
        let mut kept = self.kept_from_users(scheme, new);
        let none_used = BTreeMap::new();
        let free = self.engine.log.stripe.slots.room_within(0, scheme, &kept, &none_used).0;
        let unmoved = self.unmoved();
        for (scheme, live) in &*self.engine.space.live_bytes.lock() {
            // What cannot be moved takes whole segments, however little is in them.
            let of_scheme = unmoved.iter().find(|(of, ..)| of == scheme);
            let (whole, unmoved_live) = of_scheme.map_or((0, 0), |(_, segments, live)| (*segments, *live));
            let moved = u64::try_from(live - unmoved_live).unwrap_or(0);
            kept.push(Kept { scheme: *scheme, segments: whole + moved.div_ceil(self.content_bytes(*scheme)), only: 0 });
        }
        let cleaned = self.engine.log.stripe.slots.room_within(0, scheme, &kept, &none_used).1;
        let bytes = free.max(cleaned) * self.content_bytes(scheme);
        raw(scheme, i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    /// The same on the devices of a place alone.
    fn promisable_within_raw_bytes(&self, Placement { scheme, class, site }: Placement) -> i64 {
        let kept = self.kept_from_users(scheme, Some((class, site)));
        let mut live: BTreeMap<DeviceIndex, u64> = BTreeMap::new();
        let chunk_bytes = u64::from(self.engine.log.chunk_bytes());
        for segment in self.engine.log.segments.all() {
            // Metadata, and what cannot be moved, takes whole chunks.
            let is_whole = segment.kind == SegmentKind::Meta || segment.tertiary().there != 0;
            let bytes = segment.live_bytes() * chunk_bytes / self.content_bytes(segment.scheme);
            let bytes = if is_whole { chunk_bytes } else { bytes };
            segment.chunks().iter().for_each(|place| *live.entry(place.device).or_default() += bytes);
        }
        live.values_mut().for_each(|bytes| *bytes = bytes.div_ceil(chunk_bytes));
        let (free, cleaned) = self.engine.log.stripe.slots.room_within(site.only, scheme, &kept, &live);
        let bytes = free.max(cleaned) * self.content_bytes(scheme);
        raw(scheme, i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    /// Segments that volumes have and devices too: the cleaner does not move what is in them.
    fn unmoved(&self) -> Vec<(Scheme, u64, i64)> {
        let as_of = self.as_of();
        let mut unmoved = self.engine.space.unmoved.lock();
        if unmoved.as_of != as_of {
            let mut segments: Vec<(Scheme, u64, i64)> = Vec::new();
            let is_unmoved = |segment: &&Arc<Segment>| segment.tertiary().there != 0 && !segment.is_released();
            for segment in self.engine.log.segments.all().iter().filter(is_unmoved) {
                let live = i64::try_from(segment.live_bytes()).unwrap_or(i64::MAX);
                match segments.iter_mut().find(|(scheme, ..)| *scheme == segment.scheme) {
                    Some((_, count, bytes)) => (*count, *bytes) = (*count + 1, bytes.saturating_add(live)),
                    None => segments.push((segment.scheme, 1, live)),
                }
            }
            *unmoved = Unmoved { as_of, segments };
        }
        unmoved.segments.clone()
    }

    /// Content that a segment of this scheme takes at least, whatever sizes its records have.
    fn content_bytes(&self, scheme: Scheme) -> u64 {
        let bytes = u64::from(self.engine.log.chunk_bytes() - BLOCK_BYTES as u32) * u64::from(scheme.data);
        (bytes - SEGMENT_END_BYTES) / 100 * (100 - OVERHEAD_PERCENT)
    }

    fn as_of(&self) -> Option<(u64, u64)> {
        Some((self.engine.log.counters.get().0, self.engine.space.turns.load(Ordering::Acquire)))
    }

    /// As above, as it was when the last segment was begun or given back.
    fn promisable_lately_raw_bytes(&self, placement: Placement) -> i64 {
        let Placement { scheme, class, site } = placement;
        let as_of = self.as_of();
        let mut lately = self.engine.space.promisable.lock();
        if lately.as_of != as_of {
            *lately = Promisable { as_of, raw_bytes: Vec::new() };
        }
        if let Some((_, raw_bytes)) = lately.raw_bytes.iter().find(|(known, _)| *known == (scheme, class, site)) {
            return *raw_bytes;
        }
        let raw_bytes = match site.only {
            0 => self.promisable_raw_bytes(scheme, Some((class, site))),
            _ => self.promisable_within_raw_bytes(placement),
        };
        lately.raw_bytes.push(((scheme, class, site), raw_bytes));
        raw_bytes
    }

    fn rooms(&self) -> Rooms {
        let as_of = self.as_of();
        let mut rooms = self.engine.space.rooms.lock();
        if rooms.as_of != as_of {
            let scheme = self.engine.log.room.meta_room().scheme;
            let meta_segments = self.engine.log.stripe.slots.room(scheme, &[]).0;
            *rooms = Rooms { as_of, meta_segments, promisable_raw_bytes: self.promisable_raw_bytes(scheme, None) };
        }
        *rooms
    }

    /// Segments of metadata that could be begun now.
    pub(crate) fn meta_segments_free(&self) -> u64 {
        self.rooms().meta_segments
    }

    /// Whether fewer segments are free than metadata should have.
    pub(crate) fn lacks_meta_segments(&self) -> bool {
        self.rooms().meta_segments < self.engine.log.room.meta_room().wanted
    }

    /// Whether metadata must not grow now: for want of segments, or because the room is promised to data.
    #[inline]
    pub(crate) fn is_scarce(&self, inner: &Inner) -> bool {
        let rooms = self.rooms();
        let MetaRoom { scheme, wanted, .. } = self.engine.log.room.meta_room();
        if rooms.meta_segments < wanted {
            return true;
        }
        let changes = inner.active.bytes() + inner.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
        let coming = raw(scheme, NODE_FILL.saturating_mul(i64::try_from(changes).unwrap_or(i64::MAX)));
        let reserved = self.engine.space.reserved_raw_bytes.load(Ordering::Acquire);
        let promised = reserved.saturating_add(coming);
        // Since then less than a segment of each stream was filled: where there is plenty, that is no matter.
        promised > rooms.promisable_raw_bytes / 2 && promised > self.promisable_most_raw_bytes(scheme)
    }

    /// The same for whatever there is of most: on unlike devices, narrow segments fit where wide ones do not.
    fn promisable_most_raw_bytes(&self, scheme: Scheme) -> i64 {
        let mut schemes = vec![scheme];
        for kind in self.engine.log.room.data_kinds() {
            if !schemes.contains(&kind.scheme) {
                schemes.push(kind.scheme);
            }
        }
        let promisable = |scheme| self.promisable_raw_bytes(scheme, None);
        schemes.into_iter().map(promisable).max().unwrap_or(0)
    }

    /// Whether the transaction must be refused: it takes more than it frees and room is scarce. Data that is entered had its
    /// room reserved, its metadata included.
    #[inline]
    pub(crate) fn is_refused(&self, inner: &Inner, transaction: &Transaction<'_>) -> Result<bool, Error> {
        let is_exempt = transaction.enters_data || transaction.only_frees || transaction.writes.is_empty();
        if is_exempt || !self.is_scarce(inner) {
            return Ok(false);
        }
        let (metadata, data) = transaction.growth()?;
        Ok(raw(self.engine.log.room.meta_room().scheme, NODE_FILL * metadata) + data > 0)
    }

    /// Promises room for so many bytes, so that a write that was accepted does not fail later.
    pub fn reserve(&self, io: Io<'_>, placement: Placement, bytes: u64) -> Result<Reservation, Error> {
        let _ = io;
        let scheme = self.engine.places().fit_for(placement);
        let wanted = promise_raw_bytes(scheme, self.engine.log.room.meta_room().scheme, bytes);
        let fitted = Placement { scheme, ..placement };
        let from_place = self.reserve_within(fitted, wanted)?;
        let reserved = self.engine.space.reserved_raw_bytes.fetch_add(wanted, Ordering::AcqRel) + wanted;
        let from = self.engine.space.reserved_raw_bytes.clone();
        let reservation = Reservation { raw_bytes: wanted, from, from_place };
        // Metadata goes elsewhere.
        let fitted = Placement { site: Site { only: 0, ..fitted.site }, ..fitted };
        // Since then less than a segment of each stream was filled: where there is plenty, that is no matter.
        if reserved <= self.promisable_lately_raw_bytes(fitted) / 2
            || reserved <= self.promisable_raw_bytes(scheme, Some((placement.class, fitted.site)))
        {
            return Ok(reservation);
        }
        Err(Error::NoSpace)
    }

    /// Makes a promise say so many bytes that were accepted before. What is there already is never asked for again, so nobody takes it
    /// meanwhile; what is more is taken as far as it was granted or is there, which is all of it unless devices are missing.
    pub fn renew_promise(
        &self,
        promise: Option<Reservation>,
        placement: Placement,
        bytes: u64,
        granted: Option<&Reservation>,
    ) -> Option<Reservation> {
        let scheme = self.engine.places().fit_for(placement);
        let wanted = promise_raw_bytes(scheme, self.engine.log.room.meta_room().scheme, bytes);
        let reserved = &self.engine.space.reserved_raw_bytes;
        let mut promise =
            promise.unwrap_or_else(|| Reservation { raw_bytes: 0, from: reserved.clone(), from_place: None });
        assert!(promise.from_place.is_none(), "what is promised on the devices of a place is not renewed");
        let more = wanted - promise.raw_bytes;
        if more <= 0 {
            promise.shrink_to(wanted);
            return (bytes > 0).then_some(promise);
        }
        let left = || {
            let promisable = self.promisable_raw_bytes(scheme, Some((placement.class, Site::ANYWHERE)));
            (promisable - reserved.load(Ordering::Acquire)).max(0)
        };
        // The caller's own still counts beside it.
        let granted = granted.map_or(0, |granted| granted.raw_bytes);
        let more = if more <= granted { more } else { more.min(granted + left()) };
        reserved.fetch_add(more, Ordering::AcqRel);
        promise.raw_bytes += more;
        Some(promise)
    }

    /// Of this scheme and those of the data there is, the one that takes most room.
    pub fn widest_scheme(&self, scheme: Scheme) -> Scheme {
        let takes = |scheme: &Scheme| raw(*scheme, i64::from(u32::MAX));
        let kinds = self.engine.log.room.data_kinds();
        kinds.into_iter().map(|kind| kind.scheme).chain([scheme]).max_by_key(takes).unwrap_or(scheme)
    }

    /// The same on the devices of a place, for what can lie nowhere else.
    fn reserve_within(&self, placement: Placement, wanted: i64) -> Result<Option<Arc<AtomicI64>>, Error> {
        if placement.site.only == 0 {
            return Ok(None);
        }
        let place = self.engine.space.reserved_within.lock().entry(placement.site.only).or_default().clone();
        let reserved = place.fetch_add(wanted, Ordering::AcqRel) + wanted;
        if reserved <= self.promisable_lately_raw_bytes(placement) / 2
            || reserved <= self.promisable_within_raw_bytes(placement)
        {
            return Ok(Some(place));
        }
        give_back(&place, wanted);
        Err(Error::NoSpace)
    }

    /// Bytes of all slots of the devices that are there.
    pub(crate) fn raw_bytes(&self) -> u64 {
        let devices = self.engine.log.stripe.devices.all();
        let slots: u64 = devices.iter().map(|device| u64::from(device.layout().slot_count)).sum();
        slots * u64::from(self.engine.log.chunk_bytes())
    }

    /// How full devices are for files of two copies, or what there is of that.
    pub fn used_percent(&self) -> u8 {
        let statistics = self.statistics(Scheme { data: 1, parity: 1 });
        let used = statistics.total_bytes.saturating_sub(statistics.free_bytes);
        (used * 100 / statistics.total_bytes.max(1)).min(100) as u8
    }

    /// Totals, with capacity told for content of this scheme.
    pub fn statistics(&self, scheme: Scheme) -> Statistics {
        self.statistics_of(scheme, 0)
    }

    /// The same for content of a class.
    pub fn statistics_of(&self, scheme: Scheme, class: u8) -> Statistics {
        let scheme = self.engine.fit(scheme);
        // As `reserve` counts: what is told to be free can be set aside, with its metadata, also where it would be the first of its kind.
        let new = Some((class, Site::ANYWHERE));
        let segments = self.engine.log.stripe.slots.room(scheme, &self.kept_from_users(scheme, new)).1;
        let total = raw(scheme, i64::try_from(segments * self.content_bytes(scheme)).unwrap_or(i64::MAX));
        let live = self.engine.space.live_raw_bytes();
        let reserved = self.engine.space.reserved_raw_bytes.load(Ordering::Acquire);
        let meta = self.engine.log.room.meta_room().scheme;
        let total = promised_content(scheme, meta, total);
        let capacity = self.engine.log.stripe.slots.capacity(scheme);
        let (overlay_bytes, generation, next_inode) = {
            let inner = self.engine.inner.read();
            let frozen = inner.frozen.as_ref().map_or(0, |overlay| overlay.bytes());
            (inner.active.bytes() + frozen, inner.generation, inner.next_inode)
        };
        let (journal_used_bytes, journal_bytes) = {
            let mut seen = self.engine.journal_bytes_seen.lock();
            if let Some(journal) = self.engine.journal.try_lock() {
                *seen = (journal.used_bytes(), journal.region_bytes);
            }
            *seen
        };
        Statistics {
            total_bytes: total,
            free_bytes: promised_content(scheme, meta, self.promisable_raw_bytes(scheme, new) - reserved).min(total),
            live_raw_bytes: u64::try_from(live).unwrap_or(0),
            raw_bytes: self.raw_bytes(),
            segments: self.engine.log.segments.len() as u64,
            segments_free: capacity.segments_free,
            overlay_bytes: overlay_bytes as u64,
            journal_used_bytes,
            journal_bytes,
            generation,
            node_cache_bytes: self.engine.cache.size_bytes() as u64,
            next_inode,
        }
    }
}
