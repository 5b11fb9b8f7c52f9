//! Walking a subtree: every name below a directory with its path, in bounded memory, while others change it.
//!
//! Memory: the names read ahead of each directory on the way down. A name that is made or moved while the walk is under way
//! may be met, missed or met twice; all others are met once for each of their names. Names that were put away are brought back, unless
//! the walk passes over them (`fold.rs`).

use std::collections::VecDeque;
use std::ops::ControlFlow;

use stere_format::dirent::DirentView;
use stere_format::{FileKind, Key};
use stere_store::{Io, Store};

use crate::call::{LINKS_MAX, ROOT};
use crate::error::Error;
use crate::names::{Form, Names, damaged};

/// Names read from the store at a time.
const BATCH: usize = 128;
/// Deeper than any path that can be made; metadata that loops is damaged.
const DEPTH_MAX: usize = LINKS_MAX as usize;

pub struct Entry {
    pub inode: u64,
    pub kind: FileKind,
    name: Vec<u8>,
    form: Form,
}

struct Level {
    directory: u64,
    /// Where to go on; none when all names were read.
    next_sequence: Option<u64>,
    entries: VecDeque<Entry>,
    /// Length of the path down to the directory.
    path_length: usize,
    /// The least readable name on the path.
    form: Form,
}

/// Something that the walk came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Met {
    pub inode: u64,
    pub kind: FileKind,
}

/// A walk under way.
pub struct Walk {
    levels: Vec<Level>,
    path: Vec<u8>,
    form: Form,
    first: Option<Met>,
    /// Names that were put away stay away.
    passes_over: bool,
}

impl Walk {
    /// Over an inode, and if it is a directory over everything below it; `path` is its path, of this form.
    pub fn new(inode: u64, kind: FileKind, path: Vec<u8>, form: Form) -> Walk {
        let is_path = path.is_empty() || (path.starts_with(b"/") && path.len() > 1);
        assert!(is_path, "{:?} is the path of a walk, to which names are added", String::from_utf8_lossy(&path));
        Walk { levels: Vec::new(), path, form, first: Some(Met { inode, kind }), passes_over: false }
    }

    /// The same without what was put away: for work that brings nothing back from volumes.
    pub fn passing_over(self) -> Walk {
        Walk { passes_over: true, ..self }
    }

    /// The least readable name on the path of what was met last.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Over the whole name space.
    pub fn everything() -> Walk {
        Walk::new(ROOT, FileKind::Directory, Vec::new(), Form::Plain)
    }

    /// The directory of what was met last, by the name it was met by; none if the walk began there.
    pub fn directory(&self, met: &Met) -> Option<u64> {
        // A directory that was met is the last level itself.
        let above = if met.kind == FileKind::Directory { 1 } else { 0 };
        let level = self.levels.len().checked_sub(1 + above)?;
        Some(self.levels[level].directory)
    }

    /// The path of what was met last, from the root of the pool.
    pub fn path(&self) -> &[u8] {
        if self.path.is_empty() { b"/" } else { &self.path }
    }

    /// Goes not into the directory that was met last.
    pub fn skip(&mut self) {
        let skipped = self.levels.pop().filter(|level| level.next_sequence == Some(0) && level.entries.is_empty());
        assert!(skipped.is_some(), "what is skipped is a directory that was met just now");
    }

    /// The next name.
    pub fn next(&mut self, store: &Store, names: &Names, io: Io<'_>) -> Result<Option<Met>, Error> {
        if let Some(first) = self.first.take() {
            self.descend(&first)?;
            return Ok(Some(first));
        }
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            self.path.truncate(level.path_length);
            if let Some(entry) = level.entries.pop_front() {
                if self.passes_over && store.offload().is_folded(&Key::inode(entry.inode)) {
                    continue;
                }
                assert_eq!(self.path.len(), level.path_length, "a name is added to its directory's path");
                self.path.push(b'/');
                self.path.extend_from_slice(&entry.name);
                self.form = level.form.max(entry.form);
                let met = Met { inode: entry.inode, kind: entry.kind };
                self.descend(&met)?;
                return Ok(Some(met));
            }
            let Some(from) = level.next_sequence else {
                self.levels.pop();
                continue;
            };
            if self.passes_over && store.offload().is_folded(&Key::dirent(level.directory, from)) {
                self.levels.pop();
                continue;
            }
            (level.entries, level.next_sequence) = read_names(store, names, io, level.directory, from)?;
        }
    }

    fn descend(&mut self, met: &Met) -> Result<(), Error> {
        if met.kind != FileKind::Directory {
            return Ok(());
        }
        if self.levels.len() >= DEPTH_MAX {
            return Err(Error::Damaged("directories lie in each other; unmount and run `stere check`".into()));
        }
        let is_below = self.levels.last().is_none_or(|above| above.path_length < self.path.len());
        assert!(is_below, "the path of inode {} goes on behind that of its directory", met.inode);
        self.levels.push(Level {
            directory: met.inode,
            next_sequence: Some(0),
            entries: VecDeque::new(),
            path_length: self.path.len(),
            form: self.form,
        });
        Ok(())
    }
}

pub type ReadNames = (VecDeque<Entry>, Option<u64>);

pub fn read_names(store: &Store, names: &Names, io: Io<'_>, directory: u64, from: u64) -> Result<ReadNames, Error> {
    store.view(io, |view| {
        let (mut entries, mut next, mut failure) = (VecDeque::new(), None, None);
        view.scan(Key::dirent(directory, from), Key::dirent(directory, u64::MAX), |key, bytes| {
            match DirentView::decode(bytes) {
                Ok(entry) => {
                    let (name, form) = names.shown(directory, key.position, &entry);
                    let name = name.into_owned();
                    entries.push_back(Entry { inode: entry.inode, kind: entry.kind, name, form });
                }
                Err(error) => failure = Some(damaged(directory, &error)),
            }
            next = (entries.len() == BATCH).then_some(key.position + 1);
            if next.is_some() || failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        assert!(next.is_none_or(|next| next > from), "names are read in order, from {from} to {next:?}");
        failure.map_or(Ok((entries, next)), Err)
    })
}

/// The path of an inode from the root of the pool; one of them if it has several names, none if it has no name.
pub fn path_of(store: &Store, names: &Names, io: Io<'_>, inode: u64) -> Result<Option<Vec<u8>>, Error> {
    Ok(path_and_form(store, names, io, inode)?.map(|(path, _)| path))
}

/// The same, and the least readable name on it.
pub fn path_and_form(store: &Store, names: &Names, io: Io<'_>, inode: u64) -> Result<Option<(Vec<u8>, Form)>, Error> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut least = Form::Plain;
    let mut at = inode;
    while at != ROOT {
        if parts.len() >= DEPTH_MAX {
            return Ok(None);
        }
        let found = store.view(io, |view| {
            let Some(value) = stere_file::inode_if_any(view, at)? else { return Ok(None) };
            Ok::<_, Error>(names.name_of(view, at, &value)?.map(|name| (value.parent, name)))
        })?;
        let Some((parent, (name, form))) = found else { return Ok(None) };
        parts.push(name);
        least = least.max(form);
        at = parent;
    }
    let mut path = Vec::new();
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    assert_eq!(path.is_empty(), inode == ROOT, "only the root has no name on its path");
    Ok(Some((if path.is_empty() { b"/".to_vec() } else { path }, least)))
}
