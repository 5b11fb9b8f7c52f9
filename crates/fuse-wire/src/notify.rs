//! Notifications: telling the kernel to forget what it caches.
//!
//! They go over /dev/fuse on both transports and may be sent from any thread, but never by a handler that the
//! kernel waits for with the same inode or directory locked: that dead-locks. Not to have a thing cached is no
//! error.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::abi::notify;
use crate::abi::structs::{NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyPollWakeupOut};
use crate::device::write_message;

/// Sends notifications; clone it freely.
#[derive(Clone, Debug)]
pub struct Notifier {
    file: Arc<File>,
}

impl Notifier {
    pub(crate) fn new(file: Arc<File>) -> Self {
        Self { file }
    }

    /// Drops cached attributes of `node`, and its cached data from `offset` for `length` bytes (0: to the
    /// end; a negative `offset`: attributes only).
    ///
    /// # Errors
    /// What write(2) on /dev/fuse says; ENODEV when the mount is gone.
    pub fn invalidate_inode(&self, node: u64, offset: i64, length: i64) -> io::Result<()> {
        let out = NotifyInvalInodeOut { ino: node, off: offset, len: length };
        self.send(notify::INVAL_INODE, &[out.as_bytes()])
    }

    /// Drops the cached name `name` in `parent`.
    ///
    /// # Errors
    /// As `invalidate_inode`.
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        let out = NotifyInvalEntryOut { parent, namelen: name_length(name)?, flags: 0 };
        self.send(notify::INVAL_ENTRY, &[out.as_bytes(), name, &[0]])
    }

    /// Tells that `name` in `parent`, which was `child`, is gone (inotify sees it too).
    ///
    /// # Errors
    /// As `invalidate_inode`.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> io::Result<()> {
        let out = NotifyDeleteOut { parent, child, namelen: name_length(name)?, padding: 0 };
        self.send(notify::DELETE, &[out.as_bytes(), name, &[0]])
    }

    /// Wakes the poller that gave `kernel_handle`.
    ///
    /// # Errors
    /// As `invalidate_inode`.
    pub fn poll_wakeup(&self, kernel_handle: u64) -> io::Result<()> {
        self.send(notify::POLL, &[NotifyPollWakeupOut { kh: kernel_handle }.as_bytes()])
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> io::Result<()> {
        match write_message(self.file.as_raw_fd(), code, 0, parts) {
            // Not cached, so there is nothing to forget.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        }
    }
}

fn name_length(name: &[u8]) -> io::Result<u32> {
    u32::try_from(name.len()).map_err(|_| io::Error::from_raw_os_error(libc::ENAMETOOLONG))
}
