//! Proving a whole tree: every node read and verified, order, bounds, levels, and that no node is referred to twice.

use crate::{NodeIo, TreeError};
use rustc_hash::FxHashSet;
use stere_format::{Key, NodeReference};

/// What was found in a tree that is whole.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CheckReport {
    pub nodes: Vec<NodeReference>,
    pub leaves: u64,
    pub entries: u64,
    pub node_bytes: u64,
}

/// Reads the whole tree, parents before children, and calls `visit` with every entry in order.
pub fn check<I: NodeIo>(
    root: Option<NodeReference>,
    io: &mut I,
    mut visit: impl FnMut(Key, &[u8]),
) -> Result<CheckReport, I::Error> {
    let mut report = CheckReport::default();
    let mut seen = FxHashSet::default();
    // Nodes still to read, the next last: reference, first key as the parent says, first key behind the node.
    let mut pending: Vec<(NodeReference, Option<Key>, Option<Key>)> = Vec::new();
    pending.extend(root.map(|root| (root, None, None)));
    while let Some((reference, first, upper)) = pending.pop() {
        let node = io.read(&reference)?;
        if node.level() != reference.level || !seen.insert(reference.address) {
            return Err(TreeError::Level { reference, found: node.level() }.into());
        }
        let found = node.first_key();
        if let Some(expected) = first.filter(|expected| *expected != found) {
            return Err(TreeError::FirstKey { reference, expected, found }.into());
        }
        let found = node.last_key();
        if upper.is_some_and(|upper| found >= upper) {
            return Err(TreeError::KeyBounds { reference, found }.into());
        }
        report.nodes.push(reference);
        report.node_bytes += node.size_bytes() as u64;
        if node.is_leaf() {
            report.leaves += 1;
            report.entries += node.count() as u64;
            (0..node.count()).for_each(|index| visit(node.key(index), node.value(index)));
            continue;
        }
        for index in (0..node.count()).rev() {
            let upper = if index + 1 < node.count() { Some(node.key(index + 1)) } else { upper };
            pending.push((node.child(index), Some(node.key(index)), upper));
        }
    }
    Ok(report)
}
