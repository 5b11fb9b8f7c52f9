//! Tree nodes: sorted entries packed in one record. Leaves (level 0) hold keys and values, inner nodes keys and
//! references to nodes one level below; the key of a child is exactly the child's first key.
//!
//! A node is checked once, when it is parsed; then it is searched in place. What all keys have in common is stored
//! once: header, key remainders (all of one length), for leaves the ends of the values, values. Invariants of a parsed
//! node: at least one entry, keys strictly ascending, every value within bounds, every child one level below.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};
use crate::{Key, NodeReference, RECORD_BYTES_MAX, VALUE_BYTES_MAX};
use std::cmp::Ordering;
use std::sync::Arc;

/// Nodes are filled up to this size; only a single large value makes one larger.
pub const NODE_BYTES_TARGET: usize = 16 << 10;

const HEADER_BYTES: usize = 44;
const STRUCTURE: &str = "tree node";
const MAGIC: [u8; 8] = *b"stereNOD";
const VERSION: u8 = 1;
const END_BYTES: usize = 4;

/// A node that was checked.
#[derive(Clone)]
pub struct Node {
    bytes: Arc<[u8]>,
    level: u8,
    prefix_length: usize,
    count: usize,
    /// Start of the values' ends, and of the values.
    ends_at: usize,
    values_at: usize,
}

impl Node {
    /// Checks everything but the checksum, which only the parent knows.
    pub fn parse(bytes: Arc<[u8]>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(STRUCTURE, &bytes);
        reader.magic(&MAGIC)?;
        reader.version(VERSION)?;
        let [level, prefix_length] = reader.array()?;
        reader.check(level <= NodeReference::LEVEL_MAX, "level", u64::from(level))?;
        reader.zeros(1)?;
        let (count, length) = (reader.u32()? as usize, reader.u32()? as usize);
        reader.check(length == bytes.len() && length <= RECORD_BYTES_MAX as usize, "length", length as u64)?;
        reader.zeros(4)?;
        reader.take(Key::SIZE)?;
        reader.zeros(2)?;
        let prefix_length = usize::from(prefix_length);
        reader.check(prefix_length <= Key::SIZE, "prefix length", prefix_length as u64)?;
        // The remainder may be empty (one entry), so the count is bounded by what follows the keys as well.
        let per_entry = Key::SIZE - prefix_length + if level == 0 { END_BYTES } else { NodeReference::SIZE };
        let possible = count >= 1 && count <= reader.rest().len() / per_entry;
        reader.check(possible, "count of entries", count as u64)?;
        let ends_at = HEADER_BYTES + count * (Key::SIZE - prefix_length);
        let values_at = if level == 0 { ends_at + count * END_BYTES } else { ends_at };
        let node = Self { level, prefix_length, count, ends_at, values_at, bytes: bytes.clone() };
        node.check_keys(&reader)?;
        if level == 0 {
            node.check_values(&reader)?
        } else {
            node.check_children()?
        }
        Ok(node)
    }

    /// Parses what was read where a parent said, if it is what the parent meant.
    pub fn read(reference: &NodeReference, bytes: Arc<[u8]>) -> Result<Self, DecodeError> {
        let (need, have) = (reference.address.length as usize, bytes.len());
        if need != have {
            return Err(DecodeError::Truncated { structure: STRUCTURE, need, have });
        }
        let (stored, computed) = (reference.crc32c, crate::crc32c(&bytes));
        if stored != computed {
            return Err(DecodeError::Checksum { structure: STRUCTURE, stored, computed });
        }
        let node = Self::parse(bytes)?;
        if node.level != reference.level {
            let (field, value) = ("level", u64::from(node.level));
            return Err(DecodeError::OutOfRange { structure: STRUCTURE, field, value });
        }
        Ok(node)
    }

    fn check_keys(&self, reader: &Reader<'_>) -> Result<(), DecodeError> {
        let stride = Key::SIZE - self.prefix_length;
        let remainders = &self.bytes[HEADER_BYTES..self.ends_at];
        if stride == 0 {
            return reader.check(self.count == 1, "prefix length", Key::SIZE as u64);
        }
        reader.check(remainders[..stride] == self.first_key_bytes()[self.prefix_length..], "first key", 0)?;
        let longest_prefix = remainders[0] != remainders[(self.count - 1) * stride];
        reader.check(longest_prefix, "prefix length", self.prefix_length as u64)?;
        let mut last = &remainders[..stride];
        for (index, next) in remainders.chunks_exact(stride).enumerate().skip(1) {
            reader.check(last < next, "order of keys", index as u64)?;
            last = next;
        }
        Ok(())
    }

    fn check_values(&self, reader: &Reader<'_>) -> Result<(), DecodeError> {
        let values_bytes = self.bytes.len() - self.values_at;
        let mut start = 0;
        for index in 0..self.count {
            let end = self.value_end(index);
            let possible = start <= end && end <= values_bytes && end - start <= VALUE_BYTES_MAX;
            reader.check(possible, "end of a value", end as u64)?;
            start = end;
        }
        reader.check(start == values_bytes, "end of the values", start as u64)
    }

    fn check_children(&self) -> Result<(), DecodeError> {
        let mut reader = Reader::new(STRUCTURE, &self.bytes[self.values_at..]);
        for _ in 0..self.count {
            let child = NodeReference::read(&mut reader)?;
            reader.check(child.level + 1 == self.level, "level of a child", u64::from(child.level))?;
        }
        reader.finish()
    }

    fn first_key_bytes(&self) -> &[u8] {
        &self.bytes[24..24 + Key::SIZE]
    }

    #[inline]
    fn value_end(&self, index: usize) -> usize {
        let at = self.ends_at + index * END_BYTES;
        let bytes = [self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]];
        u32::from_le_bytes(bytes) as usize
    }

    #[inline]
    pub fn level(&self) -> u8 {
        self.level
    }

    #[inline]
    pub fn is_leaf(&self) -> bool {
        self.level == 0
    }

    /// Number of entries, at least one.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn first_key(&self) -> Key {
        self.key(0)
    }

    pub fn last_key(&self) -> Key {
        self.key(self.count - 1)
    }

    #[inline]
    pub fn key(&self, index: usize) -> Key {
        assert!(index < self.count, "entry {index} of a node of {}", self.count);
        let stride = Key::SIZE - self.prefix_length;
        let at = HEADER_BYTES + index * stride;
        let mut key = [0; Key::SIZE];
        key.copy_from_slice(&self.bytes[24..24 + Key::SIZE]);
        key[self.prefix_length..].copy_from_slice(&self.bytes[at..at + stride]);
        Key::decode(&key)
    }

    /// Where the value of a leaf's entry lies in [`Node::bytes`].
    #[inline]
    pub fn value_range(&self, index: usize) -> std::ops::Range<usize> {
        assert!(self.level == 0 && index < self.count, "value {index} of a node of {}", self.count);
        let start = if index == 0 { 0 } else { self.value_end(index - 1) };
        self.values_at + start..self.values_at + self.value_end(index)
    }

    #[inline]
    pub fn value(&self, index: usize) -> &[u8] {
        &self.bytes[self.value_range(index)]
    }

    /// The child of an inner node's entry.
    #[inline]
    pub fn child(&self, index: usize) -> NodeReference {
        assert!(self.level > 0 && index < self.count, "child {index} of a node of {}", self.count);
        let at = self.values_at + index * NodeReference::SIZE;
        NodeReference::decode(&self.bytes[at..at + NodeReference::SIZE]).expect("children were checked by parse")
    }

    /// The entry of a key, or where it would be.
    #[inline]
    pub fn search(&self, key: &Key) -> Result<usize, usize> {
        let target = key.encode();
        let (prefix, rest) = target.split_at(self.prefix_length);
        match prefix.cmp(&self.bytes[24..24 + self.prefix_length]) {
            Ordering::Less => Err(0),
            Ordering::Greater => Err(self.count),
            Ordering::Equal => self.search_remainders(rest),
        }
    }

    fn search_remainders(&self, rest: &[u8]) -> Result<usize, usize> {
        let stride = rest.len();
        let remainders = &self.bytes[HEADER_BYTES..self.ends_at];
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            match remainders[middle * stride..(middle + 1) * stride].cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The child of an inner node that a key belongs to: the last whose first key is not greater, or else the first.
    #[inline]
    pub fn child_index(&self, key: &Key) -> usize {
        match self.search(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("Node");
        debug.field("level", &self.level).field("count", &self.count);
        debug.field("first", &self.first_key()).field("last", &self.last_key()).finish()
    }
}

/// Gathers entries in ascending order and cuts nodes from their front.
#[derive(Debug)]
pub struct NodeBuilder {
    level: u8,
    keys: Vec<[u8; Key::SIZE]>,
    /// End of each value in `values`.
    ends: Vec<usize>,
    values: Vec<u8>,
}

impl NodeBuilder {
    pub fn new(level: u8) -> Self {
        assert!(level <= NodeReference::LEVEL_MAX, "a tree of more levels than {} cannot be", NodeReference::LEVEL_MAX);
        Self { level, keys: Vec::new(), ends: Vec::new(), values: Vec::new() }
    }

    pub fn level(&self) -> u8 {
        self.level
    }

    pub fn count(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds an entry of a leaf; keys must ascend.
    pub fn push_value(&mut self, key: &Key, value: &[u8]) {
        assert!(self.level == 0, "values are in leaves");
        assert!(value.len() <= VALUE_BYTES_MAX, "the value of {key} is larger than a value may be");
        self.push(key, value);
    }

    /// Adds an entry of an inner node; keys must ascend.
    pub fn push_child(&mut self, first_key: &Key, child: &NodeReference) {
        assert!(child.level + 1 == self.level, "a child is one level below");
        self.push(first_key, &child.encode());
    }

    #[inline]
    fn push(&mut self, key: &Key, value: &[u8]) {
        let key = key.encode();
        assert!(self.keys.last().is_none_or(|last| *last < key), "keys of a node ascend");
        self.keys.push(key);
        self.values.extend_from_slice(value);
        self.ends.push(self.values.len());
    }

    /// Adds all entries of another builder of the same level, whose keys are greater.
    pub fn append(&mut self, other: &Self) {
        assert_eq!(self.level, other.level, "entries of one level");
        let ascends = self.keys.last().zip(other.keys.first()).is_none_or(|(last, next)| last < next);
        assert!(ascends, "keys of a node ascend");
        let start = self.values.len();
        self.keys.extend_from_slice(&other.keys);
        self.ends.extend(other.ends.iter().map(|end| start + end));
        self.values.extend_from_slice(&other.values);
    }

    /// Takes the last entry of an inner node back.
    pub fn pop_child(&mut self) -> Option<(Key, NodeReference)> {
        assert!(self.level > 0, "children are in inner nodes");
        let key = self.keys.pop()?;
        self.ends.pop();
        let start = self.ends.last().copied().unwrap_or(0);
        let child = NodeReference::decode(&self.values[start..]).expect("what was pushed can be decoded");
        self.values.truncate(start);
        Some((Key::decode(&key), child))
    }

    pub fn last_key(&self) -> Option<Key> {
        self.keys.last().map(Key::decode)
    }

    /// Size of the node that all entries would make.
    pub fn size_bytes(&self) -> usize {
        self.size_of_first(self.count())
    }

    /// Size of the node that the first `count` entries would make.
    pub fn size_of_first(&self, count: usize) -> usize {
        let Some(last) = count.checked_sub(1) else {
            return 0;
        };
        let remainder = Key::SIZE - common_prefix(&self.keys[0], &self.keys[last]);
        let end_bytes = if self.level == 0 { END_BYTES } else { 0 };
        HEADER_BYTES + count * (remainder + end_bytes) + self.ends[last]
    }

    /// How many entries make a node of at most `size_bytes`; at least one, unless there are none.
    pub fn count_within(&self, size_bytes: usize) -> usize {
        // Sizes grow with the count, so the largest count that fits is found by halving.
        let (mut fits, mut exceeds) = (1, self.count() + 1);
        while fits + 1 < exceeds {
            let middle = (fits + exceeds) / 2;
            if self.size_of_first(middle) <= size_bytes { fits = middle } else { exceeds = middle }
        }
        fits.min(self.count())
    }

    /// Makes a node of the first `count` entries (at least one) and removes them.
    pub fn take(&mut self, count: usize) -> (Key, Vec<u8>) {
        assert!((1..=self.count()).contains(&count), "a node has at least one entry");
        let size = self.size_of_first(count);
        let first = self.keys[0];
        let prefix_length = common_prefix(&first, &self.keys[count - 1]);
        let values_end = self.ends[count - 1];
        let mut out = Vec::with_capacity(size);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.level, prefix_length as u8, 0]);
        out.put_u32(count as u32);
        out.put_u32(size as u32);
        out.put_u32(0);
        out.extend_from_slice(&first);
        out.put_zeros(2);
        for key in &self.keys[..count] {
            out.extend_from_slice(&key[prefix_length..]);
        }
        if self.level == 0 {
            for end in &self.ends[..count] {
                out.put_u32(*end as u32);
            }
        }
        out.extend_from_slice(&self.values[..values_end]);
        assert_eq!(out.len(), size);
        self.keys.drain(..count);
        self.ends.drain(..count);
        self.ends.iter_mut().for_each(|end| *end -= values_end);
        self.values.drain(..values_end);
        (Key::decode(&first), out)
    }
}

#[inline]
fn common_prefix(a: &[u8; Key::SIZE], b: &[u8; Key::SIZE]) -> usize {
    a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(Key::SIZE)
}

#[cfg(test)]
mod tests;
