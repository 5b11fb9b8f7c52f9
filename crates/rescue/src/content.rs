//! Contents of files: extents over blobs, every block checked, what cannot be read left as a hole.
//!
//! Invariants: only bytes that match the blob map's checksums are written; they are read in large pieces, and block by block
//! only where a large piece fails. Blobs that cannot be read here are remembered and looked for in the segments afterwards.
//! Read next: `lost.rs`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use stere_crypt::Place;
use stere_format::{
    Address, BLOCK_BYTES, BlobEncoding, BlobValue, ExtentFlags, ExtentValue, FileKind, Key, SegmentChunks, SegmentValue,
};

use crate::error::Error;
use crate::keys::{Keys, Trust};
use crate::media::Run;
use crate::report::LostRange;
use crate::sink::Verdict;
use crate::walk::{Inode, Walk, end_of};

/// So much is read at once.
const READ_BYTES: usize = 4 << 20;
/// Segments whose places are kept in memory.
const PLACES_MAX: usize = 1 << 16;

const BLOCK: u32 = BLOCK_BYTES as u32;

/// A file that lacks something, with what is still to be looked for.
pub(crate) struct Hole {
    pub path: Vec<u8>,
    pub inode: u64,
    pub size: u64,
    /// How far the file can be trusted apart from its holes.
    pub verdict: Verdict,
    pub pieces: Vec<Piece>,
}

/// Bytes of a file that lie in a blob.
#[derive(Clone)]
pub(crate) struct Piece {
    pub file_offset: u64,
    pub blob: u64,
    pub blob_offset: u32,
    pub length: u32,
    /// What the blob map says of the blob.
    pub value: Option<Arc<BlobValue>>,
}

impl Piece {
    /// What the whole blob is for, as its record was sealed.
    pub fn place(&self, inode: u64, logical_bytes: u32, encoding: BlobEncoding) -> Place {
        let offset = self.file_offset.wrapping_sub(u64::from(self.blob_offset));
        Place { inode, offset, logical_bytes, encoding: encoding.0 }
    }
}

/// Stored blocks that are to be read.
struct Wanted {
    piece: Piece,
    place: Arc<SegmentChunks>,
    address: Address,
    range: Range<u32>,
    /// Bytes of the first block before those that are wanted.
    skip: usize,
    value: Arc<BlobValue>,
}

/// Places of data segments, as the segment table tells them.
#[derive(Default)]
pub(crate) struct Places(HashMap<u64, Option<Arc<SegmentChunks>>>);

impl Places {
    pub fn get(&mut self, keys: &mut Keys, segment: u64) -> Option<Arc<SegmentChunks>> {
        if let Some(place) = self.0.get(&segment) {
            return place.clone();
        }
        if self.0.len() >= PLACES_MAX {
            self.0.clear();
        }
        let value = keys.get(&Key::segment(segment)).0;
        let place = value.and_then(|bytes| SegmentValue::decode(&bytes).ok()).map(|value| Arc::new(value.place));
        let place = place.or_else(|| keys.media.other_ways(segment, None).into_iter().next().map(Arc::new));
        self.0.insert(segment, place.clone());
        place
    }
}

/// A file being copied.
#[derive(Default)]
struct Copying {
    wanted: Vec<Wanted>,
    wanted_bytes: usize,
    lost: Vec<Piece>,
    undecoded: u64,
    end: u64,
}

impl Walk<'_> {
    /// Copies the content of the open file and closes it. `extents` are the first ones.
    pub fn file(
        &mut self,
        inode: u64,
        facts: &Inode,
        extents: Vec<(Key, Arc<[u8]>)>,
        mut next: Option<Key>,
    ) -> Result<(), Error> {
        let size = facts.value.as_ref().map(|value| value.size);
        let mut trust = facts.trust;
        let mut copying = Copying::default();
        let mut extents = extents;
        loop {
            for (at, bytes) in &extents {
                self.extent(at, bytes, size, &mut copying)?;
            }
            let Some(from) = next else { break };
            let batch = self.keys.scan(from, end_of(inode));
            trust = trust.max(batch.trust.unwrap_or(Trust::Certain));
            next = batch.next;
            extents = batch.entries.into_iter().map(|(at, bytes, _)| (at, bytes)).collect();
        }
        self.read(&mut copying)?;
        let attributes = facts.attributes();
        let outcome = self.sink.finish(size, attributes.as_ref());
        self.check(outcome)?;
        self.report.counts.files += 1;
        if trust > Trust::Certain {
            self.lost_extents.insert(inode);
        }
        self.judge_file(inode, facts, size.unwrap_or(copying.end), trust, copying);
        Ok(())
    }

    fn judge_file(&mut self, inode: u64, facts: &Inode, size: u64, trust: Trust, copying: Copying) {
        let mut verdict = self.verdict(trust);
        let mut lost = Vec::new();
        if facts.value.is_none() || facts.is_bad {
            lost.push("attributes are lost");
        }
        if trust == Trust::Lost || copying.undecoded > 0 {
            lost.push("parts of the list of its contents are lost");
        }
        if !lost.is_empty() {
            verdict = Verdict::Damaged;
            self.damage(inode, lost.join("; "), Vec::new());
        }
        if copying.lost.is_empty() {
            return self.tell(inode, FileKind::File, size, verdict);
        }
        self.holes.push(Hole { path: self.path.clone(), inode, size, verdict, pieces: copying.lost });
    }

    /// Takes one extent of the open file.
    fn extent(&mut self, at: &Key, bytes: &[u8], size: Option<u64>, copying: &mut Copying) -> Result<(), Error> {
        let inode = at.object;
        let Ok(extent) = ExtentValue::decode(bytes) else {
            copying.undecoded += 1;
            return Ok(());
        };
        let room = u64::from(extent.length).next_multiple_of(BLOCK_BYTES as u64);
        let Some(start) = at.position.checked_sub(room) else {
            copying.undecoded += 1;
            return Ok(());
        };
        if extent.flags != ExtentFlags::Plain {
            return Ok(());
        }
        self.named.insert(extent.blob);
        // What lies behind the end is about to be freed.
        let length = size.map_or(u64::from(extent.length), |size| size.saturating_sub(start).min(extent.length.into()));
        let length = length as u32;
        copying.end = copying.end.max(start + u64::from(length));
        let value = self.keys.get(&Key::blob(extent.blob)).0.and_then(|bytes| BlobValue::decode(&bytes).ok());
        let value = value.map(Arc::new);
        let piece = Piece { file_offset: start, blob: extent.blob, blob_offset: extent.blob_offset, length, value };
        match &piece.value {
            Some(value) if length > 0 && value.encoding != BlobEncoding::PLAIN => {
                let value = value.clone();
                self.encoded_piece(inode, piece, &value, copying)?;
            }
            _ if length > 0 => self.piece(piece, copying),
            _ => {}
        }
        if copying.wanted_bytes >= READ_BYTES {
            self.read(copying)?;
        }
        Ok(())
    }

    /// Writes a piece of a blob that is stored as one piece: all of it is read and decoded.
    fn encoded_piece(
        &mut self,
        inode: u64,
        piece: Piece,
        value: &Arc<BlobValue>,
        copying: &mut Copying,
    ) -> Result<(), Error> {
        let range = piece.blob_offset as usize..(piece.blob_offset + piece.length) as usize;
        if self.names_only {
            return Ok(());
        }
        let place = piece.place(inode, value.logical_bytes, value.encoding);
        let content = match &self.decoded {
            Some((blob, of, content)) if (*blob, *of) == (piece.blob, place) => Some(content.clone()),
            _ => self.decode(value, &place),
        };
        let Some(content) = content.filter(|content| content.len() >= range.end) else {
            copying.lost.push(piece);
            return Ok(());
        };
        self.decoded = Some((piece.blob, place, content.clone()));
        self.write(&piece, &content[range])
    }

    /// The content of a blob that is stored as one piece, if all of it can be read.
    fn decode(&mut self, value: &BlobValue, for_place: &Place) -> Option<Arc<[u8]>> {
        let is_locked = value.encoding.is_encrypted() && !self.unlocked.has(value.key);
        if !value.encoding.is_known() || is_locked {
            return None;
        }
        let place = self.places.get(&mut self.keys, value.address.segment)?;
        let mut stored = vec![0; value.address.length as usize];
        let (address, range) = (value.address, 0..value.address.length);
        let mut run = Run { place: &place, address, range, checksums: &value.checksums, out: &mut stored };
        // Each block from where it is right.
        if !self.keys.media.blocks(&mut run).iter().all(|is_right| *is_right) {
            return None;
        }
        self.unlocked.content(for_place, stored).map(Arc::from)
    }

    /// Cuts a piece into runs of blocks that are stored one behind the other.
    fn piece(&mut self, piece: Piece, copying: &mut Copying) {
        let Some(value) = piece.value.clone() else {
            return copying.lost.push(piece);
        };
        let Some(place) = self.places.get(&mut self.keys, value.address.segment) else {
            return copying.lost.push(piece);
        };
        let end = piece.blob_offset + piece.length;
        let mut at = piece.blob_offset;
        while at < end {
            let block = at / BLOCK;
            let index = value.stored_index_of_block(block).filter(|_| at < value.logical_bytes);
            let mut blocks = 1;
            while index.is_some()
                && (block + blocks) * BLOCK < end.min(value.logical_bytes)
                && value.stored_index_of_block(block + blocks) == index.map(|index| index + blocks)
            {
                blocks += 1;
            }
            let run_end = end.min((block + blocks) * BLOCK);
            let run_end = if index.is_some() { run_end.min(value.logical_bytes) } else { run_end };
            assert!(run_end > at, "a run from {at} to {run_end} of a piece that ends at {end}");
            let part = Piece {
                file_offset: piece.file_offset + u64::from(at - piece.blob_offset),
                blob: piece.blob,
                blob_offset: at,
                length: run_end - at,
                value: Some(value.clone()),
            };
            match index {
                None => copying.lost.push(part),
                Some(index) => {
                    let range = index * BLOCK..((index + blocks) * BLOCK).min(value.address.length);
                    copying.wanted_bytes += range.len();
                    let (address, skip) = (value.address, (at % BLOCK) as usize);
                    copying.wanted.push(Wanted {
                        piece: part,
                        place: place.clone(),
                        address,
                        range,
                        skip,
                        value: value.clone(),
                    });
                }
            }
            at = run_end;
        }
    }

    /// Reads and writes what is wanted so far.
    fn read(&mut self, copying: &mut Copying) -> Result<(), Error> {
        let wanted = std::mem::take(&mut copying.wanted);
        copying.wanted_bytes = 0;
        if self.names_only || wanted.is_empty() {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(wanted.iter().map(|wanted| wanted.range.len()).sum(), 0);
        let mut rest = &mut buffer[..];
        let mut runs = Vec::with_capacity(wanted.len());
        for wanted in &wanted {
            let (out, tail) = std::mem::take(&mut rest).split_at_mut(wanted.range.len());
            rest = tail;
            runs.push(Run {
                place: &wanted.place,
                address: wanted.address,
                range: wanted.range.clone(),
                checksums: &wanted.value.checksums,
                out,
            });
        }
        let right = self.keys.media.runs(&mut runs);
        for ((wanted, run), is_right) in wanted.iter().zip(&mut runs).zip(right) {
            if is_right {
                self.write(&wanted.piece, &run.out[wanted.skip..wanted.skip + wanted.piece.length as usize])?;
            } else {
                let blocks = self.keys.media.blocks(run);
                self.write_blocks(wanted, run.out, &blocks, &mut copying.lost)?;
            }
        }
        drop(runs);
        self.buffer = buffer;
        Ok(())
    }

    fn write(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), Error> {
        let outcome = self.sink.write(piece.file_offset, bytes);
        if outcome.is_ok() {
            self.report.counts.bytes += bytes.len() as u64;
        }
        self.check(outcome)
    }

    /// Writes the blocks that are right and keeps the others for later.
    fn write_blocks(
        &mut self,
        wanted: &Wanted,
        out: &[u8],
        blocks: &[bool],
        lost: &mut Vec<Piece>,
    ) -> Result<(), Error> {
        let piece = &wanted.piece;
        let mut at = 0;
        while at < piece.length {
            let block = (wanted.skip as u32 + at) / BLOCK;
            let end = ((block + 1) * BLOCK - wanted.skip as u32).min(piece.length);
            let part = Piece {
                file_offset: piece.file_offset + u64::from(at),
                blob_offset: piece.blob_offset + at,
                length: end - at,
                ..piece.clone()
            };
            if blocks.get(block as usize) == Some(&true) {
                let start = wanted.skip + at as usize;
                self.write(&part, &out[start..start + (end - at) as usize])?;
            } else {
                lost.push(part);
            }
            at = end;
        }
        Ok(())
    }

    /// Notes what of a file could not be found at all.
    pub fn lost_pieces(&mut self, path: &[u8], inode: u64, pieces: &[Piece]) {
        let mut ranges: Vec<LostRange> = Vec::new();
        let mut sorted: Vec<(u64, u64)> =
            pieces.iter().map(|piece| (piece.file_offset, u64::from(piece.length))).collect();
        sorted.sort_unstable();
        for (offset, length) in sorted {
            self.report.counts.bytes_lost += length;
            match ranges.last_mut() {
                Some(last) if last.offset + last.length == offset => last.length += length,
                _ => ranges.push(LostRange { offset, length }),
            }
        }
        let values = || pieces.iter().filter_map(|piece| piece.value.as_deref());
        let is_any = |is: fn(&BlobValue) -> bool| values().any(is);
        let is_locked = |value: &BlobValue| value.encoding.is_encrypted() && !self.unlocked.has(value.key);
        let what = match is_any(|value| !value.encoding.is_known()) {
            _ if values().any(is_locked) => {
                "contents are encrypted, and their key was not given; give the passphrase or key file that opens it"
            }
            false if is_any(|value| value.encoding.is_plugged()) => {
                "contents passed users' plugins, which rescue does not run; mount the pool if it still can be"
            }
            false if is_any(|value| value.encoding.is_encrypted()) => {
                "contents cannot be read from any device, or do not authenticate under their key; the ranges are holes"
            }
            true => "contents are stored in a way that this version does not know; a newer stere may read them",
            false => "contents cannot be read from any device; the ranges are holes",
        };
        let before = std::mem::replace(&mut self.path, path.to_vec());
        self.damage(inode, what.into(), ranges);
        self.path = before;
    }
}
