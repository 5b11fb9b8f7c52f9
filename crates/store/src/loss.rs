//! What is lost when devices are gone: which bytes of which blobs neither lie on a device that is left nor can be rebuilt.
//!
//! Answered from the segment table alone, without reading content: a segment bears the loss of as many chunks as it has
//! parity; beyond that exactly what lies on the lost data chunks is gone. Read next: the naming crate's `lost.rs`, which
//! gives files their names.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use stere_format::{BLOCK_BYTES, BlobEncoding, BlobValue, DeviceIndex, SegmentKind};
use stere_log::Segment;
use stere_stripe::{geometry, row_pieces};

use stere_engine::Engine;
use stere_recall::BlobHandle;

/// What a loss means for one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassLoss {
    pub class: u8,
    /// Content of the class, without parity and further copies.
    pub live_bytes: u64,
    /// Content in segments that lose something; of striped segments only a part of it is lost.
    pub touched_bytes: u64,
}

/// What is lost with certain devices.
#[derive(Clone, Debug, Default)]
pub struct Loss {
    /// Segments that lose content, with the data chunks that cannot be had, as a bitmap.
    lost_chunks: BTreeMap<u64, u32>,
    /// Blobs that are known to be damaged, and where.
    damaged: BTreeMap<u64, Range<u32>>,
    pub classes: Vec<ClassLoss>,
    /// Whether metadata is lost: then names are, with everything behind them.
    pub is_metadata_lost: bool,
}

/// The data chunks of a segment that could not be had without these devices, as a bitmap.
fn lost_chunks(segment: &Segment, is_gone: &dyn Fn(DeviceIndex) -> bool) -> u32 {
    let placed = segment.placed();
    let data = usize::from(placed.scheme.data);
    let gone = placed.chunks.iter().enumerate().fold(0u32, |gone, (chunk, place)| {
        if placed.is_missing(chunk) || is_gone(place.device) { gone | 1 << chunk } else { gone }
    });
    if gone.count_ones() <= u32::from(placed.scheme.parity) {
        return 0;
    }
    gone & ((1 << data) - 1)
}

/// Tells what is lost, or would be.
pub struct Losses {
    pub(crate) engine: Arc<Engine>,
}

impl Losses {
    pub(crate) fn new(engine: &Arc<Engine>) -> Losses {
        Losses { engine: engine.clone() }
    }
}

impl Losses {
    /// What is known to be damaged on devices that are there.
    pub fn known_loss(&self) -> Loss {
        let is_metadata_lost = self.engine.damage().is_metadata_damaged();
        Loss { damaged: self.engine.damage().ranges(), is_metadata_lost, ..Loss::default() }
    }

    /// Whether a device of the table is not there.
    pub fn is_any_away(&self) -> bool {
        self.engine.device_entries().iter().any(|entry| self.engine.log().stripe.devices.get(entry.index).is_none())
    }

    /// The bytes of a blob that cannot be read now, as far as is known.
    pub fn unreadable_ranges(&self, blob: &BlobHandle) -> Vec<Range<u32>> {
        let damaged = self.engine.damage().range_of(blob.id);
        let stripe = &self.engine.log().stripe;
        let is_absent = |index| stripe.devices.get(index).is_none();
        let chunks = match blob.is_released() || blob.segment.tertiary().there != 0 {
            true => 0,
            false => lost_chunks(&blob.segment, &is_absent),
        };
        let mut lost = match chunks {
            0 => Vec::new(),
            chunks => lost_ranges(&blob.value, blob.segment.scheme, chunks),
        };
        lost.extend(damaged);
        joined(lost)
    }

    /// What is lost if these devices are gone, besides those that are not there now.
    pub fn loss(&self, is_gone: &dyn Fn(DeviceIndex) -> bool) -> Loss {
        self.loss_without(is_gone, 0)
    }

    /// The same if these media, a set, are gone too.
    pub fn loss_without(&self, is_gone: &dyn Fn(DeviceIndex) -> bool, volumes: u16) -> Loss {
        let stripe = &self.engine.log().stripe;
        let is_absent = |index| is_gone(index) || stripe.devices.get(index).is_none();
        let mut loss = self.known_loss();
        let segments =
            if volumes == 0 { self.engine.log().segments.all() } else { self.engine.log().segments.everywhere() };
        for segment in segments {
            let live_bytes = segment.live_bytes();
            let is_elsewhere = segment.tertiary().there & !volumes != 0;
            let chunks = match live_bytes == 0 || is_elsewhere {
                true => 0,
                // What is on volumes only lies there in one piece.
                false if segment.is_released() => 1,
                false => lost_chunks(&segment, &is_absent),
            };
            if segment.kind == SegmentKind::Meta {
                loss.is_metadata_lost |= chunks != 0;
                continue;
            }
            loss.count(segment.class, live_bytes, chunks != 0);
            if chunks != 0 {
                loss.lost_chunks.insert(segment.id, chunks);
            }
        }
        loss.classes.sort_unstable_by_key(|class| class.class);
        loss
    }
}

impl Loss {
    fn count(&mut self, class: u8, live_bytes: u64, is_touched: bool) {
        if live_bytes == 0 {
            return;
        }
        if !self.classes.iter().any(|known| known.class == class) {
            self.classes.push(ClassLoss { class, live_bytes: 0, touched_bytes: 0 });
        }
        let Some(of_class) = self.classes.iter_mut().find(|known| known.class == class) else { return };
        of_class.live_bytes += live_bytes;
        of_class.touched_bytes += if is_touched { live_bytes } else { 0 };
        assert!(of_class.touched_bytes <= of_class.live_bytes, "no more of class {class} is touched than there is");
    }

    /// Whether no content is lost.
    pub fn is_nothing(&self) -> bool {
        self.lost_chunks.is_empty() && self.damaged.is_empty() && !self.is_metadata_lost
    }

    /// Whether this segment loses content.
    pub fn touches(&self, segment: u64) -> bool {
        self.lost_chunks.contains_key(&segment)
    }

    /// The bytes of a blob that are lost, in whole blocks, in order.
    pub fn lost_ranges(&self, blob: &BlobHandle) -> Vec<Range<u32>> {
        let damaged = self.damaged.get(&blob.id).cloned();
        let Some(chunks) = self.lost_chunks.get(&blob.value.address.segment) else {
            return damaged.into_iter().collect();
        };
        let mut lost = lost_ranges(&blob.value, blob.segment.scheme, *chunks);
        lost.extend(damaged);
        joined(lost)
    }
}

/// The same bytes in order, each once.
fn joined(mut ranges: Vec<Range<u32>>) -> Vec<Range<u32>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut().filter(|last| last.end >= range.start) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    assert!(joined.windows(2).all(|pair| pair[0].end < pair[1].start), "ranges are in order, and do not touch");
    joined
}

fn lost_ranges(value: &BlobValue, scheme: stere_format::Scheme, chunks: u32) -> Vec<Range<u32>> {
    // Without stripes all of it lies on one chunk; what is encoded is verified, and lost, as a whole.
    if scheme.data == 1 || value.encoding != BlobEncoding::PLAIN {
        return std::iter::once(0..value.logical_bytes).collect();
    }
    let mut lost: Vec<Range<u32>> = Vec::new();
    for block in 0..value.blocks() {
        let Some(start) = value.stored_offset_of_block(block) else { continue };
        let end = (start + BLOCK_BYTES as u32).min(value.address.length);
        let in_row = geometry::record_range(&value.address, &(start..end));
        let mut pieces = row_pieces(scheme, value.address.row_block, in_row);
        if !pieces.any(|piece| chunks & 1 << piece.chunk != 0) {
            continue;
        }
        let from = block * BLOCK_BYTES as u32;
        let to = (from + BLOCK_BYTES as u32).min(value.logical_bytes);
        match lost.last_mut().filter(|last| last.end == from) {
            Some(last) => last.end = to,
            None => lost.push(from..to),
        }
    }
    lost
}

#[cfg(test)]
mod tests;
