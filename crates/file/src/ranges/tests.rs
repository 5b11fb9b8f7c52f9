use super::*;
use proptest::prelude::*;

fn members(ranges: &Ranges) -> Vec<u32> {
    ranges.iter().flat_map(Clone::clone).collect()
}

proptest! {
    #[test]
    fn a_set_of_ranges_is_a_set_of_bytes(inserts in prop::collection::vec((0u32..60, 0u32..20), 0..12), cut in 0u32..80) {
        let mut ranges = Ranges::default();
        let mut plain = std::collections::BTreeSet::new();
        for (start, length) in inserts {
            ranges.insert(start..start + length);
            plain.extend(start..start + length);
        }
        prop_assert_eq!(members(&ranges), plain.iter().copied().collect::<Vec<_>>());
        let pairs: Vec<_> = ranges.iter().cloned().collect();
        prop_assert!(pairs.windows(2).all(|pair| pair[0].end < pair[1].start), "ranges that touch are joined");
        let blocks: std::collections::BTreeSet<_> = plain.iter().map(|byte| byte / 8).collect();
        prop_assert_eq!(ranges.blocks(8) as usize, blocks.len());
        let gaps: Vec<u32> = ranges.gaps(10..50).into_iter().flatten().collect();
        prop_assert_eq!(gaps, (10..50).filter(|byte| !plain.contains(byte)).collect::<Vec<_>>());
        let rounded = ranges.rounded(8, 70);
        let wanted: Vec<u32> = (0..70).filter(|byte| blocks.contains(&(byte / 8))).collect();
        prop_assert_eq!(members(&rounded), wanted);
        ranges.truncate(cut);
        prop_assert_eq!(members(&ranges), plain.range(..cut).copied().collect::<Vec<_>>());
    }
}
