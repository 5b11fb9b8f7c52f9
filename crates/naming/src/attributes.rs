//! Attributes of inodes: looking up, reading and setting them.

use std::cell::RefCell;

use stere_file::{HAS_VERSIONS, Keys, OF_VERSIONS};
use stere_format::{FileKind, InodeValue, Timestamp};
use stere_plugin::EventKind;
use stere_store::Transaction;

use crate::error::Error;
use crate::names::{check_name, weight};
use crate::plugins::Doing;
use crate::{Caller, FileSystem, Wait, acl, versions, xattr};

/// What `stat` tells of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Number; also the FUSE node id.
    pub inode: u64,
    /// Generation, for NFS.
    pub generation: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of device nodes.
    pub rdev: u32,
    /// Bytes of content.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks_512: u64,
    /// Unit for input and output.
    pub block_size: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Made.
    pub btime: Timestamp,
    /// It belongs to versions, which come and go without being asked for, or it must be known by which name it is used.
    pub is_fleeting: bool,
}

impl Attributes {
    pub(crate) fn of(inode: u64, value: &InodeValue) -> Attributes {
        let is_fleeting = value.flags & OF_VERSIONS != 0;
        let is_device = matches!(value.kind(), Some(FileKind::BlockDevice | FileKind::CharacterDevice));
        // The directory of its versions is not shown.
        let hidden = u32::from(value.flags & HAS_VERSIONS != 0);
        Attributes {
            inode,
            generation: value.generation,
            mode: value.mode,
            nlink: value.nlink.saturating_sub(hidden),
            uid: value.uid,
            gid: value.gid,
            rdev: if is_device { value.rdev } else { 0 },
            size: value.size.saturating_sub(u64::from(hidden) * weight(versions::NAME)),
            blocks_512: value.blocks_bytes.div_ceil(512),
            block_size: stere_format::BLOCK_BYTES as u32,
            atime: value.atime,
            mtime: value.mtime,
            ctime: value.ctime,
            btime: value.btime,
            is_fleeting,
        }
    }

    /// What kind of file it is.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The caller's clock.
    Now,
    /// This time.
    At(Timestamp),
}

/// Attributes to set; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions; the type is ignored.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size, of regular files.
    pub size: Option<u64>,
    /// Time of access.
    pub atime: Option<SetTime>,
    /// Time of change of content.
    pub mtime: Option<SetTime>,
    /// Time of change of anything; the caller's clock when anything else is set.
    pub ctime: Option<Timestamp>,
    /// Clear the set-id bits as for a write by somebody without privilege.
    pub kill_suid_sgid: bool,
}

impl FileSystem {
    /// Finds a name. "." and ".." work for every inode, as NFS needs.
    pub fn lookup(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) -> Result<Attributes, Error> {
        if name == b"." {
            return self.existing(caller, parent);
        }
        if name == b".." {
            return self.existing(caller, self.parent(caller, parent)?);
        }
        check_name(name)?;
        self.note_use(caller, parent);
        let removals = self.files.removals();
        let (inode, value) = self.store.view(caller.wait, |view| {
            let Some(found) = self.names.find(view, parent, name)? else {
                // The name's directory decides which error it is.
                let value = crate::directory(view, parent)?;
                self.name_key(view, parent, &value)?;
                return Err(Error::NotFound);
            };
            self.note_encrypted(parent, found.key);
            let value = stere_file::inode_if_any(view, found.inode)?;
            let value = value.ok_or_else(|| {
                Error::Damaged(format!("inode {} has a name but does not exist; run `stere check`", found.inode))
            })?;
            self.note_place(parent, &found, &value);
            Ok((found.inode, value))
        })?;
        let value = self.files.refresh(caller.wait, inode, value, removals)?.ok_or(Error::NotFound)?;
        self.shown(caller.wait, inode, value)
    }

    /// Attributes of an inode.
    pub fn getattr(&self, caller: &Caller<'_>, inode: u64) -> Result<Attributes, Error> {
        let value = self.files.attributes(caller.wait, inode)?.ok_or(Error::Stale)?;
        self.shown(caller.wait, inode, value)
    }

    /// As `getattr`, for inodes that are looked for by their number: what was removed is not found.
    fn existing(&self, caller: &Caller<'_>, inode: u64) -> Result<Attributes, Error> {
        let value = self.files.attributes(caller.wait, inode)?.filter(|value| value.nlink > 0).ok_or(Error::Stale)?;
        self.shown(caller.wait, inode, value)
    }

    /// Attributes as users see them: with times of access that are not saved yet.
    pub(crate) fn shown(&self, wait: Wait, inode: u64, value: InodeValue) -> Result<Attributes, Error> {
        let mut attributes = Attributes::of(inode, &value);
        if self.store.may_be_released() && value.blocks_bytes > 0 && value.kind() == Some(FileKind::File) {
            // What is on tertiary volumes only takes no room here.
            let released = self.released_bytes(wait, inode)?;
            let local = value.blocks_bytes.saturating_sub(released).div_ceil(512);
            // Programs that copy sparse files (tar -S) store zeros for a file of no blocks, without reading it.
            attributes.blocks_512 = local.max(1);
        }
        if let Some(atime) = self.lazy_times.get(inode) {
            attributes.atime = atime;
        }
        attributes.is_fleeting |= self.must_know_names_used(wait, inode, &value)?;
        if self.is_removed_in_use(&value, inode) {
            // Who has it open removed it, and may rely on seeing that (so do lock files).
            attributes.nlink = 0;
        }
        Ok(attributes)
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        let value = self.store.view(caller.wait, |view| stere_file::inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        if value.kind() != Some(FileKind::Symlink) {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let target = self.target(inode, &value)?;
        self.note_access(caller, inode, &value);
        Ok(target)
    }

    /// Sets attributes, all in one step.
    pub fn setattr(&self, caller: &Caller<'_>, inode: u64, set: &SetAttributes) -> Result<Attributes, Error> {
        self.note_use(caller, inode);
        let watched = if set.size.is_some() { self.watched(caller, inode)? } else { None };
        let outcome = self.setattr_unwatched(caller, inode, set);
        self.saw_cut(caller, watched, &outcome);
        outcome
    }

    pub(crate) fn setattr_unwatched(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        set: &SetAttributes,
    ) -> Result<Attributes, Error> {
        if let Some(size) = set.size {
            let doing = Doing { offset: size, ..Doing::default() };
            self.judge(caller, EventKind::Write, inode, doing)?;
            self.check_writable(caller.wait, inode)?;
            self.keep_before_change(caller, inode)?;
        }
        if set.atime.is_some() {
            // Before too, so that nobody saves an older one after this.
            self.lazy_times.remove(inode);
        }
        let value = self.changing(caller, inode, set.size, |transaction, value| {
            self.check_no_version(inode, value)?;
            apply(transaction, caller, inode, value, set)?;
            self.follow_access(transaction, inode, value)
        })?;
        if set.atime.is_some() {
            self.lazy_times.remove(inode);
        }
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.size.is_some() {
            self.note_facts_changed(inode);
            if value.kind() == Some(FileKind::Directory) {
                self.note_directory_changed(caller.wait);
            }
        }
        match self.shown(caller.wait, inode, value.clone()) {
            // It is done, and must not be done again.
            Err(Error::WouldBlock) => Ok(Attributes::of(inode, &value)),
            outcome => outcome,
        }
    }

    /// Changes an inode's attributes (and its size) in one transaction.
    pub(crate) fn changing(
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
            Some(size) => self.files.set_size(&caller.context(), inode, size, &change),
            None => self.files.change_attributes(&caller.context(), inode, &change),
        };
        match done {
            // What the store said (a node is missing, say) it says itself, after its own repetition.
            Err(stere_file::Error::Refused) => Err(refused.take().unwrap_or(Error::Stale)),
            done => Ok(done?),
        }
    }
}

fn apply(
    transaction: &mut Transaction<'_>,
    caller: &Caller<'_>,
    inode: u64,
    value: &mut InodeValue,
    set: &SetAttributes,
) -> Result<(), Error> {
    stere_file::check_changeable(value, caller.now)?;
    let is_directory = value.kind() == Some(FileKind::Directory);
    if set.uid.is_some() || set.gid.is_some() {
        if !is_directory {
            clear_set_id(value, caller);
        }
        value.uid = set.uid.unwrap_or(value.uid);
        value.gid = set.gid.unwrap_or(value.gid);
        drop_capabilities(transaction, inode, value)?;
    }
    // A change of nothing is chown(-1, -1), which clears these bits too.
    if set.kill_suid_sgid || (*set == SetAttributes::default() && !is_directory) {
        clear_set_id(value, caller);
        drop_capabilities(transaction, inode, value)?;
    }
    if let Some(mode) = set.mode {
        value.mode = (value.mode & !0o7777) | (mode & 0o7777);
        acl::follow_mode(transaction, inode, value)?;
    }
    if set.size.is_some() {
        value.mtime = caller.now;
        if !set.kill_suid_sgid {
            drop_capabilities(transaction, inode, value)?;
        }
    }
    let time = |time: SetTime| match time {
        SetTime::Now => caller.now,
        SetTime::At(time) => time,
    };
    value.atime = set.atime.map_or(value.atime, time);
    value.mtime = set.mtime.map_or(value.mtime, time);
    value.ctime = set.ctime.unwrap_or(caller.now);
    Ok(())
}

/// What a write or a change of owner does to set-id bits. Set-group-id without group execution once meant mandatory
/// locking: it stays for those who could set it again. Groups the front end does not know do not count.
pub(crate) fn clear_set_id(value: &mut InodeValue, caller: &Caller<'_>) {
    value.mode &= !libc::S_ISUID;
    let could_set = caller.uid == 0 || caller.gid == value.gid || caller.groups.contains(&value.gid);
    if value.mode & libc::S_IXGRP != 0 || !could_set {
        value.mode &= !libc::S_ISGID;
    }
}

fn drop_capabilities(transaction: &mut Transaction<'_>, inode: u64, value: &mut InodeValue) -> Result<(), Error> {
    if value.flags & xattr::HAS_ATTRIBUTES == 0 {
        return Ok(());
    }
    xattr::remove(transaction, inode, b"security.capability")?;
    Ok(())
}

/// Clears set-id bits and capabilities if there are any, for a write. Answers whether there were.
pub(crate) fn needs_kill(keys: &impl Keys, inode: u64, caller: &Caller<'_>) -> Result<bool, Error> {
    let Some(value) = stere_file::inode_if_any(keys, inode)? else { return Ok(false) };
    let mut cleared = value.clone();
    clear_set_id(&mut cleared, caller);
    if cleared.mode != value.mode {
        return Ok(true);
    }
    Ok(value.flags & xattr::HAS_ATTRIBUTES != 0 && xattr::get(keys, inode, b"security.capability")?.is_some())
}
