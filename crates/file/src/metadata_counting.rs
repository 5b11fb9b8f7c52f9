//! What names and attributes take, counted a part at a time where it was never counted. Read next: `metadata.rs`.

use stere_format::{AccountingValue, Key};
use stere_store::{Error, Io};

use crate::Files;
use crate::accounts::{Sums, accounting, add_metadata};
use crate::metadata::{attributes_of, next_inode};

/// Inodes that one transaction looks at.
pub(crate) const INODES_PER_STEP: usize = 128;

impl Files {
    /// In a pool from before metadata counted, counts that of some inodes. Tells whether there are more.
    pub fn count_metadata_some(&self, io: Io<'_>) -> Result<bool, Error> {
        let is_done = |accounting: &AccountingValue| accounting.metadata == AccountingValue::ALL;
        if self.store.view(io, |view| accounting(view))?.is_none_or(|accounting| is_done(&accounting)) {
            return Ok(false);
        }
        self.store.update(io, |transaction| {
            let Some(accounting) = accounting(transaction)?.filter(|accounting| !is_done(accounting)) else {
                return Ok(false);
            };
            let (mut at, mut sums) = (accounting.metadata, Sums::new());
            for _ in 0..INODES_PER_STEP {
                let Some((inode, value)) = next_inode(transaction, at)? else {
                    at = AccountingValue::ALL;
                    break;
                };
                if let Some(value) = value.filter(|_| inode < accounting.counted) {
                    add_metadata(&mut sums, &value, attributes_of(transaction, inode, &value)?);
                }
                at = inode + 1;
            }
            transaction.put(Key::accounting(), &AccountingValue { metadata: at, ..accounting }.encode());
            transaction.set_charge_pending();
            self.accounts.enter(transaction, sums)?;
            Ok::<_, Error>(at != AccountingValue::ALL)
        })
    }
}
