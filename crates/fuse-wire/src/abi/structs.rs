//! The structures of the FUSE ABI, field for field as the kernel lays them out.
//!
//! Invariant: no structure has implicit padding and every bit pattern is a valid value (`zerocopy` proves
//! both when it derives), so that reading one from bytes can only fail for want of bytes. Field names are
//! the kernel's, except `type`, which is `kind` here. Sizes are pinned in `tests.rs`.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Reads a structure from the front of `bytes`; gives it and the rest, or nothing when too few are there.
#[must_use]
pub fn split<T: FromBytes>(bytes: &[u8]) -> Option<(T, &[u8])> {
    T::read_from_prefix(bytes).ok()
}

/// One structure as the kernel has it; `Default` is all zeros.
macro_rules! wire {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ty),+ $(,)? })+) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub struct $name { $(pub $field: $kind),+ }

        impl Default for $name {
            fn default() -> Self {
                Self::new_zeroed()
            }
        }
    )+};
}

wire! {
    /// `fuse_attr`.
    FileAttr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    }
    /// `fuse_sx_time`.
    SxTime { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    /// `fuse_statx`.
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime, btime:
        SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32,
        dev_minor: u32, spare2: [u64; 14],
    }
    /// `fuse_kstatfs`.
    Kstatfs {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    /// `fuse_file_lock`.
    FileLock { start: u64, end: u64, kind: u32, pid: u32 }
    /// `fuse_entry_out`.
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: FileAttr,
    }
    /// `fuse_forget_in`.
    ForgetIn { nlookup: u64 }
    /// `fuse_forget_one`.
    ForgetOne { nodeid: u64, nlookup: u64 }
    /// `fuse_batch_forget_in`.
    BatchForgetIn { count: u32, dummy: u32 }
    /// `fuse_getattr_in`.
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    /// `fuse_attr_out`.
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: FileAttr }
    /// `fuse_statx_in`.
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    /// `fuse_statx_out`.
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    /// `fuse_mknod_in`.
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// `fuse_mkdir_in`.
    MkdirIn { mode: u32, umask: u32 }
    /// `fuse_rename_in`.
    RenameIn { newdir: u64 }
    /// `fuse_rename2_in`.
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    /// `fuse_link_in`.
    LinkIn { oldnodeid: u64 }
    /// `fuse_setattr_in`.
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid:
        u32, gid: u32, unused5: u32,
    }
    /// `fuse_open_in`.
    OpenIn { flags: u32, open_flags: u32 }
    /// `fuse_create_in`.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// `fuse_open_out`.
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    /// `fuse_release_in`.
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// `fuse_flush_in`.
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// `fuse_read_in`.
    ReadIn {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding:
        u32,
    }
    /// `fuse_write_in`.
    WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding:
        u32,
    }
    /// `fuse_write_out`.
    WriteOut { size: u32, padding: u32 }
    /// `fuse_fsync_in`.
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    /// `fuse_setxattr_in` (without SETXATTR_EXT).
    SetxattrInCompat { size: u32, flags: u32 }
    /// `fuse_setxattr_in`.
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    /// `fuse_getxattr_in`.
    GetxattrIn { size: u32, padding: u32 }
    /// `fuse_getxattr_out`.
    GetxattrOut { size: u32, padding: u32 }
    /// `fuse_lk_in`.
    LkIn { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    /// `fuse_lk_out`.
    LkOut { lk: FileLock }
    /// `fuse_access_in`.
    AccessIn { mask: u32, padding: u32 }
    /// `fuse_init_in`.
    InitIn {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    /// `fuse_init_in` (before 7.36).
    InitInCompat { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// `fuse_init_out`.
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment:
        u16, flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
    /// `fuse_interrupt_in`.
    InterruptIn { unique: u64 }
    /// `fuse_bmap_in`.
    BmapIn { block: u64, blocksize: u32, padding: u32 }
    /// `fuse_bmap_out`.
    BmapOut { block: u64 }
    /// `fuse_ioctl_in`.
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    /// `fuse_ioctl_out`.
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// `fuse_poll_in`.
    PollIn { fh: u64, kh: u64, flags: u32, events: u32 }
    /// `fuse_poll_out`.
    PollOut { revents: u32, padding: u32 }
    /// `fuse_fallocate_in`.
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// `fuse_in_header`.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// `fuse_out_header`.
    OutHeader { len: u32, error: i32, unique: u64 }
    /// `fuse_dirent` (the name follows).
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    /// `fuse_direntplus` (the name follows).
    Direntplus { entry_out: EntryOut, dirent: Dirent }
    /// `fuse_notify_inval_inode_out`.
    NotifyInvalInodeOut { ino: u64, off: i64, len: i64 }
    /// `fuse_notify_inval_entry_out`.
    NotifyInvalEntryOut { parent: u64, namelen: u32, flags: u32 }
    /// `fuse_notify_delete_out`.
    NotifyDeleteOut { parent: u64, child: u64, namelen: u32, padding: u32 }
    /// `fuse_notify_poll_wakeup_out`.
    NotifyPollWakeupOut { kh: u64 }
    /// `fuse_notify_retrieve_in`.
    NotifyRetrieveIn { dummy1: u64, offset: u64, size: u32, dummy2: u32, dummy3: u64, dummy4: u64 }
    /// `fuse_lseek_in`.
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// `fuse_lseek_out`.
    LseekOut { offset: u64 }
    /// `fuse_copy_file_range_in`.
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    /// `fuse_copy_file_range_out` (COPY_FILE_RANGE_64).
    CopyFileRangeOut { bytes_copied: u64 }
    /// Of ENTER_WRITE: a far machine's, no kernel's.
    EnterWriteIn { number: u64, offset: u64, bytes: u64, is_withdrawn: u64 }
    /// `fuse_syncfs_in`.
    SyncfsIn { padding: u64 }
    /// `fuse_ext_header`.
    ExtHeader { size: u32, kind: u32 }
    /// `fuse_supp_groups` (the group ids follow).
    SuppGroups { nr_groups: u32 }
    /// `fuse_uring_ent_in_out`.
    UringEntInOut { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// `fuse_uring_req_header`.
    UringReqHeader { in_out: [u8; 128], op_in: [u8; 128], ring_ent_in_out: UringEntInOut }
    /// `fuse_uring_cmd_req`.
    UringCmdReq { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}
