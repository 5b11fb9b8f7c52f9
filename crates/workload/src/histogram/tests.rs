//! Buckets cover all values, quantiles are close, merging is the same as noting.

use super::*;

fn of(values: impl IntoIterator<Item = u64>) -> Histogram {
    let mut histogram = Histogram::default();
    values.into_iter().for_each(|value| histogram.note(value));
    histogram
}

#[test]
fn buckets_follow_each_other_without_gaps() {
    for bucket in 0..BUCKETS {
        assert_eq!(bucket_of(bucket_start(bucket)), bucket);
        assert_eq!(bucket_of(bucket_end(bucket)), bucket);
        let (start, end) = (bucket_start(bucket), bucket_end(bucket));
        assert!(bucket + 1 == BUCKETS || end - start <= start / 4, "bucket {bucket}: {start} to {end}");
    }
    assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    assert_eq!(bucket_of(0), 0);
}

#[test]
fn quantiles_are_at_most_a_quarter_too_high() {
    let histogram = of(1..=100_000);
    for share in [0.01, 0.1, 0.5, 0.9, 0.99, 0.999] {
        let (told, exact) = (histogram.quantile(share).unwrap() as f64, 100_000.0 * share);
        assert!(told >= exact - 1.0 && told <= exact * 1.25, "{share}: {told} for {exact}");
    }
    assert_eq!(histogram.quantile(1.0), Some(100_000));
    assert_eq!(histogram.mean(), Some(50_000.5));
    assert_eq!((histogram.least(), histogram.greatest()), (Some(1), Some(100_000)));
    assert_eq!(Histogram::default().quantile(0.5), None);
    assert_eq!(of([u64::MAX]).quantile(0.5), Some(u64::MAX));
}

#[test]
fn merging_is_noting_everything() {
    let (one, other) = (of((0..1000).map(|n| n * n)), of((0..500).map(|n| n * 7)));
    let mut merged = one.clone();
    merged.merge(&other);
    assert_eq!(merged, of((0..1000).map(|n| n * n).chain((0..500).map(|n| n * 7))));
    let mut same = one.clone();
    same.merge(&Histogram::default());
    assert_eq!(same, one);
}

#[test]
fn parts_come_back_and_nonsense_does_not() {
    for histogram in [Histogram::default(), of([0]), of(0..10_000), of([u64::MAX, 0])] {
        assert_eq!(Histogram::from_parts(&histogram.to_parts()), Some(histogram));
    }
    let parts = of(0..10).to_parts();
    assert!(Histogram::from_parts(&HistogramParts { count: 3, ..parts.clone() }).is_none());
    assert!(Histogram::from_parts(&HistogramParts { weights: vec![0; 300], ..parts.clone() }).is_none());
    assert!(Histogram::from_parts(&HistogramParts { least: 11, ..parts }).is_none());
}

#[test]
fn a_full_bucket_halves_all_and_keeps_the_shape() {
    let parts = HistogramParts {
        weights: vec![u32::MAX - 1, u32::MAX / 2],
        halvings: 0,
        count: 3 << 31,
        sum: 1 << 31,
        least: 0,
        greatest: 1,
    };
    let mut full = Histogram::from_parts(&parts).unwrap();
    full.note(0);
    assert_eq!(full.to_parts().halvings, 1);
    assert!((full.share_up_to(0) - 2.0 / 3.0).abs() < 1e-6);
    let mut merged = Histogram::from_parts(&parts).unwrap();
    merged.merge(&full);
    assert!((merged.share_up_to(0) - 2.0 / 3.0).abs() < 1e-6);
    assert_eq!(merged.count(), (3 << 32) + 1);
}

#[test]
fn the_cumulative_distribution_rises_to_one() {
    let steps = of([3, 3, 8192, 8200, 1 << 40]).cumulative();
    assert_eq!(steps[0], Step { start: 3, end: 3, share: 0.4 });
    assert_eq!(steps[1], Step { start: 8192, end: 10_239, share: 0.8 });
    assert_eq!(steps[2], Step { start: 1 << 40, end: 1 << 40, share: 1.0 });
}

#[test]
fn sizes_that_are_powers_of_two_are_told_as_such() {
    let sizes = of([4096, 8192, 8192, 65_536]);
    assert_eq!([0.25, 0.5, 0.75, 1.0].map(|share| sizes.quantile_size(share).unwrap()), [4096, 8192, 8192, 65_536]);
    assert_eq!(sizes.quantile(0.5), Some(10_239));
    assert_eq!(Histogram::default().quantile_size(0.5), None);
}
