//! The keys of a pool: which there are, which are unlocked, and nonces for what is encrypted with them.
//!
//! A pool without keys pays one look at a flag. Locking has two steps, so that what was accepted before the first can still be
//! encrypted before the second. Invariant: a nonce is a salt that is new with every mount and a number that is new within it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use stere_format::EncryptionKey;
use stere_policy::Encryption;

use crate::error::CryptError;
use crate::key::DataKey;

/// Whether a key can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// Nobody has unlocked it.
    Locked,
    /// It can be used.
    Unlocked,
    /// It was removed.
    Removed,
}

enum Held {
    Locked,
    /// For what was accepted before it was locked.
    Closing(Arc<DataKey>),
    Open(Arc<DataKey>),
}

struct Entry {
    record: EncryptionKey,
    held: Held,
}

/// All keys of a pool.
pub struct Keyring {
    entries: RwLock<BTreeMap<u16, Entry>>,
    has_keys: AtomicBool,
    salt: Option<[u8; 16]>,
    counter: AtomicU64,
}

impl Keyring {
    /// A keyring without keys. `salt`: random, new for every mount; without it nothing can be encrypted.
    pub fn new(salt: Option<[u8; 16]>) -> Keyring {
        let (entries, has_keys) = (RwLock::default(), AtomicBool::new(false));
        Keyring { entries, has_keys, salt, counter: AtomicU64::new(0) }
    }

    /// Whether the pool has, or had, any key.
    #[inline]
    pub fn has_keys(&self) -> bool {
        self.has_keys.load(Ordering::Acquire)
    }

    /// Whether there is any key that cannot be used.
    pub fn has_locked(&self) -> bool {
        self.entries.read().values().any(|entry| !matches!(entry.held, Held::Open(_)))
    }

    /// Notes what the pool says of a key; whether it is unlocked stays as it is, unless it was removed.
    pub fn put(&self, record: EncryptionKey) {
        let mut entries = self.entries.write();
        let held = match entries.remove(&record.number) {
            Some(entry) if !record.is_removed() => entry.held,
            _ => Held::Locked,
        };
        entries.insert(record.number, Entry { record, held });
        self.has_keys.store(true, Ordering::Release);
    }

    /// What the pool says of all keys, and whether they can be used.
    pub fn list(&self) -> Vec<(EncryptionKey, KeyState)> {
        let state = |entry: &Entry| match &entry.held {
            _ if entry.record.is_removed() => KeyState::Removed,
            Held::Open(_) => KeyState::Unlocked,
            _ => KeyState::Locked,
        };
        self.entries.read().values().map(|entry| (entry.record.clone(), state(entry))).collect()
    }

    /// What the pool says of a key that was not removed.
    pub fn find(&self, name: &str) -> Option<EncryptionKey> {
        let entries = self.entries.read();
        let mut living = entries.values().map(|entry| &entry.record).filter(|record| !record.is_removed());
        living.find(|record| record.name == name).cloned()
    }

    /// How people call a key.
    pub fn name_of(&self, number: u16) -> Option<String> {
        self.entries.read().get(&number).map(|entry| entry.record.name.clone())
    }

    /// The key that a policy means; none if it means not to encrypt.
    pub fn meant(&self, encryption: Encryption) -> Result<Option<u16>, CryptError> {
        if !encryption.is_on() {
            return Ok(None);
        }
        let entries = self.entries.read();
        let living = |entry: &&Entry| !entry.record.is_removed();
        match encryption.key() {
            Some(number) => match entries.get(&number).filter(living) {
                Some(_) => Ok(Some(number)),
                None => Err(CryptError::NoSuchKey(number)),
            },
            None => {
                let default = entries.values().filter(living).find(|entry| entry.record.is_default);
                default.map(|entry| Some(entry.record.number)).ok_or(CryptError::NoDefaultKey)
            }
        }
    }

    fn key(&self, number: u16, with_closing: bool) -> Result<Arc<DataKey>, CryptError> {
        let entries = self.entries.read();
        let entry = entries.get(&number).filter(|entry| !entry.record.is_removed());
        let entry = entry.ok_or(CryptError::NoSuchKey(number))?;
        match &entry.held {
            Held::Open(key) => Ok(key.clone()),
            Held::Closing(key) if with_closing => Ok(key.clone()),
            _ => Err(CryptError::Locked(entry.record.name.clone())),
        }
    }

    /// A key for whoever begins something.
    pub fn open_key(&self, number: u16) -> Result<Arc<DataKey>, CryptError> {
        self.key(number, false)
    }

    /// A key to finish what was begun before it was locked.
    pub fn closing_key(&self, number: u16) -> Result<Arc<DataKey>, CryptError> {
        self.key(number, true)
    }

    /// All keys that can be used.
    pub fn open_keys(&self) -> Vec<Arc<DataKey>> {
        let entries = self.entries.read();
        let open = |entry: &Entry| match &entry.held {
            Held::Open(key) => Some(key.clone()),
            _ => None,
        };
        entries.values().filter_map(open).collect()
    }

    /// Lets a key be used.
    pub fn unlock(&self, key: DataKey) -> Result<(), CryptError> {
        if self.salt.is_none() {
            return Err(CryptError::NoSalt);
        }
        let mut entries = self.entries.write();
        let number = key.number();
        let entry = entries.get_mut(&number).filter(|entry| !entry.record.is_removed());
        entry.ok_or(CryptError::NoSuchKey(number))?.held = Held::Open(Arc::new(key));
        assert!(self.has_keys(), "key {number} is there, and who looks at the flag finds none");
        Ok(())
    }

    /// From now on nothing new is encrypted or decrypted with a key.
    pub fn begin_lock(&self, number: u16) {
        if let Some(entry) = self.entries.write().get_mut(&number) {
            entry.held = match std::mem::replace(&mut entry.held, Held::Locked) {
                Held::Open(key) | Held::Closing(key) => Held::Closing(key),
                Held::Locked => Held::Locked,
            };
        }
    }

    /// Wipes a key from memory, as soon as the last call that is under way lets go of it.
    pub fn finish_lock(&self, number: u16) {
        if let Some(entry) = self.entries.write().get_mut(&number) {
            entry.held = Held::Locked;
        }
    }

    /// Takes a `begin_lock` back.
    pub fn abandon_lock(&self, number: u16) {
        if let Some(entry) = self.entries.write().get_mut(&number) {
            entry.held = match std::mem::replace(&mut entry.held, Held::Locked) {
                Held::Closing(key) => Held::Open(key),
                other => other,
            };
        }
    }

    /// A nonce that was never used and never will be.
    pub fn nonce(&self) -> Result<[u8; 24], CryptError> {
        let salt = self.salt.ok_or(CryptError::NoSalt)?;
        let number = self.counter.fetch_add(1, Ordering::AcqRel);
        assert!(number < u64::MAX, "a mount does not live to encrypt so many records");
        let mut nonce = [0; 24];
        nonce[..16].copy_from_slice(&salt);
        nonce[16..].copy_from_slice(&number.to_be_bytes());
        Ok(nonce)
    }
}
