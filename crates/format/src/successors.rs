//! Which segments were recalled after another one: a hint for fetching ahead and for repacking. Losing it harms nothing.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// The value of [`crate::Key::successors`]: segments that were recalled soon after this one, each with how often that was.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Successors(
    /// Segment and weight, at least one of them; no segment twice.
    pub Vec<(u64, u8)>,
);

impl Successors {
    pub const VERSION: u8 = 1;
    /// So many are known of one segment at most.
    pub const COUNT_MAX: usize = 4;
    pub const ENTRY_BYTES: usize = 9;
    const STRUCTURE: &'static str = "segments recalled after another";

    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=Self::COUNT_MAX).contains(&self.0.len()), "an empty list has no value");
        let mut out = Vec::with_capacity(2 + Self::COUNT_MAX * Self::ENTRY_BYTES);
        out.extend_from_slice(&[Self::VERSION, self.0.len() as u8]);
        for (segment, weight) in &self.0 {
            out.put_u64(*segment);
            out.put_u8(*weight);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let count = reader.u8()?;
        if !(1..=Self::COUNT_MAX).contains(&usize::from(count)) {
            return Err(reader.out_of_range("count", u64::from(count)));
        }
        let mut successors: Vec<(u64, u8)> = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (segment, weight) = (reader.u64()?, reader.u8()?);
            if weight == 0 || successors.iter().any(|(known, _)| *known == segment) {
                return Err(reader.out_of_range("successor", segment));
            }
            successors.push((segment, weight));
        }
        reader.finish()?;
        Ok(Self(successors))
    }
}
