//! Which inodes a search need look at, as the index tells: a superset of what is found, or nothing where only a pass over all will do.
//!
//! Of several covers of a search the one with the fewest entries is taken. What class and tertiary volumes hold for a file can come from a
//! directory above, which its own entry does not tell: so an index of these counts only while no directory has what is asked for, nor
//! the pool's default class. Invariants: what was written and is not saved is in memory, so all of that is looked at too; the memory is listed
//! before the index is read, and what moves in the index meanwhile is added. Read next: `crates/file/src/find_index.rs`.

use std::ops::ControlFlow;

use stere_file::find_index::{attribute_entry, attribute_range, is_entry};
use stere_file::inode_if_any;
use stere_format::{FileKind, FindIndexValue, Key};
use stere_policy::{Class, Indexed, Search};

use crate::error::Error;
use crate::{Caller, FileSystem};

/// More, and all inodes are looked at.
const CANDIDATES_MAX: usize = 1 << 20;
/// Entries read from the store at a time, or inodes.
const BATCH: usize = 4096;

/// The inodes to be looked at, in order; none if that is all of them.
pub(super) fn candidates(
    filesystem: &FileSystem,
    caller: &Caller<'_>,
    search: &Search,
) -> Result<Option<Vec<u64>>, Error> {
    let covers = search.covers();
    if covers.is_empty() {
        return Ok(None);
    }
    let Some(reading) = filesystem.files.read_index() else { return Ok(None) };
    let in_memory = filesystem.files.in_memory();
    let mut best: Option<Vec<u64>> = None;
    for cover in &covers {
        let limit = best.as_ref().map_or(CANDIDATES_MAX, Vec::len);
        if let Some(found) = gather(filesystem, caller, cover, limit)? {
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
    filesystem: &FileSystem,
    caller: &Caller<'_>,
    cover: &[Indexed],
    limit: usize,
) -> Result<Option<Vec<u64>>, Error> {
    let mut all = Vec::new();
    for indexed in cover {
        let Some(ranges) = ranges(filesystem, indexed) else { return Ok(None) };
        let begin = all.len();
        for (from, to) in ranges {
            if !read(filesystem, caller, from, to, &mut all, limit)? {
                return Ok(None);
            }
        }
        let is_inherited = matches!(indexed, Indexed::Class(_) | Indexed::Tier(_));
        if is_inherited && has_directory(filesystem, caller, &all[begin..])? {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// Reads entries; tells whether there was room for all.
fn read(
    filesystem: &FileSystem,
    caller: &Caller<'_>,
    from: Key,
    to: Key,
    all: &mut Vec<u64>,
    limit: usize,
) -> Result<bool, Error> {
    let mut from = Some(from);
    while let Some(at) = from {
        let (inodes, next) = filesystem.store.view(caller.wait, |view| {
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
        all.extend(inodes);
        if all.len() >= limit {
            return Ok(false);
        }
        from = next;
    }
    Ok(true)
}

fn has_directory(filesystem: &FileSystem, caller: &Caller<'_>, inodes: &[u64]) -> Result<bool, Error> {
    for some in inodes.chunks(BATCH) {
        let found = filesystem.store.view(caller.wait, |view| {
            for inode in some {
                let value = inode_if_any(view, *inode)?;
                if value.is_some_and(|value| value.kind() == Some(FileKind::Directory)) {
                    return Ok::<_, Error>(true);
                }
            }
            Ok(false)
        })?;
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the index has what may have this fact; none if it cannot tell.
fn ranges(filesystem: &FileSystem, indexed: &Indexed) -> Option<Vec<(Key, Key)>> {
    let resolver = filesystem.files.resolver();
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
            let mut ranges = named(&|class| class.tier().is_some())?;
            ranges.push((Key::find_tiered(0), Key::find_tiered(u64::MAX)));
            Some(ranges)
        }
    }
}
