//! Rows that did not reach enough devices: they stay in memory until their content is elsewhere.
//!
//! A row that failed on so many devices that its segment could not bear it is *rerouted*: it is kept, readable as before, and
//! whoever owns its records appends them elsewhere. A device may also lose what it took when its flush fails, so rows that are on
//! one device only are kept until they are flushed, if another device could take them. Metadata is not saved that way: what its
//! writer wrote is not valid elsewhere.
//!
//! Invariants: a rerouted row leaves memory only when nobody but the table knows its segment any more, so that no record of it
//! can still be entered anywhere; the chunk that failed last is not marked missing, for what it holds already may be nowhere else.
//! Read next: `rows.rs`, the engine's `stranded.rs`.

use std::sync::Arc;

use stere_device::DeviceError;
use stere_format::SegmentKind;

use crate::Log;
use crate::rows::RowInMemory;
use crate::segment::Segment;

impl Log {
    /// Notes that the rows of a segment from this one on are on too few devices.
    pub(crate) fn reroute(&self, segment: &Arc<Segment>, row_block: u32, errors: &[(u64, DeviceError)]) {
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
        self.rows.note_rerouted(segment.id, row_block);
    }

    /// Lets go of a segment's rerouted rows, whose content is elsewhere, unless somebody still has records that are not entered
    /// anywhere. The caller holds `handles` of the segment.
    pub fn release_rerouted(&self, segment: &Arc<Segment>, handles: usize) {
        let rows = self.rows.lock();
        let flying =
            rows.values().filter(|row| matches!(row, RowInMemory::Flying(row) if row.segment.id == segment.id));
        let flying = flying.count();
        let headers_flying = self.headers_flying.lock();
        let unflushed = self.unflushed.lock();
        let changed_segments = self.changed.lock();
        let headers = headers_flying.iter().filter(|(other, _)| other.id == segment.id).count();
        let changed = changed_segments.iter().filter(|other| other.id == segment.id).count();
        let known = flying + headers + changed + usize::from(unflushed.contains_key(&segment.id));
        let in_table = 1;
        if flying > 0 || Arc::strong_count(segment) > known + handles + in_table {
            return;
        }
        drop((headers_flying, unflushed, changed_segments, rows));
        self.rows.forget_rerouted(segment.id);
    }

    pub(crate) fn note_unflushed(&self, segment: &Arc<Segment>, row_block: u32) {
        let mut unflushed = self.unflushed.lock();
        let (_, first) = unflushed.entry(segment.id).or_insert_with(|| (segment.clone(), row_block));
        *first = row_block.min(*first);
    }
}
