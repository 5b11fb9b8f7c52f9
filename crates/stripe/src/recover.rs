//! Getting right bytes when the straight way gave none: other copies, then reconstruction without the suspects.
//!
//! For copies each one is tried. For k+m the chunks that cannot be read are taken as lost; if what follows from the
//! others is still wrong, some chunk lies, and every set of up to m - lost chunks is suspected in turn, smaller sets
//! first (so two liars are found with m = 2), until the caller's check accepts. Bounded by `ATTEMPTS_MAX`.
//!
//! All sources are read once per call, over the read window of the ranges that are needed, and combined in memory.

use crate::error::{BadCause, BadChunk, StripeError};
use crate::geometry::{RowPiece, check_chunk_range};
use crate::read::Before;
use crate::read_window::{ReadWindow, Rebuilt, touches};
use crate::{Stripe, parity};
use std::ops::Range;
use stere_device::{Buffer, Device};
use stere_format::{Address, BLOCK_BYTES, SegmentChunks, WIDTH_MAX};

/// All pairs of 32 chunks and more; only wide schemes with m > 2 could ask for more.
const ATTEMPTS_MAX: usize = 2000;

/// How often everything is asked for again where nothing gave right bytes and some devices gave errors. The fast path
/// was the first try, recovery is the second.
const LAST_RETRIES: u32 = 1;

/// What comparing the chunks of a segment with each other showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeCheck {
    /// Bit set of the chunks that could be read.
    pub readable: u32,
    /// Parity chunks, or copies, that do not agree with the data chunks (with the first readable copy).
    pub differing: Vec<usize>,
    /// Whether there was enough to compare anything.
    pub is_compared: bool,
}

impl Stripe {
    /// Finds bytes for a part of a record that `accepts` likes, and tells what was bad on the way. `before` is what was
    /// tried already.
    pub(crate) fn recover(
        &self,
        address: &Address,
        segment: &SegmentChunks,
        range: &Range<u32>,
        out: &mut [u8],
        accepts: &dyn Fn(&[u8]) -> bool,
        before: Before,
    ) -> Result<Vec<BadChunk>, StripeError> {
        let pieces = self.check_pieces(address, segment, range)?;
        if parity::is_copies(segment.scheme) {
            return self.recover_copy(address.segment, segment, &pieces, out, accepts, before);
        }
        let first = |left: u32| ReadWindow::new(self, address.segment, segment, &pieces).without(left);
        match before.left {
            0 => self.recover_units(first(0), &pieces, out, accepts, 0),
            left => self
                .recover_units(first(left), &pieces, out, accepts, LAST_RETRIES)
                .or_else(|_| self.recover_units(first(0), &pieces, out, accepts, 0)),
        }
    }

    fn recover_copy(
        &self,
        number: u64,
        segment: &SegmentChunks,
        pieces: &[RowPiece],
        out: &mut [u8],
        accepts: &dyn Fn(&[u8]) -> bool,
        before: Before,
    ) -> Result<Vec<BadChunk>, StripeError> {
        let (mut bad, mut readable) = (Vec::new(), 0);
        let [piece] = pieces else { return Ok(bad) };
        let mut retried = 0;
        let slow = self.slow_chunks(segment);
        let mut chunks: Vec<usize> = (0..segment.scheme.width()).collect();
        // The copy that gave nothing right before comes first: what is wrong with it is to be told.
        chunks.sort_by_key(|chunk| (before.left >> chunk & 1, *chunk != before.copy, slow >> chunk & 1));
        loop {
            for chunk in std::mem::take(&mut chunks) {
                let Some((device, start)) = self.chunk(segment, chunk)? else { continue };
                let cause = match device.read(start + piece.chunk_offset, out) {
                    Ok(()) if accepts(out) => return Ok(bad),
                    Ok(()) => {
                        readable += 1;
                        BadCause::Checksum
                    }
                    Err(error) => {
                        chunks.push(chunk);
                        BadCause::Device(error)
                    }
                };
                let (place, chunk_offset, length) = (segment.chunks[chunk], piece.chunk_offset, piece.length);
                bad.retain(|known: &BadChunk| known.chunk != chunk);
                bad.push(BadChunk { chunk, place, chunk_offset, length, cause });
            }
            if chunks.is_empty() || retried == LAST_RETRIES {
                break;
            }
            // Nobody else has it: what could not be read is asked for once more.
            retried += 1;
        }
        Err(self.give_up(number, readable, 1, bad))
    }

    fn recover_units(
        &self,
        mut window: ReadWindow<'_>,
        pieces: &[RowPiece],
        out: &mut [u8],
        accepts: &dyn Fn(&[u8]) -> bool,
        retries: u32,
    ) -> Result<Vec<BadChunk>, StripeError> {
        let (number, segment) = (window.number, window.segment);
        let scheme = segment.scheme;
        let lost = window.load_touched(pieces)?;
        if lost == 0 {
            // The first failure may have been a passing one, or another request's.
            window.assemble(pieces, &Rebuilt::default(), out);
            if accepts(out) {
                return Ok(window.failed());
            }
        }
        let spare = usize::from(scheme.parity).checked_sub(lost.count_ones() as usize);
        let candidates: Vec<usize> = (0..scheme.width()).filter(|chunk| lost >> chunk & 1 == 0).collect();
        let smallest = usize::from(lost == 0);
        let mut attempts = 0;
        for size in smallest..=spare.unwrap_or(0) {
            let mut suspects = Suspects::new(&candidates, size);
            while let Some(suspected) = suspects.next() {
                let excluded = lost | suspected;
                if attempts == ATTEMPTS_MAX
                    || !(0..scheme.width()).any(|chunk| excluded >> chunk & 1 == 1 && touches(pieces, chunk))
                {
                    continue;
                }
                attempts += 1;
                let rebuilt = window.rebuild_touched(pieces, excluded);
                match rebuilt.map(|rebuilt| window.assemble(pieces, &rebuilt, out)) {
                    Ok(()) if accepts(out) => {
                        let mut bad = window.failed();
                        let liars = (0..scheme.width()).filter(|chunk| suspected >> chunk & 1 == 1);
                        bad.extend(liars.map(|chunk| window.bad(chunk, BadCause::Checksum)));
                        return Ok(bad);
                    }
                    // Too few others to do without these: another set may work.
                    Ok(()) | Err(StripeError::TooFewChunks { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let readable = (0..scheme.width()).filter(|&chunk| window.load(chunk).unwrap_or(false)).count();
        if retries < LAST_RETRIES && !window.failed().is_empty() {
            let again = ReadWindow::new(self, number, segment, pieces);
            return self.recover_units(again, pieces, out, accepts, retries + 1);
        }
        Err(self.give_up(number, readable, usize::from(scheme.data), window.failed()))
    }

    fn give_up(&self, segment: u64, readable: usize, needed: usize, failed: Vec<BadChunk>) -> StripeError {
        match readable < needed {
            true => StripeError::TooFewChunks { segment, readable, needed, failed },
            false => StripeError::Damaged { segment, bad: failed },
        }
    }

    /// An unverified read that does without the excluded chunks.
    pub(crate) fn reconstruct(
        &self,
        number: u64,
        segment: &SegmentChunks,
        pieces: &[RowPiece],
        out: &mut [u8],
        exclude: u32,
    ) -> Result<(), StripeError> {
        let mut window = ReadWindow::new(self, number, segment, pieces);
        if parity::is_copies(segment.scheme) {
            let whole = window.rebuild(&[], exclude).map(drop);
            let source =
                (0..segment.scheme.width()).find(|&chunk| exclude >> chunk & 1 == 0 && window.unit(chunk).is_some());
            let Some(source) = source else { return whole };
            let chunk_pieces: Vec<RowPiece> = pieces.iter().map(|piece| RowPiece { chunk: source, ..*piece }).collect();
            window.assemble(&chunk_pieces, &Rebuilt::default(), out);
            return Ok(());
        }
        let lost = exclude | window.load_touched(pieces)?;
        let rebuilt = window.rebuild_touched(pieces, lost)?;
        window.assemble(pieces, &rebuilt, out);
        Ok(())
    }

    /// What a range of one chunk should hold, from the others without those in `exclude`: to fill a chunk that was
    /// missing, or a new one on another device. Unverified: the caller checks the records in it.
    pub fn rebuild_chunk(
        &self,
        number: u64,
        segment: &SegmentChunks,
        chunk: usize,
        blocks: Range<u32>,
        exclude: u32,
    ) -> Result<Buffer, StripeError> {
        self.check_segment(number, segment)?;
        if chunk >= segment.scheme.width() {
            return Err(StripeError::ImpossibleSegment { segment: number, reason: "chunk number" });
        }
        let piece = self.block_piece(number, chunk, &blocks)?;
        let mut window = ReadWindow::new(self, number, segment, &[piece]);
        let mut rebuilt = window.rebuild(&[chunk], exclude | 1 << chunk)?;
        Ok(rebuilt.pop().expect("one chunk was wanted"))
    }

    pub(crate) fn block_piece(&self, number: u64, chunk: usize, blocks: &Range<u32>) -> Result<RowPiece, StripeError> {
        let chunk_offset = u64::from(blocks.start) * BLOCK_BYTES as u64;
        let length = blocks.end.saturating_sub(blocks.start) as usize * BLOCK_BYTES;
        check_chunk_range(number, chunk_offset, length, self.chunk_bytes)?;
        Ok(RowPiece { chunk, chunk_offset, at: 0, length })
    }

    /// Compares the chunks of a segment over these blocks: copies with each other, parity with data. For scrubbing.
    pub fn check_blocks(
        &self,
        number: u64,
        segment: &SegmentChunks,
        blocks: Range<u32>,
    ) -> Result<RangeCheck, StripeError> {
        self.check_segment(number, segment)?;
        let scheme = segment.scheme;
        let piece = self.block_piece(number, 0, &blocks)?;
        let mut window = ReadWindow::new(self, number, segment, &[piece]);
        let mut check = RangeCheck::default();
        for chunk in 0..scheme.width() {
            check.readable |= u32::from(window.load(chunk)?) << chunk;
        }
        if piece.length == 0 {
            return Ok(check);
        }
        let readable = |chunk: &usize| check.readable >> chunk & 1 == 1;
        if parity::is_copies(scheme) {
            let mut copies = (0..scheme.width()).filter(readable);
            let first = copies.next();
            let others: Vec<usize> = copies.collect();
            check.is_compared = !others.is_empty();
            check.differing = others
                .into_iter()
                .filter(|&chunk| first.is_some_and(|first| window.unit(chunk) != window.unit(first)))
                .collect();
            return Ok(check);
        }
        let data: Vec<&[u8]> = (0..usize::from(scheme.data)).filter_map(|chunk| window.unit(chunk)).collect();
        if data.len() < usize::from(scheme.data) {
            return Ok(check);
        }
        let mut parity: Vec<Buffer> = (0..scheme.parity).map(|_| self.buffers.take(window.length())).collect();
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Buffer::as_mut_slice).collect();
        self.coder.encode(scheme, &data, &mut targets)?;
        let parity_chunks: Vec<usize> = (usize::from(scheme.data)..scheme.width()).filter(readable).collect();
        check.is_compared = !parity_chunks.is_empty();
        let differs = |chunk: &usize| window.unit(*chunk) != Some(&parity[chunk - usize::from(scheme.data)][..]);
        check.differing = parity_chunks.into_iter().filter(differs).collect();
        Ok(check)
    }
}

/// All sets of `size` of the candidates, as bit sets.
struct Suspects<'a> {
    candidates: &'a [usize],
    /// Positions in `candidates`, rising; none when all sets have been given.
    positions: Option<Vec<usize>>,
}

impl<'a> Suspects<'a> {
    fn new(candidates: &'a [usize], size: usize) -> Suspects<'a> {
        assert!(candidates.len() <= WIDTH_MAX);
        Suspects { candidates, positions: (size <= candidates.len()).then(|| (0..size).collect()) }
    }

    fn next(&mut self) -> Option<u32> {
        let positions = self.positions.as_mut()?;
        let set = positions.iter().fold(0_u32, |set, &at| set | 1 << self.candidates[at]);
        let (size, count) = (positions.len(), self.candidates.len());
        assert_eq!(set.count_ones() as usize, size, "no candidate is suspected twice");
        match (0..size).rev().find(|&digit| positions[digit] < count - size + digit) {
            None => self.positions = None,
            Some(digit) => {
                positions[digit] += 1;
                for next in digit + 1..size {
                    positions[next] = positions[next - 1] + 1;
                }
            }
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests;
