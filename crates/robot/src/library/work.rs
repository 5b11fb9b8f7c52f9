//! What is done with a cartridge in a drive, without the library's lock. The cartridge is nobody else's meanwhile.

use std::time::Duration;

use stere_format::CartridgeEntry;

use super::{Act, Library, Original, Sink, State};
use crate::cartridge::{Cartridge, Label, Written};
use crate::catalogue::Standing;
use crate::drive::Drive;
use crate::error::RobotError;
use crate::sense::SenseKey;

/// What is in the drive, as far as is known.
pub struct Loaded {
    pub bay: usize,
    pub barcode: Option<String>,
    /// Its label was read.
    pub is_checked: bool,
}

/// A new measurement counts for a quarter.
fn mean(old: Duration, new: Duration) -> Duration {
    (old * 3 + new) / 4
}

impl Library {
    pub(super) fn cartridge<'a>(&'a self, drive: &'a mut Drive, barcode: &'a str) -> Cartridge<'a> {
        let generation = self.state.lock().catalogue.known(barcode).generation;
        Cartridge { drive, set: &self.options.set, barcode, unit_bytes: self.options.unit_bytes(), generation }
    }

    pub(super) fn work(&self, drive: &mut Drive, loaded: &mut Loaded, want: &str, act: &Act) -> Result<(), RobotError> {
        if let Act::PutAway = act {
            if loaded.barcode.as_deref() == Some(want) {
                self.unload(drive, loaded)?;
            }
            return Ok(());
        }
        if matches!(act, Act::Look) && loaded.barcode.as_deref() == Some(want) {
            // What was known of it is in doubt, also if it is in the drive.
            loaded.is_checked = false;
        }
        let is_written = matches!(act, Act::Put { .. } | Act::Renew);
        let outcome = self.bring(drive, loaded, want, is_written).and_then(|()| match act {
            Act::Get { name, offset, length, sink } => self.get_from(drive, want, name, *offset, *length, sink),
            Act::Put { name, bytes, original } => self.put_on(drive, want, (name, bytes), original.as_ref()),
            Act::Renew => self.renew(drive, want),
            Act::Look | Act::PutAway => Ok(()),
        });
        if outcome.as_ref().is_err_and(RobotError::is_attention) {
            // It was reset, or somebody changed the medium: who knows which it is.
            loaded.is_checked = false;
        }
        outcome
    }

    /// The wanted cartridge is in the drive afterwards, and is what it should be.
    fn bring(&self, drive: &mut Drive, loaded: &mut Loaded, want: &str, is_written: bool) -> Result<(), RobotError> {
        // A blank cartridge has no label that tells whether the arm took the right one, and gets one now.
        let is_labelled_now = || {
            let standing = self.state.lock().catalogue.known(want).standing;
            is_written && matches!(standing, Standing::Blank | Standing::Cleared)
        };
        if loaded.is_checked && loaded.barcode.as_deref() == Some(want) && !is_labelled_now() {
            return Ok(());
        }
        let start = (self.clock)();
        let mut is_again = false;
        loop {
            if loaded.barcode.as_deref() != Some(want) {
                self.unload(drive, loaded)?;
                self.fetch(loaded.bay, want)?;
                (loaded.barcode, loaded.is_checked) = (Some(want.to_owned()), false);
            }
            drive.make_ready()?;
            let checked = self.check(drive, want).and_then(|()| match is_labelled_now() {
                true => self.check_fetched(loaded.bay, want),
                false => Ok(()),
            });
            match checked {
                // The arm may have mistaken one for another.
                Err(RobotError::Mislabelled { barcode, found }) if !is_again => {
                    is_again = true;
                    tracing::warn!(barcode, found, "another cartridge is in the drive; it is fetched once more");
                    self.unload(drive, loaded)?;
                    self.refresh(true)?;
                }
                outcome => {
                    outcome?;
                    break;
                }
            }
        }
        loaded.is_checked = true;
        let took = (self.clock)().saturating_sub(start);
        let pace = &mut self.state.lock().pace;
        pace.exchange = mean(pace.exchange, took);
        Ok(())
    }

    /// Reads the label, and finds out what is on a cartridge that is new here.
    fn check(&self, drive: &mut Drive, want: &str) -> Result<(), RobotError> {
        let known = self.state.lock().catalogue.known(want);
        let (standing, remembered) = (known.standing, known.generation);
        let mislabelled = |found: String| RobotError::Mislabelled { barcode: want.to_owned(), found };
        let foreign = |found: String| RobotError::Foreign { barcode: want.to_owned(), found };
        let note = |standing| self.state.lock().catalogue.change(want, |known| known.standing = standing);
        let mut cartridge = self.cartridge(drive, want);
        match (cartridge.label()?, standing) {
            (Label::Blank, Standing::Ours) => Err(mislabelled("a blank one".into())),
            (Label::Blank, Standing::Blank | Standing::Cleared) => Ok(()),
            (Label::Blank, _) => note(Standing::Blank),
            // It is believed to be what it was: the next drive may read it.
            (Label::Unreadable(why), _) => Err(RobotError::Unreadable { barcode: want.to_owned(), why }),
            (Label::Foreign(found), Standing::Ours | Standing::Cleared) => {
                Err(mislabelled(format!("none of ours: {found}")))
            }
            (Label::Foreign(found), _) => note(Standing::Foreign).and_then(|()| Err(foreign(found))),
            (Label::Set { set, .. }, _) if set != self.options.set => {
                note(Standing::Foreign).and_then(|()| Err(foreign(format!("the set '{set}'"))))
            }
            (Label::Set { barcode, .. }, _) if barcode != want => Err(mislabelled(barcode)),
            (Label::Set { generation, .. }, Standing::Ours | Standing::Cleared) if generation == remembered => Ok(()),
            (Label::Set { .. }, _) => self.look(drive, want),
        }
    }

    /// Finds out what is on a cartridge, and believes only that.
    pub(super) fn look(&self, drive: &mut Drive, barcode: &str) -> Result<(), RobotError> {
        let found = self.cartridge(drive, barcode).scan()?;
        tracing::info!(barcode, files = found.files, objects = found.entries.len(), "a cartridge was looked at");
        let unreadable = found.unreadable_files;
        let mut state = self.state.lock();
        state.catalogue.replace(barcode, found)?;
        if unreadable > 0 {
            // It is looked at again, by the next mount too, and takes nothing until all of it is known.
            state.catalogue.change(barcode, |known| known.standing = Standing::Unknown)?;
            let complaint = format!(
                "the beginnings of {unreadable} of its files cannot be read; clean the drive, then mount the pool again"
            );
            tracing::warn!(barcode, complaint, "a cartridge is known in part");
            state.complaints.insert(barcode.to_owned(), complaint);
        }
        Ok(())
    }

    /// Says on the cartridge what it holds, if that has changed, and brings it to a slot.
    fn unload(&self, drive: &mut Drive, loaded: &mut Loaded) -> Result<(), RobotError> {
        let Some(barcode) = loaded.barcode.clone() else { return Ok(()) };
        if loaded.is_checked
            && let Err(error) = self.write_index(drive, &barcode)
        {
            // It can be found out without.
            tracing::warn!(barcode, %error, "a cartridge is put away without an index");
        }
        loaded.is_checked = false;
        match drive.unload() {
            Err(error) if error.key() != Some(SenseKey::NotReady) => return Err(error),
            _ => {}
        }
        self.return_to_slot(loaded.bay)?;
        loaded.barcode = None;
        Ok(())
    }

    /// Takes a cartridge out of a drive that failed, if it lets go of it, so that another drive can try.
    pub(super) fn take_out(&self, drive: &mut Drive, loaded: &mut Loaded) {
        loaded.is_checked = false;
        // The drive may be dead; the arm tells whether the cartridge came out.
        let unloaded = drive.unload();
        match self.return_to_slot(loaded.bay) {
            Ok(()) => loaded.barcode = None,
            Err(error) => tracing::warn!(drive = drive.describe(), ?unloaded, %error, "a cartridge stays in its drive"),
        }
    }

    /// Only if the last one is not true any more.
    fn write_index(&self, drive: &mut Drive, barcode: &str) -> Result<(), RobotError> {
        let (known, ordinal) = {
            let mut state = self.state.lock();
            let known = state.catalogue.known(barcode);
            let is_needed = known.standing == Standing::Ours && !known.is_indexed && !known.is_ragged;
            if !is_needed || known.files < 2 || self.options.is_read_only {
                return Ok(());
            }
            (known, state.catalogue.next_ordinal())
        };
        let entries: Vec<CartridgeEntry> = known.entries.into_values().collect();
        let written = self.cartridge(drive, barcode).write_index(known.files, ordinal, entries)?;
        self.state.lock().catalogue.change(barcode, |known| match written {
            Written::Whole { is_near_end } => {
                (known.files, known.is_indexed) = (known.files + 1, true);
                known.is_full |= is_near_end;
            }
            Written::Ended { is_ragged } => {
                (known.is_full, known.is_ragged) = (true, is_ragged);
                known.files += u32::from(!is_ragged);
            }
        })
    }

    fn get_from(
        &self,
        drive: &mut Drive,
        barcode: &str,
        name: &str,
        offset: u64,
        length: usize,
        sink: &Sink,
    ) -> Result<(), RobotError> {
        let entry = {
            let state = self.state.lock();
            match state.catalogue.find(name) {
                Some((there, entry)) if there == barcode => entry.clone(),
                _ => return Err(RobotError::Stale { barcode: barcode.to_owned() }),
            }
        };
        let start = (self.clock)();
        let read = |drive: &mut Drive| {
            let mut given = 0;
            self.cartridge(drive, barcode).read(&entry, offset, length, &mut |piece| {
                sink.give(given, piece)?;
                given += piece.len();
                Ok(())
            })
        };
        let outcome = match read(drive) {
            Err(RobotError::Stale { .. }) if drive.was_led_astray() => read(drive),
            outcome => outcome,
        };
        match outcome {
            Ok(()) => {
                let took = (self.clock)().saturating_sub(start);
                let rate = self.state.lock().pace.bytes_per_second;
                let transfer = Duration::from_secs_f64(length as f64 / rate.max(1.0));
                let pace = &mut self.state.lock().pace;
                pace.position = mean(pace.position, took.saturating_sub(transfer));
                Ok(())
            }
            Err(error @ RobotError::Stale { .. }) => {
                tracing::warn!(barcode, name, "a cartridge is not as it is remembered to be; it is looked at");
                self.look(drive, barcode)?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn put_on(
        &self,
        drive: &mut Drive,
        barcode: &str,
        object: (&str, &[u8]),
        original: Option<&Original>,
    ) -> Result<(), RobotError> {
        let no_room = || RobotError::NoRoom { set: self.options.set.clone() };
        let known = self.state.lock().catalogue.known(barcode);
        match known.standing {
            _ if known.is_reusable() => self.renew(drive, barcode)?,
            Standing::Ours if known.is_full => return Err(no_room()),
            Standing::Ours => {}
            Standing::Blank => {
                self.cartridge(drive, barcode).write_label()?;
                self.state.lock().catalogue.begin_anew(barcode, 0)?;
            }
            Standing::Unknown | Standing::Foreign | Standing::Cleared => {
                return Err(RobotError::Foreign { barcode: barcode.to_owned(), found: "unknown".into() });
            }
        }
        match self.append(drive, barcode, object, original) {
            Err(RobotError::Stale { .. }) => {
                self.look(drive, barcode)?;
                // Of which not all is known takes nothing.
                let standing = self.state.lock().catalogue.known(barcode).standing;
                let is_known = standing == Standing::Ours;
                if is_known { self.append(drive, barcode, object, original) } else { Err(no_room()) }
            }
            // It takes nothing more there; what it has may still be read.
            Err(error) if matches!(error.key(), Some(SenseKey::Medium | SenseKey::Protected)) => {
                tracing::warn!(barcode, %error, "a cartridge takes nothing more");
                self.state.lock().catalogue.change(barcode, |known| known.is_full = true)?;
                Err(no_room())
            }
            outcome => outcome,
        }
    }

    fn append(
        &self,
        drive: &mut Drive,
        barcode: &str,
        (name, bytes): (&str, &[u8]),
        original: Option<&Original>,
    ) -> Result<(), RobotError> {
        let is_current = |state: &State, original: &Original| state.catalogue.is_current(&original.0, &original.1);
        let (mut known, ordinal) = {
            let mut state = self.state.lock();
            let ordinal = match original {
                // Deleted, or put anew, while it was read.
                Some(original) if !is_current(&state, original) => return Ok(()),
                // A copy is no newer than what it is a copy of.
                Some((_, entry)) => entry.ordinal,
                None => state.catalogue.next_ordinal(),
            };
            (state.catalogue.known(barcode), ordinal)
        };
        assert_eq!(known.standing, Standing::Ours, "only cartridges of ours are written to");
        let mut cartridge = self.cartridge(drive, barcode);
        if known.is_ragged {
            if !cartridge.end_ragged(known.files)? {
                return self.end(drive, barcode, true);
            }
            known.files += 1;
            let ended = |known: &mut crate::catalogue::Known| {
                (known.files, known.is_ragged, known.is_indexed) = (known.files + 1, false, false);
            };
            self.state.lock().catalogue.change(barcode, ended)?;
        }
        let (file, unit_bytes) = (known.files, self.options.unit_bytes());
        let object_bytes = bytes.len() as u64;
        let entry = CartridgeEntry { file, unit_bytes, ordinal, object_bytes, name: name.to_owned() };
        match cartridge.append(file, name, ordinal, bytes)? {
            Written::Whole { is_near_end } => {
                // Some drives take what does not fit any more.
                if !is_near_end || self.is_there(drive, barcode, &entry, bytes)? {
                    let mut state = self.state.lock();
                    return match original.is_none_or(|original| is_current(&state, original)) {
                        true => state.catalogue.add(barcode, entry, is_near_end),
                        false => state.catalogue.add_dead(barcode, &entry, is_near_end),
                    };
                }
                self.end(drive, barcode, false)
            }
            Written::Ended { is_ragged } => self.end(drive, barcode, is_ragged),
        }
    }

    fn is_there(
        &self,
        drive: &mut Drive,
        barcode: &str,
        entry: &CartridgeEntry,
        bytes: &[u8],
    ) -> Result<bool, RobotError> {
        let mut rest = Some(bytes);
        let mut compare = |piece: &[u8]| {
            rest = rest.and_then(|rest| rest.strip_prefix(piece));
            Ok(())
        };
        match self.cartridge(drive, barcode).read(entry, 0, bytes.len(), &mut compare) {
            Ok(()) => Ok(rest.is_some_and(<[u8]>::is_empty)),
            Err(error) if error.is_of_device() || error.is_attention() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// The medium ended before the object; the next cartridge takes it.
    fn end(&self, drive: &mut Drive, barcode: &str, is_ragged: bool) -> Result<(), RobotError> {
        tracing::info!(barcode, "a cartridge is full");
        self.state.lock().catalogue.change(barcode, |known| {
            (known.is_full, known.is_ragged, known.is_indexed) = (true, is_ragged, false);
            known.files += u32::from(!is_ragged);
        })?;
        if let Err(error) = self.write_index(drive, barcode) {
            tracing::info!(barcode, %error, "the full cartridge has no index at its end");
        }
        Err(RobotError::NoRoom { set: self.options.set.clone() })
    }
}
