//! How far scrubbing is: kept under a key of the system tree, so that a pass goes on after a remount.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// What a pass looks at, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum ScrubPart {
    /// Superblock copies.
    #[default]
    Superblocks = 0,
    /// Mirrors of the journal.
    Journal = 1,
    /// Segments, by id.
    Segments = 2,
}

/// The value of [`crate::Key::scrub`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScrubCursor {
    pub part: ScrubPart,
    /// The next segment, or the one under way.
    pub segment: u64,
    /// The next block of its chunks; 0: it was not begun.
    pub block: u32,
    /// Live bytes found in it so far.
    pub live_bytes: u64,
    /// Passes that came to their end.
    pub passes: u64,
    /// Of the pass under way, as the three below.
    pub bytes_checked: u64,
    pub repaired_blocks: u64,
    /// Places that could not be repaired, and accounts that were not right.
    pub findings: u64,
}

impl ScrubCursor {
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 56;
    const STRUCTURE: &'static str = "scrub cursor";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&[Self::VERSION, self.part as u8, 0, 0]);
        out.put_u32(self.block);
        for value in
            [self.segment, self.live_bytes, self.passes, self.bytes_checked, self.repaired_blocks, self.findings]
        {
            out.put_u64(value);
        }
        assert_eq!(out.len(), Self::SIZE, "a cursor is as long as its page says");
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let part = match reader.u8()? {
            0 => ScrubPart::Superblocks,
            1 => ScrubPart::Journal,
            2 => ScrubPart::Segments,
            other => return Err(reader.out_of_range("part", u64::from(other))),
        };
        reader.zeros(2)?;
        let block = reader.u32()?;
        let cursor = Self {
            part,
            segment: reader.u64()?,
            block,
            live_bytes: reader.u64()?,
            passes: reader.u64()?,
            bytes_checked: reader.u64()?,
            repaired_blocks: reader.u64()?,
            findings: reader.u64()?,
        };
        reader.finish()?;
        Ok(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        let cursor = ScrubCursor {
            part: ScrubPart::Segments,
            segment: 77,
            block: 12,
            live_bytes: 4096,
            passes: 3,
            bytes_checked: 1 << 40,
            repaired_blocks: 5,
            findings: 1,
        };
        let bytes = cursor.encode();
        assert_eq!(bytes.len(), ScrubCursor::SIZE);
        assert_eq!(ScrubCursor::decode(&bytes).unwrap(), cursor);
        assert!(ScrubCursor::decode(&bytes[1..]).is_err());
        assert!(ScrubCursor::decode(&[&bytes[..1], &[9], &bytes[2..]].concat()).is_err());
    }
}
