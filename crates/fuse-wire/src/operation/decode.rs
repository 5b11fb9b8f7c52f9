//! From a request's bytes to an [`Operation`].
//!
//! Every length is checked before it is used; decoding never fails and never panics: what does not fit
//! becomes [`Operation::Malformed`]. Read first: `arguments.rs`, the bytes this works on.

use super::arguments::{Arguments, DecodeContext};
use super::{AttributeChanges, CopyFileRange, Forgets, Ioctl, Lock, OfferWrite, Operation, TimeChange, Write};
use crate::abi::structs::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, EnterWriteIn, FallocateIn, FlushIn, ForgetIn,
    ForgetOne, FsyncIn, GetattrIn, GetxattrIn, InHeader, IoctlIn, LinkIn, LkIn, LseekIn, MkdirIn, MknodIn,
    NotifyRetrieveIn, OpenIn, PollIn, ReadIn, ReleaseIn, Rename2In, RenameIn, SetattrIn, SetxattrIn, SetxattrInCompat,
    StatxIn, WriteIn, split,
};
use crate::abi::{fattr, flag, opcode};
use crate::reply::Timestamp;

/// Decodes a request. Never fails: what does not fit is [`Operation::Malformed`].
pub(crate) fn decode<'a>(header: &InHeader, arguments: Arguments<'a>, context: &DecodeContext) -> Operation<'a> {
    let decoder = Decoder { node: header.nodeid, opcode: header.opcode, arguments, context };
    decoder.decode().unwrap_or(Operation::Malformed { opcode: header.opcode })
}

/// Takes a name and its NUL off the front. Empty names are refused: no operation has one.
fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    if end == 0 {
        return None;
    }
    Some((&bytes[..end], &bytes[end + 1..]))
}

struct Decoder<'a, 'b> {
    node: u64,
    opcode: u32,
    arguments: Arguments<'a>,
    context: &'b DecodeContext,
}

impl<'a> Decoder<'a, '_> {
    fn fixed<T: zerocopy::FromBytes>(&self) -> Option<T> {
        split::<T>(self.arguments.fixed).map(|(value, _)| value)
    }

    fn name(&self) -> Option<&'a [u8]> {
        split_name(self.arguments.variable).map(|(name, _)| name)
    }

    fn two_names(&self) -> Option<(&'a [u8], &'a [u8])> {
        let (first, rest) = split_name(self.arguments.variable)?;
        let (second, _) = split_name(rest)?;
        Some((first, second))
    }

    /// A requested answer size; more than the buffer holds cannot be answered.
    fn answer_size(&self, size: u32) -> Option<usize> {
        let size = size as usize;
        (size <= self.context.payload_bytes_max).then_some(size)
    }

    fn decode(&self) -> Option<Operation<'a>> {
        let node = self.node;
        Some(match self.opcode {
            opcode::LOOKUP => Operation::Lookup { parent: node, name: self.name()? },
            opcode::FORGET => Operation::Forget { node, lookups: self.fixed::<ForgetIn>()?.nlookup },
            opcode::BATCH_FORGET => self.batch_forget()?,
            opcode::GETATTR => {
                let input = self.fixed::<GetattrIn>()?;
                Operation::Getattr { node, handle: (input.getattr_flags & flag::GETATTR_FH != 0).then_some(input.fh) }
            }
            opcode::STATX => {
                let input = self.fixed::<StatxIn>()?;
                let handle = (input.getattr_flags & flag::GETATTR_FH != 0).then_some(input.fh);
                Operation::Statx { node, handle, flags: input.sx_flags, mask: input.sx_mask }
            }
            opcode::SETATTR => Operation::Setattr { node, changes: attribute_changes(&self.fixed()?) },
            opcode::ACCESS => Operation::Access { node, mask: self.fixed::<AccessIn>()?.mask },
            opcode::STATFS => Operation::Statfs { node },
            opcode::SYNCFS => Operation::Syncfs { node },
            opcode::DESTROY => Operation::Destroy,
            opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => self.xattr()?,
            opcode::READLINK
            | opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::LINK => self.name_space()?,
            opcode::OPEN
            | opcode::OPENDIR
            | opcode::CREATE
            | opcode::TMPFILE
            | opcode::RELEASE
            | opcode::RELEASEDIR
            | opcode::FLUSH
            | opcode::FSYNC
            | opcode::FSYNCDIR => self.handles()?,
            opcode::READ | opcode::READDIR | opcode::READDIRPLUS | opcode::WRITE => self.data()?,
            _ => self.rare()?,
        })
    }

    fn batch_forget(&self) -> Option<Operation<'a>> {
        let count = self.fixed::<BatchForgetIn>()?.count as usize;
        let bytes = self.arguments.variable.get(..count.checked_mul(size_of::<ForgetOne>())?)?;
        Some(Operation::BatchForget { forgets: Forgets { bytes } })
    }

    fn name_space(&self) -> Option<Operation<'a>> {
        let parent = self.node;
        Some(match self.opcode {
            opcode::READLINK => Operation::Readlink { node: parent },
            opcode::SYMLINK => {
                let (name, target) = self.two_names()?;
                Operation::Symlink { parent, name, target }
            }
            opcode::MKNOD => {
                let input = self.fixed::<MknodIn>()?;
                let name = self.name()?;
                Operation::Mknod { parent, name, mode: input.mode, umask: input.umask, rdev: input.rdev }
            }
            opcode::MKDIR => {
                let input = self.fixed::<MkdirIn>()?;
                Operation::Mkdir { parent, name: self.name()?, mode: input.mode, umask: input.umask }
            }
            opcode::UNLINK => Operation::Unlink { parent, name: self.name()? },
            opcode::RMDIR => Operation::Rmdir { parent, name: self.name()? },
            opcode::RENAME => {
                let new_parent = self.fixed::<RenameIn>()?.newdir;
                let (name, new_name) = self.two_names()?;
                Operation::Rename { parent, name, new_parent, new_name, flags: 0 }
            }
            opcode::RENAME2 => {
                let input = self.fixed::<Rename2In>()?;
                let (name, new_name) = self.two_names()?;
                Operation::Rename { parent, name, new_parent: input.newdir, new_name, flags: input.flags }
            }
            _ => {
                // LINK: the header names the new parent, the structure the node.
                let node = self.fixed::<LinkIn>()?.oldnodeid;
                Operation::Link { node, new_parent: parent, new_name: self.name()? }
            }
        })
    }

    fn handles(&self) -> Option<Operation<'a>> {
        let node = self.node;
        Some(match self.opcode {
            opcode::OPEN => {
                let input = self.fixed::<OpenIn>()?;
                let kill_suid_sgid = input.open_flags & flag::OPEN_KILL_SUIDGID != 0;
                Operation::Open { node, flags: input.flags, kill_suid_sgid }
            }
            opcode::OPENDIR => Operation::Opendir { node, flags: self.fixed::<OpenIn>()?.flags },
            opcode::CREATE => {
                let CreateIn { flags, mode, umask, open_flags } = self.fixed()?;
                let kill_suid_sgid = open_flags & flag::OPEN_KILL_SUIDGID != 0;
                Operation::Create { parent: node, name: self.name()?, mode, umask, flags, kill_suid_sgid }
            }
            opcode::TMPFILE => {
                let CreateIn { flags, mode, umask, .. } = self.fixed()?;
                Operation::Tmpfile { parent: node, mode, umask, flags }
            }
            opcode::RELEASE => {
                let ReleaseIn { fh, flags, release_flags, lock_owner } = self.fixed()?;
                Operation::Release {
                    node,
                    handle: fh,
                    flags,
                    lock_owner,
                    flush: release_flags & flag::RELEASE_FLUSH != 0,
                    flock_unlock: release_flags & flag::RELEASE_FLOCK_UNLOCK != 0,
                }
            }
            opcode::RELEASEDIR => {
                let input = self.fixed::<ReleaseIn>()?;
                Operation::Releasedir { node, handle: input.fh, flags: input.flags }
            }
            opcode::FLUSH => {
                let input = self.fixed::<FlushIn>()?;
                Operation::Flush { node, handle: input.fh, lock_owner: input.lock_owner }
            }
            _ => {
                let input = self.fixed::<FsyncIn>()?;
                let (handle, data_only) = (input.fh, input.fsync_flags & flag::FSYNC_FDATASYNC != 0);
                if self.opcode == opcode::FSYNC {
                    Operation::Fsync { node, handle, data_only }
                } else {
                    Operation::Fsyncdir { node, handle, data_only }
                }
            }
        })
    }

    fn data(&self) -> Option<Operation<'a>> {
        let node = self.node;
        if self.opcode == opcode::WRITE {
            let input = self.fixed::<WriteIn>()?;
            return Some(Operation::Write(Write {
                node,
                handle: input.fh,
                offset: input.offset,
                data: self.arguments.variable.get(..input.size as usize)?,
                flags: input.flags,
                lock_owner: (input.write_flags & flag::WRITE_LOCKOWNER != 0).then_some(input.lock_owner),
                from_cache: input.write_flags & flag::WRITE_CACHE != 0,
                kill_suid_sgid: input.write_flags & flag::WRITE_KILL_SUIDGID != 0,
            }));
        }
        let input = self.fixed::<ReadIn>()?;
        let (handle, offset, size) = (input.fh, input.offset, self.answer_size(input.size)?);
        Some(match self.opcode {
            opcode::READ => {
                let lock_owner = (input.read_flags & flag::READ_LOCKOWNER != 0).then_some(input.lock_owner);
                Operation::Read { node, handle, offset, size, flags: input.flags, lock_owner }
            }
            opcode::READDIR => Operation::Readdir { node, handle, offset, size },
            _ => Operation::Readdirplus { node, handle, offset, size },
        })
    }

    fn xattr(&self) -> Option<Operation<'a>> {
        let node = self.node;
        Some(match self.opcode {
            opcode::SETXATTR => {
                let (size, flags, setxattr_flags) = if self.context.setxattr_extended {
                    let input = self.fixed::<SetxattrIn>()?;
                    (input.size, input.flags, input.setxattr_flags)
                } else {
                    let input = self.fixed::<SetxattrInCompat>()?;
                    (input.size, input.flags, 0)
                };
                let (name, rest) = split_name(self.arguments.variable)?;
                let value = rest.get(..size as usize)?;
                let acl_kill_sgid = setxattr_flags & flag::SETXATTR_ACL_KILL_SGID != 0;
                Operation::Setxattr { node, name, value, flags, acl_kill_sgid }
            }
            opcode::GETXATTR => {
                let size = self.answer_size(self.fixed::<GetxattrIn>()?.size)?;
                Operation::Getxattr { node, name: self.name()?, size }
            }
            opcode::LISTXATTR => {
                Operation::Listxattr { node, size: self.answer_size(self.fixed::<GetxattrIn>()?.size)? }
            }
            _ => Operation::Removexattr { node, name: self.name()? },
        })
    }

    fn rare(&self) -> Option<Operation<'a>> {
        let node = self.node;
        Some(match self.opcode {
            opcode::GETLK | opcode::SETLK | opcode::SETLKW => self.lock()?,
            opcode::OFFER_WRITE => {
                let input = self.fixed::<WriteIn>()?;
                Operation::OfferWrite(OfferWrite {
                    node,
                    handle: input.fh,
                    offset: input.offset,
                    length: u64::from(input.size),
                    offer: self.arguments.variable,
                    kill_suid_sgid: input.write_flags & flag::WRITE_KILL_SUIDGID != 0,
                })
            }
            opcode::ENTER_WRITE => {
                let EnterWriteIn { number, offset, bytes, is_withdrawn } = self.fixed()?;
                Operation::EnterWrite { node, number, offset, length: bytes, is_withdrawn: is_withdrawn != 0 }
            }
            opcode::BMAP => {
                let input = self.fixed::<BmapIn>()?;
                Operation::Bmap { node, block: input.block, block_size: input.blocksize }
            }
            opcode::IOCTL => {
                let input = self.fixed::<IoctlIn>()?;
                Operation::Ioctl(Ioctl {
                    node,
                    handle: input.fh,
                    flags: input.flags,
                    command: input.cmd,
                    argument: input.arg,
                    input: self.arguments.variable.get(..input.in_size as usize)?,
                    output_size: self.answer_size(input.out_size)?,
                })
            }
            opcode::POLL => {
                let PollIn { fh, kh, flags, events } = self.fixed()?;
                Operation::Poll { node, handle: fh, kernel_handle: kh, flags, events }
            }
            opcode::NOTIFY_REPLY => {
                let input = self.fixed::<NotifyRetrieveIn>()?;
                let data = self.arguments.variable.get(..input.size as usize)?;
                Operation::NotifyReply { node, offset: input.offset, data }
            }
            opcode::FALLOCATE => {
                let FallocateIn { fh, offset, length, mode, .. } = self.fixed()?;
                Operation::Fallocate { node, handle: fh, offset, length, mode }
            }
            opcode::LSEEK => {
                let LseekIn { fh, offset, whence, .. } = self.fixed()?;
                Operation::Lseek { node, handle: fh, offset, whence }
            }
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
                let input = self.fixed::<CopyFileRangeIn>()?;
                Operation::CopyFileRange(CopyFileRange {
                    node_in: node,
                    handle_in: input.fh_in,
                    offset_in: input.off_in,
                    node_out: input.nodeid_out,
                    handle_out: input.fh_out,
                    offset_out: input.off_out,
                    length: input.len,
                    flags: input.flags,
                })
            }
            other => Operation::Unknown { opcode: other },
        })
    }

    fn lock(&self) -> Option<Operation<'a>> {
        let LkIn { fh, owner, lk, lk_flags, .. } = self.fixed()?;
        let (node, handle, flock) = (self.node, fh, lk_flags & flag::LK_FLOCK != 0);
        let lock = Lock { start: lk.start, end: lk.end, kind: lk.kind, pid: lk.pid };
        Some(if self.opcode == opcode::GETLK {
            Operation::Getlk { node, handle, owner, lock, flock }
        } else {
            Operation::Setlk { node, handle, owner, lock, flock, wait: self.opcode == opcode::SETLKW }
        })
    }
}

fn attribute_changes(input: &SetattrIn) -> AttributeChanges {
    let has = |bit: u32| input.valid & bit != 0;
    let time = |set: u32, now: u32, seconds: u64, nanoseconds: u32| {
        has(set).then(|| {
            if has(now) { TimeChange::Now } else { TimeChange::At(Timestamp::from_wire(seconds, nanoseconds)) }
        })
    };
    AttributeChanges {
        valid: input.valid,
        handle: has(fattr::FH).then_some(input.fh),
        lock_owner: has(fattr::LOCKOWNER).then_some(input.lock_owner),
        mode: has(fattr::MODE).then_some(input.mode),
        uid: has(fattr::UID).then_some(input.uid),
        gid: has(fattr::GID).then_some(input.gid),
        size: has(fattr::SIZE).then_some(input.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, input.atime, input.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, input.mtime, input.mtimensec),
        ctime: has(fattr::CTIME).then(|| Timestamp::from_wire(input.ctime, input.ctimensec)),
        kill_suid_sgid: has(fattr::KILL_SUIDGID),
    }
}
