//! The same byte range of all chunks of a segment, each chunk read at most once, and what follows from it.
//!
//! The read window of a few pieces is the smallest such range that holds them, widened to what can be rebuilt by itself.
//! Recovery reads through it and then combines in memory as often as it needs.

use crate::Stripe;
use crate::devices::run_on_devices;
use crate::error::{BadCause, BadChunk, StripeError};
use crate::geometry::RowPiece;
use crate::parity::POSITION_BYTES;
use std::ops::Range;
use stere_device::{Buffer, Device, Job};
use stere_format::SegmentChunks;

/// The same range of all chunks of a segment, each read at most once.
pub(crate) struct ReadWindow<'a> {
    stripe: &'a Stripe,
    pub(crate) number: u64,
    pub(crate) segment: &'a SegmentChunks,
    range: Range<u64>,
    units: Vec<Option<Result<Buffer, Option<BadCause>>>>,
}

impl<'a> ReadWindow<'a> {
    /// The range covers all pieces, widened to what can be rebuilt by itself.
    pub(crate) fn new(
        stripe: &'a Stripe,
        number: u64,
        segment: &'a SegmentChunks,
        pieces: &[RowPiece],
    ) -> ReadWindow<'a> {
        let position = POSITION_BYTES as u64;
        let start = pieces.iter().map(|piece| piece.chunk_offset).min().unwrap_or(0);
        let end = pieces.iter().map(|piece| piece.chunk_offset + piece.length as u64).max().unwrap_or(0);
        // Chunks are whole positions long, so this stays within them.
        let range = start / position * position..end.next_multiple_of(position);
        ReadWindow { stripe, number, segment, range, units: (0..segment.scheme.width()).map(|_| None).collect() }
    }

    /// Does without these chunks, as if they were away.
    pub(crate) fn without(mut self, chunks: u32) -> ReadWindow<'a> {
        for (chunk, unit) in self.units.iter_mut().enumerate() {
            if chunks >> chunk & 1 == 1 {
                *unit = Some(Err(None));
            }
        }
        self
    }

    pub(crate) fn length(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Reads a chunk's part if that was not tried yet; whether its bytes are there.
    pub(crate) fn load(&mut self, chunk: usize) -> Result<bool, StripeError> {
        self.load_all(&[chunk])?;
        Ok(self.unit(chunk).is_some())
    }

    /// Reads the parts of several chunks, side by side where that helps.
    pub(crate) fn load_all(&mut self, chunks: &[usize]) -> Result<(), StripeError> {
        let length = self.length();
        let (mut devices, mut reads) = (Vec::new(), Vec::new());
        for &chunk in chunks.iter().filter(|&&chunk| self.units[chunk].is_none()) {
            match self.stripe.chunk(self.segment, chunk)? {
                None => reads.push((chunk, 0, Err(None))),
                Some((device, start)) => {
                    devices.push(device);
                    reads.push((chunk, start + self.range.start, Ok(self.stripe.buffers.take(length))));
                }
            }
        }
        let mut next_device = devices.iter();
        let mut jobs: Vec<Job<'_>> = Vec::new();
        for (_, offset, unit) in reads.iter_mut().filter(|(_, _, unit)| unit.is_ok()) {
            let device = next_device.next().expect("one device for each chunk that is there");
            jobs.push(Box::new(move || {
                let outcome = unit.as_mut().map(|buffer| device.read(*offset, buffer));
                if let Ok(Err(error)) = outcome {
                    *unit = Err(Some(BadCause::Device(error)));
                }
            }));
        }
        assert_eq!(jobs.len(), devices.len(), "each chunk that is there is read from its device");
        run_on_devices(&devices, length * jobs.len(), jobs);
        for (chunk, _, unit) in reads {
            self.units[chunk] = Some(unit);
        }
        Ok(())
    }

    pub(crate) fn unit(&self, chunk: usize) -> Option<&[u8]> {
        match &self.units[chunk] {
            Some(Ok(unit)) => Some(unit),
            _ => None,
        }
    }

    /// What was read, by chunk.
    pub(crate) fn into_units(self) -> Vec<Option<Buffer>> {
        self.units.into_iter().map(|unit| unit.and_then(Result::ok)).collect()
    }

    /// Chunks whose device gave an error (not those that are just away).
    pub(crate) fn failed(&self) -> Vec<BadChunk> {
        let failed = |(chunk, unit): (usize, &Option<Result<Buffer, Option<BadCause>>>)| match unit {
            Some(Err(Some(cause))) => Some(self.bad(chunk, cause.clone())),
            _ => None,
        };
        self.units.iter().enumerate().filter_map(failed).collect()
    }

    pub(crate) fn bad(&self, chunk: usize, cause: BadCause) -> BadChunk {
        let place = self.segment.chunks[chunk];
        BadChunk { chunk, place, chunk_offset: self.range.start, length: self.length(), cause }
    }

    /// Rebuilds these chunks from the first k readable ones that are not excluded.
    pub(crate) fn rebuild(&mut self, wanted: &[usize], exclude: u32) -> Result<Vec<Buffer>, StripeError> {
        let scheme = self.segment.scheme;
        let needed = usize::from(scheme.data);
        let candidates = (0..scheme.width()).filter(|chunk| exclude >> chunk & 1 == 0 && !wanted.contains(chunk));
        let candidates: Vec<usize> = candidates.collect();
        self.load_all(&candidates[..needed.min(candidates.len())])?;
        let mut sources = Vec::with_capacity(needed);
        for chunk in candidates {
            if sources.len() < needed && self.load(chunk)? {
                sources.push(chunk);
            }
        }
        if sources.len() < needed {
            let (segment, readable) = (self.number, sources.len());
            return Err(StripeError::TooFewChunks { segment, readable, needed, failed: self.failed() });
        }
        assert!(sources.iter().all(|chunk| exclude >> chunk & 1 == 0), "what is suspected is no source");
        let known: Vec<(usize, &[u8])> =
            sources.into_iter().filter_map(|chunk| self.unit(chunk).map(|unit| (chunk, unit))).collect();
        assert_eq!(known.len(), needed, "what was read of the sources is kept");
        let mut rebuilt: Vec<Buffer> = wanted.iter().map(|_| self.stripe.buffers.take(self.length())).collect();
        let mut targets: Vec<(usize, &mut [u8])> =
            wanted.iter().copied().zip(rebuilt.iter_mut().map(Buffer::as_mut_slice)).collect();
        self.stripe.coder.rebuild(scheme, &known, &mut targets)?;
        Ok(rebuilt)
    }

    /// All data chunks, read or rebuilt without those in `exclude`; of copies, any one.
    pub(crate) fn into_data(mut self, exclude: u32) -> Result<Vec<Buffer>, StripeError> {
        let data = usize::from(self.segment.scheme.data);
        if data == 1 {
            return self.into_copy(exclude).map(|copy| vec![copy]);
        }
        let wanted: Vec<usize> = (0..data).filter(|chunk| exclude >> chunk & 1 == 0).collect();
        self.load_all(&wanted)?;
        let lost: Vec<usize> =
            (0..data).filter(|&chunk| exclude >> chunk & 1 == 1 || self.unit(chunk).is_none()).collect();
        let without = lost.iter().fold(exclude, |set, chunk| set | 1 << chunk);
        let rebuilt = if lost.is_empty() { Vec::new() } else { self.rebuild(&lost, without)? };
        let mut rebuilt = rebuilt.into_iter();
        let take = |chunk: usize| match (lost.contains(&chunk), self.units[chunk].take()) {
            (false, Some(Ok(unit))) => unit,
            _ => rebuilt.next().expect("what was not read was rebuilt"),
        };
        let units: Vec<Buffer> = (0..data).map(take).collect();
        assert!(rebuilt.next().is_none(), "each chunk that was rebuilt is one that was lost");
        Ok(units)
    }

    fn into_copy(mut self, exclude: u32) -> Result<Buffer, StripeError> {
        let mut copies: Vec<(u64, usize)> = Vec::new();
        for chunk in (0..self.segment.scheme.width()).filter(|chunk| exclude >> chunk & 1 == 0) {
            if let Some((device, _)) = self.stripe.chunk(self.segment, chunk)? {
                copies.push((device.load(), chunk));
            }
        }
        // Equally good copies take turns by segment, so that all devices take part.
        let turn = self.number as usize % copies.len().max(1);
        copies.rotate_left(turn);
        copies.sort_by_key(|(load, _)| *load);
        for (_, chunk) in copies {
            if self.load(chunk)? {
                if let Some(Ok(unit)) = self.units[chunk].take() {
                    return Ok(unit);
                }
            }
        }
        Err(StripeError::TooFewChunks { segment: self.number, readable: 0, needed: 1, failed: self.failed() })
    }

    /// Reads the chunks that the pieces lie on; the bit set of those that cannot be read.
    pub(crate) fn load_touched(&mut self, pieces: &[RowPiece]) -> Result<u32, StripeError> {
        let touched: Vec<usize> = (0..self.units.len()).filter(|&chunk| touches(pieces, chunk)).collect();
        self.load_all(&touched)?;
        Ok(touched.into_iter().filter(|&chunk| self.unit(chunk).is_none()).fold(0, |lost, chunk| lost | 1 << chunk))
    }

    /// Rebuilds those chunks of `lost` that the pieces lie on. The others that they lie on have been read.
    pub(crate) fn rebuild_touched(&mut self, pieces: &[RowPiece], lost: u32) -> Result<Rebuilt, StripeError> {
        let chunks: Vec<usize> =
            (0..self.units.len()).filter(|&chunk| lost >> chunk & 1 == 1 && touches(pieces, chunk)).collect();
        // With nothing to rebuild the other chunks are not needed at all.
        let units = if chunks.is_empty() { Vec::new() } else { self.rebuild(&chunks, lost)? };
        Ok(Rebuilt(chunks.into_iter().zip(units).collect()))
    }

    /// Puts the pieces together from what was rebuilt and what was read.
    pub(crate) fn assemble(&self, pieces: &[RowPiece], rebuilt: &Rebuilt, out: &mut [u8]) {
        for piece in pieces {
            let unit = match rebuilt.0.iter().find(|(chunk, _)| *chunk == piece.chunk) {
                Some((_, unit)) => &unit[..],
                None => self.unit(piece.chunk).expect("chunks that were not rebuilt have been read"),
            };
            let end = piece.chunk_offset + piece.length as u64;
            assert!(piece.chunk_offset >= self.range.start && end <= self.range.end, "the window holds all pieces");
            let start = (piece.chunk_offset - self.range.start) as usize;
            out[piece.at..piece.at + piece.length].copy_from_slice(&unit[start..start + piece.length]);
        }
    }
}

/// Units that were computed, by chunk.
#[derive(Debug, Default)]
pub(crate) struct Rebuilt(Vec<(usize, Buffer)>);

pub(crate) fn touches(pieces: &[RowPiece], chunk: usize) -> bool {
    pieces.iter().any(|piece| piece.chunk == chunk)
}
