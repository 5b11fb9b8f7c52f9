//! Retirement of a volume: all that is on it goes to another one, its heir, and then it is no part of the pool any more.
//!
//! An object is the same on every volume, so a segment moves by being wanted on the heir too: it is copied out as any other, read from
//! devices or from whichever volume has it, read back and compared. Nothing is taken from the old volume before all of it is there.
//! What the table says is durable at every step, so after a crash it goes on by itself. From the first moment policies that name the
//! volume mean the heir; and its number stands for the heir's as long as one of them names it. Invariants: an heir is no volume that
//! is being retired; a number that is passed on is nobody's. Read next: `upload.rs`, `media.rs`.

use std::sync::Arc;

use stere_faults::{Bug, is_planted};
use stere_format::{Succession, Tertiary, VolumeEntry};
use stere_log::{Io, Segment};

use super::media::Media;
use stere_engine::Error;
use stere_recall::object_bytes;

fn refused<T>(text: String) -> Result<T, Error> {
    Err(Error::Pool(text))
}

/// How many there are, and bytes of their objects.
fn bytes_of(segments: &[Arc<Segment>]) -> (u64, u64) {
    (segments.len() as u64, segments.iter().map(|segment| object_bytes(segment)).sum())
}

impl Media {
    /// Segments of a volume that its heir lacks still, and the bytes of their objects.
    pub fn left_to_retire(&self, number: u8) -> (u64, u64) {
        self.volumes.heir(number).map_or((0, 0), |heir| bytes_of(&self.not_on_heir(number, heir)))
    }

    fn not_on_heir(&self, number: u8, heir: u8) -> Vec<Arc<Segment>> {
        let mut segments = self.engine.log().segments.everywhere();
        segments.retain(|segment| {
            let Tertiary { wanted, there } = segment.tertiary();
            (wanted | there) >> number & 1 == 1 && there >> heir & 1 == 0 && segment.live_bytes() > 0
        });
        segments
    }

    /// The volume that takes over from another one if nobody says which: of those that hold nothing together with it, the one with most
    /// room, as far as that is known.
    pub fn heir_for(&self, number: u8) -> Result<u8, Error> {
        let mut why = "the pool has no other medium that is there; add one first".to_owned();
        let mut best = None;
        for status in self.volume_statuses() {
            let heir = status.entry.number;
            match self.check_heir(number, heir) {
                Ok(()) => {
                    let free_bytes = self.volumes.free_bytes_of(heir).unwrap_or(u64::MAX);
                    best = best.max(Some((free_bytes, u64::MAX - status.stored_bytes, heir)));
                }
                Err(Error::Pool(text)) if heir != number => why = text,
                Err(_) => {}
            }
        }
        best.map_or_else(|| refused(why), |(_, _, heir)| Ok(heir))
    }

    /// What would be copied, segments and bytes, if that can be done at all.
    pub fn check_retirement(&self, number: u8, heir: u8) -> Result<(u64, u64), Error> {
        self.check_heir(number, heir)?;
        Ok(bytes_of(&self.not_on_heir(number, heir)))
    }

    fn known_entry(&self, number: u8) -> Result<VolumeEntry, Error> {
        self.volumes.volume_entry(number).ok_or_else(|| Error::Pool("the pool has no such medium".into()))
    }

    /// Whether a volume can take over all that another one has, and is meant to have.
    fn check_heir(&self, number: u8, heir: u8) -> Result<(), Error> {
        let (old, new) = (self.known_entry(number)?, self.known_entry(heir)?);
        if number == heir {
            return refused(format!("medium {} cannot take over from itself; name another one", old.name));
        }
        let is_there = self.volumes.table.read().get(&heir).is_some_and(|known| known.volume.is_some());
        if new.is_offline || !is_there {
            return refused(format!("medium {} is not there; bring it, or name another one", new.name));
        }
        if self.volumes.is_retiring(heir) {
            return refused(format!("medium {} is being retired itself; name another one", new.name));
        }
        if let Some((other, _)) = self.volumes.retiring().into_iter().find(|(_, heir)| *heir == number) {
            return refused(format!(
                "medium {} is being retired to {}; wait until that is done, `stere media list` tells",
                other.name, old.name
            ));
        }
        self.check_apart(&old, &new)?;
        let (_, needed_bytes) = bytes_of(&self.not_on_heir(number, heir));
        if let Some(free_bytes) = self.volumes.free_bytes_of(heir).filter(|free_bytes| *free_bytes < needed_bytes) {
            return refused(format!(
                "medium {} has no room for what is on {}: {needed_bytes} bytes are needed and {free_bytes} are free; free some, or name another medium",
                new.name, old.name
            ));
        }
        Ok(())
    }

    /// Two copies on one volume are one.
    fn check_apart(&self, old: &VolumeEntry, new: &VolumeEntry) -> Result<(), Error> {
        let both = old.bit() | new.bit();
        let policies = self.sets_in_policies()?;
        let is_both = |set: u16| self.volumes.with_heirs(set) & both == both;
        let asking = policies.iter().filter(|set| is_both(**set)).count();
        let segments = self.engine.log().segments.everywhere();
        let is_on_both = |segment: &&Arc<Segment>| {
            let Tertiary { wanted, there } = segment.tertiary();
            segment.live_bytes() > 0 && (wanted | there) & both == both
        };
        let shared = segments.iter().filter(is_on_both).count();
        let is_going_on = old.succession.heir() == Some(new.number);
        if asking == 0 && (shared == 0 || is_going_on) {
            return Ok(());
        }
        refused(format!(
            "medium {} has copies of what is on {} ({shared} segments; {asking} files or directories ask for both), so there would be fewer copies: add another medium and name that, or take {1} away with `stere device remove`",
            new.name, old.name
        ))
    }

    /// Begins to retire a volume: from now on policies that name it mean its heir, and all that is on it is copied there. Going on with
    /// what was begun is no error. Durable when it returns.
    pub fn retire_volume(&self, number: u8, heir: u8) -> Result<(), Error> {
        self.engine.check_writable()?;
        let _alone = (self.volumes.work.lock(), self.volumes.uploads.write());
        let entry = self.known_entry(number)?;
        match entry.succession.heir() {
            Some(known) if known == heir => return Ok(()),
            Some(known) => {
                let (name, to) = (entry.name, self.known_entry(known)?.name);
                return refused(format!(
                    "medium {name} is being retired to {to} already; remove {to} to end that (`stere device remove`)"
                ));
            }
            None => self.check_heir(number, heir)?,
        }
        self.set_succession(VolumeEntry { succession: Succession::Retiring(heir), ..entry })?;
        self.pass_on()?;
        self.volumes.stuck.lock().clear();
        Ok(())
    }

    fn set_succession(&self, entry: VolumeEntry) -> Result<(), Error> {
        assert_ne!(entry.succession.heir(), Some(entry.number), "volume {} takes over from itself", entry.name);
        self.put_volume(&entry)?;
        if let Some(known) = self.volumes.table.write().get_mut(&entry.number) {
            known.entry = entry;
        }
        Ok(())
    }

    /// Segments of volumes that are being, or were, retired are wanted on their heirs.
    pub(super) fn pass_on(&self) -> Result<(), Error> {
        let retired: Vec<u8> = self.volumes.retired.read().keys().copied().collect();
        let retiring = self.volumes.retiring();
        let gone = retired.into_iter().fold(0u16, |set, number| set | 1 << number);
        let going = retiring.iter().fold(0u16, |set, (entry, _)| set | entry.bit());
        if gone | going == 0 {
            return Ok(());
        }
        let passed_on = |segment: &Segment| {
            let Tertiary { wanted, there } = segment.tertiary();
            // What has no bytes alive any more goes as it is.
            let there = if segment.live_bytes() > 0 { there & !gone } else { there };
            Tertiary { wanted: self.volumes.with_heirs(wanted) | (there & going), there }
        };
        let is_behind = |segment: &Segment| {
            let Tertiary { wanted, there } = segment.tertiary();
            (wanted | there) & (gone | going) != 0
                && segment.live_bytes() > 0
                && passed_on(segment) != segment.tertiary()
        };
        self.engine.log().end_segments(&is_behind);
        let segments = self.engine.log().segments.everywhere();
        let behind: Vec<_> = segments.iter().filter(|segment| is_behind(segment)).collect();
        if behind.is_empty() {
            return Ok(());
        }
        {
            let mut change = self.engine.change_segments();
            for segment in behind {
                segment.set_tertiary(passed_on(segment));
                change.enter(segment);
            }
            change.take_effect();
        }
        self.engine.commit(Io::BLOCKING)
    }

    fn is_retired_now(&self, number: u8, heir: u8) -> bool {
        is_planted(Bug::RetiredEarly) || self.not_on_heir(number, heir).is_empty()
    }

    /// Lets the volumes go of which their heirs have everything; true if there was one.
    pub(super) fn finish_retirements(&self) -> Result<bool, Error> {
        let mut is_any = false;
        for (entry, heir) in self.volumes.retiring() {
            // Nobody is waited for in vain.
            if !self.is_retired_now(entry.number, heir) {
                continue;
            }
            let _nobody_copies_out = self.volumes.uploads.write();
            self.pass_on()?;
            if !self.is_retired_now(entry.number, heir) {
                continue;
            }
            let name = entry.name.clone();
            let entry = VolumeEntry { succession: Succession::Retired(heir), ..entry };
            self.forget_volume(entry.number, Some(entry))?;
            tracing::info!(volume = name, "the medium is retired; what is on it still may be deleted");
            is_any = true;
        }
        Ok(is_any)
    }

    /// What was to go to this volume stays where it was: the volume is removed.
    pub(super) fn end_retirements_to(&self, heir: u8) -> Result<(), Error> {
        for (entry, _) in self.volumes.retiring().into_iter().filter(|(_, known)| *known == heir) {
            self.set_succession(VolumeEntry { succession: Succession::Stays, ..entry })?;
        }
        Ok(())
    }
}
