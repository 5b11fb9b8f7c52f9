//! XAES-256-GCM as the C2SP specifies it: AES-256-GCM with a nonce of 192 bits, half of which goes into a key of its own.
//!
//! Chosen because nonces of 96 bits are too short for a salt and a counter, and AES is done by the processor: measured on the
//! machine of the benches, see `docs/design/encryption.md`.

use aes::Aes256;
use aes::cipher::{BlockEncrypt, KeyInit};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::error::CryptError;

pub(crate) const KEY_BYTES: usize = 32;
pub(crate) const NONCE_BYTES: usize = 24;
pub(crate) const TAG_BYTES: usize = 16;

/// The key and the short nonce that a key and a long nonce stand for.
fn derive(key: &[u8; KEY_BYTES], nonce: &[u8; NONCE_BYTES]) -> (LessSafeKey, Nonce) {
    let cipher = Aes256::new(key.into());
    // CMAC of one block with its first subkey, twice.
    let mut mask = aes::Block::default();
    cipher.encrypt_block(&mut mask);
    let doubled = u128::from_be_bytes(mask.into());
    let mask = (doubled << 1) ^ if doubled >> 127 == 1 { 0x87 } else { 0 };
    let (first, last) = nonce.split_at(NONCE_BYTES / 2);
    let mut derived = Zeroizing::new([0; KEY_BYTES]);
    for (half, number) in derived.chunks_exact_mut(16).zip(1u8..) {
        let mut block = [0, number, b'X', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        block[4..].copy_from_slice(first);
        let mut block = aes::Block::from((u128::from_be_bytes(block) ^ mask).to_be_bytes());
        cipher.encrypt_block(&mut block);
        half.copy_from_slice(&block);
    }
    let unbound = UnboundKey::new(&AES_256_GCM, &derived[..]).expect("the key has the length of the algorithm");
    let mut short = [0; 12];
    short.copy_from_slice(last);
    (LessSafeKey::new(unbound), Nonce::assume_unique_for_key(short))
}

/// Encrypts in place; gives the tag.
pub(crate) fn seal(
    key: &[u8; KEY_BYTES],
    nonce: &[u8; NONCE_BYTES],
    associated: &[u8],
    bytes: &mut [u8],
) -> [u8; TAG_BYTES] {
    let (key, nonce) = derive(key, nonce);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(associated), bytes);
    let tag = tag.expect("a record is far below what one nonce can encrypt");
    let mut out = [0; TAG_BYTES];
    out.copy_from_slice(tag.as_ref());
    out
}

/// Decrypts ciphertext and tag behind it in place; gives the plaintext.
pub(crate) fn open<'a>(
    key: &[u8; KEY_BYTES],
    nonce: &[u8; NONCE_BYTES],
    associated: &[u8],
    bytes: &'a mut [u8],
    what: &'static str,
) -> Result<&'a mut [u8], CryptError> {
    let (key, nonce) = derive(key, nonce);
    key.open_in_place(nonce, Aad::from(associated), bytes).map_err(|_| CryptError::NotAuthentic(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The specification's examples.
    #[test]
    fn it_is_xaes_256_gcm() {
        let nonce = *b"ABCDEFGHIJKLMNOPQRSTUVWX";
        for (key, associated, expected) in [
            ([1; 32], &b""[..], "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
            ([3; 32], b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
        ] {
            let mut bytes = b"XAES-256-GCM".to_vec();
            let tag = seal(&key, &nonce, associated, &mut bytes);
            bytes.extend(tag);
            assert_eq!(hex(&bytes), expected);
            assert_eq!(open(&key, &nonce, associated, &mut bytes, "text").unwrap(), b"XAES-256-GCM");
        }
    }
}
