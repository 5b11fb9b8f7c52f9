//! Cartridges on which nothing is alive are written again from their beginning, and others are emptied so that they can be.
//!
//! A cartridge is used again by need: when no other has room. What is on it ends with one block, its new label, which has a larger
//! generation; in the catalogue it is `Cleared` before that. So whatever a crash leaves is either as it was or begun anew, and blocks of the
//! old generation that are still to be read count for nothing. Invariants: before a label is written over, the tape was seen to hold what
//! the catalogue knows and nothing else; at least one cartridge is free when others are emptied, and nobody else fills it meanwhile.
//! Read next: `work.rs`, `docs/design/robot.md`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use stere_device::{Cancellation, Take};
use stere_format::CartridgeEntry;

use super::{Act, Library, State};
use crate::cartridge::Label;
use crate::catalogue::{Known, Standing};
use crate::drive::Drive;
use crate::error::RobotError;
use crate::sense::SenseKey;

/// A cartridge is emptied only if so many hundredths of it at least are dead: else next to nothing is gained.
const DEAD_PERCENT_MIN: u64 = 5;

impl Library {
    /// Writes a new label on a cartridge of which nothing is needed any more, or says `NoRoom` and notes why it is not.
    pub(super) fn renew(&self, drive: &mut Drive, barcode: &str) -> Result<(), RobotError> {
        let no_room = || RobotError::NoRoom { set: self.options.set.clone() };
        let keep = |why: &str| {
            tracing::warn!(barcode, "a cartridge is not used again: {why}");
            let note =
                |known: &mut Known| (known.standing, known.is_full, known.is_kept) = (Standing::Ours, true, true);
            self.state.lock().catalogue.change(barcode, note)?;
            Err(no_room())
        };
        if !self.is_as_remembered(drive, barcode)? {
            self.look(drive, barcode)?;
            if self.has_use(barcode) {
                return Err(no_room());
            }
            if !self.is_as_remembered(drive, barcode)? {
                return keep("where it ends is not sure");
            }
        }
        let generation = {
            let mut state = self.state.lock();
            // Somebody may have copied something to it, or brought it back to life.
            if !state.catalogue.known(barcode).entries.is_empty() {
                return Err(no_room());
            }
            state.catalogue.change(barcode, |known| known.standing = Standing::Cleared)?;
            state.catalogue.next_ordinal()
        };
        let mut cartridge = self.cartridge(drive, barcode);
        assert!(generation > cartridge.generation, "each generation is larger than the one before");
        cartridge.generation = generation;
        match cartridge.write_label() {
            Ok(()) => {}
            Err(error) if matches!(error.key(), Some(SenseKey::Medium | SenseKey::Protected)) => {
                return keep(&error.to_string());
            }
            Err(error @ RobotError::NoRoom { .. }) => return keep(&error.to_string()),
            Err(error) => return Err(error),
        }
        tracing::info!(barcode, generation, "a cartridge is used again");
        self.state.lock().catalogue.begin_anew(barcode, generation)
    }

    /// Something counts on it, or may.
    fn has_use(&self, barcode: &str) -> bool {
        let known = self.state.lock().catalogue.known(barcode);
        !known.entries.is_empty() || !matches!(known.standing, Standing::Ours | Standing::Cleared)
    }

    /// Whether the tape holds what the catalogue knows, and nothing behind it; somebody who knows nothing of this catalogue may have written.
    fn is_as_remembered(&self, drive: &mut Drive, barcode: &str) -> Result<bool, RobotError> {
        let known = self.state.lock().catalogue.known(barcode);
        let mut cartridge = self.cartridge(drive, barcode);
        match cartridge.label()? {
            // The power went where the label was to be.
            Label::Blank => return Ok(known.standing == Standing::Cleared),
            Label::Set { set, barcode: found, generation } => {
                if set != self.options.set || found != barcode || generation != known.generation {
                    return Ok(false);
                }
            }
            Label::Foreign(_) | Label::Unreadable(_) => return Ok(false),
        }
        if known.is_ragged {
            let found = cartridge.scan()?;
            return Ok(found.files == known.files && found.is_ragged && found.unreadable_files == 0);
        }
        match cartridge.go_to_end(known.files) {
            Ok(()) => Ok(true),
            Err(RobotError::Stale { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Somebody asks for it: a cartridge on which nothing is alive is written again from its beginning now.
    pub fn use_again(&self, barcode: &str) -> Result<(), RobotError> {
        self.look_at_all()?;
        self.need(barcode)?;
        let known = self.state.lock().catalogue.known(barcode);
        if !known.entries.is_empty() || known.standing != Standing::Ours || known.is_kept || self.options.is_read_only {
            return Err(RobotError::InUse { barcode: barcode.to_owned(), objects: known.entries.len() as u64 });
        }
        self.ask(barcode, u32::MAX, Act::Renew)
    }

    /// Empties others before the last cartridge that is free is written to: afterwards there would be none to copy to.
    pub(super) fn keep_one_free(&self) -> Result<(), RobotError> {
        // Where people are the arm nobody knows what else they have; they are asked for it.
        if self.is_fed_by_people || self.is_one_free() || self.cartridge_to_empty().is_none() {
            return Ok(());
        }
        let _alone = self.filling.write();
        while !self.is_one_free()
            && let Some(barcode) = self.cartridge_to_empty()
        {
            match self.copy_away(&barcode) {
                Ok(bytes) => tracing::info!(barcode, bytes, "a cartridge was emptied"),
                // What was copied is not in vain; with more room it goes on.
                Err(RobotError::NoRoom { .. }) => return Ok(()),
                Err(error) if error.is_of_device() || error == RobotError::NoDrive => return Err(error),
                Err(error) => {
                    tracing::warn!(barcode, %error, "a cartridge cannot be emptied");
                    self.state.lock().not_emptied.insert(barcode);
                }
            }
        }
        Ok(())
    }

    /// Copies what counts on a cartridge to others, so that it can be used again. Tells how many bytes that were.
    pub fn empty(&self, barcode: &str) -> Result<u64, RobotError> {
        if self.options.is_read_only {
            return Err(RobotError::NoRoom { set: self.options.set.clone() });
        }
        self.look_at_all()?;
        self.need(barcode)?;
        let _alone = self.filling.write();
        self.copy_away(barcode)
    }

    /// As much is read as memory is given for it, then written: so one drive is enough, and its cartridges are not changed for each object.
    fn copy_away(&self, barcode: &str) -> Result<u64, RobotError> {
        let mut copied = 0;
        loop {
            let known = self.state.lock().catalogue.known(barcode);
            let mut held = 0;
            let batch = known.entries.into_values().take_while(|entry| {
                held += entry.object_bytes;
                held <= self.options.copied_at_once_bytes || held == entry.object_bytes
            });
            let batch: Vec<CartridgeEntry> = batch.collect();
            if batch.is_empty() {
                return Ok(copied);
            }
            let mut read = Vec::new();
            for entry in batch {
                if let Some(bytes) = self.read_whole(barcode, &entry)? {
                    read.push((entry, bytes));
                }
            }
            for (entry, bytes) in read {
                let length = bytes.len() as u64;
                copied += length;
                let original = (barcode.to_owned(), entry);
                self.put_somewhere(&original.1.name.clone(), &Arc::new(bytes), Some(original))?;
                self.copied_bytes.fetch_add(length, Ordering::Relaxed);
            }
        }
    }

    /// Bytes that were copied from one cartridge to another since the mount.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Ordering::Relaxed)
    }

    /// None if it does not count any more.
    fn read_whole(&self, barcode: &str, entry: &CartridgeEntry) -> Result<Option<Vec<u8>>, RobotError> {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let take: Take = {
            let bytes = bytes.clone();
            Arc::new(move |piece| bytes.lock().extend_from_slice(piece))
        };
        let outcome = self.get(&entry.name, 0, entry.object_bytes as usize, &take, &Cancellation::NONE);
        if !self.state.lock().catalogue.is_current(barcode, entry) {
            return Ok(None);
        }
        outcome?;
        let bytes = std::mem::take(&mut *bytes.lock());
        assert_eq!(bytes.len() as u64, entry.object_bytes, "what was read is whole");
        Ok(Some(bytes))
    }

    /// Whether one is free still when the next object was put.
    fn is_one_free(&self) -> bool {
        let state = self.state.lock();
        let has_room = self.usable(&state).any(|(_, known)| known.standing == Standing::Ours && !known.is_full);
        let free = self.usable(&state).filter(|(_, known)| is_free(known)).count();
        free > usize::from(!has_room)
    }

    /// Cartridges that are here, and nothing is said against.
    pub(super) fn usable<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (&'a String, Known)> {
        let present = state.present.iter().filter(|barcode| !state.complaints.contains_key(*barcode));
        present.map(|barcode| (barcode, state.catalogue.known(barcode)))
    }

    /// The one that has to be copied the least of, if what is gained is worth it and there is room for the copies.
    fn cartridge_to_empty(&self) -> Option<String> {
        let state = self.state.lock();
        let used: Vec<(&String, Known)> =
            self.usable(&state).filter(|(_, known)| known.standing == Standing::Ours).collect();
        // A tape does not say how much it takes: the one that took the most does.
        let most = used.iter().map(|(_, known)| known.written_bytes).max()?;
        let is_candidate = |(barcode, known): &&(&String, Known)| {
            let is_used_up = known.is_full && !known.is_kept && !state.not_emptied.contains(*barcode);
            is_used_up && known.live_bytes() > 0 && known.live_bytes() * 100 <= most * (100 - DEAD_PERCENT_MIN)
        };
        let emptiest = used.iter().filter(is_candidate).min_by_key(|(barcode, known)| (known.live_bytes(), *barcode));
        let has_room = |known: &Known| is_free(known) || known.standing == Standing::Ours && !known.is_full;
        let (barcode, _) = emptiest.filter(|_| self.usable(&state).any(|(_, known)| has_room(&known)))?;
        Some((*barcode).clone())
    }

    /// The fullest that has room, else a blank one, else one on which nothing is alive; of those that were tried already none. With whether
    /// all of its room is there.
    pub(super) fn cartridge_to_fill(&self, tried: &BTreeSet<String>) -> Option<(String, bool)> {
        let state = self.state.lock();
        let of = |is_one: fn(&Known) -> bool| {
            let untried = self.usable(&state).filter(|(barcode, _)| !tried.contains(*barcode));
            untried.filter(move |(_, known)| is_one(known))
        };
        let ours = of(|known| known.standing == Standing::Ours && !known.is_full)
            .max_by_key(|(barcode, known)| (known.files, std::cmp::Reverse((*barcode).clone())));
        let blank = || of(|known| known.standing == Standing::Blank && !known.is_full).next();
        // The one that was used the fewest times: media wear.
        let again = || of(Known::is_reusable).min_by_key(|(barcode, known)| (known.generation, (*barcode).clone()));
        ours.or_else(blank).or_else(again).map(|(barcode, known)| (barcode.clone(), is_free(&known)))
    }
}

/// Nothing is on it that counts, and it takes a whole cartridge's worth.
fn is_free(known: &Known) -> bool {
    known.is_reusable() || known.standing == Standing::Blank && !known.is_full
}
