//! The index that searches go by: which inodes are large, have attributes of users, or have a class or media set on themselves.
//!
//! Nobody who changes an inode has to think of it: every transaction is looked at before it takes effect, as for accounts, and what its
//! inodes and attributes are before and after makes the difference. A small file without policy and attributes has no entry, so making
//! one costs no key. Pools from before get it built in the background, in the order of inodes; how far that is stands in the pool.
//! Invariants: of each inode that is built exactly the entries are there that `check` finds (docs/format/find-index.md); an entry says that an inode
//! *may* be looked for, and whoever goes by it looks at the inode itself. What moves in the index while somebody reads it is noted for him.
//! Read next: `crates/features/src/search/candidates.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use parking_lot::Mutex;
use stere_format::{FindIndexValue, InodeValue, Key, XattrBucket, crc32c, key};
use stere_store::{Error, Io, Store, Transaction};

use crate::keys::Keys;

pub use crate::index_building::IndexCheck;

/// Inodes that one step enters, or entries that it removes.
pub(crate) const INODES_PER_STEP: usize = 128;
pub(crate) const ENTRIES_PER_STEP: usize = 1024;
/// What may move while somebody reads the index; more, and he passes over all inodes instead.
const MOVED_MAX: usize = 65_536;
/// Attributes that are indexed.
const PREFIX: &[u8] = b"user.";
const OFF: u8 = 0;
pub(crate) const BUILDING: u8 = 1;
pub(crate) const COMPLETE: u8 = 2;

/// Entries, and how many things come to each.
pub type IndexEntries = BTreeMap<Key, u32>;

/// What of the index is in memory.
pub(crate) struct FindIndex {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) state: AtomicU8,
    pub(crate) readers: AtomicUsize,
    pub(crate) moved: Mutex<Vec<u64>>,
}

/// One who reads the index: what moves in it meanwhile is noted.
pub struct IndexReading<'a> {
    pub(crate) shared: &'a Shared,
}

impl IndexReading<'_> {
    /// Inodes whose entries changed since somebody began to read; none if those were too many.
    pub fn moved(&self) -> Option<Vec<u64>> {
        let moved = self.shared.moved.lock();
        (moved.len() < MOVED_MAX).then(|| moved.clone())
    }
}

impl Drop for IndexReading<'_> {
    fn drop(&mut self) {
        let mut moved = self.shared.moved.lock();
        let readers = self.shared.readers.fetch_sub(1, Ordering::AcqRel);
        assert!(readers > 0, "who ends to read has begun");
        if readers == 1 {
            *moved = Vec::new();
        }
    }
}

/// The entry of a size; none of one that is small.
fn size_entry(inode: u64, size: u64) -> Option<Key> {
    (size >= FindIndexValue::SIZE_BYTES_MIN).then(|| Key::find_size(size.ilog2() as u8, inode))
}

/// The entries of an inode; none of what does not decode.
pub fn inode_entries(inode: u64, bytes: &[u8]) -> Vec<Key> {
    let Some((size, has_policy)) = InodeValue::peek(bytes) else { return Vec::new() };
    let mut keys: Vec<Key> = size_entry(inode, size).into_iter().collect();
    if let Some(policy) = InodeValue::decode(bytes).ok().filter(|_| has_policy).and_then(|value| value.policy) {
        let classes = [policy.class, policy.locked.class, policy.ruled.class];
        let named = classes.iter().enumerate().filter(|(at, class)| **class != 0 && !classes[..*at].contains(class));
        keys.extend(named.map(|(_, class)| Key::find_class(*class, inode)));
        if policy.tiers != 0 || policy.locked.tiers != 0 || policy.ruled_tiers != 0 {
            keys.push(Key::find_tiered(inode));
        }
    }
    keys
}

/// Whether an inode's entries are surely the same before and after: nothing is told of a policy, and the sizes are alike.
fn has_same_entries(before: Option<&[u8]>, after: Option<&[u8]>) -> bool {
    let size_entry = |bytes: Option<&[u8]>| match bytes.map(InodeValue::peek) {
        None | Some(None) => Some(None),
        Some(Some((_, true))) => None,
        Some(Some((size, false))) => Some((size >= FindIndexValue::SIZE_BYTES_MIN).then(|| size.ilog2())),
    };
    size_entry(before).is_some_and(|entry| size_entry(after) == Some(entry))
}

/// Where an attribute of this name and value is found.
pub fn attribute_entry(name: &[u8], value: &[u8], inode: u64) -> Key {
    Key::find_attribute(crc32c(name), crc32c(value), inode)
}

/// Where all of this name are found: from the first key up to but not including the second.
pub fn attribute_range(name: &[u8]) -> (Key, Key) {
    let first = Key::find_attribute(crc32c(name), 0, 0);
    let last = Key::find_attribute(crc32c(name), u32::MAX, u64::MAX);
    (Key { kind: 0, ..first }, last)
}

/// The entries of a bucket of attributes; none of one that does not decode.
pub fn attribute_entries(inode: u64, bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let decoded = XattrBucket::for_each(bytes, |name, value| {
        if name.starts_with(PREFIX) {
            keys.push(attribute_entry(name, value, inode));
        }
    });
    if decoded.is_ok() { keys } else { Vec::new() }
}

/// Whether a key is an entry of the index.
pub fn is_entry(key: &Key) -> bool {
    let kinds = [key::kind::FIND_SIZE, key::kind::FIND_ATTRIBUTE, key::kind::FIND_CLASS, key::kind::FIND_TIERED];
    key.tree == key::tree::INDEXES && kinds.contains(&key.kind)
}

/// What an entry's value says.
pub fn entry_count(key: &Key, bytes: &[u8]) -> Option<u32> {
    match key.kind {
        key::kind::FIND_ATTRIBUTE => bytes.try_into().map(u32::from_le_bytes).ok(),
        _ => (bytes == [1]).then_some(1),
    }
}

/// How far the index is, if the pool has one.
pub fn find_index(keys: &impl Keys) -> Result<Option<FindIndexValue>, Error> {
    let Some(bytes) = keys.value(&Key::find_index())? else { return Ok(None) };
    let bad = |error: stere_format::DecodeError| Error::BadValue { what: "find index", detail: error.to_string() };
    Ok(Some(FindIndexValue::decode(&bytes).map_err(bad)?))
}

/// Enters, or takes away, so many things that come to an entry.
pub(crate) fn change(transaction: &mut Transaction<'_>, key: Key, by: i64) -> Result<(), Error> {
    if key.kind != key::kind::FIND_ATTRIBUTE {
        assert!((-1..=1).contains(&by), "an inode has the entry {key} once, not {by} times more");
        match by {
            0 => {}
            1.. => transaction.put(key, &[1]),
            _ => transaction.delete(key),
        }
        return Ok(());
    }
    let before = transaction.get(&key)?.and_then(|bytes| entry_count(&key, &bytes)).unwrap_or(0);
    match i64::from(before).saturating_add(by).clamp(0, i64::from(u32::MAX)) as u32 {
        after if after == before => {}
        0 => transaction.delete(key),
        after => transaction.put(key, &after.to_le_bytes()),
    }
    Ok(())
}

/// Adds what comes to an entry now, and takes away what did before.
pub(crate) fn count(changes: &mut BTreeMap<Key, i64>, before: Vec<Key>, after: Vec<Key>) {
    before.into_iter().for_each(|key| *changes.entry(key).or_default() -= 1);
    after.into_iter().for_each(|key| *changes.entry(key).or_default() += 1);
}

impl FindIndex {
    pub(crate) fn load(store: &Store) -> Result<FindIndex, Error> {
        let state = match store.view(Io::BLOCKING, |view| find_index(view))? {
            None => OFF,
            Some(FindIndexValue::COMPLETE) => COMPLETE,
            Some(_) => BUILDING,
        };
        Ok(FindIndex { shared: Arc::new(Shared { state: state.into(), ..Shared::default() }) })
    }

    /// Brings the index in line with what a transaction does.
    pub(crate) fn settle(&self, transaction: &mut Transaction<'_>) -> Result<(), Error> {
        let below = match self.shared.state.load(Ordering::Acquire) {
            OFF => return Ok(()),
            COMPLETE => u64::MAX,
            _ => match find_index(transaction)? {
                Some(FindIndexValue::Built { next }) => next,
                _ => return Ok(()),
            },
        };
        let mut changes: BTreeMap<Key, i64> = BTreeMap::new();
        for (kind, entries) in
            [(key::kind::INODE, inode_entries as fn(u64, &[u8]) -> Vec<Key>), (key::kind::XATTR, attribute_entries)]
        {
            transaction.changed(key::tree::NAMES, kind, |key, before, after| {
                if key.object < below && !(kind == key::kind::INODE && has_same_entries(before, after)) {
                    let of = |bytes: Option<&[u8]>| bytes.map_or_else(Vec::new, |bytes| entries(key.object, bytes));
                    count(&mut changes, of(before), of(after));
                }
                Ok(())
            })?;
        }
        changes.retain(|_, by| *by != 0);
        if changes.is_empty() {
            return Ok(());
        }
        let moved: Vec<u64> = changes.keys().map(|key| key.position).collect();
        for (key, by) in changes {
            change(transaction, key, by)?;
        }
        let shared = self.shared.clone();
        transaction.on_effect(move || {
            if shared.readers.load(Ordering::Acquire) > 0 {
                let mut all = shared.moved.lock();
                let room = MOVED_MAX.saturating_sub(all.len());
                all.extend(moved.into_iter().take(room));
            }
        });
        Ok(())
    }
}
