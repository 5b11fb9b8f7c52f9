//! What lies in a shared log: roots, grants of slots, and records of the journal. One entry is one record of the log.
//!
//! Invariants: an entry says whose pool it is and who put it; extents of slots rise and do not touch each other. A journal record
//! is the same bytes that a device would hold. Read next: `docs/format/log-entry.md`, the journal's `tail.rs`.

use crate::error::DecodeError;
use crate::superblock::Superblock;
use crate::wire::{Reader, Writer};
use crate::{DeviceIndex, PoolId};

/// Consecutive slots of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotExtent {
    pub device: DeviceIndex,
    pub first: u32,
    pub count: u32,
}

impl SlotExtent {
    pub fn slots(&self) -> impl Iterator<Item = u32> + use<> {
        self.first..self.first + self.count
    }
}

/// Joins slots, given in any order, to extents.
pub fn extents_of(slots: impl IntoIterator<Item = (DeviceIndex, u32)>) -> Vec<SlotExtent> {
    let mut slots: Vec<(DeviceIndex, u32)> = slots.into_iter().collect();
    slots.sort_unstable();
    slots.dedup();
    let mut extents: Vec<SlotExtent> = Vec::new();
    for (device, slot) in slots {
        match extents.last_mut() {
            Some(last) if last.device == device && last.first + last.count == slot => last.count += 1,
            _ => extents.push(SlotExtent { device, first: slot, count: 1 }),
        }
    }
    assert!(extents.iter().all(|extent| extent.count > 0), "an extent has slots");
    extents
}

/// Slots that somebody before may still write to, for so long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSlots {
    pub remaining_ms: u32,
    pub extents: Vec<SlotExtent>,
}

/// What an entry tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    /// A checkpoint, or the beginning of an epoch: what superblocks would tell, and who may still write where.
    Root {
        superblock: Box<Superblock>,
        /// Slots that whoever put this may write to.
        granted: Vec<SlotExtent>,
        /// Slots that owners before may still write to.
        held: Vec<HeldSlots>,
    },
    /// More slots that whoever put this may write to.
    Grants(Vec<SlotExtent>),
    /// A record of the journal, with its header.
    Journal(Vec<u8>),
}

/// One record of a shared log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub pool: PoolId,
    /// Random for each opening of the pool.
    pub owner: [u8; 16],
    pub record: LogRecord,
}

const ROOT: u8 = 1;
const GRANTS: u8 = 2;
const JOURNAL: u8 = 3;

impl LogEntry {
    pub const MAGIC: [u8; 8] = *b"stere-le";
    /// Version 1 was never released; its roots did not say for how long slots are held.
    pub const VERSION: u8 = 2;
    /// Groups of held slots that one root has at most.
    pub const HELD_GROUPS_MAX: usize = 64;
    /// Before what the entry tells.
    pub const FIXED_BYTES: usize = 44;
    /// Of one extent.
    pub const EXTENT_BYTES: usize = 10;
    /// Extents one entry has at most.
    pub const EXTENTS_MAX: usize = 40_000;
    const STRUCTURE: &'static str = "log entry";

    /// Fails only where the superblock cannot be encoded, or where there are too many extents.
    pub fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::new();
        out.extend_from_slice(&Self::MAGIC);
        let kind = match &self.record {
            LogRecord::Root { .. } => ROOT,
            LogRecord::Grants(_) => GRANTS,
            LogRecord::Journal(_) => JOURNAL,
        };
        out.extend_from_slice(&[Self::VERSION, kind, 0, 0]);
        out.extend_from_slice(&self.pool.0);
        out.extend_from_slice(&self.owner);
        assert_eq!(out.len(), Self::FIXED_BYTES, "the fixed part is what the page says");
        match &self.record {
            LogRecord::Root { superblock, granted, held } => {
                out.extend_from_slice(&superblock.encode()?);
                put_extents(&mut out, granted)?;
                put_held(&mut out, held)?;
            }
            LogRecord::Grants(extents) => put_extents(&mut out, extents)?,
            LogRecord::Journal(bytes) => {
                out.put_u32(u32::try_from(bytes.len()).expect("a record of the journal is far below 4 GiB"));
                out.extend_from_slice(bytes);
            }
        }
        let checksum = crate::crc32c(&out);
        out.put_u32(checksum);
        Ok(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let body = crate::wire::sealed(Self::STRUCTURE, bytes, bytes.len().max(Self::FIXED_BYTES + 4))?;
        let mut reader = Reader::new(Self::STRUCTURE, body);
        reader.magic(&Self::MAGIC)?;
        reader.version(Self::VERSION)?;
        let kind = reader.u8()?;
        reader.zeros(2)?;
        let (pool, owner) = (PoolId(reader.array()?), reader.array()?);
        let record = match kind {
            ROOT => {
                let superblock = Box::new(Superblock::decode(reader.take(Superblock::SIZE)?)?);
                reader.check(superblock.pool == pool, "pool of the root", 0)?;
                let granted = read_extents(&mut reader)?;
                let held = read_held(&mut reader)?;
                reader.finish()?;
                LogRecord::Root { superblock, granted, held }
            }
            GRANTS => {
                let extents = read_extents(&mut reader)?;
                reader.finish()?;
                LogRecord::Grants(extents)
            }
            JOURNAL => {
                let length = reader.u32()?;
                let bytes = reader.take(length as usize)?.to_vec();
                reader.finish()?;
                LogRecord::Journal(bytes)
            }
            other => return Err(reader.out_of_range("kind", u64::from(other))),
        };
        Ok(LogEntry { pool, owner, record })
    }
}

fn put_extents(out: &mut Vec<u8>, extents: &[SlotExtent]) -> Result<(), DecodeError> {
    if extents.len() > LogEntry::EXTENTS_MAX {
        let (structure, need, room) = (LogEntry::STRUCTURE, extents.len(), LogEntry::EXTENTS_MAX);
        return Err(DecodeError::DoesNotFit { structure, need, room });
    }
    out.put_u32(extents.len() as u32);
    for extent in extents {
        out.put_u16(extent.device);
        out.put_u32(extent.first);
        out.put_u32(extent.count);
    }
    Ok(())
}

fn read_extents(reader: &mut Reader<'_>) -> Result<Vec<SlotExtent>, DecodeError> {
    let count = reader.u32()?;
    reader.check(count as usize <= LogEntry::EXTENTS_MAX, "count of extents", u64::from(count))?;
    let mut extents: Vec<SlotExtent> = Vec::with_capacity((count as usize).min(1024));
    for _ in 0..count {
        let extent = SlotExtent { device: reader.u16()?, first: reader.u32()?, count: reader.u32()? };
        let end = extent.first.checked_add(extent.count);
        reader.check(extent.count > 0 && end.is_some(), "slots of an extent", u64::from(extent.count))?;
        let is_behind = |last: &SlotExtent| {
            last.device < extent.device || (last.device == extent.device && last.first + last.count < extent.first)
        };
        reader.check(extents.last().is_none_or(is_behind), "order of extents", u64::from(extent.first))?;
        extents.push(extent);
    }
    Ok(extents)
}

fn put_held(out: &mut Vec<u8>, held: &[HeldSlots]) -> Result<(), DecodeError> {
    if held.len() > LogEntry::HELD_GROUPS_MAX {
        let (structure, need, room) = (LogEntry::STRUCTURE, held.len(), LogEntry::HELD_GROUPS_MAX);
        return Err(DecodeError::DoesNotFit { structure, need, room });
    }
    out.put_u32(held.len() as u32);
    for group in held {
        out.put_u32(group.remaining_ms);
        put_extents(out, &group.extents)?;
    }
    Ok(())
}

fn read_held(reader: &mut Reader<'_>) -> Result<Vec<HeldSlots>, DecodeError> {
    let count = reader.u32()?;
    reader.check(count as usize <= LogEntry::HELD_GROUPS_MAX, "count of groups", u64::from(count))?;
    (0..count).map(|_| Ok(HeldSlots { remaining_ms: reader.u32()?, extents: read_extents(reader)? })).collect()
}

#[cfg(test)]
mod tests;
