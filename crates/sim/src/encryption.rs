//! Encryption in histories: keys, what is encrypted, and what must not be found on devices and volumes then.
//!
//! A history encrypts nothing, everything from its first operation on, or files and directories here and there. Keys are unlocked at each
//! mount, and locked for a moment at each check. Contents, names and crashes are judged as in any other history; besides, no nonce
//! comes twice for other bytes, and where everything is encrypted no sector of any file's content and no name is found anywhere.
//! Read next: `history.rs`, `docs/design/encryption.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use stere_format::{BlobValue, Key};
use stere_naming::{Error, FileSystem, Io, KeySeed, OpenFlags, PassphraseCost, Secret, SetMode, WrappingSeed};
use zeroize::Zeroizing;

use crate::history::{Budget, History, Plan, Stop};
use crate::medium::SECTOR;
use crate::model::ROOT;
use crate::operation::NAMES;
use crate::pool::{caller, superuser};
use crate::retention;

/// What a history encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encrypts {
    Nothing,
    Some,
    Everything,
}

pub(crate) const ATTRIBUTE: &[u8] = b"user.stere.encrypt";
/// The pool's keys; the first is its default.
const KEYS: [&str; 2] = ["main", "other"];
/// What files and directories of a history that encrypts some of them are told.
const WISHES: [&[u8]; 4] = [b"yes", b"other", b"no", b"main"];
/// The least a key derivation may cost: nobody attacks a simulated pool.
const COST: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
/// A name that files get, and that nothing else looks like.
const TELLING_NAME: &[u8] = NAMES[6];
/// Where in a stored record its nonce is.
const NONCE: std::ops::Range<usize> = 8..32;

/// What is under each nonce that was seen, by hash.
pub(crate) type Nonces = BTreeMap<Vec<u8>, u64>;

fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![3; 32]))
}

/// Unlocks all keys there are, as whoever mounts does.
pub(crate) fn unlock(files: &FileSystem) -> Result<(), String> {
    files.encryption().unlock_keys(None, &secret()).map(drop).map_err(|error| format!("unlock: {error}"))
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl Plan {
    pub(crate) fn encrypts(&self) -> Encrypts {
        self.pool.encrypts
    }

    /// Whether some files are encrypted.
    pub(crate) fn may_be_encrypted(&self) -> bool {
        self.encrypts() != Encrypts::Nothing
    }
}

/// Makes the keys of a new pool, and encrypts its root where everything is to be encrypted.
pub(crate) fn begin_encryption(history: &mut History) -> Result<(), String> {
    if history.plan.encrypts() == Encrypts::Nothing {
        return Ok(());
    }
    let files = &history.mounted().files;
    for (number, name) in (1..).zip(KEYS) {
        let wrapping = WrappingSeed { salt: [number; 16], nonce: [number; 24] };
        let seed = KeySeed { key: Zeroizing::new([number; 32]), wrapping };
        let made = files.encryption().create_key(&caller(&history.machine), name, &secret(), COST, &seed);
        made.map_err(|error| format!("making a key: {error}"))?;
    }
    if history.plan.encrypts() == Encrypts::Everything {
        let user = superuser(&history.machine);
        let set = files.setxattr(&user, ROOT, ATTRIBUTE, b"yes", SetMode::Any, false);
        set.and_then(|()| files.syncfs(&user)).map_err(|error| format!("encrypting everything: {error}"))?;
    }
    Ok(())
}

/// In a history that encrypts some things, this one is to be encrypted, or not, from now on.
pub(crate) fn wish_encryption(history: &mut History, inode: u64, pick: usize) -> Result<(), Stop> {
    if history.plan.encrypts() != Encrypts::Some {
        return Ok(());
    }
    let (user, value) = (superuser(&history.machine), WISHES[pick % WISHES.len()]);
    match history.mounted().files.setxattr(&user, inode, ATTRIBUTE, value, SetMode::Any, false) {
        Ok(()) => {}
        Err(Error::NoSpace) if history.plan.may_fill => return Ok(()),
        Err(error) if retention::is_of_retention(&history.model, inode, &error) => return Ok(()),
        Err(error) => return Err(history.unexpected("setxattr of encryption", error.errno(), &error.to_string())),
    }
    let kept = history.mounted().files.getxattr(&user, inode, ATTRIBUTE);
    match history.must("getxattr of encryption", kept)? == value {
        true => Ok(()),
        false => Err(Stop::Failure("what was said of encryption is not there".into())),
    }
}

/// Locks a key and unlocks it again: meanwhile nothing that it encrypts can be opened. And no nonce is there twice.
pub(crate) fn check_encryption(history: &mut History) -> Result<(), Stop> {
    if history.plan.encrypts() == Encrypts::Nothing {
        return Ok(());
    }
    let locked = history.mounted().files.encryption().lock_key(&caller(&history.machine), KEYS[0]);
    if matches!(locked, Err(Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    // What no copy gives any more may be the record of the key.
    let is_unknown = locked.as_ref().is_err_and(|error| error.errno() == libc::EINVAL);
    if is_unknown && history.plan.budget == Budget::Beyond && !history.machine.faults_struck().is_empty() {
        return Ok(());
    }
    history.must("locking a key", locked)?;
    history.note_commit();
    let refused = check_refused(history);
    let unlocked = unlock(&history.mounted().files);
    refused?;
    unlocked.map_err(|text| history.unexpected("unlocking", libc::EIO, &text))?;
    note_nonces(history)
}

/// While its key is locked, a file is not opened, whatever it is wanted for.
fn check_refused(history: &mut History) -> Result<(), Stop> {
    if history.plan.encrypts() != Encrypts::Everything {
        return Ok(());
    }
    let named = history.model.nodes.iter().find(|(_, node)| node.content().is_some() && node.nlink > 0);
    let Some(inode) = named.map(|(inode, _)| *inode) else { return Ok(()) };
    let flags = OpenFlags { write: false, truncate: false, exclusive: false, read: true };
    match history.mounted().files.open(&caller(&history.machine), inode, flags) {
        Err(Error::Key(_)) => Ok(()),
        Err(error) => Err(history.unexpected("open under a locked key", error.errno(), &error.to_string())),
        // Where older states may come back, so may the root before it was encrypted.
        Ok(handle) if history.plan.budget == Budget::Beyond => {
            let released = history.mounted().files.release(&caller(&history.machine), inode, handle);
            history.must("release", released)
        }
        Ok(_) => Err(Stop::Failure(format!("{} was opened under a locked key", history.model.path_of(inode)))),
    }
}

/// A nonce that comes again is of the same record, which moved.
fn note_nonces(history: &mut History) -> Result<(), Stop> {
    let store = history.mounted().store.clone();
    let mut encrypted = Vec::new();
    let listed = store.for_each_key(Key::blob(0), Key::blob(u64::MAX), |key, bytes| {
        let is_encrypted = BlobValue::decode(bytes).is_ok_and(|value| value.key != 0);
        encrypted.extend(is_encrypted.then_some(key.object));
    });
    history.must("listing blobs", listed.map_err(Error::from))?;
    for blob in encrypted {
        let Ok(handle) = store.view(Io::BLOCKING, |view| view.blob(blob)) else { continue };
        let mut stored = vec![0; handle.value.address.length as usize];
        // Damage is judged where contents are read.
        if store.read_stored(Io::BLOCKING, vec![(&handle, &mut stored[..])]).is_err() {
            continue;
        }
        let under = hash_of(&stored[NONCE.end..]);
        let before = history.nonces.insert(stored[NONCE].to_vec(), under);
        if before.is_some_and(|before| before != under) {
            return Err(Stop::Failure(format!("a nonce was used twice: blob {blob}")));
        }
    }
    Ok(())
}

/// Where everything is encrypted, no device and no volume has a sector of what a file holds.
pub(crate) fn search_clear(history: &History) -> Result<(), Stop> {
    if history.plan.encrypts() != Encrypts::Everything || history.plan.budget == Budget::Beyond {
        return Ok(());
    }
    let mut sectors = BTreeSet::new();
    for content in history.model.nodes.values().filter_map(|node| node.content()) {
        content.each_block(&mut |block| sectors.extend(block.chunks_exact(SECTOR).filter(is_telling).map(hash_of)));
    }
    let is_content = |bytes: &[u8]| bytes.chunks_exact(SECTOR).any(|sector| sectors.contains(&hash_of(sector)));
    let is_name = |bytes: &[u8]| bytes.windows(TELLING_NAME.len()).any(|window| window == TELLING_NAME);
    let is_clear = |bytes: &[u8]| is_content(bytes) || is_name(bytes);
    for (device, medium) in history.machine.images().iter().enumerate() {
        if medium.any_page(&is_clear) {
            return Err(Stop::Failure(format!("device {device} holds content or a name in the clear")));
        }
    }
    match history.machine.any_object(&is_clear) {
        Some(object) => Err(Stop::Failure(format!("object {object} holds content or a name in the clear"))),
        None => Ok(()),
    }
}

/// Sectors of one byte are everywhere.
fn is_telling(sector: &&[u8]) -> bool {
    sector.iter().any(|byte| *byte != sector[0])
}
