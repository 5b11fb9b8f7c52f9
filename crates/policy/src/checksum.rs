//! How the stored content of a file is known to be right.
//!
//! On media a byte: 0 nothing said, 1 none, 2 CRC32C, 3 XXH3, 4 BLAKE3. The order is that of how much each can tell.

/// What a policy says about checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Checksum {
    /// Reading does not look at the CRCs.
    None,
    /// A CRC of each block.
    #[default]
    Crc32c,
    /// And XXH3 of the whole record.
    Xxh3,
    /// And BLAKE3 of the whole record.
    Blake3,
}

const _: () = {
    let mut at = 0;
    while at < Checksum::ALL.len() {
        assert!(Checksum::ALL[at] as usize == at, "checksums stand in the order of their codes");
        at += 1;
    }
};

impl Checksum {
    const ALL: [Checksum; 4] = [Checksum::None, Checksum::Crc32c, Checksum::Xxh3, Checksum::Blake3];

    /// The byte on media.
    pub fn code(self) -> u8 {
        self as u8 + 1
    }

    /// What a byte from media says; nothing if it is 0 or unknown.
    pub fn from_code(code: u8) -> Option<Checksum> {
        Checksum::ALL.into_iter().find(|checksum| checksum.code() == code)
    }

    /// What a user wrote.
    pub fn from_text(text: &str) -> Option<Checksum> {
        Checksum::ALL.into_iter().find(|checksum| checksum.text() == text)
    }

    /// As users write it.
    pub fn text(self) -> &'static str {
        match self {
            Checksum::None => "none",
            Checksum::Crc32c => "crc32c",
            Checksum::Xxh3 => "xxh3",
            Checksum::Blake3 => "blake3",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_meant() {
        for (text, code) in [("none", 1), ("crc32c", 2), ("xxh3", 3), ("blake3", 4)] {
            let checksum = Checksum::from_text(text).unwrap();
            assert_eq!((checksum.text(), checksum.code()), (text, code));
            assert_eq!(Checksum::from_code(code), Some(checksum));
        }
        for text in ["", "no", "CRC32C", "sha256", "blake"] {
            assert_eq!(Checksum::from_text(text), None, "{text}");
        }
        assert!(Checksum::from_code(0).is_none() && Checksum::from_code(5).is_none());
    }
}
