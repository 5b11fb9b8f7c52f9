//! What a request is answered with, decided while its operation is looked at and sent when that is over.
//!
//! An operation borrows its request and an answer consumes it, so the two are kept apart by this value.

use fuse_wire::{Entry, Request, Statfs};
use stere_naming::{Attributes, Error, Timestamp};

use crate::belief::Belief;

/// One answer.
pub(crate) enum Answer {
    Done,
    /// Names of these inodes were removed or moved.
    Moved([Option<u64>; 2]),
    /// For what wants none.
    Silence,
    Entry(Entry),
    /// There is no such name, and the kernel may remember that.
    NoEntry,
    /// The same, and it may come without the kernel's doing.
    NoEntryYet,
    Attributes(Attributes),
    /// The same after a change of size.
    Cut(Attributes),
    Statx(Attributes),
    Opened {
        handle: u64,
        flags: u32,
    },
    Created {
        entry: Entry,
        handle: u64,
        flags: u32,
        /// It was there before, and may have been emptied.
        is_emptied: bool,
    },
    /// That many bytes in the request's own buffer.
    InPlace(usize),
    /// Where the bytes lie, for another machine that reads them itself.
    Map(Vec<u8>),
    Bytes(Vec<u8>),
    AttributeSize(usize),
    Written(usize),
    /// To the end of the file, which may not be where the kernel thought: where, and how many bytes.
    Appended(u64, usize),
    Copied(u64),
    Offset(u64),
    Ioctl(Vec<u8>),
    Statfs(Statfs),
}

/// Why there is no answer.
pub(crate) enum Failure {
    /// It has to wait, which this thread may not.
    WouldBlock,
    /// For the caller.
    Errno(i32),
    /// For the caller, and the person should hear why.
    Told(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::WouldBlock => Failure::WouldBlock,
            Error::Damaged(_) | Error::ReadOnly(_) => Failure::Told(error),
            other => Failure::Errno(other.errno()),
        }
    }
}

impl Answer {
    /// Answers the request.
    pub fn send(self, request: Request, belief: &Belief) {
        match self {
            Answer::Done | Answer::Moved(_) => request.reply_ok(),
            Answer::Silence => request.reply_none(),
            Answer::Entry(entry) => request.reply_entry(&entry),
            Answer::NoEntry => request.reply_entry(&Entry::negative(belief.absence)),
            Answer::NoEntryYet => request.reply_entry(&Entry::negative(std::time::Duration::ZERO)),
            Answer::Attributes(attributes) => {
                request.reply_attributes(&wire_attributes(&attributes), belief.in_attributes(&attributes));
            }
            Answer::Cut(attributes) => {
                request.reply_attributes(&wire_attributes(&attributes), belief.in_size(&attributes));
            }
            Answer::Statx(attributes) => {
                let born = wire_time(attributes.btime);
                request.reply_statx(&wire_attributes(&attributes), Some(born), belief.in_attributes(&attributes));
            }
            Answer::Opened { handle, flags } => request.reply_open(handle, flags),
            Answer::Created { entry, handle, flags, .. } => request.reply_create(&entry, handle, flags),
            Answer::InPlace(bytes) => request.reply_data(bytes),
            Answer::Map(map) => request.reply_map(&map),
            Answer::Bytes(bytes) => request.reply_bytes(&bytes),
            Answer::AttributeSize(bytes) => request.reply_xattr_size(u32::try_from(bytes).unwrap_or(u32::MAX)),
            Answer::Written(bytes) | Answer::Appended(_, bytes) => {
                request.reply_written(u32::try_from(bytes).unwrap_or(u32::MAX))
            }
            Answer::Copied(bytes) => request.reply_copied(bytes),
            Answer::Offset(offset) => request.reply_lseek(offset),
            Answer::Ioctl(output) => request.reply_ioctl(0, &output),
            Answer::Statfs(statfs) => request.reply_statfs(&statfs),
        }
    }
}

/// A node for the kernel. Node ids are inode numbers.
pub(crate) fn entry(attributes: &Attributes, belief: &Belief) -> Entry {
    Entry {
        node: attributes.inode,
        generation: u64::from(attributes.generation),
        entry_ttl: belief.in_name(attributes),
        attributes_ttl: belief.in_attributes(attributes),
        attributes: wire_attributes(attributes),
    }
}

fn wire_attributes(attributes: &Attributes) -> fuse_wire::Attributes {
    fuse_wire::Attributes {
        inode: attributes.inode,
        size: attributes.size,
        blocks: attributes.blocks_512,
        atime: wire_time(attributes.atime),
        mtime: wire_time(attributes.mtime),
        ctime: wire_time(attributes.ctime),
        mode: attributes.mode,
        links: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        block_size: attributes.block_size,
    }
}

fn wire_time(time: Timestamp) -> fuse_wire::Timestamp {
    fuse_wire::Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
