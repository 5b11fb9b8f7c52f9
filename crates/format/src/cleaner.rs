//! How segments are chosen for cleaning, as somebody said it for the pool or for a class of devices: the value of one key.
//!
//! Invariants: what nobody said is left to who opens the pool; policies of a later version count as not said. Page:
//! docs/format/key.md.

use crate::error::DecodeError;
use crate::wire::Reader;

/// Which segment is cleaned first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CleanerPolicy {
    /// The one with the fewest live bytes.
    Greedy,
    /// The best ratio of space gained times age to the cost of copying.
    CostBenefit,
    /// The one that was begun first.
    Age,
}

impl CleanerPolicy {
    pub const ALL: [CleanerPolicy; 3] = [CleanerPolicy::Greedy, CleanerPolicy::CostBenefit, CleanerPolicy::Age];

    /// The number on media; 0 is for nothing said.
    pub fn code(self) -> u8 {
        match self {
            CleanerPolicy::Greedy => 1,
            CleanerPolicy::CostBenefit => 2,
            CleanerPolicy::Age => 3,
        }
    }

    pub fn from_code(code: u8) -> Option<CleanerPolicy> {
        CleanerPolicy::ALL.into_iter().find(|policy| policy.code() == code)
    }

    pub fn word(self) -> &'static str {
        match self {
            CleanerPolicy::Greedy => "greedy",
            CleanerPolicy::CostBenefit => "cost-benefit",
            CleanerPolicy::Age => "age",
        }
    }

    pub fn from_word(word: &str) -> Option<CleanerPolicy> {
        CleanerPolicy::ALL.into_iter().find(|policy| policy.word() == word)
    }
}

/// What was said of cleaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanerChoice {
    /// For everything of which nothing else is said.
    pub usual: Option<CleanerPolicy>,
    /// For segments on devices of a class, by its code.
    pub of_class: [Option<CleanerPolicy>; CleanerChoice::CLASSES],
}

impl CleanerChoice {
    const STRUCTURE: &str = "choice of the cleaner";
    const VERSION: u8 = 1;
    /// Codes of classes of devices that can be told apart.
    pub const CLASSES: usize = 5;
    pub const SIZE: usize = 2 + CleanerChoice::CLASSES;

    /// What holds for segments on devices of this class, if anything was said.
    pub fn of(&self, class: u8) -> Option<CleanerPolicy> {
        self.of_class.get(usize::from(class)).copied().flatten().or(self.usual)
    }

    pub fn is_said(&self) -> bool {
        *self != CleanerChoice::default()
    }

    pub fn encode(&self) -> [u8; Self::SIZE] {
        let code = |policy: Option<CleanerPolicy>| policy.map_or(0, CleanerPolicy::code);
        let mut bytes = [Self::VERSION; Self::SIZE];
        bytes[1] = code(self.usual);
        for (byte, policy) in bytes[2..].iter_mut().zip(self.of_class) {
            *byte = code(policy);
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<CleanerChoice, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let usual = CleanerPolicy::from_code(reader.u8()?);
        let codes: [u8; Self::CLASSES] = reader.array()?;
        reader.finish()?;
        Ok(CleanerChoice { usual, of_class: codes.map(CleanerPolicy::from_code) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_back() {
        let mut choice = CleanerChoice { usual: Some(CleanerPolicy::Age), ..CleanerChoice::default() };
        choice.of_class[2] = Some(CleanerPolicy::Greedy);
        let bytes = choice.encode();
        assert_eq!(CleanerChoice::decode(&bytes), Ok(choice));
        assert!((0..bytes.len()).all(|end| CleanerChoice::decode(&bytes[..end]).is_err()));
        assert_eq!(
            [choice.of(2), choice.of(1), choice.of(200)],
            [Some(CleanerPolicy::Greedy), choice.usual, choice.usual]
        );
        // A policy of a later version counts as not said.
        assert_eq!(CleanerChoice::decode(&[1, 9, 0, 0, 1, 0, 0]).map(|choice| choice.usual), Ok(None));
        assert!(CleanerChoice::decode(&[2, 1, 0, 0, 1, 0, 0]).is_err() && !CleanerChoice::default().is_said());
    }
}
