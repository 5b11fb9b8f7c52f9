//! Keys for what is encrypted: records of keys that are left, opened with the passphrases and key files that a person gave.
//!
//! Invariants: what does not authenticate at its place is never handed out; keys are in memory only, and wiped when they are let go.
//! Without a secret nothing here opens anything, and the rest is copied as ever. Read next: `content.rs`, `lost.rs`, the crate crypt.

use std::collections::BTreeMap;

use stere_crypt::{CryptError, DataKey, Place, Secret};
use stere_format::{BlobEncoding, EncryptionKey, InodeValue, Key, key};

use crate::error::Error;
use crate::keys::Keys;

/// Of links: the target is encrypted, with the key's number before it.
const ENCRYPTED: u32 = 16;

/// The keys that were opened.
#[derive(Default)]
pub struct Unlocked(BTreeMap<u16, DataKey>);

/// A name or a target that may be encrypted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    Clear(Vec<u8>),
    /// Nobody gave its key.
    Locked,
    /// It was changed, or belongs elsewhere.
    False,
}

impl Opened {
    fn of(outcome: Result<Vec<u8>, CryptError>) -> Opened {
        outcome.map_or(Opened::False, Opened::Clear)
    }
}

impl Unlocked {
    /// Opens what these secrets open. Each must open something: who gave a wrong one is told before anything is copied.
    pub(crate) fn open(keys: &mut Keys, secrets: &[Secret]) -> Result<Unlocked, Error> {
        let mut unlocked = Unlocked::default();
        if secrets.is_empty() {
            return Ok(unlocked);
        }
        let records = records(keys);
        if records.is_empty() {
            return Err(Error::NoKeys);
        }
        for secret in secrets {
            let (mut refused, mut opens) = (None, false);
            for record in &records {
                match stere_crypt::unwrap(record, secret) {
                    Ok((key, _)) => {
                        opens = true;
                        unlocked.0.insert(key.number(), key);
                    }
                    // That another key's secret was tried says less than that this one's was wrong.
                    Err(error @ CryptError::NoSuchWrapping { .. }) => refused = refused.or(Some(error)),
                    Err(error) => refused = Some(error),
                }
            }
            if let Some(error) = refused.filter(|_| !opens) {
                return Err(Error::WrongSecret { detail: error.to_string() });
            }
        }
        Ok(unlocked)
    }

    /// Whether the key of this number was opened.
    pub(crate) fn has(&self, number: u16) -> bool {
        self.0.contains_key(&number)
    }

    /// What was encrypted as the record for this place of a file; none if its key is not there or it does not authenticate. What is
    /// not encrypted is given back as it is.
    pub fn open_record<'a>(&self, place: &Place, stored: &'a mut [u8]) -> Option<&'a [u8]> {
        if !BlobEncoding(place.encoding).is_encrypted() {
            return Some(stored);
        }
        let key = self.0.get(&stere_crypt::record_key(stored).ok()?)?;
        stere_crypt::open_record(key, place, stored).ok()
    }

    /// The content of a record as it is stored: decrypted if it is encrypted, then decompressed.
    pub fn content(&self, place: &Place, mut stored: Vec<u8>) -> Option<Vec<u8>> {
        let encoding = BlobEncoding(place.encoding);
        if !encoding.is_known() || encoding.is_plugged() {
            return None;
        }
        let opened = self.open_record(place, &mut stored)?;
        let mut content = vec![0; place.logical_bytes as usize];
        stere_plugin::decode(encoding.compression(), opened, &mut content).ok()?;
        Some(content)
    }

    /// A name that is encrypted with this key in this directory.
    pub(crate) fn name(&self, number: u16, directory: u64, sealed: &[u8]) -> Opened {
        match self.0.get(&number) {
            Some(key) => Opened::of(key.open_name(directory, sealed)),
            None => Opened::Locked,
        }
    }

    /// The target of a link.
    pub(crate) fn target(&self, inode: u64, value: &InodeValue) -> Opened {
        if value.flags & ENCRYPTED == 0 {
            return Opened::Clear(value.symlink_target.clone());
        }
        let Some((number, sealed)) = value.symlink_target.split_first_chunk::<2>() else { return Opened::False };
        match self.0.get(&u16::from_le_bytes(*number)) {
            Some(key) => Opened::of(key.open_target(inode, sealed)),
            None => Opened::Locked,
        }
    }
}

/// The records of keys that can be found. Those that are damaged or removed open nothing.
fn records(keys: &mut Keys) -> Vec<EncryptionKey> {
    let mut records = Vec::new();
    let mut next = Some(Key::new(key::tree::SYSTEM, 0, 0, 0));
    while let Some(from) = next {
        let batch = keys.scan(from, Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
        next = batch.next;
        let of_keys = batch.entries.iter().filter(|(at, ..)| at.kind == key::kind::ENCRYPTION_KEY);
        let decoded = of_keys.filter_map(|(_, bytes, _)| EncryptionKey::decode(bytes).ok());
        records.extend(decoded.filter(|record| record.number >= 1 && !record.is_removed()));
    }
    records
}

#[cfg(test)]
mod tests;
