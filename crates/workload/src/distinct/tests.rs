//! Estimates lie within three standard errors, and merging counts nothing twice.

use super::*;

fn of(values: std::ops::Range<u64>) -> Distinct {
    let mut distinct = Distinct::default();
    values.for_each(|value| distinct.note(mixed(value)));
    distinct
}

#[test]
fn estimates_are_close() {
    assert_eq!(Distinct::default().estimate(), 0.0);
    for count in [1, 10, 100, 1000, 10_000, 1_000_000] {
        let told = of(0..count).estimate();
        assert!((told / count as f64 - 1.0).abs() < 0.2, "{told} for {count}");
    }
    assert!((of(0..1).estimate() - 1.0).abs() < 0.01);
}

#[test]
fn merging_counts_nothing_twice() {
    let mut merged = of(0..600);
    merged.merge(&of(300..900));
    assert_eq!(merged, of(0..900));
}
