//! Which key ranges are offloaded, in memory: every change of a key tells it (`Folds::note`).
//!
//! Invariant: the ranges of offloaded keys are apart. Read next: `fold.rs`, `reload.rs`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};

use stere_format::{FoldValue, Key, key};

use crate::error::Error;

/// The folds of a pool, and what lies in them.
#[derive(Default)]
pub(crate) struct Folds {
    pub(crate) values: BTreeMap<u64, FoldValue>,
    /// By where each range begins: where it ends, and of which fold it is.
    pub(crate) ranges: BTreeMap<Key, (Key, u64)>,
}

/// What came back in this mount.
#[derive(Default)]
pub(crate) struct Unfolded {
    /// Directories that names come back to are noted, for those who put names away by themselves.
    pub(crate) is_noted: AtomicBool,
    pub(crate) count: AtomicU64,
}

pub(crate) fn is_fold(key: &Key) -> bool {
    key.tree == key::tree::SYSTEM && key.kind == key::kind::FOLD
}

pub(crate) fn decode(bytes: &[u8]) -> Result<FoldValue, Error> {
    FoldValue::decode(bytes).map_err(|error| Error::BadValue { what: "a fold", detail: error.to_string() })
}

impl Folds {
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn values(&self) -> impl Iterator<Item = (u64, &FoldValue)> {
        self.values.iter().map(|(number, value)| (*number, value))
    }

    /// The fold that a key is in.
    #[inline]
    pub fn at(&self, key: &Key) -> Option<u64> {
        let (_, (end, number)) = self.ranges.range(..=*key).next_back()?;
        (key < end).then_some(*number)
    }

    /// The first piece of a fold between two keys: where it begins and ends there, and its fold.
    pub fn within(&self, from: &Key, to: &Key) -> Option<(Key, Key, u64)> {
        if self.ranges.is_empty() || from >= to {
            return None;
        }
        let before = self.ranges.range(..=*from).next_back().filter(|(_, (end, _))| from < end);
        let (start, (end, number)) = before.or_else(|| self.ranges.range(*from..*to).next())?;
        let piece = ((*start).max(*from), (*end).min(*to), *number);
        (piece.0 < piece.1).then_some(piece)
    }

    pub(crate) fn insert(&mut self, number: u64, value: FoldValue) {
        self.remove(number);
        self.ranges.extend(value.ranges.iter().map(|(from, to)| (*from, (*to, number))));
        self.values.insert(number, value);
    }

    fn remove(&mut self, number: u64) {
        for (from, _) in self.values.remove(&number).into_iter().flat_map(|value| value.ranges) {
            self.ranges.remove(&from);
        }
    }

    /// A change of any key takes effect.
    pub fn note(&mut self, key: &Key, value: Option<&[u8]>) {
        if is_fold(key) {
            match value.and_then(|bytes| FoldValue::decode(bytes).ok()) {
                Some(value) => self.insert(key.object, value),
                None => self.remove(key.object),
            }
        }
    }
}
