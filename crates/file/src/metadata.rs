//! What metadata counts in accounts: names in directories, targets of symbolic links, extended attributes.
//!
//! Each inode may have a little of it for nothing, as what every inode takes; more counts in whole blocks, once, however many copies of
//! metadata the pool keeps. So a directory that gets a name changes no account, but for one name in a hundred or so.
//! Read next: `accounts.rs`, `docs/format/account.md`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_format::{FileKind, InodeValue, Key, XattrBucket, key};
use stere_store::{Error, Transaction};

use crate::accounts::in_blocks;
use crate::keys::Keys;

/// Flag of inodes that have, or had, extended attributes; the naming layer sets it.
pub const HAS_ATTRIBUTES: u32 = 1;

/// What an attribute counts beside the bytes of its name and value; names in directories count the same.
const ENTRY_BYTES: u64 = 24;
/// So much of an inode's attributes, and of its names or target, counts nothing.
const FREE_BYTES: u64 = 512;

/// What so many bytes of metadata count.
fn counted(bytes: u64) -> u64 {
    if bytes <= FREE_BYTES { 0 } else { in_blocks(bytes) }
}

/// What an inode counts for its metadata; `attributes` are the bytes of its attributes (`attributes_of`).
pub fn counted_metadata(value: &InodeValue, attributes: u64) -> u64 {
    let is_metadata = matches!(value.kind(), Some(FileKind::Directory | FileKind::Symlink));
    counted(if is_metadata { value.size } else { 0 }).saturating_add(counted(attributes))
}

/// The bytes of the attributes in one bucket. What does not decode has none.
pub fn attribute_bytes(bucket: &[u8]) -> u64 {
    let mut bytes = 0;
    let decoded = XattrBucket::for_each(bucket, |name, value| bytes += ENTRY_BYTES + (name.len() + value.len()) as u64);
    if decoded.is_ok() { bytes } else { 0 }
}

/// The bytes of an inode's attributes.
pub fn attributes_of(keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<u64, Error> {
    if value.flags & HAS_ATTRIBUTES == 0 {
        return Ok(0);
    }
    let mut bytes = 0_u64;
    keys.visit(Key::xattr(inode, 0), Key::xattr(inode, u64::MAX), &mut |_, bucket| {
        bytes = bytes.saturating_add(attribute_bytes(bucket));
        ControlFlow::Continue(())
    })?;
    Ok(bytes)
}

/// By how many bytes a transaction changes the attributes of inodes.
pub(crate) fn changed_attributes(transaction: &Transaction<'_>) -> Result<BTreeMap<u64, i64>, Error> {
    let mut changes = BTreeMap::new();
    transaction.changed(key::tree::NAMES, key::kind::XATTR, |key, before, after| {
        let bytes = |bucket: Option<&[u8]>| bucket.map_or(0, attribute_bytes) as i64;
        *changes.entry(key.object).or_default() += bytes(after) - bytes(before);
        Ok(())
    })?;
    changes.retain(|_, change| *change != 0);
    Ok(changes)
}

/// The first inode with this number or a greater one.
pub(crate) fn next_inode(transaction: &Transaction<'_>, from: u64) -> Result<Option<(u64, Option<InodeValue>)>, Error> {
    let mut found = None;
    let end = Key::new(key::tree::NAMES + 1, 0, 0, 0);
    transaction.scan(Key::inode(from), end, |key, bytes| {
        let value = (key.kind == key::kind::INODE).then(|| InodeValue::decode(bytes).ok());
        found = Some((key.object, value.flatten()));
        ControlFlow::Break(())
    })?;
    Ok(found)
}
