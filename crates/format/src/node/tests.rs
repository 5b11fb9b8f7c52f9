use super::*;
use crate::Address;

fn leaf(entries: &[(Key, Vec<u8>)]) -> (Key, Vec<u8>) {
    let mut builder = NodeBuilder::new(0);
    for (key, value) in entries {
        builder.push_value(key, value);
    }
    let size = builder.size_bytes();
    let (first, bytes) = builder.take(entries.len());
    assert_eq!(bytes.len(), size);
    assert!(builder.is_empty());
    (first, bytes)
}

fn reference(at: u32) -> NodeReference {
    let address = Address { segment: 7, row_block: 1 + at, offset: 512, length: 16000 };
    NodeReference { address, crc32c: at, level: 0 }
}

#[test]
fn entries_are_found_in_place() {
    let entries: Vec<_> = (0..300u64).map(|at| (Key::extent(5, at * 10), vec![at as u8; at as usize % 50])).collect();
    let (first, bytes) = leaf(&entries);
    assert_eq!(first, entries[0].0);
    let node = Node::parse(bytes.into()).unwrap();
    assert_eq!((node.level(), node.count()), (0, 300));
    for (index, (key, value)) in entries.iter().enumerate() {
        assert_eq!(node.search(key), Ok(index));
        assert_eq!((node.key(index), node.value(index)), (*key, value.as_slice()));
        assert_eq!(node.search(&Key { position: key.position + 1, ..*key }), Err(index + 1));
    }
    assert_eq!(node.search(&Key::extent(4, 100)), Err(0));
    assert_eq!(node.search(&Key::extent(6, 0)), Err(300));
    assert_eq!(node.search(&Key::MIN), Err(0));
    assert_eq!(node.search(&Key::MAX), Err(300));
}

#[test]
fn one_entry_with_a_large_value() {
    let (_, bytes) = leaf(&[(Key::xattr(1, 2), vec![3; VALUE_BYTES_MAX])]);
    let node = Node::parse(bytes.into()).unwrap();
    assert_eq!(node.search(&Key::xattr(1, 2)), Ok(0));
    assert_eq!(node.search(&Key::xattr(1, 1)), Err(0));
    assert_eq!(node.search(&Key::xattr(1, 3)), Err(1));
    assert_eq!(node.value(0).len(), VALUE_BYTES_MAX);
}

#[test]
fn inner_nodes_lead_to_children() {
    let mut builder = NodeBuilder::new(1);
    for at in 0..20 {
        builder.push_child(&Key::inode(u64::from(at) * 256), &reference(at));
    }
    assert_eq!(builder.pop_child(), Some((Key::inode(19 * 256), reference(19))));
    let (_, bytes) = builder.take(19);
    let node = Node::parse(bytes.into()).unwrap();
    assert_eq!(node.child_index(&Key::MIN), 0);
    assert_eq!(node.child_index(&Key::inode(255)), 0);
    assert_eq!(node.child_index(&Key::inode(256)), 1);
    assert_eq!(node.child_index(&Key::MAX), 18);
    assert_eq!(node.child(18), reference(18));
}

#[test]
fn cutting_keeps_order_and_size() {
    let mut builder = NodeBuilder::new(0);
    let keys: Vec<_> = (0..5000u64).map(|at| Key::new(1, at * at, 1, at)).collect();
    for key in &keys {
        builder.push_value(key, &[9; 20]);
    }
    let mut seen = Vec::new();
    while !builder.is_empty() {
        let count = builder.count_within(1000);
        assert!(count == builder.count() || builder.size_of_first(count + 1) > 1000);
        let (first, bytes) = builder.take(count);
        assert!(bytes.len() <= 1000);
        let node = Node::parse(bytes.into()).unwrap();
        assert_eq!(node.first_key(), first);
        seen.extend((0..node.count()).map(|index| node.key(index)));
    }
    assert_eq!(seen, keys);
}

#[test]
fn what_the_parent_did_not_mean_is_refused() {
    let (_, bytes) = leaf(&[(Key::inode(1), vec![1]), (Key::inode(2), vec![2])]);
    let bytes: Arc<[u8]> = bytes.into();
    let address = Address { length: bytes.len() as u32, ..reference(0).address };
    let good = NodeReference { address, crc32c: crate::crc32c(&bytes), level: 0 };
    assert!(Node::read(&good, bytes.clone()).is_ok());
    let wrong_level = NodeReference { level: 1, ..good };
    assert!(matches!(Node::read(&wrong_level, bytes.clone()), Err(DecodeError::OutOfRange { field: "level", .. })));
    let wrong_checksum = NodeReference { crc32c: good.crc32c ^ 1, ..good };
    assert!(matches!(Node::read(&wrong_checksum, bytes.clone()), Err(DecodeError::Checksum { .. })));
    let wrong_length = NodeReference { address: Address { length: 1, ..address }, ..good };
    assert!(matches!(Node::read(&wrong_length, bytes), Err(DecodeError::Truncated { .. })));
}

#[test]
fn every_changed_byte_is_refused_or_harmless() {
    let entries: Vec<_> = (0..9u64).map(|at| (Key::dirent(3, at * 3), vec![at as u8; 5])).collect();
    let (_, bytes) = leaf(&entries);
    for at in 0..bytes.len() {
        for change in [1, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= change;
            let Ok(node) = Node::parse(bytes.into()) else {
                continue;
            };
            for index in 0..node.count() {
                assert_eq!(node.search(&node.key(index)), Ok(index));
                assert!(node.value(index).len() <= 45);
            }
        }
    }
}
