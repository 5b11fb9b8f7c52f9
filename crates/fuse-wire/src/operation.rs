//! Operations: what the kernel asks, decoded.
//!
//! Invariant: every length was checked by `operation/decode.rs`; what did not fit is
//! [`Operation::Malformed`]. Names are bytes without the closing NUL; `OsStr::from_bytes` makes an `OsStr`
//! of them at no cost. Read next: `operation/arguments.rs`, `operation/decode.rs`, then `request.rs`.

use crate::abi::structs::{ForgetOne, split};
use crate::reply::Timestamp;

pub(crate) mod arguments;
mod changed;
pub(crate) mod decode;
#[cfg(test)]
mod tests;

pub use changed::Changed;

/// One request of the kernel. `node` and `parent` are node ids, as given out in entries; the root is 1.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Operation<'a> {
    Lookup {
        parent: u64,
        name: &'a [u8],
    },
    /// The kernel drops `lookups` of the references that entries gave it. Needs no answer.
    Forget {
        node: u64,
        lookups: u64,
    },
    /// Many forgets at once. Needs no answer.
    BatchForget {
        forgets: Forgets<'a>,
    },
    Getattr {
        node: u64,
        handle: Option<u64>,
    },
    Setattr {
        node: u64,
        changes: AttributeChanges,
    },
    Readlink {
        node: u64,
    },
    Symlink {
        parent: u64,
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        parent: u64,
        name: &'a [u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    Mkdir {
        parent: u64,
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        parent: u64,
        name: &'a [u8],
    },
    Rmdir {
        parent: u64,
        name: &'a [u8],
    },
    /// `flags` are those of renameat2(2); 0 for a plain rename.
    Rename {
        parent: u64,
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        node: u64,
        new_parent: u64,
        new_name: &'a [u8],
    },
    /// `kill_suid_sgid`: the open truncates and the caller may not keep the bits (HANDLE_KILLPRIV_V2).
    Open {
        node: u64,
        flags: u32,
        kill_suid_sgid: bool,
    },
    Create {
        parent: u64,
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: u32,
        kill_suid_sgid: bool,
    },
    /// O_TMPFILE: a file without a name in `parent`. Answered like Create.
    Tmpfile {
        parent: u64,
        mode: u32,
        umask: u32,
        flags: u32,
    },
    Read {
        node: u64,
        handle: u64,
        offset: u64,
        size: usize,
        flags: u32,
        lock_owner: Option<u64>,
    },
    /// `data` starts on a page boundary on both transports.
    Write(Write<'a>),
    Statfs {
        node: u64,
    },
    Release {
        node: u64,
        handle: u64,
        flags: u32,
        lock_owner: u64,
        flush: bool,
        flock_unlock: bool,
    },
    Flush {
        node: u64,
        handle: u64,
        lock_owner: u64,
    },
    Fsync {
        node: u64,
        handle: u64,
        data_only: bool,
    },
    Setxattr {
        node: u64,
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        acl_kill_sgid: bool,
    },
    /// `size` 0 asks for the size alone: answer with `reply_xattr_size`, else with the bytes or ERANGE.
    Getxattr {
        node: u64,
        name: &'a [u8],
        size: usize,
    },
    Listxattr {
        node: u64,
        size: usize,
    },
    Removexattr {
        node: u64,
        name: &'a [u8],
    },
    Opendir {
        node: u64,
        flags: u32,
    },
    Readdir {
        node: u64,
        handle: u64,
        offset: u64,
        size: usize,
    },
    Readdirplus {
        node: u64,
        handle: u64,
        offset: u64,
        size: usize,
    },
    Releasedir {
        node: u64,
        handle: u64,
        flags: u32,
    },
    Fsyncdir {
        node: u64,
        handle: u64,
        data_only: bool,
    },
    Getlk {
        node: u64,
        handle: u64,
        owner: u64,
        lock: Lock,
        flock: bool,
    },
    Setlk {
        node: u64,
        handle: u64,
        owner: u64,
        lock: Lock,
        flock: bool,
        wait: bool,
    },
    Access {
        node: u64,
        mask: u32,
    },
    Bmap {
        node: u64,
        block: u64,
        block_size: u32,
    },
    Ioctl(Ioctl<'a>),
    Poll {
        node: u64,
        handle: u64,
        kernel_handle: u64,
        flags: u32,
        events: u32,
    },
    NotifyReply {
        node: u64,
        offset: u64,
        data: &'a [u8],
    },
    Fallocate {
        node: u64,
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    /// `whence` is SEEK_DATA or SEEK_HOLE.
    Lseek {
        node: u64,
        handle: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange(CopyFileRange),
    /// Of a far machine only: it wants to write content itself, where it is told. Answer with `reply_bytes`.
    OfferWrite(OfferWrite<'a>),
    /// Of a far machine only: what it offered under this number is written, or is given up. The range is for whoever has it in memory.
    EnterWrite {
        node: u64,
        number: u64,
        offset: u64,
        length: u64,
        is_withdrawn: bool,
    },
    /// `mask` and `flags` are those of statx(2).
    Statx {
        node: u64,
        handle: Option<u64>,
        flags: u32,
        mask: u32,
    },
    /// sync(2) or syncfs(2); arrives only at `fuseblk` mounts.
    Syncfs {
        node: u64,
    },
    /// The mount is going away; at `fuseblk` mounts umount(2) waits for the answer.
    Destroy,
    /// An operation this crate does not know. Answer with ENOSYS.
    Unknown {
        opcode: u32,
    },
    /// The bytes of a known operation do not fit its structure. Answer with EIO.
    Malformed {
        opcode: u32,
    },
}

/// Arguments of WRITE.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub node: u64,
    pub handle: u64,
    pub offset: u64,
    pub data: &'a [u8],
    pub flags: u32,
    pub lock_owner: Option<u64>,
    /// From the page cache (writeback or mmap): `handle` is a guess.
    pub from_cache: bool,
    pub kill_suid_sgid: bool,
}

/// Arguments of OFFER_WRITE.
#[derive(Clone, Copy, Debug)]
pub struct OfferWrite<'a> {
    pub node: u64,
    pub handle: u64,
    pub offset: u64,
    /// Bytes of content.
    pub length: u64,
    /// What it is, without the bytes.
    pub offer: &'a [u8],
    pub kill_suid_sgid: bool,
}

/// Arguments of IOCTL.
#[derive(Clone, Copy, Debug)]
pub struct Ioctl<'a> {
    pub node: u64,
    pub handle: u64,
    pub flags: u32,
    pub command: u32,
    pub argument: u64,
    pub input: &'a [u8],
    pub output_size: usize,
}

/// Arguments of COPY_FILE_RANGE and COPY_FILE_RANGE_64. Answer with `reply_copied`.
#[derive(Clone, Copy, Debug)]
pub struct CopyFileRange {
    pub node_in: u64,
    pub handle_in: u64,
    pub offset_in: u64,
    pub node_out: u64,
    pub handle_out: u64,
    pub offset_out: u64,
    pub length: u64,
    pub flags: u64,
}

/// A byte-range lock; `kind` is F_RDLCK, F_WRLCK or F_UNLCK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    pub start: u64,
    pub end: u64,
    pub kind: u32,
    pub pid: u32,
}

/// A time to set: now, by the file system's clock, or the given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    Now,
    At(Timestamp),
}

/// What SETATTR changes; `None` leaves a field as it is. `valid` holds the kernel's bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeChanges {
    pub valid: u32,
    pub handle: Option<u64>,
    pub lock_owner: Option<u64>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeChange>,
    pub mtime: Option<TimeChange>,
    pub ctime: Option<Timestamp>,
    pub kill_suid_sgid: bool,
}

/// The pairs of node and lookup count of BATCH_FORGET.
#[derive(Clone, Copy, Debug)]
pub struct Forgets<'a> {
    bytes: &'a [u8],
}

impl<'a> Forgets<'a> {
    /// Yields `(node, lookups)`.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (one, after) = split::<ForgetOne>(rest)?;
            rest = after;
            Some((one.nodeid, one.nlookup))
        })
    }
}
