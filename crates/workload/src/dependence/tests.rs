//! The levels against sums made the slow way; clocks that jump.

use super::*;
use crate::distinct::mixed;

/// Bin counts at a level, and the pairs' squares, from all counts.
fn slow(counts: &[f64], power: usize) -> (Vec<f64>, u64, f64) {
    let sums: Vec<f64> = counts.chunks_exact(1 << power).map(|chunk| chunk.iter().sum()).collect();
    let (pairs, _) = sums.as_chunks::<2>();
    (sums.clone(), pairs.len() as u64, pairs.iter().map(|[left, right]| (left - right) * (left - right)).sum())
}

fn assert_same(dependence: &Dependence, counts: &[f64]) {
    for (power, level) in dependence.levels().iter().enumerate() {
        let (sums, pairs, pair_squares) = slow(counts, power);
        assert_eq!((level.bins, level.pairs), (sums.len() as u64, pairs), "level {power}");
        assert!((level.pair_squares - pair_squares).abs() <= 1e-6 * (1.0 + pair_squares), "level {power}");
        let mean = sums.iter().sum::<f64>() / (sums.len().max(1)) as f64;
        let variance = sums.iter().map(|sum| (sum - mean) * (sum - mean)).sum::<f64>() / sums.len().max(1) as f64;
        assert!((level.mean - mean).abs() <= 1e-9 * (1.0 + mean), "level {power}");
        assert!((level.variance() - variance).abs() <= 1e-6 * (1.0 + variance), "level {power}");
    }
}

#[test]
fn calls_with_pauses_give_the_same_as_all_bins() {
    for seed in 0..40 {
        let mut dependence = Dependence::default();
        let mut counts: Vec<f64> = Vec::new();
        let mut bin = 12345;
        for step in 0..300 {
            let number = mixed(seed << 32 | step);
            let (calls, pause) = (number % 5 + 1, if number >> 20 & 3 == 0 { number >> 30 & 63 } else { 0 });
            (0..calls).for_each(|call| dependence.note((bin << BIN_SHIFT) + call));
            counts.push(calls as f64);
            counts.extend(std::iter::repeat_n(0.0, pause as usize));
            bin += 1 + pause;
        }
        dependence.note(bin << BIN_SHIFT);
        assert_same(&dependence, &counts);
    }
}

#[test]
fn a_clock_that_jumps_ends_the_series_and_floods_nothing() {
    let mut dependence = Dependence::default();
    let second = 1_000_000_000;
    (0..100).for_each(|step| dependence.note(step * BIN_NS));
    let bins = dependence.levels()[0].bins;
    // A day forward, and a week back: one series more for each.
    dependence.note(86_400 * second);
    assert_eq!((dependence.series(), dependence.levels()[0].bins), (2, bins));
    dependence.note(second);
    assert_eq!(dependence.series(), 3);
    // Late by less than a second: the same series.
    dependence.note(second / 2);
    assert_eq!(dependence.series(), 3);
    dependence.note(u64::MAX);
    dependence.note(0);
    assert_eq!(dependence.series(), 5);
    assert!(dependence.levels().iter().all(|level| level.bins <= bins));
    // Half an hour is a pause and counts as such.
    dependence.note(1800 * second);
    assert_eq!(dependence.series(), 5);
    assert!(dependence.levels()[0].bins > 1_700_000);
    assert_eq!(dependence.calls(), 106);
}

#[test]
fn merging_pools_what_both_say() {
    let mut one = Dependence::default();
    one.push_counts((0..4096u64).map(|step| (mixed(step) % 100) as f64));
    let mut other = Dependence::default();
    // The same spread around another mean.
    other.push_counts((0..4096u64).map(|step| (mixed(step) % 100) as f64 + 5000.0));
    let mut merged = one.clone();
    merged.merge(&other);
    for (level, alone) in merged.levels().iter().zip(one.levels()) {
        assert_eq!(level.bins, 2 * alone.bins);
        assert!((level.variance() - alone.variance()).abs() <= 1e-6 * (1.0 + alone.variance()));
    }
}
