//! Which devices belong together, which are left out and why, and which are missing.
//!
//! The newest superblock of all devices speaks for the pool; its device table says who belongs to it. Reads only.
//!
//! A crash while superblocks are being written leaves some devices one generation behind the others (never more: opening
//! brings all to the same one first). Such a device holds its copy of the newest checkpoint, because that was flushed before
//! any superblock, and others that are further know its generation as their previous one. Whoever is behind in any other way
//! was away while the pool changed.

use std::sync::Arc;

use stere_device::{BufferPool, Device};
use stere_format::{CheckpointPart, CheckpointRecord, DeviceEntry, Superblock};
use stere_stripe::Stripe;

use crate::class::DeviceClass;
use crate::error::Error;
use crate::identify::{DamagedCopy, describe_copies, member};

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
    /// Its generation before.
    pub previous: Option<Superblock>,
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
        let (members, stale): (Vec<Member>, Vec<Member>) =
            members.into_iter().partition(|member| is_up_to_date(member, &newest));
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
        members.push(Member {
            path,
            device,
            superblock: identity.superblock,
            previous: identity.previous,
            damaged: identity.damaged,
        });
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
        if let Some(first) = members[..at].iter().find(|first| !share_history(first, second)) {
            return Err(Error::SplitHistories { first: first.path.clone(), second: second.path.clone() });
        }
    }
    Ok(())
}

fn share_history(one: &Member, other: &Member) -> bool {
    let is_older = one.superblock.generation <= other.superblock.generation;
    let (older, newer) = if is_older { (one, other) } else { (other, one) };
    let (old, new) = (&older.superblock, &newer.superblock);
    if old.generation == new.generation {
        return say_the_same(old, new);
    }
    if let Some(previous) = newer.previous.as_ref().filter(|previous| previous.generation == old.generation) {
        return say_the_same(old, previous);
    }
    // Every epoch that the older one knows must be known to the newer, unless that has dropped it as history.
    let oldest_kept = new.epochs.first().map_or(0, |epoch| epoch.epoch);
    old.epochs.iter().filter(|epoch| epoch.epoch >= oldest_kept).all(|epoch| new.epochs.contains(epoch))
}

/// Superblocks of one generation tell of one checkpoint, or they are of different histories.
fn say_the_same(one: &Superblock, other: &Superblock) -> bool {
    one.checkpoint == other.checkpoint && one.journal_start == other.journal_start && one.epochs == other.epochs
}

/// Whether a device was there when the newest superblock was written, even if a crash kept its own copy from it.
fn is_up_to_date(member: &Member, newest: &Superblock) -> bool {
    match newest.generation - member.superblock.generation {
        0 => true,
        1 => holds_checkpoint(member, newest),
        _ => false,
    }
}

/// Whether a device holds its copy of every checkpoint part that it should hold.
fn holds_checkpoint(member: &Member, newest: &Superblock) -> bool {
    let index = member.superblock.device_index;
    let is_here = |part: &&CheckpointPart| {
        let place = &part.place;
        place.scheme.data == 1
            && (0..place.chunks.len()).any(|chunk| place.chunks[chunk].device == index && !place.is_missing(chunk))
    };
    let Ok(stripe) = stripe_of(newest, std::slice::from_ref(member)) else { return false };
    newest.checkpoint.iter().filter(is_here).all(|part| read_part(&stripe, part).is_ok())
}

fn stripe_of(newest: &Superblock, members: &[Member]) -> Result<Stripe, String> {
    let stripe = Stripe::new(newest.layout.chunk_bytes, BufferPool::new(1 << 20));
    for Member { superblock, device, .. } in members {
        stripe
            .attach(superblock.device_index, device.clone(), superblock.layout, stere_stripe::READ_COST_FAST)
            .map_err(|error| error.to_string())?;
    }
    Ok(stripe)
}

fn read_part(stripe: &Stripe, part: &CheckpointPart) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; part.address.length as usize];
    let verify = |bytes: &[u8]| stere_format::CheckpointRecord::part_checksum(bytes) == part.crc32c;
    stere_log::read_whole(stripe, &part.place, &part.address, &mut bytes, &verify)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
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
    let stripe = stripe_of(newest, members).map_err(damaged)?;
    let mut bytes = Vec::new();
    for part in &newest.checkpoint {
        bytes.extend(read_part(&stripe, part).map_err(damaged)?);
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
