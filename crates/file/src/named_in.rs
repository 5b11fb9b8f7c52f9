//! In which directories what has several names has them: a key for each, with how many; nothing for what has one.
//!
//! What has one name lies in its `parent`. Whoever changes names of what has several says so here, in the transaction that does: then
//! `parent` is a directory with a name of it afterwards, whatever name went. A pool from before learns it in the background, name by name
//! in the order of their keys; until then what is not known is left as it is found.
//! Invariant: of the names that are counted (`NamedInValue`), the keys of each inode with several names count exactly its own; what has
//! fewer has no keys. `NamedInCheck` proves it. Read next: `crates/features/src/multiple_names.rs`, `docs/format/named-in.md`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rustc_hash::{FxHashMap, FxHashSet};
use stere_faults::{Bug, is_planted};
use stere_format::dirent::DirentView;
use stere_format::{FileKind, InodeValue, Key, NamedInValue};
use stere_store::{Error, Transaction};

use crate::keys::Keys;

/// Directories, and how many names of an inode lie in each.
pub type Directories = BTreeMap<u64, u32>;

/// Where a name is: its directory, and its sequence there.
pub type NamePlace = (u64, u64);

/// What an entry's value says; 0 is never there.
pub fn named_in_count(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().map(u32::from_le_bytes).ok().filter(|count| *count > 0)
}

/// Up to which name it is known; none in a pool from before.
pub fn named_in_known(keys: &impl Keys) -> Result<Option<NamedInValue>, Error> {
    let Some(bytes) = keys.value(&Key::named_in_known())? else { return Ok(None) };
    let bad = |error: stere_format::DecodeError| Error::BadValue {
        what: "how far directories of files with several names are known",
        detail: error.to_string(),
    };
    Ok(Some(NamedInValue::decode(&bytes).map_err(bad)?))
}

/// What is noted of an inode.
pub fn named_in(keys: &impl Keys, inode: u64) -> Result<Directories, Error> {
    let mut directories = Directories::new();
    keys.visit(Key::named_in(inode, 0), Key::named_in(inode, u64::MAX), &mut |key, bytes| {
        // What does not decode is a finding of `check`; a name is there.
        directories.insert(key.position, named_in_count(bytes).unwrap_or(1));
        ControlFlow::Continue(())
    })?;
    Ok(directories)
}

/// Whether an inode may have names in several directories.
pub fn has_several_names(value: &InodeValue) -> bool {
    value.nlink > 1 && value.kind() != Some(FileKind::Directory)
}

/// The directories that an inode has names in, as far as is known; `parent` is the first.
pub fn directories_of(keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<Vec<u64>, Error> {
    let mut directories = vec![value.parent];
    if has_several_names(value) && !is_planted(Bug::OtherNamesForgotten) {
        directories.extend(named_in(keys, inode)?.into_keys().filter(|directory| *directory != value.parent));
    }
    Ok(directories)
}

/// Where in a directory a name of an inode is, if there is one.
pub fn sequence_in(keys: &impl Keys, inode: u64, directory: u64) -> Result<Option<u64>, Error> {
    let mut found = None;
    keys.visit(Key::dirent(directory, 0), Key::dirent(directory, u64::MAX), &mut |key, bytes| {
        let is_one = DirentView::decode(bytes).is_ok_and(|entry| entry.inode == inode);
        found = is_one.then_some(key.position);
        if is_one { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

fn write(transaction: &mut Transaction<'_>, inode: u64, before: &Directories, after: &Directories) {
    assert!(after.values().all(|count| *count > 0), "a directory that is noted has a name of inode {inode}");
    for directory in before.keys().filter(|directory| !after.contains_key(directory)) {
        transaction.delete(Key::named_in(inode, *directory));
    }
    for (directory, count) in after.iter().filter(|(directory, count)| before.get(directory) != Some(count)) {
        transaction.put(Key::named_in(inode, *directory), &count.to_le_bytes());
    }
}

fn add(directories: &mut Directories, directory: u64) {
    *directories.entry(directory).or_default() += 1;
}

fn subtract(directories: &mut Directories, directory: u64) {
    if let Some(count) = directories.get_mut(&directory) {
        assert!(*count > 0, "a directory that is noted has a name of the file");
        *count -= 1;
        if *count == 0 {
            directories.remove(&directory);
        }
    }
}

/// A name of an inode goes from one place, or comes to one, or both. `before` is the inode as it was; `value`, which the caller puts, has its
/// count of links already, and as `parent` the directory that is wanted: it stays where a name lies there. Tells of nothing else.
pub fn note_names(
    transaction: &mut Transaction<'_>,
    inode: u64,
    before: &InodeValue,
    value: &mut InodeValue,
    from: Option<NamePlace>,
    to: Option<NamePlace>,
) -> Result<(), Error> {
    assert_eq!(before.kind(), value.kind(), "inode {inode} stays what it is");
    assert!(from.is_some() || to.is_some(), "a name of inode {inode} goes or comes");
    if !has_several_names(before) && !has_several_names(value) || value.kind() == Some(FileKind::Directory) {
        return Ok(());
    }
    let known = named_in_known(transaction)?.unwrap_or(NamedInValue::NOTHING);
    let stored = named_in(transaction, inode)?;
    let mut directories = stored.clone();
    if before.nlink == 1 && known.counts(before.parent, 0) {
        // Nothing was noted of the only name. In a pool from before it may be elsewhere: then it is not counted yet.
        let sequence = match known == NamedInValue::ALL {
            true => Some(0),
            false => sequence_in(transaction, inode, before.parent)?,
        };
        if sequence.is_some_and(|sequence| known.counts(before.parent, sequence)) {
            add(&mut directories, before.parent);
        }
    }
    if let Some((directory, _)) = from.filter(|(directory, sequence)| known.counts(*directory, *sequence)) {
        subtract(&mut directories, directory);
    }
    if let Some((directory, _)) = to.filter(|(directory, sequence)| known.counts(*directory, *sequence)) {
        add(&mut directories, directory);
    }
    let is_parent_kept = directories.contains_key(&value.parent) || to.is_some_and(|(at, _)| at == value.parent);
    if let Some(first) = directories.keys().next().filter(|_| !is_parent_kept && !is_planted(Bug::ParentLeftBehind)) {
        value.parent = *first;
    }
    if !has_several_names(value) {
        directories.clear();
    }
    write(transaction, inode, &stored, &directories);
    Ok(())
}

/// A name that was not counted is: it is the next one in the order of their keys. Gives the inode where its `parent` is none of its directories,
/// with the right one; the caller puts it.
pub fn count_name(
    transaction: &mut Transaction<'_>,
    inode: u64,
    value: &InodeValue,
    directory: u64,
) -> Result<Option<InodeValue>, Error> {
    if value.kind() == Some(FileKind::Directory) || value.nlink == 0 {
        return Ok(None);
    }
    if value.nlink == 1 {
        return Ok((value.parent != directory).then(|| InodeValue { parent: directory, ..value.clone() }));
    }
    let stored = named_in(transaction, inode)?;
    let mut directories = stored.clone();
    add(&mut directories, directory);
    write(transaction, inode, &stored, &directories);
    let is_last = directories.values().map(|count| u64::from(*count)).sum::<u64>() >= u64::from(value.nlink);
    let first = directories.keys().next().copied().filter(|_| is_last && !directories.contains_key(&value.parent));
    Ok(first.map(|parent| InodeValue { parent, ..value.clone() }))
}

/// Holds the keys against the names that they are of, in a pool in which all are counted; in others nothing is wrong.
#[derive(Default)]
pub struct NamedInCheck {
    is_complete: bool,
    /// What the keys say.
    noted: FxHashMap<u64, Directories>,
    /// Of what has several names, where they are.
    named: FxHashMap<u64, Directories>,
    bad: FxHashSet<u64>,
}

/// What is wrong with the keys of an inode, and what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedInWrong {
    pub inode: u64,
    pub noted: Directories,
    pub right: Directories,
}

impl NamedInCheck {
    /// Of a pool in which so much is known.
    pub fn new(known: Option<NamedInValue>) -> NamedInCheck {
        NamedInCheck { is_complete: known == Some(NamedInValue::ALL), ..NamedInCheck::default() }
    }

    /// Whether anything is held against anything.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// A key of an inode that counts names.
    pub fn visit(&mut self, at: &Key, bytes: &[u8]) {
        let count = named_in_count(bytes);
        self.noted.entry(at.object).or_default().insert(at.position, count.unwrap_or(0));
        if count.is_none() {
            self.bad.insert(at.object);
        }
    }

    /// A name; `before`: the directory of the name of this inode that was met before it, if there was one.
    pub fn name(&mut self, directory: u64, inode: u64, before: Option<u64>) {
        assert!(before.is_some() || !self.named.contains_key(&inode), "inode {inode} had a name before this one");
        if let Some(before) = before {
            let named = self.named.entry(inode).or_insert_with(|| Directories::from([(before, 1)]));
            add(named, directory);
        }
    }

    /// The directories in which names of something were met that has several.
    pub fn named(&self, inode: u64) -> Option<&Directories> {
        self.named.get(&inode)
    }

    /// What is wrong, if `has_several` tells of which inodes there are several names and no directories.
    pub fn finish(&self, mut has_several: impl FnMut(u64) -> bool) -> Vec<NamedInWrong> {
        if !self.is_complete {
            return Vec::new();
        }
        let mut inodes: Vec<u64> = self.noted.keys().chain(self.named.keys()).copied().collect();
        inodes.sort_unstable();
        inodes.dedup();
        let mut wrong = Vec::new();
        for inode in inodes {
            let noted = self.noted.get(&inode).cloned().unwrap_or_default();
            let right = self.named(inode).filter(|_| has_several(inode)).cloned().unwrap_or_default();
            if noted != right || self.bad.contains(&inode) {
                wrong.push(NamedInWrong { inode, noted, right });
            }
        }
        wrong
    }
}
