//! Curves of loads whose miss ratios are known exactly.

use super::*;

/// Numbers that look random, from a seed.
fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |step: u64| mixed(seed ^ step.wrapping_mul(0x2545_f491_4f6c_dd1d)))
}

fn note(reuse: &mut Reuse, block: u64) {
    reuse.note(mixed(7), block * CACHE_BLOCK_BYTES, CACHE_BLOCK_BYTES);
}

/// An LRU cache, the slow way.
fn exact_miss_ratio(blocks: &[u64], size: usize) -> f64 {
    let (mut cache, mut misses): (Vec<u64>, usize) = (Vec::new(), 0);
    for block in blocks {
        match cache.iter().position(|one| one == block) {
            Some(place) => drop(cache.remove(place)),
            None => misses += 1,
        }
        cache.insert(0, *block);
        cache.truncate(size);
    }
    misses as f64 / blocks.len() as f64
}

#[test]
fn a_loop_misses_all_until_it_fits() {
    let mut reuse = Reuse::default();
    (0..40u64).for_each(|_| (0..20_000).for_each(|block| note(&mut reuse, block)));
    let small = reuse.miss_ratio(10_000 * CACHE_BLOCK_BYTES).unwrap();
    let large = reuse.miss_ratio(26_000 * CACHE_BLOCK_BYTES).unwrap();
    assert!(small > 0.9 && large < 0.1, "{small} {large}");
    let footprint = reuse.footprint_bytes() / CACHE_BLOCK_BYTES as f64;
    assert!((footprint / 20_000.0 - 1.0).abs() < 0.15, "{footprint}");
}

#[test]
fn the_curve_of_a_skewed_load_is_close_to_a_real_cache() {
    // The square of a uniform number: few blocks are popular.
    let uniform = numbers(3).map(|number| (number >> 11) as f64 / (1u64 << 53) as f64);
    let blocks: Vec<u64> = uniform.take(60_000).map(|number| (number.powi(4) * 8000.0) as u64).collect();
    let mut reuse = Reuse::default();
    blocks.iter().for_each(|block| note(&mut reuse, *block));
    for size in [64, 256, 1024, 4096] {
        let told = reuse.miss_ratio(size as u64 * CACHE_BLOCK_BYTES).unwrap();
        let exact = exact_miss_ratio(&blocks, size);
        assert!((told - exact).abs() < 0.06, "{size}: {told} for {exact}");
    }
}

#[test]
fn small_requests_of_one_block_are_hits() {
    let mut reuse = Reuse::default();
    (0..100_000u64).for_each(|page| reuse.note(1, page * 4096, 4096));
    let told = reuse.miss_ratio(CACHE_BLOCK_BYTES * 4).unwrap();
    assert!((told - 1.0 / 16.0).abs() < 0.02, "{told}");
    assert!(reuse.curve().windows(2).all(|pair| pair[0].miss_ratio >= pair[1].miss_ratio));
}

#[test]
fn nothing_is_no_curve_and_a_huge_request_is_bounded() {
    let mut reuse = Reuse::default();
    assert!(reuse.curve().is_empty());
    reuse.note(1, 0, 0);
    reuse.note(1, u64::MAX - 5, u64::MAX);
    reuse.note(1, 0, u64::MAX);
    assert!(reuse.references() <= 1 + REQUEST_BLOCKS_MAX);
}

#[test]
fn merged_curves_are_the_mean_of_both() {
    let (mut one, mut other) = (Reuse::default(), Reuse::default());
    (0..20u64).for_each(|_| (0..5000).for_each(|block| note(&mut one, block)));
    (0..100_000).for_each(|block| note(&mut other, 1 << 40 | block));
    let mut merged = one.clone();
    merged.merge(&other);
    assert_eq!(merged.references(), 200_000);
    let told = merged.miss_ratio(10_000 * CACHE_BLOCK_BYTES).unwrap();
    assert!((told - 0.525).abs() < 0.06, "{told}");
    // It goes on after that.
    (0..100_000).for_each(|block| note(&mut merged, 2 << 40 | block));
    assert_eq!(merged.references(), 300_000);
}

#[test]
fn counting_anew_keeps_the_order() {
    let mut reuse = Reuse::default();
    (0..2000).for_each(|block| note(&mut reuse, block));
    let order = |reuse: &Reuse| {
        let mut places: Vec<usize> = (0..reuse.used).collect();
        places.sort_by_key(|place| reuse.ticks[*place]);
        places
    };
    let before = order(&reuse);
    reuse.tick = u32::MAX;
    reuse.renumber();
    assert_eq!(order(&reuse), before);
    assert_eq!(reuse.tick as usize, reuse.used);
}
