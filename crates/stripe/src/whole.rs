//! A segment's content whole in memory, in the shape of its data chunks: read in large pieces from the chunks that are there, to
//! be verified once and written out as any chunk.
//!
//! Invariant: nothing in here is verified; whoever reads a segment this way checks the records before a chunk is written from it.

use crate::error::StripeError;
use crate::geometry::{RowPiece, row_capacity, row_pieces};
use crate::read_window::ReadWindow;
use crate::{Stripe, parity};
use stere_device::{Buffer, Device, Piece, SharedBuffer, Ticket};
use stere_format::{BLOCK_BYTES, ChunkHeader, ChunkPlace, Scheme, SegmentChunks};

/// Blocks 1 to the end of all data chunks (of copies: of one).
#[derive(Debug)]
pub struct Whole {
    scheme: Scheme,
    units: Vec<Buffer>,
}

/// Chunks begin with their header; content follows.
const FIRST_BLOCK: u32 = 1;
/// What is read at a time where not all can be read.
const SALVAGE_BLOCKS: u32 = 16;

impl Stripe {
    /// Reads what the first `blocks` blocks of a segment's chunks hold, headers aside, without the chunks in `exclude`.
    pub fn read_whole(
        &self,
        number: u64,
        segment: &SegmentChunks,
        blocks: u32,
        exclude: u32,
    ) -> Result<Whole, StripeError> {
        self.check_segment(number, segment)?;
        let piece = self.block_piece(number, 0, &(FIRST_BLOCK..blocks.max(FIRST_BLOCK)))?;
        let scheme = segment.scheme;
        if piece.length == 0 {
            let units = (0..scheme.data).map(|_| Buffer::zeroed(0)).collect();
            return Ok(Whole { scheme, units });
        }
        let units = ReadWindow::new(self, number, segment, &[piece]).into_data(exclude)?;
        assert_eq!(units.len(), usize::from(scheme.data), "a segment is read whole in its data chunks");
        let is_whole = |unit: &Buffer| unit.len() == piece.length;
        assert!(units.iter().all(is_whole), "each chunk of segment {number} is read to its end");
        Ok(Whole { scheme, units })
    }

    /// As `read_whole`, in small pieces: what cannot be read from enough chunks stays zero. How many blocks that were comes back too.
    pub fn salvage_whole(
        &self,
        number: u64,
        segment: &SegmentChunks,
        blocks: u32,
    ) -> Result<(Whole, u32), StripeError> {
        self.check_segment(number, segment)?;
        let length = self.block_piece(number, 0, &(FIRST_BLOCK..blocks.max(FIRST_BLOCK)))?.length;
        let scheme = segment.scheme;
        let mut units: Vec<Buffer> = (0..scheme.data).map(|_| Buffer::zeroed(length)).collect();
        let mut unreadable = 0;
        let mut copy = |range: std::ops::Range<u32>| -> Result<bool, StripeError> {
            let piece = self.block_piece(number, 0, &range)?;
            let Ok(read) = ReadWindow::new(self, number, segment, &[piece]).into_data(0) else { return Ok(false) };
            let start = (range.start - FIRST_BLOCK) as usize * BLOCK_BYTES;
            for (unit, bytes) in units.iter_mut().zip(&read) {
                unit.as_mut_slice()[start..start + bytes.len()].copy_from_slice(bytes);
            }
            Ok(true)
        };
        for start in (FIRST_BLOCK..blocks).step_by(SALVAGE_BLOCKS as usize) {
            let end = (start + SALVAGE_BLOCKS).min(blocks);
            if copy(start..end)? {
                continue;
            }
            for block in start..end {
                unreadable += u32::from(!copy(block..block + 1)?);
            }
        }
        Ok((Whole { scheme, units }, unreadable))
    }

    /// What a chunk's own device has of it in its first `blocks` blocks, header aside, right or not.
    pub fn read_chunk(
        &self,
        number: u64,
        segment: &SegmentChunks,
        chunk: usize,
        blocks: u32,
    ) -> Result<SharedBuffer, StripeError> {
        self.check_segment(number, segment)?;
        let length = self.block_piece(number, 0, &(FIRST_BLOCK..blocks.max(FIRST_BLOCK)))?.length;
        let mut content = self.buffers.take(length);
        let index = segment.chunks[chunk].device;
        let (device, start) = self.chunk(segment, chunk)?.ok_or(StripeError::Absent { index })?;
        device.read(start + u64::from(FIRST_BLOCK) * BLOCK_BYTES as u64, content.as_mut_slice())?;
        Ok(content.share())
    }

    /// What these chunks of the segment hold behind their headers.
    pub fn chunks_of(&self, whole: Whole, chunks: &[usize]) -> Result<Vec<SharedBuffer>, StripeError> {
        let Whole { scheme, units } = whole;
        let data = usize::from(scheme.data);
        let length = units.first().map_or(0, |unit| unit.len());
        assert!(units.iter().all(|unit| unit.len() == length), "all units of a segment are equally high");
        let mut coded: Vec<Option<SharedBuffer>> = Vec::new();
        if !parity::is_copies(scheme) && length > 0 && chunks.iter().any(|&chunk| chunk >= data) {
            let mut targets: Vec<Buffer> = (0..scheme.parity).map(|_| self.buffers.take(length)).collect();
            let sources: Vec<&[u8]> = units.iter().map(|unit| &unit[..]).collect();
            let mut slices: Vec<&mut [u8]> = targets.iter_mut().map(Buffer::as_mut_slice).collect();
            self.coder.encode(scheme, &sources, &mut slices)?;
            coded = targets.into_iter().map(|unit| Some(unit.share())).collect();
        }
        let units: Vec<SharedBuffer> = units.into_iter().map(Buffer::share).collect();
        let content = |&chunk: &usize| match chunk.checked_sub(data) {
            _ if parity::is_copies(scheme) => units[0].clone(),
            None => units[chunk].clone(),
            Some(number) => coded.get_mut(number).and_then(Option::take).unwrap_or_else(|| Buffer::zeroed(0).share()),
        };
        let contents: Vec<SharedBuffer> = chunks.iter().map(content).collect();
        assert!(contents.iter().all(|content| content.len() == length), "each chunk is asked for once, and is whole");
        Ok(contents)
    }

    /// Submits a chunk, header and content, to a slot.
    pub fn write_chunk(
        &self,
        place: ChunkPlace,
        header: &ChunkHeader,
        content: &SharedBuffer,
        ticket: Ticket,
    ) -> Result<(), StripeError> {
        let device = self.devices.get(place.device).ok_or(StripeError::Absent { index: place.device })?;
        let offset = device.slot_offset(place)?;
        assert!(ChunkHeader::SIZE + content.len() <= self.chunk_bytes as usize, "a chunk stays within its slot");
        let mut pieces = vec![Piece::new(Buffer::copy_of(&header.encode()).share(), 0..ChunkHeader::SIZE)];
        if !content.is_empty() {
            pieces.push(Piece::new(content.clone(), 0..content.len()));
        }
        device.submit_write_gathered(offset, pieces, ticket);
        Ok(())
    }
}

impl Whole {
    /// A segment in which nothing is yet, with so many blocks in each chunk, headers counted.
    pub fn empty(scheme: Scheme, blocks: u32) -> Whole {
        assert!(scheme.data > 0, "a segment has a data chunk");
        let length = (blocks.max(FIRST_BLOCK) - FIRST_BLOCK) as usize * BLOCK_BYTES;
        Whole { scheme, units: (0..scheme.data).map(|_| Buffer::zeroed(length)).collect() }
    }

    /// Blocks there are, from block 1 on.
    pub fn blocks(&self) -> u32 {
        self.units.first().map_or(0, |unit| (unit.len() / BLOCK_BYTES) as u32)
    }

    /// The start of what the row at this block holds; a row's first block lies on the first chunk.
    pub fn first_block_of_row(&self, row_block: u32) -> Option<&[u8]> {
        let start = row_block.checked_sub(FIRST_BLOCK)? as usize * BLOCK_BYTES;
        self.units.first()?.get(start..start + BLOCK_BYTES)
    }

    /// All logical bytes of a row, in order: in place where it lies in one piece, else gathered in `scratch`.
    pub fn row<'a>(&'a self, row_block: u32, height: u32, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        if row_block < FIRST_BLOCK || row_block + height > FIRST_BLOCK + self.blocks() {
            return None;
        }
        let length = row_capacity(self.scheme, height);
        if let [only] = &self.units[..] {
            let start = (row_block - FIRST_BLOCK) as usize * BLOCK_BYTES;
            return only.get(start..start + length);
        }
        scratch.clear();
        for (piece, start) in self.pieces(row_block, length) {
            scratch.extend_from_slice(&self.units[piece.chunk][start..start + piece.length]);
        }
        assert_eq!(scratch.len(), length, "a row is put together from all of its pieces");
        Some(scratch)
    }

    /// Puts a row's logical bytes in the place of those that were read.
    pub fn put_row(&mut self, row_block: u32, bytes: &[u8]) {
        let pieces: Vec<_> = self.pieces(row_block, bytes.len()).collect();
        for (piece, start) in pieces {
            let from = &bytes[piece.at..piece.at + piece.length];
            self.units[piece.chunk].as_mut_slice()[start..start + piece.length].copy_from_slice(from);
        }
    }

    /// The pieces of a row with where they begin in their unit.
    fn pieces(&self, row_block: u32, length: usize) -> impl Iterator<Item = (RowPiece, usize)> + use<> {
        let head = u64::from(FIRST_BLOCK) * BLOCK_BYTES as u64;
        row_pieces(self.scheme, row_block, 0..length as u64).map(move |piece| {
            let start = (piece.chunk_offset - head) as usize;
            (piece, start)
        })
    }
}

#[cfg(test)]
mod tests;
