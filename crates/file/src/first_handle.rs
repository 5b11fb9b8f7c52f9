//! The first handle of a file that is about to be made.
//!
//! It is noted within the transaction that makes the inode, before anybody can find it: noted afterwards, it would take a
//! file that somebody else has opened, written or removed meanwhile for a new and empty one.
//! Invariants: nothing here waits, or needs the store's lock, which the transaction holds; numbers of transactions that did
//! not take effect may have been given to others since, so their handles are counted back, not cleared.

use stere_store::Io;

use crate::state::Content;
use crate::table::FileTable;

/// Handles noted by the runs of one transaction; all but the one that is kept are let go.
pub struct FirstHandle<'a> {
    table: &'a FileTable,
    inodes: Vec<u64>,
}

impl FileTable {
    /// For a transaction that makes a file and opens it.
    pub fn first_handle(&self) -> FirstHandle<'_> {
        FirstHandle { table: self, inodes: Vec::with_capacity(1) }
    }
}

impl FirstHandle<'_> {
    /// Notes the handle of an inode that this run of the transaction makes. False when somebody is at work on the number,
    /// which nobody can know yet (a stale one from elsewhere): take another.
    pub fn open(&mut self, inode: u64) -> bool {
        let held = self.table.hold(inode);
        // Never waiting: whoever has the entry may be waiting for the store.
        let Ok(mut state) = held.write(Io::NON_BLOCKING) else { return false };
        assert!(!state.is_dirty(), "nobody has written to an inode that does not exist");
        state.opens += 1;
        state.content = Some(Content::new_file());
        self.inodes.push(inode);
        true
    }

    /// The transaction took effect: what its last run opened stays open.
    pub fn keep(mut self, inode: u64) {
        assert_eq!(self.inodes.pop(), Some(inode), "the last run of a transaction is the one that takes effect");
    }
}

impl Drop for FirstHandle<'_> {
    fn drop(&mut self) {
        for inode in self.inodes.drain(..) {
            let held = self.table.hold(inode);
            let mut state = held.write(Io::BLOCKING).expect("a caller who may wait gets the lock");
            assert!(state.opens > 0, "a handle that was noted is counted");
            state.opens -= 1;
            if state.is_idle() {
                state.content = None;
            }
        }
    }
}
