//! The Hurst parameter of arrivals, by two estimators: the slope of the variance-time plot, and Haar wavelets.
//!
//! H is 0.5 where requests do not depend on each other, and nearer to 1 the longer they do. Invariants: an estimate rests on
//! at least four levels of at least 64 bins each; otherwise the answer is how much is missing. Counts of independent
//! arrivals vary as much as their mean. The finest levels are left out until variance is ten times the mean, if it ever is:
//! below that they say more of this noise of counting than of dependence. Read next:
//! `picture.rs`, which draws the plot.

use crate::dependence::{Dependence, Level};

/// Levels that a line is fitted through, at least.
const LEVELS_MIN: usize = 4;
/// Bins that a level must have; the logarithm of a variance of fewer is too low, and wild.
const BINS_MIN: u64 = 64;
/// Details that an octave must have; the few of long octaves weigh little.
const DETAILS_MIN: u64 = 32;
/// Bins without which no estimate is possible.
pub const BINS_NEEDED: u64 = BINS_MIN << (LEVELS_MIN - 1);
/// Variance of counts, in means, from which on the noise of counting is below a tenth.
const DISPERSION_CLEAR: f64 = 10.0;
/// Half of the 95 % interval, in standard errors.
const INTERVAL: f64 = 1.96;

/// An estimate and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hurst {
    pub value: f64,
    pub standard_error: f64,
    /// The first level that was used: its bins are so many times doubled.
    pub first_level: usize,
    pub levels: usize,
    /// Of the line through the logarithms (base 2) of variances or energies.
    pub slope: f64,
    pub intercept: f64,
}

impl Hurst {
    /// The 95 % interval.
    pub fn interval(&self) -> (f64, f64) {
        (self.value - INTERVAL * self.standard_error, self.value + INTERVAL * self.standard_error)
    }
}

/// Why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLittleData {
    #[error("too little data: {bins} bins of a millisecond, {needed} are needed")]
    Bins { bins: u64, needed: u64 },
    #[error("arrivals do not vary, so that nothing can be said of their dependence")]
    NoVariation,
}

/// A point of the variance-time plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VariancePoint {
    /// Base bins in one bin.
    pub bins: u64,
    /// Variance of the mean of these bins.
    pub variance: f64,
    /// The same, corrected for the mean that was estimated from the same bins.
    pub corrected: f64,
}

/// The first level and one past the last one that can be used.
fn usable(dependence: &Dependence, is_long: impl Fn(&Level) -> bool) -> Result<std::ops::Range<usize>, TooLittleData> {
    let levels = dependence.levels();
    let end = levels.iter().take_while(|level| is_long(level)).count();
    if end < LEVELS_MIN {
        return Err(TooLittleData::Bins { bins: levels[0].bins, needed: BINS_NEEDED });
    }
    if levels[..end].iter().any(|level| level.variance() <= 0.0 || level.pair_squares <= 0.0) {
        return Err(TooLittleData::NoVariation);
    }
    let is_clear = |level: &Level| level.variance() >= DISPERSION_CLEAR * level.mean;
    let clear = levels[..end].iter().position(is_clear).unwrap_or(0);
    Ok(clear.min(end - LEVELS_MIN)..end)
}

/// A line through points by least squares with weights.
struct Line {
    slope: f64,
    intercept: f64,
    /// What each point's value is multiplied with to give the slope.
    pulls: Vec<f64>,
    /// Variance of the slope, as far as the points lie beside the line.
    residual: f64,
}

fn line_through(points: &[(f64, f64, f64)]) -> Line {
    assert!(points.len() >= 3, "a line through {} points has no error", points.len());
    let weight: f64 = points.iter().map(|(.., w)| w).sum();
    let middle = points.iter().map(|(x, _, w)| x * w).sum::<f64>() / weight;
    let spread: f64 = points.iter().map(|(x, _, w)| w * (x - middle) * (x - middle)).sum();
    let pulls: Vec<f64> = points.iter().map(|(x, _, w)| w * (x - middle) / spread).collect();
    let slope: f64 = points.iter().zip(&pulls).map(|((_, y, _), pull)| y * pull).sum();
    let intercept = points.iter().map(|(_, y, w)| y * w).sum::<f64>() / weight - slope * middle;
    let off = |(x, y, _): &(f64, f64, f64)| y - intercept - slope * x;
    let rest: f64 = points.iter().map(|point| off(point) * off(point)).sum::<f64>() / (points.len() - 2) as f64;
    let residual = pulls.iter().map(|pull| pull * pull * rest).sum();
    Line { slope, intercept, pulls, residual }
}

/// The points of the variance-time plot at all levels with enough bins, corrected for this H.
pub fn variance_points(dependence: &Dependence, hurst: f64) -> Vec<VariancePoint> {
    let levels = dependence.levels().iter().enumerate();
    let enough = levels.take_while(|(_, level)| level.bins >= BINS_MIN);
    let point = |(power, level): (usize, &Level)| {
        let bins = (1u64 << power) as f64;
        let variance = level.variance() / (bins * bins);
        VariancePoint { bins: 1 << power, variance, corrected: variance / kept_share(level.bins, hurst) }
    };
    enough.map(point).collect()
}

/// The share of the variance of so many bins that shows as deviation from their own mean: the mean of all varies by
/// n^(2H-2) of what one bin does, which is much for an H near 1.
fn kept_share(bins: u64, hurst: f64) -> f64 {
    let share = 1.0 - (bins as f64).powf(2.0 * hurst.clamp(0.0, 0.99) - 2.0);
    assert!(share > 0.0 && share <= 1.0, "{share} of the variance of {bins} bins");
    share
}

/// H from the slope of the variance-time plot: 1 - beta/2, where the variance of the mean of m bins falls as m^-beta.
///
/// Variances of many bins are too small, since their mean is estimated from them; for H = 0.9 that costs about 0.05. They are
/// corrected by the H that is sought, until it stays the same.
pub fn by_variance_time(dependence: &Dependence) -> Result<Hurst, TooLittleData> {
    let range = usable(dependence, |level| level.bins >= BINS_MIN)?;
    let fit = |hurst: f64| {
        let points = variance_points(dependence, hurst);
        let used = points.iter().enumerate().filter(|(power, _)| range.contains(power));
        let points: Vec<_> = used.map(|(power, point)| (power as f64, point.corrected.log2(), 1.0)).collect();
        line_through(&points)
    };
    let mut hurst = 0.5;
    let mut line = fit(hurst);
    for _ in 0..100 {
        let next = (1.0 + line.slope / 2.0).clamp(0.0, 0.99);
        let is_settled = (next - hurst).abs() < 1e-6;
        hurst = next;
        line = fit(hurst);
        if is_settled {
            break;
        }
    }
    let standard_error = (line.residual + variance_of_slope(dependence, &line, &range, hurst)).sqrt() / 2.0;
    let value = 1.0 + line.slope / 2.0;
    assert!(range.len() >= LEVELS_MIN, "an estimate rests on {} levels", range.len());
    let (slope, intercept) = (line.slope, line.intercept);
    Ok(Hurst { value, standard_error, first_level: range.start, levels: range.len(), slope, intercept })
}

/// Variance of the slope by chance, although points of different levels come from the same arrivals: two logarithms of
/// variances have the covariance 2/n, n being the bins of the finer level. Long dependence makes fewer bins of them.
fn variance_of_slope(dependence: &Dependence, line: &Line, range: &std::ops::Range<usize>, hurst: f64) -> f64 {
    let levels = &dependence.levels()[range.clone()];
    let effective = |level: &Level| (level.bins as f64).powf((4.0 - 4.0 * hurst).clamp(0.4, 1.0));
    let scale = 2.0 / std::f64::consts::LN_2.powi(2);
    let mut sum = 0.0;
    for (one, pull) in levels.iter().zip(&line.pulls) {
        for (other, other_pull) in levels.iter().zip(&line.pulls) {
            sum += pull * other_pull * scale / effective(one).max(effective(other));
        }
    }
    sum.max(0.0)
}

/// H from the energy of Haar details by octave (Abry and Veitch 1998): it grows as 2^(j(2H-1)). Octaves are weighted by how
/// many details they have. The finest octaves are left out while they do not lie on the line of the others.
pub fn by_haar(dependence: &Dependence) -> Result<Hurst, TooLittleData> {
    let range = usable(dependence, |level| level.pairs >= DETAILS_MIN)?;
    let points: Vec<_> = dependence.levels()[range.clone()].iter().zip(range.clone()).map(octave).collect();
    let fits = |start: usize| {
        let line = line_through(&points[start..]);
        let off = |(x, y, w): &(f64, f64, f64)| (y - line.intercept - line.slope * x).powi(2) * w;
        let freedom = (points.len() - start - 2) as f64;
        let excess = points[start..].iter().map(off).sum::<f64>() / freedom;
        (line, excess, excess <= 1.0 + 4.0 * (2.0 / freedom).sqrt())
    };
    let starts = 0..=points.len() - LEVELS_MIN;
    let start = starts.clone().find(|start| fits(*start).2);
    let start = start.or_else(|| starts.min_by(|one, other| fits(*one).1.total_cmp(&fits(*other).1))).unwrap_or(0);
    let (line, excess, _) = fits(start);
    let spread: f64 = points[start..].iter().zip(&line.pulls).map(|((.., w), pull)| pull * pull / w).sum();
    let standard_error = (spread * excess.max(1.0)).sqrt() / 2.0;
    let levels = points.len() - start;
    assert!(levels >= LEVELS_MIN, "an estimate rests on {levels} octaves");
    let (slope, intercept) = (line.slope, line.intercept);
    Ok(Hurst { value: (slope + 1.0) / 2.0, standard_error, first_level: range.start + start, levels, slope, intercept })
}

/// Octave, logarithm of its energy without the bias of few details, and weight.
fn octave((level, power): (&Level, usize)) -> (f64, f64, f64) {
    let (octave, details) = ((power + 1) as f64, level.pairs as f64);
    let energy = level.pair_squares / details / octave.exp2();
    assert!(energy > 0.0, "octaves without energy are refused before");
    // E(log2 of a mean of n squares) is about log2(E) - 1/(n ln 2), its variance 2/(n ln^2 2).
    let value = energy.log2() + 1.0 / (details * std::f64::consts::LN_2);
    (octave, value, details * std::f64::consts::LN_2.powi(2) / 2.0)
}

#[cfg(test)]
mod tests;
