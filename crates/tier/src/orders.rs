//! Which archived segments are released first: a pure function of what is known of their use, the order that was chosen, and the time.
//!
//! The same history gives the same order on every machine: no floating point, and what is equal goes by its number. Read next:
//! `heat.rs`.

use std::cmp::Reverse;

use stere_faults::{Bug, is_planted};
use stere_format::{ReleaseOrder, SegmentHeat, TierPolicy};

/// A segment that may be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub segment: u64,
    /// What it takes on devices.
    pub bytes: u64,
    pub heat: SegmentHeat,
}

/// As often something may be read since it came back and still be of no more worth than what was never read.
const REFERENCES_ONCE: u8 = 1;
/// Binary digits behind the point of logarithms.
const FRACTION_BITS: u32 = 20;

/// The binary logarithm, in 2^-20; of 0 as of 1.
fn logarithm(number: u64) -> u64 {
    let number = number.max(1);
    let whole = u64::from(number.ilog2());
    // Between 1 and 2, with 63 digits behind the point.
    let mut rest = number << number.leading_zeros();
    let mut fraction = 0;
    for _ in 0..FRACTION_BITS {
        let square = u128::from(rest) * u128::from(rest);
        let is_two = square >> 127 == 1;
        fraction = fraction << 1 | u64::from(is_two);
        rest = (square >> if is_two { 64 } else { 63 }) as u64;
        assert!(rest >> 63 == 1, "the rest lies between 1 and 2");
    }
    whole << FRACTION_BITS | fraction
}

impl Candidate {
    pub fn new(segment: u64, bytes: u64, heat: SegmentHeat) -> Candidate {
        Candidate { segment, bytes, heat }
    }

    /// Seconds since it was used; at least one.
    fn age_seconds(&self, now_seconds: i64) -> u64 {
        u64::try_from(now_seconds).unwrap_or(0).saturating_sub(self.heat.used_seconds).max(1)
    }

    /// How much it should go: the greater the sooner.
    fn rank(&self, policy: &TierPolicy, now_seconds: i64) -> (u64, u64) {
        let age = self.age_seconds(now_seconds);
        match policy.order {
            // By logarithms: no power of an age fits anywhere.
            ReleaseOrder::SpaceTime => {
                let power = u64::from(policy.exponent_hundredths) * logarithm(age);
                (power + 100 * logarithm(self.bytes), age)
            }
            ReleaseOrder::LeastRecent => (age, 0),
            ReleaseOrder::Once => (u64::from(self.heat.references <= REFERENCES_ONCE), age),
            ReleaseOrder::Largest => (self.bytes, age),
        }
    }
}

/// Puts those first that are to be released first.
pub fn put_in_order(candidates: &mut [Candidate], policy: &TierPolicy, now_seconds: i64) {
    candidates.sort_by_cached_key(|one| (Reverse(one.rank(policy, now_seconds)), one.segment));
    if is_planted(Bug::LastGoesFirst) {
        candidates.reverse();
    }
}

#[cfg(test)]
mod tests;
