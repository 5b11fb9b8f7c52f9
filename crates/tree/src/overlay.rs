//! The overlay: changes since a checkpoint, ordered by key, above the immutable tree.
//!
//! Invariants: an entry with no value is a deletion that hides the tree's entry; every key in `pending` has an entry whose
//! `pending` mark is set, exactly once. Read next: `merge.rs`; the engine's `view.rs` reads both.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use stere_faults::{Bug, is_planted};
use stere_format::Key;

/// What a change costs in memory beyond its value: key, map node, reference counts.
const ENTRY_OVERHEAD_BYTES: usize = 80;

struct Entry {
    value: Option<Arc<[u8]>>,
    pending: bool,
}

/// Ordered changes; `active` takes writes, a frozen one is being merged into the tree.
#[derive(Default)]
pub struct Overlay {
    entries: BTreeMap<Key, Entry>,
    pending: Vec<Key>,
    pending_bytes: usize,
    bytes: usize,
}

impl Overlay {
    /// What it says of a key; `None` within for a deletion.
    pub fn get(&self, key: &Key) -> Option<&Option<Arc<[u8]>>> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Records a change that the journal does not hold yet.
    pub fn insert(&mut self, key: Key, value: Option<Arc<[u8]>>) {
        let added = value.as_ref().map_or(0, |bytes| bytes.len());
        let mut newly_pending = true;
        self.entries
            .entry(key)
            .and_modify(|entry| {
                let removed = entry.value.as_ref().map_or(0, |bytes| bytes.len());
                self.bytes = self.bytes + added - removed;
                newly_pending = !entry.pending;
                entry.value = value.clone();
                entry.pending = true;
            })
            .or_insert_with(|| {
                self.bytes += added + ENTRY_OVERHEAD_BYTES;
                Entry { value, pending: true }
            });
        self.pending_bytes += added;
        if newly_pending {
            self.pending.push(key);
            self.pending_bytes += ENTRY_OVERHEAD_BYTES;
        }
        self.assert_invariants();
    }

    fn assert_invariants(&self) {
        let (entries, pending) = (self.entries.len(), self.pending.len());
        assert!(pending <= entries, "{pending} keys wait for the journal, of {entries}");
        assert!(self.bytes >= entries * ENTRY_OVERHEAD_BYTES, "{entries} entries count as {} bytes", self.bytes);
        let bytes = self.pending_bytes;
        assert!(bytes >= pending * ENTRY_OVERHEAD_BYTES, "{pending} keys for the journal count as {bytes} bytes");
    }

    /// Records a change that was read from the journal.
    pub fn replay(&mut self, key: Key, value: Option<Arc<[u8]>>) {
        if is_planted(Bug::OldestWins) && self.entries.contains_key(&key) {
            return;
        }
        assert!(self.pending.is_empty(), "the journal is replayed before anything changes");
        let added = value.as_ref().map_or(0, |bytes| bytes.len());
        match self.entries.insert(key, Entry { value, pending: false }) {
            Some(old) => self.bytes = self.bytes + added - old.value.map_or(0, |bytes| bytes.len()),
            None => self.bytes += added + ENTRY_OVERHEAD_BYTES,
        }
        self.assert_invariants();
    }

    /// Takes the changes the journal does not hold yet, with their newest values.
    pub fn take_pending(&mut self) -> Vec<(Key, Option<Arc<[u8]>>)> {
        let keys = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        keys.into_iter()
            .map(|key| {
                let entry = self.entries.get_mut(&key).expect("a pending key has an entry");
                assert!(entry.pending, "a pending key is marked pending");
                entry.pending = false;
                (key, entry.value.clone())
            })
            .collect()
    }

    /// What the changes take that the journal does not hold yet, roughly.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Memory held, in bytes, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Entries from one key on, up to another one that is not among them.
    pub fn range(&self, from: &Key, to: &Key) -> impl DoubleEndedIterator<Item = (&Key, &Option<Arc<[u8]>>)> {
        let range = if from < to {
            (Bound::Included(*from), Bound::Excluded(*to))
        } else {
            (Bound::Included(*from), Bound::Excluded(*from))
        };
        self.entries.range(range).map(|(key, entry)| (key, &entry.value))
    }

    /// All entries by key.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Option<&[u8]>)> {
        self.entries.iter().map(|(key, entry)| (*key, entry.value.as_deref()))
    }
}
