//! Records of files: encrypted on their own, each bound to the file and the place that it is for.
//!
//! Stored: header of 8 bytes, nonce, ciphertext, tag. The header tells the key's number to those who have nothing but segments.

use crate::aead::{self, NONCE_BYTES, TAG_BYTES};
use crate::error::CryptError;
use crate::key::DataKey;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;
/// What an encrypted record has more than its content.
pub const RECORD_EXTRA_BYTES: usize = HEADER_BYTES + NONCE_BYTES + TAG_BYTES;

/// What a record is for; it opens nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Of the file.
    pub inode: u64,
    /// Where in the file the record's content begins, modulo 2^64.
    pub offset: u64,
    /// Bytes of content, before it was compressed.
    pub logical_bytes: u32,
    /// The blob's encoding.
    pub encoding: u8,
}

fn header(number: u16) -> [u8; HEADER_BYTES] {
    let [low, high] = number.to_le_bytes();
    [VERSION, 0, low, high, 0, 0, 0, 0]
}

fn associated(header: &[u8; HEADER_BYTES], place: &Place) -> [u8; HEADER_BYTES + 21] {
    let mut bytes = [0; HEADER_BYTES + 21];
    bytes[..8].copy_from_slice(header);
    bytes[8..16].copy_from_slice(&place.inode.to_le_bytes());
    bytes[16..24].copy_from_slice(&place.offset.to_le_bytes());
    bytes[24..28].copy_from_slice(&place.logical_bytes.to_le_bytes());
    bytes[28] = place.encoding;
    bytes
}

/// Makes `stored` the record as it is stored. `nonce` is from the keyring, for this record alone.
pub fn seal_record(key: &DataKey, nonce: &[u8; NONCE_BYTES], place: &Place, content: &[u8], stored: &mut Vec<u8>) {
    assert!(place.logical_bytes > 0, "a record has a content");
    let header = header(key.number());
    stored.clear();
    stored.reserve(content.len() + RECORD_EXTRA_BYTES);
    stored.extend_from_slice(&header);
    stored.extend_from_slice(nonce);
    stored.extend_from_slice(content);
    let associated = associated(&header, place);
    let body = &mut stored[HEADER_BYTES + NONCE_BYTES..];
    let tag = aead::seal(&key.of_file(place.inode), nonce, &associated, body);
    stored.extend_from_slice(&tag);
    assert_eq!(stored.len(), content.len() + RECORD_EXTRA_BYTES);
}

/// The number of the key that a stored record says it is encrypted with.
pub fn record_key(stored: &[u8]) -> Result<u16, CryptError> {
    match stored {
        [VERSION, 0, low, high, 0, 0, 0, 0, ..] if stored.len() >= RECORD_EXTRA_BYTES => {
            Ok(u16::from_le_bytes([*low, *high]))
        }
        _ => Err(CryptError::Malformed("encrypted record")),
    }
}

/// What was encrypted, in the place of the ciphertext.
pub fn open_record<'a>(key: &DataKey, place: &Place, stored: &'a mut [u8]) -> Result<&'a [u8], CryptError> {
    let (number, stored_bytes) = (record_key(stored)?, stored.len());
    if number != key.number() {
        return Err(CryptError::NotAuthentic("encrypted record"));
    }
    let (start, body) = stored.split_at_mut(HEADER_BYTES + NONCE_BYTES);
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(&start[HEADER_BYTES..]);
    let associated = associated(&header(number), place);
    let content = aead::open(&key.of_file(place.inode), &nonce, &associated, body, "encrypted record")?;
    assert_eq!(content.len() + RECORD_EXTRA_BYTES, stored_bytes, "what was put around a record is taken off");
    Ok(content)
}
