//! On which devices data shall lie, and what their nodes shall do with it: numbers, and the words that each stands for.
//!
//! What devices a place means follows from their tags, classes and names as they are now; stored are only the words. Settings for nodes have
//! their words (`compress=zstd`) under such numbers, too.
//! Invariant: numbers from [`PLACE_NUMBER_MIN`] on have a [`PlaceValue`] in the pool for ever. Read next: `docs/design/placement.md`.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// The least number of a place. 0 says nothing, 1 says anywhere.
pub const PLACE_NUMBER_MIN: u8 = 2;
/// Says that data may lie anywhere, whatever is said above.
pub const PLACE_ANYWHERE: u8 = 1;

/// Words for classes of devices, by their number in the device table; 0 is not known, and no place.
pub const DEVICE_CLASS_WORDS: [&str; 5] = ["unknown", "ssd", "hdd", "object", "media"];

/// Where data shall lie, and how nodes shall keep it: numbers of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Site {
    /// Rather there; 0 anywhere.
    pub on: u8,
    /// There and nowhere else; 0 anywhere.
    pub only: u8,
    /// What its nodes are told of it; 0 nothing.
    pub node: u8,
}

impl Site {
    pub const SIZE: usize = 2;
    /// Wherever there is room, and nodes are told nothing.
    pub const ANYWHERE: Site = Site { on: 0, only: 0, node: 0 };

    /// Whether no devices are asked for.
    pub fn is_anywhere(self) -> bool {
        self.on == 0 && self.only == 0
    }

    /// The places; what nodes are told stands elsewhere.
    pub(crate) fn encode_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.on, self.only]);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [on, only] = reader.array()?;
        Ok(Self { on, only, node: 0 })
    }
}

/// The value of [`crate::Key::place`]: devices that have one of these words as a tag, their class or their name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceValue {
    pub words: Vec<String>,
}

impl PlaceValue {
    pub const VERSION: u8 = 1;
    /// Words of one place at most.
    pub const WORDS_MAX: usize = 8;
    /// Bytes of one word at most.
    pub const WORD_BYTES_MAX: usize = 64;
    const STRUCTURE: &'static str = "place";

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.words.len() <= Self::WORDS_MAX, "more words are refused before they get here");
        let mut out = vec![Self::VERSION, self.words.len() as u8];
        for word in &self.words {
            out.put_text(word, Self::WORD_BYTES_MAX);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let count = reader.u8()?;
        reader.check((1..=Self::WORDS_MAX).contains(&usize::from(count)), "count of words", u64::from(count))?;
        let mut words = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let word = reader.text("word")?;
            reader.check((1..=Self::WORD_BYTES_MAX).contains(&word.len()), "length of a word", word.len() as u64)?;
            words.push(word);
        }
        reader.finish()?;
        Ok(Self { words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_as_they_were() {
        let value = PlaceValue { words: vec!["nvme".into(), "ssd".into()] };
        let bytes = value.encode();
        assert_eq!(PlaceValue::decode(&bytes).unwrap(), value);
        assert!(PlaceValue::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(PlaceValue::decode(&[&bytes[..], b"x"].concat()).is_err());
        for (at, wrong) in [(0, 2), (1, 0), (1, 9), (2, 0), (2, 65)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(PlaceValue::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
