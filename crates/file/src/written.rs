//! Files whose content changed since somebody looked, for who sends it elsewhere in the background without walking over names.
//!
//! In memory only, and bounded: what is not known counts as all files, as after a mount. Invariant: what was entered into a file before
//! `take` is in what that gives, or all files are.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_store::Store;

/// Files that are remembered.
const WRITTEN_MAX: usize = 1 << 16;

/// The files that were written lately.
pub struct Written {
    store: Arc<Store>,
    /// None: any file may have been.
    files: Mutex<Option<BTreeSet<u64>>>,
}

impl Written {
    pub(crate) fn new(store: Arc<Store>) -> Written {
        Written { store, files: Mutex::new(None) }
    }

    /// Something of a file lies where nobody looked yet.
    pub fn note(&self, inode: u64) {
        if !self.store.tier.media.has_volumes() {
            return;
        }
        let mut written = self.files.lock();
        if let Some(inodes) = written.as_mut() {
            inodes.insert(inode);
            if inodes.len() > WRITTEN_MAX {
                *written = None;
            }
        }
    }

    /// Whether it is known that some were written since `take` was asked.
    pub fn is_any(&self) -> bool {
        self.files.lock().as_ref().is_some_and(|inodes| !inodes.is_empty())
    }

    /// The files that were written since this was asked last; none if any may have been.
    pub fn take(&self) -> Option<BTreeSet<u64>> {
        self.files.lock().replace(BTreeSet::new())
    }
}
