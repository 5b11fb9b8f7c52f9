//! Accounts: what the files of a user, a group or a volume take, and what they may. Meaning is the layers' above.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// The value of [`crate::Key::accounting`]: a pool that has it keeps accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountingValue {
    /// The number of the next volume.
    pub next_volume: u32,
    /// Inodes with smaller numbers are in the accounts.
    pub counted: u64,
    /// How far extents are charged, where accounts of stored bytes are kept.
    pub charged: Option<ChargedTo>,
    /// Metadata of inodes with smaller numbers counts too (names, targets, attributes); 0 in pools from before it did.
    pub metadata: u64,
}

/// Extents of inodes with smaller numbers are charged, and of this one those that end at or before `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargedTo {
    /// `AccountingValue::ALL`: all are.
    pub inode: u64,
    pub position: u64,
}

impl AccountingValue {
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 16;
    /// Of the second part.
    pub const CHARGED_SIZE: usize = 16;
    /// Of the third part.
    pub const METADATA_SIZE: usize = 8;
    const HAS_CHARGED: u8 = 1;
    const HAS_METADATA: u8 = 2;
    /// `counted` when every inode is in the accounts.
    pub const ALL: u64 = u64::MAX;
    const STRUCTURE: &'static str = "accounting";

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.next_volume != 0, "volumes are numbered from 1");
        let mut out = Vec::with_capacity(Self::SIZE);
        let parts =
            u8::from(self.charged.is_some()) * Self::HAS_CHARGED + u8::from(self.metadata > 0) * Self::HAS_METADATA;
        out.extend_from_slice(&[Self::VERSION, parts, 0, 0]);
        out.put_u32(self.next_volume);
        out.put_u64(self.counted);
        if let Some(ChargedTo { inode, position }) = self.charged {
            out.put_u64(inode);
            out.put_u64(position);
        }
        if self.metadata > 0 {
            out.put_u64(self.metadata);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let parts = reader.u8()?;
        reader.check(parts <= Self::HAS_CHARGED | Self::HAS_METADATA, "parts", u64::from(parts))?;
        reader.zeros(2)?;
        let mut value = Self { next_volume: reader.u32()?, counted: reader.u64()?, charged: None, metadata: 0 };
        if parts & Self::HAS_CHARGED != 0 {
            value.charged = Some(ChargedTo { inode: reader.u64()?, position: reader.u64()? });
        }
        if parts & Self::HAS_METADATA != 0 {
            value.metadata = reader.u64()?;
            reader.check(value.metadata != 0, "metadata", 0)?;
        }
        reader.check(value.next_volume != 0, "next volume", 0)?;
        reader.finish()?;
        Ok(value)
    }
}

/// Whose account it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    User = 1,
    Group = 2,
    Volume = 3,
}

impl Holder {
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Volume];

    pub fn from_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|holder| *holder as u64 == code)
    }
}

/// What a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VolumePlace {
    /// The volume that it counts in too; 0 for none.
    pub parent: u32,
    /// Its directory.
    pub directory: u64,
    /// The directory is no volume any more; the account goes when nothing counts in it.
    pub is_deleted: bool,
}

/// The value of [`crate::Key::account`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AccountValue {
    /// Of volumes.
    pub place: Option<VolumePlace>,
    pub bytes: u64,
    pub inodes: u64,
    /// What their contents take on devices, with copies and parity.
    pub stored: u64,
    /// What they may come to.
    pub bytes_max: Option<u64>,
    pub inodes_max: Option<u64>,
    pub stored_max: Option<u64>,
    /// What they may come to for a while.
    pub soft: SoftLimits,
}

/// Limits that may be gone beyond for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SoftLimits {
    pub bytes: Option<u64>,
    pub inodes: Option<u64>,
    pub stored: Option<u64>,
    /// How long; 0: as long as is usual.
    pub grace_seconds: u32,
    /// Since when there is more, in seconds since 1970; 0: there is not.
    pub bytes_since: u64,
    pub inodes_since: u64,
    pub stored_since: u64,
}

impl AccountValue {
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 64;
    /// Of the second part.
    pub const SOFT_SIZE: usize = 40;
    /// Of the third part.
    pub const SOFT_STORED_SIZE: usize = 16;
    const HAS_SOFT: u8 = 1;
    const HAS_SOFT_STORED: u8 = 2;
    /// Number of the account, of users and of groups each, whose limits hold for all that have none of their own.
    pub const OTHERS: u32 = u32::MAX;
    const NO_LIMIT: u64 = u64::MAX;
    const STRUCTURE: &'static str = "account";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        assert!(self.place.is_none_or(|place| place.directory != 0), "a volume has its directory");
        let form = self.place.map_or(0, |place| if place.is_deleted { 2 } else { 1 });
        let of_stored = (self.soft.stored, self.soft.stored_since);
        let has_soft = SoftLimits { stored: None, stored_since: 0, ..self.soft } != SoftLimits::default();
        let has_soft_stored = of_stored != (None, 0);
        let parts = u8::from(has_soft) * Self::HAS_SOFT + u8::from(has_soft_stored) * Self::HAS_SOFT_STORED;
        out.extend_from_slice(&[Self::VERSION, form, parts, 0]);
        out.put_u32(self.place.map_or(0, |place| place.parent));
        out.put_u64(self.place.map_or(0, |place| place.directory));
        for number in [self.bytes, self.inodes] {
            out.put_u64(number);
        }
        for limit in [self.bytes_max, self.inodes_max] {
            out.put_u64(limit.unwrap_or(Self::NO_LIMIT));
        }
        out.put_u64(self.stored);
        // So that nothing is what older pools have there.
        out.put_u64(self.stored_max.map_or(0, |most| most.saturating_add(1)));
        if has_soft {
            let SoftLimits { bytes, inodes, grace_seconds, bytes_since, inodes_since, .. } = self.soft;
            for number in [bytes.unwrap_or(Self::NO_LIMIT), inodes.unwrap_or(Self::NO_LIMIT), bytes_since, inodes_since]
            {
                out.put_u64(number);
            }
            out.put_u32(grace_seconds);
            out.put_zeros(4);
        }
        if has_soft_stored {
            out.put_u64(of_stored.0.unwrap_or(Self::NO_LIMIT));
            out.put_u64(of_stored.1);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [form, parts] = reader.array()?;
        reader.check(form <= 2, "form", u64::from(form))?;
        reader.check(parts <= Self::HAS_SOFT | Self::HAS_SOFT_STORED, "parts", u64::from(parts))?;
        reader.zeros(1)?;
        let (parent, directory) = (reader.u32()?, reader.u64()?);
        let is_volume = form != 0;
        reader.check(is_volume == (directory != 0), "directory", directory)?;
        reader.check(is_volume || parent == 0, "volume above", u64::from(parent))?;
        let place = is_volume.then_some(VolumePlace { parent, directory, is_deleted: form == 2 });
        let (bytes, inodes) = (reader.u64()?, reader.u64()?);
        let limit = |number| (number != Self::NO_LIMIT).then_some(number);
        let (bytes_max, inodes_max) = (limit(reader.u64()?), limit(reader.u64()?));
        let (stored, stored_max) = (reader.u64()?, reader.u64()?.checked_sub(1));
        let mut soft = SoftLimits::default();
        if parts & Self::HAS_SOFT != 0 {
            (soft.bytes, soft.inodes) = (limit(reader.u64()?), limit(reader.u64()?));
            (soft.bytes_since, soft.inodes_since) = (reader.u64()?, reader.u64()?);
            soft.grace_seconds = reader.u32()?;
            reader.zeros(4)?;
            reader.check(soft != SoftLimits::default(), "second part", 0)?;
        }
        if parts & Self::HAS_SOFT_STORED != 0 {
            (soft.stored, soft.stored_since) = (limit(reader.u64()?), reader.u64()?);
            reader.check((soft.stored, soft.stored_since) != (None, 0), "third part", 0)?;
        }
        reader.finish()?;
        Ok(Self { place, bytes, inodes, stored, bytes_max, inodes_max, stored_max, soft })
    }

    /// Whether there is nothing that anybody would miss.
    pub fn is_void(&self) -> bool {
        let is_used = self.bytes > 0 || self.inodes > 0 || self.stored > 0;
        match self.place {
            Some(place) => place.is_deleted && !is_used,
            None => !is_used && !self.has_limits(),
        }
    }

    /// Whether anything is said of what it may come to.
    pub fn has_limits(&self) -> bool {
        let SoftLimits { bytes, inodes, stored, .. } = self.soft;
        let limits = [self.bytes_max, self.inodes_max, self.stored_max, bytes, inodes, stored];
        limits.iter().any(Option::is_some) || self.soft.grace_seconds != 0
    }
}

const _: () = assert!(AccountingValue::SIZE == 4 + 4 + 8 && AccountValue::SIZE == 4 + 4 + 8 * 7);
const _: () = assert!(AccountValue::SOFT_SIZE == 4 * 8 + 4 + 4 && AccountValue::SOFT_STORED_SIZE == 2 * 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_come_back_as_they_were() {
        let user = AccountValue { bytes: 7 << 12, inodes: 3, bytes_max: Some(0), ..AccountValue::default() };
        let place = VolumePlace { parent: 4, directory: 77, is_deleted: false };
        let volume = AccountValue { place: Some(place), inodes_max: Some(9), ..user };
        let deleted = AccountValue { place: Some(VolumePlace { is_deleted: true, ..place }), ..volume };
        let soft = SoftLimits { bytes: Some(1), grace_seconds: 60, bytes_since: 1 << 40, ..SoftLimits::default() };
        let softly = AccountValue { soft, ..volume };
        let stored_soft = SoftLimits { stored: Some(5), stored_since: 9, ..SoftLimits::default() };
        let stored = AccountValue { stored: 3 << 20, stored_max: Some(0), soft: stored_soft, ..volume };
        for value in [user, volume, deleted, softly, stored] {
            let bytes = value.encode();
            let more = match value {
                _ if value == softly => AccountValue::SOFT_SIZE,
                _ if value == stored => AccountValue::SOFT_STORED_SIZE,
                _ => 0,
            };
            assert_eq!(bytes.len(), AccountValue::SIZE + more);
            assert_eq!(AccountValue::decode(&bytes).unwrap(), value);
            assert!(AccountValue::decode(&[&bytes[..], b"x"].concat()).is_err());
        }
        for (at, wrong) in [(0, 2), (1, 0), (1, 3), (2, 1), (2, 2), (2, 4), (3, 1)] {
            let mut bytes = volume.encode();
            bytes[at] = wrong;
            assert!(AccountValue::decode(&bytes).is_err(), "byte {at}");
        }
        let nothing = [&volume.encode()[..], &[0xff; 16], &[0; 24]].concat();
        for (at, wrong) in [(2, 0), (2, 2), (2, 1), (103, 1)] {
            let mut bytes = if (at, wrong) == (2, 1) { nothing.clone() } else { softly.encode() };
            bytes[at] = wrong;
            assert!(AccountValue::decode(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_nobody_would_miss_is_void() {
        assert!(AccountValue::default().is_void());
        assert!(!AccountValue { inodes: 1, ..AccountValue::default() }.is_void());
        assert!(!AccountValue { bytes_max: Some(1), ..AccountValue::default() }.is_void());
        let soft = SoftLimits { inodes: Some(1), ..SoftLimits::default() };
        assert!(!AccountValue { soft, ..AccountValue::default() }.is_void());
        let place = VolumePlace { parent: 0, directory: 7, is_deleted: false };
        assert!(!AccountValue { place: Some(place), ..AccountValue::default() }.is_void());
        let deleted = Some(VolumePlace { is_deleted: true, ..place });
        assert!(AccountValue { place: deleted, bytes_max: Some(1), ..AccountValue::default() }.is_void());
    }

    #[test]
    fn accounting_comes_back_as_it_was() {
        let value = AccountingValue { next_volume: 3, counted: AccountingValue::ALL, charged: None, metadata: 0 };
        let charged = AccountingValue { charged: Some(ChargedTo { inode: 7, position: 8 << 12 }), ..value };
        assert_eq!(AccountingValue::decode(&charged.encode()).unwrap(), charged);
        assert_eq!(charged.encode().len(), AccountingValue::SIZE + AccountingValue::CHARGED_SIZE);
        for all in [AccountingValue { metadata: 9, ..value }, AccountingValue { metadata: 9, ..charged }] {
            let mut bytes = all.encode();
            assert_eq!(AccountingValue::decode(&bytes).unwrap(), all);
            let at = bytes.len() - AccountingValue::METADATA_SIZE;
            bytes[at] = 0;
            assert!(AccountingValue::decode(&bytes).is_err(), "what says nothing is not there");
        }
        let bytes = value.encode();
        assert_eq!(bytes.len(), AccountingValue::SIZE);
        assert_eq!(AccountingValue::decode(&bytes).unwrap(), value);
        for (at, wrong) in [(0, 2), (1, 1), (1, 2), (1, 4), (4, 0)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(AccountingValue::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
