//! Caches which inodes own a system key of each kind; finding them takes a full scan of the pool's own keys.
//!
//! Invariant: what is cached was read after the last change that has returned; each change of such a key is noted here when it
//! took effect. Read next: `tier`, `residency_policy`, `units`, which ask.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use stere_format::Key;
use stere_format::key::tree::SYSTEM;
use stere_store::{Io, View};

use crate::error::Error;
use crate::inode::Core;

/// More are not remembered.
const REMEMBERED_MAX: usize = 1 << 16;

/// By kind of key, the inodes.
#[derive(Default)]
struct Remembered {
    changes: AtomicU64,
    known: Mutex<FxHashMap<u8, Vec<u64>>>,
}

impl Remembered {
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

/// Finds the inodes that own a system key of some kind.
pub struct FlaggedInodes {
    core: Arc<Core>,
    remembered: Remembered,
}

/// The inodes of which the pool has a key of this kind, among all keys of its own.
pub fn system_keys(view: &View<'_>, kind: u8) -> Result<Vec<u64>, Error> {
    let mut inodes = Vec::new();
    view.scan(Key::new(SYSTEM, 0, 0, 0), Key::new(SYSTEM + 1, 0, 0, 0), |key, _| {
        inodes.extend((key.kind == kind).then_some(key.object));
        ControlFlow::Continue(())
    })?;
    assert!(inodes.is_sorted(), "keys of the pool are visited in order");
    Ok(inodes)
}

impl FlaggedInodes {
    pub fn new(core: Arc<Core>) -> FlaggedInodes {
        FlaggedInodes { core, remembered: Remembered::default() }
    }

    /// Counts changes that took effect.
    pub fn changes(&self) -> u64 {
        self.remembered.changes()
    }

    /// A key was put or deleted.
    pub fn note_change(&self) {
        self.remembered.note_change();
    }

    /// The inodes of which the pool has a key of this kind; keys of those that were removed since are forgotten.
    pub fn inodes_with(&self, io: Io<'_>, kind: u8, key_of: impl Fn(u64) -> Key) -> Result<Vec<u64>, Error> {
        let known = self.remembered.of(kind, || self.core.store.view(io, |view| system_keys(view, kind)))?;
        let (there, gone): (Vec<u64>, Vec<u64>) = self.core.store.view(io, |view| {
            let (mut there, mut gone) = (Vec::new(), Vec::new());
            for inode in known.iter().copied() {
                let is_there = stere_file::inode_if_any(view, inode)?.is_some();
                if is_there { there.push(inode) } else { gone.push(inode) }
            }
            Ok::<_, Error>((there, gone))
        })?;
        assert!(there.is_sorted(), "inodes are remembered in the order of their keys");
        if !gone.is_empty() {
            self.core.store.update(io, |transaction| {
                gone.iter().for_each(|inode| transaction.delete(key_of(*inode)));
                Ok::<_, Error>(())
            })?;
            self.note_change();
        }
        Ok(there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_once_until_something_changes() {
        let flagged_by = Remembered::default();
        let mut reads = 0;
        let mut of = |flagged_by: &Remembered, kind, found: Vec<u64>| {
            flagged_by.of(kind, || {
                reads += 1;
                Ok(found)
            })
        };
        assert_eq!(of(&flagged_by, 1, vec![]).unwrap(), [0; 0]);
        assert_eq!(of(&flagged_by, 1, vec![7]).unwrap(), [0; 0], "it is known");
        assert_eq!(of(&flagged_by, 2, vec![8]).unwrap(), [8]);
        flagged_by.note_change();
        assert_eq!(of(&flagged_by, 1, vec![7]).unwrap(), [7]);
        assert_eq!(of(&flagged_by, 1, vec![]).unwrap(), [7]);
        assert_eq!(reads, 3);
        assert!(flagged_by.of(3, || Err(Error::NotFound)).is_err());
    }

    #[test]
    fn what_changes_while_it_is_read_is_not_remembered() {
        let flagged_by = Remembered::default();
        let old = flagged_by.of(1, || {
            flagged_by.note_change();
            Ok(vec![7])
        });
        assert_eq!(old.unwrap(), [7]);
        assert_eq!(flagged_by.of(1, || Ok(vec![7, 8])).unwrap(), [7, 8]);
    }
}
