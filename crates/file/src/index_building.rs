//! The index of files built, read and checked, a part at a time. Read next: `find_index.rs`, which keeps it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;
use stere_format::{FindIndexValue, InodeValue, Key, key};
use stere_store::{Error, Io, Store, Transaction};

use crate::find_index::{
    BUILDING, COMPLETE, ENTRIES_PER_STEP, FindIndex, INODES_PER_STEP, IndexReading, attribute_entries, change, count,
    entry_count, find_index, inode_entries, is_entry,
};
use crate::metadata::HAS_ATTRIBUTES;

/// The index of files, as it is built and read.
pub struct SearchIndex {
    pub(crate) store: Arc<Store>,
    pub(crate) index: Arc<FindIndex>,
}

impl SearchIndex {
    /// Begins to read the index; none while it is not complete.
    pub fn begin_reading(&self) -> Option<IndexReading<'_>> {
        let shared = &self.index.shared;
        if shared.state.load(Ordering::Acquire) != COMPLETE {
            return None;
        }
        let _moved = shared.moved.lock();
        shared.readers.fetch_add(1, Ordering::AcqRel);
        Some(IndexReading { shared })
    }

    /// Builds some of the index of a pool that has none, or whose index is to be built anew. Tells whether there is more to do.
    pub fn build_some(&self, io: Io<'_>) -> Result<bool, Error> {
        let shared = self.index.shared.clone();
        match shared.state.load(Ordering::Acquire) {
            COMPLETE => return Ok(false),
            // Before the record is there: from then on every transaction is looked at.
            _ => shared.state.store(BUILDING, Ordering::Release),
        }
        self.store.update(io, |transaction| {
            let next = match find_index(transaction)? {
                None => 0,
                Some(FindIndexValue::Built { next }) => next,
                Some(FindIndexValue::Clearing) => {
                    if clear_some(transaction)? {
                        transaction.put(Key::find_index(), &FindIndexValue::Built { next: 0 }.encode());
                    }
                    return Ok(true);
                }
            };
            let next = if next == u64::MAX { next } else { build_some(transaction, next)? };
            transaction.put(Key::find_index(), &FindIndexValue::Built { next }.encode());
            if next == u64::MAX {
                let shared = shared.clone();
                transaction.on_effect(move || shared.state.store(COMPLETE, Ordering::Release));
            }
            Ok(next != u64::MAX)
        })
    }
}

/// Holds the index against the inodes and attributes that it is of, whose keys are shown to it in any order.
#[derive(Default)]
pub struct IndexCheck {
    /// Inodes below this one are in it; none if there is nothing to check.
    below: Option<u64>,
    /// What is there and was not met yet.
    entries: FxHashMap<Key, u32>,
    wrong: Vec<(u64, String)>,
}

impl IndexCheck {
    /// Reads the whole index.
    pub fn new(store: &Store) -> Result<IndexCheck, Error> {
        let mut check = IndexCheck::default();
        let Some(FindIndexValue::Built { next }) = store.view(Io::BLOCKING, |view| find_index(view))? else {
            return Ok(check);
        };
        check.below = Some(next);
        let (from, to) = (Key::new(key::tree::INDEXES, 0, 0, 0), Key::new(key::tree::INDEXES + 1, 0, 0, 0));
        store.for_each_key(from, to, |key, bytes| {
            if is_entry(key) {
                match entry_count(key, bytes) {
                    Some(count) => drop(check.entries.insert(*key, count)),
                    None => check.wrong.push((key.position, format!("the index of searches has a bad value at {key}"))),
                }
            }
        })?;
        Ok(check)
    }

    /// A key of an inode.
    pub fn visit(&mut self, key: &Key, bytes: &[u8]) {
        if self.below.is_none_or(|below| key.object >= below) {
            return;
        }
        let entries = match key.kind {
            key::kind::INODE => inode_entries(key.object, bytes),
            key::kind::XATTR => attribute_entries(key.object, bytes),
            _ => return,
        };
        for entry in entries {
            match self.entries.get_mut(&entry) {
                Some(count) if *count > 1 => *count -= 1,
                Some(_) => drop(self.entries.remove(&entry)),
                None => {
                    let text =
                        format!("inode {} is not in the index of searches as it should be ({entry})", key.object);
                    self.wrong.push((key.object, text));
                }
            }
        }
    }

    /// What is wrong, by inode.
    pub fn finish(mut self) -> Vec<(u64, String)> {
        let left = self.entries.keys().map(|key| {
            (key.position, format!("the index of searches has inode {} at {key} for nothing", key.position))
        });
        self.wrong.extend(left);
        self.wrong.sort();
        self.wrong
    }
}

/// Removes some entries; tells whether none is left.
pub(crate) fn clear_some(transaction: &mut Transaction<'_>) -> Result<bool, Error> {
    let mut entries = Vec::new();
    let from = Key::new(key::tree::INDEXES, 0, 0, 0);
    transaction.scan(from, Key::new(key::tree::INDEXES + 1, 0, 0, 0), |key, _| {
        if is_entry(key) {
            entries.push(*key);
        }
        if entries.len() == ENTRIES_PER_STEP { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let is_last = entries.len() < ENTRIES_PER_STEP;
    entries.into_iter().for_each(|key| transaction.delete(key));
    Ok(is_last)
}

/// Enters some inodes from this one on; tells which is the next.
pub(crate) fn build_some(transaction: &mut Transaction<'_>, from: u64) -> Result<u64, Error> {
    let (mut at, mut changes) = (from, BTreeMap::new());
    for _ in 0..INODES_PER_STEP {
        let mut found = None;
        let end = Key::new(key::tree::NAMES + 1, 0, 0, 0);
        transaction.scan(Key::inode(at), end, |key, bytes| {
            found = Some((key.object, (key.kind == key::kind::INODE).then(|| bytes.to_vec())));
            ControlFlow::Break(())
        })?;
        let Some((inode, bytes)) = found else {
            at = u64::MAX;
            break;
        };
        assert!(inode >= at, "inodes are entered in order, not {inode} after {at}");
        if let Some(bytes) = bytes {
            count(&mut changes, Vec::new(), inode_entries(inode, &bytes));
            let flags = InodeValue::decode(&bytes).map_or(0, |value| value.flags);
            if flags & HAS_ATTRIBUTES != 0 {
                transaction.scan(Key::xattr(inode, 0), Key::xattr(inode, u64::MAX), |_, bytes| {
                    count(&mut changes, Vec::new(), attribute_entries(inode, bytes));
                    ControlFlow::Continue(())
                })?;
            }
        }
        at = inode + 1;
    }
    for (key, by) in changes {
        change(transaction, key, by)?;
    }
    Ok(at)
}
