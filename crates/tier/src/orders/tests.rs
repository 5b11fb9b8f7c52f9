//! P-138: each order with a planted history, and the same one each time.

use super::*;

const NOW: i64 = 1_000_000;
const MIB: u64 = 1 << 20;

/// A segment that takes so much, was used so long ago and so often.
fn one(segment: u64, mib: u64, age: u64, references: u8) -> Candidate {
    let heat = SegmentHeat { used_seconds: NOW as u64 - age, references, is_back: false };
    Candidate::new(segment, mib * MIB, heat)
}

/// An old small one, one of medium age and size that is used often, a large new one that was used once, and a large one that was used
/// often and long ago.
fn history() -> Vec<Candidate> {
    vec![one(1, 1, 40_000, 1), one(2, 2, 15_000, 9), one(3, 8, 1000, 1), one(4, 4, 30_000, 7)]
}

fn order(order: ReleaseOrder, exponent_hundredths: u16) -> Vec<u64> {
    let policy = TierPolicy { order, exponent_hundredths, ..TierPolicy::default() };
    let mut ordered = history();
    put_in_order(&mut ordered, &policy, NOW);
    let mut again: Vec<Candidate> = history().into_iter().rev().collect();
    put_in_order(&mut again, &policy, NOW);
    assert_eq!(ordered, again, "the order in which they are found does not matter");
    ordered.into_iter().map(|one| one.segment).collect()
}

#[test]
fn the_product_of_space_and_time() {
    // 120,000, 40,000, 30,000 and 8,000 MiB times seconds.
    assert_eq!(order(ReleaseOrder::SpaceTime, 100), [4, 1, 2, 3]);
    // The older one gains with the exponent, the larger one when it is small.
    assert_eq!(order(ReleaseOrder::SpaceTime, 1000), [1, 4, 2, 3]);
    assert_eq!(order(ReleaseOrder::SpaceTime, 10), [3, 4, 2, 1]);
}

#[test]
fn least_recently_used() {
    assert_eq!(order(ReleaseOrder::LeastRecent, 100), [1, 4, 2, 3]);
}

#[test]
fn used_once_first() {
    assert_eq!(order(ReleaseOrder::Once, 100), [1, 3, 4, 2]);
}

#[test]
fn largest_first() {
    assert_eq!(order(ReleaseOrder::Largest, 100), [3, 4, 2, 1]);
}

#[test]
fn equals_go_by_number_and_the_future_is_new() {
    let mut same = vec![one(9, 4, 5, 1), one(7, 4, 5, 1), one(8, 4, 5, 1)];
    same.push(Candidate { heat: SegmentHeat { used_seconds: NOW as u64 + 50, ..same[0].heat }, ..one(1, 4, 1, 1) });
    put_in_order(&mut same, &TierPolicy::default(), NOW);
    assert_eq!(same.iter().map(|one| one.segment).collect::<Vec<_>>(), [7, 8, 9, 1]);
}

#[test]
fn logarithms_are_right() {
    for number in [1u64, 2, 3, 7, 1000, 40_000, 123_456_789, u64::MAX] {
        let exact = (number as f64).log2();
        let found = logarithm(number) as f64 / f64::from(1u32 << FRACTION_BITS);
        assert!((found - exact).abs() < 1e-5, "{number}: {found} and {exact}");
    }
    assert_eq!(logarithm(0), 0);
    let rising: Vec<u64> = (1..5000).map(logarithm).collect();
    assert!(rising.is_sorted());
}
