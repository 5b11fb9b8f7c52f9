//! Digests of the whole content of a file, as somebody who read all of it said: the value of [`crate::Key::content_digest`].
//!
//! Invariant: there is a digest in it; a file of which none is known has no such value.

use crate::error::DecodeError;
use crate::wire::Reader;

/// The digests that are known of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ContentDigests {
    pub sha256: Option<[u8; 32]>,
    pub blake3: Option<[u8; 32]>,
}

const SHA256: u8 = 1;
const BLAKE3: u8 = 2;

impl ContentDigests {
    pub const VERSION: u8 = 1;
    /// Before the first digest.
    pub const FIXED_BYTES: usize = 2;
    const STRUCTURE: &'static str = "digests of content";

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.sha256.is_some() || self.blake3.is_some(), "a value tells of a digest at least");
        let bit = |digest: Option<[u8; 32]>, bit: u8| digest.map_or(0, |_| bit);
        let mut out = vec![Self::VERSION, bit(self.sha256, SHA256) | bit(self.blake3, BLAKE3)];
        for digest in [self.sha256, self.blake3].into_iter().flatten() {
            out.extend_from_slice(&digest);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let there = reader.u8()?;
        reader.check(there != 0 && there & !(SHA256 | BLAKE3) == 0, "which digests", u64::from(there))?;
        let sha256 = if there & SHA256 != 0 { Some(reader.array()?) } else { None };
        let blake3 = if there & BLAKE3 != 0 { Some(reader.array()?) } else { None };
        reader.finish()?;
        Ok(Self { sha256, blake3 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_come_back_as_they_were_and_what_is_impossible_is_refused() {
        let both = ContentDigests { sha256: Some([1; 32]), blake3: Some([2; 32]) };
        for value in [both, ContentDigests { sha256: None, ..both }, ContentDigests { blake3: None, ..both }] {
            assert_eq!(ContentDigests::decode(&value.encode()), Ok(value));
        }
        let bytes = both.encode();
        assert_eq!(bytes.len(), ContentDigests::FIXED_BYTES + 64);
        for (at, wrong) in [(0, 2), (1, 0), (1, 1), (1, 4), (1, 7)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(ContentDigests::decode(&bytes).is_err(), "byte {at}");
        }
        assert!(ContentDigests::decode(&bytes[..65]).is_err());
    }
}
