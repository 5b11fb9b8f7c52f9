//! The pool's rules, and what they changed: values under keys of the system tree ([`crate::Key::rules`], [`crate::Key::rule_log`]).

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// Texts are at most so long, so that values stay far below what a key may hold.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The pool's rules since some time, until those of the next version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesValue {
    /// When they were loaded, in seconds.
    pub seconds: i64,
    /// The user who loaded them.
    pub user: u32,
    /// As they were written.
    pub text: String,
}

impl RulesValue {
    pub const VERSION: u8 = 1;
    /// Before the text.
    pub const FIXED_BYTES: usize = 20;
    pub const TEXT_BYTES_MAX: usize = TEXT_BYTES_MAX;
    const STRUCTURE: &'static str = "rules of the pool";

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.text.len() <= Self::TEXT_BYTES_MAX, "longer rules are refused before they get here");
        let mut out = start(Self::VERSION, Self::FIXED_BYTES, &self.text);
        out.put_u64(self.seconds as u64);
        out.put_u32(self.user);
        finish(out, Self::FIXED_BYTES, &self.text)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        let length = begin(&mut reader, Self::VERSION)?;
        let (seconds, user) = (reader.u64()? as i64, reader.u32()?);
        let text = reader.utf8(length, "text")?;
        reader.finish()?;
        Ok(Self { seconds, user, text })
    }
}

/// Something that rules changed of a file that existed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLogValue {
    /// When, in seconds.
    pub seconds: i64,
    /// Of which file.
    pub inode: u64,
    /// The version of the pool's rules then.
    pub version: u64,
    /// What, and by which rules.
    pub text: String,
}

impl RuleLogValue {
    pub const VERSION: u8 = 1;
    /// Before the text.
    pub const FIXED_BYTES: usize = 32;
    pub const TEXT_BYTES_MAX: usize = TEXT_BYTES_MAX;
    const STRUCTURE: &'static str = "change by a rule";

    /// A text that is too long is cut: it is for people.
    pub fn encode(&self) -> Vec<u8> {
        let mut length = self.text.len().min(Self::TEXT_BYTES_MAX);
        while !self.text.is_char_boundary(length) {
            length -= 1;
        }
        let text = &self.text[..length];
        let mut out = start(Self::VERSION, Self::FIXED_BYTES, text);
        out.put_u64(self.seconds as u64);
        out.put_u64(self.inode);
        out.put_u64(self.version);
        finish(out, Self::FIXED_BYTES, text)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        let length = begin(&mut reader, Self::VERSION)?;
        let (seconds, inode, version) = (reader.u64()? as i64, reader.u64()?, reader.u64()?);
        let text = reader.utf8(length, "text")?;
        reader.finish()?;
        Ok(Self { seconds, inode, version, text })
    }
}

/// What both begin with: version, reserved bytes, length of the text.
fn start(version: u8, fixed_bytes: usize, text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(fixed_bytes + text.len());
    out.put_u8(version);
    out.put_zeros(3);
    out.put_u32(text.len() as u32);
    out
}

fn finish(mut out: Vec<u8>, fixed_bytes: usize, text: &str) -> Vec<u8> {
    assert_eq!(out.len(), fixed_bytes, "the text begins where the page says");
    out.extend_from_slice(text.as_bytes());
    out
}

/// The length of the text.
fn begin(reader: &mut Reader<'_>, version: u8) -> Result<usize, DecodeError> {
    reader.version(version)?;
    reader.zeros(3)?;
    let length = reader.u32()? as usize;
    reader.check(length <= TEXT_BYTES_MAX, "text length", length as u64)?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_back_as_they_were() {
        let value = RulesValue { seconds: -5, user: 1000, text: "*.jpg copies=3 # für immer\n".into() };
        let bytes = value.encode();
        assert_eq!(bytes.len(), RulesValue::FIXED_BYTES + value.text.len());
        assert_eq!(RulesValue::decode(&bytes).unwrap(), value);
        assert!(RulesValue::decode(&[&bytes[..], b"x"].concat()).is_err());
        let longest = RulesValue { text: "x".repeat(RulesValue::TEXT_BYTES_MAX), ..value };
        assert_eq!(RulesValue::decode(&longest.encode()).unwrap(), longest);
    }

    #[test]
    fn a_long_text_of_the_log_is_cut_between_characters() {
        let long = "ü".repeat(RuleLogValue::TEXT_BYTES_MAX);
        let value = RuleLogValue { seconds: 7, inode: 8, version: 9, text: format!("x{long}") };
        let found = RuleLogValue::decode(&value.encode()).unwrap();
        assert_eq!(found.text.len(), RuleLogValue::TEXT_BYTES_MAX - 1);
        assert!(value.text.starts_with(&found.text));
        assert_eq!((found.seconds, found.inode, found.version), (7, 8, 9));
    }

    #[test]
    fn what_is_no_text_or_too_long_is_refused() {
        let mut bytes = RuleLogValue { seconds: 1, inode: 2, version: 3, text: "x".into() }.encode();
        *bytes.last_mut().unwrap() = 0xff;
        assert!(matches!(RuleLogValue::decode(&bytes), Err(DecodeError::NotText { .. })));
        bytes[4..8].copy_from_slice(&(TEXT_BYTES_MAX as u32 + 1).to_le_bytes());
        assert!(matches!(RuleLogValue::decode(&bytes), Err(DecodeError::OutOfRange { .. })));
    }
}
