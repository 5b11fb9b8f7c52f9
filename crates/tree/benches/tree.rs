//! Times of the tree's main acts in memory: building, merging a batch into a million keys, looking up, walking, parsing.
//! Prints one line for each; every act is also checked. `cargo bench -p stere-tree`.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use stere_format::{Address, Key, Node, NodeReference};
use stere_tree::{Direction, Lookup, NodeCache, NodeIo, RangeStep, Tree, TreeError, merge};

const KEYS: u64 = 1_000_000;
const CHANGES: u64 = 200_000;

#[derive(Default)]
struct Memory {
    nodes: HashMap<Address, Arc<Node>>,
    bytes: usize,
}

impl NodeIo for Memory {
    type Error = TreeError;

    fn read(&mut self, reference: &NodeReference) -> Result<Arc<Node>, TreeError> {
        Ok(self.nodes[&reference.address].clone())
    }

    fn append(&mut self, level: u8, _first_key: &Key, bytes: Vec<u8>) -> Result<NodeReference, TreeError> {
        let segment = 1 + self.nodes.len() as u64;
        let address = Address { segment, row_block: 1, offset: 512, length: bytes.len() as u32 };
        let reference = NodeReference { address, crc32c: stere_format::crc32c(&bytes), level };
        self.bytes += bytes.len();
        let node = Node::parse(bytes.into()).map_err(|source| TreeError::Decode { reference, source })?;
        self.nodes.insert(address, Arc::new(node));
        Ok(reference)
    }
}

fn random(at: u64) -> u64 {
    let mixed = (at ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8
}

fn timed<T>(what: &str, count: u64, act: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = act();
    let elapsed = start.elapsed();
    println!("{what}: {:.1} ms, {:.0} ns each", elapsed.as_secs_f64() * 1e3, elapsed.as_nanos() as f64 / count as f64);
    result
}

fn main() {
    let mut memory = Memory::default();
    let value = [7u8; 40];
    let all = (0..KEYS).map(|at| (Key::blob(at * 2), Some(value)));
    let built = timed("build 1M keys in order", KEYS, || merge(None, all, &[], &mut memory).expect("built"));
    println!("  {} nodes, {} bytes", memory.nodes.len(), memory.bytes);

    let mut changes: Vec<u64> = (0..CHANGES).map(|at| random(at) % (KEYS * 2)).collect();
    changes.sort_unstable();
    changes.dedup();
    let count = changes.len() as u64;
    let batch = changes.iter().map(|at| (Key::blob(*at), (at % 5 != 0).then_some([8u8; 44])));
    let outcome = timed("merge 200k random changes", count, || merge(built.root, batch, &[], &mut memory));
    let outcome = outcome.expect("merged");
    println!("  {} nodes written, {} obsolete", outcome.written.len(), outcome.obsolete.len());

    let few = changes.iter().step_by(2000).map(|at| (Key::blob(*at), Some([9u8; 44])));
    timed("merge 100 random changes", 100, || merge(outcome.root, few, &[], &mut memory).expect("merged"));

    let cache = NodeCache::new(1 << 30);
    for (address, node) in &memory.nodes {
        let reference = NodeReference { address: *address, crc32c: 0, level: node.level() };
        cache.insert(&reference, node.clone());
    }
    let tree = Tree::new(built.root);
    let found = timed("look up 1M random keys", KEYS, || {
        (0..KEYS).filter(|at| matches!(tree.get(&cache, &Key::blob(random(*at) % KEYS * 2)), Lookup::Found(_))).count()
    });
    assert_eq!(found as u64, KEYS);
    let walked = timed("walk 1M keys", KEYS, || {
        let mut range = tree.range(&cache, Key::MIN, Key::MAX, Direction::Forward);
        let mut walked = 0u64;
        while let RangeStep::Entry(key, value) = range.next() {
            black_box((key, value));
            walked += 1;
        }
        walked
    });
    assert_eq!(walked, KEYS);

    let leaf = memory.nodes.values().find(|node| node.is_leaf() && node.count() > 200).expect("a full leaf").clone();
    timed("search one leaf 1M times", KEYS, || {
        (0..KEYS).for_each(|at| assert!(leaf.search(&leaf.key((random(at) % leaf.count() as u64) as usize)).is_ok()));
    });
    timed("parse one leaf 10k times", 10_000, || {
        (0..10_000).for_each(|_| drop(black_box(Node::parse(leaf.bytes().clone()).expect("parsed"))));
    });
}
