//! Epochs in which nothing happened.
//!
//! A crash while a mount begins its epoch leaves devices that have it beside others that have not. If the ones that have it are
//! away then, the others go on in an epoch of their own, and it looks as if two halves had gone on. They did not: an epoch
//! counts only if something was done in it, and the first thing that is done in any epoch is a journal record on every mirror, or a
//! checkpoint. Superblocks of mirrors are written first, so who has the epoch alone is a mirror.
//!
//! Invariant: an epoch is void only if that is proved: the device is a mirror, all mirrors that its superblock names are there,
//! none of them holds a record of the epoch, and the superblock before it, of the generation before, tells of the same checkpoint.

use stere_device::Device;
use stere_faults::{Bug, is_planted};
use stere_format::{BLOCK_BYTES, DeviceIndex, DeviceLayout, JournalHeader, Superblock};

use crate::assemble::Member;
use crate::history::{Relation, relation};
use crate::identify::Identity;

/// How much of a journal is read at a time.
const SEARCH_BYTES: u64 = 1 << 20;

/// Takes void epochs back from devices that would be halves because of them.
pub(crate) fn take_back_void_epochs(members: &mut [Member]) {
    for one in 0..members.len() {
        let is_half = |member: &Member| members.iter().any(|other| relation(member, other) == Relation::Split);
        if !is_half(&members[one]) || !is_void(&members[one], members) {
            continue;
        }
        tracing::info!(device = members[one].path, "a mount that ended before it did anything does not count");
        let member = &mut members[one];
        if let Some(previous) = member.previous.take() {
            member.superblock = previous;
        }
    }
}

/// Whether a half holds nothing of the epoch that makes it one, while a mirror that may hold something of it is not there: nobody can tell
/// yet whether that epoch is void. Nothing is lost by going on without such a device, as if it were away too: once the mirror is
/// back, either the epoch is void or the mirror is a half.
pub(crate) fn is_undecided(member: &Member, members: &[Member]) -> bool {
    let is_half = |one: &Member| members.iter().any(|other| relation(one, other) == Relation::Split);
    let holds_nothing = |one: &Member| {
        let epoch = only_begun(&identity_of(one));
        epoch.is_some_and(|epoch| !has_records(&*one.device, &one.superblock.layout, &one.superblock, epoch))
    };
    // Of two that both hold nothing neither is to be preferred.
    let is_against_others = || {
        let mut against = members.iter().filter(|other| relation(member, other) == Relation::Split);
        against.all(|other| !holds_nothing(other))
    };
    is_half(member) && holds_nothing(member) && is_against_others()
}

fn identity_of(member: &Member) -> Identity {
    Identity { superblock: member.superblock.clone(), previous: member.previous.clone(), damaged: Vec::new() }
}

fn is_void(member: &Member, members: &[Member]) -> bool {
    let Some(epoch) = only_begun(&identity_of(member)) else { return false };
    let superblock = &member.superblock;
    superblock.journal_devices.iter().all(|index| {
        let mirror = members.iter().find(|other| other.superblock.device_index == *index);
        mirror.is_some_and(|mirror| !has_records(&*mirror.device, &mirror.superblock.layout, superblock, epoch))
    })
}

/// The superblock of a device that came back while the pool is open: the one before, if the epoch of its newest is void.
/// `is_there` tells which devices the pool has.
pub fn settled_superblock(
    identity: &Identity,
    device: &dyn Device,
    is_there: &dyn Fn(DeviceIndex) -> bool,
) -> Superblock {
    let superblock = &identity.superblock;
    let are_there =
        || superblock.journal_devices.iter().all(|index| *index == superblock.device_index || is_there(*index));
    match (only_begun(identity), &identity.previous) {
        (Some(epoch), Some(previous)) if are_there() && !has_records(device, &superblock.layout, superblock, epoch) => {
            previous.clone()
        }
        _ => superblock.clone(),
    }
}

/// The epoch that the newest superblock of a mirror begins, if nothing else sets it apart from the one before.
fn only_begun(identity: &Identity) -> Option<u32> {
    if is_planted(Bug::VoidEpochCounts) {
        return None;
    }
    let superblock = &identity.superblock;
    let previous = identity.previous.as_ref()?;
    let last = superblock.epochs.last()?;
    let is_new = previous.epochs.iter().all(|epoch| epoch.epoch < last.epoch);
    let is_same = superblock.checkpoint == previous.checkpoint && superblock.journal_start == previous.journal_start;
    let is_mirror = superblock.journal_devices.contains(&superblock.device_index);
    (is_new && is_same && is_mirror).then_some(last.epoch)
}

/// Whether the journal region of a device holds a record of an epoch. What cannot be read may hold one.
fn has_records(device: &dyn Device, layout: &DeviceLayout, superblock: &Superblock, epoch: u32) -> bool {
    let length = superblock.journal_bytes.min(layout.journal_bytes);
    let is_of_epoch = |block: &[u8]| {
        JournalHeader::decode(block).is_ok_and(|header| header.pool == superblock.pool && header.epoch == epoch)
    };
    (0..length).step_by(SEARCH_BYTES as usize).any(|at| {
        let mut bytes = vec![0; SEARCH_BYTES.min(length - at) as usize];
        device.read(layout.journal_offset + at, &mut bytes).is_err() || bytes.chunks(BLOCK_BYTES).any(is_of_epoch)
    })
}
