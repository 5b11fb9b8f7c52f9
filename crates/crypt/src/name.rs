//! Names and targets of links: the same name in the same directory is encrypted to the same bytes, so that it can be looked up.
//!
//! AES-SIV needs no nonce, and what is changed does not authenticate. Zeros behind a name hide its length a little; they cannot be
//! mistaken for a part of it.

use aes_siv::siv::Aes256Siv;
use aes_siv::{KeyInit, Tag};

use crate::error::CryptError;
use crate::key::DataKey;

const TAG_BYTES: usize = 16;
const NAME_BYTES_MAX: usize = 255;
/// Names are made as long as a multiple of this.
const PAD_BYTES: usize = 32;

const NO_HEADERS: [&[u8]; 0] = [];

fn seal(key: &[u8; 64], mut bytes: Vec<u8>) -> Vec<u8> {
    let tag = Aes256Siv::new(key.into()).encrypt_in_place_detached(NO_HEADERS, &mut bytes);
    let tag = tag.expect("no header is no header too many");
    [tag.as_slice(), &bytes].concat()
}

fn open(key: &[u8; 64], sealed: &[u8], what: &'static str) -> Result<Vec<u8>, CryptError> {
    let (tag, bytes) = sealed.split_at_checked(TAG_BYTES).ok_or(CryptError::Malformed(what))?;
    let mut bytes = bytes.to_vec();
    let opened = Aes256Siv::new(key.into()).decrypt_in_place_detached(NO_HEADERS, &mut bytes, Tag::from_slice(tag));
    opened.map_err(|_| CryptError::NotAuthentic(what))?;
    Ok(bytes)
}

impl DataKey {
    /// A name as it is stored in this directory.
    pub fn seal_name(&self, directory: u64, name: &[u8]) -> Vec<u8> {
        assert!((1..=NAME_BYTES_MAX).contains(&name.len()), "a name has 1 to 255 bytes");
        let mut padded = name.to_vec();
        padded.resize(name.len().next_multiple_of(PAD_BYTES).min(NAME_BYTES_MAX), 0);
        seal(&self.of_directory(directory), padded)
    }

    /// The name that was stored in this directory.
    pub fn open_name(&self, directory: u64, sealed: &[u8]) -> Result<Vec<u8>, CryptError> {
        let mut name = open(&self.of_directory(directory), sealed, "encrypted name")?;
        let end = name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        name.truncate(end);
        let is_possible = !name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if is_possible { Ok(name) } else { Err(CryptError::Malformed("encrypted name")) }
    }

    /// A link's target as it is stored.
    pub fn seal_target(&self, inode: u64, target: &[u8]) -> Vec<u8> {
        [&self.number().to_le_bytes()[..], &seal(&self.of_link(inode), target.to_vec())].concat()
    }

    /// The target that was stored; `sealed` without the key's number.
    pub fn open_target(&self, inode: u64, sealed: &[u8]) -> Result<Vec<u8>, CryptError> {
        open(&self.of_link(inode), sealed, "encrypted link")
    }
}

/// What names begin with that nobody can read: the entry's number in its directory is behind it.
pub const OPAQUE_PREFIX: &[u8] = b"locked-";

/// How an entry is shown whose name is encrypted with a locked key.
pub fn opaque_name(sequence: u64) -> Vec<u8> {
    format!("locked-{sequence:016x}").into_bytes()
}

/// The entry that is shown so.
pub fn opaque_sequence(name: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(name.strip_prefix(OPAQUE_PREFIX)?).ok()?;
    let sequence = u64::from_str_radix(digits, 16).ok()?;
    (opaque_name(sequence) == name).then_some(sequence)
}
