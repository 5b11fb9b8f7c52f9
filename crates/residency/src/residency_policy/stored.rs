//! What is set on an inode of what stays on devices: a key of the pool for each, put, taken away and read in one way for all.

use stere_file::Keys;
use stere_format::Key;
use stere_namespace::error::Error;
use stere_policy::{ResidencySetting, ResidencySettings};

const YES: u8 = 1;
const NO: u8 = 2;

/// The key of what is set.
pub fn key_of(keep: ResidencySetting, inode: u64) -> Key {
    match keep {
        ResidencySetting::Pin => Key::pinned(inode),
        ResidencySetting::Unit => Key::unit(inode),
        ResidencySetting::Names => Key::names_age(inode),
        ResidencySetting::Release => Key::release_age(inode),
    }
}

/// How it is stored; none where nothing is set.
pub fn encode_stored(residency: &ResidencySettings, keep: ResidencySetting) -> Option<Vec<u8>> {
    let byte = |is_on: bool| vec![if is_on { YES } else { NO }];
    match keep {
        ResidencySetting::Pin => residency.pin.map(byte),
        ResidencySetting::Unit => residency.unit.map(byte),
        ResidencySetting::Names => residency.names_seconds.map(|seconds| seconds.to_le_bytes().to_vec()),
        ResidencySetting::Release => residency.release_seconds.map(|seconds| seconds.to_le_bytes().to_vec()),
    }
}

/// What is set on an inode.
pub fn own(keys: &impl Keys, inode: u64) -> Result<ResidencySettings, Error> {
    let is_on = |bytes: Option<_>| bytes.map(|bytes: stere_store::Value| bytes.first() == Some(&YES));
    let seconds = |bytes: Option<stere_store::Value>| Some(u64::from_le_bytes(bytes?[..].try_into().ok()?));
    Ok(ResidencySettings {
        pin: is_on(keys.value(&key_of(ResidencySetting::Pin, inode))?),
        unit: is_on(keys.value(&key_of(ResidencySetting::Unit, inode))?),
        names_seconds: seconds(keys.value(&key_of(ResidencySetting::Names, inode))?),
        release_seconds: seconds(keys.value(&key_of(ResidencySetting::Release, inode))?),
    })
}
