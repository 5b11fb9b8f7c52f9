//! A value read from the overlay or from a tree node: bytes that are cheap to clone and never change.

use std::ops::{Deref, Range};
use std::sync::Arc;

use stere_tree::Node;

/// Immutable bytes of one key.
#[derive(Clone, Debug)]
pub struct Value(Representation);

#[derive(Clone, Debug)]
enum Representation {
    Owned(Arc<[u8]>),
    InNode { node: Arc<Node>, range: Range<usize> },
}

impl Value {
    pub(crate) fn owned(bytes: Arc<[u8]>) -> Self {
        Value(Representation::Owned(bytes))
    }

    pub(crate) fn in_node(node: Arc<Node>, range: Range<usize>) -> Self {
        Value(Representation::InNode { node, range })
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Representation::Owned(bytes) => bytes,
            Representation::InNode { node, range } => &node.bytes()[range.clone()],
        }
    }
}
