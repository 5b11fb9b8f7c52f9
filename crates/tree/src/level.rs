//! What a merge has gathered for one level and not yet written: the entries of the node or nodes in the making.

use stere_format::{Key, Node, NodeBuilder, NodeReference};

/// Entries in the making, with what is known of the last of them.
pub(crate) struct Level {
    pub builder: NodeBuilder,
    /// How many of the last entries were not in the old tree: at a growing end, full nodes are split off whole.
    appended: usize,
    /// What is left after the last cut is a growing end: the next node has no counterpart in the old tree.
    rest_is_new: bool,
}

impl Level {
    pub fn new(level: u8) -> Self {
        Self { builder: NodeBuilder::new(level), appended: 0, rest_is_new: false }
    }

    pub fn push_value(&mut self, key: &Key, value: &[u8], is_new: bool) {
        self.builder.push_value(key, value);
        self.note(is_new);
    }

    pub fn push_child(&mut self, key: &Key, child: &NodeReference, is_new: bool) {
        self.builder.push_child(key, child);
        self.note(is_new);
    }

    fn note(&mut self, is_new: bool) {
        self.appended = if is_new { self.appended + 1 } else { 0 };
        self.rest_is_new &= is_new;
        self.assert_invariants();
    }

    fn assert_invariants(&self) {
        let (appended, gathered) = (self.appended, self.builder.count());
        assert!(appended <= gathered, "{appended} entries were appended, of {gathered}");
    }

    /// Adds entries of an old node.
    pub fn push_entries(&mut self, node: &Node, range: std::ops::Range<usize>) {
        for index in range {
            let key = node.key(index);
            match node.is_leaf() {
                true => self.push_value(&key, node.value(index), false),
                false => self.push_child(&key, &node.child(index), false),
            }
        }
    }

    pub fn pop_child(&mut self) -> Option<(Key, NodeReference)> {
        self.appended = self.appended.saturating_sub(1);
        let child = self.builder.pop_child();
        self.assert_invariants();
        child
    }

    pub fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// So small that it is worth reading a neighbour to merge with; a growing end will fill by itself.
    pub fn is_underfull(&self, target_bytes: usize) -> bool {
        self.appended == 0 && self.builder.size_bytes() < target_bytes / 4
    }

    pub fn is_half_full(&self, target_bytes: usize) -> bool {
        self.builder.size_bytes() >= target_bytes / 2
    }

    /// Whether a full node can be cut off and enough stays for another.
    pub fn is_overfull(&self, target_bytes: usize) -> bool {
        self.builder.count() >= 2 && self.builder.size_bytes() >= 2 * target_bytes
    }

    /// Puts the entries of an old node before what was gathered.
    pub fn prepend(&mut self, node: &Node) {
        let tail = std::mem::replace(self, Self::new(self.builder.level()));
        self.push_entries(node, 0..node.count());
        self.builder.append(&tail.builder);
    }

    /// How many entries the next node takes when no more come.
    pub fn cut(&self, target_bytes: usize) -> usize {
        let (count, size) = (self.builder.count(), self.builder.size_bytes());
        if size <= target_bytes {
            return count;
        }
        let full = self.builder.count_within(target_bytes);
        let grows_at_end = count - full <= self.appended;
        if grows_at_end || size > 2 * target_bytes {
            return full;
        }
        self.builder.count_within(size / 2 + 1).min(full)
    }

    /// Makes a node of the first entries; tells whether it is one more than the old tree had.
    pub fn take(&mut self, count: usize) -> (Key, Vec<u8>, bool) {
        let (first_key, bytes) = self.builder.take(count);
        let is_new = self.rest_is_new;
        let rest = self.builder.count();
        self.rest_is_new = rest > 0 && rest <= self.appended;
        self.appended = self.appended.min(rest);
        (first_key, bytes, is_new)
    }
}
