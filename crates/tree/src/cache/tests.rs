use super::*;
use stere_format::{Key, NodeBuilder};

fn node(at: u64, value_bytes: usize) -> (NodeReference, Arc<Node>) {
    let mut builder = NodeBuilder::new(0);
    builder.push_value(&Key::inode(at), &vec![7; value_bytes]);
    let (_, bytes) = builder.take(1);
    let (length, crc32c) = (bytes.len() as u32, stere_format::crc32c(&bytes));
    let address = Address { segment: at / 10, row_block: 1 + (at % 10) as u32, offset: 512, length };
    (NodeReference { address, crc32c, level: 0 }, Arc::new(Node::parse(bytes.into()).unwrap()))
}

#[test]
fn stays_within_its_bytes_and_keeps_what_is_used() {
    let cache = NodeCache::new(1 << 20);
    let (hot, hot_node) = node(0, 1000);
    cache.insert(&hot, hot_node);
    for at in 1..5000 {
        let (reference, node) = node(at, 1000);
        cache.insert(&reference, node);
        assert!(cache.get(&hot).is_some(), "a node looked up all the time stays");
        assert!(cache.size_bytes() <= 1 << 20);
    }
    assert!(cache.node_count() > 600, "most of the room is used: {}", cache.node_count());
    assert!(cache.statistics().evictions > 4000);
    assert!(cache.get(&node(1, 1000).0).is_none());
}

#[test]
fn the_smallest_cache_holds_a_path() {
    let cache = NodeCache::new(0);
    let path: Vec<_> = (0..8).map(|at| node(at, 60_000)).collect();
    for (reference, node) in &path {
        cache.insert(reference, node.clone());
    }
    assert!(path.iter().all(|(reference, _)| cache.get(reference).is_some()));
    for at in 8..1000 {
        let (reference, node) = node(at, 60_000);
        cache.insert(&reference, node);
    }
    assert!(cache.node_count() <= SHARDS * SHARD_NODES_MIN);
}

#[test]
fn forgets_segments_and_addresses() {
    let cache = NodeCache::new(1 << 20);
    let nodes: Vec<_> = (0..30).map(|at| node(at, 100)).collect();
    for (reference, node) in nodes.iter().chain(&nodes) {
        cache.insert(reference, node.clone());
    }
    assert_eq!(cache.node_count(), 30);
    cache.remove_segment(1);
    cache.remove(&nodes[25].0.address);
    for (at, (reference, _)) in nodes.iter().enumerate() {
        assert_eq!(cache.get(reference).is_some(), !(10..20).contains(&at) && at != 25, "node {at}");
    }
    cache.clear();
    assert_eq!((cache.node_count(), cache.size_bytes()), (0, 0));
}

#[test]
fn threads_share_it() {
    let cache = NodeCache::new(200_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..20_000u64 {
                    let (reference, node) = node((round * 7 + thread * 13) % 300, 500);
                    match cache.get(&reference) {
                        Some(found) => assert_eq!(found.first_key(), node.first_key()),
                        None => cache.insert(&reference, node),
                    }
                }
            });
        }
    });
    assert!(cache.size_bytes() <= 200_000);
    assert!(cache.statistics().hits > 1000);
}
