//! Inodes: what every feature needs of the pool, and nothing of any feature.
//!
//! [`Core`] is shared by all features. It reads and changes inodes in one transaction, knows their names and paths, and holds
//! the small state that several features note into: work for the reconciler, changes of policy, names that were used.
//! Read next: `names` (directories on media), `walk` (subtrees), `reconcile/queue` (noted work).

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use stere_file::named_in::{directories_of, named_in_known};
use stere_file::{Files, HAS_VERSIONS, Keys, OF_VERSIONS, StoredFact, inode_if_any};
use stere_format::dirent::DirentView;
use stere_format::{FileKind, InodeValue, Key, NamedInValue, Timestamp};
use stere_plugin::StackFailure;
use stere_policy::{Effective, Source, Switch};
use stere_store::{Io, Store, Transaction};

use crate::call::{Caller, FileSystemStatistics, Options, ROOT};
use crate::error::Error;
use crate::junctions::check_not_inside;
use crate::names::{Form, Found, NAME_BYTES_MAX, Names, damaged};
use crate::reconcile_queue::ReconcileQueue;
use crate::walk::path_of;
use crate::xattr;

/// What the directory of versions is called; the second where a user has something called like the first.
pub const VERSION_DIRECTORY_NAMES: [&[u8]; 2] = [b".versions", b".versions.stere"];
/// Names of one file that are looked up to tell which rules match it.
pub const SHOWN_MAX: usize = 16;
/// Files whose last used name is remembered.
const NAMES_USED_MAX: usize = 65_536;

/// Directories above one another beyond which metadata is damaged.
const DEPTH_MAX: usize = 4096;

/// A name of a file.
pub struct OneName {
    pub directory: u64,
    pub name: Vec<u8>,
    pub form: Form,
}

/// By which names files were looked up last: directory and sequence. Bounded, and forgotten when it is full.
#[derive(Default)]
pub struct NamesUsed(Mutex<FxHashMap<u64, (u64, u64)>>);

impl NamesUsed {
    pub fn get(&self, inode: u64) -> Option<(u64, u64)> {
        self.0.lock().get(&inode).copied()
    }

    pub fn note(&self, inode: u64, directory: u64, sequence: u64) {
        let mut places = self.0.lock();
        if places.len() >= NAMES_USED_MAX {
            places.clear();
        }
        places.insert(inode, (directory, sequence));
        assert!(places.len() <= NAMES_USED_MAX, "names that were used are bounded");
    }

    pub fn forget(&self, inode: u64) {
        self.0.lock().remove(&inode);
    }
}

/// Counts changes of policy that took effect, where rules may depend on them.
#[derive(Default)]
pub struct PolicyClock {
    changes: AtomicU64,
    /// Whether there are, or were since the mount, any rules.
    has_rules: AtomicBool,
}

impl PolicyClock {
    /// Changes so far; the same for ever where there are no rules.
    pub fn changes(&self) -> u64 {
        if self.has_rules() { self.changes.load(Ordering::Acquire) } else { 0 }
    }

    pub fn has_rules(&self) -> bool {
        self.has_rules.load(Ordering::Acquire)
    }

    pub fn note_rules(&self) {
        self.has_rules.store(true, Ordering::Release);
    }

    pub fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// As `note_change`, and from now on changes are counted.
    pub fn note_first_change(&self) {
        self.note_rules();
        self.note_change();
    }
}

/// The pool as features see it.
pub struct Core {
    pub store: Arc<Store>,
    pub files: Files,
    pub names: Names,
    pub options: Options,
    /// Work that changes of policy leave to the reconciler.
    pub reconcile: ReconcileQueue,
    pub policy: PolicyClock,
    pub names_used: NamesUsed,
    /// Whether it is known where the names of all files with several lie.
    pub names_are_counted: AtomicBool,
}

impl Core {
    /// Changes an inode's attributes (and its size) in one transaction.
    pub fn changing(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        size: Option<u64>,
        change: impl Fn(&mut Transaction<'_>, &mut InodeValue) -> Result<(), Error>,
    ) -> Result<InodeValue, Error> {
        let refused = RefCell::new(None);
        let change = |transaction: &mut Transaction<'_>, value: &mut InodeValue| {
            change(transaction, value).map_err(|error| {
                refused.replace(Some(error));
                stere_file::Error::Refused
            })
        };
        let done = match size {
            Some(size) => self.files.allocator.set_size(&caller.context(), inode, size, &change),
            None => self.files.change_attributes(&caller.context(), inode, &change),
        };
        match done {
            // What the store said (a node is missing, say) it says itself, after its own repetition.
            Err(stere_file::Error::Refused) => {
                let why = refused.take();
                assert!(why.is_some(), "a change of inode {inode} that was refused says why");
                Err(why.unwrap_or(Error::Stale))
            }
            done => Ok(done?),
        }
    }

    /// Totals of the pool, for content of its default class.
    pub fn statfs(&self) -> FileSystemStatistics {
        let resolver = self.files.resolver();
        let wish = resolver.classes().wish(resolver.default_class());
        let (data, parity) = wish.scheme(self.files.policies.device_count());
        let class = resolver.default_class().code();
        let statistics = self.store.space().statistics_of(stere_format::Scheme { data, parity }, class);
        let block_bytes = stere_format::BLOCK_BYTES as u32;
        let blocks = statistics.total_bytes / u64::from(block_bytes);
        let blocks_free = (statistics.free_bytes / u64::from(block_bytes)).min(blocks);
        FileSystemStatistics {
            block_bytes,
            blocks,
            blocks_free,
            files: statistics.next_inode.saturating_add(blocks_free),
            files_free: blocks_free,
            name_bytes_max: NAME_BYTES_MAX as u32,
        }
    }

    /// The directory an inode has (or had last) a name in; the root's is the root.
    pub fn parent(&self, caller: &Caller<'_>, inode: u64) -> Result<u64, Error> {
        let value = self.store.view(caller.io, |view| stere_file::inode_if_any(view, inode))?;
        Ok(value.ok_or(Error::Stale)?.parent)
    }

    /// What came of a call on a file's content; where a plugin failed, that is told with the file's path.
    pub fn told<T>(&self, io: Io<'_>, inode: u64, outcome: Result<T, stere_file::Error>) -> Result<T, Error> {
        if let Err(stere_file::Error::Plugin(failure)) = &outcome {
            self.tell(io, inode, failure);
        }
        Ok(outcome?)
    }

    pub fn tell(&self, io: Io<'_>, inode: u64, failure: &StackFailure) {
        let path = self.path_of(io, inode).unwrap_or_else(|_| format!("inode {inode}").into_bytes());
        let path = String::from_utf8_lossy(&path).into_owned();
        tracing::error!(path, "{failure}; what was to be done to this file was not done");
    }

    pub fn effective(&self, caller: &Caller<'_>, inode: u64) -> Result<stere_policy::Effective, Error> {
        self.store.view(caller.io, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            Ok(self.files.policies.effective(view, inode, &value)?)
        })
    }

    pub fn facts(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        effective: &stere_policy::Effective,
    ) -> Result<Vec<StoredFact>, Error> {
        Ok(self.files.policies.stored_facts(&caller.context(), inode, effective)?)
    }

    /// Requests that everything below an inode is looked at, and that what does not lie as its policy says is moved. The
    /// reconciler does it in the background.
    pub fn request_reconcile(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.store.update(caller.io, |transaction| self.put_reconcile_request(transaction, inode))
    }

    /// The same within a transaction; only files and directories are stored by policy.
    pub fn put_reconcile_request(&self, transaction: &mut Transaction<'_>, inode: u64) -> Result<(), Error> {
        let value = inode_if_any(transaction, inode)?.ok_or(Error::Stale)?;
        match value.kind() {
            Some(FileKind::File | FileKind::Directory) => self.reconcile.note(transaction, inode),
            _ => Err(Error::NotPermitted("only files and directories are stored by policy")),
        }
    }

    /// The path of an inode from the root of the pool; the root where it has no name.
    pub fn path_of(&self, io: Io<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        assert!(inode >= ROOT, "inodes are numbered from the root");
        Ok(path_of(&self.store, &self.names, io, inode)?.unwrap_or_else(|| b"(without a name)".to_vec()))
    }

    /// So many names of a file, by which it is shown first of all.
    pub fn some_names(&self, io: Io<'_>, inode: u64, value: &InodeValue) -> Result<Vec<OneName>, Error> {
        self.store.view(io, |view| {
            let mut found = Vec::new();
            for directory in directories_of(view, inode, value)?.into_iter().take(SHOWN_MAX) {
                let mut failure = None;
                view.visit(Key::dirent(directory, 0), Key::dirent(directory, u64::MAX), &mut |key, bytes| {
                    match DirentView::decode(bytes) {
                        Ok(entry) if entry.inode == inode => {
                            let (name, form) = self.names.shown(directory, key.position, &entry);
                            found.push(OneName { directory, name: name.into_owned(), form });
                        }
                        Ok(_) => {}
                        Err(error) => failure = Some(damaged(directory, &error)),
                    }
                    let is_enough = found.len() >= SHOWN_MAX || failure.is_some();
                    if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                if let Some(failure) = failure {
                    return Err(failure);
                }
            }
            Ok(found)
        })
    }

    /// Whether it is known of all files with several names in which directories those lie.
    pub fn names_are_counted(&self, io: Io<'_>) -> Result<bool, Error> {
        if !self.names_are_counted.load(Ordering::Acquire) {
            let known = self.store.view(io, |view| named_in_known(view))?;
            self.names_are_counted.store(known == Some(NamedInValue::ALL), Ordering::Release);
        }
        Ok(self.names_are_counted.load(Ordering::Acquire))
    }

    pub fn inode_value(&self, io: Io<'_>, inode: u64) -> Result<Option<InodeValue>, Error> {
        self.store.view(io, |view| Ok(stere_file::inode_if_any(view, inode)?))
    }

    /// The directory of versions below a directory that is said to have one.
    pub fn version_directory(
        &self,
        keys: &impl Keys,
        directory: u64,
        value: &InodeValue,
    ) -> Result<Option<Found>, Error> {
        if value.flags & HAS_VERSIONS == 0 {
            return Ok(None);
        }
        for name in VERSION_DIRECTORY_NAMES {
            if let Some(found) = self.names.find(keys, directory, name)?
                && inode_if_any(keys, found.inode)?.is_some_and(|value| value.flags & OF_VERSIONS != 0)
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    pub fn stored_attribute(&self, caller: &Caller<'_>, inode: u64, name: &[u8]) -> Result<Vec<u8>, Error> {
        self.store.view(caller.io, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            if value.flags & xattr::HAS_ATTRIBUTES == 0 {
                return Err(Error::NoAttribute);
            }
            xattr::get(view, inode, name)?.ok_or(Error::NoAttribute)
        })
    }

    /// Changes what belongs to an inode in one transaction, with the time of the change.
    pub fn changing_attribute(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        change: impl Fn(&mut Transaction<'_>, &mut InodeValue) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.changing(caller, inode, None, |transaction, value| {
            value.ctime = caller.now;
            change(transaction, value)
        })?;
        Ok(())
    }
}

/// What the nearest says from this inode upward, as `own` reads it of each, and which it is.
pub fn nearest<T>(
    keys: &impl Keys,
    inode: u64,
    own: impl Fn(u64, &InodeValue) -> Result<Option<T>, Error>,
) -> Result<Option<(u64, T)>, Error> {
    let mut at = inode;
    for _ in 0..DEPTH_MAX {
        let Some(value) = inode_if_any(keys, at)? else { break };
        if let Some(said) = own(at, &value)? {
            return Ok(Some((at, said)));
        }
        if value.parent == at {
            break;
        }
        at = value.parent;
    }
    Ok(None)
}

/// The domain that a policy says, by the number of who says it; what rules and the pool say is about the whole pool.
pub fn dedup_domain(effective: &Effective) -> Option<u64> {
    let (is_on, source) = effective.switches[Switch::Dedup as usize];
    is_on.then_some(match source {
        Source::Inode(inode) | Source::Lock(inode) => inode,
        Source::Rule | Source::Pool => ROOT,
    })
}

/// Notes the sequence of a file's name in its directory: a hint, with which its name is found when it changes.
pub fn note_name(value: &mut InodeValue, sequence: u64) {
    if value.kind() == Some(FileKind::File) {
        value.rdev = sequence as u32;
    }
}

/// Refuses to change what belongs to versions.
pub fn check_not_of_versions(value: &InodeValue) -> Result<(), Error> {
    if value.flags & OF_VERSIONS == 0 { Ok(()) } else { Err(Error::OfVersions) }
}

/// The inode, which must exist and be a directory whose names are in this pool.
pub fn directory(keys: &impl Keys, inode: u64) -> Result<InodeValue, Error> {
    let value = stere_file::inode_if_any(keys, inode)?.ok_or(Error::NotFound)?;
    match value.kind() {
        Some(FileKind::Directory) => check_not_inside(&value).map(|()| value),
        _ => Err(Error::NotADirectory),
    }
}

/// The directory, which must not have been removed: names can be made in it.
pub fn living_directory(keys: &impl Keys, inode: u64) -> Result<InodeValue, Error> {
    let value = directory(keys, inode)?;
    check_not_of_versions(&value)?;
    if value.nlink == 0 { Err(Error::NotFound) } else { Ok(value) }
}

/// Puts a directory whose names changed now.
pub fn put_changed_directory(transaction: &mut Transaction<'_>, inode: u64, value: &mut InodeValue, now: Timestamp) {
    assert_eq!(value.kind(), Some(FileKind::Directory), "names lie in directories");
    (value.mtime, value.ctime) = (now, now);
    stere_file::put_inode(transaction, inode, value);
}
