//! Versions: what files held before they were changed, replaced or removed.
//!
//! A version is an inode of its own with a name of its own, in directories that are found below the file's directory by the name
//! `.versions` and are not listed there: so everything that walks names and inodes treats it like a file. What is removed becomes a
//! version itself, in the transaction that removes it; what is about to change is copied by reference before, with the file locked.
//! Invariants: inodes with the flag `OF_VERSIONS` are changed by this module only; each version that is a file has its place in the
//! index of the order in which versions go; a directory has the flag `HAS_VERSIONS` exactly while it has such a directory below it,
//! and none of those is empty. Time is the caller's.
//! Read next: `shelf` (the directories), `expire` (what goes), `stere_policy::Versions`, `docs/design/versions.md`.

mod directory;
mod expire;

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use stere_faults::{Bug, is_planted};
use stere_file::{
    Keys, OF_VERSIONS, Unchanged, Unlink, inode_if_any, own_locks, own_versions, set_own_locks, set_own_versions,
};
use stere_format::dirent::DirentView;
use stere_format::{FileKind, InodeValue, Key};
use stere_namespace::access_times::LazyTimes;
use stere_namespace::call::Caller;
use stere_namespace::encryption::EncryptionKeys;
use stere_namespace::error::Error;
use stere_namespace::inode::{Core, VERSION_DIRECTORY_NAMES, check_not_of_versions};
use stere_namespace::names::{Found, damaged};
use stere_namespace::{classes, tiers, xattr};
use stere_policy::{Own, Source, Versions as Wanted};
use stere_store::{Io, Transaction, View};

use crate::accounting::Quotas;

/// The attribute that says how many and how long.
pub const ATTRIBUTE: &[u8] = b"user.stere.versions";
/// What the directory of versions is called, but where somebody has something called so.
pub const NAME: &[u8] = VERSION_DIRECTORY_NAMES[0];
/// Below this part of the pool being free none are made, and those there are go.
const FREE_DIVISOR: u64 = 16;
/// How many are asked for before that is looked at again; the background looks too.
const ASKED_PER_LOOK: u32 = 64;

/// Versions of files.
pub struct Versions {
    core: Arc<Core>,
    encryption: Arc<EncryptionKeys>,
    quotas: Arc<Quotas>,
    access_times: Arc<LazyTimes>,
    /// Whether anything in the pool ever was to have versions.
    is_used: AtomicBool,
    /// There was too little room when that was looked at.
    is_short: AtomicBool,
    /// Counts the questions, since working it out takes longer than storing a small file.
    asked: AtomicU32,
    /// Directories of versions that the kernel may know.
    known: Mutex<FxHashSet<u64>>,
    /// Files that were removed while they were open: what is written over the handles that are left goes into the version.
    open: Mutex<FxHashSet<u64>>,
}

impl Versions {
    /// Reads whether the pool has any.
    pub fn load(
        core: Arc<Core>,
        encryption: Arc<EncryptionKeys>,
        quotas: Arc<Quotas>,
        access_times: Arc<LazyTimes>,
    ) -> Result<Versions, Error> {
        let is_marked = |view: &View<'_>| Ok::<_, Error>(view.get(&Key::version(0, 0))?.is_some());
        let is_used = AtomicBool::new(core.store.view(Io::BLOCKING, is_marked)?);
        Ok(Versions {
            core,
            encryption,
            quotas,
            access_times,
            is_used,
            is_short: AtomicBool::new(false),
            asked: AtomicU32::new(0),
            known: Mutex::default(),
            open: Mutex::default(),
        })
    }

    /// Whether anything in the pool ever was to have versions.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }
}

/// What is kept of one file: its directory of versions says the same, as a lock where it is one, or a lock further up would go before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct OfOne {
    said: Option<Wanted>,
    locked: Option<Wanted>,
}

impl OfOne {
    /// What a directory of versions says.
    fn noted(drawer: &InodeValue) -> OfOne {
        OfOne { said: own_versions(drawer), locked: own_locks(drawer).versions }
    }

    pub fn note(self, drawer: &mut InodeValue) {
        set_own_versions(drawer, self.said);
        set_own_locks(drawer, Own { versions: self.locked, ..own_locks(drawer) });
    }
}

impl Versions {
    /// Which versions policy keeps of an inode, and who said so; nothing where nobody says anything.
    fn said(&self, keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<Option<(Wanted, Source)>, Error> {
        let effective = self.core.files.policies.effective(keys, inode, value)?;
        Ok(effective.versions.map(|wanted| (wanted, effective.versions_source)))
    }

    /// The same for a file with a name in this directory: whether versions are kept.
    fn keeps(&self, keys: &impl Keys, directory: u64, inode: u64, value: &InodeValue) -> Result<Option<Wanted>, Error> {
        let named = InodeValue { parent: directory, ..value.clone() };
        let wanted = self.said(keys, inode, &named)?.map(|(wanted, _)| wanted);
        Ok(wanted.filter(|wanted| *wanted != Wanted::No))
    }

    /// What is kept of this file because of itself, of rules that match it or of a lock on it, and not of all in its directory.
    fn kept_of_own(&self, keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<OfOne, Error> {
        Ok(match self.said(keys, inode, value)? {
            Some((wanted, Source::Lock(at))) if at == inode => OfOne { said: None, locked: Some(wanted) },
            Some((wanted, Source::Rule)) => OfOne { said: Some(wanted), locked: None },
            Some((wanted, Source::Inode(at))) if at == inode => OfOne { said: Some(wanted), locked: None },
            _ => OfOne::default(),
        })
    }

    /// From now on there are versions: to be noted in the transaction that makes somebody want some.
    pub fn begin_versions(&self, transaction: &mut Transaction<'_>) {
        // Before anybody can see it who would not keep anything.
        self.is_used.store(true, Ordering::Release);
        transaction.put(Key::version(0, 0), &[1]);
    }

    /// Refuses to change a version; one that was removed while it was open may be changed over the handles that are left.
    pub fn check_no_version(&self, inode: u64, value: &InodeValue) -> Result<(), Error> {
        if value.flags & OF_VERSIONS != 0 && self.open.lock().contains(&inode) {
            return Ok(());
        }
        check_not_of_versions(value)
    }

    /// Whether a version is of a file that somebody still has open, from before it was removed.
    pub fn is_removed_in_use(&self, value: &InodeValue, inode: u64) -> bool {
        value.flags & OF_VERSIONS != 0 && self.open.lock().contains(&inode)
    }

    /// As `check_no_version`, of an inode that is to get another name, or to lose one.
    pub fn check_no_version_in(&self, keys: &impl Keys, inode: u64) -> Result<(), Error> {
        if !self.is_used() {
            return Ok(());
        }
        match inode_if_any(keys, inode)? {
            // Removed, for whoever has it open.
            Some(value) if self.is_removed_in_use(&value, inode) => Err(Error::NotFound),
            Some(value) => check_not_of_versions(&value),
            None => Ok(()),
        }
    }

    /// As `check_no_version`, where only the number is at hand.
    pub fn check_writable(&self, io: Io<'_>, inode: u64) -> Result<(), Error> {
        if !self.is_used() {
            return Ok(());
        }
        match self.core.store.view(io, |view| inode_if_any(view, inode))? {
            Some(value) => self.check_no_version(inode, &value),
            None => Ok(()),
        }
    }

    /// Whether what a name means may change without the kernel having a hand in it, so that it must ask every time.
    pub fn is_fleeting(&self, directory: u64, name: &[u8]) -> bool {
        VERSION_DIRECTORY_NAMES.contains(&name) || (self.is_used() && self.known.lock().contains(&directory))
    }

    /// The kernel forgot an inode.
    pub fn forget_versions(&self, inode: u64) {
        if self.is_used() {
            self.known.lock().remove(&inode);
        }
    }

    /// The last handle of an inode may have been let go.
    pub fn note_closed(&self, inode: u64) {
        if self.is_used() && !self.core.files.table.is_open(inode) {
            self.open.lock().remove(&inode);
        }
    }

    /// The kernel came to know a directory: of those of versions it must ask every time.
    pub fn note_looked_up(&self, inode: u64, value: &InodeValue) {
        if self.is_used() && value.flags & OF_VERSIONS != 0 && value.kind() == Some(FileKind::Directory) {
            self.known.lock().insert(inode);
        }
    }

    /// A name of a file and its directory: by which it was looked up last, else any.
    fn place_of(&self, io: Io<'_>, inode: u64, value: &InodeValue) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let known = self.core.names_used.get(inode);
        let scanned = Cell::new(None);
        let found = self.core.store.view(io, |view| {
            let shown = |directory, key: &Key, bytes: &[u8]| match DirentView::decode(bytes) {
                Ok(entry) if entry.inode == inode => {
                    Ok(Some((directory, self.core.names.shown(directory, key.position, &entry).0.into_owned())))
                }
                Ok(_) => Ok(None),
                Err(error) => Err(damaged(directory, &error)),
            };
            for (directory, sequence) in known.into_iter().chain([(value.parent, u64::from(value.rdev))]) {
                let key = Key::dirent(directory, sequence);
                if let Some(bytes) = view.get(&key)?
                    && let Some(place) = shown(directory, &key, &bytes)?
                {
                    return Ok(Some(place));
                }
            }
            let mut found = Ok(None);
            let directory = value.parent;
            view.scan(Key::dirent(directory, 0), Key::dirent(directory, u64::MAX), |key, bytes| {
                found = shown(directory, key, bytes);
                scanned.set(Some(key.position));
                if matches!(found, Ok(None)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            found
        })?;
        if let (Some((directory, _)), Some(sequence)) = (&found, scanned.get()) {
            self.core.names_used.note(inode, *directory, sequence);
        }
        Ok(found)
    }

    /// Whether there is too little room to keep what is changed or removed.
    fn is_short_of_room(&self) -> bool {
        if self.asked.fetch_add(1, Ordering::AcqRel) % ASKED_PER_LOOK == 0 {
            self.look_for_room();
        }
        self.is_short.load(Ordering::Acquire)
    }

    /// Looks whether there is too little room.
    fn look_for_room(&self) -> bool {
        let statistics = self.core.statfs();
        let is_short = statistics.blocks_free < statistics.blocks / FREE_DIVISOR;
        self.is_short.store(is_short, Ordering::Release);
        is_short
    }

    /// To be called before the content of a file changes: keeps what it holds, once from the first handle to the last.
    pub fn keep_before_change(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        if !self.is_used() {
            return Ok(());
        }
        let asks = |value: &InodeValue| {
            let is_file_of_users = value.flags & OF_VERSIONS == 0 && value.nlink > 0;
            let is_kept = || self.core.store.view(caller.io, |view| self.keeps(view, value.parent, inode, value));
            if !is_file_of_users || is_kept()?.is_none() {
                return Ok(false);
            }
            Ok(!self.is_short_of_room())
        };
        self.core.files.copier.before_change(&caller.context(), inode, asks, |file| self.keep_copy(caller, inode, file))
    }

    /// What there is no room for is not kept: neither a full pool nor a quota refuses a change because of what was there before it.
    fn keep_copy(&self, caller: &Caller<'_>, inode: u64, file: &Unchanged<'_>) -> Result<(), Error> {
        assert_eq!(file.value.flags & OF_VERSIONS, 0, "a version has no versions");
        let Some((directory, name)) = self.place_of(caller.io, inode, &file.value)? else { return Ok(()) };
        let kept = self
            .begin_copy(caller, directory, file)
            .and_then(|(copy, value)| self.fill_copy(caller, inode, file, (directory, &name), (copy, value)));
        match kept {
            Err(Error::NoSpace) if !is_planted(Bug::VersionNeedsRoom) => {
                self.note_full();
                Ok(())
            }
            Err(Error::OverQuota(_)) => Ok(()),
            kept => kept,
        }
    }

    /// Makes an inode for a version, which nobody knows yet.
    fn begin_copy(
        &self,
        caller: &Caller<'_>,
        directory: u64,
        file: &Unchanged<'_>,
    ) -> Result<(u64, InodeValue), Error> {
        self.core.store.update(caller.io, |transaction| {
            transaction.set_charge_pending();
            let copy = transaction.allocate_inode();
            let mut value = InodeValue {
                nlink: 0,
                size: 0,
                blocks_bytes: 0,
                flags: OF_VERSIONS,
                parent: directory,
                ..file.value.clone()
            };
            forget_own(&mut value);
            self.note_policy(transaction, copy, &value)?;
            stere_file::put_inode(transaction, copy, &value);
            stere_file::list_nameless(transaction, copy);
            Ok::<_, Error>((copy, value))
        })
    }

    /// Gives it what the file holds, and its place; if that fails, it is freed at once.
    fn fill_copy(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        file: &Unchanged<'_>,
        place: (u64, &[u8]),
        (copy, mut value): (u64, InodeValue),
    ) -> Result<(), Error> {
        let copied = file.copy_to(copy).map_err(Error::from);
        let kept = copied.and_then(|()| {
            self.core.store.update(caller.io, |transaction| {
                let copied = inode_if_any(transaction, copy)?.ok_or(Error::Stale)?;
                (value.size, value.blocks_bytes) = (copied.size, copied.blocks_bytes);
                value.flags = OF_VERSIONS | file.value.flags & xattr::FLAGS;
                xattr::copy(transaction, inode, copy)?;
                stere_file::unlist(transaction, copy);
                let own = self.kept_of_own(transaction, inode, &file.value)?;
                self.shelve(transaction, caller, place, copy, &mut value.clone(), own)
            })
        });
        if !matches!(kept, Ok(true)) {
            self.core.files.orphans.note(copy, stere_file::OrphanKind::Removed);
            self.core.files.orphans.forget(&caller.context(), copy)?;
        }
        kept.map(drop)
    }

    /// The pool is full: what is changed now is changed for good, until versions have made room.
    pub fn note_full(&self) {
        if !self.is_short.swap(true, Ordering::AcqRel) {
            tracing::warn!("the pool is full: no versions are kept, and those there are go until there is room");
        }
    }

    /// A version has the policy of its file, so it is in the same indexes.
    fn note_policy(&self, transaction: &mut Transaction<'_>, inode: u64, value: &InodeValue) -> Result<(), Error> {
        classes::index_member(transaction, inode, classes::Named::default(), classes::Named::of(value));
        tiers::note_tiered(transaction, inode, [stere_file::own_policy(value), stere_file::own_locks(value)])
    }

    /// Whether what is removed may become a version; asked outside of the transaction that removes it.
    pub fn may_keep_removed(&self) -> bool {
        self.is_used() && !self.is_short_of_room()
    }

    /// A file is to lose its only name in a directory, whose value is on media: it becomes a version instead, if versions are kept.
    /// The caller takes the name away; the inode is done with if this is true.
    pub fn keep_removed(
        &self,
        transaction: &mut Transaction<'_>,
        unlink: &Unlink,
        caller: &Caller<'_>,
        place: (u64, &[u8]),
        found: &Found,
        value: &InodeValue,
    ) -> Result<bool, Error> {
        let size = unlink.size.unwrap_or(value.size);
        let is_one = found.kind == FileKind::File && value.nlink == 1 && size > 0;
        if !is_one || self.keeps(transaction, place.0, found.inode, value)?.is_none() {
            return Ok(false);
        }
        let directory = stere_namespace::inode::directory(transaction, place.0)?;
        // Nobody can read the name now, so nobody can file it: what is removed then is removed.
        if self.encryption.name_key(transaction, place.0, &directory).is_err_and(is_of_key) {
            return Ok(false);
        }
        let (mut kept, own) = (value.clone(), self.kept_of_own(transaction, found.inode, value)?);
        forget_own(&mut kept);
        let is_kept = self.shelve(transaction, caller, place, found.inode, &mut kept, own)?;
        assert!(!is_kept || kept.flags & OF_VERSIONS != 0, "what is kept is marked as a version");
        if is_kept && unlink.is_in_use {
            self.open.lock().insert(found.inode);
        }
        Ok(is_kept)
    }
}

fn is_of_key(error: Error) -> bool {
    matches!(error, Error::Key(_))
}

/// A version says nothing of versions and retention itself, and runs with nobody's rights.
fn forget_own(value: &mut InodeValue) {
    stere_file::set_own_retain(value, None);
    set_own_versions(value, None);
    value.mode &= !(libc::S_ISUID | libc::S_ISGID);
}
