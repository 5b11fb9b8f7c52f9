//! What a request is about to change, as far as it says itself: for those who tell others before it is done.
//!
//! Invariant: every operation that changes a name or an inode is told here; the inode of a name that goes is known only to whoever
//! removes it.

use super::{CopyFileRange, OfferWrite, Operation, Write};

/// Names, each in its directory, and inodes beside those directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed<'a> {
    pub names: Vec<(u64, &'a [u8])>,
    pub nodes: Vec<u64>,
}

impl<'a> Operation<'a> {
    /// What this changes, if it is done.
    #[must_use]
    pub fn changed(&self) -> Changed<'a> {
        let name = |directory: u64, name: &'a [u8]| Changed { names: vec![(directory, name)], nodes: Vec::new() };
        let node = |node: u64| Changed { names: Vec::new(), nodes: vec![node] };
        match *self {
            Operation::Create { parent, name: made, .. }
            | Operation::Mknod { parent, name: made, .. }
            | Operation::Mkdir { parent, name: made, .. }
            | Operation::Symlink { parent, name: made, .. }
            | Operation::Unlink { parent, name: made }
            | Operation::Rmdir { parent, name: made } => name(parent, made),
            Operation::Rename { parent, name: old, new_parent, new_name, .. } => {
                Changed { names: vec![(parent, old), (new_parent, new_name)], nodes: Vec::new() }
            }
            Operation::Link { node, new_parent, new_name } => {
                Changed { names: vec![(new_parent, new_name)], nodes: vec![node] }
            }
            Operation::Write(Write { node: written, .. })
            | Operation::OfferWrite(OfferWrite { node: written, .. })
            | Operation::EnterWrite { node: written, .. }
            | Operation::Setattr { node: written, .. }
            | Operation::Fallocate { node: written, .. }
            | Operation::CopyFileRange(CopyFileRange { node_out: written, .. })
            | Operation::Setxattr { node: written, .. }
            | Operation::Removexattr { node: written, .. } => node(written),
            _ => Changed::default(),
        }
    }
}

impl Changed<'_> {
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.names.is_empty() && self.nodes.is_empty()
    }

    /// All inodes whose attributes change, directories among them; some may be told twice.
    pub fn inodes(&self) -> impl Iterator<Item = u64> + '_ {
        self.names.iter().map(|(directory, _)| *directory).chain(self.nodes.iter().copied())
    }
}
