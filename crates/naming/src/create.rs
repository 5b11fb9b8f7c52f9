//! Making inodes and names: files, directories, links, special files, files without a name.

use stere_file::{FirstHandle, inode_if_any};
use stere_format::{FileKind, InodeValue, Key};
use stere_store::Transaction;

use crate::attributes::Attributes;
use crate::content::{Handle, OpenFlags};
use crate::error::Error;
use crate::names::{ENCRYPTED, check_new_name};
use crate::{Caller, FileSystem, LINKS_MAX, acl, living_directory, put_changed_directory, versions};

/// Longest target of a symbolic link.
const TARGET_BYTES_MAX: usize = 4095;

/// What is to be made.
struct New<'a> {
    kind: FileKind,
    permissions: u32,
    rdev: u32,
    target: &'a [u8],
}

impl FileSystem {
    /// Makes a file, device node, FIFO or socket.
    pub fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attributes, Error> {
        // A mode without a type means a regular file, as for mknod(2).
        let typed = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
        let kind = FileKind::from_mode(typed & 0xffff).ok_or(Error::Invalid("the mode names no type of file"))?;
        if kind == FileKind::Directory || kind == FileKind::Symlink {
            return Err(Error::Invalid("directories and links have calls of their own"));
        }
        let rdev = if matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice) { rdev } else { 0 };
        self.make(caller, parent, name, &New { kind, permissions: mode, rdev, target: b"" })
    }

    /// Makes a directory.
    pub fn mkdir(&self, caller: &Caller<'_>, parent: u64, name: &[u8], mode: u32) -> Result<Attributes, Error> {
        self.make(caller, parent, name, &New { kind: FileKind::Directory, permissions: mode, rdev: 0, target: b"" })
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, caller: &Caller<'_>, parent: u64, name: &[u8], target: &[u8]) -> Result<Attributes, Error> {
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        self.make(caller, parent, name, &New { kind: FileKind::Symlink, permissions: 0o777, rdev: 0, target })
    }

    /// Makes a file and opens it. A file that is there already is opened, unless `flags` say it must not be.
    pub fn create(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Attributes, Handle), Error> {
        let new = New { kind: FileKind::File, permissions: mode, rdev: 0, target: b"" };
        let place = self.watched_place(caller, parent)?;
        let mut first = self.files.first_handle();
        let made = self.with_room(caller, || {
            self.make_numbered(caller, parent, name, &new, |transaction| opened(transaction, &mut first))
        });
        match made {
            Ok(mut attributes) => {
                attributes.is_fleeting |= place.is_some();
                first.keep(attributes.inode);
                self.note_open(caller, attributes.inode);
                let handle = self.new_handle();
                self.saw_made(caller, place.as_ref(), name, attributes.inode, Some((handle, flags)));
                Ok((attributes, handle))
            }
            Err(Error::Exists) if !flags.exclusive => {
                let existing = self.lookup(caller, parent, name)?;
                let handle = self.open(caller, existing.inode, flags)?;
                Ok((self.getattr(caller, existing.inode)?, handle))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a file without a name in `parent`'s file system and opens it; `link` may give it a name.
    pub fn tmpfile(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Attributes, Handle), Error> {
        let new = New { kind: FileKind::File, permissions: mode, rdev: 0, target: b"" };
        let notes = self.judge_new(caller, parent, b"")?;
        let place = self.watched_place(caller, parent)?;
        let mut first = self.files.first_handle();
        let mut make = || {
            self.store.update(caller.wait, |transaction| {
                let directory = living_directory(transaction, parent)?;
                self.name_key(transaction, parent, &directory)?;
                let inode = opened(transaction, &mut first);
                let mut value = prepare(transaction, caller, parent, &directory, inode, &new)?;
                value.nlink = 0;
                value.flags |= NEVER_NAMED;
                stere_file::put_inode(transaction, inode, &value);
                stere_file::list_nameless(transaction, inode);
                Ok::<_, Error>((inode, value))
            })
        };
        let (inode, value) = self.with_room(caller, &mut make)?;
        first.keep(inode);
        self.note_open(caller, inode);
        self.files.note_orphan(inode, stere_file::OrphanKind::Removed);
        self.note(caller, inode, notes)?;
        let handle = self.new_handle();
        self.saw_made(caller, place.as_ref(), b"(without a name)", inode, Some((handle, flags)));
        Ok((Attributes::of(inode, &value), handle))
    }

    /// Gives an inode one more name.
    pub fn link(&self, caller: &Caller<'_>, inode: u64, new_parent: u64, new_name: &[u8]) -> Result<Attributes, Error> {
        check_new_name(new_name)?;
        self.note_use(caller, new_parent);
        self.note_use(caller, inode);
        let _notes_of_new_files_only = self.judge_new(caller, new_parent, new_name)?;
        self.with_room(caller, || {
            self.files.locked(&caller.context(), inode, || self.link_locked(caller, inode, new_parent, new_name))?
        })?;
        self.getattr(caller, inode)
    }

    /// With what is in memory of the inode locked, because closing a file without a name would free it.
    fn link_locked(&self, caller: &Caller<'_>, inode: u64, new_parent: u64, new_name: &[u8]) -> Result<(), Error> {
        let scopes = self.scopes(caller.wait, new_parent)?;
        let nameless = self.store.update(caller.wait, |transaction| {
            let mut directory = living_directory(transaction, new_parent)?;
            let mut value = inode_if_any(transaction, inode)?.ok_or(Error::NotFound)?;
            let is_removed = self.is_removed_in_use(&value, inode);
            if !is_removed {
                versions::check_not_of_versions(&value)?;
            }
            let kind = value.kind().ok_or(Error::NotPermitted("the inode has no type"))?;
            if kind == FileKind::Directory {
                return Err(Error::NotPermitted("a directory cannot have several names"));
            }
            if self.names.find(transaction, new_parent, new_name)?.is_some() {
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
                self.apply_rules_too(&scopes, new_name, &mut value, caller.now);
                self.note_reconcile(transaction, inode)?;
            }
            let key = self.name_key(transaction, new_parent, &directory)?;
            let sequence =
                self.names.insert(transaction, new_parent, &mut directory, new_name, key.as_deref(), inode, kind)?;
            value.parent = new_parent;
            versions::note_name(&mut value, sequence);
            self.names_change(transaction, inode, &before, &mut value, None, Some((new_parent, sequence)))?;
            if nameless && self.is_encrypted_otherwise(transaction, inode, &before, &value)? {
                self.note_reconcile(transaction, inode)?;
            }
            self.count_where_it_lies(transaction, inode, &mut value)?;
            value.ctime = caller.now;
            self.await_retention(transaction, inode, &value)?;
            put_changed_directory(transaction, new_parent, &mut directory, caller.now);
            stere_file::put_inode(transaction, inode, &value);
            if nameless {
                stere_file::unlist(transaction, inode);
            }
            Ok(nameless)
        })?;
        if nameless {
            self.files.forget_orphan(inode);
        }
        Ok(())
    }

    fn make(&self, caller: &Caller<'_>, parent: u64, name: &[u8], new: &New<'_>) -> Result<Attributes, Error> {
        let place = self.watched_place(caller, parent)?;
        let made = self.with_room(caller, || {
            self.make_numbered(caller, parent, name, new, |transaction| transaction.allocate_inode())
        })?;
        self.saw_made(caller, place.as_ref(), name, made.inode, None);
        Ok(made)
    }

    fn make_numbered(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        new: &New<'_>,
        mut number: impl FnMut(&mut Transaction<'_>) -> u64,
    ) -> Result<Attributes, Error> {
        check_new_name(name)?;
        self.note_use(caller, parent);
        let notes = self.judge_new(caller, parent, name)?;
        loop {
            let scopes = (new.kind == FileKind::File).then(|| self.scopes(caller.wait, parent)).transpose()?;
            let made = self.store.update(caller.wait, |transaction| {
                if scopes.as_ref().is_some_and(|scopes| !self.is_current(scopes)) {
                    return Ok(None);
                }
                let mut directory = living_directory(transaction, parent)?;
                if self.names.find(transaction, parent, name)?.is_some() {
                    return Err(Error::Exists);
                }
                let inode = number(transaction);
                let mut value = prepare(transaction, caller, parent, &directory, inode, new)?;
                if let Some(scopes) = &scopes {
                    self.apply_rules(scopes, name, &mut value, caller.now);
                }
                let key = self.name_key(transaction, parent, &directory)?;
                if let Some(key) = key.as_ref().filter(|_| new.kind == FileKind::Symlink) {
                    value.symlink_target = key.seal_target(inode, new.target);
                    value.flags |= ENCRYPTED;
                }
                let sequence =
                    self.names.insert(transaction, parent, &mut directory, name, key.as_deref(), inode, new.kind)?;
                versions::note_name(&mut value, sequence);
                if new.kind == FileKind::Directory {
                    directory.nlink = directory.nlink.checked_add(1).ok_or(Error::TooManyLinks)?;
                }
                put_changed_directory(transaction, parent, &mut directory, caller.now);
                stere_file::put_inode(transaction, inode, &value);
                self.await_retention(transaction, inode, &value)?;
                Ok(Some((inode, value)))
            })?;
            // Else rules changed meanwhile.
            if let Some((inode, value)) = made {
                if new.kind == FileKind::Directory {
                    self.note_use(caller, inode);
                }
                self.note(caller, inode, notes)?;
                return Ok(Attributes::of(inode, &value));
            }
        }
    }
}

/// A new number, with a handle noted for the file that gets it.
fn opened(transaction: &mut Transaction<'_>, first: &mut FirstHandle<'_>) -> u64 {
    loop {
        let inode = transaction.allocate_inode();
        if first.open(inode) {
            return inode;
        }
    }
}

/// Set on files made without a name until they get one.
pub(crate) const NEVER_NAMED: u32 = 1 << 31;

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
    Ok(value)
}
