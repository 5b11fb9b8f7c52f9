//! What writes have been promised and accounts do not have yet: a write that was accepted is never refused later for a quota.
//!
//! A write that makes a file longer is entered in the accounts when it is saved. Until then the book here holds it for everybody whose account it
//! will be, and limits count it. Invariants: what the book holds for an inode is at most what its size in memory counts beyond the size
//! on media; it becomes less in the moment in which the accounts become more; the store's lock is taken before the book's.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::accounts::Account;

/// What is promised for one inode.
struct Debt {
    accounts: Vec<Account>,
    bytes: u64,
}

/// What is promised, by inode and by account.
#[derive(Default)]
pub(crate) struct Book {
    debts: FxHashMap<u64, Debt>,
    pending: FxHashMap<Account, u64>,
}

impl Book {
    /// Bytes promised that will count for an account.
    pub fn pending(&self, account: Account) -> u64 {
        self.pending.get(&account).copied().unwrap_or(0)
    }

    pub(crate) fn debt(&self, inode: u64) -> u64 {
        self.debts.get(&inode).map_or(0, |debt| debt.bytes)
    }

    /// Promises more for an inode. Whose they are stays as it was when the first were promised.
    pub(crate) fn promise(&mut self, inode: u64, accounts: Vec<Account>, bytes: u64) {
        assert!(bytes > 0 && !accounts.is_empty(), "somebody is promised something");
        let debt = self.debts.entry(inode).or_insert(Debt { accounts, bytes: 0 });
        debt.bytes += bytes;
        for account in &debt.accounts {
            *self.pending.entry(*account).or_default() += bytes;
        }
    }

    /// Leaves so many bytes of what was promised for an inode.
    pub(crate) fn lower(&mut self, inode: u64, left: u64) {
        let Entry::Occupied(mut entry) = self.debts.entry(inode) else { return };
        let gone = entry.get().bytes.saturating_sub(left);
        entry.get_mut().bytes -= gone;
        for account in &entry.get().accounts {
            let pending =
                self.pending.get_mut(account).expect("what is promised for an inode is promised for its accounts");
            *pending = pending.checked_sub(gone).expect("an account owes what its inodes owe");
            if *pending == 0 && left == 0 {
                self.pending.remove(account);
            }
        }
        if entry.get().bytes == 0 {
            entry.remove();
        }
        assert_eq!(self.debts.is_empty(), self.pending.is_empty(), "accounts owe what inodes owe");
    }
}
