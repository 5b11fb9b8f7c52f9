//! Nodes in memory: bounded by bytes, shared by all threads, keyed by address.
//!
//! Sharded by address; within a shard a clock hand goes round and takes credit from each node until it finds one
//! without. Each look-up gives credit, an inner node can gather more than a leaf, and a new node has none, so what is
//! used again outlives scans.

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use stere_format::{Address, Node, NodeReference};

const SHARDS: usize = 16;
/// Charged for each node beside its bytes: map entry, slot, node.
const OVERHEAD_BYTES: usize = 192;
/// A shard holds at least so many, so that a look-up that fetches its path node by node comes to an end.
const SHARD_NODES_MIN: usize = 8;
const CREDIT_LEAF_MAX: u8 = 2;
const CREDIT_INNER_MAX: u8 = 5;

struct Slot {
    address: Address,
    node: Arc<Node>,
    credit: AtomicU8,
}

#[derive(Default)]
struct Shard {
    by_address: FxHashMap<Address, usize>,
    slots: Vec<Slot>,
    hand: usize,
    bytes: usize,
}

/// Counts since the cache was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CacheStatistics {
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
}

/// The cache. Invariant: each shard's bytes are within its part of the capacity, or it holds at most eight nodes.
pub struct NodeCache {
    shards: [RwLock<Shard>; SHARDS],
    shard_bytes_max: usize,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

impl NodeCache {
    pub fn new(capacity_bytes: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            shard_bytes_max: capacity_bytes / SHARDS,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    fn shard(&self, address: &Address) -> &RwLock<Shard> {
        let hash = rustc_hash::FxBuildHasher.hash_one(address);
        // The map within the shard uses the low and the highest bits.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// The node of a reference, if it is here.
    #[inline]
    pub fn get(&self, reference: &NodeReference) -> Option<Arc<Node>> {
        let shard = self.shard(&reference.address).read();
        let Some(index) = shard.by_address.get(&reference.address) else {
            self.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let slot = &shard.slots[*index];
        assert_eq!(slot.address, reference.address, "the map leads to the address's slot");
        let credit_max = if slot.node.is_leaf() { CREDIT_LEAF_MAX } else { CREDIT_INNER_MAX };
        let credit = slot.credit.load(Ordering::Relaxed);
        if credit < credit_max {
            // Two look-ups at once may give credit for one only; that is near enough.
            slot.credit.store(credit + 1, Ordering::Relaxed);
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(slot.node.clone())
    }

    /// Adds a node that was verified against this reference, and makes room for it.
    pub fn insert(&self, reference: &NodeReference, node: Arc<Node>) {
        assert_eq!(reference.level, node.level(), "a cached node is what its reference says");
        let mut shard = self.shard(&reference.address).write();
        if shard.by_address.contains_key(&reference.address) {
            shard.remove(&reference.address);
        }
        let size = charge(&node);
        let mut evicted = 0;
        while shard.bytes + size >= self.shard_bytes_max && shard.slots.len() >= SHARD_NODES_MIN {
            shard.evict();
            evicted += 1;
        }
        self.evictions.fetch_add(evicted, Ordering::Relaxed);
        shard.add(reference.address, node);
    }

    pub fn remove(&self, address: &Address) {
        self.shard(address).write().remove(address);
    }

    /// Forgets all nodes of a segment, before its slots are used for something else.
    pub fn remove_segment(&self, segment: u64) {
        for shard in &self.shards {
            let mut shard = shard.write();
            let addresses: Vec<Address> =
                shard.by_address.keys().filter(|address| address.segment == segment).copied().collect();
            addresses.iter().for_each(|address| shard.remove(address));
        }
    }

    pub fn clear(&self) {
        self.shards.iter().for_each(|shard| *shard.write() = Shard::default());
    }

    /// Bytes of all nodes here, with what it takes to keep them.
    pub fn size_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().bytes).sum()
    }

    pub fn node_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().slots.len()).sum()
    }

    pub fn statistics(&self) -> CacheStatistics {
        CacheStatistics {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }
}

fn charge(node: &Node) -> usize {
    node.size_bytes() + OVERHEAD_BYTES
}

impl Shard {
    fn add(&mut self, address: Address, node: Arc<Node>) {
        self.bytes += charge(&node);
        let previous = self.by_address.insert(address, self.slots.len());
        assert!(previous.is_none(), "an address is cached once");
        self.slots.push(Slot { address, node, credit: AtomicU8::new(0) });
        self.assert_invariants();
    }

    fn assert_invariants(&self) {
        let nodes = self.slots.len();
        assert_eq!(self.by_address.len(), nodes, "the map has an address for each slot");
        assert!(self.bytes >= nodes * OVERHEAD_BYTES, "{nodes} nodes count as {} bytes", self.bytes);
    }

    fn remove(&mut self, address: &Address) {
        let Some(index) = self.by_address.remove(address) else { return };
        let slot = self.slots.swap_remove(index);
        assert_eq!(slot.address, *address, "the map leads to the address's slot");
        self.bytes -= charge(&slot.node);
        if let Some(moved) = self.slots.get(index) {
            self.by_address.insert(moved.address, index);
        }
        self.assert_invariants();
    }

    /// Ends: every round takes credit from every slot, and no look-up runs meanwhile.
    fn evict(&mut self) {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = &mut self.slots[self.hand];
            let credit = slot.credit.get_mut();
            if *credit == 0 {
                let address = slot.address;
                return self.remove(&address);
            }
            *credit -= 1;
            self.hand += 1;
        }
    }
}

#[cfg(test)]
mod tests;
