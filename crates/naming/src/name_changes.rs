//! The cores of calls on names: the transactions that make, link, move and remove them.
//!
//! Invariants: each is one transaction, whatever it replaces or exchanges; a name that meant another inode than was looked up gives
//! `Attempt::Moved`, and nothing was changed. Here: making and linking. Read next: `remove`, `rename`, `names` (on media).

use std::sync::Arc;

use stere_features::accounting::Quotas;
use stere_features::features::Features;
use stere_features::multiple_names::MultipleNames;
use stere_features::retention::Retentions;
use stere_features::versions::Versions;
use stere_file::{FirstHandle, HAS_ATTRIBUTES, HAS_VERSIONS, OF_VERSIONS, inode_if_any, requests};
use stere_format::{FileKind, InodeValue, Key};
use stere_namespace::access_times::LazyTimes;
use stere_namespace::attributes::Attributes;
use stere_namespace::call::{Caller, LINKS_MAX};
use stere_namespace::encryption::EncryptionKeys;
use stere_namespace::error::Error;
use stere_namespace::inode::{Core, living_directory, put_changed_directory};
use stere_namespace::names::ENCRYPTED;
use stere_namespace::namespace::Namespace;
use stere_namespace::rules::{HAS_RULES, PolicyRules};
use stere_namespace::{acl, inode};
use stere_residency::offload::Offload;
use stere_residency::residency::Residency;
use stere_store::Transaction;

/// Changes names.
pub(crate) struct NameChanges {
    pub core: Arc<Core>,
    pub access_times: Arc<LazyTimes>,
    pub encryption: Arc<EncryptionKeys>,
    pub rules: Arc<PolicyRules>,
    pub retention: Arc<Retentions>,
    pub quotas: Arc<Quotas>,
    pub versions: Arc<Versions>,
    pub multiple_names: Arc<MultipleNames>,
    pub offload: Arc<Offload>,
}

/// Longest target of a symbolic link.
pub(crate) const TARGET_BYTES_MAX: usize = 4095;

/// What is to be made.
pub(crate) struct New<'a> {
    pub kind: FileKind,
    pub permissions: u32,
    pub rdev: u32,
    pub target: &'a [u8],
}

impl NameChanges {
    pub fn new(namespace: &Namespace, residency: &Residency, features: &Features) -> NameChanges {
        NameChanges {
            core: namespace.core.clone(),
            access_times: namespace.access_times.clone(),
            encryption: namespace.encryption.clone(),
            rules: namespace.rules.clone(),
            retention: features.retention.clone(),
            quotas: features.quotas.clone(),
            versions: features.versions.clone(),
            multiple_names: features.multiple_names.clone(),
            offload: residency.offload.clone(),
        }
    }

    /// Gives an inode one more name.
    pub fn link(&self, caller: &Caller<'_>, inode: u64, new_parent: u64, new_name: &[u8]) -> Result<(), Error> {
        self.core
            .files
            .table
            .locked(&caller.context(), inode, || self.link_locked(caller, inode, new_parent, new_name))?
    }

    /// Makes an inode without a name; its number is one that `number` allocates.
    pub fn make_nameless(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        new: &New<'_>,
        mut number: impl FnMut(&mut Transaction<'_>) -> u64,
    ) -> Result<(u64, InodeValue), Error> {
        assert_eq!(new.kind, FileKind::File, "only a file is made without a name");
        let made = self.core.store.update(caller.io, |transaction| {
            let directory = living_directory(transaction, parent)?;
            self.encryption.name_key(transaction, parent, &directory)?;
            let inode = number(transaction);
            let mut value = prepare(transaction, caller, parent, &directory, inode, new)?;
            value.nlink = 0;
            value.flags |= NEVER_NAMED;
            stere_file::put_inode(transaction, inode, &value);
            stere_file::list_nameless(transaction, inode);
            Ok::<_, Error>((inode, value))
        })?;
        self.core.files.orphans.note(made.0, stere_file::OrphanKind::Removed);
        Ok(made)
    }

    /// With what is in memory of the inode locked, because closing a file without a name would free it.
    fn link_locked(&self, caller: &Caller<'_>, inode: u64, new_parent: u64, new_name: &[u8]) -> Result<(), Error> {
        let scopes = self.rules.scopes(caller.io, new_parent)?;
        let nameless = self.core.store.update(caller.io, |transaction| {
            let mut directory = living_directory(transaction, new_parent)?;
            let mut value = inode_if_any(transaction, inode)?.ok_or(Error::NotFound)?;
            let is_removed = self.versions.is_removed_in_use(&value, inode);
            if !is_removed {
                inode::check_not_of_versions(&value)?;
            }
            let kind = value.kind().ok_or(Error::NotPermitted("the inode has no type"))?;
            if kind == FileKind::Directory {
                return Err(Error::NotPermitted("a directory cannot have several names"));
            }
            if self.core.names.find(transaction, new_parent, new_name)?.is_some() {
                return Err(Error::Exists);
            }
            stere_file::check_changeable(&value, caller.now)?;
            let nameless = value.nlink == 0;
            // A removed file stays removed; only one that never had a name may get its first.
            if is_removed
                || nameless && (transaction.get(&Key::orphan(inode))?.is_none() || value.flags & NEVER_NAMED == 0)
            {
                return Err(Error::NotFound);
            }
            if value.nlink >= LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            let before = value.clone();
            value.nlink += 1;
            value.flags &= !NEVER_NAMED;
            if kind == FileKind::File && !scopes.is_empty() {
                self.rules.apply_rules_too(&scopes, new_name, &mut value, caller.now);
                self.core.reconcile.note(transaction, inode)?;
            }
            let key = self.encryption.name_key(transaction, new_parent, &directory)?;
            let sequence = self.core.names.insert(
                transaction,
                new_parent,
                &mut directory,
                new_name,
                key.as_deref(),
                inode,
                kind,
            )?;
            value.parent = new_parent;
            inode::note_name(&mut value, sequence);
            self.multiple_names.names_change(
                transaction,
                inode,
                &before,
                &mut value,
                None,
                Some((new_parent, sequence)),
            )?;
            if nameless && self.encryption.is_encrypted_otherwise(transaction, inode, &before, &value)? {
                self.core.reconcile.note(transaction, inode)?;
            }
            self.quotas.count_where_it_lies(transaction, inode, &mut value)?;
            value.ctime = caller.now;
            self.retention.await_retention(transaction, inode, &value)?;
            put_changed_directory(transaction, new_parent, &mut directory, caller.now);
            stere_file::put_inode(transaction, inode, &value);
            if nameless {
                stere_file::unlist(transaction, inode);
            }
            requests::note(transaction, caller.request.as_ref(), 0);
            Ok(nameless)
        })?;
        if nameless {
            self.core.files.orphans.strike(inode);
        }
        Ok(())
    }

    /// Makes an inode and its name; its number is one that `number` allocates.
    pub fn make(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        new: &New<'_>,
        mut number: impl FnMut(&mut Transaction<'_>) -> u64,
    ) -> Result<Attributes, Error> {
        let is_link = new.kind == FileKind::Symlink;
        assert_eq!(is_link, !new.target.is_empty(), "only a symbolic link has a target");
        assert!(new.target.len() <= TARGET_BYTES_MAX, "a target of {} bytes was checked", new.target.len());
        loop {
            let scopes = (new.kind == FileKind::File).then(|| self.rules.scopes(caller.io, parent)).transpose()?;
            let made = self.core.store.update(caller.io, |transaction| {
                if scopes.as_ref().is_some_and(|scopes| !self.rules.is_current(scopes)) {
                    return Ok(None);
                }
                let mut directory = living_directory(transaction, parent)?;
                if self.core.names.find(transaction, parent, name)?.is_some() {
                    return Err(Error::Exists);
                }
                let inode = number(transaction);
                let mut value = prepare(transaction, caller, parent, &directory, inode, new)?;
                if let Some(scopes) = &scopes {
                    self.rules.apply_rules(scopes, name, &mut value, caller.now);
                }
                let key = self.encryption.name_key(transaction, parent, &directory)?;
                if let Some(key) = key.as_ref().filter(|_| new.kind == FileKind::Symlink) {
                    value.symlink_target = key.seal_target(inode, new.target);
                    value.flags |= ENCRYPTED;
                }
                let sequence = self.core.names.insert(
                    transaction,
                    parent,
                    &mut directory,
                    name,
                    key.as_deref(),
                    inode,
                    new.kind,
                )?;
                inode::note_name(&mut value, sequence);
                if new.kind == FileKind::Directory {
                    directory.nlink = directory.nlink.checked_add(1).ok_or(Error::TooManyLinks)?;
                }
                put_changed_directory(transaction, parent, &mut directory, caller.now);
                stere_file::put_inode(transaction, inode, &value);
                self.retention.await_retention(transaction, inode, &value)?;
                requests::note(transaction, caller.request.as_ref(), 0);
                Ok(Some((inode, value)))
            })?;
            // Else rules changed meanwhile.
            if let Some((inode, value)) = made {
                return Ok(Attributes::of(inode, &value));
            }
        }
    }
}

/// A new number; for what is made once more, that which an owner before this one gave to it.
pub(crate) fn number_for(transaction: &mut Transaction<'_>, caller: &Caller<'_>) -> u64 {
    let new = transaction.allocate_inode();
    let before = caller.request.and_then(|request| request.made);
    let is_free = |inode: &u64| *inode < new && matches!(transaction.get(&Key::inode(*inode)), Ok(None));
    before.filter(is_free).unwrap_or(new)
}

/// A new number, with a handle noted for the file that gets it.
pub(crate) fn opened(transaction: &mut Transaction<'_>, first: &mut FirstHandle<'_>) -> u64 {
    loop {
        let inode = transaction.allocate_inode();
        if first.open(inode) {
            return inode;
        }
    }
}

/// Set on files made without a name until they get one.
pub(crate) const NEVER_NAMED: u32 = 1 << 31;
const OTHER_FLAGS: u32 = HAS_ATTRIBUTES | acl::HAS_ACCESS | HAS_RULES | ENCRYPTED | OF_VERSIONS | HAS_VERSIONS;
const _: () = assert!(NEVER_NAMED & OTHER_FLAGS == 0, "each flag of an inode has a bit of its own");

/// The inode to make, with owner, group, mode and ACLs as its directory wants them.
fn prepare(
    transaction: &mut Transaction<'_>,
    caller: &Caller<'_>,
    parent: u64,
    directory: &InodeValue,
    inode: u64,
    new: &New<'_>,
) -> Result<InodeValue, Error> {
    let is_directory = new.kind == FileKind::Directory;
    let mut permissions = new.permissions & 0o7777;
    let mut gid = caller.gid;
    if directory.mode & libc::S_ISGID != 0 {
        gid = directory.gid;
        if is_directory {
            permissions |= libc::S_ISGID;
        }
    }
    assert_eq!(directory.kind(), Some(FileKind::Directory), "names lie in directories");
    let mut value = InodeValue::new(new.kind.mode_bits() | permissions, caller.uid, gid, parent, caller.now);
    value.rdev = new.rdev;
    value.volume = directory.volume;
    value.symlink_target = new.target.to_vec();
    value.size = new.target.len() as u64;
    if is_directory {
        value.nlink = 2;
    }
    if new.kind != FileKind::Symlink && !acl::inherit(transaction, parent, directory, inode, &mut value)? {
        value.mode &= !(caller.umask & 0o777);
    }
    assert_eq!(value.kind(), Some(new.kind), "inode {inode} is what was asked for");
    Ok(value)
}
