//! Rows that did not reach enough devices: they stay in memory until their content is elsewhere.
//!
//! A row that failed on so many devices that its segment could not bear it is *stranded*: it is kept, readable as before, and
//! whoever owns its records appends them elsewhere. A device may also lose what it took when its flush fails, so rows that are on
//! one device only are kept until they are flushed, if another device could take them. Metadata is not saved that way: what its
//! writer wrote is not valid elsewhere.
//!
//! Invariants: a stranded row leaves memory only when nobody but the table knows its segment any more, so that no record of it
//! can still be entered anywhere; the chunk that failed last is not marked missing, for what it holds already may be nowhere else.
//! Read next: the engine's `stranded.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stere_device::{DeviceError, SharedBuffer};
use stere_format::SegmentKind;

use crate::Log;
use crate::row::RowInMemory;
use crate::segment::Segment;

impl Log {
    /// Notes that the rows of a segment from this one on are on too few devices.
    pub(crate) fn strand(&self, segment: &Arc<Segment>, row_block: u32, errors: &[(u64, DeviceError)]) {
        let cause = errors.first().map_or_else(String::new, |(_, error)| error.to_string());
        if segment.kind == SegmentKind::Meta {
            *self.lost_row.lock() = Some(cause);
            return;
        }
        tracing::error!(segment = segment.id, row_block, cause, "a row is on too few devices and is written elsewhere");
        segment.mark_failed();
        // Whatever is written instead must not go there again, unless there is nothing else: another slot may take it.
        let chunks = segment.chunks();
        let failed = errors.iter().filter_map(|(tag, _)| chunks.get(stere_stripe::split_tag(*tag).1));
        let failed: Vec<_> = failed.map(|place| place.device).collect();
        if self.stripe.slots.open_devices().iter().any(|device| !failed.contains(device)) {
            failed.into_iter().for_each(|device| self.stripe.slots.suspend(device));
        }
        assert!(row_block >= 1, "a row lies behind the header of its chunks");
        let mut stranded = self.stranded.lock();
        let from = stranded.from.entry(segment.id).or_insert(row_block);
        *from = row_block.min(*from);
        stranded.is_new = true;
    }

    pub(crate) fn note_unrecorded(&self) {
        self.stranded.lock().is_unrecorded = true;
    }

    /// Whether a row was stranded or a chunk given up since the last `take_failures`.
    pub fn has_failures(&self) -> bool {
        let stranded = self.stranded.lock();
        stranded.is_new || stranded.is_unrecorded
    }

    /// Segments with stranded rows, each with the first of them, and whether chunks were given up since the last call.
    pub fn take_failures(&self) -> (Vec<(u64, u32)>, bool) {
        let mut stranded = self.stranded.lock();
        stranded.is_new = false;
        let from = stranded.from.iter().map(|(segment, row)| (*segment, *row)).collect();
        (from, std::mem::take(&mut stranded.is_unrecorded))
    }

    pub fn stranded_segments(&self) -> Vec<u64> {
        self.stranded.lock().from.keys().copied().collect()
    }

    /// Lets go of a segment's stranded rows, whose content is elsewhere, unless somebody still has records that are not entered
    /// anywhere. The caller holds `handles` of the segment.
    pub fn release_stranded(&self, segment: &Arc<Segment>, handles: usize) {
        let rows = self.rows.read();
        let flying =
            rows.values().filter(|row| matches!(row, RowInMemory::Flying(row) if row.segment.id == segment.id));
        let flying = flying.count();
        let headers_flying = self.headers_flying.lock();
        let unflushed = self.unflushed.lock();
        let dirty_segments = self.dirty.lock();
        let headers = headers_flying.iter().filter(|(other, _)| other.id == segment.id).count();
        let dirty = dirty_segments.iter().filter(|other| other.id == segment.id).count();
        let known = flying + headers + dirty + usize::from(unflushed.contains_key(&segment.id));
        let in_table = 1;
        if flying > 0 || Arc::strong_count(segment) > known + handles + in_table {
            return;
        }
        drop((headers_flying, unflushed, dirty_segments, rows));
        self.forget_stranded(segment.id);
    }

    /// Lets go of the rows of a segment that are kept in memory.
    pub fn forget_stranded(&self, id: u64) {
        let mut rows = self.rows.write();
        let is_kept = |row: &RowInMemory| matches!(row, RowInMemory::Kept(_));
        let of_segment = rows.range((id, 0)..=(id, u32::MAX));
        let kept: Vec<_> = of_segment.filter(|(_, row)| is_kept(row)).map(|(id, _)| *id).collect();
        let gone = self.take_kept(&mut rows, kept);
        self.stranded.lock().from.remove(&id);
        drop(rows);
        drop(gone);
    }

    /// Takes these rows, which are kept, out of memory. The caller lets go of them when it has unlocked the rows: giving memory back
    /// to the system takes its time.
    fn take_kept(&self, rows: &mut BTreeMap<(u64, u32), RowInMemory>, ids: Vec<(u64, u32)>) -> Vec<SharedBuffer> {
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
    pub(crate) fn row_landed(&self, id: (u64, u32), segment: &Segment, is_stranded: bool) {
        let mut rows = self.rows.write();
        // Two may have waited for the same row.
        let Some(RowInMemory::Flying(row)) = rows.get(&id) else { return };
        assert!(row.segment.id == id.0 && segment.id == id.0, "a row lands in its own segment");
        let (buffer, length, is_wanted) = (row.buffer.clone(), row.buffer.len(), row.is_wanted);
        let is_single = segment.scheme.parity == 0 && segment.kind == SegmentKind::Data;
        let gone = match is_stranded || (is_single && self.has_refuge(segment)) {
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
    pub(crate) fn has_landed(&self, id: (u64, u32), row: &RowInMemory) -> bool {
        let is_stranded = || self.stranded.lock().from.get(&id.0).is_some_and(|from| id.1 >= *from);
        matches!(row, RowInMemory::Kept(_)) && !is_stranded()
    }

    /// Rows that are kept until they are flushed.
    pub(crate) fn kept_rows(&self) -> Vec<(u64, u32)> {
        let rows = self.rows.read();
        rows.iter().filter(|(_, row)| matches!(row, RowInMemory::Kept(_))).map(|(id, _)| *id).collect()
    }

    /// Rows that were flushed, but for those that are stranded.
    pub(crate) fn let_go_of(&self, kept: Vec<(u64, u32)>) {
        let mut rows = self.rows.write();
        let stranded = self.stranded.lock();
        let is_stranded = |id: &(u64, u32)| stranded.from.get(&id.0).is_some_and(|from| id.1 >= *from);
        let flushed = kept.into_iter().filter(|id| !is_stranded(id)).collect();
        let gone = self.take_kept(&mut rows, flushed);
        drop((stranded, rows));
        drop(gone);
    }

    pub(crate) fn note_unflushed(&self, segment: &Arc<Segment>, row_block: u32) {
        let mut unflushed = self.unflushed.lock();
        let (_, first) = unflushed.entry(segment.id).or_insert_with(|| (segment.clone(), row_block));
        *first = row_block.min(*first);
    }

    /// Whether so much left since the last commit, or is kept in memory until it is flushed, that a commit is due.
    pub fn wants_commit(&self, unproven_bytes_max: u64) -> bool {
        self.uncommitted_bytes.load(Ordering::Relaxed) >= unproven_bytes_max
            || *self.kept_bytes.lock() > self.options.flying_bytes_max
    }

    pub(crate) fn keeps_too_much(&self) -> bool {
        *self.kept_bytes.lock() > 2 * self.options.flying_bytes_max
    }

    /// A commit begins.
    pub fn begin_commit(&self) {
        self.uncommitted_bytes.store(0, Ordering::Relaxed);
    }
}
