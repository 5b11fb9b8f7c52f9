//! Extended attributes: buckets by the hash of the name; policy names and ACLs have their own meaning.
//!
//! Invariants: an inode with attributes in buckets has `HAS_ATTRIBUTES` set (it may be set without any left); an ACL that
//! says no more than the mode is not stored.

use std::hash::Hasher;
use std::ops::ControlFlow;

use siphasher::sip::SipHasher13;
use stere_file::Keys;
use stere_format::{InodeValue, Key, XattrBucket};
use stere_policy::Own;
use stere_store::Transaction;

use crate::acl;
use crate::error::Error;
use crate::names::damaged;

/// Longest value.
pub const VALUE_BYTES_MAX: usize = 65_536;
/// Longest name.
const ATTRIBUTE_NAME_BYTES_MAX: usize = 255;
/// Bytes that all names of one inode may have together, so that a list fits in the kernel's buffer.
pub const LIST_BYTES_MAX: usize = 65_536;

pub use stere_file::HAS_ATTRIBUTES;
/// Flags that tell of attributes of a file.
pub const FLAGS: u32 = HAS_ATTRIBUTES | acl::HAS_ACCESS;

/// What setting an attribute expects of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetMode {
    /// Nothing.
    Any,
    /// It does not exist yet.
    Create,
    /// It exists.
    Replace,
}

fn key(inode: u64, name: &[u8]) -> Key {
    // Not secret: a user who makes names collide makes only the bucket of an own file larger.
    let mut hasher = SipHasher13::new();
    hasher.write(name);
    Key::xattr(inode, hasher.finish() & (u64::MAX >> 1))
}

fn bucket(keys: &impl Keys, inode: u64, key: &Key) -> Result<XattrBucket, Error> {
    match keys.value(key)? {
        Some(bytes) => XattrBucket::decode(&bytes).map_err(|error| damaged(inode, &error)),
        None => Ok(XattrBucket::default()),
    }
}

/// The value of a stored attribute.
pub fn get(keys: &impl Keys, inode: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let Some(bytes) = keys.value(&key(inode, name))? else { return Ok(None) };
    let value = XattrBucket::find(&bytes, name).map_err(|error| damaged(inode, &error))?;
    Ok(value.map(<[u8]>::to_vec))
}

/// Stores an attribute. The caller sets `HAS_ATTRIBUTES`.
pub fn put(transaction: &mut Transaction<'_>, inode: u64, name: &[u8], value: &[u8]) -> Result<(), Error> {
    assert!((1..=ATTRIBUTE_NAME_BYTES_MAX).contains(&name.len()), "a name of {} bytes was checked", name.len());
    let key = key(inode, name);
    let mut bucket = bucket(transaction, inode, &key)?;
    bucket.set(name, value);
    let is_found = bucket.entries.iter().any(|(known, held)| known == name && held == value);
    assert!(is_found, "an attribute that is stored can be read");
    // A bucket is one value of the tree; names that collide share it.
    let bytes: usize = bucket.entries.iter().map(|(name, value)| name.len() + value.len() + 5).sum();
    if bytes > stere_format::VALUE_BYTES_MAX - 64 || bucket.entries.len() > 255 {
        return Err(Error::TooMany("extended attributes of this file with names like that"));
    }
    let encoded = bucket.encode();
    assert!(encoded.len() <= stere_format::VALUE_BYTES_MAX, "a bucket is one value of the tree");
    transaction.put(key, &encoded);
    Ok(())
}

/// Removes a stored attribute; answers whether it was there.
pub fn remove(transaction: &mut Transaction<'_>, inode: u64, name: &[u8]) -> Result<bool, Error> {
    let key = key(inode, name);
    let mut bucket = bucket(transaction, inode, &key)?;
    if !bucket.remove(name) {
        return Ok(false);
    }
    if bucket.entries.is_empty() {
        transaction.delete(key);
    } else {
        transaction.put(key, &bucket.encode());
    }
    Ok(true)
}

/// Gives an inode without attributes those of another one. The caller sets the flags.
pub fn copy(transaction: &mut Transaction<'_>, from: u64, to: u64) -> Result<(), Error> {
    assert_ne!(from, to, "attributes are copied to another inode");
    let mut buckets = Vec::new();
    transaction.scan(Key::xattr(from, 0), Key::xattr(from, u64::MAX), |key, bytes| {
        buckets.push((key.position, bytes.to_vec()));
        ControlFlow::Continue(())
    })?;
    for (hash, bytes) in buckets {
        transaction.put(Key::xattr(to, hash), &bytes);
    }
    Ok(())
}

/// The stored attributes' names.
pub fn names(keys: &impl Keys, inode: u64) -> Result<Vec<Vec<u8>>, Error> {
    let mut names = Vec::new();
    let mut failure = None;
    keys.visit(Key::xattr(inode, 0), Key::xattr(inode, u64::MAX), &mut |_, bytes| match XattrBucket::for_each(
        bytes,
        |name, _| names.push(name.to_vec()),
    ) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failure = Some(damaged(inode, &error));
            ControlFlow::Break(())
        }
    })?;
    failure.map_or(Ok(names), Err)
}

pub fn check_attribute_name(name: &[u8]) -> Result<(), Error> {
    if name.is_empty() || name.len() > ATTRIBUTE_NAME_BYTES_MAX {
        return Err(Error::OutOfRange);
    }
    let known = [&b"user."[..], b"trusted.", b"security."];
    if known.contains(&name) {
        return Err(Error::Invalid("an attribute's name goes on behind its prefix"));
    }
    if known.iter().any(|prefix| name.starts_with(prefix)) || acl::is_acl(name) {
        return Ok(());
    }
    Err(Error::Unsupported("attributes are user.*, trusted.*, security.* and the POSIX ACLs"))
}

pub fn check_mode(mode: SetMode, exists: bool) -> Result<(), Error> {
    match mode {
        SetMode::Create if exists => Err(Error::Exists),
        SetMode::Replace if !exists => Err(Error::NoAttribute),
        _ => Ok(()),
    }
}

pub fn contradicts_a_lock() -> Error {
    Error::NotPermitted("the administrator locked this to another value, here or above")
}

/// Which of the two that an inode can say about its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Say {
    /// What anybody may set who may write.
    Own,
    /// What only the administrator may.
    Lock,
}

impl Say {
    pub fn of(self, value: &InodeValue) -> Own {
        match self {
            Say::Own => stere_file::own_policy(value),
            Say::Lock => stere_file::own_locks(value),
        }
    }
}
