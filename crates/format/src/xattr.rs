//! Extended attributes: all those of an inode whose names have the same hash (nearly always one) share a value.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// The value of [`crate::Key::xattr`]: names and values, in no special order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct XattrBucket {
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl XattrBucket {
    pub const VERSION: u8 = 1;
    pub const NAME_BYTES_MAX: usize = 255;
    pub const VALUE_BYTES_MAX: usize = 65536;
    const STRUCTURE: &'static str = "attribute bucket";

    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=255).contains(&self.entries.len()), "a bucket has 1 to 255 attributes");
        let mut out = Vec::new();
        out.extend_from_slice(&[Self::VERSION, self.entries.len() as u8]);
        for (name, value) in &self.entries {
            assert!((1..=Self::NAME_BYTES_MAX).contains(&name.len()) && value.len() <= Self::VALUE_BYTES_MAX);
            out.put_u8(name.len() as u8);
            out.put_u32(value.len() as u32);
            out.extend_from_slice(name);
            out.extend_from_slice(value);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        Self::for_each(bytes, |name, value| entries.push((name.to_vec(), value.to_vec())))?;
        Ok(Self { entries })
    }

    /// Visits names and values without copying; a bucket that is wrong anywhere is an error, whatever was visited.
    pub fn for_each<'a>(bytes: &'a [u8], mut visit: impl FnMut(&'a [u8], &'a [u8])) -> Result<(), DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let count = reader.u8()?;
        reader.check(count >= 1, "count of attributes", u64::from(count))?;
        for _ in 0..count {
            let name_length = usize::from(reader.u8()?);
            let value_length = reader.u32()? as usize;
            reader.check(name_length >= 1, "name length", name_length as u64)?;
            reader.check(value_length <= Self::VALUE_BYTES_MAX, "value length", value_length as u64)?;
            visit(reader.take(name_length)?, reader.take(value_length)?);
        }
        reader.finish()
    }

    /// The value of one attribute in an encoded bucket.
    pub fn find<'a>(bytes: &'a [u8], name: &[u8]) -> Result<Option<&'a [u8]>, DecodeError> {
        let mut found = None;
        Self::for_each(bytes, |other, value| {
            if other == name {
                found = Some(value);
            }
        })?;
        Ok(found)
    }

    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.entries.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_slice())
    }

    /// Sets an attribute; tells whether it was there before.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> bool {
        if let Some(entry) = self.entries.iter_mut().find(|(other, _)| other == name) {
            entry.1 = value.to_vec();
            return true;
        }
        self.entries.push((name.to_vec(), value.to_vec()));
        false
    }

    /// Removes an attribute; tells whether it was there. An empty bucket's key is to be deleted.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(other, _)| other != name);
        self.entries.len() < before
    }
}
