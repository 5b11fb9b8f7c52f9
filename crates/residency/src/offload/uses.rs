//! Who used names, and when: in memory until a step notes it with the directory.
//!
//! A file that is opened or changed counts as a use of the directory that it lies in. Memory is bounded: beyond that everything counts as used.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stere_faults::{Bug, is_planted};
use stere_format::{FileKind, Key, NamesUse};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;

use super::{note_of, seconds};
use crate::offload::Offload;

/// Inodes that are remembered; more are many for the time between two steps.
const REMEMBERED_MAX: usize = 1 << 16;
/// Notes that are put in one transaction.
const BATCH: usize = 128;

/// Uses that are not noted yet.
#[derive(Default)]
pub struct Uses {
    inodes: FxHashMap<u64, u64>,
    /// Everything counts as used then.
    pub all_seconds: u64,
    /// A directory is to be looked at that was not when it was last looked how soon.
    pub has_news: bool,
}

impl Uses {
    pub fn note(&mut self, inode: u64, now_seconds: u64) {
        if self.inodes.len() < REMEMBERED_MAX || self.inodes.contains_key(&inode) {
            self.inodes.insert(inode, now_seconds);
            assert!(self.inodes.len() <= REMEMBERED_MAX, "inodes that are remembered are bounded");
        } else {
            self.all_seconds = now_seconds;
        }
    }

    /// Whether somebody used the inode since that was last noted.
    pub fn has(&self, inode: u64) -> bool {
        self.inodes.contains_key(&inode)
    }
}

impl Offload {
    /// Somebody lists, looks up, opens or changes something: said before he does, so that it does not go meanwhile.
    #[inline]
    pub fn note_use(&self, caller: &Caller<'_>, inode: u64) {
        if self.is_on() && !is_planted(Bug::UseOfNamesForgotten) {
            self.uses.lock().note(inode, seconds(caller));
        }
    }

    /// Notes with directories when they were used. Before a mount ends, and now and then.
    pub fn save_uses(&self, caller: &Caller<'_>) -> Result<(), Error> {
        if !self.is_on() {
            return Ok(());
        }
        let mut round = self.round.lock();
        self.save_uses_of(&caller.skipping_offloaded(), &mut round)
    }

    pub fn save_uses_of(&self, caller: &Caller<'_>, round: &mut super::round::Round) -> Result<(), Error> {
        let used = std::mem::take(&mut self.uses.lock().inodes);
        if used.is_empty() {
            return Ok(());
        }
        round.give_up(&used.keys().copied().collect());
        let saved = self.note_used(caller, &used, round.shortest_seconds);
        if saved.is_err() {
            let mut uses = self.uses.lock();
            used.into_iter().for_each(|(inode, at)| uses.note(inode, at));
        }
        round.next_seconds = round.next_seconds.min(saved?);
        Ok(())
    }

    /// When the first of those is to be looked at. Some came back without a directory above, which may say how long their names
    /// stay: they are looked at after `age_unknown_seconds`, and again until that is back.
    fn note_used(
        &self,
        caller: &Caller<'_>,
        used: &FxHashMap<u64, u64>,
        age_unknown_seconds: u64,
    ) -> Result<u64, Error> {
        let mut directories: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (inode, at) in used {
            // Who uses what is away brings it back: that notes it.
            if self.core.store.offload().is_folded(&Key::inode(*inode)) {
                continue;
            }
            let value = self.core.store.view(caller.io, |view| stere_file::inode_if_any(view, *inode))?;
            let Some(value) = value else { continue };
            let is_noted_itself = value.kind() == Some(FileKind::Directory)
                || self.core.store.offload().is_folded(&Key::dirent_hash(value.parent, 0));
            let noted = if is_noted_itself { *inode } else { value.parent };
            let age_seconds = match self.place_of_names(caller, noted) {
                Ok(place) => place.filter(|place| place.top != noted).map(|place| place.age_seconds),
                Err(Error::Elsewhere(..)) => Some(age_unknown_seconds),
                Err(error) => return Err(error),
            };
            if let Some(age_seconds) = age_seconds {
                let entry = directories.entry(noted).or_default();
                *entry = (entry.0.max(*at), age_seconds);
            }
        }
        let first = directories.values().map(|(at, age)| at.saturating_add(*age)).min().unwrap_or(u64::MAX);
        let all: Vec<(u64, (u64, u64))> = directories.into_iter().collect();
        for some in all.chunks(BATCH) {
            self.core.store.update(caller.io, |transaction| {
                for (directory, (at, age)) in some {
                    let key = Key::names_use(*directory);
                    let note = transaction.get(&key)?.map(|bytes| note_of(&bytes));
                    let fresh = NamesUse { is_new: false, used_seconds: 0, look_seconds: at.saturating_add(*age) };
                    let note = note.unwrap_or(fresh);
                    let used_seconds = note.used_seconds.max(*at);
                    transaction.put(key, &NamesUse { used_seconds, ..note }.encode());
                }
                Ok::<_, Error>(())
            })?;
        }
        Ok(first)
    }
}
