//! What an owner tells a machine that reads content past it: of which blobs a range of a file consists, and where those lie.
//!
//! A wire structure and none of media, here because it is made of those. Invariants: pieces are in the order of the range, overlap
//! nowhere and lie within it, the rest of it is holes; each lies within its blob's content; each segment is named once and used.
//! Byte table: `docs/format/machine-frames.md`. Read next: `blob.rs`, `segment.rs`.

use crate::blob::BlobValue;
use crate::error::DecodeError;
use crate::scheme::Scheme;
use crate::segment::SegmentChunks;
use crate::wire::{Reader, Writer};

/// The longest range that is told of at once.
pub const MAPPED_BYTES_MAX: u32 = 1 << 20;
/// Pieces of one map at most: one for each block.
pub const MAPPED_PIECES_MAX: usize = MAPPED_BYTES_MAX as usize / crate::BLOCK_BYTES;

/// A part of a blob, and where in the range it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedPiece {
    /// Bytes into the range.
    pub at: u32,
    /// Bytes into the blob's content.
    pub offset: u32,
    pub length: u32,
    /// Where in the list of segments its own is.
    pub segment: u16,
    pub value: BlobValue,
}

/// Where the bytes of a range of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentMap {
    /// Bytes of the range; less than was asked for at the end of the file only.
    pub length: u32,
    /// Of the segments that pieces lie in.
    pub segments: Vec<SegmentChunks>,
    pub pieces: Vec<MappedPiece>,
}

impl ContentMap {
    pub const VERSION: u8 = 1;
    const STRUCTURE: &'static str = "content map";

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(3)?;
        let length = reader.u32()?;
        reader.check(length <= MAPPED_BYTES_MAX, "length", u64::from(length))?;
        let (segment_count, piece_count) = (usize::from(reader.u16()?), usize::from(reader.u16()?));
        reader.check(piece_count <= MAPPED_PIECES_MAX, "count of pieces", piece_count as u64)?;
        reader.check(segment_count <= piece_count, "count of segments", segment_count as u64)?;
        let segments = (0..segment_count).map(|_| Self::segment(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        let mut used: Vec<Option<u64>> = vec![None; segment_count];
        let (mut pieces, mut end) = (Vec::with_capacity(piece_count), 0);
        for _ in 0..piece_count {
            let piece = Self::piece(&mut reader, end, length)?;
            let number = piece.value.address.segment;
            let place = used.get_mut(usize::from(piece.segment));
            let place = place.ok_or_else(|| reader.out_of_range("segment of a piece", u64::from(piece.segment)))?;
            reader.check(place.is_none_or(|known| known == number), "segment of a piece", number)?;
            *place = Some(number);
            end = piece.at + piece.length;
            pieces.push(piece);
        }
        reader.check(used.iter().all(Option::is_some), "segment without a piece", segment_count as u64)?;
        reader.finish()?;
        Ok(ContentMap { length, segments, pieces })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + 64 * self.segments.len() + 256 * self.pieces.len());
        assert!(self.length <= MAPPED_BYTES_MAX, "a map of {} bytes", self.length);
        assert!(
            self.pieces.len() <= MAPPED_PIECES_MAX && self.segments.len() <= self.pieces.len(),
            "each has its piece"
        );
        out.extend_from_slice(&[Self::VERSION, 0, 0, 0]);
        out.put_u32(self.length);
        out.put_u16(self.segments.len() as u16);
        out.put_u16(self.pieces.len() as u16);
        for place in &self.segments {
            out.extend_from_slice(&[place.scheme.data, place.scheme.parity, 0, 0]);
            out.put_u32(place.missing);
            place.write_places(&mut out);
        }
        for piece in &self.pieces {
            out.put_u32(piece.at);
            out.put_u32(piece.offset);
            out.put_u32(piece.length);
            out.put_u16(piece.segment);
            let value = piece.value.encode();
            out.put_u16(u16::try_from(value.len()).expect("an entry of the blob map is far below 64 KiB"));
            out.extend_from_slice(&value);
        }
        out
    }

    fn segment(reader: &mut Reader<'_>) -> Result<SegmentChunks, DecodeError> {
        let [data, parity] = reader.array()?;
        reader.zeros(2)?;
        let scheme = Scheme::from_parts(Self::STRUCTURE, data, parity)?;
        let missing = reader.u32()?;
        SegmentChunks::read_places(reader, scheme, missing)
    }

    /// A piece that begins at `from` or later, in a range of `length` bytes.
    fn piece(reader: &mut Reader<'_>, from: u32, length: u32) -> Result<MappedPiece, DecodeError> {
        let (at, offset, piece_length) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let segment = reader.u16()?;
        let value_bytes = usize::from(reader.u16()?);
        let value = BlobValue::decode(reader.take(value_bytes)?)?;
        let is_within = piece_length > 0 && at >= from && at.checked_add(piece_length).is_some_and(|end| end <= length);
        reader.check(is_within, "place of a piece", u64::from(at))?;
        let is_of_blob = offset.checked_add(piece_length).is_some_and(|end| end <= value.logical_bytes);
        reader.check(is_of_blob, "part of a blob", u64::from(offset))?;
        Ok(MappedPiece { at, offset, length: piece_length, segment, value })
    }
}

#[cfg(test)]
mod tests;
