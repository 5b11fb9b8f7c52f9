//! Attributes of inodes: what is shown and set, and what follows for set-id bits.

use stere_file::{HAS_VERSIONS, Keys, OF_VERSIONS};
use stere_format::{FileKind, InodeValue, Timestamp};
use stere_store::Transaction;

use crate::call::Caller;
use crate::error::Error;
use crate::inode::VERSION_DIRECTORY_NAMES;
use crate::names::weight;
use crate::{acl, xattr};

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
    pub fn of(inode: u64, value: &InodeValue) -> Attributes {
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
            size: value.size.saturating_sub(u64::from(hidden) * weight(VERSION_DIRECTORY_NAMES[0])),
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

/// Applies what is to be set to an inode, with what follows for set-id bits, capabilities and ACLs.
pub fn apply(
    transaction: &mut Transaction<'_>,
    caller: &Caller<'_>,
    inode: u64,
    value: &mut InodeValue,
    set: &SetAttributes,
) -> Result<(), Error> {
    stere_file::check_changeable(value, caller.now)?;
    let kind = value.kind();
    let is_directory = kind == Some(FileKind::Directory);
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
    assert_eq!(value.kind(), kind, "inode {inode} stays what it is");
    Ok(())
}

/// What a write or a change of owner does to set-id bits. Set-group-id without group execution once meant mandatory
/// locking: it stays for those who could set it again. Groups the front end does not know do not count.
pub fn clear_set_id(value: &mut InodeValue, caller: &Caller<'_>) {
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
pub fn needs_kill(keys: &impl Keys, inode: u64, caller: &Caller<'_>) -> Result<bool, Error> {
    let Some(value) = stere_file::inode_if_any(keys, inode)? else { return Ok(false) };
    let mut cleared = value.clone();
    clear_set_id(&mut cleared, caller);
    if cleared.mode != value.mode {
        return Ok(true);
    }
    Ok(value.flags & xattr::HAS_ATTRIBUTES != 0 && xattr::get(keys, inode, b"security.capability")?.is_some())
}
