//! Arrivals counted in bins of about a millisecond and in all bins twice, four times... as long, on-line in constant memory.
//!
//! Two levels of one series give what both estimators of the Hurst parameter need: the variance of counts at each length of
//! bins, and the squared differences of neighbours (Haar details). Invariants: level j has bins of 2^j base bins; a bin counts
//! once it is over. A run of empty bins costs one pass over the levels, however long it is. A clock that steps back by more
//! than a second, or a silence of more than an hour, ends the series; the next call begins another, with the same sums.
//! Read next: `hurst.rs`.

/// A base bin is 2^20 ns.
pub const BIN_SHIFT: u32 = 20;
pub const BIN_NS: u64 = 1 << BIN_SHIFT;
/// Levels of bins; the longest bin is 2^31 base bins, or 26 days.
pub const LEVELS: usize = 32;
/// Threads note calls a little out of order: as late as this they count as arrived now.
const LATE_BINS: u64 = 1_000_000_000 >> BIN_SHIFT;
/// A longer silence is the end of a series: a day's pause says nothing of how requests follow each other.
const SILENCE_BINS_MAX: u64 = 3_600_000_000_000 >> BIN_SHIFT;

/// Sums of the bins of one length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    /// Bins that are over.
    pub bins: u64,
    /// Mean count of a bin.
    pub mean: f64,
    /// Sum of squared deviations from the mean.
    squares: f64,
    /// The first bin of a pair whose second one is not over.
    pending: Option<f64>,
    /// Pairs of neighbours.
    pub pairs: u64,
    /// Sum of the squares of their differences.
    pub pair_squares: f64,
}

impl Level {
    /// Adds bins of the same count (Chan's update of mean and squares).
    fn add(&mut self, value: f64, bins: u64) {
        let (before, added) = (self.bins as f64, bins as f64);
        let (all, delta) = (before + added, value - self.mean);
        assert!(bins > 0 && value.is_finite(), "{bins} bins of {value}");
        self.mean += delta * added / all;
        self.squares += delta * delta * before * added / all;
        self.bins += bins;
    }

    /// Variance of counts, as far as deviations from the mean of these very bins show it.
    pub fn variance(&self) -> f64 {
        if self.bins == 0 { 0.0 } else { self.squares / self.bins as f64 }
    }
}

/// Counts of arrivals at all levels.
#[derive(Clone, Debug)]
pub struct Dependence {
    levels: [Level; LEVELS],
    /// The base bin that is open, and its count so far.
    bin: u64,
    in_bin: u64,
    calls: u64,
    series: u32,
}

impl Default for Dependence {
    fn default() -> Self {
        Dependence { levels: [Level::default(); LEVELS], bin: 0, in_bin: 0, calls: 0, series: 0 }
    }
}

impl Dependence {
    /// Notes an arrival.
    #[inline]
    pub fn note(&mut self, at_ns: u64) {
        let bin = at_ns >> BIN_SHIFT;
        self.calls += 1;
        if bin == self.bin && self.series > 0 {
            self.in_bin += 1;
        } else {
            self.note_elsewhere(bin);
        }
    }

    fn note_elsewhere(&mut self, bin: u64) {
        let is_late = bin < self.bin && self.bin - bin <= LATE_BINS;
        if self.series > 0 && is_late {
            self.in_bin += 1;
            return;
        }
        if self.series == 0 || bin < self.bin || bin - self.bin > SILENCE_BINS_MAX {
            self.begin_series(bin);
        } else {
            self.advance(bin);
        }
        self.in_bin += 1;
    }

    /// Bins that the last series did not fill are dropped at all levels.
    fn begin_series(&mut self, bin: u64) {
        self.levels.iter_mut().for_each(|level| level.pending = None);
        (self.bin, self.in_bin) = (bin, 0);
        self.series = self.series.saturating_add(1);
    }

    /// Closes the open bin and the empty ones before `bin`.
    fn advance(&mut self, bin: u64) {
        assert!(bin > self.bin, "bins are closed in order");
        let empty = bin - self.bin - 1;
        self.push(Some(self.in_bin as f64), empty);
        (self.bin, self.in_bin) = (bin, 0);
    }

    /// Adds one series of counts for each bin, for series that did not come as calls.
    pub fn push_counts(&mut self, counts: impl IntoIterator<Item = f64>) {
        self.begin_series(0);
        for count in counts {
            self.calls = self.calls.saturating_add(count.max(0.0) as u64);
            self.push(Some(count), 0);
        }
    }

    /// Adds a bin with this count, if there is one, and so many empty bins after it.
    fn push(&mut self, mut value: Option<f64>, mut empty: u64) {
        for (power, level) in self.levels.iter_mut().enumerate() {
            if value.is_none() && empty == 0 {
                return;
            }
            if let Some(value) = value {
                level.add(value, 1);
            }
            if empty > 0 {
                level.add(0.0, empty);
            }
            // At most the first of the pairs holds anything but two empty bins.
            let front = [level.pending.take(), value];
            let mut front = front.into_iter().flatten();
            let (first, second) = (front.next(), front.next());
            let waiting = u64::from(first.is_some()) + u64::from(second.is_some()) + empty;
            let pairs = waiting / 2;
            let has_sum = first.is_some() && pairs > 0;
            let (left, right) = (first.unwrap_or(0.0), second.unwrap_or(0.0));
            level.pairs += pairs;
            if pairs > 0 {
                level.pair_squares += (left - right) * (left - right);
            }
            if waiting % 2 == 1 {
                // Alone, the one in front is left over; behind pairs it is an empty bin.
                level.pending = Some(if pairs == 0 { left } else { 0.0 });
            }
            assert!(level.pairs * 2 <= level.bins, "level {power}: a bin is in one pair at most");
            value = has_sum.then_some(left + right);
            empty = pairs - u64::from(has_sum);
        }
    }

    /// Pools what two series that know nothing of each other say: deviations stay those from each one's own mean.
    pub fn merge(&mut self, other: &Dependence) {
        for (level, theirs) in self.levels.iter_mut().zip(&other.levels) {
            let bins = level.bins + theirs.bins;
            if bins > 0 {
                let sum = level.mean * level.bins as f64 + theirs.mean * theirs.bins as f64;
                level.mean = sum / bins as f64;
            }
            level.bins = bins;
            assert!(level.mean.is_finite(), "the mean of {bins} bins");
            level.squares += theirs.squares;
            level.pairs += theirs.pairs;
            level.pair_squares += theirs.pair_squares;
        }
        self.calls += other.calls;
        self.series = self.series.saturating_add(other.series);
    }

    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Arrivals, those in the open bin among them.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Series that the clock or a silence cut, and those merged.
    pub fn series(&self) -> u32 {
        self.series
    }

    /// Mean count of a base bin.
    pub fn mean_in_bin(&self) -> f64 {
        self.levels[0].mean
    }
}

#[cfg(test)]
mod tests;
