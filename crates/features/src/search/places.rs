//! Where directories are, for a search: their paths from the one that is searched, as far as the caller may walk there.
//!
//! Invariant: a path is given only if the caller may read and search every directory on it, the last one too. Of a parent with many
//! directories the names are read once, in order, as far as somebody asked.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stere_format::dirent::DirentView;
use stere_format::{FileKind, Key};
use stere_namespace::acl;
use stere_namespace::acl::{MAY_READ, MAY_SEARCH};
use stere_namespace::call::{Caller, ROOT};
use stere_namespace::error::Error;
use stere_namespace::names::damaged;

use crate::search::Searches;

/// Names read from the store at a time.
const BATCH: usize = 1024;
/// Directories that are remembered; beyond that memory starts afresh.
const KNOWN_MAX: usize = 262_144;
/// Deeper than any path.
const DEPTH_MAX: usize = 65_000;

/// What is known of directories.
pub struct Places {
    start: u64,
    /// Paths from the start; none of those that lie elsewhere, or behind what the caller may not list.
    paths: FxHashMap<u64, Option<Arc<[u8]>>>,
    /// By directory: the one above it, and its name there.
    names: FxHashMap<u64, (u64, Arc<[u8]>)>,
    /// By parent: which of its names is to be read next.
    read_to: FxHashMap<u64, u64>,
}

impl Places {
    pub fn new(start: u64) -> Places {
        Places { start, paths: FxHashMap::default(), names: FxHashMap::default(), read_to: FxHashMap::default() }
    }

    /// The path of a directory; none if what is in it is not to be shown.
    pub fn path_from_start(
        &mut self,
        search: &Searches,
        caller: &Caller<'_>,
        directory: u64,
    ) -> Result<Option<Arc<[u8]>>, Error> {
        let mut way: Vec<(u64, Arc<[u8]>)> = Vec::new();
        let mut at = directory;
        let mut path = loop {
            if let Some(known) = self.paths.get(&at) {
                break known.clone();
            }
            let Some(parent) = listable(search, caller, at)? else { break None };
            if at == self.start {
                break Some(Arc::from(&b""[..]));
            }
            if at == ROOT || way.len() > DEPTH_MAX {
                break None;
            }
            let Some(name) = self.name(search, caller, parent, at)? else { break None };
            way.push((at, name));
            at = parent;
        };
        if self.paths.len() + way.len() > KNOWN_MAX {
            self.paths.clear();
        }
        self.paths.insert(at, path.clone());
        for (below, name) in way.into_iter().rev() {
            path = path.map(|above| {
                let slash: &[u8] = if above.is_empty() { b"" } else { b"/" };
                [&above[..], slash, &name[..]].concat().into()
            });
            self.paths.insert(below, path.clone());
        }
        Ok(path)
    }

    /// The name of a directory in the one above it.
    pub fn name(
        &mut self,
        search: &Searches,
        caller: &Caller<'_>,
        parent: u64,
        directory: u64,
    ) -> Result<Option<Arc<[u8]>>, Error> {
        let known = |names: &FxHashMap<u64, (u64, Arc<[u8]>)>| {
            names.get(&directory).filter(|(above, _)| *above == parent).map(|(_, name)| name.clone())
        };
        if let Some(name) = known(&self.names) {
            return Ok(Some(name));
        }
        if self.names.len() > KNOWN_MAX {
            self.names.clear();
            self.read_to.clear();
        }
        let begun = self.read_to.get(&parent).copied().unwrap_or(0);
        if let Some(name) = self.read_until(search, caller, parent, directory, begun)? {
            return Ok(Some(name));
        }
        // It may have been forgotten, though its name was read.
        if begun == 0 { Ok(None) } else { self.read_until(search, caller, parent, directory, 0) }
    }

    /// Reads names of a parent until the one of a directory is among them.
    fn read_until(
        &mut self,
        search: &Searches,
        caller: &Caller<'_>,
        parent: u64,
        directory: u64,
        from: u64,
    ) -> Result<Option<Arc<[u8]>>, Error> {
        let mut from = Some(from);
        while let Some(at) = from {
            let (directories, next) = read_directories(search, caller, parent, at)?;
            let mut found = None;
            let end = directories.last().map(|(position, _, _)| position + 1);
            for (_, inode, name) in directories {
                found = if inode == directory { Some(name.clone()) } else { found };
                self.names.insert(inode, (parent, name));
            }
            if let Some(at) = next.or(end) {
                self.read_to.insert(parent, at);
            }
            if found.is_some() {
                return Ok(found);
            }
            from = next;
        }
        Ok(None)
    }
}

type Directories = (Vec<(u64, u64, Arc<[u8]>)>, Option<u64>);

/// Directories among some names: position, inode and name; and where to go on.
fn read_directories(search: &Searches, caller: &Caller<'_>, parent: u64, from: u64) -> Result<Directories, Error> {
    search.core.store.view(caller.io, |view| {
        let (mut directories, mut count, mut next, mut failure) = (Vec::new(), 0, None, None);
        view.scan(Key::dirent(parent, from), Key::dirent(parent, u64::MAX), |key, bytes| {
            count += 1;
            match DirentView::decode(bytes) {
                Ok(entry) if entry.kind == FileKind::Directory => {
                    let (name, _) = search.core.names.shown(parent, key.position, &entry);
                    directories.push((key.position, entry.inode, Arc::from(&name[..])));
                }
                Ok(_) => {}
                Err(error) => failure = Some(damaged(parent, &error)),
            }
            next = (count == BATCH).then_some(key.position + 1);
            if next.is_some() || failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        assert!(next.is_none_or(|next| next > from), "names are read in order, from {from} to {next:?}");
        failure.map_or(Ok((directories, next)), Err)
    })
}

/// The parent of a directory whose names the caller may read, and what they mean.
fn listable(search: &Searches, caller: &Caller<'_>, directory: u64) -> Result<Option<u64>, Error> {
    search.core.store.view(caller.io, |view| {
        let value = stere_file::inode_if_any(view, directory)?;
        let Some(value) = value.filter(|value| value.kind() == Some(FileKind::Directory)) else { return Ok(None) };
        let may = acl::permits(view, directory, &value, caller, MAY_READ | MAY_SEARCH)?;
        Ok(may.then_some(value.parent))
    })
}
