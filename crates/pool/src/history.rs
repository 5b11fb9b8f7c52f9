//! Whether two devices of a pool share one history, told by the epochs in their superblocks.
//!
//! Every mount for writing begins an epoch with a random number and writes it to all devices that are there. So the device
//! whose last epoch the other knows has nothing that the other does not know. Only the number tells: from where on an epoch covers
//! the journal may change afterwards, and epochs that cover nothing may be dropped. Superblocks keep the last sixteen epochs; who
//! was away for longer cannot be told. Read next: `void.rs`.

use stere_format::Superblock;

use crate::assemble::Member;

/// How the histories of two devices stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// One is the beginning of the other.
    Shared,
    /// Each went on without the other.
    Split,
    /// The older one is too old to tell.
    Unknown,
}

/// Orders superblocks of one history: epochs rise, and within one the generations.
pub(crate) fn age(superblock: &Superblock) -> (u32, u64) {
    (superblock.epochs.last().map_or(0, |epoch| epoch.epoch), superblock.generation)
}

pub(crate) fn relation(one: &Member, other: &Member) -> Relation {
    let is_older = age(&one.superblock) <= age(&other.superblock);
    let (older, newer) = if is_older { (one, other) } else { (other, one) };
    let (old, new) = (&older.superblock, &newer.superblock);
    let last_of = |superblock: &Superblock| superblock.epochs.last().map(|epoch| epoch.epoch);
    if last_of(old) == last_of(new) {
        return match old.generation == new.generation && !say_the_same(old, new) {
            true => Relation::Split,
            false => Relation::Shared,
        };
    }
    if let Some(previous) = newer.previous.as_ref().filter(|previous| previous.generation == old.generation)
        && say_the_same(old, previous)
    {
        return Relation::Shared;
    }
    match knows_last_epoch(new, old) {
        true => Relation::Shared,
        false if age(old).0 < new.epochs.first().map_or(0, |epoch| epoch.epoch) => Relation::Unknown,
        false => Relation::Split,
    }
}

/// Whether one superblock tells of the newest epoch of another.
pub(crate) fn knows_last_epoch(one: &Superblock, other: &Superblock) -> bool {
    let last = other.epochs.last();
    last.is_some_and(|last| one.epochs.iter().any(|epoch| epoch.epoch == last.epoch))
}

/// Superblocks of one generation tell of one checkpoint, or they are of different histories.
fn say_the_same(one: &Superblock, other: &Superblock) -> bool {
    one.checkpoint == other.checkpoint && one.journal_start == other.journal_start && one.epochs == other.epochs
}
