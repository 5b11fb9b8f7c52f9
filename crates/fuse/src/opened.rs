//! What a file was when a kernel opened it last: if it is that still, the kernel's pages of it are right.
//!
//! Only for pools that several machines mount. A kernel that is told to forget its pages does so when the answer to the open has arrived.
//! Another open at the same time may be answered later and be there sooner, so no open keeps pages until the kernel has used the file
//! that was opened then. What is forgotten here costs a kernel its pages, and nothing else.
//!
//! A kernel that appends takes the file for as long as its own append would have made it, until it is told better: it would show zeros, or
//! half of a record of another machine, to those who read its pages. So what is opened while it appends, or soon after, is read past its
//! pages, too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stere_naming::{Attributes, Handle, Timestamp};

/// Files that are remembered; then all are forgotten.
const FILES_MAX: usize = 65_536;
/// A program that opens a file for each append is taken for one that goes on for this long.
const APPENDED_FOR: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

#[derive(Debug)]
struct Seen {
    version: Version,
    /// The file that was opened then, until the kernel has used it: it may have older pages still.
    unused: Option<Handle>,
}

/// A kernel (a far session, or this machine's) and an inode.
type Place = (Option<u64>, u64);

#[derive(Debug, Default)]
pub(crate) struct Opened {
    seen: Mutex<HashMap<Place, Seen>>,
    appended: Mutex<HashMap<Place, Appended>>,
}

/// A file that a kernel appends to.
#[derive(Debug)]
struct Appended {
    open: Vec<Handle>,
    used: Instant,
}

impl Appended {
    fn is_over(&self) -> bool {
        self.open.is_empty() && self.used.elapsed() > APPENDED_FOR
    }
}

impl Opened {
    /// Notes that a kernel has opened a file, which was this before. Tells whether that is what the kernel saw last.
    pub fn is_unchanged(&self, kernel: Option<u64>, attributes: &Attributes, handle: Handle) -> bool {
        let version = Version { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime };
        let mut known = self.seen.lock();
        if known.len() >= FILES_MAX {
            known.clear();
        }
        let place = (kernel, attributes.inode);
        if known.get(&place).is_some_and(|seen| seen.version == version && seen.unused.is_none()) {
            return true;
        }
        known.insert(place, Seen { version, unused: Some(handle) });
        assert!(known.len() <= FILES_MAX, "{} files are remembered", known.len());
        false
    }

    /// A kernel has opened a file for appending.
    pub fn appends(&self, kernel: Option<u64>, inode: u64, handle: Handle) {
        let mut appended = self.appended.lock();
        appended.retain(|_, one| !one.is_over());
        let one =
            appended.entry((kernel, inode)).or_insert_with(|| Appended { open: Vec::new(), used: Instant::now() });
        one.open.push(handle);
    }

    pub fn is_appended(&self, kernel: Option<u64>, inode: u64) -> bool {
        self.appended.lock().get(&(kernel, inode)).is_some_and(|one| !one.is_over())
    }

    /// A kernel closes a file.
    pub fn closed(&self, kernel: Option<u64>, inode: u64, handle: Handle) {
        self.used(kernel, inode, handle);
        if let Some(one) = self.appended.lock().get_mut(&(kernel, inode))
            && one.open.contains(&handle)
        {
            one.open.retain(|other| *other != handle);
            one.used = Instant::now();
        }
    }

    /// A kernel reads an open file: what it was to forget when that was opened it has forgotten.
    pub fn used(&self, kernel: Option<u64>, inode: u64, handle: Handle) {
        let mut known = self.seen.lock();
        if let Some(seen) = known.get_mut(&(kernel, inode))
            && seen.unused == Some(handle)
        {
            seen.unused = None;
        }
    }

    /// A kernel may have older pages of all that it had open: nobody told it while there was no owner.
    pub fn doubt(&self, kernel: u64) {
        self.seen.lock().retain(|(known, _), _| *known != Some(kernel));
    }

    /// A kernel is gone.
    pub fn forget(&self, kernel: u64) {
        self.doubt(kernel);
        self.appended.lock().retain(|(known, _), _| *known != Some(kernel));
    }
}
