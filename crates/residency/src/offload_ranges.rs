//! Putting away the names of cold subtrees: which inodes and directories go, and what of them lies where.
//!
//! Said of a directory, the directory itself, its entries and the inodes they lead to stay, so that `ls -l` of it asks no volume for
//! anything. What lies deeper goes: names first whose files are all on volumes only, and a directory only after all that is in it.
//! So a path never leads from something that was put away to something that was not. What the pool refers to in other places
//! than by name (policy of its own, several names, versions, open files) stays, and with it all directories above.
//!
//! Memory: for each inode below, the ranges of its keys. Read next: the engine's `fold.rs`, `docs/design/folding.md`.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;

use stere_file::accounts::accounting;
use stere_file::named_in::named_in_known;
use stere_format::{
    AccountingValue, Bundle, ExtentFlags, ExtentValue, FileKind, FindIndexValue, FoldValue, InodeValue, Key, KeyRange,
    NamedInValue, key,
};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::{Core, nearest};
use stere_namespace::names::Form;
use stere_namespace::walk::{Entry, Walk, read_names};
use stere_policy::Switch;
use stere_store::{FoldInfo, Io, ToFold, View};

use crate::offload::Offload;

/// Bytes of keys that are put away together, about: what one look below costs at least.
pub const BUNDLE_BYTES: usize = 64 << 10;
/// Keys looked at in one view.
const KEYS_PER_VIEW: usize = 2048;
/// Deeper than any path.
const DEPTH_MAX: usize = 4096;

/// What became of putting names away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadOutcome {
    pub keys: u64,
    pub bundles: u64,
    /// Inodes that stay because something of them is on devices, or the pool refers to them otherwise than by name.
    pub staying: u64,
}

/// Keys of one inode, or a part of them, and how many bytes they take.
pub struct Piece {
    pub range: KeyRange,
    pub bytes: usize,
}

/// A directory on the way down.
struct Level {
    directory: u64,
    next_sequence: Option<u64>,
    entries: VecDeque<Entry>,
    /// Something in it stays.
    stays: bool,
}

/// What is gathered of a subtree, from below upwards.
pub struct Gathered<'a> {
    pub core: &'a Core,
    pub io: Io<'a>,
    /// Inodes that the pool's lists name.
    pub listed: &'a BTreeSet<u64>,
    pub volume: u32,
    pub pieces: Vec<Piece>,
    pub staying: u64,
}

/// The same keys in order, neighbours as one range. What was renamed while names were read was met twice, and is there once.
fn together(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let is_joined = next.0 <= last.1;
        if is_joined {
            last.1 = last.1.max(next.1);
        }
        is_joined
    });
    assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "ranges are in order, and do not overlap or touch");
    ranges
}

/// The ranges of the next bundle. The pieces it is made of are taken.
pub fn next_bundle(pieces: &mut VecDeque<Piece>) -> Vec<KeyRange> {
    assert!(!pieces.is_empty(), "a metadata object is made of some piece");
    let (mut ranges, mut bytes): (Vec<KeyRange>, usize) = (Vec::new(), 0);
    while let Some(piece) = pieces.front() {
        if !ranges.is_empty() && (bytes + piece.bytes > BUNDLE_BYTES || ranges.len() >= FoldValue::RANGES_MAX) {
            break;
        }
        assert!(piece.range.0 < piece.range.1, "no piece is empty");
        bytes += piece.bytes;
        // Files that were made one after the other have numbers one after the other.
        match ranges.last_mut().filter(|last| last.1 == piece.range.0) {
            Some(last) => last.1 = piece.range.1,
            None => ranges.push(piece.range),
        }
        pieces.pop_front();
    }
    assert!(ranges.len() <= FoldValue::RANGES_MAX, "a metadata object has so many ranges at most");
    together(ranges)
}

/// The inodes that a range of keys is of.
pub fn inodes_of((from, to): KeyRange) -> std::ops::Range<u64> {
    assert!(from < to, "no range is empty, as from {from} to {to}");
    // The end of a range is not counted, so its inode is only touched where the range goes on into it.
    from.object..if to > Key::inode(to.object) { to.object + 1 } else { to.object }
}

/// All keys of an inode.
pub fn whole(inode: u64) -> KeyRange {
    (Key::inode(inode), Key::inode(inode + 1))
}

impl Offload {
    /// Puts away what is below the directories in this one, as far as it is on media only. The caller commits.
    pub fn offload_below(&self, caller: &Caller<'_>, directory: u64) -> Result<OffloadOutcome, Error> {
        let value = self.core.store.view(caller.io, |view| stere_namespace::inode::directory(view, directory))?;
        let tertiary = self.where_names_go(caller, directory)?;
        if !self.is_counted_and_indexed(caller.io)? {
            return Err(Error::NotPermitted("files are still being counted or indexed; try again in a while"));
        }
        self.access_times.save_lazy_times(caller.io)?;
        let listed = self.listed_inodes(caller.io)?;
        let mut outcome = OffloadOutcome::default();
        let mut next = Some(0);
        while let Some(from) = next {
            let (entries, behind) = read_names(&self.core.store, &self.core.names, caller.io, directory, from)?;
            next = behind;
            for entry in entries.iter().filter(|entry| entry.kind == FileKind::Directory) {
                let mut gathered = Gathered {
                    core: &self.core,
                    io: caller.io,
                    listed: &listed,
                    volume: value.volume,
                    pieces: Vec::new(),
                    staying: 0,
                };
                gathered.gather(entry.inode)?;
                outcome.staying += gathered.staying;
                let pieces = std::mem::take(&mut gathered.pieces);
                self.offload_pieces(directory, tertiary, pieces, &mut outcome)?;
            }
        }
        Ok(outcome)
    }

    /// The volumes that names below a directory go to: those of its files.
    pub fn where_names_go(&self, caller: &Caller<'_>, directory: u64) -> Result<u16, Error> {
        let effective = self.core.effective(caller, directory)?;
        let tertiary = self.core.files.policies.media_of(effective.wish.tier).filter(|set| *set != 0);
        let Some(tertiary) = tertiary else {
            return Err(Error::NotPermitted("names go where their files go; archive the directory first"));
        };
        if !self.core.store.offload().may_have_names(tertiary) {
            return Err(Error::NotPermitted(
                "a medium that these files go to was added with metadata=no, so no names go there",
            ));
        }
        if effective.is_on(Switch::Backup) {
            return Err(Error::NotPermitted("names of what is copied to backups stay on devices"));
        }
        Ok(tertiary)
    }

    /// Bundle after bundle; where one stays nothing follows, for that may be above it.
    fn offload_pieces(
        &self,
        directory: u64,
        tertiary: u16,
        pieces: Vec<Piece>,
        outcome: &mut OffloadOutcome,
    ) -> Result<(), Error> {
        let mut pieces = VecDeque::from(pieces);
        while !pieces.is_empty() {
            let ranges = next_bundle(&mut pieces);
            let is_free = || {
                let mut inodes = ranges.iter().copied().flat_map(inodes_of);
                !inodes.any(|inode| self.core.files.table.contains(inode))
            };
            let what = ToFold { directory, ranges: &ranges, tertiary };
            let Some(keys) = self.core.store.offload().fold(&what, &is_free)? else {
                outcome.staying += 1;
                return Ok(());
            };
            outcome.keys += u64::from(keys);
            outcome.bundles += 1;
        }
        Ok(())
    }

    /// Whether all that goes over inodes one by one has come to its end, and would not bring back what is put away.
    pub fn is_counted_and_indexed(&self, io: Io<'_>) -> Result<bool, Error> {
        self.core.store.view(io, |view| {
            let is_counted = accounting(view)?.is_none_or(|value| value.counted == AccountingValue::ALL);
            let index = view.get(&Key::find_index())?.and_then(|bytes| FindIndexValue::decode(&bytes).ok());
            let names_known = named_in_known(view)? == Some(NamedInValue::ALL);
            Ok(is_counted && names_known && index.is_none_or(|index| index == FindIndexValue::COMPLETE))
        })
    }

    /// Inodes that background work comes to otherwise than by their names.
    pub fn listed_inodes(&self, io: Io<'_>) -> Result<BTreeSet<u64>, Error> {
        use key::{kind, tree};
        let of_inodes = [
            kind::ORPHAN,
            kind::RECONCILE,
            kind::TIERED,
            kind::PINNED,
            kind::UNIT,
            kind::RECOUNT,
            kind::NAMES_AGE,
            kind::RESIDENCY_RULES,
        ];
        let lists = [Key::retention, Key::follow, Key::versions_many];
        self.core.store.view(io, |view| {
            let mut listed = BTreeSet::new();
            view.scan(Key::new(tree::SYSTEM, 0, 0, 0), Key::new(tree::SYSTEM + 1, 0, 0, 0), |key, _| {
                listed.extend(of_inodes.contains(&key.kind).then_some(key.object));
                ControlFlow::Continue(())
            })?;
            for list in lists {
                view.scan(list(1), list(u64::MAX), |key, _| {
                    listed.insert(key.position);
                    ControlFlow::Continue(())
                })?;
            }
            Ok(listed)
        })
    }

    /// Brings back all names below an inode. How many keys those were.
    pub fn reload_below(&self, caller: &Caller<'_>, root: u64) -> Result<u64, Error> {
        let mut keys = 0;
        for fold in self.tiers.offloaded_below(caller.io, root)?.into_values().flatten() {
            self.core.store.offload().unfold(caller.io, fold.number)?;
            keys += u64::from(fold.keys);
        }
        Ok(keys + self.reload_within(caller, root)?)
    }

    /// The same of what was put away for a directory above: which of that lies below, only the names tell, so they are looked at.
    fn reload_within(&self, caller: &Caller<'_>, root: u64) -> Result<u64, Error> {
        let folds = self.core.store.offload().folds(caller.io)?;
        let above: BTreeSet<u64> = folds.iter().map(|fold| fold.directory).collect();
        let within = |view: &View<'_>| nearest(view, root, |at, _| Ok(above.contains(&at).then_some(())));
        if above.is_empty() || self.core.store.view(caller.io, within)?.is_none() {
            return Ok(0);
        }
        let kind = self.core.files.attributes(caller.io, root)?.and_then(|value| value.kind()).ok_or(Error::Stale)?;
        let mut walk = Walk::new(root, kind, Vec::new(), Form::Plain);
        while let Some(met) = walk.next(&self.core.store, &self.core.names, caller.io)? {
            self.core.store.view(caller.io, |view| {
                let first = |inode| Key::new(key::tree::NAMES, inode, 0, 0);
                view.scan(first(met.inode), first(met.inode + 1), |_, _| ControlFlow::Continue(()))
            })?;
        }
        let count = |folds: &[FoldInfo]| folds.iter().map(|fold| u64::from(fold.keys)).sum::<u64>();
        Ok(count(&folds).saturating_sub(count(&self.core.store.offload().folds(caller.io)?)))
    }
}

impl Gathered<'_> {
    /// All that can be put away below a directory whose own inode stays.
    fn gather(&mut self, root: u64) -> Result<(), Error> {
        if self.is_away(&Key::dirent_hash(root, 0)) {
            return Ok(());
        }
        let mut levels = vec![Level::of(root)];
        loop {
            let depth = levels.len();
            let Some(level) = levels.last_mut() else { break };
            if let Some(entry) = level.entries.pop_front() {
                if self.is_away(&Key::inode(entry.inode)) {
                    continue;
                }
                let is_directory = entry.kind == FileKind::Directory;
                let is_too_deep = is_directory && depth >= DEPTH_MAX;
                if is_too_deep || !self.may_go(entry.inode, is_directory)? {
                    level.stays = true;
                    self.staying += 1;
                } else if !is_directory {
                    self.take(whole(entry.inode))?;
                }
                if is_directory && !is_too_deep {
                    levels.push(Level::of(entry.inode));
                }
                continue;
            }
            if let Some(from) = level.next_sequence {
                let (store, names) = (&self.core.store, &self.core.names);
                (level.entries, level.next_sequence) = read_names(store, names, self.io, level.directory, from)?;
                continue;
            }
            let Some(done) = levels.pop() else { break };
            let stays = done.stays || (!levels.is_empty() && !self.may_go(done.directory, true)?);
            match (levels.last_mut(), stays) {
                (Some(above), true) => above.stays = true,
                (None, true) => {}
                (Some(_), false) => self.take(whole(done.directory))?,
                // Its inode is what `ls -l` of the directory above shows.
                (None, false) => self.take((Key::dirent_hash(done.directory, 0), Key::inode(done.directory + 1)))?,
            }
        }
        Ok(())
    }

    fn is_away(&self, key: &Key) -> bool {
        self.core.store.offload().is_folded(key)
    }

    /// Whether nothing but its name leads to an inode, nobody uses it, and all of its content is on volumes only.
    pub fn may_go(&self, inode: u64, is_directory: bool) -> Result<bool, Error> {
        let core = self.core;
        if self.listed.contains(&inode) || core.files.table.contains(inode) {
            return Ok(false);
        }
        let value = core.store.view(self.io, |view| stere_file::inode_if_any(view, inode))?;
        let is_plain = |value: &InodeValue| {
            let links = if is_directory { value.nlink > 0 } else { value.nlink == 1 };
            let of_versions = stere_file::HAS_VERSIONS | stere_file::OF_VERSIONS;
            links && value.volume == self.volume && value.policy.is_none() && value.flags & of_versions == 0
        };
        let Some(value) = value.filter(is_plain) else { return Ok(false) };
        Ok(value.kind() != Some(FileKind::File) || self.is_on_volumes_only(inode)?)
    }

    fn is_on_volumes_only(&self, inode: u64) -> Result<bool, Error> {
        let mut at = Some(Key::extent(inode, 0));
        while let Some(from) = at {
            let (all, next) = self.core.store.view(self.io, |view| {
                let (mut blobs, mut next, mut count, mut all) = (Vec::new(), None, 0, true);
                view.scan(from, Key::extent(inode, u64::MAX), |key, bytes| {
                    match ExtentValue::decode(bytes) {
                        Ok(extent) if extent.flags == ExtentFlags::Plain => blobs.push(extent.blob),
                        _ => all = false,
                    }
                    count += 1;
                    next = if count == KEYS_PER_VIEW { key.successor() } else { None };
                    if next.is_some() || !all { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                for blob in blobs {
                    all = all && view.blob(blob)?.is_released();
                }
                Ok::<_, Error>((all, next))
            })?;
            if !all {
                return Ok(false);
            }
            at = next;
        }
        Ok(true)
    }

    /// Takes what is here of a range of keys, in pieces that fit into bundles.
    pub fn take(&mut self, range: KeyRange) -> Result<(), Error> {
        for (mut from, to) in self.core.store.offload().ranges_here(range) {
            loop {
                let (bytes, next) = self.core.store.view(self.io, |view| measure(view, from, to))?;
                assert!(next.is_none_or(|next| from < next && next < to), "a piece ends in its range");
                if bytes > 0 {
                    self.pieces.push(Piece { range: (from, next.unwrap_or(to)), bytes });
                }
                match next {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
        Ok(())
    }
}

/// How many bytes the keys of a range take, up to where they are enough for a bundle: there the next one begins.
fn measure(view: &View<'_>, from: Key, to: Key) -> Result<(usize, Option<Key>), Error> {
    let (mut bytes, mut keys, mut next) = (0, 0, None);
    view.scan(from, to, |key, value| {
        let more = Bundle::entry_bytes(value.len());
        if keys > 0 && (bytes + more > BUNDLE_BYTES || keys == KEYS_PER_VIEW) {
            next = Some(*key);
            return ControlFlow::Break(());
        }
        (bytes, keys) = (bytes + more, keys + 1);
        ControlFlow::Continue(())
    })?;
    assert!(next.is_none() || bytes > 0, "what goes on at {next:?} has keys before it");
    Ok((bytes, next))
}

impl Level {
    fn of(directory: u64) -> Level {
        Level { directory, next_sequence: Some(0), entries: VecDeque::new(), stays: false }
    }
}

#[cfg(test)]
mod tests;
