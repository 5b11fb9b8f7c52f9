//! Writing right bytes back over bad ones.
//!
//! What a read found bad is looked at again first: another reader may have repaired it, or the device only hiccuped. Only
//! blocks that are still wrong are written, with bytes that the reader's own check accepted. Nothing is flushed here:
//! the next commit's flush covers it, and scrubbing reads it again.
//!
//! Invariant: a block that reads right is never written. Source: Appuswamy et al. 2010, section 4.1 (fail-stop devices).

use std::ops::Range;

use stere_device::{Device, DeviceError};
use stere_format::{Address, BLOCK_BYTES, SegmentChunks};

use crate::error::{BadCause, BadChunk, StripeError};
use crate::{PoolDevice, ReadReport, Stripe, parity};

/// What a repair did.
#[derive(Debug, Clone, Default)]
pub struct Repair {
    /// Blocks of chunks that hold right bytes again.
    pub blocks: u64,
    /// Chunks whose devices did not take the right bytes, and what they said.
    pub unwritable: Vec<(usize, DeviceError)>,
}

impl Repair {
    pub fn add(&mut self, other: Repair) {
        self.blocks += other.blocks;
        self.unwritable.extend(other.unwritable);
    }
}

/// A part of a chunk that a read found bad.
struct BadRange {
    chunk: usize,
    range: Range<u64>,
    is_readable: bool,
}

/// The bad parts by place, those that touch as one; a device that is away has none.
fn merged(bad: &[BadChunk]) -> Vec<BadRange> {
    let is_there = |bad: &&BadChunk| !matches!(&bad.cause, BadCause::Device(error) if error.is_absence());
    let mut sorted: Vec<&BadChunk> = bad.iter().filter(is_there).collect();
    sorted.sort_by_key(|bad| (bad.chunk, bad.chunk_offset));
    let mut merged: Vec<BadRange> = Vec::new();
    for bad in sorted {
        let is_readable = matches!(bad.cause, BadCause::Checksum);
        let range = bad.chunk_offset..bad.chunk_offset + bad.length as u64;
        match merged.last_mut() {
            Some(last) if last.chunk == bad.chunk && range.start <= last.range.end => {
                last.range.end = last.range.end.max(range.end);
                last.is_readable &= is_readable;
            }
            _ => merged.push(BadRange { chunk: bad.chunk, range, is_readable }),
        }
    }
    merged
}

impl Stripe {
    /// Counts what a read found bad, device by device.
    pub fn count_bad(&self, report: &ReadReport) {
        for bad in report.bad.iter().filter(|bad| matches!(bad.cause, BadCause::Checksum)) {
            if let Some(device) = self.devices.get(bad.place.device) {
                device.count_checksum_error();
            }
        }
    }

    /// Does this without holding checksum errors met on the way against the devices: what a crash left half written is no fault
    /// of theirs.
    pub fn excusing<T>(&self, work: impl FnOnce() -> T) -> T {
        let before: Vec<_> = self.devices.all().into_iter().map(|device| (device.statistics(), device)).collect();
        let outcome = work();
        for (statistics, device) in before {
            device.set_checksum_errors(statistics.checksum_errors);
        }
        outcome
    }

    /// Writes verified bytes over the bad parts that a read reported, so that they are good again. `out` is what that
    /// read gave for `range`. Parity among the bad parts is left to scrubbing. Where writes do not go out now nothing is repaired: a
    /// read waits for no lease, and while the pool is opened its lease begins only after what is read then.
    pub fn repair(
        &self,
        segment: &SegmentChunks,
        address: &Address,
        range: &Range<u32>,
        out: &[u8],
        report: &ReadReport,
    ) -> Result<Repair, StripeError> {
        self.check_segment(address.segment, segment)?;
        let pieces = self.check_pieces(address, segment, range)?;
        let is_copies = parity::is_copies(segment.scheme);
        let mut repair = Repair::default();
        let takes_writes = |bad: &BadRange| {
            let place = segment.chunks.get(bad.chunk);
            place.and_then(|place| self.devices.get(place.device)).is_some_and(|device| device.takes_writes())
        };
        for bad in merged(&report.bad).into_iter().filter(takes_writes) {
            for piece in pieces.iter().filter(|piece| is_copies || piece.chunk == bad.chunk) {
                let start = piece.chunk_offset.max(bad.range.start);
                let end = (piece.chunk_offset + piece.length as u64).min(bad.range.end);
                if start < end {
                    let at = piece.at + (start - piece.chunk_offset) as usize;
                    let right = &out[at..at + (end - start) as usize];
                    repair.add(self.restore_part(
                        address.segment,
                        segment,
                        bad.chunk,
                        start,
                        right,
                        bad.is_readable,
                    )?);
                }
            }
        }
        Ok(repair)
    }

    /// Makes a part of a chunk hold these bytes: whatever of it is wrong or cannot be read is written.
    pub fn restore(
        &self,
        number: u64,
        segment: &SegmentChunks,
        chunk: usize,
        chunk_offset: u64,
        right: &[u8],
    ) -> Result<Repair, StripeError> {
        self.restore_part(number, segment, chunk, chunk_offset, right, true)
    }

    fn restore_part(
        &self,
        number: u64,
        segment: &SegmentChunks,
        chunk: usize,
        chunk_offset: u64,
        right: &[u8],
        is_readable: bool,
    ) -> Result<Repair, StripeError> {
        let mut repair = Repair::default();
        let Some((device, start)) = self.chunk(segment, chunk)? else { return Ok(repair) };
        if self.slots.is_suspended(device.index()) {
            // It takes nothing now. One that is given up or being emptied is repaired: until its chunks have moved they count.
            return Ok(repair);
        }
        for wrong in self.wrong_parts(&device, start + chunk_offset, right, is_readable) {
            let at = chunk_offset + wrong.start as u64;
            match self.rewrite(number, segment, chunk, at, &right[wrong.clone()]) {
                Ok(()) => {
                    let block = BLOCK_BYTES as u64;
                    let blocks = (at + wrong.len() as u64).div_ceil(block) - at / block;
                    device.count_repaired(blocks);
                    repair.blocks += blocks;
                }
                Err(StripeError::Device(error)) if error.is_absence() => break,
                Err(StripeError::Device(error)) => {
                    repair.unwritable.push((chunk, error));
                    break;
                }
                // Its neighbours in the device block can be had nowhere: it stays as it is.
                Err(StripeError::TooFewChunks { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(repair)
    }

    /// The parts, cut where blocks of the chunk end, that are not what they should be. One bad block spoils a read of
    /// all: where that is known already, each is asked for alone.
    fn wrong_parts(&self, device: &PoolDevice, offset: u64, right: &[u8], is_readable: bool) -> Vec<Range<usize>> {
        let mut found = self.buffers.take(right.len());
        let is_read = is_readable && device.read(offset, &mut found).is_ok();
        let mut wrong: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        while at < right.len() {
            let place = offset + at as u64;
            let to_boundary = BLOCK_BYTES - (place % BLOCK_BYTES as u64) as usize;
            let end = right.len().min(at + to_boundary);
            let is_right = match is_read {
                true => found[at..end] == right[at..end],
                false => device.read(place, &mut found[at..end]).is_ok() && found[at..end] == right[at..end],
            };
            match wrong.last_mut() {
                Some(last) if !is_right && last.end == at => last.end = end,
                _ if !is_right => wrong.push(at..end),
                _ => {}
            }
            at = end;
        }
        wrong
    }

    /// Writes bytes known to be right over a part of a chunk, and waits. Any alignment; neighbours in the same device
    /// block keep what they have. The caller flushes.
    pub fn rewrite(
        &self,
        number: u64,
        segment: &SegmentChunks,
        chunk: usize,
        chunk_offset: u64,
        bytes: &[u8],
    ) -> Result<(), StripeError> {
        self.check_segment(number, segment)?;
        if chunk >= segment.scheme.width() {
            return Err(StripeError::ImpossibleSegment { segment: number, reason: "chunk number" });
        }
        crate::geometry::check_chunk_range(number, chunk_offset, bytes.len(), self.chunk_bytes)?;
        let place = segment.chunks[chunk];
        let device = self.devices.get(place.device).ok_or(StripeError::Absent { index: place.device })?;
        let block_bytes = u64::from(device.block_bytes());
        // Slots start at whole blocks, so widening stays within the slot.
        let start = chunk_offset / block_bytes * block_bytes;
        let end = (chunk_offset + bytes.len() as u64).next_multiple_of(block_bytes);
        assert!(end <= u64::from(self.chunk_bytes), "the blocks of a part stay within its slot");
        let slot_offset = device.slot_offset(place)?;
        let mut blocks = self.buffers.take((end - start) as usize);
        let (head, block) = ((chunk_offset - start) as usize, block_bytes as usize);
        let tail = blocks.len() - head - bytes.len();
        if head > 0 {
            self.edge(number, segment, chunk, start, &mut blocks[..block])?;
        }
        if tail > 0 && (head == 0 || blocks.len() > block) {
            let at = blocks.len() - block;
            self.edge(number, segment, chunk, start + at as u64, &mut blocks[at..])?;
        }
        blocks[head..head + bytes.len()].copy_from_slice(bytes);
        let range = 0..blocks.len();
        Ok(device.write(slot_offset + start, blocks.share(), range)?)
    }

    /// A device block of which only a part is rewritten. Where it cannot be read any more, what follows from the other
    /// chunks takes its place: nothing that could be had is lost, and readers check it like everything.
    fn edge(
        &self,
        number: u64,
        segment: &SegmentChunks,
        chunk: usize,
        chunk_offset: u64,
        block: &mut [u8],
    ) -> Result<(), StripeError> {
        let place = segment.chunks[chunk];
        let device = self.devices.get(place.device).ok_or(StripeError::Absent { index: place.device })?;
        if device.read(device.slot_offset(place)? + chunk_offset, block).is_ok() {
            return Ok(());
        }
        let first = (chunk_offset / BLOCK_BYTES as u64) as u32;
        let rebuilt = self.rebuild_chunk(number, segment, chunk, first..first + 1, 0)?;
        let skip = (chunk_offset % BLOCK_BYTES as u64) as usize;
        block.copy_from_slice(&rebuilt[skip..skip + block.len()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
