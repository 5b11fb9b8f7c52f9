//! Operations on what belongs to an inode: attributes, extended attributes, and the totals of the file system.

use fuse_wire::{AttributeChanges, Operation, Request, Statfs, TimeChange};
use stere_naming::{FileSystemStatistics, Io, SetAttributes, SetMode, SetTime, Timestamp};

use crate::answer::{Answer, Failure};
use crate::performer::{Outcome, Performer, UNSUPPORTED};

const CREATE_AND_REPLACE: u32 = (libc::XATTR_CREATE | libc::XATTR_REPLACE).cast_unsigned();

impl Performer {
    pub(super) fn attribute_operation(&self, request: &Request, operation: &Operation<'_>, io: Io<'_>) -> Outcome {
        let filesystem = &self.filesystem;
        let caller = self.caller(request, 0, io);
        match *operation {
            Operation::Getattr { node, .. } => Ok(Answer::Attributes(filesystem.getattr(&caller, node)?)),
            // Once is enough: after this the kernel asks for plain attributes only.
            Operation::Statx { .. } if self.no_birth_times => Err(Failure::Errno(libc::ENOSYS)),
            Operation::Statx { node, .. } => Ok(Answer::Statx(filesystem.getattr(&caller, node)?)),
            Operation::Setattr { node, changes } => {
                let attributes = filesystem.setattr(&caller, node, &set_attributes(&changes))?;
                Ok(if changes.size.is_some() { Answer::Cut(attributes) } else { Answer::Attributes(attributes) })
            }
            Operation::Statfs { node } => Ok(Answer::Statfs(statfs(&filesystem.quotas().statfs_at(io, node)?))),
            Operation::Setxattr { node, name, flags, .. } if flags == CREATE_AND_REPLACE => {
                // It must exist and must not exist: tell which of the two failed.
                filesystem.getxattr(&caller, node, name)?;
                Err(Failure::Errno(libc::EEXIST))
            }
            Operation::Setxattr { node, name, value, flags, acl_kill_sgid } => {
                filesystem.setxattr(&caller, node, name, value, set_mode(flags)?, acl_kill_sgid)?;
                Ok(Answer::Done)
            }
            Operation::Getxattr { node, name, size } => sized(filesystem.getxattr(&caller, node, name)?, size),
            Operation::Listxattr { node, size } => {
                let names = filesystem.listxattr(&caller, node)?;
                let mut list = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
                for name in &names {
                    list.extend_from_slice(name);
                    list.push(0);
                }
                sized(list, size)
            }
            Operation::Removexattr { node, name } => {
                filesystem.removexattr(&caller, node, name)?;
                Ok(Answer::Done)
            }
            _ => UNSUPPORTED,
        }
    }
}

fn statfs(totals: &FileSystemStatistics) -> Statfs {
    Statfs {
        blocks: totals.blocks,
        blocks_free: totals.blocks_free,
        blocks_available: totals.blocks_free,
        files: totals.files,
        files_free: totals.files_free,
        block_size: totals.block_bytes,
        name_length_max: totals.name_bytes_max,
        fragment_size: totals.block_bytes,
    }
}

/// A value, or its size when asked with no room.
fn sized(value: Vec<u8>, room: usize) -> Outcome {
    match room {
        0 => Ok(Answer::AttributeSize(value.len())),
        _ if value.len() > room => Err(Failure::Errno(libc::ERANGE)),
        _ => Ok(Answer::Bytes(value)),
    }
}

fn set_mode(flags: u32) -> Result<SetMode, Failure> {
    match flags.cast_signed() {
        0 => Ok(SetMode::Any),
        libc::XATTR_CREATE => Ok(SetMode::Create),
        libc::XATTR_REPLACE => Ok(SetMode::Replace),
        _ => Err(Failure::Errno(libc::EINVAL)),
    }
}

fn set_attributes(changes: &AttributeChanges) -> SetAttributes {
    let time = |change: TimeChange| match change {
        TimeChange::Now => SetTime::Now,
        TimeChange::At(time) => SetTime::At(timestamp(time)),
    };
    SetAttributes {
        mode: changes.mode,
        uid: changes.uid,
        gid: changes.gid,
        size: changes.size,
        atime: changes.atime.map(time),
        mtime: changes.mtime.map(time),
        ctime: changes.ctime.map(timestamp),
        kill_suid_sgid: changes.kill_suid_sgid,
    }
}

fn timestamp(time: fuse_wire::Timestamp) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
