//! Who may do what: the kernel decides by modes and POSIX ACLs, which are those of the source.
//!
//! The kernel asks for the ACLs beneath and looks at them as at those of any file system; the source applies default ACLs to what is made. What
//! a file system does for its callers by who they are has to be done here, for to the source every caller is this process: the umask
//! (not where a default ACL takes its place), and the set-id bits that go when somebody else's change or truncation may not keep them.

use fuse_wire::Context;
use rustix::fs::{FileType, Mode};

use super::nodes::Node;
use super::operations::{Answer, answer_list};
use super::{Server, errno};
use crate::error::Error;

const ACCESS_ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

fn is_acl(name: &[u8]) -> bool {
    name == ACCESS_ACL.as_bytes() || name == DEFAULT_ACL.as_bytes()
}

/// The mode of something that is made in a directory: the umask holds unless the directory has a default ACL.
pub(super) fn mode_of_new(above: &Node, mode: u32, umask: u32) -> Mode {
    // Not a question for the length: the library gives 0 as that of whatever is there.
    let has_default = match rustix::fs::getxattr(above.path(), DEFAULT_ACL, &mut [0_u8; 4]) {
        Ok(bytes) => bytes > 0,
        Err(error) => error == rustix::io::Errno::RANGE,
    };
    Mode::from_raw_mode(if has_default { mode } else { mode & !(umask & 0o777) })
}

/// An attribute's value. To the kernel a source without ACLs has none of any file, rather than an error for every access.
pub(super) fn attribute(node: &Node, name: &[u8], size: usize) -> Result<Answer, Error> {
    use std::os::unix::ffi::OsStrExt;
    let (path, name_os) = (node.path(), std::ffi::OsStr::from_bytes(name));
    answer_list(size, |value| match rustix::fs::getxattr(&path, name_os, value) {
        Err(rustix::io::Errno::OPNOTSUPP) if is_acl(name) => Err(rustix::io::Errno::NODATA),
        answer => answer,
    })
}

/// Takes set-id bits away: set-user-id, and set-group-id where it is one (with permission to execute for the group).
fn drop_set_ids(node: &Node, is_acl_change: bool) -> Result<(), Error> {
    let stat = node.stat()?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile && !is_acl_change {
        return Ok(());
    }
    let mut dropped = Mode::empty();
    if is_acl_change {
        dropped |= Mode::SGID;
    } else {
        dropped |= Mode::SUID;
        if mode.contains(Mode::XGRP) {
            dropped |= Mode::SGID;
        }
    }
    if mode.intersects(dropped) {
        rustix::fs::chmod(node.path(), mode.difference(dropped))?;
    }
    Ok(())
}

impl Server {
    /// Before a file is emptied as it is opened: set-id bits go, as they do wherever somebody other than root empties a file.
    pub(super) fn before_emptying(&self, caller: Context, node: &Node, flags: u32) -> Result<(), Error> {
        if flags & libc::O_TRUNC as u32 == 0 || caller.uid == 0 {
            return Ok(());
        }
        drop_set_ids(node, false)
    }

    /// Sets an attribute of the source. Whoever is in no group of the file may not keep set-group-id with a new ACL.
    pub(super) fn set_attribute(
        &self,
        node: &Node,
        (name, value): (&[u8], &[u8]),
        flags: u32,
        acl_kill_sgid: bool,
    ) -> Result<Answer, Error> {
        use std::os::unix::ffi::OsStrExt;
        let flags = rustix::fs::XattrFlags::from_bits(flags).ok_or_else(|| errno(libc::EINVAL))?;
        rustix::fs::setxattr(node.path(), std::ffi::OsStr::from_bytes(name), value, flags)?;
        if acl_kill_sgid && is_acl(name) {
            drop_set_ids(node, true)?;
        }
        Ok(Answer::Done)
    }
}
