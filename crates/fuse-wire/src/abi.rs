//! The kernel's FUSE ABI, protocol 7.45: numbers and flags. The structures are in [`structs`].
//!
//! Written by hand from what the kernel's `include/uapi/linux/fuse.h` says. Everything is in the byte
//! order of the machine. Names follow the kernel's, without the `FUSE_` prefix, so that they can be
//! looked up there. Read next: `structs.rs`, then `../operation.rs`.

pub mod structs;

#[cfg(test)]
mod tests;

/// Major protocol version; the kernel has spoken 7 since 2005.
pub const KERNEL_VERSION: u32 = 7;
/// The newest minor version this crate knows the structures of.
pub const KERNEL_MINOR_VERSION: u32 = 45;
/// The oldest minor version accepted (Linux 5.4): older kernels have shorter structures.
pub const KERNEL_MINOR_VERSION_MIN: u32 = 31;
/// The node id of the root directory.
pub const ROOT_ID: u64 = 1;
/// The kernel refuses to read requests with less room than this.
pub const MIN_READ_BUFFER_BYTES: usize = 8192;
/// Set in the `unique` of an INTERRUPT request itself.
pub const INTERRUPT_UNIQUE_BIT: u64 = 1;

/// Request numbers (`enum fuse_opcode`).
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SETUPMAPPING: u32 = 48;
    pub const REMOVEMAPPING: u32 = 49;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    /// No kernel's: a far machine offers to write past whoever serves it.
    pub const OFFER_WRITE: u32 = 1 << 20;
    /// No kernel's: a far machine has written what it offered, or gives it up.
    pub const ENTER_WRITE: u32 = OFFER_WRITE + 1;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Flags of INIT; bits 32 and up travel in `flags2`.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const SPLICE_WRITE: u64 = 1 << 7;
    pub const SPLICE_MOVE: u64 = 1 << 8;
    pub const SPLICE_READ: u64 = 1 << 9;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const MAP_ALIGNMENT: u64 = 1 << 26;
    pub const SUBMOUNTS: u64 = 1 << 27;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const SECURITY_CTX: u64 = 1 << 32;
    pub const HAS_INODE_DAX: u64 = 1 << 33;
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const PASSTHROUGH: u64 = 1 << 37;
    pub const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    pub const HAS_RESEND: u64 = 1 << 39;
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    pub const OVER_IO_URING: u64 = 1 << 41;
    pub const REQUEST_TIMEOUT: u64 = 1 << 42;
}

/// `valid` bits of SETATTR.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flags of the answer to OPEN, CREATE, TMPFILE and OPENDIR.
pub mod fopen {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const NONSEEKABLE: u32 = 1 << 2;
    pub const CACHE_DIR: u32 = 1 << 3;
    pub const STREAM: u32 = 1 << 4;
    pub const NOFLUSH: u32 = 1 << 5;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// Flags inside requests, named after the request they belong to.
pub mod flag {
    pub const RELEASE_FLUSH: u32 = 1 << 0;
    pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
    pub const GETATTR_FH: u32 = 1 << 0;
    pub const LK_FLOCK: u32 = 1 << 0;
    pub const WRITE_CACHE: u32 = 1 << 0;
    pub const WRITE_LOCKOWNER: u32 = 1 << 1;
    pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
    pub const READ_LOCKOWNER: u32 = 1 << 1;
    pub const FSYNC_FDATASYNC: u32 = 1 << 0;
    pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
    pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
    pub const IOCTL_DIR: u32 = 1 << 4;
    pub const POLL_SCHEDULE_NOTIFY: u32 = 1 << 0;
    pub const ATTR_SUBMOUNT: u32 = 1 << 0;
    pub const EXPIRE_ONLY: u32 = 1 << 0;
}

/// Codes of unsolicited messages to the kernel (`enum fuse_notify_code`).
pub mod notify {
    pub const POLL: i32 = 1;
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const STORE: i32 = 4;
    pub const RETRIEVE: i32 = 5;
    pub const DELETE: i32 = 6;
}

/// Types of extensions behind a request's arguments.
pub mod extension {
    /// One `supp_groups` list; needs `CREATE_SUPP_GROUP`.
    pub const GROUPS: u32 = 32;
}

/// FUSE over io_uring: commands of `IORING_OP_URING_CMD` on the FUSE device.
pub mod uring {
    /// Hand an entry's buffers to the kernel and fetch the first request into it.
    pub const COMMAND_REGISTER: u32 = 1;
    /// Answer the request of an entry and fetch the next one into it.
    pub const COMMAND_COMMIT_AND_FETCH: u32 = 2;
    pub const IN_OUT_HEADER_BYTES: usize = 128;
    pub const OPERATION_HEADER_BYTES: usize = 128;
}
