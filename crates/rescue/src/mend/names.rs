//! Inodes for what has lost its own, names for what has none, and one way from the root to every directory.

use std::collections::{BTreeMap, BTreeSet};

use stere_format::{DirentBucket, DirentValue, FileKind, InodeValue, Key, Timestamp};
use stere_store::{Error, Io, Store};

use super::survey::{Name, Survey, hash_of};
use super::{ROOT, Step};

const SEQUENCE_FIRST: u64 = InodeValue::DIRENT_SEQUENCE_FIRST;
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Of root and without content.
fn new_inode(kind: FileKind, permissions: u32, parent: u64, now: Timestamp) -> InodeValue {
    InodeValue {
        nlink: if kind == FileKind::Directory { 2 } else { 1 },
        next_dirent_sequence: SEQUENCE_FIRST,
        ..InodeValue::new(kind.mode_bits() | permissions, 0, 0, parent, now)
    }
}

/// Makes inodes where there are contents or names without one; removes what is left of the others.
pub(super) fn inodes(survey: &Survey, now: Timestamp) -> Result<Step, Error> {
    let mut step = Step::default();
    for (inode, seen) in survey.inodes.iter().filter(|(_, seen)| seen.value.is_none()) {
        let is_file = seen.extents > 0;
        if !is_file && seen.entries == 0 && *inode != ROOT {
            continue;
        }
        let kind = if is_file { FileKind::File } else { FileKind::Directory };
        let mut value = new_inode(kind, if is_file { 0o600 } else { 0o700 }, ROOT, now);
        if is_file {
            (value.size, value.blocks_bytes) = (seen.data_end, seen.allocated);
            value.charged_bytes = seen.charged_bytes;
        }
        value.flags = u32::from(seen.has_xattrs);
        step.put(Key::inode(*inode), value.encode());
        step.say(*inode, true, "its owner, mode and times are lost; it has new ones".into());
    }
    if !survey.inodes.contains_key(&ROOT) {
        step.put(Key::inode(ROOT), new_inode(FileKind::Directory, 0o755, ROOT, now).encode());
        step.say(ROOT, true, "the root directory was lost; there is a new one".into());
    }
    Ok(step)
}

/// Removes names that lead nowhere or a second time to a directory, and gives names to what has none.
pub(super) fn names(store: &Store, survey: &Survey, now: Timestamp) -> Result<Step, Error> {
    let mut step = Step::default();
    let mut parents: BTreeMap<u64, &Name> = BTreeMap::new();
    let mut named: BTreeSet<u64> = BTreeSet::from([ROOT]);
    for name in &survey.names {
        let target = survey.inodes.get(&name.inode).and_then(|seen| seen.kind());
        let holder_is_directory = survey.inodes.get(&name.directory).is_some_and(|seen| seen.is_directory());
        let why = match target {
            None => Some((true, "what it led to is lost")),
            Some(_) if !holder_is_directory => Some((false, "it was in no directory")),
            Some(FileKind::Directory) if name.inode == ROOT => Some((false, "it led back to the root")),
            Some(FileKind::Directory) => {
                parents.get(&name.inode).map(|_| (false, "it was a second name of a directory"))
            }
            Some(_) => None,
        };
        if let Some((data_lost, why)) = why {
            remove(store, name, data_lost, why, &mut step)?;
            continue;
        }
        named.insert(name.inode);
        if target == Some(FileKind::Directory) {
            parents.insert(name.inode, name);
        }
        if target.is_some_and(|kind| kind != name.kind) {
            rename_kind(store, name, target, &mut step)?;
        }
    }
    if step.changes.is_empty() {
        cut_loops(store, survey, &parents, &mut step)?;
    }
    if step.changes.is_empty() {
        name_the_nameless(store, survey, &named, now, &mut step)?;
    }
    Ok(step)
}

fn entry(store: &Store, name: &Name) -> Result<Option<DirentValue>, Error> {
    let key = Key::dirent(name.directory, name.sequence);
    let bytes = store.view(Io::BLOCKING, |view| view.get(&key))?;
    Ok(bytes.and_then(|bytes| DirentValue::decode(&bytes).ok()))
}

fn remove(store: &Store, name: &Name, data_lost: bool, why: &str, step: &mut Step) -> Result<(), Error> {
    let text = entry(store, name)?.map_or_else(String::new, |it| String::from_utf8_lossy(&it.name).into_owned());
    step.delete(Key::dirent(name.directory, name.sequence));
    step.say(name.directory, data_lost, format!("the name '{text}' in it is removed: {why}"));
    Ok(())
}

fn rename_kind(store: &Store, name: &Name, kind: Option<FileKind>, step: &mut Step) -> Result<(), Error> {
    if let (Some(entry), Some(kind)) = (entry(store, name)?, kind) {
        step.put(Key::dirent(name.directory, name.sequence), DirentValue { kind, ..entry }.encode());
        step.say(name.inode, false, "its name tells its kind again".into());
    }
    Ok(())
}

/// Takes the name from a directory that leads to itself, so that it gets one from which the root is reached.
fn cut_loops(store: &Store, survey: &Survey, parents: &BTreeMap<u64, &Name>, step: &mut Step) -> Result<(), Error> {
    let mut good: BTreeSet<u64> = BTreeSet::from([ROOT]);
    for inode in survey.inodes.iter().filter(|(_, seen)| seen.is_directory()).map(|(inode, _)| *inode) {
        let mut path = BTreeSet::new();
        let mut at = inode;
        while !good.contains(&at) && path.insert(at) {
            match parents.get(&at) {
                Some(name) => at = name.directory,
                // One without a name gets one.
                None => break,
            }
        }
        let is_loop = path.contains(&at) && parents.contains_key(&at) && !good.contains(&at);
        if is_loop && let Some(name) = parents.get(&at) {
            remove(store, name, false, "it led in a circle", step)?;
        }
        good.extend(path);
    }
    Ok(())
}

/// Puts inodes without names into `lost+found`, which is made if it has to be.
fn name_the_nameless(
    store: &Store,
    survey: &Survey,
    named: &BTreeSet<u64>,
    now: Timestamp,
    step: &mut Step,
) -> Result<(), Error> {
    let is_removed =
        |inode: &u64, links: u32| links == 0 || survey.orphans.get(inode).is_some_and(|kind| **kind == [1]);
    let nameless: Vec<u64> = survey
        .inodes
        .iter()
        .filter(|(inode, seen)| {
            !named.contains(inode) && seen.value.as_ref().is_some_and(|value| !is_removed(inode, value.nlink))
        })
        .map(|(inode, _)| *inode)
        .collect();
    if nameless.is_empty() {
        return Ok(());
    }
    let mut place = None;
    for name in survey.names.iter().filter(|name| name.directory == ROOT && name.kind == FileKind::Directory) {
        if entry(store, name)?.is_some_and(|entry| entry.name == LOST_AND_FOUND) {
            place = Some(name.inode);
        }
    }
    let next_sequence = |inode: u64| {
        let seen = survey.inodes.get(&inode);
        let told = seen.and_then(|seen| seen.value.as_ref()).map_or(0, |value| value.next_dirent_sequence);
        told.max(seen.map_or(0, |seen| seen.last_sequence + 1)).max(SEQUENCE_FIRST)
    };
    let Some(place) = place else {
        let inode = store.update(Io::BLOCKING, |transaction| Ok::<_, Error>(transaction.allocate_inode()))?;
        let entry = DirentValue { inode, kind: FileKind::Directory, key: 0, name: LOST_AND_FOUND.to_vec() };
        step.put(Key::inode(inode), new_inode(FileKind::Directory, 0o700, ROOT, now).encode());
        step.put(Key::dirent(ROOT, next_sequence(ROOT)), entry.encode());
        return Ok(());
    };
    for (sequence, inode) in (next_sequence(place)..).zip(nameless) {
        let Some(kind) = survey.inodes.get(&inode).and_then(|seen| seen.kind()) else { continue };
        let entry = DirentValue { inode, kind, key: 0, name: inode.to_string().into_bytes() };
        step.put(Key::dirent(place, sequence), entry.encode());
        step.say(inode, false, format!("it had no name; it is lost+found/{inode} now"));
    }
    Ok(())
}

/// Hashes names anew where hashes and names differ.
pub(super) fn buckets(store: &Store, survey: &Survey) -> Result<Step, Error> {
    let mut step = Step::default();
    for directory in &survey.unhashed {
        let mut buckets: BTreeMap<u64, DirentBucket> = BTreeMap::new();
        store.for_each_key(Key::dirent(*directory, 0), Key::dirent(*directory, u64::MAX), |key, bytes| {
            if let Ok(entry) = DirentValue::decode(bytes) {
                buckets.entry(hash_of(store, &entry.name)).or_default().insert(key.position);
            }
        })?;
        let (from, to) = (Key::dirent_hash(*directory, 0), Key::dirent(*directory, 0));
        store.for_each_key(from, to, |key, _| step.delete(*key))?;
        for (hash, bucket) in buckets {
            step.put(Key::dirent_hash(*directory, hash), bucket.encode());
        }
        step.say(*directory, false, "its names can all be found again".into());
    }
    Ok(step)
}
