//! Writes directory entries into the buffer a READDIR or READDIRPLUS is answered from.
//!
//! Invariant: every record starts on 8 bytes and is whole; a record that does not fit is not begun. The
//! offset given with an entry is what the kernel sends back to go on *behind* it.

use zerocopy::IntoBytes;

use crate::abi::structs::{Dirent, EntryOut};
use crate::reply::Entry;

#[cfg(test)]
mod tests;

const ALIGNMENT: usize = 8;

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    pub inode: u64,
    /// Where reading goes on after this entry; never 0.
    pub next_offset: u64,
    /// File type as in the high bits of a mode, `S_IFREG` and so on; 0 when not known.
    pub mode: u32,
    pub name: &'a [u8],
}

/// Fills a buffer with directory entries. Made by `Request::directory`.
#[derive(Debug)]
pub struct DirectoryWriter<'a> {
    buffer: &'a mut [u8],
    used_bytes: usize,
}

impl<'a> DirectoryWriter<'a> {
    /// Writes into `buffer`, which must start on 8 bytes.
    #[must_use]
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, used_bytes: 0 }
    }

    /// Adds an entry for READDIR. False: it did not fit, send what is there.
    #[must_use]
    pub fn add(&mut self, entry: &DirectoryEntry<'_>) -> bool {
        self.write(None, entry)
    }

    /// Adds an entry for READDIRPLUS. False: it did not fit. With `found.node` not 0 the kernel gains one
    /// reference to the node, as by LOOKUP; `.` and `..` must be given with node 0.
    #[must_use]
    pub fn add_plus(&mut self, entry: &DirectoryEntry<'_>, found: &Entry) -> bool {
        self.write(Some(&found.wire()), entry)
    }

    /// How many bytes were written: what to give to `Request::reply_data`.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    fn write(&mut self, found: Option<&EntryOut>, entry: &DirectoryEntry<'_>) -> bool {
        assert!(entry.next_offset != 0, "reading would begin anew behind {:?}", entry.name);
        let Ok(namelen) = u32::try_from(entry.name.len()) else {
            return false;
        };
        let dirent =
            Dirent { ino: entry.inode, off: entry.next_offset, namelen, kind: (entry.mode & libc::S_IFMT) >> 12 };
        let found_bytes = found.map_or(&[][..], |found| found.as_bytes());
        let unpadded = found_bytes.len() + size_of::<Dirent>() + entry.name.len();
        let total = unpadded.next_multiple_of(ALIGNMENT);
        let Some(room) = self.buffer.get_mut(self.used_bytes..).and_then(|room| room.get_mut(..total)) else {
            return false;
        };
        let mut at = 0;
        for part in [found_bytes, dirent.as_bytes(), entry.name] {
            room[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        assert_eq!(at, unpadded, "directory record length");
        room[at..].fill(0);
        self.used_bytes += total;
        true
    }
}
