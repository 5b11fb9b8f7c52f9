//! A segment in memory: where its chunks lie, how far it is written, how many of its bytes are live.
//!
//! Invariants: chunk places never change (a move makes another segment); `live_bytes` is changed only under the store's
//! lock; slots go back to the allocator only when nobody else holds the `Arc`. Read next: `stream.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use stere_format::segment::ChunkPlaces;
use stere_format::{Scheme, SegmentChunks, SegmentKind, SegmentState, SegmentValue};

/// One segment: k data and m parity chunks on k+m devices.
#[derive(Debug)]
pub struct Segment {
    pub id: u64,
    pub scheme: Scheme,
    pub class: u8,
    pub kind: SegmentKind,
    pub temperature: u8,
    /// When it was begun, in appended rows of the pool: its age for the cleaner.
    pub sequence: u64,
    chunks: ChunkPlaces,
    missing: AtomicU32,
    written_blocks: AtomicU32,
    live_bytes: AtomicU64,
    sealed: AtomicBool,
    dirty: AtomicBool,
}

impl Segment {
    pub(crate) fn new(id: u64, key: &crate::StreamKey, sequence: u64, chunks: ChunkPlaces) -> Self {
        Segment {
            id,
            scheme: key.scheme,
            class: key.class,
            kind: key.kind,
            temperature: key.temperature,
            sequence,
            chunks,
            missing: AtomicU32::new(0),
            written_blocks: AtomicU32::new(1),
            live_bytes: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
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
            sequence: value.sequence,
            chunks: value.place.chunks.clone(),
            missing: AtomicU32::new(value.place.missing),
            written_blocks: AtomicU32::new(value.written_blocks),
            live_bytes: AtomicU64::new(value.live_bytes),
            sealed: AtomicBool::new(value.state == SegmentState::Sealed),
            dirty: AtomicBool::new(false),
        }
    }

    /// What the segment table holds for it.
    pub fn to_value(&self) -> SegmentValue {
        SegmentValue {
            place: self.placed(),
            class: self.class,
            kind: self.kind,
            temperature: self.temperature,
            state: if self.is_sealed() { SegmentState::Sealed } else { SegmentState::Open },
            written_blocks: self.written_blocks(),
            live_bytes: self.live_bytes(),
            sequence: self.sequence,
        }
    }

    /// Where its chunks are, as the stripe layer wants it.
    pub fn placed(&self) -> SegmentChunks {
        SegmentChunks { scheme: self.scheme, missing: self.missing(), chunks: self.chunks.clone() }
    }

    /// Where its chunks are.
    pub fn chunks(&self) -> &[stere_format::ChunkPlace] {
        &self.chunks
    }

    pub fn written_blocks(&self) -> u32 {
        self.written_blocks.load(Ordering::Acquire)
    }

    pub(crate) fn set_written_blocks(&self, blocks: u32) {
        assert!(blocks >= self.written_blocks(), "a segment is only appended to");
        self.written_blocks.store(blocks, Ordering::Release);
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
        self.missing.load(Ordering::Acquire)
    }

    /// Marks a chunk as not (wholly) written.
    pub fn mark_missing(&self, chunk: usize) {
        assert!(chunk < self.chunks.len(), "a chunk of this segment");
        self.missing.fetch_or(1 << chunk, Ordering::AcqRel);
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

/// All segments of the pool, by id.
#[derive(Default)]
pub struct SegmentTable {
    by_id: RwLock<FxHashMap<u64, Arc<Segment>>>,
}

impl SegmentTable {
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

    /// A copy of the table's handles, ordered by id.
    pub fn all(&self) -> Vec<Arc<Segment>> {
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
