//! Attributes: permissions, owners, times, extended attributes.

use crate::{Caller, Kind, Model, Result, S_ISGID, S_ISUID, S_IXGRP, errno};

/// What to set.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttributes {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of change of content.
    pub mtime: Option<i64>,
}

/// What setting an extended attribute expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Nothing.
    Any,
    /// It does not exist.
    Create,
    /// It exists.
    Replace,
}

impl Model {
    /// Sets attributes.
    pub fn setattr(&mut self, caller: &Caller, inode: u64, set: &SetAttributes) -> Result<()> {
        self.within_limits(|model| model.setattr_anyhow(caller, inode, set))
    }

    fn setattr_anyhow(&mut self, caller: &Caller, inode: u64, set: &SetAttributes) -> Result<()> {
        let inode = self.inode_mut(inode)?;
        if set.uid.is_some() || set.gid.is_some() {
            inode.uid = set.uid.unwrap_or(inode.uid);
            inode.gid = set.gid.unwrap_or(inode.gid);
            if !matches!(inode.kind, Kind::Directory(_)) {
                inode.mode &= !S_ISUID;
                if inode.mode & S_IXGRP != 0 {
                    inode.mode &= !S_ISGID;
                }
            }
        }
        if let Some(mode) = set.mode {
            inode.mode = (inode.mode & !0o7777) | (mode & 0o7777);
        }
        inode.mtime = set.mtime.unwrap_or(inode.mtime);
        inode.ctime = caller.now;
        Ok(())
    }

    /// Sets an extended attribute.
    pub fn setxattr(&mut self, caller: &Caller, inode: u64, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.within_limits(|model| model.setxattr_anyhow(caller, inode, name, value, mode))
    }

    fn setxattr_anyhow(
        &mut self,
        caller: &Caller,
        inode: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let inode = self.inode_mut(inode)?;
        match (mode, inode.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(errno::EEXIST),
            (XattrMode::Replace, false) => return Err(errno::ENODATA),
            _ => {}
        }
        inode.xattrs.insert(name.to_vec(), value.to_vec());
        inode.ctime = caller.now;
        Ok(())
    }

    /// The value of an extended attribute.
    pub fn getxattr(&self, inode: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.inode(inode)?.xattrs.get(name).cloned().ok_or(errno::ENODATA)
    }

    /// Removes an extended attribute.
    pub fn removexattr(&mut self, caller: &Caller, inode: u64, name: &[u8]) -> Result<()> {
        let inode = self.inode_mut(inode)?;
        inode.xattrs.remove(name).ok_or(errno::ENODATA)?;
        inode.ctime = caller.now;
        Ok(())
    }
}
