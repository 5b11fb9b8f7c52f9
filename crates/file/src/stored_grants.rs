//! Leave to store, where stored bytes are limited, and their counting. Read next: `charge.rs`.

use stere_faults::{Bug, is_planted};
use stere_format::{AccountingValue, ChargedTo, FileKind, Key};
use stere_store::{Error, Io, Transaction};

use crate::accounts::{Account, accounting, accounts_of, limited_now};
use crate::block::{BLOCK, END};
use crate::charge::{charge, on_devices};
use crate::encoding::Storing;
use crate::grants::over;
use crate::keys::{extents_touching, inode_if_any};
use crate::metadata::next_inode;
use crate::state::Content;
use crate::{Context, Files};

/// Inodes, and extents, that one transaction charges.
pub(crate) const INODES_PER_STEP: usize = 128;

pub(crate) const EXTENTS_PER_STEP: usize = 256;

/// How much of a write may come, and whether it is to be saved at once.
pub(crate) struct StoredGrant {
    pub length: usize,
    pub at_once: bool,
}

impl Files {
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
    pub fn charge_some(&self, io: Io<'_>) -> Result<bool, crate::Error> {
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
            Ok::<_, crate::Error>(to.inode != AccountingValue::ALL)
        })
    }

    /// Charges the extents of a part of a file anew, after blobs were moved.
    pub(crate) fn recharge(&self, io: Io<'_>, inode: u64, range: std::ops::Range<u64>) -> Result<(), crate::Error> {
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
                Ok::<_, crate::Error>(put_again(transaction, inode, from..range.end, EXTENTS_PER_STEP)?.1)
            })?;
            from = next.unwrap_or(range.end);
        }
        Ok(())
    }

    /// How much of a write no limit of stored bytes refuses. Near one, what waits in memory is saved first, so that it is known what that
    /// takes; then what may be more than there is room for is cut where it can be said how much it takes, and otherwise
    /// taken as a whole while there is room at all. Not one byte: whose limit it is.
    pub(crate) fn grant_stored(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        storing: &Storing,
        range: std::ops::Range<u64>,
    ) -> Result<StoredGrant, crate::Error> {
        let length = (range.end - range.start) as usize;
        let all = StoredGrant { length, at_once: false };
        if !self.accounts.keeps_stored() {
            return Ok(all);
        }
        self.accounts.note_time(context.now);
        let cost = |bytes: u64| on_devices(storing.stored_bytes_max(bytes), storing.placement.scheme);
        let Some((room, _)) = self.stored_room(context.io, inode)? else { return Ok(all) };
        let blocks = range.start / BLOCK * BLOCK..range.end.next_multiple_of(BLOCK);
        let wanted = blocks.end - blocks.start;
        if cost(self.dirty_bytes() + wanted) <= room {
            return Ok(all);
        }
        if !context.io.may_block() {
            return Err(Error::WouldBlock.into());
        }
        self.relieve_to(context, inode, content, 0)?;
        let Some((room, holder)) = self.stored_room(context.io, inode)? else { return Ok(all) };
        let is_known = storing.compression.algorithm().is_none() && storing.stack.is_none();
        let at_once = StoredGrant { length, at_once: true };
        if cost(wanted) <= room || (room > 0 && !is_known) || self.is_replacement(context, inode, &range, false)? {
            return Ok(at_once);
        }
        let part = u128::from(room) * u128::from(wanted) / u128::from(cost(wanted));
        let end = (blocks.start + part as u64) / BLOCK * BLOCK;
        match end.saturating_sub(range.start) as usize {
            0 => Err(over(holder)),
            length => Ok(StoredGrant { length, at_once: true }),
        }
    }

    /// The least that limits of stored bytes leave for a file, and whose it is; none if there is no such limit.
    fn stored_room(&self, io: Io<'_>, inode: u64) -> Result<Option<(u64, Account)>, crate::Error> {
        let now = self.accounts.now_seconds();
        self.store.view(io, |view| {
            let Some(value) = inode_if_any(view, inode)? else { return Ok(None) };
            let mut least = None;
            for whose in accounts_of(view, &value)? {
                let limited = limited_now(view, whose, now)?;
                let is_outer = limited.place.is_some() && whose.number != value.volume;
                if is_outer && is_planted(Bug::OuterLimitForgotten) {
                    continue;
                }
                let is_deleted = limited.place.is_some_and(|place| place.is_deleted);
                if let Some(most) = limited.stored_max.filter(|_| !is_deleted) {
                    let room = (most.saturating_sub(limited.stored), whose);
                    least = Some(least.map_or(room, |least: (u64, Account)| least.min(room)));
                }
            }
            Ok(least)
        })
    }
}

/// Puts extents as they are, so that they are charged when the transaction is looked at; gives how many those are, and where to go on.
pub(crate) fn put_again(
    transaction: &mut Transaction<'_>,
    inode: u64,
    range: std::ops::Range<u64>,
    limit: usize,
) -> Result<(usize, Option<u64>), crate::Error> {
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
    Ok((count.max(extents.len()), next))
}
