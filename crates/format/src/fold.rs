//! Names and inodes that were put away: where they lie (`FoldValue`, a key of the pool), and how they lie there (`Bundle`, a blob); and
//! when the names of a directory were used that may go by themselves (`NamesUse`).
//!
//! Invariants: a bundle's keys rise, all of them are in `NAMES`, and each lies in one of the ranges of its fold; no key of the pool
//! lies in such a range as long as the fold is there. `docs/format/fold.md` has it byte by byte.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};
use crate::{Key, VALUE_BYTES_MAX, key};

/// A range of keys in `NAMES`: from the first up to the second, which is not counted.
pub type KeyRange = (Key, Key);

/// The value of [`crate::Key::fold`]: where the keys of some ranges are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldValue {
    /// The directory that somebody said it of.
    pub directory: u64,
    /// The blob that holds the keys.
    pub blob: u64,
    /// How many they are.
    pub keys: u32,
    /// Ranges that hold no other keys, rising and apart.
    pub ranges: Vec<KeyRange>,
}

impl FoldValue {
    pub const VERSION: u8 = 1;
    pub const RANGES_MAX: usize = 128;
    pub const FIXED_BYTES: usize = 26;
    pub const RANGE_BYTES: usize = 34;
    const STRUCTURE: &'static str = "fold";

    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=Self::RANGES_MAX).contains(&self.ranges.len()), "a fold is of some keys, and not of too many");
        let mut out = Vec::with_capacity(Self::FIXED_BYTES + self.ranges.len() * Self::RANGE_BYTES);
        out.extend_from_slice(&[Self::VERSION, 0, 0, 0]);
        out.put_u64(self.directory);
        out.put_u64(self.blob);
        out.put_u32(self.keys);
        out.put_u16(self.ranges.len() as u16);
        for (from, to) in &self.ranges {
            put_key(&mut out, from);
            put_key(&mut out, to);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(3)?;
        let (directory, blob, keys, count) = (reader.u64()?, reader.u64()?, reader.u32()?, reader.u16()?);
        reader.check((1..=Self::RANGES_MAX).contains(&usize::from(count)), "count of ranges", u64::from(count))?;
        let mut ranges: Vec<KeyRange> = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (from, to) = (key_of(&mut reader)?, key_of(&mut reader)?);
            let is_rising = from < to && ranges.last().is_none_or(|(_, end)| *end <= from);
            reader.check(is_rising, "order of ranges", from.object)?;
            ranges.push((from, to));
        }
        reader.finish()?;
        Ok(Self { directory, blob, keys, ranges })
    }

    /// Whether a key lies in one of the ranges.
    pub fn covers(&self, key: &Key) -> bool {
        let behind = self.ranges.partition_point(|(from, _)| from <= key);
        behind > 0 && *key < self.ranges[behind - 1].1
    }
}

/// The value of [`crate::Key::names_use`]: what is known of a directory whose names may be put away by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NamesUse {
    /// The directories in it are not on the list yet.
    pub is_new: bool,
    /// When it was used last, in seconds; 0 where that is not known: it counts as used when it is looked at.
    pub used_seconds: u64,
    /// Before then it need not be looked at.
    pub look_seconds: u64,
}

impl NamesUse {
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 20;
    const STRUCTURE: &'static str = "use of names";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![Self::VERSION, u8::from(self.is_new), 0, 0];
        out.put_u64(self.used_seconds);
        out.put_u64(self.look_seconds);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let flags = reader.u8()?;
        reader.check(flags <= 1, "flags", u64::from(flags))?;
        reader.zeros(2)?;
        let (used_seconds, look_seconds) = (reader.u64()?, reader.u64()?);
        reader.finish()?;
        Ok(Self { is_new: flags == 1, used_seconds, look_seconds })
    }
}

/// Keys of `NAMES` with their values, as a blob holds them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Bundle {
    /// Rising.
    pub entries: Vec<(Key, Vec<u8>)>,
}

impl Bundle {
    pub const VERSION: u8 = 1;
    pub const FIXED_BYTES: usize = 8;
    pub const ENTRY_BYTES: usize = 21;
    const STRUCTURE: &'static str = "bundle";

    /// Bytes that a key with a value of this length takes.
    pub const fn entry_bytes(value_bytes: usize) -> usize {
        Self::ENTRY_BYTES + value_bytes
    }

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.entries.windows(2).all(|pair| pair[0].0 < pair[1].0), "each key is there once, in order");
        let mut out = vec![Self::VERSION, 0, 0, 0];
        out.put_u32(self.entries.len() as u32);
        for (key, value) in &self.entries {
            assert!(value.len() <= VALUE_BYTES_MAX, "a value that a tree takes");
            put_key(&mut out, key);
            out.put_u32(value.len() as u32);
            out.extend_from_slice(value);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(3)?;
        let count = reader.u32()?;
        let fits = u64::from(count) * Self::ENTRY_BYTES as u64 <= bytes.len() as u64;
        reader.check(count > 0 && fits, "count of keys", u64::from(count))?;
        let mut entries: Vec<(Key, Vec<u8>)> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let key = key_of(&mut reader)?;
            reader.check(entries.last().is_none_or(|(last, _)| *last < key), "order of keys", key.object)?;
            let length = reader.u32()?;
            reader.check(length as usize <= VALUE_BYTES_MAX, "length of a value", u64::from(length))?;
            entries.push((key, reader.take(length as usize)?.to_vec()));
        }
        reader.finish()?;
        Ok(Self { entries })
    }
}

/// The tree is not written: it is always `NAMES`.
fn put_key(out: &mut Vec<u8>, key: &Key) {
    assert_eq!(key.tree, key::tree::NAMES, "only names and inodes are put away");
    out.put_u64(key.object);
    out.put_u8(key.kind);
    out.put_u64(key.position);
}

fn key_of(reader: &mut Reader<'_>) -> Result<Key, DecodeError> {
    Ok(Key::new(key::tree::NAMES, reader.u64()?, reader.u8()?, reader.u64()?))
}

#[cfg(test)]
mod tests;
