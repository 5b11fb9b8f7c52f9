//! Keys of encryption, as cheap as they can be.

use stere_naming::{FileSystem, KeySeed, PassphraseCost, Secret, WrappingSeed};

use super::caller;

pub const COST: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };

pub fn secret(number: u8) -> Secret {
    Secret::KeyFile(vec![number; 32].into())
}

pub fn create_key(fs: &FileSystem, name: &str, number: u8) {
    let wrapping = WrappingSeed { salt: [number; 16], nonce: [number + 1; 24] };
    let seed = KeySeed { key: [number + 100; 32].into(), wrapping };
    fs.encryption().create_key(&caller(2), name, &secret(number), COST, &seed).unwrap();
}

pub fn unlock(fs: &FileSystem, number: u8) {
    fs.encryption().unlock_keys(None, &secret(number)).unwrap();
    fs.reconciler().pause_reconcile(false);
}
