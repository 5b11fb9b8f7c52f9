//! Wrapping keys: a passphrase or a key file opens them, and nothing of either is on media.

use argon2::{Algorithm, Argon2, Params, Version};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use stere_format::{EncryptionKey, WrappedKey, Wrapping};
use zeroize::Zeroizing;

use crate::aead::{self, KEY_BYTES};
use crate::error::CryptError;
use crate::key::DataKey;

/// A key file is taken for a key: it cannot be stretched.
pub const KEY_FILE_BYTES_MIN: usize = 32;

/// What opens a key; wiped when it is let go.
pub enum Secret {
    /// Chosen by a person.
    Passphrase(Zeroizing<Vec<u8>>),
    /// Random bytes of a file.
    KeyFile(Zeroizing<Vec<u8>>),
}

/// What trying one passphrase costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassphraseCost {
    /// KiB of memory.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Lanes.
    pub lanes: u8,
}

impl Default for PassphraseCost {
    /// The second choice of RFC 9106: 64 MiB.
    fn default() -> PassphraseCost {
        PassphraseCost { memory_kib: 64 << 10, passes: 3, lanes: 4 }
    }
}

/// Random bytes for one wrapping, drawn by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrappingSeed {
    /// For the secret.
    pub salt: [u8; 16],
    /// For the key.
    pub nonce: [u8; 24],
}

struct KeyLength;

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl Secret {
    /// For messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Secret::Passphrase(_) => "passphrase",
            Secret::KeyFile(_) => "key file",
        }
    }

    fn fits(&self, wrapping: &Wrapping) -> bool {
        matches!(
            (self, wrapping),
            (Secret::Passphrase(_), Wrapping::Passphrase { .. }) | (Secret::KeyFile(_), Wrapping::KeyFile)
        )
    }

    /// Refuses what is no secret.
    fn check(&self) -> Result<(), CryptError> {
        match self {
            Secret::Passphrase(passphrase) if passphrase.is_empty() => Err(CryptError::EmptyPassphrase),
            Secret::KeyFile(bytes) if bytes.len() < KEY_FILE_BYTES_MIN => Err(CryptError::KeyFileTooShort),
            _ => Ok(()),
        }
    }

    fn wrapping_key(&self, wrapping: &Wrapping, salt: &[u8; 16]) -> Result<Zeroizing<[u8; KEY_BYTES]>, CryptError> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        match (self, wrapping) {
            (Secret::Passphrase(passphrase), Wrapping::Passphrase { memory_kib, passes, lanes }) => {
                let failed = |error: argon2::Error| CryptError::Argon2(error.to_string());
                let params = Params::new(*memory_kib, *passes, u32::from(*lanes), Some(KEY_BYTES)).map_err(failed)?;
                let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
                argon2.hash_password_into(passphrase, salt, &mut key[..]).map_err(failed)?;
            }
            (Secret::KeyFile(bytes), Wrapping::KeyFile) => {
                let prk = Salt::new(HKDF_SHA256, salt).extract(bytes);
                let info = [&b"stere key file"[..]];
                let material = prk.expand(&info, KeyLength).expect("few bytes are asked for");
                material.fill(&mut key[..]).expect("as many bytes as were asked for");
            }
            _ => return Err(CryptError::Malformed("wrapped key")),
        }
        Ok(key)
    }
}

/// What a wrapping is bound to: the key's number, and all that is said of the wrapping before its nonce.
fn associated(number: u16, wrapping: &Wrapping, salt: &[u8; 16]) -> Vec<u8> {
    let (kind, memory_kib, passes, lanes) = match *wrapping {
        Wrapping::Passphrase { memory_kib, passes, lanes } => (1, memory_kib, passes, lanes),
        Wrapping::KeyFile => (2, 0, 0, 0),
    };
    let mut bytes = b"stere key".to_vec();
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&[kind, lanes, 0, 0]);
    bytes.extend_from_slice(&memory_kib.to_le_bytes());
    bytes.extend_from_slice(&passes.to_le_bytes());
    bytes.extend_from_slice(salt);
    bytes
}

/// The key as it is stored under this secret.
pub fn wrap(
    key: &DataKey,
    secret: &Secret,
    cost: PassphraseCost,
    seed: &WrappingSeed,
) -> Result<WrappedKey, CryptError> {
    secret.check()?;
    let wrapping = match secret {
        Secret::Passphrase(_) => {
            let PassphraseCost { memory_kib, passes, lanes } = cost;
            Wrapping::Passphrase { memory_kib, passes, lanes }
        }
        Secret::KeyFile(_) => Wrapping::KeyFile,
    };
    let wrapping_key = secret.wrapping_key(&wrapping, &seed.salt)?;
    let associated = associated(key.number(), &wrapping, &seed.salt);
    let mut wrapped = [0; 48];
    wrapped[..KEY_BYTES].copy_from_slice(key.bytes());
    let tag = aead::seal(&wrapping_key, &seed.nonce, &associated, &mut wrapped[..KEY_BYTES]);
    wrapped[KEY_BYTES..].copy_from_slice(&tag);
    Ok(WrappedKey { wrapping, salt: seed.salt, nonce: seed.nonce, key: wrapped })
}

/// The key, if the secret opens one of its wrappings, and which.
pub fn unwrap(record: &EncryptionKey, secret: &Secret) -> Result<(DataKey, usize), CryptError> {
    secret.check()?;
    let mut has_tried = false;
    for (index, wrapped) in record.wrapped.iter().enumerate().filter(|(_, one)| secret.fits(&one.wrapping)) {
        has_tried = true;
        let wrapping_key = secret.wrapping_key(&wrapped.wrapping, &wrapped.salt)?;
        let associated = associated(record.number, &wrapped.wrapping, &wrapped.salt);
        let mut bytes = Zeroizing::new(wrapped.key);
        if let Ok(opened) = aead::open(&wrapping_key, &wrapped.nonce, &associated, &mut bytes[..], "key") {
            let mut key = Zeroizing::new([0; KEY_BYTES]);
            key.copy_from_slice(opened);
            return Ok((DataKey::new(record.number, key), index));
        }
    }
    let (kind, name) = (secret.kind(), record.name.clone());
    Err(if has_tried { CryptError::WrongSecret { kind, name } } else { CryptError::NoSuchWrapping { kind, name } })
}
