//! Walking keys in order, forward or backward, in nodes that are in memory.
//!
//! A walk stops at a node that is missing and goes on from there once it is in the cache; it may also be dropped and
//! begun again after the last key seen. It holds the nodes of its path, so nothing it shows can be evicted.

use crate::cache::NodeCache;
use crate::lookup::ValueRef;
use smallvec::SmallVec;
use std::sync::Arc;
use stere_format::{Key, Node, NodeReference};

/// Which way a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending, from the lower bound.
    Forward,
    /// Descending, from the upper bound.
    Backward,
}

/// One step of a walk.
#[derive(Debug)]
pub enum RangeStep<'a> {
    Entry(Key, &'a [u8]),
    /// This node is not in memory: fetch it, put it in the cache and call `next` again.
    Miss(NodeReference),
    End,
}

struct Place {
    node: Arc<Node>,
    /// Of the next entry forward, one behind the next entry backward.
    index: usize,
}

/// A walk in progress.
pub struct Range<'a> {
    cache: &'a NodeCache,
    from: Key,
    to: Option<Key>,
    direction: Direction,
    /// The node to descend into next, if any.
    pending: Option<NodeReference>,
    path: SmallVec<[Place; 5]>,
}

impl<'a> Range<'a> {
    pub(crate) fn new(
        cache: &'a NodeCache,
        root: Option<NodeReference>,
        from: Key,
        to: Option<Key>,
        direction: Direction,
    ) -> Self {
        let is_empty = to.is_some_and(|to| to <= from);
        let pending = if is_empty { None } else { root };
        Self { cache, from, to, direction, pending, path: SmallVec::new() }
    }

    /// The next entry. After `End` it stays at the end; after `Miss` it tries the same node again.
    #[expect(clippy::should_implement_trait, reason = "an entry borrows the walk, an iterator's item cannot")]
    pub fn next(&mut self) -> RangeStep<'_> {
        match self.advance() {
            Err(missing) => RangeStep::Miss(missing),
            Ok(None) => RangeStep::End,
            Ok(Some(index)) => {
                let node = &self.path[self.path.len() - 1].node;
                RangeStep::Entry(node.key(index), node.value(index))
            }
        }
    }

    /// The next entry with a value that may outlive the walk.
    pub fn next_owned(&mut self) -> Result<Option<(Key, ValueRef)>, NodeReference> {
        let Some(index) = self.advance()? else { return Ok(None) };
        let node = &self.path[self.path.len() - 1].node;
        Ok(Some((node.key(index), ValueRef::new(node.clone(), index))))
    }

    /// Goes to the next entry of the leaf at the end of the path.
    fn advance(&mut self) -> Result<Option<usize>, NodeReference> {
        loop {
            if let Some(reference) = self.pending {
                let node = self.cache.get(&reference).ok_or(reference)?;
                self.pending = None;
                let index = self.entry_point(&node);
                self.path.push(Place { node, index });
            }
            let Some(place) = self.path.last_mut() else { return Ok(None) };
            let index = match self.direction {
                Direction::Forward if place.index < place.node.count() => {
                    place.index += 1;
                    place.index - 1
                }
                Direction::Backward if place.index > 0 => {
                    place.index -= 1;
                    place.index
                }
                _ => {
                    self.path.pop();
                    continue;
                }
            };
            if place.node.is_leaf() {
                if is_within(&place.node.key(index), self.from, self.to, self.direction) {
                    return Ok(Some(index));
                }
                self.path.clear();
                return Ok(None);
            }
            if self.direction == Direction::Forward && self.to.is_some_and(|to| place.node.key(index) >= to) {
                self.path.clear();
                return Ok(None);
            }
            self.pending = Some(place.node.child(index));
        }
    }

    /// Where in a node the walk starts. Only nodes on the bound's path are cut; the others are taken whole, and there
    /// the bound is outside the node, so the search answers its end.
    fn entry_point(&self, node: &Node) -> usize {
        match self.direction {
            Direction::Forward if node.is_leaf() => node.search(&self.from).unwrap_or_else(|index| index),
            Direction::Forward => node.child_index(&self.from),
            Direction::Backward => match self.to {
                None => node.count(),
                Some(to) => node.search(&to).unwrap_or_else(|index| index),
            },
        }
    }
}

/// Whether an entry is before the far bound (the near one was used to find the start).
fn is_within(key: &Key, from: Key, to: Option<Key>, direction: Direction) -> bool {
    match direction {
        Direction::Forward => to.is_none_or(|to| *key < to),
        Direction::Backward => *key >= from,
    }
}
