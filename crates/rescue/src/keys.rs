//! The map of all metadata as far as it can be found: the journal's changes over the tree over patches.
//!
//! A look-up never fails. It tells how far it can be trusted: `Certain` is what the newest state says, `Older` what an older
//! leaf says, `Lost` that something was there which no leaf found tells of. One damaged node costs its own keys and no others.
//! Invariants: memory is the journal's changes, a bounded cache of nodes, and one small entry for each leaf once patches are
//! needed. Read next: `walk.rs`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use stere_format::{Key, Node, NodeReference};

use crate::media::Media;
use crate::nodes::{Patched, Patchwork};

/// How far something can be trusted, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    Certain,
    Older,
    Lost,
}

/// What the tree begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Root {
    Empty,
    Node(NodeReference),
    /// Nothing tells: all keys are patched.
    Unknown,
}

/// Entries of a scan, in order.
#[derive(Default)]
pub(crate) struct Batch {
    pub entries: Vec<(Key, Arc<[u8]>, Trust)>,
    /// Where to go on; none when the range is done.
    pub next: Option<Key>,
    /// The worst that the scanned range holds.
    pub trust: Option<Trust>,
}

/// A piece of the tree that decides for a range of keys.
struct Piece {
    node: Option<Arc<Node>>,
    from: Key,
    /// Not counted; none to the end.
    to: Option<Key>,
    trust: Trust,
}

/// A leaf of the tree, or what the path to it ends at.
enum Reached {
    Leaf(Arc<Node>),
    Nothing,
    Damaged,
}

/// Nodes kept in memory: two generations of so many bytes.
const CACHE_BYTES: usize = 48 << 20;
/// Longer scans are cut.
const BATCH_BYTES: usize = 1 << 20;

#[derive(Default)]
struct Cache {
    young: HashMap<NodeReference, Option<Arc<Node>>>,
    old: HashMap<NodeReference, Option<Arc<Node>>>,
    young_bytes: usize,
}

impl Cache {
    fn get(&mut self, reference: &NodeReference) -> Option<Option<Arc<Node>>> {
        if let Some(node) = self.young.get(reference) {
            return Some(node.clone());
        }
        let node = self.old.remove(reference)?;
        self.insert(*reference, node.clone());
        Some(node)
    }

    fn insert(&mut self, reference: NodeReference, node: Option<Arc<Node>>) {
        self.young_bytes += node.as_ref().map_or(0, |node| node.size_bytes()) + 128;
        self.young.insert(reference, node);
        if self.young_bytes > CACHE_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

pub(crate) struct Keys {
    pub media: Media,
    root: Root,
    /// Changes of the journal; none is a deletion.
    pub overlay: BTreeMap<Key, Option<Arc<[u8]>>>,
    /// Rows behind this sequence belong to a checkpoint that was not completed.
    sequence_max: Option<u64>,
    patchwork: Option<Arc<Patchwork>>,
    cache: Cache,
    /// Tree nodes that could not be read anywhere, by the first key they would decide for.
    pub damaged_nodes: BTreeMap<Key, u8>,
}

impl Keys {
    pub fn new(media: Media, root: Root, sequence_max: Option<u64>) -> Keys {
        Keys {
            media,
            root,
            overlay: BTreeMap::new(),
            sequence_max,
            patchwork: None,
            cache: Cache::default(),
            damaged_nodes: BTreeMap::new(),
        }
    }

    #[cfg(test)]
    pub fn root(&self) -> Root {
        self.root
    }

    /// The leaves that were found, looked for at the first call.
    pub fn patchwork(&mut self) -> Arc<Patchwork> {
        if let Some(patchwork) = &self.patchwork {
            return patchwork.clone();
        }
        let patchwork = Arc::new(self.media.patchwork(self.sequence_max));
        self.patchwork = Some(patchwork.clone());
        patchwork
    }

    fn node(&mut self, reference: &NodeReference) -> Option<Arc<Node>> {
        if let Some(node) = self.cache.get(reference) {
            return node;
        }
        let node = self.media.node(reference);
        self.cache.insert(*reference, node.clone());
        node
    }

    /// What the tree says around this key.
    fn piece(&mut self, key: &Key) -> Piece {
        let (mut from, mut to) = (Key::MIN, None);
        let reached = match self.root {
            Root::Empty => Reached::Nothing,
            Root::Unknown => Reached::Damaged,
            Root::Node(root) => self.descend(root, key, &mut from, &mut to),
        };
        match reached {
            Reached::Leaf(node) => Piece { node: Some(node), from, to, trust: Trust::Certain },
            Reached::Nothing => Piece { node: None, from, to, trust: Trust::Certain },
            Reached::Damaged => self.patch(key, from, to),
        }
    }

    /// Follows the tree to the leaf of a key, narrowing the range it decides for.
    fn descend(&mut self, root: NodeReference, key: &Key, from: &mut Key, to: &mut Option<Key>) -> Reached {
        let mut reference = root;
        loop {
            let Some(node) = self.node(&reference) else {
                self.damaged_nodes.insert(*from, reference.level);
                return Reached::Damaged;
            };
            if node.is_leaf() {
                return Reached::Leaf(node);
            }
            let index = node.child_index(key);
            if index > 0 {
                *from = (*from).max(node.key(index));
            }
            if index + 1 < node.count() {
                let end = node.key(index + 1);
                *to = Some(to.map_or(end, |to| to.min(end)));
            }
            reference = node.child(index);
        }
    }

    /// What was found for a key in a range that the tree does not tell of.
    fn patch(&mut self, key: &Key, from: Key, to: Option<Key>) -> Piece {
        let patchwork = self.patchwork();
        if !patchwork.has_any(&from, to.as_ref()) {
            // Where nothing at all tells of the tree it may have been empty.
            let trust = if matches!(self.root, Root::Unknown) { Trust::Older } else { Trust::Lost };
            return Piece { node: None, from, to, trust };
        }
        let within = |end: Option<Key>| match (end, to) {
            (Some(end), Some(to)) => Some(end.min(to)),
            (end, to) => end.or(to),
        };
        match patchwork.at(key) {
            Patched::Leaf { first, last, leaf } => {
                let (from, to) = (from.max(first), within(last.successor()));
                match self.node(&leaf) {
                    Some(node) => Piece { node: Some(node), from, to, trust: Trust::Older },
                    None => Piece { node: None, from, to, trust: Trust::Lost },
                }
            }
            Patched::Nothing { until } => Piece { node: None, from: *key, to: within(until), trust: Trust::Older },
        }
    }

    /// The value of a key, and how far that can be trusted (also where there is none).
    pub fn get(&mut self, key: &Key) -> (Option<Arc<[u8]>>, Trust) {
        if let Some(value) = self.overlay.get(key) {
            return (value.clone(), Trust::Certain);
        }
        let piece = self.piece(key);
        let value = piece.node.as_ref().and_then(|node| Some(Arc::from(node.value(node.search(key).ok()?))));
        (value, piece.trust)
    }

    /// Entries from `from` up to `to` (not counted), as many as make a batch.
    pub fn scan(&mut self, from: Key, to: Key) -> Batch {
        let mut batch = Batch::default();
        let mut bytes = 0;
        let mut at = from;
        while at < to {
            let piece = self.piece(&at);
            let end = piece.to.map_or(to, |end| end.min(to));
            batch.trust = batch.trust.max(Some(piece.trust));
            bytes += self.merge(&piece, at.max(piece.from), end, &mut batch.entries);
            at = end;
            if bytes > BATCH_BYTES {
                break;
            }
        }
        batch.next = Some(at).filter(|at| *at < to);
        batch
    }

    /// Appends what a piece and the journal say of a range; returns how many bytes of values.
    fn merge(&self, piece: &Piece, from: Key, to: Key, entries: &mut Vec<(Key, Arc<[u8]>, Trust)>) -> usize {
        let mut bytes = 0;
        let mut overlay = self.overlay.range(from..to).peekable();
        let mut put = |key: Key, value: Arc<[u8]>, trust: Trust| {
            bytes += value.len() + 64;
            entries.push((key, value, trust));
        };
        if let Some(node) = &piece.node {
            let start = node.search(&from).unwrap_or_else(|index| index);
            for index in start..node.count() {
                let key = node.key(index);
                if key >= to {
                    break;
                }
                while let Some((own, value)) = overlay.next_if(|(own, _)| **own < key) {
                    value.iter().for_each(|value| put(*own, value.clone(), Trust::Certain));
                }
                match overlay.next_if(|(own, _)| **own == key) {
                    Some((_, value)) => value.iter().for_each(|value| put(key, value.clone(), Trust::Certain)),
                    None => put(key, Arc::from(node.value(index)), piece.trust),
                }
            }
        }
        for (own, value) in overlay {
            value.iter().for_each(|value| put(*own, value.clone(), Trust::Certain));
        }
        bytes
    }
}
