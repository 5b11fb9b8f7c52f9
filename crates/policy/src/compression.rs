//! How content is compressed: `none`, `lz4`, `zstd`, `zstd:1` to `zstd:19`.
//!
//! On media a byte: 0 nothing said, 1 none, 2 LZ4, 16 + level Zstandard.

/// A way to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Fast, moderate.
    Lz4,
    /// Slower, better, with levels.
    Zstd,
}

/// What a policy says about compression. Only what can be on media can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Compression(u8);

const NONE: u8 = 1;
const LZ4: u8 = 2;
const ZSTD: u8 = 16;
const LEVEL_MAX: u8 = 19;
const LEVEL_DEFAULT: u8 = 3;
const _: () = assert!(NONE < LZ4 && LZ4 <= ZSTD, "the codes of levels lie behind all others");

impl Compression {
    /// Stored as it is.
    pub const NONE: Compression = Compression(NONE);
    /// LZ4.
    pub const LZ4: Compression = Compression(LZ4);
    /// Zstandard at its usual level.
    pub const ZSTD: Compression = Compression(ZSTD + LEVEL_DEFAULT);

    /// The byte on media.
    pub fn code(self) -> u8 {
        self.0.max(NONE)
    }

    /// What a byte from media says; nothing if it is 0 or unknown.
    pub fn from_code(code: u8) -> Option<Compression> {
        let is_known = matches!(code, NONE | LZ4) || (ZSTD + 1..=ZSTD + LEVEL_MAX).contains(&code);
        is_known.then_some(Compression(code))
    }

    /// What a user wrote.
    pub fn from_text(text: &str) -> Option<Compression> {
        match text {
            "none" => Some(Compression::NONE),
            "lz4" => Some(Compression::LZ4),
            "zstd" => Some(Compression::ZSTD),
            _ => {
                let level = text.strip_prefix("zstd:").and_then(crate::number::number)?;
                (1..=LEVEL_MAX).contains(&level).then_some(Compression(ZSTD + level))
            }
        }
    }

    /// As users write it.
    pub fn text(self) -> String {
        let text = match (self.algorithm(), self.level()) {
            (None, _) => "none".into(),
            (Some(Algorithm::Lz4), _) => "lz4".into(),
            (Some(Algorithm::Zstd), LEVEL_DEFAULT) => "zstd".into(),
            (Some(Algorithm::Zstd), level) => format!("zstd:{level}"),
        };
        assert_eq!(
            Compression::from_text(&text).map(Compression::code),
            Some(self.code()),
            "what is shown is read again"
        );
        text
    }

    /// How, if at all.
    pub fn algorithm(self) -> Option<Algorithm> {
        match self.0 {
            0 | NONE => None,
            LZ4 => Some(Algorithm::Lz4),
            _ => Some(Algorithm::Zstd),
        }
    }

    /// The level; 0 where there are none.
    pub fn level(self) -> u8 {
        self.0.saturating_sub(ZSTD)
    }
}

#[cfg(test)]
mod tests;
