//! Which devices belong together, which are left out and why, and which are missing.
//!
//! The newest superblock of all devices speaks for the pool; its device table says who belongs to it. Reads only.
//!
//! A crash while superblocks are being written leaves some devices one generation behind, and a second one at the same
//! place two: such devices hold everything that the newest checkpoint needs, because that was flushed before. Whoever is
//! further behind was away while the pool changed.

use std::sync::Arc;

use stere_device::{BufferPool, Device};
use stere_format::{CheckpointRecord, DeviceEntry, Superblock};
use stere_stripe::Stripe;

use crate::class::DeviceClass;
use crate::error::Error;
use crate::identify::{DamagedCopy, describe_copies, member};

/// How far a crash can leave a device behind the others.
const GENERATIONS_BEHIND_MAX: u64 = 2;

/// An open device that may belong to the pool.
pub struct Candidate {
    pub path: String,
    pub device: Arc<dyn Device>,
}

/// A device of the pool.
#[derive(Clone)]
pub struct Member {
    pub path: String,
    pub device: Arc<dyn Device>,
    pub superblock: Superblock,
    pub damaged: Vec<DamagedCopy>,
}

/// The devices of one pool, judged.
pub struct Assembly {
    /// The newest superblock.
    pub newest: Superblock,
    /// By index; what can be used.
    pub members: Vec<Member>,
    /// Left out: away while the pool changed.
    pub stale: Vec<Member>,
    /// The pool's device table.
    pub entries: Vec<DeviceEntry>,
}

impl Assembly {
    /// Judges devices that are open. They need not be writable.
    pub fn new(candidates: Vec<Candidate>) -> Result<Assembly, Error> {
        let mut members = identify_all(candidates)?;
        members.sort_by_key(|member| (member.superblock.device_index, member.superblock.generation));
        check_one_pool(&members)?;
        check_no_copies(&members)?;
        check_one_history(&members)?;
        let newest = members.iter().max_by_key(|member| member.superblock.generation);
        let newest = newest.ok_or(Error::NoDevices)?.superblock.clone();
        let (members, stale): (Vec<Member>, Vec<Member>) = members
            .into_iter()
            .partition(|member| member.superblock.generation + GENERATIONS_BEHIND_MAX >= newest.generation);
        let entries = read_device_table(&newest, &members)?;
        check_membership(&members, &entries)?;
        Ok(Assembly { newest, members, stale, entries })
    }

    /// Devices of the table that cannot be used, because they are not there or are stale.
    pub fn missing(&self) -> Vec<&DeviceEntry> {
        let is_there = |entry: &&DeviceEntry| !self.members.iter().any(|member| member.superblock.device == entry.id);
        self.entries.iter().filter(is_there).collect()
    }

    /// The missing devices in words; `path_of` may know where they were last.
    pub fn describe_missing(&self, path_of: &dyn Fn(&DeviceEntry) -> Option<String>) -> String {
        let texts: Vec<String> = self
            .missing()
            .into_iter()
            .map(|entry| {
                let place = path_of(entry).map(|path| format!(", last at {path}")).unwrap_or_default();
                let labels = [("host", &entry.host), ("shelf", &entry.shelf)];
                let labels: String = labels
                    .iter()
                    .filter(|(_, text)| !text.is_empty())
                    .map(|(what, text)| format!(", {what} {text}"))
                    .collect();
                let stale = self.stale.iter().find(|member| member.superblock.device == entry.id);
                let stale = stale.map(|member| {
                    let behind = self.newest.generation - member.superblock.generation;
                    format!(
                        "; {} is that device, but {behind} generations behind the others, so it is left out",
                        member.path
                    )
                });
                format!("device '{}' (id {}{place}{labels}{})", entry.name, entry.id, stale.unwrap_or_default())
            })
            .collect();
        texts.join(" and ")
    }

    /// What is not as it should be, although the pool can be used.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for member in self.members.iter().filter(|member| !member.damaged.is_empty()) {
            let detail = describe_copies(&member.damaged);
            warnings.push(format!("{}: damaged superblock copies ({detail}); a good one was used", member.path));
        }
        for member in &self.stale {
            warnings.push(format!("{} was away while the pool changed and is left out", member.path));
        }
        warnings
    }

    /// The class of a member.
    pub fn class_of(&self, member: &Member) -> DeviceClass {
        let entry = self.entries.iter().find(|entry| entry.id == member.superblock.device);
        entry.map_or(DeviceClass::Unknown, |entry| DeviceClass::from_code(entry.class))
    }
}

fn identify_all(candidates: Vec<Candidate>) -> Result<Vec<Member>, Error> {
    let mut members: Vec<Member> = Vec::with_capacity(candidates.len());
    for Candidate { path, device } in candidates {
        if let Some(other) = members.iter().find(|other| other.path == path) {
            return Err(Error::SameDevice { first: other.path.clone(), second: path });
        }
        let identity = member(&path, &*device)?;
        members.push(Member { path, device, superblock: identity.superblock, damaged: identity.damaged });
    }
    if members.is_empty() { Err(Error::NoDevices) } else { Ok(members) }
}

fn check_one_pool(members: &[Member]) -> Result<(), Error> {
    let Some(first) = members.first() else { return Ok(()) };
    match members.iter().find(|member| member.superblock.pool != first.superblock.pool) {
        None => Ok(()),
        Some(second) => Err(Error::TwoPools {
            first: first.path.clone(),
            first_pool: first.superblock.pool_name.clone(),
            second: second.path.clone(),
            second_pool: second.superblock.pool_name.clone(),
        }),
    }
}

fn check_no_copies(members: &[Member]) -> Result<(), Error> {
    for (at, second) in members.iter().enumerate() {
        if let Some(first) = members[..at].iter().find(|first| first.superblock.device == second.superblock.device) {
            return Err(Error::CopiedDevice {
                first: first.path.clone(),
                second: second.path.clone(),
                id: second.superblock.device.to_string(),
            });
        }
    }
    Ok(())
}

/// Refuses halves that were both written to without the other: no order of their generations means anything.
fn check_one_history(members: &[Member]) -> Result<(), Error> {
    for (at, second) in members.iter().enumerate() {
        if let Some(first) = members[..at].iter().find(|first| !share_history(&first.superblock, &second.superblock)) {
            return Err(Error::SplitHistories { first: first.path.clone(), second: second.path.clone() });
        }
    }
    Ok(())
}

fn share_history(one: &Superblock, other: &Superblock) -> bool {
    let (older, newer) = if one.generation <= other.generation { (one, other) } else { (other, one) };
    if older.generation == newer.generation {
        return older.checkpoint == newer.checkpoint
            && older.journal_start == newer.journal_start
            && older.epochs == newer.epochs;
    }
    // Every epoch that the older one knows must be known to the newer, unless that has dropped it as history.
    let oldest_kept = newer.epochs.first().map_or(0, |epoch| epoch.epoch);
    older.epochs.iter().filter(|epoch| epoch.epoch >= oldest_kept).all(|epoch| newer.epochs.contains(epoch))
}

/// Reads the device table from the checkpoint that the newest superblock names.
fn read_device_table(newest: &Superblock, members: &[Member]) -> Result<Vec<DeviceEntry>, Error> {
    let damaged = |detail: String| {
        // What is missing cannot be named by more than its place in the table: the names are in what cannot be read.
        let wanted = newest.checkpoint.iter().flat_map(|part| part.place.chunks.iter().map(|place| place.device));
        let mut absent: Vec<u16> = wanted
            .chain(newest.journal_devices.iter().copied())
            .filter(|index| !members.iter().any(|member| member.superblock.device_index == *index))
            .collect();
        absent.sort_unstable();
        absent.dedup();
        let pool = newest.pool_name.clone();
        match absent.is_empty() {
            true => Error::MetadataDamaged { pool, detail },
            false => {
                let missing: Vec<String> = absent.iter().map(|index| format!("device number {}", index + 1)).collect();
                Error::MetadataMissing { pool, missing: missing.join(", "), detail }
            }
        }
    };
    let stripe = Stripe::new(newest.layout.chunk_bytes, BufferPool::new(1 << 20));
    for member in members {
        let superblock = &member.superblock;
        stripe
            .attach(superblock.device_index, member.device.clone(), superblock.layout, stere_stripe::READ_COST_FAST)
            .map_err(|error| damaged(error.to_string()))?;
    }
    let mut bytes = Vec::new();
    for part in &newest.checkpoint {
        let start = bytes.len();
        bytes.resize(start + part.address.length as usize, 0);
        let verify = |bytes: &[u8]| stere_format::crc32c(bytes) == part.crc32c;
        stere_log::read_whole(&stripe, &part.place, &part.address, &mut bytes[start..], &verify)
            .map_err(|error| damaged(error.to_string()))?;
    }
    let record = CheckpointRecord::decode(&bytes).map_err(|error| damaged(error.to_string()))?;
    if record.pool != newest.pool {
        return Err(damaged("its checkpoint is of another pool".into()));
    }
    Ok(record.devices)
}

/// Whoever says it is of the pool must be in its table, under its number.
fn check_membership(members: &[Member], entries: &[DeviceEntry]) -> Result<(), Error> {
    for member in members {
        let (id, index) = (member.superblock.device, member.superblock.device_index);
        if !entries.iter().any(|entry| entry.id == id && entry.index == index) {
            return Err(Error::NotStere {
                device: member.path.clone(),
                found: format!("it says it is device number {} of the pool, but the pool does not know it", index + 1),
            });
        }
    }
    Ok(())
}
