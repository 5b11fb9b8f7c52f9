//! Space: what is live, what is promised, what may still be promised.
//!
//! Everything is counted in raw bytes (content times (k+m)/k), so that schemes add up. Some segments stay out of reach of
//! users: the cleaner and the next checkpoint need them, so that full never means stuck. Read next: `clean.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use stere_format::{BLOCK_BYTES, Scheme, SegmentKind};
use stere_log::Wait;

use crate::Store;
use crate::error::Error;
use crate::write::Placement;

/// Part of the pool that users cannot fill, as a divisor.
const RESERVE_DIVISOR: u64 = 24;
/// Segments that users cannot fill, at least and at most.
const RESERVE_SEGMENTS: std::ops::RangeInclusive<u64> = 8..=512;
/// What rows lose to headers, summaries and padding once they are cleaned, in percent.
const OVERHEAD_PERCENT: u64 = 3;
/// The end of a segment that a record of a file (128 KiB, and its row's header) may not fit into any more.
const SEGMENT_END_BYTES: u64 = 132 << 10;

#[derive(Default)]
pub(crate) struct Space {
    live_raw_bytes: AtomicI64,
    reserved_raw_bytes: Arc<AtomicI64>,
}

impl Space {
    /// Live bytes of segments of this scheme changed.
    pub fn add_live(&self, scheme: Scheme, delta: i64) {
        self.live_raw_bytes.fetch_add(raw(scheme, delta), Ordering::AcqRel);
    }
}

fn raw(scheme: Scheme, bytes: i64) -> i64 {
    bytes.saturating_mul(scheme.width() as i64) / i64::from(scheme.data)
}

/// Room promised to data that was accepted but not yet appended; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    raw_bytes: i64,
    from: Arc<AtomicI64>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.from.fetch_sub(self.raw_bytes, Ordering::AcqRel);
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

impl Store {
    /// Segments out of reach of users. Each kind of data has an open segment of users and one of the cleaner, both in part
    /// empty, and may need another one to be cleaned into.
    fn reserve_segments(&self, segments_total: u64) -> u64 {
        let share = (segments_total / RESERVE_DIVISOR).clamp(*RESERVE_SEGMENTS.start(), *RESERVE_SEGMENTS.end());
        share.max(3 * self.log.data_kinds() + 4) + self.log.meta_reserve()
    }

    /// Keeps room for the next checkpoint: at worst it writes every node anew before the old ones are given back.
    pub(crate) fn reserve_for_checkpoint(&self) {
        let segments = self.log.segments.all();
        let live: u64 = segments.iter().filter(|s| s.kind == SegmentKind::Meta).map(|s| s.live_bytes()).sum();
        let total = self.log.stripe.capacity(self.fit(self.options.meta_scheme)).segments_total;
        let wanted = (live + live / 4).div_ceil(u64::from(self.log.chunk_bytes()));
        self.log.set_meta_reserve(wanted.min(total / 6));
    }

    /// Raw bytes that users may fill with this scheme.
    fn limit_raw_bytes(&self, scheme: Scheme) -> i64 {
        let capacity = self.log.stripe.capacity(scheme);
        let reserve = self.reserve_segments(capacity.segments_total);
        let segments = capacity.segments_total.saturating_sub(reserve);
        raw(scheme, i64::try_from(segments * self.content_bytes(scheme)).unwrap_or(i64::MAX))
    }

    /// Content that a segment of this scheme takes at least, whatever sizes its records have.
    fn content_bytes(&self, scheme: Scheme) -> u64 {
        let bytes = u64::from(self.log.chunk_bytes() - BLOCK_BYTES as u32) * u64::from(scheme.data);
        (bytes - SEGMENT_END_BYTES) / 100 * (100 - OVERHEAD_PERCENT)
    }

    /// Raw bytes in segments that could be begun now, beyond the reserve.
    fn free_raw_bytes(&self, scheme: Scheme) -> i64 {
        let capacity = self.log.stripe.capacity(scheme);
        let reserve = self.reserve_segments(capacity.segments_total);
        let segments = capacity.segments_free.saturating_sub(reserve);
        raw(scheme, i64::try_from(segments * self.content_bytes(scheme)).unwrap_or(i64::MAX))
    }

    /// Promises room for so many bytes, so that a write that was accepted does not fail later.
    pub fn reserve(&self, wait: Wait, placement: Placement, bytes: u64) -> Result<Reservation, Error> {
        let _ = wait;
        let scheme = self.fit(placement.scheme);
        let wanted = raw(scheme, i64::try_from(bytes).unwrap_or(i64::MAX));
        let reserved = self.space.reserved_raw_bytes.fetch_add(wanted, Ordering::AcqRel) + wanted;
        let reservation = Reservation { raw_bytes: wanted, from: self.space.reserved_raw_bytes.clone() };
        let live = self.space.live_raw_bytes.load(Ordering::Acquire);
        // By the books, or because segments of this scheme are free whatever other schemes fill.
        if live.saturating_add(reserved) <= self.limit_raw_bytes(scheme) || reserved <= self.free_raw_bytes(scheme) {
            return Ok(reservation);
        }
        Err(Error::NoSpace)
    }

    /// Bytes of all slots of the devices that are there.
    fn raw_bytes(&self) -> u64 {
        let devices = self.log.stripe.devices();
        let slots: u64 = devices.iter().map(|device| u64::from(device.layout().slot_count)).sum();
        slots * u64::from(self.log.chunk_bytes())
    }

    /// Totals, with capacity told for content of this scheme.
    pub fn statistics(&self, scheme: Scheme) -> Statistics {
        let scheme = self.fit(scheme);
        let limit = self.limit_raw_bytes(scheme).max(0);
        let live = self.space.live_raw_bytes.load(Ordering::Acquire);
        let reserved = self.space.reserved_raw_bytes.load(Ordering::Acquire);
        let content = |raw: i64| u64::try_from(raw).unwrap_or(0) * u64::from(scheme.data) / scheme.width() as u64;
        let capacity = self.log.stripe.capacity(scheme);
        let (overlay_bytes, generation, next_inode) = {
            let inner = self.inner.read();
            let frozen = inner.frozen.as_ref().map_or(0, |overlay| overlay.bytes());
            (inner.active.bytes() + frozen, inner.generation, inner.next_inode)
        };
        let (journal_used_bytes, journal_bytes) = match self.journal.try_lock() {
            Some(journal) => (journal.used_bytes(), journal.region_bytes),
            None => (0, 0),
        };
        Statistics {
            total_bytes: content(limit),
            free_bytes: content((limit - live - reserved).max(self.free_raw_bytes(scheme) - reserved)),
            live_raw_bytes: u64::try_from(live).unwrap_or(0),
            raw_bytes: self.raw_bytes(),
            segments: self.log.segments.len() as u64,
            segments_free: capacity.segments_free,
            overlay_bytes: overlay_bytes as u64,
            journal_used_bytes,
            journal_bytes,
            generation,
            node_cache_bytes: self.cache.size_bytes() as u64,
            next_inode,
        }
    }
}
