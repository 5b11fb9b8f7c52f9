//! Names in directories: found by hash, listed by the sequence in which they were made.
//!
//! Invariants: every name has one entry (key: sequence) and its sequence in the bucket of its hash; a directory's `size`
//! is the sum of `weight` over its names, so that an empty directory has size 0; sequences are never reused, so they are
//! stable readdir cookies.

use std::hash::Hasher;
use std::ops::ControlFlow;

use siphasher::sip::SipHasher13;
use stere_file::Keys;
use stere_format::dirent::DirentView;
use stere_format::{DecodeError, DirentBucket, FileKind, InodeValue, Key};
use stere_store::Transaction;

use crate::error::Error;

/// Longest name.
pub const NAME_BYTES_MAX: usize = 255;
pub(crate) const SEQUENCE_FIRST: u64 = InodeValue::DIRENT_SEQUENCE_FIRST;
/// What a name adds to its directory's size besides its bytes.
const ENTRY_BYTES: u64 = 24;

/// A name that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub sequence: u64,
    pub inode: u64,
    pub kind: FileKind,
}

/// Hashes names with the pool's key, so that nobody can make names collide on purpose.
#[derive(Clone, Copy)]
pub(crate) struct NameHasher(SipHasher13);

impl NameHasher {
    pub fn new(key: &[u8; 16]) -> NameHasher {
        NameHasher(SipHasher13::new_with_key(key))
    }

    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = self.0;
        hasher.write(name);
        // The last key of a range is exclusive in scans: keep the largest position free.
        hasher.finish() & (u64::MAX >> 1)
    }

    /// Looks a name up.
    pub fn find(&self, keys: &impl Keys, directory: u64, name: &[u8]) -> Result<Option<Found>, Error> {
        let Some(bucket) = keys.value(&Key::dirent_hash(directory, self.hash(name)))? else { return Ok(None) };
        let bucket = DirentBucket::decode(&bucket).map_err(|error| damaged(directory, &error))?;
        for sequence in &bucket.sequences {
            let Some(bytes) = keys.value(&Key::dirent(directory, *sequence))? else {
                return Err(missing_entry(directory, *sequence));
            };
            let entry = DirentView::decode(&bytes).map_err(|error| damaged(directory, &error))?;
            if entry.name == name {
                return Ok(Some(Found { sequence: *sequence, inode: entry.inode, kind: entry.kind }));
            }
        }
        Ok(None)
    }

    /// Adds a name that is not there yet. The caller puts the directory.
    pub fn insert(
        &self,
        transaction: &mut Transaction<'_>,
        directory: u64,
        value: &mut InodeValue,
        name: &[u8],
        inode: u64,
        kind: FileKind,
    ) -> Result<(), Error> {
        let sequence = value.next_dirent_sequence.max(SEQUENCE_FIRST);
        value.next_dirent_sequence = sequence + 1;
        value.size += weight(name);
        let key = Key::dirent_hash(directory, self.hash(name));
        let mut bucket = match transaction.get(&key)? {
            Some(bytes) => DirentBucket::decode(&bytes).map_err(|error| damaged(directory, &error))?,
            None => DirentBucket::default(),
        };
        if bucket.sequences.len() >= DirentBucket::SEQUENCES_MAX {
            return Err(Error::NoSpace);
        }
        bucket.insert(sequence);
        transaction.put(key, &bucket.encode());
        transaction.put(Key::dirent(directory, sequence), &DirentView { inode, kind, name }.encode());
        Ok(())
    }

    /// Removes a name that was found. The caller puts the directory.
    pub fn remove(
        &self,
        transaction: &mut Transaction<'_>,
        directory: u64,
        value: &mut InodeValue,
        name: &[u8],
        found: &Found,
    ) -> Result<(), Error> {
        value.size = value.size.saturating_sub(weight(name));
        let key = Key::dirent_hash(directory, self.hash(name));
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
        name: &[u8],
        found: &Found,
        inode: u64,
        kind: FileKind,
    ) {
        transaction.put(Key::dirent(directory, found.sequence), &DirentView { inode, kind, name }.encode());
    }
}

/// Whether a directory has no names. Looks at the names themselves.
pub(crate) fn is_empty(keys: &impl Keys, directory: u64) -> Result<bool, Error> {
    let mut empty = true;
    keys.visit(Key::dirent(directory, 0), Key::dirent(directory, u64::MAX), &mut |_, _| {
        empty = false;
        ControlFlow::Break(())
    })?;
    Ok(empty)
}

/// What a name adds to its directory's size.
pub(crate) fn weight(name: &[u8]) -> u64 {
    name.len() as u64 + ENTRY_BYTES
}

/// Refuses names that cannot be.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Error> {
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
pub(crate) fn check_new_name(name: &[u8]) -> Result<(), Error> {
    check_name(name)?;
    if matches!(name, b"." | b"..") {
        return Err(Error::Exists);
    }
    Ok(())
}

pub(crate) fn damaged(inode: u64, error: &DecodeError) -> Error {
    Error::Damaged(format!("metadata of inode {inode} is not valid ({error}); unmount and run `stere check`"))
}

fn missing_entry(directory: u64, sequence: u64) -> Error {
    Error::Damaged(format!("entry {sequence} of directory {directory} is missing; unmount and run `stere check`"))
}
