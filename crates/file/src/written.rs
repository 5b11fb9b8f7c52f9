//! Files whose content changed since somebody looked, for who sends it elsewhere in the background without walking over names.
//!
//! In memory only, and bounded: what is not known counts as all files, as after a mount. Invariant: what was entered into a file before
//! `take_written` is in what that gives, or all files are.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Files that are remembered.
pub(crate) const WRITTEN_MAX: usize = 1 << 16;

/// None: any file may have been.
pub(crate) struct Written(pub Mutex<Option<BTreeSet<u64>>>);

impl Default for Written {
    fn default() -> Written {
        Written(Mutex::new(None))
    }
}
