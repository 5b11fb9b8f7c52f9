//! A histogram with logarithmic buckets: four for each power of two, of fixed size.
//!
//! Invariants: values below 4 have a bucket each; a bucket is at most a quarter as wide as the values in it, so a quantile is
//! at most 25 % too high. `count`, `sum`, `least` and `greatest` are exact. Buckets are weights of 32 bits: before one would
//! overflow all are halved, and `halvings` says how often, so shapes stay right for ever. Read next: `profile.rs`.

/// Buckets of one histogram; the last one takes everything from 2^49 on.
pub const BUCKETS: usize = 192;

/// More nobody sees: they stand for 2^72 values.
const HALVINGS_MAX: u32 = 40;

/// How often values of each size were seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    weights: [u32; BUCKETS],
    halvings: u32,
    count: u64,
    sum: u128,
    least: u64,
    greatest: u64,
}

/// A histogram taken apart, for those who store or send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramParts {
    /// One for each bucket, from below; buckets at the end that are zero may be left out.
    pub weights: Vec<u32>,
    pub halvings: u32,
    pub count: u64,
    pub sum: u128,
    pub least: u64,
    pub greatest: u64,
}

/// A step of the cumulative distribution: this share of all values lies up to the end of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub start: u64,
    pub end: u64,
    pub share: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { weights: [0; BUCKETS], halvings: 0, count: 0, sum: 0, least: u64::MAX, greatest: 0 }
    }
}

/// The bucket of a value.
#[inline]
pub fn bucket_of(value: u64) -> usize {
    if value < 4 {
        return value as usize;
    }
    let power = 63 - value.leading_zeros() as usize;
    let quarter = (value >> (power - 2)) as usize & 3;
    ((power - 1) * 4 + quarter).min(BUCKETS - 1)
}

/// The least value of a bucket.
pub fn bucket_start(bucket: usize) -> u64 {
    assert!(bucket < BUCKETS, "bucket {bucket} is none");
    if bucket < 4 {
        return bucket as u64;
    }
    let (power, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    (4 + quarter) << (power - 2)
}

/// The greatest value of a bucket.
pub fn bucket_end(bucket: usize) -> u64 {
    if bucket + 1 == BUCKETS { u64::MAX } else { bucket_start(bucket + 1) - 1 }
}

impl Histogram {
    #[inline]
    pub fn note(&mut self, value: u64) {
        self.count += 1;
        self.sum += u128::from(value);
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
        // A value that arrives after n halvings weighs 2^-n, which is counted once in 2^n times.
        if self.halvings > 0 && self.count & ((1 << self.halvings.min(63)) - 1) != 0 {
            return;
        }
        let weight = &mut self.weights[bucket_of(value)];
        *weight += 1;
        if *weight == u32::MAX {
            self.halve();
        }
    }

    #[cold]
    fn halve(&mut self) {
        self.halvings += 1;
        self.weights.iter_mut().for_each(|weight| *weight /= 2);
    }

    /// Adds what another one saw.
    pub fn merge(&mut self, other: &Histogram) {
        let (count, halvings) = (self.count + other.count, self.halvings.max(other.halvings));
        while self.halvings < halvings {
            self.halve();
        }
        let shift = halvings - other.halvings;
        let added = |index: usize| u64::from(other.weights[index].checked_shr(shift).unwrap_or(0));
        let is_over = (0..BUCKETS).any(|index| u64::from(self.weights[index]) + added(index) >= u64::from(u32::MAX));
        let half = u32::from(is_over);
        if is_over {
            self.halve();
        }
        for index in 0..BUCKETS {
            self.weights[index] += (added(index) >> half) as u32;
        }
        self.count = count;
        self.sum += other.sum;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
        assert!(self.count == 0 || self.least <= self.greatest, "a histogram with values has a least one");
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn sum(&self) -> u128 {
        self.sum
    }

    pub fn least(&self) -> Option<u64> {
        (self.count > 0).then_some(self.least)
    }

    pub fn greatest(&self) -> Option<u64> {
        (self.count > 0).then_some(self.greatest)
    }

    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The bucket in which this share of all values ends.
    fn bucket_at(&self, share: f64) -> Option<usize> {
        assert!((0.0..=1.0).contains(&share), "a share of {share} is none");
        let total: u64 = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        let wanted = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        self.weights.iter().position(|weight| {
            seen += u64::from(*weight);
            seen >= wanted
        })
    }

    /// The value that this share of all values does not exceed: the end of its bucket, and never more than the greatest.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let greatest = self.greatest()?;
        Some(self.bucket_at(share).map_or(greatest, |bucket| bucket_end(bucket).clamp(self.least, greatest)))
    }

    /// The same from below: the start of the bucket. Sizes mostly are powers of two, which buckets start at.
    pub fn quantile_size(&self, share: f64) -> Option<u64> {
        let greatest = self.greatest()?;
        Some(self.bucket_at(share).map_or(greatest, |bucket| bucket_start(bucket).clamp(self.least, greatest)))
    }

    /// The share of values that are at most so large, counting a bucket wholly where its end is not beyond `value`.
    pub fn share_up_to(&self, value: u64) -> f64 {
        let total: u64 = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        if total == 0 {
            return 0.0;
        }
        if value >= self.greatest {
            return 1.0;
        }
        let last = bucket_of(value);
        let end = if bucket_end(last) <= value { last + 1 } else { last };
        let below: u64 = self.weights[..end].iter().map(|weight| u64::from(*weight)).sum();
        assert!(below <= total, "a part is no more than all");
        below as f64 / total as f64
    }

    /// The cumulative distribution: one step for each bucket in use.
    pub fn cumulative(&self) -> Vec<Step> {
        let total: u64 = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut seen = 0;
        let in_use = self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0);
        let steps = in_use.map(|(bucket, weight)| {
            seen += u64::from(*weight);
            let share = seen as f64 / total as f64;
            let [start, end] =
                [bucket_start(bucket), bucket_end(bucket)].map(|edge| edge.clamp(self.least, self.greatest));
            Step { start, end, share }
        });
        steps.collect()
    }

    pub fn to_parts(&self) -> HistogramParts {
        let used = self.weights.iter().rposition(|weight| *weight > 0).map_or(0, |last| last + 1);
        assert!(used <= bucket_of(self.greatest) + 1, "no value is beyond the greatest");
        let (halvings, count, sum) = (self.halvings, self.count, self.sum);
        let weights = self.weights[..used].to_vec();
        HistogramParts { weights, halvings, count, sum, least: self.least, greatest: self.greatest }
    }

    /// None where the parts are not those of a histogram.
    pub fn from_parts(parts: &HistogramParts) -> Option<Histogram> {
        let HistogramParts { halvings, count, sum, least, greatest, .. } = *parts;
        let total: u64 = parts.weights.iter().map(|weight| u64::from(*weight)).sum();
        let is_empty = count == 0 && total == 0 && sum == 0 && least == u64::MAX && greatest == 0;
        let is_filled = count > 0 && total <= count && least <= greatest && sum >= u128::from(greatest);
        if parts.weights.len() > BUCKETS || halvings > HALVINGS_MAX || !(is_empty || is_filled) {
            return None;
        }
        let mut weights = [0; BUCKETS];
        weights[..parts.weights.len()].copy_from_slice(&parts.weights);
        Some(Histogram { weights, halvings, count, sum, least, greatest })
    }
}

#[cfg(test)]
mod tests;
