//! What a file was when a kernel opened it last: if it is that still, the kernel's pages of it are right.
//!
//! Only for pools that several machines mount. What is forgotten here costs a kernel its pages, and nothing else.

use std::collections::HashMap;

use parking_lot::Mutex;
use stere_naming::{Attributes, Timestamp};

/// Files that are remembered; then all are forgotten.
const FILES_MAX: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

/// By kernel (a far session, or this machine's) and inode.
#[derive(Debug, Default)]
pub(crate) struct Opened(Mutex<HashMap<(Option<u64>, u64), Version>>);

impl Opened {
    /// Notes that a kernel opens a file, which was this before. Tells whether that is what the kernel saw last.
    pub fn is_unchanged(&self, kernel: Option<u64>, attributes: &Attributes) -> bool {
        let version = Version { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime };
        let mut known = self.0.lock();
        if known.len() >= FILES_MAX {
            known.clear();
        }
        known.insert((kernel, attributes.inode), version) == Some(version)
    }

    /// A kernel is gone.
    pub fn forget(&self, kernel: u64) {
        self.0.lock().retain(|(known, _), _| *known != Some(kernel));
    }
}
