//! How far the index is that searches go by: the value of [`crate::Key::find_index`].

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// What of the index can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindIndexValue {
    /// All entries are to go; then it is built.
    Clearing,
    /// Of inodes below this number every entry is there, and no other of any.
    Built { next: u64 },
}

impl FindIndexValue {
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 16;
    /// Every inode is in it.
    pub const COMPLETE: Self = Self::Built { next: u64::MAX };
    /// What is smaller has no entry for its size.
    pub const SIZE_BYTES_MIN: u64 = 1 << 20;
    const STRUCTURE: &'static str = "find index";

    pub fn encode(&self) -> Vec<u8> {
        let (is_built, next) = match self {
            Self::Clearing => (0, 0),
            Self::Built { next } => (1, *next),
        };
        let mut out = vec![Self::VERSION, is_built];
        out.put_zeros(6);
        out.put_u64(next);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let is_built = reader.u8()?;
        reader.check(is_built <= 1, "state", u64::from(is_built))?;
        reader.zeros(6)?;
        let next = reader.u64()?;
        reader.check(is_built == 1 || next == 0, "inode", next)?;
        reader.finish()?;
        Ok(if is_built == 1 { Self::Built { next } } else { Self::Clearing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_and_what_is_impossible_is_refused() {
        for value in [FindIndexValue::Clearing, FindIndexValue::Built { next: 77 }, FindIndexValue::COMPLETE] {
            assert_eq!(FindIndexValue::decode(&value.encode()), Ok(value));
        }
        let bytes = FindIndexValue::Built { next: 77 }.encode();
        for (at, wrong) in [(0, 2), (1, 2), (1, 0), (2, 1), (7, 1)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(FindIndexValue::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
