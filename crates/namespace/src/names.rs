//! Names in directories: found by hash, listed by the sequence in which they were made.
//!
//! Invariants: every name has one entry (key: sequence) and its sequence in the bucket of its hash; a directory's `size`
//! is the sum of `weight` over its names, so that an empty directory has size 0; sequences are never reused, so they are
//! stable readdir cookies. An encrypted name is hashed, weighed and compared as it is stored, so what tells nothing of the name
//! tells nothing of it either; it is removed without its key.

use std::borrow::Cow;
use std::hash::Hasher;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use siphasher::sip::SipHasher13;
use stere_crypt::{CryptError, DataKey, Keyring, opaque_name, opaque_sequence};
use stere_file::Keys;
use stere_format::dirent::DirentView;
use stere_format::{DecodeError, DirentBucket, DirentValue, FileKind, InodeValue, Key};
use stere_store::Transaction;

use crate::error::Error;

/// Longest name.
pub const NAME_BYTES_MAX: usize = 255;
pub const SEQUENCE_FIRST: u64 = InodeValue::DIRENT_SEQUENCE_FIRST;
/// Directories whose names' places are remembered.
const PLACES_MAX: usize = 65_536;
/// What a name adds to its directory's size besides its bytes.
const ENTRY_BYTES: u64 = 24;

/// A name that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub sequence: u64,
    pub inode: u64,
    pub kind: FileKind,
    /// Number of the key that the name is encrypted with; 0 if it is not.
    pub key: u16,
}

/// Flag of directories that have, or had, encrypted names, and of links whose target is encrypted.
pub const ENCRYPTED: u32 = 16;

/// How a name can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// It is stored as it is.
    Plain,
    /// Its key is unlocked.
    Opened,
    /// Its key is not: what is shown stands for it.
    Opaque,
}

/// Hashes names with the pool's key, so that nobody can make names collide on purpose.
#[derive(Clone, Copy)]
pub struct NameHasher(SipHasher13);

impl NameHasher {
    pub fn new(key: &[u8; 16]) -> NameHasher {
        NameHasher(SipHasher13::new_with_key(key))
    }

    #[inline]
    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = self.0;
        hasher.write(name);
        // The last key of a range is exclusive in scans: keep the largest position free.
        hasher.finish() & (u64::MAX >> 1)
    }
}

/// Finds, adds and removes names, encrypted or not.
#[derive(Clone)]
pub struct Names {
    hasher: NameHasher,
    keyring: Arc<Keyring>,
    /// Where in the directory above it a directory's name was found last.
    places: Arc<Mutex<FxHashMap<u64, u64>>>,
}

impl Names {
    pub fn new(hash_key: &[u8; 16], keyring: Arc<Keyring>) -> Names {
        Names { hasher: NameHasher::new(hash_key), keyring, places: Arc::default() }
    }

    /// For those who have no keys.
    pub fn without_keys(hash_key: &[u8; 16]) -> Names {
        Names::new(hash_key, Arc::new(Keyring::new(None)))
    }

    /// A name that an inode has in the directory that it lies in: where it is, and how it is shown. It is looked for at the place that is
    /// known of it before all names are looked through.
    pub fn name_of(&self, keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<Option<(Vec<u8>, Form)>, Error> {
        let shown = |key: &Key, bytes: &[u8]| {
            let entry = DirentView::decode(bytes).ok().filter(|entry| entry.inode == inode)?;
            let (name, form) = self.shown(value.parent, key.position, &entry);
            Some((name.into_owned(), form))
        };
        let known = match value.kind() {
            Some(FileKind::File) if value.nlink == 1 => Some(u64::from(value.rdev)),
            _ => self.places.lock().get(&inode).copied(),
        };
        if let Some(key) = known.map(|sequence| Key::dirent(value.parent, sequence))
            && let Some(bytes) = keys.value(&key)?
            && let Some(name) = shown(&key, &bytes)
        {
            return Ok(Some(name));
        }
        let mut found = None;
        let (first, end) = (Key::dirent(value.parent, 0), Key::dirent(value.parent, u64::MAX));
        assert!(first < end, "names of a directory lie together");
        keys.visit(first, end, &mut |key, bytes| {
            found = shown(key, bytes).map(|name| (key.position, name));
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let Some((sequence, name)) = found else { return Ok(None) };
        if value.kind() == Some(FileKind::Directory) {
            let mut places = self.places.lock();
            if places.len() >= PLACES_MAX {
                places.clear();
            }
            places.insert(inode, sequence);
            assert!(places.len() <= PLACES_MAX, "places of directories are bounded");
        }
        Ok(Some(name))
    }

    /// Looks a name up.
    pub fn find(&self, keys: &impl Keys, directory: u64, name: &[u8]) -> Result<Option<Found>, Error> {
        if let Some(found) = self.find_stored(keys, directory, name, 0)? {
            return Ok(Some(found));
        }
        if !self.keyring.has_keys() {
            return Ok(None);
        }
        self.find_encrypted(keys, directory, name)
    }

    fn find_encrypted(&self, keys: &impl Keys, directory: u64, name: &[u8]) -> Result<Option<Found>, Error> {
        let value = stere_file::inode_if_any(keys, directory)?;
        if value.is_none_or(|value| value.flags & ENCRYPTED == 0) {
            return Ok(None);
        }
        for key in self.keyring.open_keys() {
            let sealed = key.seal_name(directory, name);
            if let Some(found) = self.find_stored(keys, directory, &sealed, key.number())? {
                return Ok(Some(found));
            }
        }
        let Some(sequence) = opaque_sequence(name) else { return Ok(None) };
        let Some(bytes) = keys.value(&Key::dirent(directory, sequence))? else { return Ok(None) };
        let entry = DirentView::decode(&bytes).map_err(|error| damaged(directory, &error))?;
        let is_opaque = self.shown(directory, sequence, &entry).1 == Form::Opaque;
        Ok(is_opaque.then_some(Found { sequence, inode: entry.inode, kind: entry.kind, key: entry.key }))
    }

    fn find_stored(&self, keys: &impl Keys, directory: u64, stored: &[u8], key: u16) -> Result<Option<Found>, Error> {
        let Some(bucket) = keys.value(&Key::dirent_hash(directory, self.hasher.hash(stored)))? else {
            return Ok(None);
        };
        let bucket = DirentBucket::decode(&bucket).map_err(|error| damaged(directory, &error))?;
        for sequence in &bucket.sequences {
            let Some(bytes) = keys.value(&Key::dirent(directory, *sequence))? else {
                return Err(missing_entry(directory, *sequence));
            };
            let entry = DirentView::decode(&bytes).map_err(|error| damaged(directory, &error))?;
            if entry.key == key && entry.name == stored {
                return Ok(Some(Found { sequence: *sequence, inode: entry.inode, kind: entry.kind, key }));
            }
        }
        Ok(None)
    }

    /// A name as users see it.
    pub fn shown<'a>(&self, directory: u64, sequence: u64, entry: &DirentView<'a>) -> (Cow<'a, [u8]>, Form) {
        let key = || self.keyring.open_key(entry.key);
        opened(directory, sequence, entry, key)
    }

    /// A name as users saw it before its key was being locked.
    pub fn shown_before<'a>(&self, directory: u64, sequence: u64, entry: &DirentView<'a>) -> Cow<'a, [u8]> {
        let key = || self.keyring.closing_key(entry.key);
        opened(directory, sequence, entry, key).0
    }

    /// Adds a name that is not there yet, encrypted with a key; gives its sequence. The caller puts the directory.
    #[expect(clippy::too_many_arguments, reason = "a name is all of this")]
    pub fn insert(
        &self,
        transaction: &mut Transaction<'_>,
        directory: u64,
        value: &mut InodeValue,
        name: &[u8],
        key: Option<&DataKey>,
        inode: u64,
        kind: FileKind,
    ) -> Result<u64, Error> {
        assert_eq!(value.kind(), Some(FileKind::Directory), "names lie in directories, not in inode {directory}");
        assert!((1..=NAME_BYTES_MAX).contains(&name.len()), "a name has 1 to 255 bytes, not {}", name.len());
        let sequence = value.next_dirent_sequence.max(SEQUENCE_FIRST);
        value.next_dirent_sequence = sequence + 1;
        let (stored, key) = match key {
            None => (Cow::Borrowed(name), 0),
            Some(key) => (Cow::Owned(key.seal_name(directory, name)), key.number()),
        };
        assert!(sequence >= SEQUENCE_FIRST && value.next_dirent_sequence > sequence, "sequences are used once");
        let entry = DirentView { inode, kind, key, name: &stored };
        self.put_entry(transaction, directory, value, sequence, &entry)?;
        Ok(sequence)
    }

    fn put_entry(
        &self,
        transaction: &mut Transaction<'_>,
        directory: u64,
        value: &mut InodeValue,
        sequence: u64,
        entry: &DirentView<'_>,
    ) -> Result<(), Error> {
        value.size += weight(entry.name);
        value.flags |= if entry.key == 0 { 0 } else { ENCRYPTED };
        let key = Key::dirent_hash(directory, self.hasher.hash(entry.name));
        let mut bucket = match transaction.get(&key)? {
            Some(bytes) => DirentBucket::decode(&bytes).map_err(|error| damaged(directory, &error))?,
            None => DirentBucket::default(),
        };
        if bucket.sequences.len() >= DirentBucket::SEQUENCES_MAX {
            return Err(Error::TooMany("names in this directory that hash alike"));
        }
        bucket.insert(sequence);
        assert!(bucket.sequences.contains(&sequence), "a name is found by its hash");
        transaction.put(key, &bucket.encode());
        transaction.put(Key::dirent(directory, sequence), &entry.encode());
        Ok(())
    }

    /// Removes a name that was found, whoever can read it. The caller puts the directory.
    pub fn remove(
        &self,
        transaction: &mut Transaction<'_>,
        directory: u64,
        value: &mut InodeValue,
        found: &Found,
    ) -> Result<(), Error> {
        assert_eq!(value.kind(), Some(FileKind::Directory), "names lie in directories, not in inode {directory}");
        let entry = entry(transaction, directory, found.sequence)?;
        value.size = value.size.saturating_sub(weight(&entry.name));
        let key = Key::dirent_hash(directory, self.hasher.hash(&entry.name));
        let bytes = transaction.get(&key)?.ok_or_else(|| missing_entry(directory, found.sequence))?;
        let mut bucket = DirentBucket::decode(&bytes).map_err(|error| damaged(directory, &error))?;
        bucket.remove(found.sequence);
        if bucket.sequences.is_empty() {
            transaction.delete(key);
        } else {
            transaction.put(key, &bucket.encode());
        }
        transaction.delete(Key::dirent(directory, found.sequence));
        Ok(())
    }

    /// Makes a name that was found mean another inode.
    pub fn replace(
        &self,
        transaction: &mut Transaction<'_>,
        directory: u64,
        found: &Found,
        inode: u64,
        kind: FileKind,
    ) -> Result<(), Error> {
        let entry = DirentValue { inode, kind, ..entry(transaction, directory, found.sequence)? };
        transaction.put(Key::dirent(directory, found.sequence), &entry.encode());
        Ok(())
    }

    /// Encrypts a name otherwise, or not any more; its place in the directory stays. False if its key is locked. The caller puts
    /// the directory.
    pub fn reencrypt(
        &self,
        transaction: &mut Transaction<'_>,
        directory: u64,
        value: &mut InodeValue,
        sequence: u64,
        key: Option<&DataKey>,
    ) -> Result<bool, Error> {
        let old = entry(transaction, directory, sequence)?;
        let view = DirentView { inode: old.inode, kind: old.kind, key: old.key, name: &old.name };
        let (name, form) = self.shown(directory, sequence, &view);
        if form == Form::Opaque {
            return Ok(false);
        }
        let (stored, number) = match key {
            None => (name, 0),
            Some(key) => (Cow::Owned(key.seal_name(directory, &name)), key.number()),
        };
        let found = Found { sequence, inode: old.inode, kind: old.kind, key: old.key };
        self.remove(transaction, directory, value, &found)?;
        let entry = DirentView { key: number, name: &stored, ..view };
        self.put_entry(transaction, directory, value, sequence, &entry)?;
        Ok(true)
    }
}

fn opened<'a>(
    directory: u64,
    sequence: u64,
    entry: &DirentView<'a>,
    key: impl FnOnce() -> Result<Arc<DataKey>, CryptError>,
) -> (Cow<'a, [u8]>, Form) {
    if entry.key == 0 {
        return (Cow::Borrowed(entry.name), Form::Plain);
    }
    match key().and_then(|key| key.open_name(directory, entry.name)) {
        Ok(name) => (Cow::Owned(name), Form::Opened),
        Err(CryptError::Locked(_) | CryptError::NoSuchKey(_)) => (Cow::Owned(opaque_name(sequence)), Form::Opaque),
        Err(error) => {
            tracing::error!(directory, sequence, %error, "a name cannot be read");
            (Cow::Owned(opaque_name(sequence)), Form::Opaque)
        }
    }
}

/// An entry that is there.
fn entry(keys: &impl Keys, directory: u64, sequence: u64) -> Result<DirentValue, Error> {
    let bytes = keys.value(&Key::dirent(directory, sequence))?;
    let bytes = bytes.ok_or_else(|| missing_entry(directory, sequence))?;
    DirentValue::decode(&bytes).map_err(|error| damaged(directory, &error))
}

/// Whether a directory has no names. Looks at the names themselves.
pub fn is_empty(keys: &impl Keys, directory: u64) -> Result<bool, Error> {
    let mut empty = true;
    keys.visit(Key::dirent(directory, 0), Key::dirent(directory, u64::MAX), &mut |_, _| {
        empty = false;
        ControlFlow::Break(())
    })?;
    Ok(empty)
}

/// What a name adds to its directory's size.
pub fn weight(name: &[u8]) -> u64 {
    name.len() as u64 + ENTRY_BYTES
}

/// Refuses names that cannot be.
pub fn check_name(name: &[u8]) -> Result<(), Error> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() {
        return Err(Error::NotFound);
    }
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(Error::Invalid("a name cannot contain a slash or a zero byte"));
    }
    Ok(())
}

/// Refuses "." and ".." where a name is made or removed.
pub fn check_new_name(name: &[u8]) -> Result<(), Error> {
    check_name(name)?;
    if matches!(name, b"." | b"..") {
        return Err(Error::Exists);
    }
    Ok(())
}

pub fn damaged(inode: u64, error: &DecodeError) -> Error {
    Error::Damaged(format!("metadata of inode {inode} is not valid ({error}); unmount and run `stere check`"))
}

fn missing_entry(directory: u64, sequence: u64) -> Error {
    Error::Damaged(format!("entry {sequence} of directory {directory} is missing; unmount and run `stere check`"))
}
