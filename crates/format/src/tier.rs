//! What tells which archived segments are released first: how segments were used, in which order they go, and what volumes cost.
//!
//! All of it is optional: a pool without these keys is as if nobody had used or said anything, and losing them loses no data.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// How a segment was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SegmentHeat {
    /// When something in it was used last, in seconds since 1970; 0: nobody knows.
    pub used_seconds: u64,
    /// Times that it was read since it was copied out, or came back to devices, a minute or more apart.
    pub references: u8,
    /// It is on devices because it came back there.
    pub is_back: bool,
}

impl SegmentHeat {
    /// Far beyond any clock.
    pub const USED_SECONDS_MAX: u64 = (1 << 40) - 1;
}

/// How the segments of a page were used: the value of [`crate::Key::heat`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HeatPage {
    /// Segments, rising, with what is known of them.
    pub entries: Vec<(u64, SegmentHeat)>,
}

impl HeatPage {
    pub const VERSION: u8 = 1;
    pub const FIXED_BYTES: usize = 4;
    pub const ENTRY_BYTES: usize = 18;
    /// Segments of one page have the same number divided by this.
    pub const SEGMENTS: u64 = 128;
    const STRUCTURE: &'static str = "use of segments";

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.entries.len() as u64 <= Self::SEGMENTS, "a page holds what belongs in it");
        let mut out = Vec::with_capacity(Self::FIXED_BYTES + self.entries.len() * Self::ENTRY_BYTES);
        out.extend_from_slice(&[Self::VERSION, 0]);
        out.put_u16(self.entries.len() as u16);
        for (segment, heat) in &self.entries {
            out.put_u64(*segment);
            out.put_u64(heat.used_seconds);
            out.extend_from_slice(&[heat.references, u8::from(heat.is_back)]);
        }
        out
    }

    /// Decodes the page of this number.
    pub fn decode(page: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(1)?;
        let count = reader.u16()?;
        reader.check((1..=Self::SEGMENTS).contains(&u64::from(count)), "count of segments", u64::from(count))?;
        let mut entries: Vec<(u64, SegmentHeat)> = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let segment = reader.u64()?;
            reader.check(segment / Self::SEGMENTS == page, "segment of another page", segment)?;
            let is_rising = entries.last().is_none_or(|(last, _)| *last < segment);
            reader.check(is_rising, "order of segments", segment)?;
            let used_seconds = reader.u64()?;
            let is_time = (1..=SegmentHeat::USED_SECONDS_MAX).contains(&used_seconds);
            reader.check(is_time, "time of use", used_seconds)?;
            let [references, flags] = reader.array()?;
            reader.check(flags <= 1, "flags", u64::from(flags))?;
            entries.push((segment, SegmentHeat { used_seconds, references, is_back: flags == 1 }));
        }
        reader.finish()?;
        Ok(Self { entries })
    }
}

/// Which segments are released first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReleaseOrder {
    /// Those with the greatest product of size and a power of the time since they were used.
    #[default]
    SpaceTime,
    /// Those that were used longest ago.
    LeastRecent,
    /// Those that were used at most once since they came back, then the others, each by when they were used.
    Once,
    /// The largest.
    Largest,
}

impl ReleaseOrder {
    const ALL: [(ReleaseOrder, &'static str); 4] = [
        (ReleaseOrder::SpaceTime, "stp"),
        (ReleaseOrder::LeastRecent, "lru"),
        (ReleaseOrder::Once, "once"),
        (ReleaseOrder::Largest, "size"),
    ];

    /// As people say it.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub fn from_word(word: &str) -> Option<ReleaseOrder> {
        Self::ALL.into_iter().find(|(_, other)| *other == word).map(|(order, _)| order)
    }
}

/// In which order segments are released, and how much may have come back: the value of [`crate::Key::tier_policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierPolicy {
    pub order: ReleaseOrder,
    /// The power of the time since the last use, in hundredths.
    pub exponent_hundredths: u16,
    /// What came back to devices takes at most so many bytes there; 0: as much as the marks allow.
    pub cache_bytes: u64,
}

impl Default for TierPolicy {
    fn default() -> TierPolicy {
        TierPolicy { order: ReleaseOrder::default(), exponent_hundredths: 100, cache_bytes: 0 }
    }
}

impl TierPolicy {
    pub const SIZE: usize = 16;
    pub const VERSION: u8 = 1;
    /// Ten.
    pub const EXPONENT_HUNDREDTHS_MAX: u16 = 1000;
    const STRUCTURE: &'static str = "order of release";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&[Self::VERSION, self.order as u8]);
        out.put_u16(self.exponent_hundredths);
        out.put_zeros(4);
        out.put_u64(self.cache_bytes);
        assert_eq!(out.len(), Self::SIZE, "as long as the page says");
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [order]: [u8; 1] = reader.array()?;
        let known = ReleaseOrder::ALL.get(usize::from(order)).map(|(order, _)| *order);
        let order = known.ok_or_else(|| reader.out_of_range("order", u64::from(order)))?;
        let exponent_hundredths = reader.u16()?;
        let is_possible = exponent_hundredths <= Self::EXPONENT_HUNDREDTHS_MAX;
        reader.check(is_possible, "exponent", u64::from(exponent_hundredths))?;
        reader.zeros(4)?;
        let cache_bytes = reader.u64()?;
        reader.finish()?;
        Ok(Self { order, exponent_hundredths, cache_bytes })
    }
}

/// What a volume costs, in millionths of whatever it is paid in: the value of [`crate::Key::volume_prices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VolumePrices {
    /// A thousand requests.
    pub thousand_requests: u64,
    /// A gigabyte (10^9 bytes) that is read from it.
    pub gigabyte_out: u64,
    /// A gigabyte that lies there for a month.
    pub gigabyte_month: u64,
}

impl VolumePrices {
    pub const SIZE: usize = 32;
    pub const VERSION: u8 = 1;
    /// A million.
    pub const MAX: u64 = 1_000_000_000_000;
    const STRUCTURE: &'static str = "prices of a tertiary volume";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&[Self::VERSION]);
        out.put_zeros(7);
        for price in [self.thousand_requests, self.gigabyte_out, self.gigabyte_month] {
            out.put_u64(price);
        }
        assert_eq!(out.len(), Self::SIZE, "as long as the page says");
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(7)?;
        let mut prices = [0; 3];
        for price in &mut prices {
            *price = reader.u64()?;
            reader.check(*price <= Self::MAX, "price", *price)?;
        }
        reader.finish()?;
        let [thousand_requests, gigabyte_out, gigabyte_month] = prices;
        Ok(Self { thousand_requests, gigabyte_out, gigabyte_month })
    }
}

#[cfg(test)]
mod tests;
