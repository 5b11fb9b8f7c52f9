//! Which inodes the pool has a key of some kind of, remembered: such keys lie among all others of the pool's own, so finding them takes as
//! long as there are of those.
//!
//! Invariant: what is remembered was read after the last change that has returned; whoever changes such a key says so when it took effect.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::error::Error;

/// More are not remembered.
const REMEMBERED_MAX: usize = 1 << 16;

/// By kind of key, the inodes.
#[derive(Default)]
pub(crate) struct Saying {
    changes: AtomicU64,
    known: Mutex<FxHashMap<u8, Vec<u64>>>,
}

impl Saying {
    /// The inodes with a key of this kind; `read` finds them out where that is not known.
    pub fn of(&self, kind: u8, read: impl FnOnce() -> Result<Vec<u64>, Error>) -> Result<Vec<u64>, Error> {
        let before = self.changes.load(Ordering::Acquire);
        if let Some(known) = self.known.lock().get(&kind) {
            return Ok(known.clone());
        }
        let found = read()?;
        let mut known = self.known.lock();
        // What was read before a change may lack it.
        if self.changes.load(Ordering::Acquire) == before && found.len() <= REMEMBERED_MAX {
            known.insert(kind, found.clone());
        }
        Ok(found)
    }

    /// Counts changes that took effect.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// A key was put or deleted.
    pub fn note_change(&self) {
        let mut known = self.known.lock();
        self.changes.fetch_add(1, Ordering::AcqRel);
        known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_once_until_something_changes() {
        let saying = Saying::default();
        let mut reads = 0;
        let mut of = |saying: &Saying, kind, found: Vec<u64>| {
            saying.of(kind, || {
                reads += 1;
                Ok(found)
            })
        };
        assert_eq!(of(&saying, 1, vec![]).unwrap(), [0; 0]);
        assert_eq!(of(&saying, 1, vec![7]).unwrap(), [0; 0], "it is known");
        assert_eq!(of(&saying, 2, vec![8]).unwrap(), [8]);
        saying.note_change();
        assert_eq!(of(&saying, 1, vec![7]).unwrap(), [7]);
        assert_eq!(of(&saying, 1, vec![]).unwrap(), [7]);
        assert_eq!(reads, 3);
        assert!(saying.of(3, || Err(Error::NotFound)).is_err());
    }

    #[test]
    fn what_changes_while_it_is_read_is_not_remembered() {
        let saying = Saying::default();
        let old = saying.of(1, || {
            saying.note_change();
            Ok(vec![7])
        });
        assert_eq!(old.unwrap(), [7]);
        assert_eq!(saying.of(1, || Ok(vec![7, 8])).unwrap(), [7, 8]);
    }
}
