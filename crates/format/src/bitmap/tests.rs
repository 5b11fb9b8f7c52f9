use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn edges() {
    for blocks in [0, 1, 63, 64, 65, 128, 255, 256] {
        let bitmap = BlockBitmap::full(blocks);
        assert_eq!((bitmap.count(), bitmap.rank(256)), (blocks, blocks));
        assert_eq!(bitmap.iter().collect::<Vec<_>>(), (0..blocks).collect::<Vec<_>>());
        let mut out = Vec::new();
        bitmap.encode_to(blocks, &mut out);
        assert_eq!(out.len(), blocks.div_ceil(8) as usize);
        assert_eq!(BlockBitmap::from_bytes(&out), bitmap);
    }
    assert!(!BlockBitmap::full(256).contains(256));
    assert_eq!(BlockBitmap::full(300), BlockBitmap::full(256));
}

proptest! {
    #[test]
    fn equals_a_set(ranges in prop::collection::vec((0..300u32, 0..300u32, any::<bool>()), 1..20)) {
        let (mut bitmap, mut set) = (BlockBitmap::EMPTY, BTreeSet::new());
        for (a, b, insert) in ranges {
            let range = a..b;
            if insert {
                bitmap.insert(range.clone());
                set.extend(range.filter(|block| *block < 256));
            } else {
                let before = set.len();
                set.retain(|block| !range.contains(block));
                prop_assert_eq!(bitmap.remove(range) as usize, before - set.len());
            }
            prop_assert_eq!(bitmap.count() as usize, set.len());
            prop_assert_eq!(bitmap.is_empty(), set.is_empty());
            prop_assert!((0..300).all(|block| bitmap.contains(block) == set.contains(&block)));
            prop_assert!((0..300).all(|block| bitmap.rank(block) as usize == set.range(..block).count()));
        }
    }
}
