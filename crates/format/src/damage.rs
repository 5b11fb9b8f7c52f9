//! Content that could be read from no copy: kept under a key of the system tree for each blob, so that it is known after a remount.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// The value of [`crate::Key::damage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamageValue {
    /// Where the blob lay when that was found.
    pub segment: u64,
    /// Bytes of the blob's content: all damage lies between the two.
    pub start: u32,
    pub end: u32,
}

impl DamageValue {
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 20;
    const STRUCTURE: &'static str = "damage";

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.start < self.end, "damage is of some bytes");
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&[Self::VERSION, 0, 0, 0]);
        out.put_u32(self.start);
        out.put_u32(self.end);
        out.put_u64(self.segment);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(3)?;
        let (start, end) = (reader.u32()?, reader.u32()?);
        if start >= end {
            return Err(reader.out_of_range("end", u64::from(end)));
        }
        let value = Self { start, end, segment: reader.u64()? };
        reader.finish()?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_comes_back_as_it_was() {
        let value = DamageValue { segment: 77, start: 4096, end: 8192 };
        let bytes = value.encode();
        assert_eq!(bytes.len(), DamageValue::SIZE);
        assert_eq!(DamageValue::decode(&bytes).unwrap(), value);
        assert!(DamageValue::decode(&bytes[1..]).is_err());
        let mut empty = bytes;
        empty[4..8].copy_from_slice(&8192_u32.to_le_bytes());
        assert!(DamageValue::decode(&empty).is_err());
    }
}
