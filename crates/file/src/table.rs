//! The inodes that are open or have something in memory, each with its own lock, and how much memory that is.
//!
//! Invariants: at any time at most one entry exists for an inode; an entry stays while it is open, holds unsaved state, or
//! somebody holds it. `removals` grows whenever an entry leaves, so that a reader who found none can tell whether what it
//! read from the store beforehand may be older than what the leaving entry saved. Lock order: entry, then store; never two
//! entries except in the order of their numbers.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustc_hash::FxHashMap;
use stere_store::Io;

use crate::context::Context;
use crate::error::Error;
use crate::state::{Content, State};

const SHARDS: usize = 64;

/// One inode in memory.
pub(crate) struct Entry {
    pub inode: u64,
    state: RwLock<State>,
}

impl Entry {
    /// Locks for changing; a caller who must not wait is sent away when somebody else has the lock.
    pub fn write(&self, io: Io<'_>) -> Result<RwLockWriteGuard<'_, State>, Error> {
        match io.may_block() {
            false => self.state.try_write().ok_or(Error::Store(stere_store::Error::WouldBlock)),
            true => Ok(self.state.write()),
        }
    }

    /// Locks for reading, likewise.
    pub fn read(&self, io: Io<'_>) -> Result<RwLockReadGuard<'_, State>, Error> {
        match io.may_block() {
            false => self.state.try_read().ok_or(Error::Store(stere_store::Error::WouldBlock)),
            true => Ok(self.state.read()),
        }
    }
}

type Shard = Mutex<FxHashMap<u64, Arc<Entry>>>;

/// All entries.
pub struct FileTable {
    shards: Box<[Shard]>,
    removals: AtomicU64,
    /// Memory held by bytes that are not yet handed to the store.
    dirty_bytes: AtomicU64,
    /// Counts calls of `next_age`, as a measure of age.
    age: AtomicU64,
}

/// An entry in use.
pub(crate) struct Held<'a> {
    table: &'a FileTable,
    entry: Option<Arc<Entry>>,
}

impl Deref for Held<'_> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.entry.as_ref().expect("an entry is let go only when its holder is dropped")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let mut shard = self.table.shard(entry.inode).lock();
        // Two owners: the table and this holder. Clones are made under the shard's lock only, so nobody can join.
        if Arc::strong_count(&entry) == 2 && entry.state.try_read().is_some_and(|state| state.is_idle()) {
            let removed = shard.remove(&entry.inode);
            assert!(removed.is_some_and(|removed| Arc::ptr_eq(&removed, &entry)), "an inode has one entry");
            self.table.removals.fetch_add(1, Ordering::AcqRel);
        }
        drop(entry);
    }
}

impl FileTable {
    pub(crate) fn new() -> FileTable {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        FileTable { shards, removals: AtomicU64::new(0), dirty_bytes: AtomicU64::new(0), age: AtomicU64::new(0) }
    }

    fn shard(&self, inode: u64) -> &Shard {
        &self.shards[(inode % SHARDS as u64) as usize]
    }

    /// The entry of an inode, made if there is none.
    pub(crate) fn hold(&self, inode: u64) -> Held<'_> {
        let mut shard = self.shard(inode).lock();
        let entry =
            shard.entry(inode).or_insert_with(|| Arc::new(Entry { inode, state: RwLock::new(State::default()) }));
        Held { table: self, entry: Some(entry.clone()) }
    }

    /// The entry of an inode, if there is one.
    #[inline]
    pub(crate) fn find(&self, inode: u64) -> Option<Held<'_>> {
        let shard = self.shard(inode).lock();
        let entry = shard.get(&inode)?.clone();
        Some(Held { table: self, entry: Some(entry) })
    }

    /// Whether a file is open, or not all of it is saved.
    pub fn contains(&self, inode: u64) -> bool {
        self.shard(inode).lock().contains_key(&inode)
    }

    /// How many inodes have left memory so far; see `Files::refresh`.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// The numbers of all inodes with an entry.
    pub fn inodes(&self) -> Vec<u64> {
        let mut inodes: Vec<u64> = Vec::new();
        for shard in &self.shards {
            inodes.extend(shard.lock().keys());
        }
        inodes.sort_unstable();
        assert!(inodes.windows(2).all(|pair| pair[0] < pair[1]), "an inode has one entry");
        inodes
    }

    /// Memory held by bytes that are not yet handed to the store.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Acquire)
    }

    /// Counts memory of dirty bytes that was `before` and is `after` now.
    pub(crate) fn note_memory(&self, before: u64, after: u64) {
        if after >= before {
            self.dirty_bytes.fetch_add(after - before, Ordering::AcqRel);
        } else {
            let was = self.dirty_bytes.fetch_sub(before - after, Ordering::AcqRel);
            assert!(was >= before - after, "no more memory becomes free than was counted");
        }
    }

    /// To be called before a file's content changes in memory: notes since when it is dirty.
    pub(crate) fn note_dirty(&self, content: &mut Content) {
        if !content.is_dirty() {
            content.dirty_since = self.age.load(Ordering::Acquire);
        }
    }

    /// One age step more; gives the age since then.
    pub(crate) fn next_age(&self) -> u64 {
        self.age.fetch_add(1, Ordering::AcqRel) + 1
    }
}

impl FileTable {
    /// Runs `change` with what is in memory of the inode locked.
    pub fn locked<T>(&self, context: &Context<'_>, inode: u64, change: impl FnOnce() -> T) -> Result<T, Error> {
        let held = self.hold(inode);
        let _state = held.write(context.io)?;
        Ok(change())
    }

    /// Whether somebody has it open.
    pub fn is_open(&self, inode: u64) -> bool {
        let Some(held) = self.find(inode) else { return false };
        held.read(Io::BLOCKING).is_ok_and(|state| state.opens > 0)
    }

    /// How many handles of it there are; none where that cannot be told without waiting.
    pub fn opens(&self, inode: u64) -> Option<u32> {
        let Some(held) = self.find(inode) else { return Some(0) };
        held.read(Io::NON_BLOCKING).ok().map(|state| state.opens)
    }
}
