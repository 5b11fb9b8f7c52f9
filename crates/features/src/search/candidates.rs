//! Which inodes a searches need look at, as the index tells: a superset of what is found, or nothing where only a pass over all will do.
//!
//! Of several covers of a searches the one with the fewest entries is taken. What class and media hold for a file can come from a
//! directory above, which its own entry does not tell: so all that lies below a directory with what is asked for is a candidate, and where
//! that is much, or where the pool's default class has it, all inodes are looked at. That relies on each file having a name below whatever it inherits
//! from, so in a pool from before it is not done until names are counted. Invariants: what was written and is not saved is in memory, so all of that is looked at too; the memory is listed
//! before the index is read, and what moves in the index meanwhile is added. Read next: `crates/file/src/find_index.rs`.

use std::ops::ControlFlow;

use rustc_hash::FxHashSet;
use stere_file::find_index::{attribute_entry, attribute_range, is_entry};
use stere_file::inode_if_any;
use stere_format::dirent::DirentView;
use stere_format::{FileKind, FindIndexValue, Key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_policy::{Class, Indexed, Search};

use crate::search::Searches;

/// More, and all inodes are looked at.
const CANDIDATES_MAX: usize = 1 << 20;
/// Entries read from the store at a time, or inodes.
const BATCH: usize = 4096;
/// Which part of the inodes there are may lie below directories that have what is asked for, and how many in any case.
const WALKED_DIVISOR: u64 = 8;
const WALKED_MIN: usize = 1024;

/// The inodes to be looked at, in order; none if that is all of them.
pub fn candidates(searches: &Searches, caller: &Caller<'_>, search: &Search) -> Result<Option<Vec<u64>>, Error> {
    let covers = search.covers();
    if covers.is_empty() {
        return Ok(None);
    }
    let Some(reading) = searches.core.files.search_index.begin_reading() else { return Ok(None) };
    let in_memory = searches.core.files.table.inodes();
    let mut best: Option<Vec<u64>> = None;
    for cover in &covers {
        let limit = best.as_ref().map_or(CANDIDATES_MAX, Vec::len);
        if let Some(found) = gather(searches, &caller.skipping_offloaded(), cover, limit)? {
            assert!(found.len() <= limit, "candidates are bounded");
            best = Some(found);
        }
    }
    let (Some(mut inodes), Some(moved)) = (best, reading.moved()) else { return Ok(None) };
    inodes.extend(in_memory);
    inodes.extend(moved);
    inodes.sort_unstable();
    inodes.dedup();
    Ok(Some(inodes))
}

/// What has one of these facts; none if the index cannot tell, or it is `limit` or more.
fn gather(
    searches: &Searches,
    caller: &Caller<'_>,
    cover: &[Indexed],
    limit: usize,
) -> Result<Option<Vec<u64>>, Error> {
    let mut all = Vec::new();
    for indexed in cover {
        let Some(ranges) = ranges(searches, indexed) else { return Ok(None) };
        let begin = all.len();
        for (from, to) in ranges {
            if !read(searches, caller, from, to, &mut all, limit)? {
                return Ok(None);
            }
        }
        let is_inherited = matches!(indexed, Indexed::Class(_) | Indexed::Tier(_));
        if !is_inherited {
            continue;
        }
        let directories = directories_among(searches, caller, &all[begin..])?;
        let most = limit.min(all.len().saturating_add(walked_max(searches)));
        if !directories.is_empty()
            && (!searches.core.names_are_counted(caller.io)? || !walk(searches, caller, directories, &mut all, most)?)
        {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// Reads entries; tells whether there was room for all.
fn read(
    searches: &Searches,
    caller: &Caller<'_>,
    from: Key,
    to: Key,
    all: &mut Vec<u64>,
    limit: usize,
) -> Result<bool, Error> {
    let mut from = Some(from);
    while let Some(at) = from {
        let (inodes, next) = searches.core.store.view(caller.io, |view| {
            let (mut inodes, mut keys, mut next) = (Vec::new(), 0, None);
            view.scan(at, to, |key, _| {
                if keys == BATCH {
                    next = Some(*key);
                    return ControlFlow::Break(());
                }
                keys += 1;
                inodes.extend(is_entry(key).then_some(key.position));
                ControlFlow::Continue(())
            })?;
            Ok::<_, Error>((inodes, next))
        })?;
        assert!(next.is_none_or(|next| next > at), "entries are read in order, from {at} to {next:?}");
        all.extend(inodes);
        if all.len() >= limit {
            return Ok(false);
        }
        from = next;
    }
    Ok(true)
}

/// Those of them that are directories.
fn directories_among(searches: &Searches, caller: &Caller<'_>, inodes: &[u64]) -> Result<Vec<u64>, Error> {
    let mut directories = Vec::new();
    for some in inodes.chunks(BATCH) {
        let found = searches.core.store.view(caller.io, |view| {
            let mut found = Vec::new();
            for inode in some {
                let value = match inode_if_any(view, *inode) {
                    // It was put away, which no directory with a policy is.
                    Err(stere_file::Error::Store(stere_store::Error::Elsewhere { .. })) => None,
                    value => value?,
                };
                let is_one = value.is_some_and(|value| value.kind() == Some(FileKind::Directory));
                found.extend(is_one.then_some(*inode));
            }
            Ok::<_, Error>(found)
        })?;
        directories.extend(found);
    }
    Ok(directories)
}

/// Names below directories that are walked over: walking over more takes longer than looking at all inodes.
fn walked_max(searches: &Searches) -> usize {
    let statistics = searches.core.statfs();
    let inodes = statistics.files.saturating_sub(statistics.files_free);
    usize::try_from(inodes / WALKED_DIVISOR).unwrap_or(usize::MAX).max(WALKED_MIN)
}

/// Adds all that has a name below these directories; tells whether there was room for all. What was put away stays away.
fn walk(
    searches: &Searches,
    caller: &Caller<'_>,
    mut directories: Vec<u64>,
    all: &mut Vec<u64>,
    limit: usize,
) -> Result<bool, Error> {
    let mut met: FxHashSet<u64> = directories.iter().copied().collect();
    while let Some(directory) = directories.pop() {
        let mut from = Some(0);
        while let Some(at) = from {
            let (names, next) = searches.core.store.view(caller.io, |view| {
                let (mut names, mut next) = (Vec::new(), None);
                view.scan(Key::dirent(directory, at), Key::dirent(directory, u64::MAX), |key, bytes| {
                    if names.len() == BATCH {
                        next = Some(key.position);
                        return ControlFlow::Break(());
                    }
                    names.extend(DirentView::decode(bytes).ok().map(|entry| (entry.inode, entry.kind)));
                    ControlFlow::Continue(())
                })?;
                Ok::<_, Error>((names, next))
            })?;
            assert!(next.is_none_or(|next| next > at), "names are read in order, from {at} to {next:?}");
            all.extend(names.iter().map(|(inode, _)| *inode));
            let below = names.iter().filter(|(inode, kind)| *kind == FileKind::Directory && met.insert(*inode));
            directories.extend(below.map(|(inode, _)| *inode));
            if all.len() >= limit {
                return Ok(false);
            }
            from = next;
        }
    }
    Ok(true)
}

/// Where the index has what may have this fact; none if it cannot tell.
fn ranges(searches: &Searches, indexed: &Indexed) -> Option<Vec<(Key, Key)>> {
    let resolver = searches.core.files.resolver();
    let classes = resolver.classes();
    let of_class = |class: Class| (Key::find_class(class.code(), 0), Key::find_class(class.code(), u64::MAX));
    let named = |is_meant: &dyn Fn(Class) -> bool| {
        if is_meant(classes.resolve(resolver.default_class())) {
            return None;
        }
        let all = (1..=u8::MAX).filter_map(Class::from_code);
        Some(all.filter(|class| is_meant(classes.resolve(*class))).map(of_class).collect::<Vec<_>>())
    };
    match indexed {
        Indexed::SizeAtLeast(bytes) if *bytes < FindIndexValue::SIZE_BYTES_MIN => None,
        Indexed::SizeAtLeast(bytes) => {
            let powers = bytes.ilog2() as u8..=u64::MAX.ilog2() as u8;
            Some(powers.map(|power| (Key::find_size(power, 0), Key::find_size(power, u64::MAX))).collect())
        }
        Indexed::Attribute(name, None) => Some(vec![attribute_range(name.as_bytes())]),
        Indexed::Attribute(name, Some(value)) => {
            let at = |inode| attribute_entry(name.as_bytes(), value.as_bytes(), inode);
            Some(vec![(at(0), at(u64::MAX))])
        }
        Indexed::Class(name) => {
            let wanted = classes.find(name)?;
            named(&|class| class == wanted)
        }
        Indexed::Tier(_) => {
            let mut ranges = named(&|class| classes.tier(class).is_some())?;
            ranges.push((Key::find_tiered(0), Key::find_tiered(u64::MAX)));
            Some(ranges)
        }
    }
}
