//! A segment in memory: where its chunks lie, how far it is written, how many of its bytes are live.
//!
//! Invariants: addresses never change, but a chunk's place may: whoever reads takes the place as it is (`placed`) and holds
//! that `Arc` until it has read, so the slot that a chunk left is free once nobody else holds the place that named it.
//! `live_bytes` is changed only under the store's lock; a segment's slots go back to the allocator only when nobody else holds
//! its `Arc`. A *released* segment has no chunks on devices: it is on media, and all that goes through segments for the
//! sake of devices passes it over. Read next: `stream.rs`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use stere_format::{
    ChunkPlace, ChunkPlaces, Scheme, SegmentChunks, SegmentKind, SegmentState, SegmentValue, Site, Tertiary,
};

use crate::heat::HeatCell;

/// One segment: k data and m parity chunks on k+m devices.
#[derive(Debug)]
pub struct Segment {
    pub id: u64,
    pub scheme: Scheme,
    pub class: u8,
    pub kind: SegmentKind,
    pub temperature: u8,
    /// Where what is in it shall lie; whoever moves it keeps to that.
    pub site: Site,
    /// Only other machines write to it, and flush what they write.
    pub of_others: bool,
    /// When it was begun, in appended rows of the pool: its age for the cleaner.
    pub sequence: u64,
    places: RwLock<Places>,
    /// Chunks that were placed on a device that was away, so that no error told of them.
    missing_at_birth: u32,
    written_blocks: AtomicU32,
    /// Where content may end if the end is not known exactly.
    reach_blocks: AtomicU32,
    live_bytes: AtomicU64,
    sealed: AtomicBool,
    /// A row of it could not be written to enough devices, and was saved elsewhere.
    failed: AtomicBool,
    dirty: AtomicBool,
    /// Tertiary volumes that shall have it, and those that do; sets.
    tertiary_wanted: AtomicU32,
    tertiary_there: AtomicU32,
    /// It has no chunks on devices; changed only with `places` locked.
    released: AtomicBool,
    /// The last change of the store by which a file came to share something in it.
    last_shared: AtomicU64,
    /// How it was used, if it goes to media.
    pub heat: HeatCell,
}

impl Segment {
    pub(crate) fn new(id: u64, key: &crate::StreamKey, sequence: u64, place: SegmentChunks) -> Self {
        Segment {
            id,
            scheme: key.scheme,
            class: key.class,
            kind: key.kind,
            temperature: key.temperature,
            site: key.site,
            of_others: key.of_others,
            sequence,
            missing_at_birth: place.missing,
            places: RwLock::new(Places::new(place)),
            written_blocks: AtomicU32::new(1),
            reach_blocks: AtomicU32::new(0),
            live_bytes: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            tertiary_wanted: AtomicU32::new(u32::from(key.tertiary)),
            tertiary_there: AtomicU32::new(0),
            released: AtomicBool::new(false),
            last_shared: AtomicU64::new(0),
            heat: HeatCell::default(),
        }
    }

    /// The segment as the segment table or a checkpoint record tells it.
    pub fn from_value(id: u64, value: &SegmentValue) -> Self {
        Segment {
            id,
            scheme: value.place.scheme,
            class: value.class,
            kind: value.kind,
            temperature: value.temperature,
            site: value.site,
            // What is in it has been flushed by now.
            of_others: false,
            sequence: value.sequence,
            missing_at_birth: value.place.missing,
            places: RwLock::new(Places::new(value.place.clone())),
            written_blocks: AtomicU32::new(value.written_blocks),
            reach_blocks: AtomicU32::new(0),
            live_bytes: AtomicU64::new(value.live_bytes),
            sealed: AtomicBool::new(value.state != SegmentState::Open),
            failed: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            tertiary_wanted: AtomicU32::new(u32::from(value.tertiary.wanted)),
            tertiary_there: AtomicU32::new(u32::from(value.tertiary.there)),
            released: AtomicBool::new(value.state == SegmentState::Released),
            last_shared: AtomicU64::new(0),
            heat: HeatCell::default(),
        }
    }

    /// What the segment table holds for it.
    pub fn to_value(&self) -> SegmentValue {
        let place = SegmentChunks::clone(&self.placed());
        let state = match (place.chunks.is_empty(), self.is_sealed()) {
            (true, _) => SegmentState::Released,
            (false, true) => SegmentState::Sealed,
            (false, false) => SegmentState::Open,
        };
        SegmentValue {
            place,
            class: self.class,
            kind: self.kind,
            temperature: self.temperature,
            state,
            written_blocks: self.written_blocks(),
            live_bytes: self.live_bytes(),
            sequence: self.sequence,
            tertiary: self.tertiary(),
            site: self.site,
        }
    }

    /// Tertiary volumes that shall have it, and those that do.
    pub fn tertiary(&self) -> Tertiary {
        let there = self.tertiary_there.load(Ordering::Acquire) as u16;
        Tertiary { wanted: self.tertiary_wanted.load(Ordering::Acquire) as u16, there }
    }

    /// Says that these volumes have it whole, and read back right. The caller holds the store's lock.
    pub fn note_tertiary(&self, there: u16) {
        let wanted = self.tertiary().wanted;
        assert!(there & !wanted == 0, "only wanted volumes get a segment");
        self.tertiary_there.fetch_or(u32::from(there), Ordering::AcqRel);
    }

    /// Says which volumes shall have it, and which of them do, from now on. The caller holds the store's lock.
    pub fn set_tertiary(&self, tertiary: Tertiary) {
        assert!(tertiary.there & !tertiary.wanted == 0, "nothing is there that is not wanted");
        assert!(tertiary.there != 0 || !self.is_released(), "a released segment is somewhere");
        self.tertiary_wanted.store(u32::from(tertiary.wanted), Ordering::Release);
        self.tertiary_there.store(u32::from(tertiary.there), Ordering::Release);
    }

    /// A file came to share something in it, by this change. The caller holds the store's lock.
    pub fn note_shared(&self, change: u64) {
        let before = self.last_shared.swap(change, Ordering::AcqRel);
        assert!(before <= change, "changes are counted upwards: {before} came before {change}");
    }

    /// The last change of the store by which a file came to share something in it.
    pub fn last_shared(&self) -> u64 {
        self.last_shared.load(Ordering::Acquire)
    }

    /// Whether it is on media only.
    #[inline]
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Gives its chunks on devices up: where they were, and who may still read there. The caller holds the store's lock.
    pub fn release(&self) -> (ChunkPlaces, FormerPlaces) {
        let tertiary = self.tertiary();
        assert!(tertiary.there != 0 && self.is_sealed(), "only what is elsewhere is released");
        let mut places = self.places.write();
        let before = places.current.chunks.clone();
        assert_eq!(before.len(), self.scheme.width(), "what is released is on devices");
        let scheme = self.scheme;
        places.replace(SegmentChunks { scheme, missing: 0, chunks: ChunkPlaces::new() });
        self.released.store(true, Ordering::Release);
        self.heat.left();
        (before, FormerPlaces(places.former.clone()))
    }

    /// Says that its chunks are on devices again. The caller holds the store's lock, and has them durable.
    pub fn restore(&self, place: SegmentChunks) {
        assert_eq!(place.chunks.len(), self.scheme.width(), "one place per chunk");
        let mut places = self.places.write();
        assert!(places.current.chunks.is_empty(), "only a released segment is restored");
        places.replace(place);
        self.released.store(false, Ordering::Release);
        self.heat.came_back();
    }

    /// Somebody reads of it, at that time of his clock.
    #[inline]
    pub fn note_use(&self, now_seconds: i64) {
        // What never leaves devices need not be known.
        if self.tertiary_wanted.load(Ordering::Relaxed) != 0 {
            self.heat.note_use(now_seconds);
        }
    }

    /// The stream that appends, or appended, to it.
    pub fn stream_key(&self) -> crate::StreamKey {
        crate::StreamKey {
            scheme: self.scheme,
            class: self.class,
            kind: self.kind,
            temperature: self.temperature,
            home: self.home(),
            tertiary: self.tertiary().wanted,
            site: self.site,
            of_others: self.of_others,
        }
    }

    /// The one device that has all of it, if it holds unreplicated data.
    pub fn home(&self) -> Option<stere_format::DeviceIndex> {
        match (self.kind, self.chunks().as_slice()) {
            (SegmentKind::Data, [only]) => Some(only.device),
            _ => None,
        }
    }

    /// Where its chunks are now, as the stripe layer wants it. The slots it names stay as they are while this is held.
    pub fn placed(&self) -> Arc<SegmentChunks> {
        self.places.read().current.clone()
    }

    /// Where its chunks are now.
    pub fn chunks(&self) -> ChunkPlaces {
        self.places.read().current.chunks.clone()
    }

    pub fn written_blocks(&self) -> u32 {
        self.written_blocks.load(Ordering::Acquire)
    }

    pub(crate) fn set_written_blocks(&self, blocks: u32) {
        assert!(blocks >= self.written_blocks(), "a segment is only appended to");
        self.written_blocks.store(blocks, Ordering::Release);
    }

    /// Rows reach to this block at least: what recovery finds out about a segment that was recorded before its last row.
    pub fn cover_blocks(&self, blocks: u32) {
        self.written_blocks.fetch_max(blocks, Ordering::AcqRel);
    }

    pub fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Acquire)
    }

    /// Adds to or takes from the live bytes; the caller holds the store's lock or is the only merger.
    pub fn add_live_bytes(&self, delta: i64) {
        let before = self.live_bytes();
        let after = before.checked_add_signed(delta).expect("live bytes of a segment never go below zero");
        self.live_bytes.store(after, Ordering::Release);
    }

    pub fn missing(&self) -> u32 {
        self.places.read().current.missing
    }

    /// Marks a chunk as not (wholly) written.
    pub fn mark_missing(&self, chunk: usize) {
        self.mark_missing_up_to(chunk, u32::MAX);
    }

    /// The same, unless more than so many chunks were missing then; false if it was not marked.
    pub(crate) fn mark_missing_up_to(&self, chunk: usize, most: u32) -> bool {
        let mut places = self.places.write();
        assert!(chunk < places.current.chunks.len(), "a chunk of this segment");
        let missing = places.current.missing | 1 << chunk;
        if missing != places.current.missing && missing.count_ones() <= most {
            let changed = SegmentChunks { missing, ..SegmentChunks::clone(&places.current) };
            places.replace(changed);
        }
        places.current.is_missing(chunk)
    }

    /// Says that a row of it could not be written to enough devices: nothing more is appended.
    pub(crate) fn mark_failed(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether that happened.
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether a chunk was lost after the segment was begun, so that its stream would be better off with a new one.
    pub fn has_lost_chunks(&self) -> bool {
        self.missing() & !self.missing_at_birth != 0 || self.is_failed()
    }

    /// Says that these chunks are wholly there now, in these slots. `None`, with nothing changed, if the chunks do not lie where
    /// `expected` tells any more; else who may still read where they were before.
    pub fn set_chunks(&self, expected: &SegmentChunks, slots: &[(usize, ChunkPlace)]) -> Option<FormerPlaces> {
        let mut places = self.places.write();
        if places.current.chunks != expected.chunks {
            return None;
        }
        let mut changed = SegmentChunks::clone(&places.current);
        for (chunk, slot) in slots {
            assert!(*chunk < changed.chunks.len(), "a chunk of this segment");
            changed.chunks[*chunk] = *slot;
            changed.missing &= !(1 << chunk);
        }
        let devices = |at: usize| changed.chunks[at].device;
        let width = changed.chunks.len();
        let is_spread = (0..width).all(|one| (0..one).all(|other| devices(one) != devices(other)));
        assert!(is_spread, "the chunks of a segment lie on different devices");
        places.replace(changed);
        Some(FormerPlaces(places.former.clone()))
    }

    /// Who may still read by places that the segment had before.
    pub fn former_places(&self) -> FormerPlaces {
        FormerPlaces(self.places.read().former.clone())
    }

    /// Says that content may reach beyond `written_blocks`, up to so many blocks.
    pub fn reach(&self, blocks: u32) {
        self.reach_blocks.fetch_max(blocks, Ordering::AcqRel);
    }

    /// Blocks of each chunk that may hold content.
    pub fn blocks_in_use(&self) -> u32 {
        self.written_blocks().max(self.reach_blocks.load(Ordering::Acquire))
    }

    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    pub fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    /// Sets the dirty mark; true when it was not set before.
    pub fn mark_dirty(&self) -> bool {
        !self.dirty.swap(true, Ordering::AcqRel)
    }

    pub fn clear_dirty(&self) {
        // Also acquires: what was changed by somebody who found the mark set is seen by whoever records it now.
        self.dirty.swap(false, Ordering::AcqRel);
    }
}

/// Where the chunks are, and where readers may still think that they are.
#[derive(Debug)]
struct Places {
    current: Arc<SegmentChunks>,
    former: Vec<Weak<SegmentChunks>>,
}

impl Places {
    fn new(place: SegmentChunks) -> Self {
        Places { current: Arc::new(place), former: Vec::new() }
    }

    fn replace(&mut self, changed: SegmentChunks) {
        let old = std::mem::replace(&mut self.current, Arc::new(changed));
        self.former.retain(|place| place.strong_count() > 0);
        self.former.push(Arc::downgrade(&old));
    }
}

/// Places that a segment had, as readers may still hold them.
#[derive(Debug, Default)]
pub struct FormerPlaces(Vec<Weak<SegmentChunks>>);

impl FormerPlaces {
    /// Whether nobody reads by any of them any more.
    pub fn are_left(&self) -> bool {
        self.0.iter().all(|place| place.strong_count() == 0)
    }
}

/// All segments of the pool, by id.
#[derive(Default)]
pub struct SegmentTable {
    by_id: RwLock<FxHashMap<u64, Arc<Segment>>>,
}

impl SegmentTable {
    #[inline]
    pub fn get(&self, id: u64) -> Option<Arc<Segment>> {
        self.by_id.read().get(&id).cloned()
    }

    pub fn insert(&self, segment: Arc<Segment>) {
        let id = segment.id;
        let old = self.by_id.write().insert(id, segment);
        assert!(old.is_none(), "segment {id} exists once");
    }

    pub fn remove(&self, id: u64) -> Option<Arc<Segment>> {
        self.by_id.write().remove(&id)
    }

    /// Those that lie on devices, ordered by id: what is released is none of the business of devices.
    pub fn all(&self) -> Vec<Arc<Segment>> {
        let mut all = self.everywhere();
        all.retain(|segment| !segment.is_released());
        all
    }

    /// All there are, released ones too, ordered by id.
    pub fn everywhere(&self) -> Vec<Arc<Segment>> {
        let mut all: Vec<_> = self.by_id.read().values().cloned().collect();
        all.sort_unstable_by_key(|segment| segment.id);
        all
    }

    pub fn len(&self) -> usize {
        self.by_id.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
