//! Rows in memory: open, on their way to the devices, or kept because they are on too few of them.
//!
//! Invariants: a row is here before it counts as written, and until it has arrived; bytes under way and bytes kept are counted; a
//! row that is to be written elsewhere leaves only when its content is there. Read next: `rerouted.rs`, `recent.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use stere_device::{Completion, SharedBuffer};
use stere_format::{Address, SegmentKind};
use stere_stripe::Stripe;

use crate::recent::{RecentRows, RowNumber};
use crate::segment::Segment;
use crate::stream::Stream;

/// A row on its way to the devices.
pub(crate) struct FlyingRow {
    pub buffer: SharedBuffer,
    pub segment: Arc<Segment>,
    pub completion: Completion,
    /// Worth being kept when it has arrived.
    pub is_wanted: bool,
}

pub(crate) enum RowInMemory {
    Open(Arc<Mutex<Stream>>),
    Flying(FlyingRow),
    /// Its writes have ended. It is kept because it is on too few devices, or on one of several only and not flushed yet.
    Kept(SharedBuffer),
    /// Another machine writes it: its bytes are not here.
    Given,
}

/// What waits to be appended elsewhere.
#[derive(Default)]
pub(crate) struct Rerouted {
    /// By segment: the first row that failed. All behind it counts.
    pub from: BTreeMap<u64, u32>,
    /// Whether something came that nobody has looked at.
    pub is_new: bool,
    /// Whether chunks were given up since somebody recorded that.
    pub is_unrecorded: bool,
}

/// All rows that are in memory, and those that arrived lately.
pub struct RowsInMemory {
    stripe: Arc<Stripe>,
    /// Bytes that may be under way; beyond it appends wait.
    bytes_max: usize,
    rows: RwLock<BTreeMap<RowNumber, RowInMemory>>,
    flying_bytes: Mutex<usize>,
    kept_bytes: Mutex<usize>,
    uncommitted_bytes: AtomicU64,
    rerouted: Mutex<Rerouted>,
    pub(crate) recent: RecentRows,
}

impl RowsInMemory {
    pub(crate) fn new(stripe: Arc<Stripe>, bytes_max: usize, recent: RecentRows) -> RowsInMemory {
        RowsInMemory {
            stripe,
            bytes_max,
            rows: RwLock::default(),
            flying_bytes: Mutex::new(0),
            kept_bytes: Mutex::new(0),
            uncommitted_bytes: AtomicU64::new(0),
            rerouted: Mutex::default(),
            recent,
        }
    }

    /// The rows themselves: none comes or goes while this is held.
    pub(crate) fn lock(&self) -> RwLockReadGuard<'_, BTreeMap<RowNumber, RowInMemory>> {
        self.rows.read()
    }

    /// A stream opened a row.
    pub(crate) fn open(&self, id: RowNumber, stream: Arc<Mutex<Stream>>) {
        let before = self.rows.write().insert(id, RowInMemory::Open(stream));
        assert!(before.is_none(), "the row at block {} of segment {} is opened once", id.1, id.0);
    }

    /// A stream dropped its row, in which nothing is.
    pub(crate) fn drop_open(&self, id: RowNumber) {
        let row = self.rows.write().remove(&id);
        assert!(matches!(row, Some(RowInMemory::Open(_))), "only an open row is dropped");
    }

    /// A row is about to be submitted; from now on it is read from `row`.
    pub(crate) fn fly(&self, id: RowNumber, row: FlyingRow) {
        let length = row.buffer.len();
        assert_eq!(row.segment.id, id.0, "a row is of its own segment");
        *self.flying_bytes.lock() += length;
        let before = self.rows.write().insert(id, RowInMemory::Flying(row));
        assert!(matches!(before, Some(RowInMemory::Open(_))), "a row is open until it leaves");
        self.uncommitted_bytes.fetch_add(length as u64, Ordering::Relaxed);
    }

    /// Another machine writes this row.
    pub(crate) fn give(&self, id: RowNumber) {
        let before = self.rows.write().insert(id, RowInMemory::Given);
        assert!(before.is_none(), "the row at block {} of segment {} is given once", id.1, id.0);
    }

    /// It has, or never will; so many bytes are on devices that nobody has committed.
    pub(crate) fn take_back(&self, id: RowNumber, written_bytes: u64) {
        let row = self.rows.write().remove(&id);
        assert!(matches!(row, Some(RowInMemory::Given)), "only a row that was given is taken back");
        self.uncommitted_bytes.fetch_add(written_bytes, Ordering::Relaxed);
    }

    /// Whether as much is under way as may be.
    pub(crate) fn are_too_many(&self) -> bool {
        *self.flying_bytes.lock() > self.bytes_max
    }

    /// Those under way of which this is so.
    pub(crate) fn flying(&self, is_meant: impl Fn(&FlyingRow) -> bool) -> Vec<(RowNumber, Arc<Segment>, Completion)> {
        let rows = self.rows.read();
        let flying = rows.iter().filter_map(|(id, row)| match row {
            RowInMemory::Flying(row) if is_meant(row) => Some((*id, row.segment.clone(), row.completion.clone())),
            _ => None,
        });
        flying.collect()
    }

    /// What tells of the first row under way, or of the first of one segment.
    pub(crate) fn first_flying(&self, segment: Option<u64>) -> Option<Completion> {
        let rows = self.rows.read();
        let ids = segment.map_or((0, 0)..=(u64::MAX, u32::MAX), |segment| (segment, 0)..=(segment, u32::MAX));
        rows.range(ids).find_map(|(_, row)| match row {
            RowInMemory::Flying(row) => Some(row.completion.clone()),
            RowInMemory::Open(_) | RowInMemory::Kept(_) | RowInMemory::Given => None,
        })
    }

    /// Segments with rows that are not on their devices yet.
    pub(crate) fn segments(&self) -> BTreeSet<u64> {
        let rows = self.rows.read();
        let in_memory = rows.iter().filter(|(id, row)| !self.has_landed(**id, row));
        in_memory.map(|((segment, _), _)| *segment).collect()
    }

    /// The rows of a segment from this one on are on too few devices, and are to be written elsewhere.
    pub(crate) fn note_rerouted(&self, segment: u64, row_block: u32) {
        assert!(row_block >= 1, "a row lies behind the header of its chunks");
        let mut rerouted = self.rerouted.lock();
        let from = rerouted.from.entry(segment).or_insert(row_block);
        *from = row_block.min(*from);
        rerouted.is_new = true;
    }

    /// A chunk was given up, and nobody has recorded that.
    pub(crate) fn note_unrecorded(&self) {
        self.rerouted.lock().is_unrecorded = true;
    }

    /// Whether a row was rerouted or a chunk given up since the last `take_failures`.
    pub fn has_failures(&self) -> bool {
        let rerouted = self.rerouted.lock();
        rerouted.is_new || rerouted.is_unrecorded
    }

    /// Segments with rerouted rows, each with the first of them, and whether chunks were given up since the last call.
    pub fn take_failures(&self) -> (Vec<(u64, u32)>, bool) {
        let mut rerouted = self.rerouted.lock();
        rerouted.is_new = false;
        let from = rerouted.from.iter().map(|(segment, row)| (*segment, *row)).collect();
        (from, std::mem::take(&mut rerouted.is_unrecorded))
    }

    /// Segments with rows that are to be written elsewhere.
    pub fn rerouted_segments(&self) -> Vec<u64> {
        self.rerouted.lock().from.keys().copied().collect()
    }

    /// Lets go of the rows of a segment that are kept in memory.
    pub fn forget_rerouted(&self, id: u64) {
        let mut rows = self.rows.write();
        let is_kept = |row: &RowInMemory| matches!(row, RowInMemory::Kept(_));
        let of_segment = rows.range((id, 0)..=(id, u32::MAX));
        let kept: Vec<_> = of_segment.filter(|(_, row)| is_kept(row)).map(|(id, _)| *id).collect();
        let gone = self.take_kept(&mut rows, kept);
        self.rerouted.lock().from.remove(&id);
        drop(rows);
        drop(gone);
    }

    /// Takes these rows, which are kept, out of memory. The caller lets go of them when it has unlocked the rows: giving memory back
    /// to the system takes its time.
    fn take_kept(&self, rows: &mut BTreeMap<RowNumber, RowInMemory>, ids: Vec<RowNumber>) -> Vec<SharedBuffer> {
        let mut taken = Vec::with_capacity(ids.len());
        for id in ids {
            match rows.remove(&id) {
                Some(RowInMemory::Kept(buffer)) => taken.push(buffer),
                // Somebody else was here first, or the row is under way.
                Some(other) => drop(rows.insert(id, other)),
                None => {}
            }
        }
        let taken_bytes: usize = taken.iter().map(|buffer| buffer.len()).sum();
        let mut kept_bytes = self.kept_bytes.lock();
        assert!(*kept_bytes >= taken_bytes, "what is kept is counted");
        *kept_bytes -= taken_bytes;
        drop(kept_bytes);
        taken
    }

    /// Whether another device could take what this segment's only one loses.
    fn has_refuge(&self, segment: &Segment) -> bool {
        let chunks = segment.chunks();
        let open = self.stripe.slots.open_devices_of(segment.site.only);
        open.iter().any(|device| chunks.iter().all(|place| place.device != *device))
    }

    /// A row's writes have ended: it leaves memory, unless it is needed there.
    pub(crate) fn land(&self, id: RowNumber, segment: &Segment, is_rerouted: bool) {
        let mut rows = self.rows.write();
        // Two may have waited for the same row.
        let Some(RowInMemory::Flying(row)) = rows.get(&id) else { return };
        assert!(row.segment.id == id.0 && segment.id == id.0, "a row lands in its own segment");
        let (buffer, length, is_wanted) = (row.buffer.clone(), row.buffer.len(), row.is_wanted);
        let is_single = segment.scheme.parity == 0 && segment.kind == SegmentKind::Data;
        let gone = match is_rerouted || (is_single && self.has_refuge(segment)) {
            true => {
                *self.kept_bytes.lock() += length;
                rows.insert(id, RowInMemory::Kept(buffer.clone()))
            }
            false => rows.remove(&id),
        };
        drop(rows);
        drop(gone);
        if is_wanted {
            self.recent.keep(id, buffer);
        }
        let mut flying_bytes = self.flying_bytes.lock();
        assert!(*flying_bytes >= length, "what is under way is counted");
        *flying_bytes -= length;
    }

    /// Whether all of a row that is still in memory is on its devices.
    pub(crate) fn has_landed(&self, id: RowNumber, row: &RowInMemory) -> bool {
        let is_rerouted = || self.rerouted.lock().from.get(&id.0).is_some_and(|from| id.1 >= *from);
        matches!(row, RowInMemory::Kept(_)) && !is_rerouted()
    }

    /// Rows that are kept until they are flushed.
    pub(crate) fn kept(&self) -> Vec<RowNumber> {
        let rows = self.rows.read();
        rows.iter().filter(|(_, row)| matches!(row, RowInMemory::Kept(_))).map(|(id, _)| *id).collect()
    }

    /// Rows that were flushed, but for those that are rerouted.
    pub(crate) fn let_go_of(&self, kept: Vec<RowNumber>) {
        let mut rows = self.rows.write();
        let rerouted = self.rerouted.lock();
        let is_rerouted = |id: &RowNumber| rerouted.from.get(&id.0).is_some_and(|from| id.1 >= *from);
        let flushed = kept.into_iter().filter(|id| !is_rerouted(id)).collect();
        let gone = self.take_kept(&mut rows, flushed);
        drop((rerouted, rows));
        drop(gone);
    }

    /// Whether so much left since the last commit, or is kept in memory until it is flushed, that a commit is due.
    pub fn wants_commit(&self, unproven_bytes_max: u64) -> bool {
        self.uncommitted_bytes.load(Ordering::Relaxed) >= unproven_bytes_max || *self.kept_bytes.lock() > self.bytes_max
    }

    pub(crate) fn keeps_too_much(&self) -> bool {
        *self.kept_bytes.lock() > 2 * self.bytes_max
    }

    /// A commit begins.
    pub fn begin_commit(&self) {
        self.uncommitted_bytes.store(0, Ordering::Relaxed);
    }

    /// Copies from a row that is still in memory; false when there is none.
    pub(crate) fn read(&self, address: &Address, offset: usize, into: &mut [u8]) -> bool {
        let id = (address.segment, address.row_block);
        let start = address.offset as usize + offset;
        loop {
            let stream = {
                let rows = self.rows.read();
                match rows.get(&id) {
                    None | Some(RowInMemory::Given) => return false,
                    Some(RowInMemory::Flying(FlyingRow { buffer, .. }) | RowInMemory::Kept(buffer)) => {
                        into.copy_from_slice(&buffer[start..start + into.len()]);
                        return true;
                    }
                    Some(RowInMemory::Open(stream)) => stream.clone(),
                }
            };
            let guard = stream.lock();
            let segment = guard.segment.as_ref().map(|segment| segment.id);
            if let (Some(row), Some(segment)) = (&guard.row, segment) {
                if (segment, row.row_block) == id {
                    into.copy_from_slice(&row.buffer[start..start + into.len()]);
                    return true;
                }
            }
            // The row was closed in between: look again.
        }
    }

    /// Blocks of each chunk whose rows have arrived on the devices.
    pub fn arrived_blocks(&self, segment: &Segment) -> u32 {
        // In this order: a row is in the map before it counts as written, and until it has arrived.
        let written = segment.written_blocks();
        let rows = self.rows.read();
        let of_segment = rows.range((segment.id, 0)..=(segment.id, u32::MAX));
        let under_way = of_segment.filter(|(id, row)| !self.has_landed(**id, row));
        under_way.map(|((_, block), _)| *block).fold(written, u32::min)
    }
}
