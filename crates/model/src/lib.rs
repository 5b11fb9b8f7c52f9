//! A plain POSIX-like file system in memory: the reference that stere is compared with.
//!
//! Written to be obviously right, not fast: maps and vectors, no locks, no caching, nothing lazy. It does what a local
//! Linux file system does for a caller whose permissions were checked already, and fails with the same errno. It knows
//! no ACLs, no policy and no time of access. What POSIX leaves open it does as stere does: names are listed in the order
//! in which they were made (a rename over an existing name takes that name's place).
//!
//! Read next: `content` (bytes of a file), `tree` (names), `attributes`, `quota`.

mod attributes;
mod content;
mod quota;
mod tree;

use std::collections::BTreeMap;

pub use attributes::{SetAttributes, XattrMode};
pub use content::Content;
pub use quota::Limit;
pub use tree::{EXCHANGE, NOREPLACE};

/// Error numbers of Linux, as far as the model uses them.
pub mod errno {
    /// Operation not permitted.
    pub const EPERM: i32 = 1;
    /// No such file or directory.
    pub const ENOENT: i32 = 2;
    /// No such device or address.
    pub const ENXIO: i32 = 6;
    /// File exists.
    pub const EEXIST: i32 = 17;
    /// Not a directory.
    pub const ENOTDIR: i32 = 20;
    /// Is a directory.
    pub const EISDIR: i32 = 21;
    /// Invalid argument.
    pub const EINVAL: i32 = 22;
    /// File too large.
    pub const EFBIG: i32 = 27;
    /// Too many links.
    pub const EMLINK: i32 = 31;
    /// Name too long.
    pub const ENAMETOOLONG: i32 = 36;
    /// Directory not empty.
    pub const ENOTEMPTY: i32 = 39;
    /// No data available.
    pub const ENODATA: i32 = 61;
    /// Operation not supported.
    pub const EOPNOTSUPP: i32 = 95;
    /// Quota exceeded.
    pub const EDQUOT: i32 = 122;
    /// Stale file handle: the inode is gone.
    pub const ESTALE: i32 = 116;
}

/// Result with an errno.
pub type Result<T> = std::result::Result<T, i32>;

/// The root directory.
pub const ROOT: u64 = 1;
/// Largest file.
pub const FILE_BYTES_MAX: u64 = 16 << 40;
/// Most names of one file.
pub const LINKS_MAX: u32 = 65_000;

/// Who calls, and when.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bits not to set in modes.
    pub umask: u32,
    /// The time, in any unit.
    pub now: i64,
}

/// What an inode is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File(Content),
    /// A directory: names in the order of their making, with what they name.
    Directory(Vec<(Vec<u8>, u64)>),
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// A device node, FIFO or socket.
    Special,
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// What it is.
    pub kind: Kind,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names; of directories 2 and one for each directory below.
    pub nlink: u32,
    /// Device number.
    pub rdev: u32,
    /// Last change of content.
    pub mtime: i64,
    /// Last change of anything.
    pub ctime: i64,
    /// Of directories: the one above.
    pub parent: u64,
    /// Made without a name and never given one.
    pub never_named: bool,
    /// Open handles.
    pub opens: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    limits: quota::Limits,
}

impl Model {
    /// With a root directory made at `now`.
    pub fn new(now: i64) -> Model {
        let root = Inode {
            kind: Kind::Directory(Vec::new()),
            mode: S_IFDIR | 0o755,
            uid: 0,
            gid: 0,
            nlink: 2,
            rdev: 0,
            mtime: now,
            ctime: now,
            parent: ROOT,
            never_named: false,
            opens: 0,
            xattrs: BTreeMap::new(),
        };
        Model { inodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, limits: BTreeMap::new() }
    }

    /// An inode that exists.
    pub fn inode(&self, inode: u64) -> Result<&Inode> {
        self.inodes.get(&inode).ok_or(errno::ESTALE)
    }

    fn inode_mut(&mut self, inode: u64) -> Result<&mut Inode> {
        self.inodes.get_mut(&inode).ok_or(errno::ESTALE)
    }

    /// All inodes.
    pub fn inodes(&self) -> impl Iterator<Item = (u64, &Inode)> {
        self.inodes.iter().map(|(number, inode)| (*number, inode))
    }

    /// Opens an inode.
    pub fn open(&mut self, inode: u64) -> Result<()> {
        self.inode_mut(inode)?.opens += 1;
        Ok(())
    }

    /// Closes one handle; an inode without a name goes with the last.
    pub fn release(&mut self, inode: u64) -> Result<()> {
        let found = self.inode_mut(inode)?;
        assert!(found.opens > 0, "only what is open is closed");
        found.opens -= 1;
        self.free_if_unused(inode);
        Ok(())
    }

    /// Closes all handles of all inodes, as the end of the process does.
    pub fn release_all(&mut self) {
        for number in self.inodes.keys().copied().collect::<Vec<_>>() {
            if let Some(inode) = self.inodes.get_mut(&number) {
                inode.opens = 0;
            }
            self.free_if_unused(number);
        }
    }

    fn free_if_unused(&mut self, inode: u64) {
        if self.inodes.get(&inode).is_some_and(|found| found.nlink == 0 && found.opens == 0) {
            self.inodes.remove(&inode);
        }
    }
}

/// Type bits of `st_mode`.
pub const S_IFMT: u32 = 0o170000;
/// Directory.
pub const S_IFDIR: u32 = 0o040000;
/// Regular file.
pub const S_IFREG: u32 = 0o100000;
/// Symbolic link.
pub const S_IFLNK: u32 = 0o120000;
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;

#[cfg(test)]
mod tests;
