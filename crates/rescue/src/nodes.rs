//! Tree nodes and checkpoint records found in segments: what stands in for the parts of the tree that cannot be reached.
//!
//! A leaf holds all keys between its first and its last that there were when it was written. So the newest leaf over a key
//! decides, and older ones count only beside it. What such a *patch* tells may be older than what was lost; it is never called
//! certain. In memory there is one small entry for each leaf, not its keys. Read next: `keys.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use stere_format::{Address, CheckpointRecord, Key, Node, NodeReference, RecordSubject, SegmentKind};

use crate::media::Media;

/// A leaf that was found.
struct Leaf {
    first: Key,
    last: Key,
    sequence: u64,
    reference: NodeReference,
}

/// A range of keys and the newest leaf that covers it.
struct Patch {
    first: Key,
    last: Key,
    leaf: NodeReference,
}

/// The newest leaves, each for the keys that no newer one covers.
pub(crate) struct Patchwork {
    patches: Vec<Patch>,
}

/// What a patchwork says of a key.
pub(crate) enum Patched {
    /// A leaf that decides for all keys of this range (both ends counted).
    Leaf { first: Key, last: Key, leaf: NodeReference },
    /// No leaf up to this key (not counted), or to the end.
    Nothing { until: Option<Key> },
}

impl Patchwork {
    /// Lays the leaves over each other, newest on top.
    fn new(mut leaves: Vec<Leaf>) -> Patchwork {
        leaves.sort_by_key(|leaf| std::cmp::Reverse((leaf.sequence, leaf.reference.address)));
        let mut covered: BTreeMap<Key, Patch> = BTreeMap::new();
        for leaf in leaves {
            for (first, last) in uncovered(&covered, leaf.first, leaf.last) {
                covered.insert(first, Patch { first, last, leaf: leaf.reference });
            }
        }
        Patchwork { patches: covered.into_values().collect() }
    }

    /// What decides for this key, or where the next leaf begins.
    pub fn at(&self, key: &Key) -> Patched {
        let next = self.patches.partition_point(|patch| patch.last < *key);
        match self.patches.get(next) {
            Some(patch) if patch.first <= *key => {
                Patched::Leaf { first: patch.first, last: patch.last, leaf: patch.leaf }
            }
            Some(patch) => Patched::Nothing { until: Some(patch.first) },
            None => Patched::Nothing { until: None },
        }
    }

    /// Whether any leaf has keys from `from` up to `to` (not counted).
    pub fn has_any(&self, from: &Key, to: Option<&Key>) -> bool {
        let next = self.patches.partition_point(|patch| patch.last < *from);
        self.patches.get(next).is_some_and(|patch| to.is_none_or(|to| patch.first < *to))
    }
}

/// The parts of `first..=last` that nothing covers yet.
fn uncovered(covered: &BTreeMap<Key, Patch>, first: Key, last: Key) -> Vec<(Key, Key)> {
    let mut free = Vec::new();
    let mut at = first;
    let before = covered.range(..first).next_back().map(|(_, patch)| patch);
    let within = covered.range(first..=last).map(|(_, patch)| patch);
    for patch in before.into_iter().chain(within) {
        if patch.last < at {
            continue;
        }
        if let Some(end) = predecessor(patch.first).filter(|end| at <= *end) {
            free.push((at, end));
        }
        match patch.last.successor() {
            Some(next) => at = next,
            None => return free,
        }
    }
    if at <= last {
        free.push((at, last));
    }
    free
}

/// The greatest key less than this one.
fn predecessor(key: Key) -> Option<Key> {
    let mut bytes = key.encode();
    for byte in bytes.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != u8::MAX {
            return Some(Key::decode(&bytes));
        }
    }
    None
}

/// A part of a checkpoint record that was found.
#[derive(Clone, Copy)]
struct Part {
    address: Address,
    crc32c: u32,
    sequence: u64,
}

impl Media {
    /// Calls `visit` for every record in the metadata segments that were found, with its row's sequence.
    fn each_meta_record(&mut self, mut visit: impl FnMut(u64, Address, u32, &RecordSubject)) {
        let found = self.found();
        for (segment, it) in found.iter().filter(|(_, it)| it.kind == SegmentKind::Meta) {
            for place in it.ways() {
                self.rows(*segment, &place, |row| {
                    for entry in &row.entries {
                        if let Some(address) = row.address(entry) {
                            visit(row.header.sequence, address, entry.crc32c, &entry.subject);
                        }
                    }
                });
            }
        }
    }

    /// The leaves of rows up to this sequence: those behind it belong to a checkpoint that was never completed.
    pub fn patchwork(&mut self, sequence_max: Option<u64>) -> Patchwork {
        let mut seen: BTreeMap<Address, (u32, u64)> = BTreeMap::new();
        self.each_meta_record(|sequence, address, crc32c, subject| {
            let is_leaf = matches!(subject, RecordSubject::Node { level: 0, .. });
            if is_leaf && sequence_max.is_none_or(|max| sequence <= max) {
                seen.insert(address, (crc32c, sequence));
            }
        });
        let mut leaves = Vec::with_capacity(seen.len());
        for (address, (crc32c, sequence)) in seen {
            let reference = NodeReference { address, crc32c, level: 0 };
            if let Some(node) = self.node(&reference) {
                leaves.push(Leaf { first: node.first_key(), last: node.last_key(), sequence, reference });
            }
        }
        Patchwork::new(leaves)
    }

    /// Checkpoint records whose parts were all found, newest first, with the sequence of their last row.
    pub fn checkpoints(&mut self) -> Vec<(CheckpointRecord, u64)> {
        let mut records: BTreeMap<u64, BTreeMap<u32, (u32, Part)>> = BTreeMap::new();
        self.each_meta_record(|sequence, address, crc32c, subject| {
            if let RecordSubject::Checkpoint { generation, part, parts } = subject {
                let kept = records.entry(*generation).or_default();
                // A generation that was begun twice counts as the later row tells it.
                if kept.get(part).is_none_or(|(_, other)| other.sequence < sequence) {
                    kept.insert(*part, (*parts, Part { address, crc32c, sequence }));
                }
            }
        });
        let mut complete = Vec::new();
        for parts in records.into_values().rev() {
            let count = parts.values().next().map_or(0, |(count, _)| *count as usize);
            if count != parts.len() || count > stere_format::Superblock::PARTS_MAX {
                continue;
            }
            let mut bytes = Vec::new();
            let mut sequence = 0;
            for (_, part) in parts.values() {
                let is_right = |bytes: &[u8]| stere_format::crc32c(bytes) == part.crc32c;
                bytes.extend(self.record(&part.address, None, &is_right).unwrap_or_default());
                sequence = sequence.max(part.sequence);
            }
            if let Ok(record) = CheckpointRecord::decode(&bytes)
                && record.pool == self.members.pool
            {
                complete.push((record, sequence));
            }
        }
        complete
    }

    /// A node, from wherever it is right.
    pub fn node(&mut self, reference: &NodeReference) -> Option<Arc<Node>> {
        let told = self.meta.get(&reference.address.segment).cloned();
        let is_right = |bytes: &[u8]| stere_format::crc32c(bytes) == reference.crc32c;
        let bytes = self.record(&reference.address, told.as_ref(), &is_right)?;
        Node::read(reference, Arc::from(bytes)).ok().map(Arc::new)
    }
}

#[cfg(test)]
mod tests;
