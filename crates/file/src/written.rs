//! Files whose content changed since somebody looked, for who sends it elsewhere in the background without walking over names.
//!
//! In memory only, and bounded: what is not known counts as all files, as after a mount. Invariant: what was entered into a file before
//! `take_written` is in what that gives, or all files are.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::Files;

/// Files that are remembered.
const WRITTEN_MAX: usize = 1 << 16;

/// None: any file may have been.
pub(crate) struct Written(Mutex<Option<BTreeSet<u64>>>);

impl Default for Written {
    fn default() -> Written {
        Written(Mutex::new(None))
    }
}

impl Files {
    /// Something of a file lies where nobody looked yet.
    pub fn note_written(&self, inode: u64) {
        if !self.store.tier.media.has_volumes() {
            return;
        }
        let mut written = self.written.0.lock();
        if let Some(inodes) = written.as_mut() {
            inodes.insert(inode);
            if inodes.len() > WRITTEN_MAX {
                *written = None;
            }
        }
    }

    /// Whether it is known that some were written since `take_written` was asked.
    pub fn is_any_written(&self) -> bool {
        self.written.0.lock().as_ref().is_some_and(|inodes| !inodes.is_empty())
    }

    /// The files that were written since this was asked last; none if any may have been.
    pub fn take_written(&self) -> Option<BTreeSet<u64>> {
        self.written.0.lock().replace(BTreeSet::new())
    }
}
