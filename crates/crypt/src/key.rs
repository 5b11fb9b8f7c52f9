//! One key, and what is derived from it: a key for each file, each directory and each link.

use std::sync::Arc;

use parking_lot::Mutex;
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use rustc_hash::FxHashMap;
use zeroize::Zeroizing;

use crate::aead::KEY_BYTES;
use crate::locked::LockedKey;

/// Directories whose keys are kept: deriving one costs more than a name does.
const KEPT_MAX: usize = 4096;
pub(crate) const NAME_KEY_BYTES: usize = 64;

/// A key of AES-SIV, wiped when it is let go.
pub(crate) type NameKey = Zeroizing<[u8; NAME_KEY_BYTES]>;

/// A key that is unlocked.
pub struct DataKey {
    number: u16,
    bytes: LockedKey,
    directories: Mutex<FxHashMap<u64, Arc<NameKey>>>,
}

impl std::fmt::Debug for DataKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "DataKey #{}", self.number)
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl DataKey {
    /// The key of this number. The caller drew its bytes at random, or unwrapped them.
    pub fn new(number: u16, bytes: Zeroizing<[u8; 32]>) -> DataKey {
        assert!(number >= 1, "keys are counted from 1");
        DataKey { number, bytes: LockedKey::new(&bytes), directories: Mutex::default() }
    }

    /// Its number in the pool.
    pub fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        self.bytes.bytes()
    }

    fn derive(&self, purpose: &[u8], inode: u64, out: &mut [u8]) {
        let prk = Prk::new_less_safe(HKDF_SHA256, &self.bytes.bytes()[..]);
        let info = [purpose, &inode.to_le_bytes()];
        let material = prk.expand(&info, Length(out.len())).expect("few bytes are asked for");
        material.fill(out).expect("as many bytes as were asked for");
    }

    /// For the content of one file.
    pub(crate) fn of_file(&self, inode: u64) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        self.derive(b"stere file", inode, &mut key[..]);
        key
    }

    /// For the names of one directory.
    pub(crate) fn of_directory(&self, inode: u64) -> Arc<NameKey> {
        if let Some(key) = self.directories.lock().get(&inode) {
            return key.clone();
        }
        let mut key = Zeroizing::new([0; NAME_KEY_BYTES]);
        self.derive(b"stere names", inode, &mut key[..]);
        let key = Arc::new(key);
        let mut kept = self.directories.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(inode, key.clone());
        key
    }

    /// For the target of one link.
    pub(crate) fn of_link(&self, inode: u64) -> NameKey {
        let mut key = Zeroizing::new([0; NAME_KEY_BYTES]);
        self.derive(b"stere link", inode, &mut key[..]);
        key
    }
}
