//! Digests of files on their way to the daemon.

use serde::{Deserialize, Serialize};

/// What is asked about digests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Somebody is about to read all of this file.
    Begin { inode: u64 },
    /// It came to this, in hexadecimal digits.
    Store { inode: u64, token: u64, algorithm: String, digest: String },
}

/// Of a digest in an attribute.
pub const TEXT_BYTES: usize = 64;

pub fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != TEXT_BYTES || !text.is_ascii() {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_back() {
        let digest = std::array::from_fn(|at| at as u8 * 7);
        assert_eq!(from_hex(&to_hex(&digest)), Some(digest));
        assert_eq!(from_hex("00"), None);
        assert_eq!(from_hex(&"x".repeat(64)), None);
    }
}
