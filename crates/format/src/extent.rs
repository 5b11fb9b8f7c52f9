//! A piece of a file's content: which bytes of which blob. The key tells the file and the offset in it.

use crate::BLOB_LOGICAL_BYTES_MAX;
use crate::error::DecodeError;
use crate::wire::Reader;

/// What an extent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtentFlags {
    /// Bytes of a blob.
    Plain = 0,
    /// Room set aside and never written: reads as zeros, has no blob.
    Preallocated = 1,
}

/// The value of [`crate::Key::extent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtentValue {
    pub blob: u64,
    pub blob_offset: u32,
    pub length: u32,
    pub flags: ExtentFlags,
    /// What it counts in accounts of stored bytes, in sectors of 512; 0 where none are kept.
    pub charge: u16,
}

impl ExtentValue {
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 20;
    const STRUCTURE: &'static str = "extent";

    /// What it counts in accounts of stored bytes.
    pub fn charged_bytes(&self) -> u64 {
        u64::from(self.charge) * crate::SECTOR_BYTES as u64
    }

    #[inline]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(self.length >= 1, "an extent has bytes");
        let is_plain = self.flags == ExtentFlags::Plain;
        assert!(is_plain || (self.blob, self.blob_offset, self.charge) == (0, 0, 0), "what is reserved has no blob");
        let mut bytes = [0; Self::SIZE];
        bytes[0] = Self::VERSION;
        bytes[1] = self.flags as u8;
        bytes[2..4].copy_from_slice(&self.charge.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.blob_offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.blob.to_le_bytes());
        bytes
    }

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encode());
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let flags = match reader.u8()? {
            0 => ExtentFlags::Plain,
            1 => ExtentFlags::Preallocated,
            other => return Err(reader.out_of_range("flags", u64::from(other))),
        };
        let charge = reader.u16()?;
        let (blob_offset, length, blob) = (reader.u32()?, reader.u32()?, reader.u64()?);
        reader.check(length >= 1, "length", u64::from(length))?;
        let end = u64::from(blob_offset) + u64::from(length);
        let possible = match flags {
            ExtentFlags::Plain => end <= u64::from(BLOB_LOGICAL_BYTES_MAX),
            ExtentFlags::Preallocated => blob == 0 && blob_offset == 0 && charge == 0,
        };
        reader.check(possible, "place in the blob", end)?;
        reader.finish()?;
        Ok(Self { blob, blob_offset, length, flags, charge })
    }
}
