//! Listing directories in the order in which names were made, with cookies that stay valid whatever changes.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use stere_features::features::Features;
use stere_features::stat::Stat;
use stere_file::inode_if_any;
use stere_format::dirent::DirentView;
use stere_format::{FileKind, InodeValue, Key};
use stere_namespace::access_times::LazyTimes;
use stere_namespace::attributes::Attributes;
use stere_namespace::call::Caller;
use stere_namespace::encryption::EncryptionKeys;
use stere_namespace::error::Error;
use stere_namespace::inode::{Core, directory};
use stere_namespace::names::{Names, SEQUENCE_FIRST, damaged};
use stere_namespace::namespace::Namespace;
use stere_store::View;

/// Names read from the store at a time.
const BATCH: usize = 128;
/// Where to go on after ".".
const COOKIE_DOT: u64 = 1;
/// Where to go on after "..".
const COOKIE_DOT_DOT: u64 = 2;
const _: () = assert!(SEQUENCE_FIRST > COOKIE_DOT_DOT, "no name has the cookie of a dot");

/// One name of a directory.
#[derive(Debug, Clone, Copy)]
pub struct DirectoryEntry<'a> {
    /// Inode it names.
    pub inode: u64,
    /// What that is.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
    /// Cookie with which a listing goes on behind this name.
    pub next_cookie: u64,
    /// Attributes, where they were asked for; not for "." and "..".
    pub attributes: Option<Attributes>,
}

/// Names read at a time, packed.
#[derive(Default)]
struct Batch {
    names: Vec<u8>,
    entries: Vec<BatchEntry>,
}

struct BatchEntry {
    inode: u64,
    kind: FileKind,
    name: Range<usize>,
    sequence: u64,
    value: Option<InodeValue>,
}

/// Lists directories.
pub(crate) struct Listing {
    pub(crate) core: Arc<Core>,
    pub(crate) access_times: Arc<LazyTimes>,
    pub(crate) encryption: Arc<EncryptionKeys>,
    pub(crate) stat: Arc<Stat>,
}

impl Listing {
    pub(crate) fn new(namespace: &Namespace, features: &Features) -> Listing {
        Listing {
            core: namespace.core.clone(),
            access_times: namespace.access_times.clone(),
            encryption: namespace.encryption.clone(),
            stat: features.stat.clone(),
        }
    }

    /// Lists names with these cookies until `visit` breaks. With `plus`, with attributes.
    pub(crate) fn list(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        cookies: Range<u64>,
        plus: bool,
        visit: &mut dyn FnMut(&DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let Range { start: cookie, end } = cookies;
        let (value, version_directory) = self.core.store.view(caller.io, |view| {
            let value = directory(view, inode)?;
            let version_directory = self.core.version_directory(view, inode, &value)?;
            Ok::<_, Error>((value, version_directory))
        })?;
        if cookie == 0 {
            self.access_times.note_access(caller, inode, &value);
        }
        let dots = [(COOKIE_DOT, &b"."[..], inode), (COOKIE_DOT_DOT, b"..", value.parent)];
        let mut batch = None;
        if cookie < COOKIE_DOT_DOT {
            // Before anything is handed out: a caller who must not wait repeats the whole call.
            batch = Some(self.batch(caller, inode, SEQUENCE_FIRST, plus)?);
        }
        for (next_cookie, name, number) in dots.into_iter().filter(|(next, _, _)| *next > cookie) {
            let entry =
                DirectoryEntry { inode: number, kind: FileKind::Directory, name, next_cookie, attributes: None };
            if visit(&entry).is_break() {
                return Ok(());
            }
        }
        let mut next = SEQUENCE_FIRST.max(cookie.saturating_add(1));
        let mut handed_out = batch.is_some();
        loop {
            let batch = match batch.take() {
                Some(batch) => batch,
                None => match self.batch(caller, inode, next, plus) {
                    Err(Error::WouldBlock) if handed_out => return Ok(()),
                    batch => batch?,
                },
            };
            let Some(last) = batch.entries.last() else { return Ok(()) };
            assert!(last.sequence >= next, "a listing goes on");
            next = last.sequence + 1;
            let removals = self.core.files.table.removals();
            for entry in &batch.entries {
                if entry.sequence >= end {
                    return Ok(());
                }
                if version_directory.is_some_and(|version_directory| version_directory.sequence == entry.sequence) {
                    continue;
                }
                let attributes = match &entry.value {
                    Some(value) => self.fresh(caller, entry.inode, value, removals, handed_out)?,
                    None => None,
                };
                if plus && attributes.is_none() && handed_out && entry.value.is_some() {
                    return Ok(());
                }
                let shown = DirectoryEntry {
                    inode: entry.inode,
                    kind: entry.kind,
                    name: &batch.names[entry.name.clone()],
                    next_cookie: entry.sequence,
                    attributes,
                };
                if visit(&shown).is_break() {
                    return Ok(());
                }
                handed_out = true;
            }
            if batch.entries.len() < BATCH {
                return Ok(());
            }
        }
    }

    /// Attributes with what is in memory; `None` when that would have to wait and something was handed out already.
    fn fresh(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        value: &InodeValue,
        removals: u64,
        handed_out: bool,
    ) -> Result<Option<Attributes>, Error> {
        match self.core.files.refresh(caller.io, inode, value.clone(), removals) {
            Ok(None) => Ok(None),
            Ok(Some(value)) => match self.stat.show_attributes(caller.io, inode, value) {
                Err(Error::WouldBlock) if handed_out => Ok(None),
                outcome => outcome.map(Some),
            },
            Err(error) if error.would_block() && handed_out => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn batch(&self, caller: &Caller<'_>, inode: u64, from: u64, plus: bool) -> Result<Batch, Error> {
        self.core.store.view(caller.io, |view| {
            let mut batch = self.read_names(view, inode, from)?;
            if plus {
                for entry in &mut batch.entries {
                    entry.value = inode_if_any(view, entry.inode)?;
                }
            }
            Ok(batch)
        })
    }

    fn read_names(&self, view: &View<'_>, inode: u64, from: u64) -> Result<Batch, Error> {
        let (batch, key) = read_names(&self.core.names, view, inode, from)?;
        self.encryption.note_encrypted(inode, key);
        Ok(batch)
    }
}

/// Names, and a key that one of them is encrypted with.
fn read_names(names: &Names, view: &View<'_>, inode: u64, from: u64) -> Result<(Batch, u16), Error> {
    let mut some_key = 0;
    let mut batch = Batch::default();
    let mut failure = None;
    view.scan(Key::dirent(inode, from), Key::dirent(inode, u64::MAX), |key, bytes| {
        match DirentView::decode(bytes) {
            Ok(entry) => {
                let start = batch.names.len();
                batch.names.extend_from_slice(&names.shown(inode, key.position, &entry).0);
                some_key = some_key.max(entry.key);
                let name = start..batch.names.len();
                let entry =
                    BatchEntry { inode: entry.inode, kind: entry.kind, name, sequence: key.position, value: None };
                batch.entries.push(entry);
            }
            Err(error) => failure = Some(damaged(inode, &error)),
        }
        if failure.is_some() || batch.entries.len() == BATCH {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    let first = batch.entries.first().map(|entry| entry.sequence);
    assert!(first.is_none_or(|first| first >= from), "names are read from {from} on, not from {first:?}");
    let is_rising = batch.entries.windows(2).all(|pair| pair[0].sequence < pair[1].sequence);
    assert!(is_rising && batch.entries.len() <= BATCH, "a batch has so many names at most, in order");
    failure.map_or(Ok((batch, some_key)), Err)
}
