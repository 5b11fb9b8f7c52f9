//! For the tests: a log of nodes in memory that proves the accounting of every merge.

use crate::{
    Direction, Lookup, Merge, MergeOutcome, NodeCache, NodeIo, Progress, Range, RangeStep, Touch, Tree, TreeError,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stere_format::{Address, Key, Node, NodeReference};

pub(crate) type Model = BTreeMap<Key, Vec<u8>>;
pub(crate) type Batch = BTreeMap<Key, Option<Vec<u8>>>;

/// Nodes per segment, few so that condemning one touches some.
const SEGMENT_NODES: u64 = 8;

#[derive(Default)]
pub(crate) struct SimulatedLog {
    nodes: FxHashMap<Address, Arc<Node>>,
    appended: u64,
    pub condemned: FxHashSet<u64>,
    pub reads: usize,
}

impl NodeIo for SimulatedLog {
    type Error = TreeError;

    fn read(&mut self, reference: &NodeReference) -> Result<Arc<Node>, TreeError> {
        self.reads += 1;
        let node = self.nodes.get(&reference.address).expect("only nodes that were written are read");
        let reread = Node::read(reference, node.bytes().clone());
        let reread = reread.map_err(|source| TreeError::Decode { reference: *reference, source })?;
        Ok(Arc::new(reread))
    }

    fn append(&mut self, level: u8, first_key: &Key, bytes: Vec<u8>) -> Result<NodeReference, TreeError> {
        while self.condemned.contains(&(1 + self.appended / SEGMENT_NODES)) {
            self.appended = (self.appended / SEGMENT_NODES + 1) * SEGMENT_NODES;
        }
        let (segment, row) = (1 + self.appended / SEGMENT_NODES, 1 + self.appended % SEGMENT_NODES);
        self.appended += 1;
        let length = bytes.len() as u32;
        let address = Address { segment, row_block: row as u32, offset: 512, length };
        let reference = NodeReference { address, crc32c: stere_format::crc32c(&bytes), level };
        let node = Node::parse(bytes.into()).expect("a merge writes nodes that can be read");
        assert_eq!((node.level(), node.first_key()), (level, *first_key));
        self.nodes.insert(address, Arc::new(node));
        Ok(reference)
    }

    fn is_condemned(&self, segment: u64) -> bool {
        self.condemned.contains(&segment)
    }
}

/// A tree, what it should hold, and which nodes it should consist of.
pub(crate) struct Subject {
    pub log: SimulatedLog,
    pub tree: Tree,
    pub model: Model,
    pub reachable: BTreeSet<Address>,
    pub target_bytes: usize,
}

impl Subject {
    pub fn new(target_bytes: usize) -> Self {
        let log = SimulatedLog::default();
        Self { log, tree: Tree::EMPTY, model: Model::new(), reachable: BTreeSet::new(), target_bytes }
    }

    /// Merges, then proves content, structure and accounting.
    pub fn apply(&mut self, batch: &Batch, touches: &[Touch], budget: usize) -> MergeOutcome {
        let changes = batch.iter().map(|(key, value)| (*key, value.as_deref()));
        let mut merge = Merge::with_target(self.tree.root, changes, touches, self.target_bytes);
        let outcome = loop {
            match merge.step(budget, &mut self.log).expect("the merge succeeds") {
                Progress::More => {}
                Progress::Done(outcome) => break outcome,
            }
        };
        for (key, value) in batch {
            match value {
                Some(value) => self.model.insert(*key, value.clone()),
                None => self.model.remove(key),
            };
        }
        for written in &outcome.written {
            assert!(self.reachable.insert(written.address), "an address is written once");
        }
        for obsolete in &outcome.obsolete {
            assert!(self.reachable.remove(&obsolete.address), "only reachable nodes become obsolete, each once");
        }
        self.tree = Tree::new(outcome.root);
        self.prove();
        outcome
    }

    pub fn prove(&mut self) {
        let mut expected = self.model.iter();
        let report = crate::check(self.tree.root, &mut self.log, |key, value| {
            let (model_key, model_value) = expected.next().expect("no entry too many");
            assert_eq!((key, value), (*model_key, model_value.as_slice()));
        });
        let report = report.expect("the tree is whole");
        assert_eq!(expected.next(), None, "no entry is missing");
        let found: BTreeSet<Address> = report.nodes.iter().map(|node| node.address).collect();
        assert_eq!(found, self.reachable, "reachable nodes are those before, less the obsolete, and the written");
        for reference in &report.nodes {
            let node = &self.log.nodes[&reference.address];
            assert!(node.size_bytes() <= self.target_bytes || node.count() == 1, "a node is as large as it should be");
            assert!(node.is_leaf() || node.count() >= 2 || Some(*reference) != self.tree.root, "the root branches");
        }
    }

    /// First keys and levels of all nodes in a segment, as row summaries would tell.
    pub fn touches_of(&self, segment: u64) -> Vec<Touch> {
        let of_segment = self.log.nodes.iter().filter(|(address, _)| address.segment == segment);
        of_segment.map(|(_, node)| Touch { first_key: node.first_key(), level: node.level() }).collect()
    }

    pub fn fill(&self) -> f64 {
        let leaves: Vec<usize> = self
            .reachable
            .iter()
            .map(|address| &self.log.nodes[address])
            .filter(|node| node.is_leaf())
            .map(|node| node.size_bytes())
            .collect();
        leaves.iter().sum::<usize>() as f64 / (leaves.len() * self.target_bytes) as f64
    }

    pub fn inner_nodes(&self) -> usize {
        self.reachable.iter().filter(|address| !self.log.nodes[address].is_leaf()).count()
    }

    fn fetch(&mut self, cache: &NodeCache, missing: &NodeReference) {
        let node = self.log.read(missing).expect("the node can be read");
        cache.insert(missing, node);
    }

    /// Looks a key up as a store would, fetching what is missing.
    pub fn get(&mut self, cache: &NodeCache, key: &Key) -> Option<Vec<u8>> {
        loop {
            match self.tree.get(cache, key) {
                Lookup::Found(value) => return Some(value.to_vec()),
                Lookup::Absent => return None,
                Lookup::Miss(missing) => self.fetch(cache, &missing),
            }
        }
    }

    /// Walks a range, fetching what is missing and emptying the cache after every `patience` entries.
    pub fn walk(&mut self, from: Key, to: Key, direction: Direction, patience: usize) -> Vec<(Key, Vec<u8>)> {
        let cache = NodeCache::new(1 << 20);
        let tree = self.tree;
        let mut range = tree.range(&cache, from, to, direction);
        let mut seen = Vec::new();
        loop {
            match range.next() {
                RangeStep::Entry(key, value) => seen.push((key, value.to_vec())),
                RangeStep::Miss(missing) => self.fetch(&cache, &missing),
                RangeStep::End => return seen,
            }
            if seen.len() % patience == 0 {
                // The node just fetched must be there for the step that asked for it.
                let Some(entry) = next_entry(&mut range, self, &cache) else { return seen };
                seen.push(entry);
                cache.clear();
            }
        }
    }
}

fn next_entry(range: &mut Range<'_>, subject: &mut Subject, cache: &NodeCache) -> Option<(Key, Vec<u8>)> {
    loop {
        match range.next_owned() {
            Err(missing) => subject.fetch(cache, &missing),
            Ok(entry) => return entry.map(|(key, value)| (key, value.to_vec())),
        }
    }
}
