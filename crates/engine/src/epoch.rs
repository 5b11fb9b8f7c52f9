//! Epochs: every mount begins a new one where the surviving journal ends, so that records of an abandoned future are never taken
//! for new ones.
//!
//! Invariants: epochs are random steps upwards, so that two mounts that know nothing of each other begin different ones; the list in
//! the superblocks keeps every epoch that covers a record which the journal still needs. Read next: the journal's `scan.rs`.

use stere_format::{Epoch, Superblock};

use crate::error::Error;
use crate::mirrors::wanted_journal;
use crate::recover::Recovery;
use crate::superblock::store_superblocks_of_epoch;

impl Recovery<'_> {
    /// Epochs from the first on that covers records which the journal still needs.
    pub(crate) fn epochs_kept(&self) -> usize {
        let superblocks = self.engine.superblocks.lock();
        let Some(superblock) = superblocks.first() else { return 0 };
        let start = superblock.journal_start.sequence;
        let mut pairs = superblock.epochs.windows(2);
        let first = pairs.position(|pair| pair[1].first_sequence > pair[0].first_sequence.max(start));
        first.map_or(0, |first| superblock.epochs.len() - first)
    }

    /// Begins a new epoch of the journal, so that records of an abandoned future are never taken for new ones.
    pub(crate) fn begin_epoch(&self, newest: &Superblock) -> Result<(), Error> {
        let mut journal = self.engine.journal.lock();
        let last = newest.epochs.last().map_or(0, |epoch| epoch.epoch);
        let epoch = next_epoch(self.engine.log.stripe.devices.newest_epoch(last), self.engine.options.epoch_nonce)?;
        // An empty journal is whole on any device. Else others take it over with the next checkpoint.
        if (journal.position, journal.sequence) == (newest.journal_start.position, newest.journal_start.sequence) {
            (journal.mirrors, journal.region_bytes) =
                wanted_journal(self.engine, &journal.mirrors, journal.region_bytes);
        }
        assert!(epoch > journal.epoch, "epoch {epoch} follows {}", journal.epoch);
        let mut state = self.engine.checkpointer.lock();
        {
            let mut superblocks = self.engine.superblocks.lock();
            for superblock in superblocks.iter_mut() {
                superblock.generation = state.generation + 1;
                superblock.clean = false;
                let next = Epoch { first_sequence: journal.sequence, epoch };
                add_epoch(&mut superblock.epochs, next, superblock.journal_start.sequence)?;
                // Who is away now holds nothing of the journal that is to come.
                superblock.journal_devices = journal.mirrors.iter().map(|mirror| mirror.device).collect();
                superblock.journal_bytes = journal.region_bytes;
            }
            store_superblocks_of_epoch(self.engine, &superblocks)?;
        }
        state.generation += 1;
        journal.epoch = epoch;
        journal.generation = state.generation;
        // Rows of this mount are later than all that a crash may have left in their places.
        self.engine.log.counters.raise(0, u64::from(epoch) << 32);
        let mut inner = self.engine.inner.write();
        inner.generation = state.generation;
        inner.active_generation = state.generation + 1;
        for freed in &mut inner.freed {
            freed.needed = state.generation + 1;
        }
        for left in &mut inner.left {
            left.needed = state.generation + 1;
        }
        inner.assert_invariants();
        Ok(())
    }
}

/// The number of the epoch after this one: a random step, so that two mounts that know nothing of each other begin different
/// ones. A step takes a small part of the numbers that are left, which lasts for more than a million mounts.
fn next_epoch(last: u32, nonce: u32) -> Result<u32, Error> {
    const PARTS: u32 = 1 << 16;
    let longest = ((u32::MAX - last) / PARTS).max(1);
    last.checked_add(1 + nonce % longest).ok_or_else(|| {
        Error::Pool("the superblocks count more mounts than are possible; run `stere check` on the devices".into())
    })
}

/// Adds an epoch, in place of the oldest that covers no record from `needed_from` on if there are too many.
fn add_epoch(epochs: &mut Vec<Epoch>, next: Epoch, needed_from: u64) -> Result<(), Error> {
    // A mount that began behind what is found now (a device with more of the journal is gone) covers nothing any more.
    for epoch in epochs.iter_mut() {
        epoch.first_sequence = epoch.first_sequence.min(next.first_sequence);
    }
    if epochs.len() >= Superblock::EPOCHS_MAX {
        let end_of = |at: usize| epochs.get(at + 1).map_or(next.first_sequence, |after| after.first_sequence);
        let needless = |at: &usize| end_of(*at) <= epochs[*at].first_sequence.max(needed_from);
        let needless = (0..epochs.len()).find(needless).ok_or_else(|| {
            Error::Pool(
                "too many mounts in a row ended before a checkpoint; this is a bug in stere, please report it".into(),
            )
        })?;
        epochs.remove(needless);
    }
    epochs.push(next);
    assert!(epochs.len() <= Superblock::EPOCHS_MAX, "a superblock has no room for {} epochs", epochs.len());
    let is_rising = |pair: &[Epoch]| pair[0].epoch < pair[1].epoch && pair[0].first_sequence <= pair[1].first_sequence;
    assert!(epochs.windows(2).all(is_rising), "epochs follow each other in the order of their records");
    Ok(())
}
