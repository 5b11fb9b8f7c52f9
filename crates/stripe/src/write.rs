//! Rows and chunk headers on their way to the devices.
//!
//! Data units are gathered by the device from the row's own memory (no copy); parity is computed in one pass over it,
//! stripe by stripe, while the units are warm in the cache.

use crate::error::StripeError;
use crate::geometry::{check_chunk_range, row_height};
use crate::{Stripe, parity};
use std::sync::Arc;
use stere_device::{Buffer, Completion, Device, DeviceError, Piece, SharedBuffer};
use stere_format::{BLOCK_BYTES, ChunkHeader, STRIPE_UNIT_BYTES, Scheme, SegmentChunks};

/// The tag a write of this chunk has in its completion, `tag` being the caller's own number (56 bits).
pub fn write_tag(tag: u64, chunk: usize) -> u64 {
    assert!(tag >> 56 == 0 && chunk < 256, "a tag has 56 bits, a chunk 8");
    tag << 8 | chunk as u64
}

/// The caller's number and the chunk of a tag that came back with an error.
pub fn split_tag(tag: u64) -> (u64, usize) {
    (tag >> 8, (tag & 0xff) as usize)
}

/// How the bytes of one row lie over its stripes.
struct RowShape<'a> {
    scheme: Scheme,
    row: &'a SharedBuffer,
    height_bytes: usize,
}

impl RowShape<'_> {
    fn stripe_count(&self) -> usize {
        self.height_bytes.div_ceil(STRIPE_UNIT_BYTES)
    }

    /// Bytes of every unit of this stripe.
    fn unit_bytes(&self, stripe: usize) -> usize {
        (self.height_bytes - stripe * STRIPE_UNIT_BYTES).min(STRIPE_UNIT_BYTES)
    }

    /// The part of the row that is the unit of a data chunk; shorter than the unit at the row's end.
    fn unit_range(&self, stripe: usize, chunk: usize) -> std::ops::Range<usize> {
        let start = (stripe * usize::from(self.scheme.data) + chunk) * STRIPE_UNIT_BYTES;
        let start = start.min(self.row.len());
        start..(start + self.unit_bytes(stripe)).min(self.row.len())
    }
}

impl Stripe {
    /// Submits a row at `row_block` to all chunks of its segment that are there, and returns its height in blocks.
    ///
    /// `row` is the logical row, whole blocks, what is unused at its end zeroed. Each chunk's write is a ticket of
    /// `completion` with the tag `write_tag(tag, chunk)`; a chunk whose device is away fails with `Absent`, one that
    /// is marked missing already is left out. An error here means that nothing was submitted.
    pub fn write_row(
        &self,
        number: u64,
        segment: &SegmentChunks,
        row_block: u32,
        row: &SharedBuffer,
        tag: u64,
        completion: &Completion,
    ) -> Result<u32, StripeError> {
        self.check_segment(number, segment)?;
        assert!(!row.is_empty() && row.len() % BLOCK_BYTES == 0, "a row is whole blocks");
        let scheme = segment.scheme;
        let height = row_height(scheme, row.len());
        let chunk_offset = u64::from(row_block) * BLOCK_BYTES as u64;
        check_chunk_range(number, chunk_offset, height as usize * BLOCK_BYTES, self.chunk_bytes)?;
        for (chunk, pieces) in self.units_of_row(scheme, row)?.into_iter().enumerate() {
            self.submit_to_chunk(segment, chunk, chunk_offset, pieces, tag, completion)?;
        }
        Ok(height)
    }

    /// What each chunk takes of a row.
    pub(crate) fn units_of_row(&self, scheme: Scheme, row: &SharedBuffer) -> Result<Vec<Vec<Piece>>, StripeError> {
        let height_bytes = row_height(scheme, row.len()) as usize * BLOCK_BYTES;
        let shape = RowShape { scheme, row, height_bytes };
        let parity = self.parity_of(&shape)?;
        let data = usize::from(scheme.data);
        let units = (0..scheme.width()).map(|chunk| {
            if parity::is_copies(scheme) {
                vec![Piece::new(Arc::clone(row), 0..row.len())]
            } else if chunk < data {
                self.data_pieces(&shape, chunk)
            } else {
                vec![Piece::new(Arc::clone(&parity[chunk - data]), 0..shape.height_bytes)]
            }
        });
        let units: Vec<Vec<Piece>> = units.collect();
        let unit_bytes = if parity::is_copies(scheme) { row.len() } else { height_bytes };
        let is_whole = |pieces: &Vec<Piece>| stere_device::length_of(pieces) == unit_bytes;
        assert!(units.iter().all(is_whole), "all chunks of a row are equally high");
        Ok(units)
    }

    /// The parity units, each as high as the row; none for copies.
    fn parity_of(&self, shape: &RowShape<'_>) -> Result<Vec<SharedBuffer>, StripeError> {
        let scheme = shape.scheme;
        if parity::is_copies(scheme) || scheme.parity == 0 {
            return Ok(Vec::new());
        }
        let mut units: Vec<Buffer> = (0..scheme.parity).map(|_| self.buffers.take(shape.height_bytes)).collect();
        let mut padded = Vec::new();
        for stripe in 0..shape.stripe_count() {
            let unit_bytes = shape.unit_bytes(stripe);
            let ranges: Vec<_> = (0..usize::from(scheme.data)).map(|chunk| shape.unit_range(stripe, chunk)).collect();
            // At most one unit of a row ends in its middle: that one is filled up in a copy.
            if let Some(partial) = ranges.iter().find(|range| !range.is_empty() && range.len() < unit_bytes) {
                padded.clear();
                padded.extend_from_slice(&shape.row[partial.clone()]);
                padded.resize(unit_bytes, 0);
            }
            let sources: Vec<&[u8]> = ranges
                .iter()
                .map(|range| match range.len() {
                    0 => &self.zeros[..unit_bytes],
                    length if length == unit_bytes => &shape.row[range.clone()],
                    _ => &padded[..],
                })
                .collect();
            let start = stripe * STRIPE_UNIT_BYTES;
            let mut targets: Vec<&mut [u8]> =
                units.iter_mut().map(|unit| &mut unit.as_mut_slice()[start..start + unit_bytes]).collect();
            self.coder.encode(scheme, &sources, &mut targets)?;
        }
        Ok(units.into_iter().map(Buffer::share).collect())
    }

    /// The units of one data chunk, from the row's memory, zeros where the row ends before the height.
    fn data_pieces(&self, shape: &RowShape<'_>, chunk: usize) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(shape.stripe_count() + 1);
        for stripe in 0..shape.stripe_count() {
            let range = shape.unit_range(stripe, chunk);
            let zeros = shape.unit_bytes(stripe) - range.len();
            if !range.is_empty() {
                pieces.push(Piece::new(Arc::clone(shape.row), range));
            }
            if zeros > 0 {
                pieces.push(Piece::new(Arc::clone(&self.zeros), 0..zeros));
            }
        }
        pieces
    }

    fn submit_to_chunk(
        &self,
        segment: &SegmentChunks,
        chunk: usize,
        chunk_offset: u64,
        pieces: Vec<Piece>,
        tag: u64,
        completion: &Completion,
    ) -> Result<(), StripeError> {
        if segment.is_missing(chunk) {
            return Ok(());
        }
        let place = segment.chunks[chunk];
        let ticket = completion.ticket(write_tag(tag, chunk));
        let Some(device) = self.devices.get(place.device) else {
            ticket.finish(Err(DeviceError::Absent { device: format!("device {}", place.device) }));
            return Ok(());
        };
        match device.slot_offset(place) {
            Ok(slot_offset) => {
                device.submit_write_gathered(slot_offset + chunk_offset, pieces, ticket);
                Ok(())
            }
            // The ticket, dropped, reports the write as abandoned too.
            Err(error) => Err(error),
        }
    }

    /// Submits the header block of every chunk of a new segment; `header.chunk` is filled in for each. Tags as in
    /// `write_row`.
    pub fn write_chunk_headers(
        &self,
        header: &ChunkHeader,
        tag: u64,
        completion: &Completion,
    ) -> Result<(), StripeError> {
        self.check_segment(header.segment, &header.place)?;
        for chunk in 0..header.place.scheme.width() {
            let own = ChunkHeader { chunk: chunk as u8, ..header.clone() };
            let block = Buffer::copy_of(&own.encode()).share();
            assert_eq!(block.len(), ChunkHeader::SIZE);
            let piece = Piece::new(block, 0..ChunkHeader::SIZE);
            self.submit_to_chunk(&header.place, chunk, 0, vec![piece], tag, completion)?;
        }
        Ok(())
    }
}
