use super::*;

fn fold() -> FoldValue {
    let ranges = vec![(Key::dirent_hash(7, 0), Key::inode(8)), (Key::inode(9), Key::inode(300))];
    FoldValue { directory: 5, blob: 77, keys: 12, ranges }
}

#[test]
fn what_lies_in_its_ranges_is_covered_and_nothing_else() {
    let fold = fold();
    assert_eq!(FoldValue::decode(&fold.encode()).unwrap(), fold);
    for covered in [Key::dirent_hash(7, 0), Key::dirent(7, 3), Key::inode(9), Key::extent(299, u64::MAX)] {
        assert!(fold.covers(&covered), "{covered}");
    }
    for other in [Key::inode(7), Key::xattr(7, 1), Key::inode(8), Key::extent(8, 1), Key::inode(300), Key::inode(1)] {
        assert!(!fold.covers(&other), "{other}");
    }
}

#[test]
fn ranges_and_keys_that_do_not_rise_are_refused() {
    let mut reversed = fold();
    reversed.ranges.reverse();
    assert!(FoldValue::decode(&reversed.encode()).is_err());
    let mut empty = fold();
    empty.ranges[0].1 = empty.ranges[0].0;
    assert!(FoldValue::decode(&empty.encode()).is_err());
    let rising = Bundle { entries: vec![(Key::inode(9), vec![1]), (Key::inode(10), vec![2])] };
    let mut twice = rising.encode();
    assert_eq!(Bundle::decode(&twice), Ok(rising));
    let second = Bundle::FIXED_BYTES + Bundle::entry_bytes(1);
    twice.copy_within(Bundle::FIXED_BYTES..Bundle::FIXED_BYTES + 17, second);
    assert!(Bundle::decode(&twice).is_err());
    assert!(Bundle::decode(&Bundle::default().encode()).is_err());
}

#[test]
fn a_bundle_that_ends_early_or_late_is_refused() {
    let bundle = Bundle { entries: vec![(Key::inode(9), vec![1; 30]), (Key::dirent(9, 4), Vec::new())] };
    let bytes = bundle.encode();
    assert_eq!(Bundle::decode(&bytes).unwrap(), bundle);
    assert_eq!(bytes.len(), Bundle::FIXED_BYTES + Bundle::entry_bytes(30) + Bundle::entry_bytes(0));
    for end in 0..bytes.len() {
        assert!(Bundle::decode(&bytes[..end]).is_err(), "{end}");
    }
    assert!(Bundle::decode(&[bytes, vec![0]].concat()).is_err());
}

#[test]
fn a_use_of_names_is_what_it_was() {
    let used = NamesUse { is_new: true, used_seconds: 1 << 40, look_seconds: 7 };
    let bytes = used.encode();
    assert_eq!((NamesUse::decode(&bytes).unwrap(), bytes.len()), (used, NamesUse::SIZE));
    assert!(NamesUse::decode(&bytes[1..]).is_err() && NamesUse::decode(&[&bytes[..], &[0]].concat()).is_err());
    for (at, value) in [(0, 2), (1, 2), (2, 1), (3, 1)] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        assert!(NamesUse::decode(&wrong).is_err(), "byte {at}");
    }
}
