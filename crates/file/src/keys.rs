//! Reading and writing the values of inodes and extents, from a view or a transaction alike.
//!
//! Invariant: an extent's key carries the file offset where the extent's last block *ends*, so that the first key behind an
//! offset is the extent that covers it (or the next one): every look-up is one short scan forward. It is the block's end,
//! not the extent's, so that a file whose last block is written again and again keeps the same few keys.

use std::ops::ControlFlow;

use stere_format::{ExtentFlags, ExtentValue, InodeValue, Key};
use stere_store::{Transaction, Value, View};

use crate::block::BLOCK;
use crate::error::Error;

/// What a view and a transaction have in common.
pub trait Keys {
    /// The value of a key.
    fn value(&self, key: &Key) -> Result<Option<Value>, stere_store::Error>;
    /// Visits the keys from `from` up to but not including `to`, in order, until told to stop.
    fn visit(
        &self,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(&Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), stere_store::Error>;
}

impl Keys for View<'_> {
    fn value(&self, key: &Key) -> Result<Option<Value>, stere_store::Error> {
        self.get(key)
    }

    fn visit(
        &self,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(&Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), stere_store::Error> {
        self.scan(from, to, visit)
    }
}

impl Keys for Transaction<'_> {
    fn value(&self, key: &Key) -> Result<Option<Value>, stere_store::Error> {
        self.get(key)
    }

    fn visit(
        &self,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(&Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), stere_store::Error> {
        self.scan(from, to, visit)
    }
}

/// The inode, if it exists.
pub fn inode_if_any(keys: &impl Keys, inode: u64) -> Result<Option<InodeValue>, Error> {
    let Some(bytes) = keys.value(&Key::inode(inode))? else { return Ok(None) };
    let value = InodeValue::decode(&bytes).map_err(|error| bad_value(inode, &error))?;
    Ok(Some(value))
}

/// The inode, which should exist.
pub fn inode(keys: &impl Keys, inode: u64) -> Result<InodeValue, Error> {
    inode_if_any(keys, inode)?.ok_or(Error::NoInode(inode))
}

/// Puts the inode.
pub fn put_inode(transaction: &mut Transaction<'_>, inode: u64, value: &InodeValue) {
    transaction.put(Key::inode(inode), &value.encode());
}

/// An extent with its place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub start: u64,
    pub value: ExtentValue,
}

impl Extent {
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.value.length)
    }

    /// Where its last block ends: what its key says.
    pub fn block_end(&self) -> u64 {
        self.start + u64::from(self.value.length).next_multiple_of(BLOCK)
    }

    pub fn is_preallocated(&self) -> bool {
        self.value.flags == ExtentFlags::Preallocated
    }

    pub fn key(&self, inode: u64) -> Key {
        Key::extent(inode, self.block_end())
    }

    pub fn put(&self, transaction: &mut Transaction<'_>, inode: u64) {
        assert!(self.start % BLOCK == 0, "an extent of inode {inode} begins at a block, not {}", self.start);
        transaction.put(self.key(inode), &self.value.encode());
    }

    fn decode(inode: u64, key: &Key, bytes: &[u8]) -> Result<Extent, Error> {
        let value = ExtentValue::decode(bytes).map_err(|error| bad_value(inode, &error))?;
        let start = key.position.checked_sub(u64::from(value.length).next_multiple_of(BLOCK));
        let start = start.filter(|start| start % BLOCK == 0);
        let start = start.ok_or_else(|| Error::BadValue { inode, detail: "an extent is misplaced".into() })?;
        Ok(Extent { start, value })
    }
}

/// Visits the extents that end behind `from`, in order, until told to stop.
pub(crate) fn visit_extents(
    keys: &impl Keys,
    inode: u64,
    from: u64,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut bad = None;
    let mut position_before = from;
    let first = Key::extent(inode, from.saturating_add(1));
    keys.visit(first, Key::extent(inode, u64::MAX), &mut |key, bytes| {
        let extent = match Extent::decode(inode, key, bytes) {
            Ok(extent) => extent,
            Err(error) => {
                bad = Some(error);
                return ControlFlow::Break(());
            }
        };
        if position_before != from && extent.start < position_before {
            bad = Some(Error::BadValue { inode, detail: format!("extents overlap at offset {}", extent.start) });
            return ControlFlow::Break(());
        }
        position_before = extent.block_end();
        // Behind the last byte of an extent, but in its last block.
        if extent.end() <= from {
            return ControlFlow::Continue(());
        }
        visit(extent)
    })?;
    bad.map_or(Ok(()), Err)
}

/// The extents that touch `start..end`, in order; at most `limit`.
pub(crate) fn extents_touching(
    keys: &impl Keys,
    inode: u64,
    start: u64,
    end: u64,
    limit: usize,
) -> Result<Vec<Extent>, Error> {
    assert!(limit > 0, "extents are asked for");
    let mut extents = Vec::new();
    visit_extents(keys, inode, start, &mut |extent| {
        if extent.start >= end || extents.len() == limit {
            return ControlFlow::Break(());
        }
        extents.push(extent);
        ControlFlow::Continue(())
    })?;
    Ok(extents)
}

pub(crate) fn bad_value(inode: u64, error: &stere_format::DecodeError) -> Error {
    Error::BadValue { inode, detail: error.to_string() }
}
