//! Passphrases and key files on their way to the daemon, and read from files.
//!
//! Invariant: no copy of a secret stays in memory that was freed.

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stere_naming::Secret;
use zeroize::{Zeroize, Zeroizing};

use stere_machine::error::{At, Result, refused};

/// Passphrases are hardly longer.
const PASSPHRASE_BYTES: usize = 4 << 10;

/// Key files are read so far.
const SECRET_BYTES_MAX: u64 = 1 << 20;

/// A secret on its way to the daemon.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentSecret {
    is_key_file: bool,
    #[serde(deserialize_with = "in_one_place")]
    bytes: Vec<u8>,
}

/// Bytes as they come, without leaving what a vector outgrows behind.
fn in_one_place<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Vec<u8>, D::Error> {
    struct Bytes;

    impl<'de> serde::de::Visitor<'de> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("the bytes of a secret")
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut from: A) -> std::result::Result<Vec<u8>, A::Error> {
            stere_machine::memory::keep_secret();
            let mut bytes = Zeroizing::new(Vec::with_capacity(PASSPHRASE_BYTES));
            while let Some(byte) = from.next_element()? {
                if bytes.len() == bytes.capacity() {
                    let mut larger = Vec::with_capacity(2 * bytes.len());
                    larger.extend_from_slice(&bytes);
                    bytes = Zeroizing::new(larger);
                }
                bytes.push(byte);
            }
            Ok(std::mem::take(&mut *bytes))
        }
    }

    from.deserialize_seq(Bytes)
}

impl Drop for SentSecret {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl std::fmt::Debug for SentSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a secret")
    }
}

impl SentSecret {
    /// What somebody typed, or keeps in a file.
    pub fn passphrase(bytes: Vec<u8>) -> SentSecret {
        SentSecret { is_key_file: false, bytes }
    }

    /// For whoever opens keys with it.
    pub fn into_secret(mut self) -> Secret {
        stere_machine::memory::keep_secret();
        let bytes = Zeroizing::new(std::mem::take(&mut self.bytes));
        if self.is_key_file { Secret::KeyFile(bytes) } else { Secret::Passphrase(bytes) }
    }
}

pub fn read(path: &Path) -> Result<Vec<u8>> {
    stere_machine::memory::keep_secret();
    let file = std::fs::File::open(path).at("open", path)?;
    // In one place from the beginning: what a vector outgrows is not wiped.
    let length = file.metadata().at("read", path)?.len().min(SECRET_BYTES_MAX) as usize;
    let mut bytes = Vec::with_capacity(length + PASSPHRASE_BYTES);
    file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes).at("read", path)?;
    match bytes.len() as u64 > SECRET_BYTES_MAX {
        true => {
            refused(format!("{} is larger than 1 MiB; name a file that holds nothing but the secret", path.display()))
        }
        false => Ok(bytes),
    }
}

/// All bytes of a file.
pub fn key_file(path: &Path) -> Result<SentSecret> {
    Ok(SentSecret { is_key_file: true, bytes: read(path)? })
}
