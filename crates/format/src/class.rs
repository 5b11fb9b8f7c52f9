//! A class of files as the pool knows it: how it is called and what it sets. Meaning is the policy layer's.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};
use crate::{RuledMore, Site};

/// The value of [`crate::Key::class`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ClassValue {
    /// How people call it; of a deleted class, how they called it.
    pub name: String,
    /// When it was changed last, in seconds.
    pub changed_seconds: i64,
    /// Deleted: the code of the class that its files belong to. Its own code is not used again.
    pub into: Option<u8>,
    /// What it sets; zero where it sets nothing.
    pub copies: u8,
    pub parity_k: u8,
    pub parity_m: u8,
    pub compression: u8,
    pub redundancy: u8,
    pub encryption: u16,
    /// What is switched on or off, as in [`crate::SwitchesPolicy`].
    pub switches: u8,
    /// How large records are, as in [`crate::RecordPolicy`].
    pub record: u8,
    /// How content is known to be right, as in [`crate::ChecksumPolicy`].
    pub checksum: u8,
    /// Where content lies, as in [`crate::PlacesPolicy`].
    pub places: Site,
    /// Plugins and versions.
    pub more: RuledMore,
    /// What stays on devices.
    pub residency: ClassResidency,
    /// Where content goes, and when changes are durable.
    pub media: ClassMedia,
}

/// What a class says of media, and of when changes are durable; zero where it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassMedia {
    /// As [`crate::InodePolicy::tiers`].
    pub tiers: u16,
    /// As in [`crate::SyncPolicy`].
    pub sync: u8,
    /// 1: what is on media is given up on devices as `release_seconds` says.
    pub release: u8,
    /// After so long without use; 0: it stays.
    pub release_seconds: u64,
}

impl ClassMedia {
    /// In bytes.
    pub const SIZE: usize = 16;

    fn encode_to(&self, out: &mut Vec<u8>) {
        assert!(self.release == 1 || self.release_seconds == 0, "an age is of content that goes");
        out.put_u16(self.tiers);
        out.extend_from_slice(&[self.sync, self.release]);
        out.put_zeros(4);
        out.put_u64(self.release_seconds);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tiers = reader.u16()?;
        let [sync, release] = reader.array()?;
        reader.zeros(4)?;
        let release_seconds = reader.u64()?;
        let value = Self { tiers, sync, release, release_seconds };
        let is_known = sync <= 3 && release <= 1 && (release == 1 || release_seconds == 0);
        reader.check(is_known && value != Self::default(), "media and durability", u64::from(sync))?;
        Ok(value)
    }
}

/// What a class says of what stays on devices; zero where it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassResidency {
    /// Content: 1 need not, 2 does.
    pub pin: u8,
    /// What is below a directory: 1 is not one, 2 is.
    pub unit: u8,
    /// 1: names below a directory go as `names_seconds` says.
    pub names: u8,
    /// After so long without use; 0: they stay.
    pub names_seconds: u64,
}

impl ClassResidency {
    /// In bytes.
    pub const SIZE: usize = 16;

    fn encode_to(&self, out: &mut Vec<u8>) {
        assert!(self.names == 1 || self.names_seconds == 0, "an age is of names that go");
        out.extend_from_slice(&[self.pin, self.unit, self.names]);
        out.put_zeros(5);
        out.put_u64(self.names_seconds);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [pin, unit, names] = reader.array()?;
        reader.zeros(5)?;
        let names_seconds = reader.u64()?;
        let value = Self { pin, unit, names, names_seconds };
        let is_known = pin <= 2 && unit <= 2 && names <= 1 && (names == 1 || names_seconds == 0);
        reader.check(is_known && value != Self::default(), "what stays", u64::from(pin))?;
        Ok(value)
    }
}

/// Parts behind the name.
const HAS_MORE: u8 = 1;
const HAS_RESIDENCY: u8 = 2;
const HAS_MEDIA: u8 = 4;

impl ClassValue {
    pub const VERSION: u8 = 1;
    /// Before the name.
    pub const FIXED_BYTES: usize = 32;
    pub const NAME_BYTES_MAX: usize = 64;
    const STRUCTURE: &'static str = "class";

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.name.len() <= Self::NAME_BYTES_MAX, "a longer name is refused before it gets here");
        let mut out = Vec::with_capacity(Self::FIXED_BYTES + self.name.len());
        out.extend_from_slice(&[Self::VERSION, u8::from(self.into.is_some()), self.into.unwrap_or(0)]);
        out.put_u8(self.name.len() as u8);
        out.put_u32(0);
        out.put_u64(self.changed_seconds as u64);
        out.extend_from_slice(&[self.copies, self.parity_k, self.parity_m, 0, self.compression, self.redundancy]);
        out.put_u16(self.encryption);
        let has_more = self.more != RuledMore::default();
        let has_residency = self.residency != ClassResidency::default();
        let has_media = self.media != ClassMedia::default();
        let parts = [(has_more, HAS_MORE), (has_residency, HAS_RESIDENCY), (has_media, HAS_MEDIA)];
        let parts = parts.into_iter().filter(|(is_there, _)| *is_there).fold(0, |parts, (_, bit)| parts | bit);
        out.extend_from_slice(&[self.switches, self.record, parts, self.checksum]);
        self.places.encode_to(&mut out);
        out.put_u8(self.places.node);
        out.put_zeros(1);
        assert_eq!(out.len(), Self::FIXED_BYTES, "the name begins where the page says");
        out.extend_from_slice(self.name.as_bytes());
        if has_more {
            self.more.encode_to(&mut out);
        }
        if has_residency {
            self.residency.encode_to(&mut out);
        }
        if has_media {
            self.media.encode_to(&mut out);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [is_deleted, into, name_bytes] = reader.array()?;
        reader.check(is_deleted <= 1 && (is_deleted == 1) == (into != 0), "deleted", u64::from(is_deleted))?;
        let name_bytes = usize::from(name_bytes);
        reader.check((1..=Self::NAME_BYTES_MAX).contains(&name_bytes), "length of the name", name_bytes as u64)?;
        reader.zeros(4)?;
        let changed_seconds = reader.u64()? as i64;
        let [copies, parity_k, parity_m] = reader.array()?;
        reader.zeros(1)?;
        let [compression, redundancy] = reader.array()?;
        let encryption = reader.u16()?;
        let [switches, record, parts, checksum] = reader.array()?;
        reader.check(parts <= HAS_MORE | HAS_RESIDENCY | HAS_MEDIA, "parts", u64::from(parts))?;
        let mut places = Site::read(&mut reader)?;
        places.node = reader.u8()?;
        reader.zeros(1)?;
        let name = reader.name(name_bytes, "name")?;
        let more = if parts & HAS_MORE != 0 { RuledMore::read(&mut reader)? } else { RuledMore::default() };
        let residency =
            if parts & HAS_RESIDENCY != 0 { ClassResidency::read(&mut reader)? } else { ClassResidency::default() };
        let media = if parts & HAS_MEDIA != 0 { ClassMedia::read(&mut reader)? } else { ClassMedia::default() };
        reader.finish()?;
        let into = (is_deleted == 1).then_some(into);
        let numbers = Self {
            copies,
            parity_k,
            parity_m,
            compression,
            redundancy,
            encryption,
            switches,
            record,
            checksum,
            places,
            more,
            residency,
            media,
            ..Self::default()
        };
        Ok(Self { name, changed_seconds, into, ..numbers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_come_back_as_they_were() {
        let value = ClassValue {
            name: "photos".into(),
            changed_seconds: -7,
            into: None,
            copies: 3,
            parity_k: 4,
            parity_m: 2,
            compression: 2,
            redundancy: 11,
            encryption: 0x0102,
            switches: 0x0a,
            record: 3,
            checksum: 2,
            places: Site { on: 2, only: 3, node: 4 },
            more: RuledMore { plugins: 4, versions: None },
            residency: ClassResidency { pin: 2, unit: 1, names: 1, names_seconds: 0 },
            media: ClassMedia { tiers: 5, sync: 3, release: 1, release_seconds: 60 },
        };
        assert_eq!(ClassValue::decode(&value.encode()).unwrap(), value);
        let deleted = ClassValue { into: Some(3), ..value };
        let bytes = deleted.encode();
        assert_eq!(ClassValue::decode(&bytes).unwrap(), deleted);
        assert!(ClassValue::decode(&[&bytes[..], b"x"].concat()).is_err());
        for (at, wrong) in [(0, 2), (1, 2), (2, 0), (3, 0), (3, 65), (19, 1), (31, 1)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(ClassValue::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
