//! Where the bytes of a row lie on the chunks of its segment.
//!
//! A row's logical bytes are dealt over the k data chunks in units of `STRIPE_UNIT_BYTES`; byte x lies on chunk
//! (x / unit) % k, at row_block * 4096 + (x / (k * unit)) * unit + x % unit. All k+m chunks have the same height.
//!
//! Invariant used everywhere: the parts of one logical range that lie on one chunk follow each other there without gaps.

use crate::error::StripeError;
use std::ops::Range;
use stere_format::{Address, BLOCK_BYTES, STRIPE_UNIT_BYTES, Scheme};

const UNIT: u64 = STRIPE_UNIT_BYTES as u64;

/// A part of a logical range that lies in one piece on one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPiece {
    /// Which data chunk.
    pub chunk: usize,
    /// From the start of the chunk.
    pub chunk_offset: u64,
    /// From the start of the logical range.
    pub at: usize,
    pub length: usize,
}

/// Blocks that a row of so many logical bytes takes on every chunk.
pub fn row_height(scheme: Scheme, row_bytes: usize) -> u32 {
    let data = usize::from(scheme.data);
    if data == 1 {
        return row_bytes.div_ceil(BLOCK_BYTES) as u32;
    }
    let stripe = data * STRIPE_UNIT_BYTES;
    // The first chunk has the longest share of the last, partial stripe.
    let last = (row_bytes % stripe).min(STRIPE_UNIT_BYTES);
    let height = (row_bytes / stripe * (STRIPE_UNIT_BYTES / BLOCK_BYTES) + last.div_ceil(BLOCK_BYTES)) as u32;
    assert!(row_capacity(scheme, height) >= row_bytes, "a row holds the bytes that its height was computed for");
    height
}

/// Most logical bytes that a row of this height can hold without being higher.
pub fn row_capacity(scheme: Scheme, height_blocks: u32) -> usize {
    let data = usize::from(scheme.data);
    let height_bytes = height_blocks as usize * BLOCK_BYTES;
    if data == 1 || height_bytes % STRIPE_UNIT_BYTES == 0 {
        return height_bytes * data;
    }
    // In a partial stripe the first chunk fills before the second begins.
    height_bytes / STRIPE_UNIT_BYTES * STRIPE_UNIT_BYTES * data + height_bytes % STRIPE_UNIT_BYTES
}

/// The pieces of the logical bytes `range` of the row at `row_block`, in logical order.
pub fn row_pieces(scheme: Scheme, row_block: u32, range: Range<u64>) -> impl Iterator<Item = RowPiece> {
    let data = u64::from(scheme.data);
    let row_offset = u64::from(row_block) * BLOCK_BYTES as u64;
    let mut next = range.start;
    std::iter::from_fn(move || {
        if next >= range.end {
            return None;
        }
        let (chunk, chunk_offset, limit) = if data == 1 {
            (0, row_offset + next, range.end)
        } else {
            let unit = next / UNIT;
            (unit % data, row_offset + unit / data * UNIT + next % UNIT, (unit + 1) * UNIT)
        };
        let end = limit.min(range.end);
        let piece = RowPiece {
            chunk: chunk as usize,
            chunk_offset,
            at: (next - range.start) as usize,
            length: (end - next) as usize,
        };
        assert!(piece.length > 0 && (data == 1 || piece.length as u64 <= UNIT), "a piece is a part of one unit");
        next = end;
        Some(piece)
    })
}

/// The logical bytes in the row of a part of a record.
pub fn record_range(address: &Address, part: &Range<u32>) -> Range<u64> {
    let start = u64::from(address.offset) + u64::from(part.start);
    start..start + u64::from(part.end.saturating_sub(part.start))
}

/// Refuses a range beyond the chunk: addresses come from media.
pub(crate) fn check_chunk_range(segment: u64, offset: u64, length: usize, chunk_bytes: u32) -> Result<(), StripeError> {
    let end = offset.saturating_add(length as u64);
    if end <= u64::from(chunk_bytes) {
        return Ok(());
    }
    Err(StripeError::OutsideChunk { segment, offset, end, chunk_bytes })
}

#[cfg(test)]
mod tests;
