//! Leave to write, asked of all accounts before anything is accepted. Read next: `pending_charges.rs`.

use std::sync::Arc;

use stere_faults::{Bug, is_planted};
use stere_store::{Io, Store, Transaction, View};

use crate::accounts::{Account, Accounts, accounts_of, counted_bytes, in_blocks, limited_now};
use crate::block::BLOCK;
use crate::context::Context;
use crate::error::Error;
use crate::keys::{self, inode_if_any};
use crate::state::Content;

/// What becomes of a wish to make a file longer.
pub(crate) struct Grant {
    /// The size that it may have.
    size: u64,
    /// Whose limit it is, if that is less than was wished.
    holder: Option<Account>,
}

/// No scheme stores content more often.
const STORED_TIMES: u64 = 8;

/// Gives leave to write by what accounts have left.
pub(crate) struct Grants {
    pub(crate) store: Arc<Store>,
    pub(crate) accounts: Arc<Accounts>,
}

impl Grants {
    /// How many of `length` bytes at `offset` may be written; they are promised. Not one: whose quota is used up.
    pub(crate) fn grant_write(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &Content,
        offset: u64,
        length: usize,
    ) -> Result<usize, Error> {
        let end = offset + length as u64;
        if !self.accounts.is_on() || in_blocks(end) <= in_blocks(content.size) {
            return Ok(length);
        }
        let grant = self.grant(context, inode, end)?;
        let granted = grant.size.max(content.size).min(end).saturating_sub(offset) as usize;
        match grant.holder {
            Some(holder) if granted == 0 => {
                self.keep_promised(inode, content);
                Err(over(holder))
            }
            _ => Ok(granted),
        }
    }

    /// Promises that a file may have a size, or says whose quota is used up.
    pub(crate) fn grant_size(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &Content,
        size: u64,
    ) -> Result<(), Error> {
        if !self.accounts.is_on() || in_blocks(size) <= in_blocks(content.size) {
            return Ok(());
        }
        match self.grant(context, inode, size)?.holder {
            Some(holder) => {
                self.keep_promised(inode, content);
                Err(over(holder))
            }
            None => Ok(()),
        }
    }

    /// Whether no account's limit is near: so many bytes may come to a file, as often as it is asked.
    pub(crate) fn has_room(&self, context: &Context<'_>, inode: u64, bytes: u64) -> Result<bool, Error> {
        if !self.accounts.is_on() {
            return Ok(true);
        }
        self.accounts.note_time(context.now);
        let now = self.accounts.now_seconds();
        let is_near = self.store.view(context.io, |view| {
            let value = keys::inode(view, inode)?;
            let accounts = accounts_of(view, &value)?;
            let limits = limits(view, &accounts, now)?;
            let book = self.accounts.book.lock();
            Ok::<bool, Error>(
                limits.into_iter().any(|(account, left)| left.saturating_sub(book.pending(account)) < bytes),
            )
        })?;
        let is_store_near = match self.accounts.keeps_stored() {
            true => self.stored_room(context.io, inode)?.is_some_and(|(room, _)| room < STORED_TIMES * bytes),
            false => false,
        };
        Ok(!is_near && !is_store_near)
    }

    fn grant(&self, context: &Context<'_>, inode: u64, size: u64) -> Result<Grant, Error> {
        self.accounts.note_time(context.now);
        let now = self.accounts.now_seconds();
        self.store.view(context.io, |view| {
            let value = keys::inode(view, inode)?;
            let accounts = accounts_of(view, &value)?;
            let limits = limits(view, &accounts, now)?;
            let mut book = self.accounts.book.lock();
            let covered = counted_bytes(&value) + book.debt(inode);
            let lacking = in_blocks(size).saturating_sub(covered);
            let rooms = limits.into_iter().map(|(account, left)| (left.saturating_sub(book.pending(account)), account));
            let least = rooms.min().filter(|(room, _)| *room < lacking);
            let grant = match least {
                None => Grant { size, holder: None },
                Some((room, holder)) => Grant { size: (covered + room) / BLOCK * BLOCK, holder: Some(holder) },
            };
            assert!(grant.size <= size, "{} bytes are granted, and {size} were asked for", grant.size);
            let promised = in_blocks(grant.size).saturating_sub(covered);
            if promised > 0 {
                book.promise(inode, accounts, promised);
            }
            Ok(grant)
        })
    }

    /// Takes back what was promised beyond what a file needs: its size in memory beyond the one on media.
    pub(crate) fn keep_promised(&self, inode: u64, content: &Content) {
        if self.accounts.is_on() {
            self.accounts.book.lock().lower(inode, unsaved(content.size, content.stored_size));
        }
    }

    /// Whether something is promised for an inode.
    pub(crate) fn is_promised(&self, inode: u64) -> bool {
        self.accounts.is_on() && self.accounts.book.lock().debt(inode) > 0
    }

    /// The inode is no more.
    pub(crate) fn forget_promised(&self, inode: u64) {
        if self.accounts.is_on() {
            self.accounts.book.lock().lower(inode, 0);
        }
    }

    /// To be called by transactions that give a file the size `stored_size` on media while it has `size` in memory: what they
    /// add was promised, and is not promised any more in the moment in which it is counted.
    pub(crate) fn pay(&self, transaction: &mut Transaction<'_>, inode: u64, size: u64, stored_size: u64) {
        if self.accounts.is_on() {
            transaction.set_charge_pending();
            let (accounts, left) = (self.accounts.clone(), unsaved(size, stored_size));
            transaction.on_effect(move || accounts.book.lock().lower(inode, left));
        }
    }

    /// The least that limits of stored bytes leave for a file, and whose it is; none if there is no such limit.
    pub(crate) fn stored_room(&self, io: Io<'_>, inode: u64) -> Result<Option<(u64, Account)>, crate::error::Error> {
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

pub(crate) fn unsaved(size: u64, stored_size: u64) -> u64 {
    assert!(stored_size <= size, "media have {stored_size} bytes of a file of {size}");
    in_blocks(size).saturating_sub(in_blocks(stored_size))
}

pub(crate) fn over(holder: Account) -> Error {
    Error::Store(stere_store::Error::OverLimit { holder: holder.to_string() })
}

/// What is left of those accounts that have a limit.
pub(crate) fn limits(
    view: &View<'_>,
    accounts: &[Account],
    now: u64,
) -> Result<Vec<(Account, u64)>, stere_store::Error> {
    let mut limits = Vec::new();
    for whose in accounts {
        let value = limited_now(view, *whose, now)?;
        let is_deleted = value.place.is_some_and(|place| place.is_deleted);
        if let Some(most) = value.bytes_max.filter(|_| !is_deleted) {
            limits.push((*whose, most.saturating_sub(value.bytes)));
        }
    }
    Ok(limits)
}
