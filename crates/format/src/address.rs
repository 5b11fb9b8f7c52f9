//! Where a record lies: segment, row and place in the row. An address never says on which devices; the segment table
//! does. The row's start travels in the address, so no row table is needed; data is interleaved over the data chunks in
//! fixed stripe units, so the row's height is not needed either, and an address is final before the row is full.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};
use crate::{BLOCK_BYTES, CHUNK_BLOCKS_MAX, RECORD_BYTES_MAX, SECTOR_BYTES, WIDTH_MAX};

/// A record's place. Once decoded: the row lies behind the chunk header within the largest chunk, the record behind
/// the row header and within the row of the widest scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    pub segment: u64,
    /// First block of the row, the same in every chunk of the segment.
    pub row_block: u32,
    /// Bytes from the start of the row, a multiple of 512.
    pub offset: u32,
    /// Stored bytes.
    pub length: u32,
}

impl Address {
    pub const SIZE: usize = 20;

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encode());
    }

    #[inline]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(self.row_is_possible() && self.record_is_possible(), "an address names a record of a row");
        let mut bytes = [0; Self::SIZE];
        bytes[0..8].copy_from_slice(&self.segment.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.row_block.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("address", bytes);
        let address = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(address)
    }

    #[inline]
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let segment = reader.u64()?;
        Self::read_in_segment(reader, segment)
    }

    /// The part of an address behind the segment, for structures that tell the segment otherwise.
    pub(crate) fn read_in_segment(reader: &mut Reader<'_>, segment: u64) -> Result<Self, DecodeError> {
        let address = Self { segment, row_block: reader.u32()?, offset: reader.u32()?, length: reader.u32()? };
        reader.check(address.row_is_possible(), "row of an address", u64::from(address.row_block))?;
        reader.check(address.record_is_possible(), "offset or length of an address", u64::from(address.offset))?;
        Ok(address)
    }

    fn row_is_possible(&self) -> bool {
        self.row_block >= 1 && self.row_block < CHUNK_BLOCKS_MAX
    }

    fn record_is_possible(&self) -> bool {
        let height_max = u64::from(CHUNK_BLOCKS_MAX.saturating_sub(self.row_block));
        let row_bytes = height_max * (BLOCK_BYTES * WIDTH_MAX) as u64;
        let end = u64::from(self.offset) + u64::from(self.length);
        let sector = SECTOR_BYTES as u32;
        let offset_possible = self.offset >= sector && self.offset % sector == 0;
        offset_possible && self.length >= 1 && self.length <= RECORD_BYTES_MAX && end <= row_bytes
    }

    /// Room the record takes in its row.
    pub fn room(&self) -> u32 {
        crate::sector_aligned(self.length)
    }
}

/// How a parent tells of a tree node: place, checksum of the whole record, level (0 is a leaf).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeReference {
    pub address: Address,
    pub crc32c: u32,
    pub level: u8,
}

impl NodeReference {
    pub const SIZE: usize = 28;
    /// A tree of more levels than this cannot be; bounds every descent.
    pub const LEVEL_MAX: u8 = 31;

    #[inline]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(self.level <= Self::LEVEL_MAX, "a tree has few levels");
        let mut bytes = [0; Self::SIZE];
        bytes[..Address::SIZE].copy_from_slice(&self.address.encode());
        bytes[20..24].copy_from_slice(&self.crc32c.to_le_bytes());
        bytes[24] = self.level;
        bytes
    }

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encode());
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("node reference", bytes);
        let reference = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(reference)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let address = Address::read(reader)?;
        let crc32c = reader.u32()?;
        let level = reader.u8()?;
        reader.check(level <= Self::LEVEL_MAX, "level", u64::from(level))?;
        reader.zeros(3)?;
        Ok(Self { address, crc32c, level })
    }

    pub(crate) fn write_option(reference: Option<&Self>, out: &mut Vec<u8>) {
        out.put_u8(u8::from(reference.is_some()));
        match reference {
            Some(reference) => reference.encode_to(out),
            None => out.put_zeros(Self::SIZE),
        }
    }

    pub(crate) fn read_option(reader: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        match reader.u8()? {
            0 => reader.zeros(Self::SIZE).map(|()| None),
            1 => Self::read(reader).map(Some),
            other => Err(reader.out_of_range("presence of a node reference", u64::from(other))),
        }
    }
}
