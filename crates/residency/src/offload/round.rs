//! Rounds over the notes of directories: which are due, what of them goes, and when the next round begins.
//!
//! A round is done in steps. What goes of several directories is gathered into bundles, by where it goes; a directory comes after all that
//! is in it. Memory: the pieces of the bundles that are not full yet. Read next: `../fold.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;

use stere_format::{FileKind, Key, NamesUse};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::walk::read_names;
use stere_store::ToFold;

use super::{note_of, seconds};
use crate::offload::Offload;
use crate::offload_ranges::{BUNDLE_BYTES, Gathered, Piece, inodes_of, next_bundle, whole};

/// How often uses are noted, in seconds.
const SAVE_SECONDS: u64 = 60;
/// Notes that are read at a time.
const NOTES_PER_VIEW: usize = 256;
/// A round takes place so often within the shortest age, and what cannot go is looked at so often within its own.
const ROUNDS_PER_AGE: u64 = 64;
const LOOKS_PER_AGE: u64 = 8;
/// Less than that is not worth a bundle, whose own keys take most of it.
const BUNDLE_BYTES_MIN: usize = 200;
/// Where so many bundles are begun, all are ended.
const GROUPS_MAX: usize = 64;
/// What it takes to look at some of a directory's names, in notes.
const PAGE_COSTS: usize = 32;
/// Directories above one another beyond which metadata is damaged.
const DEPTH_MAX: usize = 4096;

/// What goes into the same bundles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    /// The entry, of the directory that says so, below which it lies.
    directory: u64,
    tertiary: u16,
    volume: u32,
}

/// A directory, or a file by itself, as far as it is decided whether it goes.
struct Going {
    inode: u64,
    note: NamesUse,
    age_seconds: u64,
    /// What of it goes, after what is in it.
    pieces: Vec<Piece>,
    /// All of it goes; else what lies in it does, and it is to be looked at later already.
    is_whole: bool,
    /// The directory above, which may go then.
    above: Option<u64>,
}

/// Where something lies that may go.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The directory that says so.
    pub top: u64,
    pub age_seconds: u64,
    /// The entry of the top that it lies below, or is.
    entry: u64,
    /// The nearest directory of which the whole path is here.
    policy_of: u64,
}

/// A directory that is being looked at.
struct Looking {
    going: Going,
    place: Place,
    group: Group,
    next_sequence: Option<u64>,
    stays: bool,
}

/// One round, and when the next one is.
#[derive(Default)]
pub struct Round {
    /// Where in the notes it goes on; none between rounds.
    at: Option<u64>,
    notes: VecDeque<(u64, NamesUse)>,
    looking: Option<Looking>,
    groups: BTreeMap<Group, Vec<Going>>,
    /// The inodes in them, and in which.
    gathered: BTreeMap<u64, Group>,
    /// Directories above some that went.
    above: BTreeSet<u64>,
    looks_at_all: bool,
    notes_met: u64,
    /// Whether directories were noted that this round has passed already.
    has_news: bool,
    began_seconds: u64,
    saved_seconds: u64,
    /// When the first note is due.
    pub next_seconds: u64,
    /// The shortest age that any directory says.
    pub shortest_seconds: u64,
    unfolded: u64,
}

impl Round {
    /// Whoever was used stays: what was gathered with it is forgotten, and looked at another time.
    pub fn give_up(&mut self, used: &BTreeSet<u64>) {
        let is_used = |going: &Going| {
            let mut inodes = going.pieces.iter().flat_map(|piece| inodes_of(piece.range));
            used.contains(&going.inode) || inodes.any(|inode| used.contains(&inode))
        };
        let given_up: Vec<Group> =
            self.groups.iter().filter(|(_, all)| all.iter().any(is_used)).map(|(group, _)| *group).collect();
        given_up.iter().for_each(|group| drop(self.take(group)));
        // It counts on what is in it.
        let looking = self.looking.take_if(|looking| given_up.contains(&looking.group) || is_used(&looking.going));
        if looking.is_some() || !given_up.is_empty() {
            self.next_seconds = 0;
        }
    }

    fn take(&mut self, group: &Group) -> Vec<Going> {
        self.gathered.retain(|_, of| of != group);
        let taken = self.groups.remove(group).unwrap_or_default();
        assert!(!self.groups.is_empty() || self.gathered.is_empty(), "what is gathered is of a group");
        taken
    }

    fn bytes_of(&self, group: &Group) -> usize {
        let pieces = self.groups.get(group).into_iter().flatten().flat_map(|going| &going.pieces);
        pieces.map(|piece| piece.bytes).sum()
    }
}

impl Offload {
    /// Some of a round, or nothing between rounds. Tells whether there is more to do.
    pub fn step_round(&self, caller: &Caller<'_>, round: &mut Round, budget: usize) -> Result<bool, Error> {
        let now = seconds(caller);
        if round.at.is_some() || now >= round.saved_seconds + SAVE_SECONDS || now < round.saved_seconds {
            round.saved_seconds = now;
            self.save_uses_of(caller, round)?;
        }
        if round.at.is_none() && !self.begin_round(caller, round)? {
            return Ok(false);
        }
        let listed = self.listed_inodes(caller.io)?;
        let mut left = budget;
        while left > 0 {
            let subject = round.looking.as_ref().map(|looking| (looking.going.inode, looking.going.note));
            let subject = subject.or_else(|| round.notes.front().copied());
            let Some((inode, note)) = subject else {
                if !self.next_notes(caller, round)? {
                    self.end_round(caller, round)?;
                    return Ok(false);
                }
                left = left.saturating_sub(PAGE_COSTS);
                continue;
            };
            let looked = match round.looking.take() {
                Some(looking) => self.look_further(caller, round, &listed, looking),
                None => {
                    round.notes.pop_front();
                    self.look_at(caller, round, &listed, inode, note)
                }
            };
            if let Err(error) = looked {
                self.put_off(caller, round, inode, note, round.shortest_seconds)?;
                match error {
                    // Something above is away: that comes back, or goes, by itself.
                    Error::Elsewhere(..) => {}
                    error => return Err(error),
                }
            }
            left = left.saturating_sub(if round.looking.is_some() { PAGE_COSTS } else { 1 });
        }
        Ok(true)
    }

    fn begin_round(&self, caller: &Caller<'_>, round: &mut Round) -> Result<bool, Error> {
        use std::sync::atomic::Ordering;
        let (now, unfolded) = (seconds(caller), self.core.store.offload().unfolded());
        let is_said_anew = self.is_said_anew.load(Ordering::Acquire);
        let has_news = std::mem::take(&mut self.uses.lock().has_news);
        if has_news || unfolded != round.unfolded {
            (round.unfolded, round.next_seconds) = (unfolded, 0);
        }
        round.shortest_seconds = self.ages(caller.io)?.0.unwrap_or(0);
        let pause = (round.shortest_seconds / ROUNDS_PER_AGE).max(1);
        let is_soon = now >= round.began_seconds && now < round.began_seconds.saturating_add(pause);
        let is_due = round.has_news || (now >= round.next_seconds && !is_soon);
        if !(is_said_anew || is_due) || !self.is_counted_and_indexed(caller.io)? {
            return Ok(false);
        }
        self.is_said_anew.store(false, Ordering::Release);
        self.save_uses_of(caller, round)?;
        assert!(round.groups.is_empty() && round.gathered.is_empty(), "a round begins with nothing gathered");
        assert!(round.notes.is_empty() && round.looking.is_none(), "a round begins with nothing in hand");
        (round.at, round.looks_at_all, round.notes_met) = (Some(0), is_said_anew, 0);
        (round.has_news, round.began_seconds, round.next_seconds) = (false, now, u64::MAX);
        Ok(true)
    }

    /// Reads notes that are due, and when they are out ends the bundles. False if nothing is left to look at.
    fn next_notes(&self, caller: &Caller<'_>, round: &mut Round) -> Result<bool, Error> {
        let Some(from) = round.at.filter(|at| *at < u64::MAX) else {
            self.end_bundles(caller, round, 0)?;
            let above = std::mem::take(&mut round.above);
            for inode in above {
                let note = self.core.store.view(caller.io, |view| {
                    Ok::<_, Error>(view.get(&Key::names_use(inode))?.map(|bytes| note_of(&bytes)))
                })?;
                // Something in it went, so it may go now.
                round.notes.extend(note.map(|note| (inode, NamesUse { look_seconds: 0, ..note })));
            }
            return Ok(!round.notes.is_empty());
        };
        let found = self.core.store.view(caller.io, |view| {
            let mut found = Vec::new();
            view.scan(Key::names_use(from), Key::names_use(u64::MAX), |key, bytes| {
                found.push((key.position, note_of(bytes)));
                if found.len() < NOTES_PER_VIEW { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            Ok::<_, Error>(found)
        })?;
        round.at = found.last().filter(|_| found.len() == NOTES_PER_VIEW).map(|(last, _)| last + 1).or(Some(u64::MAX));
        assert!(round.at > Some(from), "notes are read in order, from {from} to {:?}", round.at);
        let now = seconds(caller);
        for (inode, note) in found {
            round.notes_met += 1;
            if round.looks_at_all || note.look_seconds <= now {
                round.notes.push_back((inode, note));
            } else {
                round.next_seconds = round.next_seconds.min(note.look_seconds);
            }
        }
        Ok(true)
    }

    fn end_round(&self, caller: &Caller<'_>, round: &mut Round) -> Result<(), Error> {
        assert!(round.notes.is_empty() && round.looking.is_none(), "a round ends when nothing is in hand");
        assert!(round.groups.is_empty() && round.above.is_empty(), "a round ends when all that goes has gone");
        round.at = None;
        if round.notes_met == 0 && !self.ages(caller.io)?.1 {
            self.switch(false);
        }
        Ok(())
    }

    /// Where an inode lies; none if its names stay.
    pub fn place_of_names(&self, caller: &Caller<'_>, inode: u64) -> Result<Option<Place>, Error> {
        let (mut at, mut below, mut policy_of, mut said) = (inode, inode, None, None);
        for _ in 0..DEPTH_MAX {
            if let Some(directory) = self.core.store.offload().put_away_of(&Key::inode(at)) {
                (at, below, policy_of, said) = (directory, directory, None, None);
                continue;
            }
            let value = self.core.store.view(caller.io, |view| stere_file::inode_if_any(view, at))?;
            let Some(value) = value else { return Ok(None) };
            if value.kind() == Some(FileKind::Directory) {
                policy_of = policy_of.or(Some(at));
                if said.is_none() {
                    // What a directory is in that is here is here too.
                    let found = self.residency.kept_in(caller.io, at, |residency| residency.names_seconds)?;
                    said = found.map(|(seconds, _, begins_at)| (seconds, begins_at));
                }
                match said {
                    None | Some((0, _)) => return Ok(None),
                    Some((age_seconds, top)) if top == at => {
                        let policy_of = policy_of.unwrap_or(at);
                        return Ok(Some(Place { top, age_seconds, entry: below, policy_of }));
                    }
                    Some(_) => {}
                }
            }
            if value.parent == at {
                return Ok(None);
            }
            (at, below) = (value.parent, at);
        }
        Ok(None)
    }

    /// Looks at what a note is of. A file has one if it came back without its directory.
    fn look_at(
        &self,
        caller: &Caller<'_>,
        round: &mut Round,
        listed: &BTreeSet<u64>,
        inode: u64,
        note: NamesUse,
    ) -> Result<(), Error> {
        let now = seconds(caller);
        let stored = self
            .core
            .store
            .view(caller.io, |view| Ok::<_, Error>(view.get(&Key::names_use(inode))?.map(|bytes| note_of(&bytes))))?;
        // It may say more than when it was read.
        let Some(stored) = stored else { return Ok(()) };
        let note = NamesUse { look_seconds: note.look_seconds.min(stored.look_seconds), ..stored };
        let is_here = self.has_keys_here(caller, inode)?;
        let place = if is_here { self.place_of_names(caller, inode)? } else { None };
        if is_here && self.core.store.offload().is_folded(&Key::inode(inode)) {
            // A part of a large one came back: the rest follows when it is used.
            return self.put_off(caller, round, inode, note, round.shortest_seconds);
        }
        let value = match is_here {
            true => self.core.store.view(caller.io, |view| stere_file::inode_if_any(view, inode))?,
            false => None,
        };
        let is_directory = value.as_ref().is_some_and(|value| value.kind() == Some(FileKind::Directory));
        // Rules may say it of directories below one of which nobody does.
        if note.is_new && is_directory && (place.is_some() || self.residency.ruled(caller.io)?.names) {
            self.note_directories_in(caller, round, inode, &note)?;
        }
        let (Some(place), Some(value)) = (place, value) else { return self.forget_note(caller, inode) };
        if inode == place.top || (!is_directory && value.parent == place.top) {
            return self.forget_note(caller, inode);
        }
        let used = if note.used_seconds == 0 { now } else { note.used_seconds };
        let used_seconds = used.max(self.uses.lock().all_seconds).min(now);
        let due = used_seconds.saturating_add(place.age_seconds);
        // Where all are looked at, it may have been another age that it was put off by.
        let look_seconds = if round.looks_at_all { due } else { note.look_seconds.max(due) };
        let known = NamesUse { is_new: false, used_seconds, look_seconds };
        if now < look_seconds {
            return self.put_note(caller, round, inode, known);
        }
        let above = (is_directory && value.parent != place.top).then_some(value.parent);
        let (pieces, age_seconds) = (Vec::new(), place.age_seconds);
        let going = Going { inode, note: known, age_seconds, pieces, is_whole: true, above };
        let Ok(tertiary) = self.where_names_go(caller, place.policy_of) else {
            return self.put_off(caller, round, inode, known, age_seconds);
        };
        let group = Group { directory: place.entry, tertiary, volume: value.volume };
        if is_directory {
            assert!(round.looking.is_none(), "one directory is looked at at a time");
            round.looking = Some(Looking { going, place, group, next_sequence: Some(0), stays: false });
            return Ok(());
        }
        let mut gathered = self.gathered(caller, listed, &group);
        if round.gathered.contains_key(&inode) || !gathered.may_go(inode, false)? {
            return self.put_off(caller, round, inode, known, age_seconds);
        }
        gathered.take(whole(inode))?;
        let pieces = gathered.pieces;
        self.gather(caller, round, group, Going { pieces, ..going })
    }

    /// The directories in one are noted, each to be looked at with those in it.
    fn note_directories_in(
        &self,
        caller: &Caller<'_>,
        round: &mut Round,
        directory: u64,
        note: &NamesUse,
    ) -> Result<(), Error> {
        let mut next = Some(0);
        while let Some(from) = next {
            let (entries, behind) = read_names(&self.core.store, &self.core.names, caller.io, directory, from)?;
            next = behind;
            let is_here = |inode: &u64| !self.core.store.offload().is_folded(&Key::inode(*inode));
            let directories = entries.iter().filter(|entry| entry.kind == FileKind::Directory).map(|entry| entry.inode);
            let directories: Vec<u64> = directories.filter(is_here).collect();
            if directories.is_empty() {
                continue;
            }
            round.has_news = true;
            self.core.store.update(caller.io, |transaction| {
                for inode in &directories {
                    let key = Key::names_use(*inode);
                    let known = transaction.get(&key)?.map(|bytes| note_of(&bytes).used_seconds);
                    let used_seconds = known.unwrap_or(0).max(note.used_seconds);
                    let note = NamesUse { is_new: true, used_seconds, look_seconds: 0 };
                    transaction.put(key, &note.encode());
                }
                Ok::<_, Error>(())
            })?;
        }
        Ok(())
    }

    /// Keeps a note as it is now.
    fn put_note(&self, caller: &Caller<'_>, round: &mut Round, inode: u64, note: NamesUse) -> Result<(), Error> {
        round.next_seconds = round.next_seconds.min(note.look_seconds);
        let encoded = note.encode();
        let is_kept = self.core.store.view(caller.io, |view| {
            Ok::<_, Error>(view.get(&Key::names_use(inode))?.is_some_and(|bytes| bytes[..] == encoded[..]))
        })?;
        if is_kept {
            return Ok(());
        }
        self.core.store.update(caller.io, |transaction| {
            transaction.put(Key::names_use(inode), &encoded);
            Ok(())
        })
    }

    /// Something of it cannot go: it is not looked at again for a while.
    fn put_off(
        &self,
        caller: &Caller<'_>,
        round: &mut Round,
        inode: u64,
        note: NamesUse,
        age_seconds: u64,
    ) -> Result<(), Error> {
        let look_seconds = seconds(caller).saturating_add((age_seconds / LOOKS_PER_AGE).max(1));
        self.put_note(caller, round, inode, NamesUse { look_seconds, ..note })
    }

    fn forget_note(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.core.store.update(caller.io, |transaction| {
            transaction.delete(Key::names_use(inode));
            Ok(())
        })
    }

    fn gathered<'a>(&'a self, caller: &Caller<'a>, listed: &'a BTreeSet<u64>, group: &Group) -> Gathered<'a> {
        Gathered { core: &self.core, io: caller.io, listed, volume: group.volume, pieces: Vec::new(), staying: 0 }
    }

    /// Whether any key of an inode is not put away.
    fn has_keys_here(&self, caller: &Caller<'_>, inode: u64) -> Result<bool, Error> {
        self.core.store.view(caller.io, |view| {
            let (mut any, (from, to)) = (false, whole(inode));
            view.scan(from, to, |_, _| {
                any = true;
                ControlFlow::Break(())
            })?;
            Ok(any)
        })
    }

    /// Looks at the next names of the directory, and at itself when they are out.
    fn look_further(
        &self,
        caller: &Caller<'_>,
        round: &mut Round,
        listed: &BTreeSet<u64>,
        mut looking: Looking,
    ) -> Result<(), Error> {
        let (directory, group) = (looking.going.inode, looking.group);
        assert!(looking.going.is_whole, "directory {directory} may go as a whole until all in it was looked at");
        let mut gathered = self.gathered(caller, listed, &group);
        if let Some(from) = looking.next_sequence {
            let (entries, next) = read_names(&self.core.store, &self.core.names, caller.io, directory, from)?;
            for entry in entries {
                let going_with = round.gathered.get(&entry.inode);
                if self.core.store.offload().is_folded(&Key::inode(entry.inode)) || going_with == Some(&group) {
                    continue;
                }
                let is_file = entry.kind != FileKind::Directory;
                if is_file && going_with.is_none() && gathered.may_go(entry.inode, false)? {
                    gathered.take(whole(entry.inode))?;
                } else {
                    looking.stays = true;
                }
            }
            looking.going.pieces.append(&mut gathered.pieces);
            looking.next_sequence = next;
            round.looking = Some(looking);
            return Ok(());
        }
        let Looking { mut going, place, mut stays, .. } = looking;
        let value = self.core.store.view(caller.io, |view| stere_file::inode_if_any(view, directory))?;
        let is_entry = value.as_ref().is_some_and(|value| value.parent == place.top);
        stays |= value.is_none() || (!is_entry && !gathered.may_go(directory, true)?);
        if stays {
            // What lies in it may go all the same.
            self.put_off(caller, round, directory, going.note, going.age_seconds)?;
            going.is_whole = false;
        } else if is_entry {
            // Its inode is what `ls -l` of the directory above shows.
            gathered.take((Key::dirent_hash(directory, 0), Key::inode(directory + 1)))?;
        } else {
            gathered.take(whole(directory))?;
        }
        going.pieces.append(&mut gathered.pieces);
        self.gather(caller, round, group, going)
    }

    /// Keeps what goes until it is enough for a bundle.
    fn gather(&self, caller: &Caller<'_>, round: &mut Round, group: Group, going: Going) -> Result<(), Error> {
        let inodes = going.pieces.iter().flat_map(|piece| inodes_of(piece.range));
        round.gathered.extend(inodes.map(|inode| (inode, group)));
        assert!(round.at.is_some(), "what goes is gathered within a round");
        round.groups.entry(group).or_default().push(going);
        if round.groups.len() > GROUPS_MAX {
            return self.end_bundles(caller, round, 0);
        }
        if round.bytes_of(&group) >= BUNDLE_BYTES { self.end_bundles(caller, round, BUNDLE_BYTES) } else { Ok(()) }
    }

    /// Puts away what was gathered, where it is at least so much.
    fn end_bundles(&self, caller: &Caller<'_>, round: &mut Round, bytes_min: usize) -> Result<(), Error> {
        // Times of access go with their inodes.
        self.access_times.save_lazy_times(caller.io)?;
        let groups: Vec<Group> = round.groups.keys().copied().collect();
        for group in groups.into_iter().filter(|group| round.bytes_of(group) >= bytes_min).collect::<Vec<_>>() {
            let all = round.take(&group);
            self.end_bundles_of(caller, round, &group, all)?;
        }
        assert!(bytes_min > 0 || round.groups.is_empty(), "all bundles are ended where that is asked for");
        Ok(())
    }

    /// Bundle after bundle; where one stays nothing follows, for that may be above it.
    fn end_bundles_of(
        &self,
        caller: &Caller<'_>,
        round: &mut Round,
        group: &Group,
        mut all: Vec<Going>,
    ) -> Result<(), Error> {
        let mut pieces: VecDeque<Piece> = all.iter_mut().flat_map(|going| std::mem::take(&mut going.pieces)).collect();
        let bytes: usize = pieces.iter().map(|piece| piece.bytes).sum();
        let (mut stays, mut outcome) = (bytes < BUNDLE_BYTES_MIN, Ok(()));
        while !stays && !pieces.is_empty() {
            let ranges = next_bundle(&mut pieces);
            let is_free = || {
                let uses = self.uses.lock();
                let mut inodes = ranges.iter().copied().flat_map(inodes_of);
                !inodes.any(|inode| uses.has(inode) || self.core.files.table.contains(inode))
            };
            let what = ToFold { directory: group.directory, ranges: &ranges, tertiary: group.tertiary };
            match self.core.store.offload().fold(&what, &is_free) {
                Ok(keys) => stays = keys.is_none(),
                Err(error) => (stays, outcome) = (true, Err(error.into())),
            }
        }
        for going in all.into_iter().filter(|going| going.is_whole) {
            if stays {
                self.put_off(caller, round, going.inode, going.note, going.age_seconds)?;
            } else {
                self.forget_note(caller, going.inode)?;
                round.above.extend(going.above);
            }
        }
        outcome
    }
}
