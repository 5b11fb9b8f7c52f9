//! What the superblocks of one device say.
//!
//! A device keeps four copies: two of the newest generation, two of the one before. One good copy is enough; what is
//! wrong with the others is told. A copy counts only where its generation has its place, so that a block that was
//! written to the wrong place is never believed.

use stere_device::Device;
use stere_format::{DecodeError, DeviceLayout, FORMAT_MAJOR, Superblock};

use crate::error::Error;

/// A superblock copy that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedCopy {
    pub offset: u64,
    pub cause: String,
    /// The device gave no bytes there at all.
    pub is_unreadable: bool,
}

/// A device of a pool.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The newest good copy.
    pub superblock: Superblock,
    /// The generation before, if a copy of it is good.
    pub previous: Option<Superblock>,
    /// Copies that are not good; a copy that was never written is not among them.
    pub damaged: Vec<DamagedCopy>,
}

/// What a device holds, as far as superblocks tell.
#[derive(Debug, Clone)]
pub enum Holds {
    /// Nothing of stere: no place of a superblock begins with its magic number.
    NothingOfStere,
    Member(Box<Identity>),
    /// Superblocks were here, and none is good.
    Damaged(Vec<DamagedCopy>),
    /// Superblocks of another format version.
    OtherVersion {
        found: u16,
    },
    /// The device is smaller than it was when the pool was made.
    Truncated(Box<Superblock>),
}

fn damaged_copy(offset: u64, cause: String) -> DamagedCopy {
    DamagedCopy { offset, cause, is_unreadable: false }
}

impl Holds {
    /// Whether the device gives nothing at all where superblocks are: it is as good as gone.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Holds::Damaged(copies) if copies.iter().all(|copy| copy.is_unreadable))
    }
}

enum Copy {
    Good(Box<Superblock>),
    Unwritten,
    Foreign,
    OtherVersion(u16),
    Damaged(String),
    Unreadable(String),
}

fn read_copy(device: &dyn Device, offset: u64) -> Copy {
    let mut bytes = vec![0; Superblock::SIZE];
    // A second try, because a copy given up is redundancy lost.
    if let Err(error) = device.read(offset, &mut bytes).or_else(|_| device.read(offset, &mut bytes)) {
        return Copy::Unreadable(format!("it cannot be read: {error}"));
    }
    match Superblock::decode(&bytes) {
        Ok(superblock) => {
            let places = superblock.layout.superblock_offsets_of_generation(superblock.generation);
            match places.contains(&offset) {
                true => Copy::Good(Box::new(superblock)),
                false => Copy::Damaged("it belongs to another place".into()),
            }
        }
        Err(DecodeError::UnsupportedVersion { found, .. }) => Copy::OtherVersion(found),
        Err(_) if bytes.iter().all(|byte| *byte == 0) => Copy::Unwritten,
        Err(DecodeError::BadMagic { .. }) => Copy::Foreign,
        Err(error) => Copy::Damaged(error.to_string()),
    }
}

/// Reads all superblock copies of a device. Only an error of the device in every place is an error.
pub fn identify(device: &dyn Device) -> Holds {
    let mut offsets: Vec<u64> = DeviceLayout::superblock_offsets_for_size(device.size_bytes()).to_vec();
    let mut copies: Vec<(u64, Copy)> = Vec::new();
    let mut at = 0;
    while let Some(&offset) = offsets.get(at) {
        let copy = read_copy(device, offset);
        if let Copy::Good(superblock) = &copy {
            // A device that has grown keeps the copies behind where its end was.
            for place in superblock.layout.superblock_offsets() {
                let is_within = place + Superblock::SIZE as u64 <= device.size_bytes();
                if is_within && !offsets.contains(&place) {
                    offsets.push(place);
                }
            }
        }
        copies.push((offset, copy));
        at += 1;
    }
    judge(device, copies)
}

fn judge(device: &dyn Device, copies: Vec<(u64, Copy)>) -> Holds {
    // Whoever owns the front owns the device: what a former, larger or smaller, owner left behind does not count.
    let owner = copies.iter().find_map(|(_, copy)| match copy {
        Copy::Good(superblock) => Some((superblock.pool, superblock.device)),
        _ => None,
    });
    let mut good: Vec<Superblock> = Vec::new();
    let (mut damaged, mut foreign, mut version) = (Vec::new(), Vec::new(), None);
    for (offset, copy) in copies {
        match copy {
            Copy::Good(superblock) if Some((superblock.pool, superblock.device)) == owner => good.push(*superblock),
            Copy::Good(_) => damaged.push(damaged_copy(offset, "it belongs to another device".into())),
            Copy::Unwritten => {}
            Copy::Foreign => foreign.push(damaged_copy(offset, "it was overwritten".into())),
            Copy::OtherVersion(found) => version = version.max(Some(found)),
            Copy::Damaged(cause) => damaged.push(damaged_copy(offset, cause)),
            Copy::Unreadable(cause) => damaged.push(DamagedCopy { is_unreadable: true, ..damaged_copy(offset, cause) }),
        }
    }
    good.sort_by_key(|superblock| superblock.generation);
    if let Some(superblock) = good.pop() {
        if superblock.layout.size_bytes > device.size_bytes() {
            return Holds::Truncated(Box::new(superblock));
        }
        let previous = good.into_iter().rev().find(|older| older.generation + 1 == superblock.generation);
        damaged.retain(|copy| superblock.layout.superblock_offsets().contains(&copy.offset));
        damaged
            .extend(foreign.into_iter().filter(|copy| superblock.layout.superblock_offsets().contains(&copy.offset)));
        damaged.sort_by_key(|copy| copy.offset);
        return Holds::Member(Box::new(Identity { superblock, previous, damaged }));
    }
    match version {
        Some(found) => Holds::OtherVersion { found },
        None if damaged.is_empty() => Holds::NothingOfStere,
        None => Holds::Damaged(damaged),
    }
}

/// The copies and what is wrong with them, in one line.
pub(crate) fn describe_copies(copies: &[DamagedCopy]) -> String {
    let texts: Vec<String> = copies.iter().map(|copy| format!("at byte {}: {}", copy.offset, copy.cause)).collect();
    texts.join("; ")
}

/// The identity that what a device holds tells, or the finding that speaks against it.
pub(crate) fn member(path: &str, device: &dyn Device, holds: Holds) -> Result<Identity, Error> {
    let device_name = path.to_owned();
    match holds {
        Holds::Member(identity) => Ok(*identity),
        Holds::NothingOfStere => Err(Error::NotStere { device: device_name, found: "it has no superblock".into() }),
        Holds::Damaged(copies) => {
            Err(Error::SuperblocksDamaged { device: device_name, detail: describe_copies(&copies) })
        }
        Holds::OtherVersion { found } => Err(other_version(device_name, found)),
        Holds::Truncated(superblock) => Err(Error::Truncated {
            device: device_name,
            size_bytes: device.size_bytes(),
            expected_bytes: superblock.layout.size_bytes,
        }),
    }
}

pub(crate) fn other_version(device: String, found: u16) -> Error {
    let supported = FORMAT_MAJOR;
    match found > supported {
        true => Error::NewerVersion { device, found, supported },
        false => Error::OlderVersion { device, found, supported },
    }
}
