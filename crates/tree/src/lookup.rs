//! Looking up one key in nodes that are in memory.

use crate::cache::NodeCache;
use crate::range::{Direction, Range};
use std::ops::Deref;
use std::sync::Arc;
use stere_format::{Key, Node, NodeReference};

/// An immutable tree: just its root. Copies are cheap and stay valid as long as the nodes' segments are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tree {
    pub root: Option<NodeReference>,
}

/// A value within a node; keeps the node alive.
#[derive(Clone)]
pub struct ValueRef {
    node: Arc<Node>,
    start: u32,
    end: u32,
}

impl ValueRef {
    pub(crate) fn new(node: Arc<Node>, index: usize) -> Self {
        let range = node.value_range(index);
        // A node is at most a record, 1 MiB.
        Self { node, start: range.start as u32, end: range.end as u32 }
    }
}

impl Deref for ValueRef {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.node.bytes()[self.start as usize..self.end as usize]
    }
}

impl std::fmt::Debug for ValueRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&**self, formatter)
    }
}

/// What a look-up found.
#[derive(Clone, Debug)]
pub enum Lookup {
    Found(ValueRef),
    Absent,
    /// This node is not in memory: fetch it, put it in the cache and ask again.
    Miss(NodeReference),
}

impl Tree {
    pub const EMPTY: Self = Self { root: None };

    pub const fn new(root: Option<NodeReference>) -> Self {
        Self { root }
    }

    /// Number of levels.
    pub fn height(&self) -> usize {
        self.root.map_or(0, |root| usize::from(root.level) + 1)
    }

    pub fn get(&self, cache: &NodeCache, key: &Key) -> Lookup {
        let Some(mut reference) = self.root else { return Lookup::Absent };
        // Ends: a child is one level below, by the checks of node and cache.
        loop {
            let Some(node) = cache.get(&reference) else { return Lookup::Miss(reference) };
            if node.is_leaf() {
                return match node.search(key) {
                    Ok(index) => Lookup::Found(ValueRef::new(node, index)),
                    Err(_) => Lookup::Absent,
                };
            }
            reference = match node.search(key) {
                Ok(index) => node.child(index),
                // Before the first key of the tree.
                Err(0) => return Lookup::Absent,
                Err(index) => node.child(index - 1),
            };
        }
    }

    /// Walks the keys `from <= key < to` in a direction.
    pub fn range<'a>(&self, cache: &'a NodeCache, from: Key, to: Key, direction: Direction) -> Range<'a> {
        Range::new(cache, self.root, from, Some(to), direction)
    }

    /// Walks all keys from `from` on (inclusive), or all keys down to it.
    pub fn range_from<'a>(&self, cache: &'a NodeCache, from: Key, direction: Direction) -> Range<'a> {
        Range::new(cache, self.root, from, None, direction)
    }
}
