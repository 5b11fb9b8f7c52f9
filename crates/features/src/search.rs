//! Finding files by what is known of them, without walking over names: over the inodes that an index tells, or a pass over all of them, in the
//! order of their keys.
//!
//! First the inodes are read as they lie in the tree, a batch a step, so nobody waits for longer than a batch takes. What its inode does
//! not rule out is looked at by name: a file notes where its name is, a directory is found among its parent's names. Files with several
//! names, and what notes nothing, are looked at in a second pass over the names of the directories that they lie in.
//!
//! Invariants: only metadata is read, so nothing is recalled and nothing counts as used; a caller is shown only what it could list by
//! walking from the directory that is searched: every directory on the way lets it read and search. What is changed meanwhile may be
//! found as it was before or after, or, if it gets another name, be missed. Memory: what `places` keeps, a number for each directory,
//! for each candidate of an index (at most a million; else there is a pass), and for each file of the second pass. Read next: `search/candidates.rs`, `search/noted.rs`, `search/places.rs`, `search/subject.rs`, `stere_policy::Search`.

mod candidates;
mod noted;
mod places;
mod subject;

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use stere_file::OF_VERSIONS;
use stere_file::named_in::directories_of;
use stere_format::dirent::DirentView;
use stere_format::key::{kind, tree};
use stere_format::{FileKind, InodeValue, Key};
use stere_namespace::access_times::LazyTimes;
use stere_namespace::attributes::Attributes;
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::names::damaged;
use stere_namespace::tiers::Tiers;
use stere_namespace::words::PolicyWords;
use stere_policy::{Level, RuleError, Search, SearchWords};

use crate::provenance::PolicyProvenance;
use crate::stat::Stat;
use noted::Noted;
use places::Places;
use subject::File;

/// Inodes, or names, read from the store at a time.
const BATCH: usize = 256;
/// Keys read from the store at a time, whatever they are.
const KEYS_PER_BATCH: usize = 4096;
/// Files of which it is asked in which directories they have names; of more all directories are gone through.
const NOTED_MAX: usize = 1 << 16;
/// Keys that belong to an inode and are passed over one by one; what has more is jumped over.
const PASSED_OVER: usize = 16;

/// A file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path from the directory that was searched; empty if it is that directory.
    pub path: Vec<u8>,
    /// What it is.
    pub attributes: Attributes,
    /// Whether the caller may read it, and so what policy says of it.
    pub is_readable: bool,
}

/// A search under way.
pub struct Find<'a> {
    search: &'a Searches,
    start: u64,
    start_name: Vec<u8>,
    is_directory: bool,
    /// What must hold, by what must be looked at to know it.
    by_inode: Vec<Search>,
    by_name: Vec<Search>,
    others: Vec<Search>,
    stage: Stage,
    places: Places,
    noted: Noted,
    directories: VecDeque<u64>,
    /// What the index told: all that may be found is among these, in their order.
    candidates: Vec<u64>,
    /// Files to be looked at by each of their names.
    by_each_name: FxHashSet<u64>,
    /// Whether it is taken for right what is noted of the directories that they have names in.
    by_notes: bool,
    /// Inodes that were looked at.
    pub looked_at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// This inode is the next.
    Inodes(u64),
    /// Of those that the index told, this one is the next.
    Candidates(usize),
    /// All of those were looked at: directories are gathered for the second pass, from this inode on.
    Directories(u64),
    /// In the first of the directories, this name is the next.
    Names(u64),
    Done,
}

/// Where a file is.
struct Name<'a> {
    parent: u64,
    name: &'a [u8],
}

/// Finds files by what is known of them.
pub struct Searches {
    pub core: Arc<Core>,
    pub access_times: Arc<LazyTimes>,
    pub words: Arc<PolicyWords>,
    pub tiers: Arc<Tiers>,
    pub provenance: Arc<PolicyProvenance>,
    pub stat: Arc<Stat>,
}

impl Searches {
    /// Parses a search as this pool understands its words.
    pub fn parse_search(&self, text: &str) -> Result<Search, RuleError> {
        let classes = self.core.files.resolver().classes();
        let devices: Vec<String> = self.core.store.device_entries().into_iter().map(|entry| entry.name).collect();
        // What policies still ask for is found although its volume was removed.
        let removed =
            self.core.store.tier.media.numbers_in_policies().unwrap_or_default().into_keys().map(|number| 1 << number);
        let volumes = self.core.store.tier.media.volumes().into_iter().map(|entry| entry.name);
        let volumes: Vec<String> =
            volumes.chain(removed.map(|set| self.core.store.tier.media.tier_names(set))).collect();
        let people = self.core.options.people.as_deref();
        let words = SearchWords { classes: &classes, people, devices: &devices, volumes: &volumes };
        Search::parse(text, &words)
    }

    /// Begins to look for files below `start`, a directory or the one file that is looked at, which the caller calls `name`. That
    /// the caller may get as far as there, whoever asks has made sure.
    pub fn find(&self, caller: &Caller<'_>, start: u64, name: &[u8], search: Search) -> Result<Find<'_>, Error> {
        let mut find = self.find_without_index(caller, start, name, search.clone())?;
        find.by_notes = self.core.names_are_counted(caller.io)?;
        if find.is_directory
            && let Some(candidates) = candidates::candidates(self, caller, &search)?
        {
            (find.candidates, find.stage) = (candidates, Stage::Candidates(0));
        }
        Ok(find)
    }

    /// The same by a pass over all inodes, whatever an index could tell.
    pub fn find_without_index(
        &self,
        caller: &Caller<'_>,
        start: u64,
        name: &[u8],
        search: Search,
    ) -> Result<Find<'_>, Error> {
        let value =
            self.core.files.attributes(caller.io, start)?.filter(|value| value.nlink > 0).ok_or(Error::Stale)?;
        let is_directory = value.kind() == Some(FileKind::Directory);
        let (mut by_inode, mut by_name, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for step in search.into_steps() {
            match step.level() {
                Level::Inode => by_inode.push(step),
                Level::Name => by_name.push(step),
                _ => others.push(step),
            }
        }
        let stage = if is_directory { Stage::Inodes(0) } else { Stage::Inodes(start) };
        Ok(Find {
            search: self,
            start,
            start_name: name.to_vec(),
            is_directory,
            by_inode,
            by_name,
            others,
            stage,
            places: Places::new(start),
            noted: Noted::default(),
            directories: VecDeque::new(),
            candidates: Vec::new(),
            by_each_name: FxHashSet::default(),
            by_notes: false,
            looked_at: 0,
        })
    }
}

type Inodes = (Vec<(u64, InodeValue)>, Option<u64>);
type NamesRead = (Vec<(u64, Vec<u8>)>, Option<u64>);

impl Find<'_> {
    /// Looks at some more; gives what was found among them, none when all was looked at. Ages count back from the caller's clock.
    /// Names that were put away stay away, and are not found.
    pub fn step(&mut self, caller: &Caller<'_>) -> Result<Option<Vec<Found>>, Error> {
        self.step_skipping_offloaded(&caller.skipping_offloaded())
    }

    fn step_skipping_offloaded(&mut self, caller: &Caller<'_>) -> Result<Option<Vec<Found>>, Error> {
        let mut found = Vec::new();
        match self.stage {
            Stage::Inodes(from) if self.is_directory => {
                self.noted.forget_names();
                let removals = self.search.core.files.table.removals();
                let (inodes, next) = self.read_inodes(caller, from)?;
                for (inode, value) in inodes {
                    unless_away(self.look_at_inode(caller, inode, value, removals, &mut found))?;
                }
                self.stage = match next {
                    Some(next) => Stage::Inodes(next),
                    None => self.second_pass(caller)?.unwrap_or(Stage::Names(0)),
                };
            }
            Stage::Inodes(only) => {
                self.look_at_start(caller, only, &mut found)?;
                self.stage = Stage::Done;
            }
            Stage::Candidates(at) => {
                self.noted.forget_names();
                let removals = self.search.core.files.table.removals();
                let end = self.candidates.len().min(at + BATCH);
                assert!(at <= end, "what the index told is gone through in order");
                for (inode, value) in self.read_candidates(caller, &self.candidates[at..end])? {
                    unless_away(self.look_at_inode(caller, inode, value, removals, &mut found))?;
                }
                self.stage = match end == self.candidates.len() {
                    false => Stage::Candidates(end),
                    true => match self.second_pass(caller)? {
                        Some(stage) => stage,
                        None => {
                            self.directories.clear();
                            Stage::Directories(0)
                        }
                    },
                };
            }
            Stage::Directories(from) => {
                let (inodes, next) = self.read_inodes(caller, from)?;
                let directories = inodes.iter().filter(|(_, value)| may_have_names(value));
                self.directories.extend(directories.map(|(inode, _)| *inode));
                self.stage = next.map_or(Stage::Names(0), Stage::Directories);
            }
            Stage::Names(from) => {
                let Some(directory) = self.directories.front().copied() else {
                    self.stage = Stage::Done;
                    return Ok(Some(found));
                };
                let next = self.look_at_names(caller, directory, from, &mut found)?;
                self.stage = Stage::Names(next.unwrap_or(0));
                if next.is_none() {
                    self.directories.pop_front();
                }
            }
            Stage::Done => return Ok(None),
        }
        Ok(Some(found))
    }

    /// How it goes on when all inodes were looked at: to the end, or over the directories that have names of those to be looked at by each;
    /// nothing where those are any.
    fn second_pass(&mut self, caller: &Caller<'_>) -> Result<Option<Stage>, Error> {
        if self.by_each_name.is_empty() {
            return Ok(Some(Stage::Done));
        }
        if !self.by_notes || self.by_each_name.len() > NOTED_MAX {
            return Ok(None);
        }
        let mut inodes: Vec<u64> = self.by_each_name.iter().copied().collect();
        inodes.sort_unstable();
        let mut directories = BTreeSet::new();
        for some in inodes.chunks(BATCH) {
            directories.extend(self.search.core.store.view(caller.io, |view| {
                let mut found = BTreeSet::new();
                for inode in some {
                    if let Some(value) = stere_file::inode_if_any(view, *inode)? {
                        found.extend(directories_of(view, *inode, &value)?);
                    }
                }
                Ok::<_, Error>(found)
            })?);
        }
        let directories: Vec<u64> = directories.into_iter().collect();
        self.directories.clear();
        for some in directories.chunks(BATCH) {
            let read = self.read_candidates(caller, some)?;
            self.directories.extend(read.iter().filter(|(_, value)| may_have_names(value)).map(|(inode, _)| *inode));
        }
        Ok(Some(Stage::Names(0)))
    }

    /// Inodes from this number on, and where to go on.
    fn read_inodes(&self, caller: &Caller<'_>, from: u64) -> Result<Inodes, Error> {
        let end = Key::new(tree::NAMES + 1, 0, 0, 0);
        self.search.core.store.view(caller.io, |view| {
            let (mut inodes, mut keys, mut at) = (Vec::with_capacity(BATCH), 0, from);
            loop {
                let (mut passed_over, mut next, mut failure) = (0, None, None);
                view.scan(Key::inode(at), end, |key, bytes| {
                    keys += 1;
                    if key.kind != kind::INODE {
                        passed_over += 1;
                        next = (passed_over > PASSED_OVER).then(|| key.object + 1);
                    } else if inodes.len() == BATCH || keys > KEYS_PER_BATCH {
                        next = Some(key.object);
                    } else {
                        passed_over = 0;
                        match InodeValue::decode(bytes) {
                            Ok(value) => inodes.push((key.object, value)),
                            Err(error) => failure = Some(damaged(key.object, &error)),
                        }
                    }
                    if next.is_some() || failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                if let Some(failure) = failure {
                    return Err(failure);
                }
                match next {
                    Some(next) if inodes.len() < BATCH && keys <= KEYS_PER_BATCH => {
                        assert!(next >= at, "inodes are read in order");
                        at = next;
                    }
                    next => {
                        assert!(next.is_none_or(|next| next > from), "a batch goes on, from {from} to {next:?}");
                        return Ok((inodes, next));
                    }
                }
            }
        })
    }

    fn read_candidates(&self, caller: &Caller<'_>, inodes: &[u64]) -> Result<Vec<(u64, InodeValue)>, Error> {
        self.search.core.store.view(caller.io, |view| {
            let read = |inode: &u64| match stere_file::inode_if_any(view, *inode) {
                Ok(value) => Ok(value.map(|value| (*inode, value))),
                Err(error) => unless_away(Err(error.into())).map(|()| None),
            };
            inodes.iter().filter_map(|inode| read(inode).transpose()).collect()
        })
    }

    fn look_at_inode(
        &mut self,
        caller: &Caller<'_>,
        inode: u64,
        value: InodeValue,
        removals: u64,
        found: &mut Vec<Found>,
    ) -> Result<(), Error> {
        let Some(value) = self.search.core.files.refresh(caller.io, inode, value, removals)? else { return Ok(()) };
        self.looked_at += 1;
        if value.nlink == 0 || value.flags & OF_VERSIONS != 0 {
            return Ok(());
        }
        let is_directory = value.kind() == Some(FileKind::Directory);
        if is_directory {
            self.directories.push_back(inode);
        }
        let mut file = File::new(self.search, caller, inode, &value);
        if !all_hold(&self.by_inode, &mut file)? {
            return Ok(());
        }
        if inode == self.start {
            return self.look_at_start(caller, inode, found);
        }
        let name = match value.kind() {
            Some(FileKind::Directory) => {
                self.places.name(self.search, caller, value.parent, inode)?.map(|name| name.to_vec())
            }
            Some(FileKind::File) if value.nlink == 1 => self.noted.name(self.search, caller, inode, &value)?,
            _ => None,
        };
        match name {
            Some(name) => self.look_at(caller, inode, &value, &Name { parent: value.parent, name: &name }, found),
            // A directory that has no name where it says was moved or removed meanwhile.
            None if is_directory => Ok(()),
            None => {
                self.by_each_name.insert(inode);
                Ok(())
            }
        }
    }

    /// What is searched itself: that the caller gets there is known.
    fn look_at_start(&mut self, caller: &Caller<'_>, inode: u64, found: &mut Vec<Found>) -> Result<(), Error> {
        let Some(value) = self.search.core.files.attributes(caller.io, inode)? else { return Ok(()) };
        let mut file = File::new(self.search, caller, inode, &value);
        file.place(&self.start_name, b"");
        let steps = [&self.by_inode, &self.by_name, &self.others];
        for part in steps {
            if !all_hold(part, &mut file)? {
                return Ok(());
            }
        }
        let is_readable = file.may_read()?;
        let attributes = self.search.stat.show_attributes(caller.io, inode, value)?;
        found.push(Found { path: Vec::new(), attributes, is_readable });
        Ok(())
    }

    /// A file by one of its names; what its inode says holds already.
    fn look_at(
        &mut self,
        caller: &Caller<'_>,
        inode: u64,
        value: &InodeValue,
        at: &Name<'_>,
        found: &mut Vec<Found>,
    ) -> Result<(), Error> {
        let mut file = File::new(self.search, caller, inode, value);
        file.place(at.name, b"");
        if !all_hold(&self.by_name, &mut file)? {
            return Ok(());
        }
        let Some(above) = self.places.path_from_start(self.search, caller, at.parent)? else { return Ok(()) };
        let slash: &[u8] = if above.is_empty() { b"" } else { b"/" };
        let path = [&above[..], slash, at.name].concat();
        file.place(at.name, &path);
        if !all_hold(&self.others, &mut file)? {
            return Ok(());
        }
        let is_readable = file.may_read()?;
        let attributes = self.search.stat.show_attributes(caller.io, inode, value.clone())?;
        found.push(Found { path, attributes, is_readable });
        Ok(())
    }

    /// Names of a directory from this one on; tells where to go on in it.
    fn look_at_names(
        &mut self,
        caller: &Caller<'_>,
        directory: u64,
        from: u64,
        found: &mut Vec<Found>,
    ) -> Result<Option<u64>, Error> {
        match self.places.path_from_start(self.search, caller, directory) {
            Ok(None) | Err(Error::Elsewhere(..)) => return Ok(None),
            path => drop(path?),
        }
        let (names, next) = self.read_names(caller, directory, from)?;
        for (inode, name) in names {
            unless_away(self.look_at_name(caller, inode, &Name { parent: directory, name: &name }, found))?;
        }
        Ok(next)
    }

    fn look_at_name(
        &mut self,
        caller: &Caller<'_>,
        inode: u64,
        at: &Name<'_>,
        found: &mut Vec<Found>,
    ) -> Result<(), Error> {
        let value = self.search.core.files.attributes(caller.io, inode)?;
        let Some(value) = value.filter(|value| value.nlink > 0) else { return Ok(()) };
        let mut file = File::new(self.search, caller, inode, &value);
        if all_hold(&self.by_inode, &mut file)? {
            self.look_at(caller, inode, &value, at, found)?;
        }
        Ok(())
    }

    /// The names that are to be looked at among some names of a directory.
    fn read_names(&self, caller: &Caller<'_>, directory: u64, from: u64) -> Result<NamesRead, Error> {
        self.search.core.store.view(caller.io, |view| {
            let (mut names, mut keys, mut next, mut failure) = (Vec::new(), 0, None, None);
            view.scan(Key::dirent(directory, from), Key::dirent(directory, u64::MAX), |key, bytes| {
                keys += 1;
                match DirentView::decode(bytes) {
                    Ok(entry) if self.by_each_name.contains(&entry.inode) => {
                        let (name, _) = self.search.core.names.shown(directory, key.position, &entry);
                        names.push((entry.inode, name.into_owned()));
                    }
                    Ok(_) => {}
                    Err(error) => failure = Some(damaged(directory, &error)),
                }
                next = (names.len() == BATCH || keys == KEYS_PER_BATCH).then_some(key.position + 1);
                if next.is_some() || failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            assert!(next.is_none_or(|next| next > from), "names are read in order, from {from} to {next:?}");
            failure.map_or(Ok((names, next)), Err)
        })
    }
}

/// Whether names in this inode are shown.
fn may_have_names(value: &InodeValue) -> bool {
    value.kind() == Some(FileKind::Directory) && value.nlink > 0 && value.flags & OF_VERSIONS == 0
}

/// What leads to something that was put away is passed over.
fn unless_away(looked: Result<(), Error>) -> Result<(), Error> {
    if matches!(looked, Err(Error::Elsewhere(..))) { Ok(()) } else { looked }
}

fn all_hold(steps: &[Search], file: &mut File<'_>) -> Result<bool, Error> {
    for step in steps {
        if !step.holds(file)? {
            return Ok(false);
        }
    }
    Ok(true)
}
