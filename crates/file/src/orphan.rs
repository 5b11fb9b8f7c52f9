//! Inodes whose end goes in steps: without a name but open, or too large to be freed or cut in one transaction.
//!
//! Invariants: the list on media (`SYSTEM` keys) and the one in memory name the same inodes; a removed inode is freed when
//! nobody has it open and, where a kernel is in front (`hold_removed`), the kernel has forgotten it: until then it may open
//! what it has looked up; a file whose truncation is not finished is not extended before it is. Locks: an entry, then `freeing`, then
//! the store; who has `freeing` never waits for an entry.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use stere_faults::{Bug, is_planted};
use stere_format::{InodeValue, Key};
use stere_store::{Io, Store, Transaction};

use crate::context::Context;
use crate::error::Error;
use crate::extents::{self, EXTENTS_PER_STEP};
use crate::grants::Grants;
use crate::keys;
use crate::orphans::{Gone, Orphan, OrphanKind};
use crate::policy::{own_locks, own_policy};
use crate::state::State;
use crate::table::FileTable;

/// Pieces of removed inodes that are freed before an unmount goes on.
const STEPS_AT_THE_END: usize = 4096;
/// Such pieces that are freed for a caller who found no room, or asks how much there is.
const STEPS_FOR_ROOM: usize = 1024;

/// Puts an inode on the list on media; `Orphans::note` follows when the transaction took effect.
pub(crate) fn put(transaction: &mut Transaction<'_>, inode: u64, kind: OrphanKind) {
    transaction.put(Key::orphan(inode), &kind.to_bytes());
}

/// Takes a name's link away from an inode in a transaction.
fn drop_link(
    transaction: &mut Transaction<'_>,
    inode: u64,
    mut value: InodeValue,
    last: bool,
    unlink: &Unlink,
) -> Result<Gone, Error> {
    if !last {
        keys::put_inode(transaction, inode, &value);
        return Ok(Gone::Stays);
    }
    if !unlink.open && delete_step(transaction, inode, &mut value)? {
        if unlink.listed {
            transaction.delete(Key::orphan(inode));
        }
        return Ok(Gone::Freed);
    }
    keys::put_inode(transaction, inode, &value);
    put(transaction, inode, OrphanKind::Removed);
    Ok(Gone::Orphan)
}

/// Frees a bounded piece of an inode, and the inode with its last piece. Tells whether that was the last.
fn delete_step(transaction: &mut Transaction<'_>, inode: u64, value: &mut InodeValue) -> Result<bool, Error> {
    if value.blocks_bytes > 0 || value.size > 0 {
        let (allocation, complete) = extents::clear(transaction, inode, 0..crate::block::END, EXTENTS_PER_STEP)?;
        value.blocks_bytes = allocation.apply(value.blocks_bytes);
        if !complete {
            return Ok(false);
        }
    }
    let mut attributes = Vec::new();
    transaction.scan(Key::xattr(inode, 0), Key::xattr(inode, u64::MAX), |key, _| {
        attributes.push(*key);
        ControlFlow::Continue(())
    })?;
    for key in attributes {
        transaction.delete(key);
    }
    if let Some(policy) = value.policy {
        for class in [policy.class, policy.locked.class].into_iter().filter(|class| *class != 0) {
            transaction.delete(Key::class_member(class, inode));
        }
        if [own_policy(value), own_locks(value)].iter().any(|own| own.scheme_wish().is_some()) {
            transaction.delete(Key::redundancy_member(inode));
        }
    }
    transaction.delete(Key::inode(inode));
    Ok(true)
}

/// The list of these inodes, and what frees them.
pub struct Orphans {
    store: Arc<Store>,
    table: Arc<FileTable>,
    grants: Arc<Grants>,
    list: Mutex<BTreeMap<u64, Orphan>>,
    /// How many the list has: most calls find it empty.
    count: AtomicUsize,
    freeing: Mutex<()>,
    /// Removed inodes are kept until the kernel forgets them.
    holds_removed: AtomicBool,
}

impl Orphans {
    /// Reads the list from media, and frees nothing yet.
    pub(crate) fn load(store: Arc<Store>, table: Arc<FileTable>, grants: Arc<Grants>) -> Result<Orphans, Error> {
        let list = crate::orphans::load(&store)?;
        let (count, list) = (AtomicUsize::new(list.len()), Mutex::new(list));
        Ok(Orphans {
            store,
            table,
            grants,
            list,
            count,
            freeing: Mutex::default(),
            holds_removed: AtomicBool::new(false),
        })
    }

    /// Takes a name away from an inode. `change` runs in a transaction with what is in memory of the inode locked, and
    /// calls the given function for the inode to lose its link. What the kernel removes it knows, and is kept until it forgets it.
    pub fn removing<T, E: From<Error> + From<stere_store::Error>>(
        &self,
        context: &Context<'_>,
        inode: u64,
        change: impl FnMut(&mut Transaction<'_>, &Unlink) -> Result<(T, Gone), E>,
    ) -> Result<T, E> {
        let is_held = self.holds_removed.load(Ordering::Acquire);
        self.removing_known(context, inode, is_held, change)
    }

    /// The same for what the kernel need not be able to open any more, whatever it has looked up.
    pub fn removing_unheld<T, E: From<Error> + From<stere_store::Error>>(
        &self,
        context: &Context<'_>,
        inode: u64,
        change: impl FnMut(&mut Transaction<'_>, &Unlink) -> Result<(T, Gone), E>,
    ) -> Result<T, E> {
        self.removing_known(context, inode, false, change)
    }

    fn removing_known<T, E: From<Error> + From<stere_store::Error>>(
        &self,
        context: &Context<'_>,
        inode: u64,
        is_held: bool,
        mut change: impl FnMut(&mut Transaction<'_>, &Unlink) -> Result<(T, Gone), E>,
    ) -> Result<T, E> {
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        if self.kind_of(inode) == Some(OrphanKind::Truncating) {
            // The list has room for one reason; what is left behind the end would be forgotten.
            self.finish_truncation(context, inode)?;
        }
        let listed = self.kind_of(inode);
        assert_ne!(listed, Some(OrphanKind::Truncating), "inode {inode} is cut before it loses a name");
        let unlink = Unlink {
            open: state.opens > 0 || is_held,
            listed: listed.is_some(),
            is_in_use: state.opens > 0,
            size: state.content.as_ref().map(|content| content.size),
        };
        let (value, gone) = self.store.update(context.io, |transaction| change(transaction, &unlink))?;
        self.note_gone(inode, &mut state, gone);
        if gone == Gone::Orphan && !is_held {
            self.list.lock().get_mut(&inode).into_iter().for_each(|orphan| orphan.held = false);
        }
        Ok(value)
    }

    fn note_gone(&self, inode: u64, state: &mut State, gone: Gone) {
        match gone {
            Gone::Stays => {}
            Gone::Freed => {
                self.strike(inode);
                self.discard(inode, state);
            }
            Gone::Orphan => self.note(inode, OrphanKind::Removed),
        }
    }

    /// Drops what is in memory of an inode that is no more.
    fn discard(&self, inode: u64, state: &mut State) {
        self.grants.forget_promised(inode);
        if let Some(content) = state.content.take() {
            self.table.note_memory(content.memory_bytes(), 0);
        }
    }

    pub(crate) fn kind_of(&self, inode: u64) -> Option<OrphanKind> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.list.lock().get(&inode).map(|orphan| orphan.kind)
    }

    /// Whether an inode has no name and the kernel does not know it: with the last handle it goes.
    pub(crate) fn is_removed_for_good(&self, inode: u64) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let orphan = self.list.lock().get(&inode).copied();
        orphan.is_some_and(|orphan| orphan.kind == OrphanKind::Removed && !orphan.held)
    }

    /// From now on removed inodes are kept until `forget`: there is a kernel in front that opens what it has looked up.
    pub fn hold_removed(&self) {
        self.holds_removed.store(true, Ordering::Release);
    }

    /// Other machines may have open what had no name any more when this one began: it is kept until `forget`. Gives what that is.
    pub fn hold_found(&self) -> Vec<u64> {
        let mut list = self.list.lock();
        let removed = list.iter_mut().filter(|(_, orphan)| orphan.kind == OrphanKind::Removed);
        removed
            .map(|(inode, orphan)| {
                orphan.held = true;
                *inode
            })
            .collect()
    }

    /// The kernel is gone and knows no inode any more: what was kept for it is freed, unless that is much work.
    pub fn forget_all(&self, context: &Context<'_>) {
        if self.holds_removed.swap(false, Ordering::AcqRel) {
            self.list.lock().values_mut().for_each(|orphan| orphan.held = false);
            // Whatever stands in the way, the list on media keeps the rest for the next mount.
            let _later = self.free_some(context, STEPS_AT_THE_END);
        }
    }

    /// The list, for changing it; who does counts it anew before letting it go.
    fn locked_list(&self) -> MutexGuard<'_, BTreeMap<u64, Orphan>> {
        let list = self.list.lock();
        assert_eq!(self.count.load(Ordering::Acquire), list.len(), "the count is that of the list");
        list
    }

    /// Notes in memory what a transaction put on the list.
    pub fn note(&self, inode: u64, kind: OrphanKind) {
        let mut orphans = self.locked_list();
        let before = orphans.get(&inode).map(|orphan| orphan.held);
        let held = before.unwrap_or(kind == OrphanKind::Removed && self.holds_removed.load(Ordering::Acquire));
        orphans.insert(inode, Orphan { kind, held });
        self.count.store(orphans.len(), Ordering::Release);
    }

    /// As `note_orphan`, for an inode that the kernel does not know, or not any more.
    pub fn note_forgotten(&self, inode: u64, kind: OrphanKind) {
        let mut orphans = self.locked_list();
        orphans.insert(inode, Orphan { kind, held: false });
        self.count.store(orphans.len(), Ordering::Release);
    }

    /// Notes in memory that a transaction took an inode off the list.
    pub fn strike(&self, inode: u64) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut orphans = self.locked_list();
        orphans.remove(&inode);
        self.count.store(orphans.len(), Ordering::Release);
    }

    /// Frees an orphan that has just been closed if that is little work; else `step` does it.
    pub(crate) fn free_now(&self, context: &Context<'_>, inode: u64, state: &mut State) {
        assert_eq!(state.opens, 0, "inode {inode} is closed");
        self.discard(inode, state);
        // Whatever stands in the way now (a device, no room), the list on media keeps the inode for the next step.
        let _later = self.freeing(context.io).and_then(|_freeing| self.free_step(context, inode));
    }

    /// Frees a piece of an orphan whose entry the caller has locked. Tells whether nothing is left.
    fn free_step(&self, context: &Context<'_>, inode: u64) -> Result<bool, Error> {
        let done = self.store.update(context.io, |transaction| {
            let Some(mut value) = keys::inode_if_any(transaction, inode)? else {
                transaction.delete(Key::orphan(inode));
                return Ok(true);
            };
            if value.nlink > 0 {
                // It got a name again.
                transaction.delete(Key::orphan(inode));
                return Ok(true);
            }
            let done = delete_step(transaction, inode, &mut value)?;
            if done {
                transaction.delete(Key::orphan(inode));
            } else {
                keys::put_inode(transaction, inode, &value);
            }
            Ok::<_, Error>(done)
        })?;
        if done {
            self.strike(inode);
        }
        Ok(done)
    }

    pub(crate) fn free_ready(&self, io: Io<'_>) -> Result<bool, Error> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        let is_ready = |orphan: &Orphan| orphan.kind == OrphanKind::Truncating || !orphan.held;
        if !self.list.lock().values().any(is_ready) {
            return Ok(false);
        }
        if !io.may_block() {
            return Err(stere_store::Error::WouldBlock.into());
        }
        // Times are not changed by it.
        let context = Context { now: stere_format::Timestamp { seconds: 0, nanoseconds: 0 }, io, request: None };
        match self.free_some(&context, STEPS_FOR_ROOM) {
            Err(error) if error.would_block() => Err(error),
            Ok(more) => Ok(more),
            // What cannot be freed now keeps nobody from what there is; the list on media keeps it.
            Err(_) => Ok(false),
        }
    }

    /// Frees orphans nobody has open and finishes truncations, at most `budget` steps. Tells whether there is more.
    pub(crate) fn free_some(&self, context: &Context<'_>, budget: usize) -> Result<bool, Error> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        let ready = |orphan: &Orphan| orphan.kind == OrphanKind::Truncating || !orphan.held;
        let ready = |(inode, orphan): (&u64, &Orphan)| ready(orphan).then_some(*inode);
        let mut listed: Vec<u64> = self.list.lock().iter().filter_map(ready).collect();
        listed.sort_unstable();
        let mut left = budget;
        let mut outcome = Ok(());
        for inode in listed {
            // One that fails does not stand in the way of the others.
            let freed = self.free_pieces(context, inode, &mut left);
            outcome = outcome.and(freed);
            if left == 0 {
                break;
            }
        }
        outcome.map(|()| left == 0)
    }

    /// Frees an orphan, for as long as `left` allows and nobody else has its entry locked.
    fn free_pieces(&self, context: &Context<'_>, inode: u64, left: &mut usize) -> Result<(), Error> {
        while *left > 0 {
            // Before the entry, and let go after it: who finds it locked is not passing by somebody who frees it.
            let _freeing = self.freeing(context.io)?;
            let held = self.table.hold(inode);
            let Ok(mut state) = held.write(Io::NON_BLOCKING) else { break };
            // Asked with the lock held: it may have lost its last name, or got one, since the list was read.
            let Some(kind) = self.kind_of(inode) else { break };
            let is_open = state.opens > 0 && !is_planted(Bug::OpenFileFreed);
            if kind == OrphanKind::Removed && (is_open || !self.is_removed_for_good(inode)) {
                break;
            }
            *left -= 1;
            match kind {
                OrphanKind::Removed => {
                    self.discard(inode, &mut state);
                    self.free_step(context, inode)?;
                }
                OrphanKind::Truncating => {
                    self.truncation_step(context, inode)?;
                }
            }
        }
        Ok(())
    }

    /// Taken by whoever frees what is on the list: one who needs the room waits for it, and is not told that there is none.
    fn freeing(&self, io: Io<'_>) -> Result<MutexGuard<'_, ()>, Error> {
        match io.may_block() {
            false => self.freeing.try_lock().ok_or(Error::Store(stere_store::Error::WouldBlock)),
            true => Ok(self.freeing.lock()),
        }
    }

    /// Frees an orphan if nobody has it open; for the kernel's "forget". A living inode is not concerned: before the kernel
    /// removes a name it looks it up again.
    pub fn forget(&self, context: &Context<'_>, inode: u64) -> Result<(), Error> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        match self.list.lock().get_mut(&inode) {
            Some(orphan) => orphan.held = false,
            None => return Ok(()),
        }
        let _freeing = self.freeing(context.io)?;
        let held = self.table.hold(inode);
        // Whoever has it locked may be waiting for what is freed here; then the next step frees it.
        let Ok(mut state) = held.write(Io::NON_BLOCKING) else { return Ok(()) };
        if state.opens == 0 && self.is_removed_for_good(inode) {
            self.discard(inode, &mut state);
            self.free_step(context, inode)?;
        }
        Ok(())
    }

    /// Frees a piece of what lies behind a cut file's size. Tells whether nothing is left.
    fn truncation_step(&self, context: &Context<'_>, inode: u64) -> Result<bool, Error> {
        let (done, nameless) = self.store.update(context.io, |transaction| {
            transaction.set_freeing();
            let Some(mut value) = keys::inode_if_any(transaction, inode)? else {
                transaction.delete(Key::orphan(inode));
                return Ok((true, false));
            };
            let (allocation, done) = extents::cut_end(transaction, inode, value.size, EXTENTS_PER_STEP)?;
            value.blocks_bytes = allocation.apply(value.blocks_bytes);
            keys::put_inode(transaction, inode, &value);
            let nameless = value.nlink == 0;
            if done && nameless {
                // It was on the list before it was cut, and has to be freed still.
                put(transaction, inode, OrphanKind::Removed);
            } else if done {
                transaction.delete(Key::orphan(inode));
            }
            Ok::<_, Error>((done, nameless))
        })?;
        match (done, nameless) {
            (true, true) => self.note(inode, OrphanKind::Removed),
            (true, false) => self.strike(inode),
            (false, _) => {}
        }
        Ok(done)
    }

    pub(crate) fn finish_truncation(&self, context: &Context<'_>, inode: u64) -> Result<(), Error> {
        let _freeing = self.freeing(context.io)?;
        while !self.truncation_step(context, inode)? {}
        Ok(())
    }
}

/// What a transaction that removes a name needs to know of the inode.
pub struct Unlink {
    open: bool,
    /// On the list already: its truncation is not finished.
    listed: bool,
    /// Somebody has it open now.
    pub is_in_use: bool,
    /// The size that users see, if it may be another than that on media.
    pub size: Option<u64>,
}

/// Frees an inode without content that nobody needs any more.
pub fn free_empty(transaction: &mut Transaction<'_>, inode: u64, mut value: InodeValue) -> Result<(), Error> {
    assert_eq!(value.blocks_bytes, 0, "what has content is freed in steps");
    value.size = 0;
    delete_step(transaction, inode, &mut value).map(drop)
}

impl Unlink {
    /// Puts the inode with its new link count, or frees it (or lists it as an orphan) when `last` name went.
    pub fn apply(
        &self,
        transaction: &mut Transaction<'_>,
        inode: u64,
        value: InodeValue,
        last: bool,
    ) -> Result<Gone, Error> {
        assert_eq!(last, value.nlink == 0, "inode {inode} has {} names left", value.nlink);
        drop_link(transaction, inode, value, last, self)
    }
}

/// Enters a new inode without a name (`O_TMPFILE`) in the list on media.
pub fn list_nameless(transaction: &mut Transaction<'_>, inode: u64) {
    put(transaction, inode, OrphanKind::Removed);
}

/// Takes an inode that gets a name off the list on media.
pub fn unlist(transaction: &mut Transaction<'_>, inode: u64) {
    transaction.delete(Key::orphan(inode));
}

#[cfg(test)]
pub(crate) mod tests;
