//! Work for the reconciler, as changes of policy note it: in the pool, in the transaction of the change, so it survives a crash.
//!
//! Each note has a number that grows when it is made anew. Invariant: who takes a note away saw its number, so a change made
//! while its subtree is walked is not taken for done. Read next: `reconcile` (the work).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use stere_format::Key;
use stere_store::Transaction;

use crate::error::Error;

/// What the reconciler is told.
#[derive(Default)]
pub struct ReconcileQueue {
    pub has_new_notes: AtomicBool,
    /// Of what is noted, what may wait until units are quiet.
    pub deferred: Mutex<BTreeSet<u64>>,
    /// Held (for reading) from before a change of policy notes work until everybody asks what holds anew.
    pub changing: RwLock<()>,
}

/// Puts a note, or makes it anew.
pub fn put_note(transaction: &mut Transaction<'_>, inode: u64) -> Result<(), Error> {
    let key = Key::reconcile(inode);
    let number = transaction.get(&key)?.map_or(0, |bytes| number_of(&bytes));
    let next = number.checked_add(1).unwrap_or(1);
    assert_ne!(next, number, "a note made anew differs from the one before");
    transaction.put(key, &next.to_le_bytes());
    Ok(())
}

pub fn number_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

impl ReconcileQueue {
    /// To be held by who changes policy: until it is let go nobody begins with work that the change notes.
    pub fn changing_policy(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read()
    }

    /// Notes that what lies below an inode is to be looked at, with the change that makes it necessary.
    pub fn note(&self, transaction: &mut Transaction<'_>, inode: u64) -> Result<(), Error> {
        put_note(transaction, inode)?;
        self.deferred.lock().remove(&inode);
        // Looked at under the store's lock, which this transaction holds until the note is there.
        self.has_new_notes.store(true, Ordering::Release);
        Ok(())
    }
}
