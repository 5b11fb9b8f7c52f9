//! How far it is known in which directories files with several names have them: the value of [`crate::Key::named_in_known`].

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// Up to which name that is known, in the order of their keys: of names before this one all are counted, and none of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedInValue {
    pub directory: u64,
    pub sequence: u64,
}

impl NamedInValue {
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 24;
    /// No name is counted yet.
    pub const NOTHING: Self = Self { directory: 0, sequence: 0 };
    /// Every name is.
    pub const ALL: Self = Self { directory: u64::MAX, sequence: u64::MAX };
    const STRUCTURE: &'static str = "directories of files with several names";

    /// Whether a name is counted.
    pub fn counts(&self, directory: u64, sequence: u64) -> bool {
        Self { directory, sequence } < *self
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![Self::VERSION];
        out.put_zeros(7);
        out.put_u64(self.directory);
        out.put_u64(self.sequence);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(7)?;
        let value = Self { directory: reader.u64()?, sequence: reader.u64()? };
        reader.finish()?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_and_what_is_impossible_is_refused() {
        let value = NamedInValue { directory: 7, sequence: 20 };
        for value in [NamedInValue::NOTHING, value, NamedInValue::ALL] {
            assert_eq!(NamedInValue::decode(&value.encode()), Ok(value));
        }
        for (at, wrong) in [(0, 2), (1, 1), (7, 1)] {
            let mut bytes = value.encode();
            bytes[at] = wrong;
            assert!(NamedInValue::decode(&bytes).is_err(), "byte {at}");
        }
        assert!(NamedInValue::decode(&value.encode()[..23]).is_err());
        assert!(value.counts(6, 99) && value.counts(7, 19) && !value.counts(7, 20) && !value.counts(8, 0));
        assert!(NamedInValue::ALL.counts(u64::MAX, 7) && !NamedInValue::NOTHING.counts(0, 0));
    }
}
