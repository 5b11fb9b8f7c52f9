//! The patchwork: newest on top, older ones only beside it.

use stere_format::{Address, Key, NodeReference};

use super::{Leaf, Patched, Patchwork, predecessor};

fn leaf(first: u64, last: u64, sequence: u64) -> Leaf {
    let address = Address { segment: sequence, row_block: 1, offset: 512, length: 100 };
    let reference = NodeReference { address, crc32c: 0, level: 0 };
    Leaf { first: Key::inode(first), last: Key::inode(last), sequence, reference }
}

/// The sequence of the leaf that decides for an inode's key.
fn decides(patchwork: &Patchwork, inode: u64) -> Option<u64> {
    match patchwork.at(&Key::inode(inode)) {
        Patched::Leaf { leaf, first, last } => {
            assert!(first <= Key::inode(inode) && Key::inode(inode) <= last);
            Some(leaf.address.segment)
        }
        Patched::Nothing { until } => {
            assert!(until.is_none_or(|until| Key::inode(inode) < until));
            None
        }
    }
}

#[test]
fn the_newest_leaf_decides_and_older_ones_count_beside_it() {
    let patchwork = Patchwork::new(vec![leaf(1, 9, 5), leaf(3, 4, 8), leaf(4, 12, 3), leaf(20, 30, 1), leaf(0, 40, 0)]);
    let expected =
        [(0, 0), (1, 5), (2, 5), (3, 8), (4, 8), (5, 5), (9, 5), (10, 3), (12, 3), (13, 0), (25, 1), (40, 0)];
    for (inode, sequence) in expected {
        assert_eq!(decides(&patchwork, inode), Some(sequence), "inode {inode}");
    }
    assert_eq!(decides(&patchwork, 41), None);
}

#[test]
fn every_key_agrees_with_the_plain_rule() {
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for _ in 0..200 {
        let mut ranges: Vec<(u64, u64, u64)> = Vec::new();
        for sequence in 0..random(12) {
            let first = random(60);
            ranges.push((first, first + random(20), sequence));
        }
        let patchwork =
            Patchwork::new(ranges.iter().map(|(first, last, sequence)| leaf(*first, *last, *sequence)).collect());
        for inode in 0..90 {
            let newest =
                ranges.iter().filter(|(first, last, _)| (*first..=*last).contains(&inode)).map(|range| range.2);
            assert_eq!(decides(&patchwork, inode), newest.max(), "inode {inode} of {ranges:?}");
            let any = ranges.iter().any(|(_, last, _)| *last >= inode);
            assert_eq!(patchwork.has_any(&Key::inode(inode), None), any);
        }
    }
}

#[test]
fn predecessors_are_the_other_way_round() {
    for key in [Key::inode(7), Key::extent(3, 0), Key::new(1, 0, 0, 0), Key::MAX] {
        assert_eq!(predecessor(key).and_then(Key::successor), Some(key));
    }
    assert_eq!(predecessor(Key::MIN), None);
}
