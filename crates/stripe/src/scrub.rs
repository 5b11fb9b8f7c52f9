//! All chunks of a segment over the same blocks, as the devices give them: what scrubbing compares.
//!
//! Nothing here is verified and nothing repaired; what disagrees is found out by the caller, who knows the records.
//! Read next: `repair.rs`, and the store's `scrub/`.

use crate::error::{BadCause, BadChunk, StripeError};
use crate::geometry::{RowPiece, row_capacity, row_pieces};
use crate::read_window::ReadWindow;
use crate::{Stripe, parity};
use std::borrow::Cow;
use std::ops::Range;
use stere_device::{Buffer, Job, Piece, SharedBuffer};
use stere_format::{BLOCK_BYTES, STRIPE_UNIT_BYTES, Scheme, SegmentChunks};

/// A stretch of all chunks of a segment.
pub struct Stretch {
    scheme: Scheme,
    blocks: Range<u32>,
    units: Vec<Option<Buffer>>,
    /// Bit set of the chunks that were read from their devices.
    pub readable: u32,
    /// Bit set of the chunks whose devices are there and gave an error.
    pub failed: u32,
}

impl Stripe {
    /// Reads these blocks of all chunks, side by side. Data chunks that are not there are computed where enough others
    /// are; an error where not even that gives the data.
    pub fn read_stretch(
        &self,
        number: u64,
        segment: &SegmentChunks,
        blocks: Range<u32>,
    ) -> Result<Stretch, StripeError> {
        self.check_segment(number, segment)?;
        let scheme = segment.scheme;
        let piece = self.block_piece(number, 0, &blocks)?;
        let mut window = ReadWindow::new(self, number, segment, &[piece]);
        let chunks: Vec<usize> = (0..scheme.width()).collect();
        window.load_all(&chunks)?;
        let readable =
            chunks.iter().filter(|&&chunk| window.unit(chunk).is_some()).fold(0, |set, chunk| set | 1 << chunk);
        let is_there = |bad: &&BadChunk| !matches!(&bad.cause, BadCause::Device(error) if error.is_absence());
        let failed = window.failed().iter().filter(is_there).fold(0, |set, bad| set | 1 << bad.chunk);
        assert_eq!(readable & failed, 0, "a chunk is read or fails");
        let data = if parity::is_copies(scheme) { 0 } else { usize::from(scheme.data) };
        let lost: Vec<usize> = (0..data).filter(|chunk| readable >> chunk & 1 == 0).collect();
        let rebuilt = match lost.is_empty() && readable != 0 {
            true => Vec::new(),
            // For copies this fails and says what is there.
            false => window.rebuild(&lost, !readable)?,
        };
        let mut units = window.into_units();
        for (chunk, unit) in lost.into_iter().zip(rebuilt) {
            units[chunk] = Some(unit);
        }
        Ok(Stretch { scheme, blocks, units, readable, failed })
    }

    /// Runs reads beside other work, on the threads that the devices bring; without any, the work first and then the reads.
    pub fn run_beside<'a>(&self, mut reads: Vec<Job<'a>>, work: Job<'a>) {
        match self.devices.parallel().filter(|_| !reads.is_empty()) {
            Some(parallel) => {
                // The last is done on this thread.
                reads.push(work);
                parallel.run(reads);
            }
            None => {
                work();
                reads.into_iter().for_each(|read| read());
            }
        }
    }

    /// How a row lies on its chunks: the bytes of each, in pieces.
    pub fn row_units(&self, scheme: Scheme, row: &SharedBuffer) -> Result<Vec<Vec<Piece>>, StripeError> {
        self.units_of_row(scheme, row)
    }
}

impl Stretch {
    pub fn blocks(&self) -> Range<u32> {
        self.blocks.clone()
    }

    /// Bytes that were read from devices.
    pub fn read_bytes(&self) -> u64 {
        u64::from(self.readable.count_ones()) * self.blocks.len() as u64 * BLOCK_BYTES as u64
    }

    /// A block as its own device gave it, if it did.
    pub fn read_block(&self, chunk: usize, block: u32) -> Option<&[u8]> {
        let is_inside = self.blocks.contains(&block) && self.readable >> chunk & 1 == 1;
        if is_inside { self.part(chunk, &(block..block + 1)) } else { None }
    }

    fn part(&self, chunk: usize, blocks: &Range<u32>) -> Option<&[u8]> {
        assert!(blocks.start >= self.blocks.start && blocks.end <= self.blocks.end, "blocks of this stretch");
        let start = (blocks.start - self.blocks.start) as usize * BLOCK_BYTES;
        let end = (blocks.end - self.blocks.start) as usize * BLOCK_BYTES;
        self.units[chunk].as_ref().map(|unit| &unit[start..end])
    }

    /// The chunk that a row is read from first: the first data chunk, or the first copy there is.
    fn first(&self) -> usize {
        match parity::is_copies(self.scheme) {
            true => self.units.iter().position(Option::is_some).unwrap_or(0),
            false => 0,
        }
    }

    /// The first block of a row.
    pub fn first_block(&self, row_block: u32) -> Option<&[u8]> {
        self.part(self.first(), &(row_block..row_block + 1))
    }

    /// All logical bytes that a row of this height can have.
    pub fn row(&self, row_block: u32, height: u32) -> Option<Cow<'_, [u8]>> {
        let blocks = row_block..row_block + height;
        if self.scheme.data == 1 {
            return self.part(self.first(), &blocks).map(Cow::Borrowed);
        }
        let length = row_capacity(self.scheme, height);
        let mut row = Vec::with_capacity(length);
        for piece in row_pieces(self.scheme, row_block, 0..length as u64) {
            let RowPiece { chunk, chunk_offset, length, .. } = piece;
            let unit = self.part(chunk, &blocks)?;
            let start = chunk_offset as usize - row_block as usize * BLOCK_BYTES;
            row.extend_from_slice(&unit[start..start + length]);
        }
        assert_eq!(row.len(), length, "a row is put together from all of its pieces");
        Some(Cow::Owned(row))
    }

    /// Whether all chunks that were read agree over these blocks: copies are the same, parity follows from the data.
    pub fn agrees(&self, stripe: &Stripe, blocks: Range<u32>) -> Result<bool, StripeError> {
        let units: Vec<Option<&[u8]>> = (0..self.units.len()).map(|chunk| self.part(chunk, &blocks)).collect();
        if parity::is_copies(self.scheme) {
            let mut copies = units.into_iter().flatten();
            let first = copies.next();
            return Ok(copies.all(|copy| Some(copy) == first));
        }
        let (data, parity) = units.split_at(usize::from(self.scheme.data));
        if parity.iter().all(Option::is_none) || data.iter().any(Option::is_none) {
            return Ok(true);
        }
        let length = blocks.len() * BLOCK_BYTES;
        let mut computed: Vec<Buffer> = parity.iter().map(|_| stripe.buffers.take(STRIPE_UNIT_BYTES)).collect();
        for start in (0..length).step_by(STRIPE_UNIT_BYTES) {
            let range = start..length.min(start + STRIPE_UNIT_BYTES);
            let sources: Vec<&[u8]> = data.iter().flatten().map(|unit| &unit[range.clone()]).collect();
            let mut targets: Vec<&mut [u8]> =
                computed.iter_mut().map(|unit| &mut unit.as_mut_slice()[..range.len()]).collect();
            stripe.coder.encode(self.scheme, &sources, &mut targets)?;
            let differs = |(stored, computed): (&Option<&[u8]>, &Buffer)| {
                stored.is_some_and(|stored| stored[range.clone()] != computed[..range.len()])
            };
            if parity.iter().zip(&computed).any(differs) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
