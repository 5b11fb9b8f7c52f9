//! The edge of the tree: how the store lets a merge read old nodes and append new ones to the log.

use crate::TreeError;
use std::sync::Arc;
use stere_format::{Key, Node, NodeReference};

/// What a merge needs from the world.
pub trait NodeIo {
    type Error: From<TreeError>;

    /// The node a parent tells of, from the cache or from media, verified ([`Node::read`]).
    fn read(&mut self, reference: &NodeReference) -> Result<Arc<Node>, Self::Error>;

    /// Appends a new node to the log and answers where it is. The caller may put it into its cache at once.
    fn append(&mut self, level: u8, first_key: &Key, bytes: Vec<u8>) -> Result<NodeReference, Self::Error>;

    /// Whether nodes of this segment must be written anew elsewhere because the segment is being emptied.
    fn is_condemned(&self, _segment: u64) -> bool {
        false
    }
}
