//! The values that answers are made of, and how they look on the wire.
//!
//! Times are signed seconds and nanoseconds since 1970; time-to-lives are `Duration`s, where `Duration::MAX`
//! means "for ever". Read next: `request.rs`, whose `reply_*` methods take these.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::abi::structs::{AttrOut, EntryOut, FileAttr, Kstatfs, Statx, StatxOut, SxTime};

/// A point in time, before or after 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    pub seconds: i64,
    /// 0 to 999 999 999, counted forward also before 1970.
    pub nanoseconds: u32,
}

impl Timestamp {
    pub(crate) fn from_wire(seconds: u64, nanoseconds: u32) -> Self {
        Self { seconds: seconds.cast_signed(), nanoseconds }
    }

    fn statx(self) -> SxTime {
        SxTime { tv_sec: self.seconds, tv_nsec: self.nanoseconds, reserved: 0 }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self { seconds: after.as_secs().cast_signed(), nanoseconds: after.subsec_nanos() },
            Err(error) => {
                let before = error.duration();
                let seconds = -before.as_secs().cast_signed();
                match before.subsec_nanos() {
                    0 => Self { seconds, nanoseconds: 0 },
                    part => Self { seconds: seconds - 1, nanoseconds: 1_000_000_000 - part },
                }
            }
        }
    }
}

/// What stat(2) shows of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub inode: u64,
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// File type and permission bits.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// `st_blksize`; 0 leaves it to the kernel.
    pub block_size: u32,
}

impl Attributes {
    pub(crate) fn wire(&self) -> FileAttr {
        FileAttr {
            ino: self.inode,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.seconds.cast_unsigned(),
            mtime: self.mtime.seconds.cast_unsigned(),
            ctime: self.ctime.seconds.cast_unsigned(),
            atimensec: self.atime.nanoseconds,
            mtimensec: self.mtime.nanoseconds,
            ctimensec: self.ctime.nanoseconds,
            mode: self.mode,
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.block_size,
            flags: 0,
        }
    }

    pub(crate) fn wire_out(&self, ttl: Duration) -> AttrOut {
        AttrOut { attr_valid: ttl.as_secs(), attr_valid_nsec: ttl.subsec_nanos(), dummy: 0, attr: self.wire() }
    }

    /// The answer to STATX: the basic fields, and the time of birth where it is known.
    pub(crate) fn wire_statx(&self, born: Option<Timestamp>, ttl: Duration) -> StatxOut {
        let mask = libc::STATX_BASIC_STATS | if born.is_some() { libc::STATX_BTIME } else { 0 };
        StatxOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            flags: 0,
            spare: [0; 2],
            stat: Statx {
                mask,
                blksize: self.block_size,
                nlink: self.links,
                uid: self.uid,
                gid: self.gid,
                mode: u16::try_from(self.mode & 0xffff).unwrap_or_default(),
                ino: self.inode,
                size: self.size,
                blocks: self.blocks,
                atime: self.atime.statx(),
                btime: born.unwrap_or_default().statx(),
                ctime: self.ctime.statx(),
                mtime: self.mtime.statx(),
                rdev_major: libc::major(self.rdev.into()),
                rdev_minor: libc::minor(self.rdev.into()),
                ..Statx::default()
            },
        }
    }
}

/// A name that was found or made: gives the kernel one more reference to `node` (see Forget). Count it before
/// answering: the FORGET may arrive on another thread at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// 0 says that the name does not exist and that this may be remembered for `entry_ttl`.
    pub node: u64,
    /// Tells two lives of one node id apart.
    pub generation: u64,
    pub entry_ttl: Duration,
    pub attributes_ttl: Duration,
    pub attributes: Attributes,
}

impl Entry {
    /// "No such name", to be remembered for `ttl`.
    #[must_use]
    pub fn negative(ttl: Duration) -> Self {
        Self { entry_ttl: ttl, ..Self::default() }
    }

    pub(crate) fn wire(&self) -> EntryOut {
        EntryOut {
            nodeid: self.node,
            generation: self.generation,
            entry_valid: self.entry_ttl.as_secs(),
            attr_valid: self.attributes_ttl.as_secs(),
            entry_valid_nsec: self.entry_ttl.subsec_nanos(),
            attr_valid_nsec: self.attributes_ttl.subsec_nanos(),
            attr: self.attributes.wire(),
        }
    }
}

/// What statfs(2) shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// In units of `fragment_size`, like the two fields after it.
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub block_size: u32,
    pub name_length_max: u32,
    pub fragment_size: u32,
}

impl Statfs {
    pub(crate) fn wire(&self) -> Kstatfs {
        Kstatfs {
            blocks: self.blocks,
            bfree: self.blocks_free,
            bavail: self.blocks_available,
            files: self.files,
            ffree: self.files_free,
            bsize: self.block_size,
            namelen: self.name_length_max,
            frsize: self.fragment_size,
            ..Kstatfs::default()
        }
    }
}
