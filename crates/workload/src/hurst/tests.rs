//! Both estimators on fractional Gaussian noise of known H, made by Davies and Harte's method.

use super::*;
use crate::distinct::mixed;

/// Normal numbers from a seed.
struct Normal {
    seed: u64,
    step: u64,
}

impl Normal {
    fn uniform(&mut self) -> f64 {
        self.step += 1;
        let number = mixed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mixed(self.step));
        ((number >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Two independent ones (Box and Muller).
    fn pair(&mut self) -> (f64, f64) {
        let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), std::f64::consts::TAU * self.uniform());
        (radius * angle.cos(), radius * angle.sin())
    }
}

/// The discrete Fourier transform in place; the length is a power of two.
fn fourier(values: &mut [(f64, f64)]) {
    let length = values.len();
    let bits = length.trailing_zeros();
    for index in 0..length {
        let other = index.reverse_bits() >> (usize::BITS - bits);
        if index < other {
            values.swap(index, other);
        }
    }
    let mut half = 1;
    while half < length {
        let factors: Vec<(f64, f64)> = (0..half)
            .map(|step| (std::f64::consts::PI * step as f64 / half as f64).sin_cos())
            .map(|(sine, cosine)| (cosine, -sine))
            .collect();
        for block in values.chunks_exact_mut(2 * half) {
            let (left, right) = block.split_at_mut(half);
            for ((left, right), factor) in left.iter_mut().zip(right).zip(&factors) {
                let turned = (right.0 * factor.0 - right.1 * factor.1, right.0 * factor.1 + right.1 * factor.0);
                *right = (left.0 - turned.0, left.1 - turned.1);
                *left = (left.0 + turned.0, left.1 + turned.1);
            }
        }
        half *= 2;
    }
}

/// Fractional Gaussian noise: the covariance is embedded in a circle, whose eigenvalues a transform gives.
fn noise(hurst: f64, length: usize, seed: u64) -> Vec<f64> {
    let power = |lag: f64| lag.abs().powf(2.0 * hurst);
    let covariance = |lag: usize| {
        let lag = lag as f64;
        (power(lag + 1.0) - 2.0 * power(lag) + power(lag - 1.0)) / 2.0
    };
    let circle = 2 * length;
    let mut values: Vec<(f64, f64)> = (0..circle).map(|index| (covariance(index.min(circle - index)), 0.0)).collect();
    fourier(&mut values);
    let mut normal = Normal { seed, step: 0 };
    for value in &mut values {
        let (real, imaginary) = normal.pair();
        assert!(value.0 > -1e-6, "the embedding has no negative eigenvalue");
        let scale = (value.0.max(0.0) / circle as f64).sqrt();
        *value = (scale * real, scale * imaginary);
    }
    fourier(&mut values);
    values.truncate(length);
    values.into_iter().map(|(real, _)| real).collect()
}

fn of(counts: impl IntoIterator<Item = f64>) -> Dependence {
    let mut dependence = Dependence::default();
    dependence.push_counts(counts);
    dependence
}

/// Mean of the estimates over seeds, their greatest error, and how many intervals hold the true H.
fn figures(estimate: impl Fn(&Dependence) -> Hurst, hurst: f64, seeds: u64, length: usize) -> (f64, f64, usize) {
    let (mut sum, mut worst, mut inside) = (0.0, 0.0f64, 0);
    for seed in 0..seeds {
        let told = estimate(&of(noise(hurst, length, seed).into_iter().map(|value| 100.0 + 40.0 * value)));
        sum += told.value;
        worst = worst.max((told.value - hurst).abs());
        let (low, high) = told.interval();
        inside += usize::from((low..=high).contains(&hurst));
    }
    (sum / seeds as f64, worst, inside)
}

#[test]
fn both_find_the_hurst_parameter_of_fractional_noise() {
    for hurst in [0.5, 0.7, 0.9] {
        for (name, estimate) in [("variance-time", by_variance_time as fn(&_) -> _), ("Haar", by_haar)] {
            let (mean, worst, inside) = figures(|dependence| estimate(dependence).unwrap(), hurst, 12, 1 << 17);
            println!("H = {hurst}: {name} {mean:.4}, worst error {worst:.4}, {inside} of 12 inside");
            assert!((mean - hurst).abs() < 0.02, "{name} finds {mean} for {hurst}");
            assert!(worst < 0.05, "{name} errs by {worst} for {hurst}");
            assert!(inside >= 9, "{name}: {inside} of 12 intervals hold {hurst}");
        }
    }
}

/// Why the variances are corrected: with their own mean they are too small, the more so the longer the bins.
#[test]
fn without_the_correction_the_slope_is_too_steep() {
    let slope_of = |points: &[VariancePoint], value: fn(&VariancePoint) -> f64| {
        let points: Vec<_> =
            points.iter().map(|point| ((point.bins as f64).log2(), value(point).log2(), 1.0)).collect();
        line_through(&points).slope
    };
    let (mut plain, mut corrected) = (0.0, 0.0);
    for seed in 0..12 {
        let points = variance_points(&of(noise(0.9, 1 << 16, seed)), 0.9);
        plain += (1.0 + slope_of(&points, |point| point.variance) / 2.0) / 12.0;
        corrected += (1.0 + slope_of(&points, |point| point.corrected) / 2.0) / 12.0;
    }
    println!("H = 0.9: {plain:.4} without the correction, {corrected:.4} with it");
    assert!(plain < 0.88 && (corrected - 0.9).abs() < 0.01, "{plain} {corrected}");
}

#[test]
fn independent_arrivals_have_one_half() {
    let mut dependence = Dependence::default();
    let (mut normal, mut at) = (Normal { seed: 5, step: 0 }, 0.0);
    for _ in 0..400_000 {
        at += -normal.uniform().ln() * 250_000.0;
        dependence.note(at as u64);
    }
    let (variance, haar) = (by_variance_time(&dependence).unwrap(), by_haar(&dependence).unwrap());
    assert!((variance.value - 0.5).abs() < 0.05, "{variance:?}");
    assert!((haar.value - 0.5).abs() < 0.05, "{haar:?}");
}

#[test]
fn a_trend_of_short_memory_is_left_out_of_the_octaves() {
    // A mean that lasts 30 bins and is drawn anew: H is 0.5 beyond that.
    let mut normal = Normal { seed: 9, step: 0 };
    let mut level = 0.0;
    let counts = (0..1 << 17).map(|bin| {
        if bin % 30 == 0 {
            level = normal.pair().0 * 40.0;
        }
        200.0 + level + normal.pair().0
    });
    let haar = by_haar(&of(counts)).unwrap();
    assert!(haar.first_level >= 4 && (haar.value - 0.5).abs() < 0.1, "{haar:?}");
}

#[test]
fn too_little_says_how_much_is_missing() {
    let needed = BINS_NEEDED;
    assert_eq!(by_haar(&Dependence::default()), Err(TooLittleData::Bins { bins: 0, needed }));
    assert_eq!(by_variance_time(&of([1.0; 100])), Err(TooLittleData::Bins { bins: 100, needed }));
    assert_eq!(by_variance_time(&of([1.0; 1000])), Err(TooLittleData::NoVariation));
    assert_eq!(by_haar(&of([7.0; 1000])), Err(TooLittleData::NoVariation));
    let enough = (0..BINS_NEEDED).map(|bin| (mixed(bin) % 10) as f64);
    assert!(by_variance_time(&of(enough.clone())).is_ok());
    assert!(by_haar(&of(enough)).is_ok());
}
