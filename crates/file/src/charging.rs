//! Counting what accounts did not count: stored bytes and metadata of pools from before, a part at a time, and blobs that moved.
//!
//! Read next: `charge.rs` (stored bytes), `metadata.rs`.

use std::sync::Arc;

use stere_format::{AccountingValue, ChargedTo, FileKind, Key};
use stere_store::{Error, Io, Store, Transaction};

use crate::accounts::{Accounts, Sums, accounting, add_metadata};
use crate::block::END;
use crate::charge::charge;
use crate::keys::{extents_touching, inode_if_any};
use crate::metadata::{attributes_of, next_inode};

/// Inodes, and extents, that one transaction charges.
const INODES_PER_STEP: usize = 128;

const EXTENTS_PER_STEP: usize = 256;

/// Counts what was there before it was counted, and what was moved.
pub struct Charging {
    pub(crate) store: Arc<Store>,
    pub(crate) accounts: Arc<Accounts>,
}

impl Charging {
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
                assert!(inode >= at, "inodes are counted in order, not {inode} after {at}");
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

    /// From now on stored bytes are counted; `charge_some` is to be called until it is done.
    pub fn keep_stored(&self, io: Io<'_>) -> Result<(), Error> {
        self.store.update(io, |transaction| {
            let Some(accounting) = accounting(transaction)?.filter(|accounting| accounting.charged.is_none()) else {
                return Ok::<_, Error>(());
            };
            let charged = Some(ChargedTo { inode: 0, position: 0 });
            transaction.put(Key::accounting(), &AccountingValue { charged, ..accounting }.encode());
            Ok(())
        })?;
        self.accounts.turn_stored_on();
        Ok(())
    }

    /// Charges some of the extents that were there before stored bytes were counted. Tells whether there are more.
    pub fn charge_some(&self, io: Io<'_>) -> Result<bool, crate::error::Error> {
        let charged = self.store.view(io, |view| accounting(view))?.and_then(|accounting| accounting.charged);
        if charged.is_none_or(|charged| charged.inode == AccountingValue::ALL) {
            return Ok(false);
        }
        self.store.update(io, |transaction| {
            let Some(accounting) = accounting(transaction)? else { return Ok(false) };
            let Some(mut to) = accounting.charged else { return Ok(false) };
            let mut left = EXTENTS_PER_STEP;
            for _ in 0..INODES_PER_STEP {
                let Some((inode, value)) = next_inode(transaction, to.inode)? else {
                    to = ChargedTo { inode: AccountingValue::ALL, position: 0 };
                    break;
                };
                let from = if inode == to.inode { to.position } else { 0 };
                if value.and_then(|value| value.kind()) == Some(FileKind::File) {
                    let (count, next) = put_again(transaction, inode, from..END, left)?;
                    left -= count;
                    if let Some(position) = next {
                        to = ChargedTo { inode, position };
                        break;
                    }
                }
                to = ChargedTo { inode: inode + 1, position: 0 };
            }
            transaction.put(Key::accounting(), &AccountingValue { charged: Some(to), ..accounting }.encode());
            transaction.set_charge_pending();
            Ok::<_, crate::error::Error>(to.inode != AccountingValue::ALL)
        })
    }

    /// Charges the extents of a part of a file anew, after blobs were moved.
    pub(crate) fn recharge(
        &self,
        io: Io<'_>,
        inode: u64,
        range: std::ops::Range<u64>,
    ) -> Result<(), crate::error::Error> {
        if !self.accounts.keeps_stored() {
            return Ok(());
        }
        let mut from = range.start;
        while from < range.end {
            let next = self.store.update(io, |transaction| {
                if inode_if_any(transaction, inode)?.is_none() {
                    return Ok(None);
                }
                transaction.set_charge_pending();
                Ok::<_, crate::error::Error>(put_again(transaction, inode, from..range.end, EXTENTS_PER_STEP)?.1)
            })?;
            assert!(next.is_none_or(|next| next > from), "extents are charged in order, from {from} to {next:?}");
            from = next.unwrap_or(range.end);
        }
        Ok(())
    }
}

/// Puts extents as they are, so that they are charged when the transaction is looked at; gives how many those are, and where to go on.
fn put_again(
    transaction: &mut Transaction<'_>,
    inode: u64,
    range: std::ops::Range<u64>,
    limit: usize,
) -> Result<(usize, Option<u64>), crate::error::Error> {
    if limit == 0 {
        return Ok((0, Some(range.start)));
    }
    let extents = extents_touching(transaction, inode, range.start, range.end, limit)?;
    let next = if extents.len() == limit { extents.last().map(|last| last.block_end()) } else { None };
    let mut count = 0;
    for extent in &extents {
        if charge(transaction, &extent.value)? != extent.value.charge {
            extent.put(transaction, inode);
            count += 1;
        }
    }
    assert!(extents.len() <= limit, "{} extents are charged, and {limit} may be", extents.len());
    Ok((count.max(extents.len()), next))
}
