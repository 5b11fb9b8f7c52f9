//! Changing the list of extents within a transaction, with the store's reference rules kept exactly.
//!
//! Rules: every extent holds one reference to its blob; an extent that goes releases it, one that shrinks trims it, one
//! that is split takes one more. Extents start at block boundaries; only an end may be unaligned, and the rest of that
//! block reads as zeros.

use std::ops::Range;

use stere_format::{ExtentFlags, ExtentValue};
use stere_store::Transaction;

use crate::block::{BLOCK, END};
use crate::error::Error;
use crate::keys::{Extent, extents_touching};
use crate::set_aside;

/// Extents touched by one transaction at most; larger changes go in steps.
pub(crate) const EXTENTS_PER_STEP: usize = 512;

/// What a change of extents did to the file's allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Bytes allocated in addition (negative: freed), in whole blocks.
    pub bytes: i64,
    /// How many of them are set aside, not written.
    pub preallocated_bytes: i64,
}

impl Allocation {
    pub fn add(&mut self, other: Allocation) {
        self.bytes += other.bytes;
        self.preallocated_bytes += other.preallocated_bytes;
    }

    fn of(extent: &Extent) -> Allocation {
        let bytes = u64::from(extent.value.length).next_multiple_of(BLOCK) as i64;
        Allocation { bytes, preallocated_bytes: if extent.is_preallocated() { bytes } else { 0 } }
    }

    fn less(&mut self, other: Allocation) {
        self.bytes -= other.bytes;
        self.preallocated_bytes -= other.preallocated_bytes;
    }

    /// Applies the change to an inode's count.
    pub fn apply(&self, blocks_bytes: u64) -> u64 {
        assert!(self.bytes % BLOCK as i64 == 0, "whole blocks are allocated, not {} bytes", self.bytes);
        blocks_bytes.saturating_add_signed(self.bytes)
    }
}

/// Removes what lies in `range` (both ends block-aligned) from the file; extents across its ends are shortened or split.
/// At most `limit` extents are touched; the second value tells whether that was all.
pub(crate) fn clear(
    transaction: &mut Transaction<'_>,
    inode: u64,
    range: Range<u64>,
    limit: usize,
) -> Result<(Allocation, bool), Error> {
    assert!(range.start % BLOCK == 0 && range.end % BLOCK == 0, "extents are cut at block boundaries");
    assert!(range.start <= range.end && limit > 0, "each step clears some of {range:?}");
    let mut allocation = Allocation::default();
    let mut touching = extents_touching(transaction, inode, range.start, range.end, limit + 1)?;
    let complete = touching.len() <= limit;
    touching.truncate(limit);
    for extent in touching {
        assert!(extent.start < range.end && extent.end() > range.start, "an extent that lies in the range");
        allocation.less(Allocation::of(&extent));
        allocation.add(cut_out(transaction, inode, &extent, &range)?);
    }
    set_aside::count(transaction, allocation.preallocated_bytes)?;
    Ok((allocation, complete))
}

/// Takes `range` out of one extent; gives what is left of it.
fn cut_out(
    transaction: &mut Transaction<'_>,
    inode: u64,
    extent: &Extent,
    range: &Range<u64>,
) -> Result<Allocation, Error> {
    let left = (extent.start < range.start).then(|| part(extent, extent.start..range.start));
    let right = (extent.end() > range.end).then(|| part(extent, range.end..extent.end()));
    let mut kept = Allocation::default();
    if right.is_none() {
        transaction.delete(extent.key(inode));
    }
    for piece in [&left, &right].into_iter().flatten() {
        piece.put(transaction, inode);
        kept.add(Allocation::of(piece));
    }
    if !extent.is_preallocated() {
        let gone = extent.start.max(range.start)..extent.end().min(range.end);
        let bytes = blob_bytes(extent, &gone);
        match (&left, &right) {
            (None, None) => transaction.release_blob(extent.value.blob, bytes)?,
            (Some(_), Some(_)) => {
                transaction.trim_blob(extent.value.blob, bytes)?;
                transaction.reference_blob(extent.value.blob, false)?;
            }
            _ => transaction.trim_blob(extent.value.blob, bytes)?,
        }
    }
    assert!(kept.bytes <= Allocation::of(extent).bytes, "an extent that is cut does not grow");
    Ok(kept)
}

/// The piece of an extent that covers `range` of the file.
pub(crate) fn part(extent: &Extent, range: Range<u64>) -> Extent {
    assert!(range.start >= extent.start && range.end <= extent.end() && range.start < range.end);
    let skipped = (range.start - extent.start) as u32;
    let blob_offset = if extent.is_preallocated() { 0 } else { extent.value.blob_offset + skipped };
    let length = (range.end - range.start) as u32;
    Extent { start: range.start, value: ExtentValue { blob_offset, length, ..extent.value } }
}

/// The blob's bytes behind `range` of the file, in whole blocks; a partial last block counts, for the extent has no more
/// of it.
fn blob_bytes(extent: &Extent, range: &Range<u64>) -> Range<u32> {
    assert!(extent.start <= range.start && range.start <= range.end, "{range:?} is behind {}", extent.start);
    let first = u64::from(extent.value.blob_offset) + (range.start - extent.start);
    let behind = u64::from(extent.value.blob_offset) + (range.end - extent.start);
    (first / BLOCK * BLOCK) as u32..behind.next_multiple_of(BLOCK) as u32
}

/// Makes the file's extents end at `size`, wherever that lies in a block. At most `limit` extents are touched.
pub(crate) fn cut_end(
    transaction: &mut Transaction<'_>,
    inode: u64,
    size: u64,
    limit: usize,
) -> Result<(Allocation, bool), Error> {
    let mut allocation = Allocation::default();
    if size % BLOCK != 0 {
        let straddling = extents_touching(transaction, inode, size, size + 1, 1)?;
        if let Some(extent) = straddling.first().filter(|extent| extent.start < size && extent.end() > size) {
            allocation.less(Allocation::of(extent));
            transaction.delete(extent.key(inode));
            let shorter = part(extent, extent.start..size);
            shorter.put(transaction, inode);
            allocation.add(Allocation::of(&shorter));
            set_aside::count(transaction, allocation.preallocated_bytes)?;
            let gone =
                blob_bytes(extent, &(size.next_multiple_of(BLOCK)..extent.end().max(size.next_multiple_of(BLOCK))));
            if !extent.is_preallocated() && !gone.is_empty() {
                transaction.trim_blob(extent.value.blob, gone)?;
            }
        }
    }
    let (rest, complete) = clear(transaction, inode, size.next_multiple_of(BLOCK)..END, limit)?;
    allocation.add(rest);
    Ok((allocation, complete))
}

/// Puts an extent over bytes of a blob whose reference the caller has taken; the place must be free.
pub(crate) fn put_plain(
    transaction: &mut Transaction<'_>,
    inode: u64,
    start: u64,
    blob: u64,
    blob_offset: u32,
    length: u32,
) -> Allocation {
    assert!(start % BLOCK == 0 && length > 0, "an extent starts at a block and is not empty");
    let extent =
        Extent { start, value: ExtentValue { blob, blob_offset, length, flags: ExtentFlags::Plain, charge: 0 } };
    extent.put(transaction, inode);
    Allocation::of(&extent)
}

/// Bytes one preallocated extent covers at most.
const PREALLOCATED_EXTENT_BYTES_MAX: u64 = 1 << 30;

/// Sets room aside in `range`, which must be free and block-aligned.
pub(crate) fn put_preallocated(
    transaction: &mut Transaction<'_>,
    inode: u64,
    range: Range<u64>,
) -> Result<Allocation, Error> {
    assert!(range.start % BLOCK == 0 && range.end % BLOCK == 0, "room is set aside in whole blocks");
    assert!(range.start < range.end, "room that is set aside is not empty");
    let mut allocation = Allocation::default();
    let mut at = range.start;
    while at < range.end {
        let length = (range.end - at).min(PREALLOCATED_EXTENT_BYTES_MAX) as u32;
        let value = ExtentValue { blob: 0, blob_offset: 0, length, flags: ExtentFlags::Preallocated, charge: 0 };
        let extent = Extent { start: at, value };
        extent.put(transaction, inode);
        allocation.add(Allocation::of(&extent));
        at += u64::from(length);
    }
    assert_eq!(allocation.bytes, (range.end - range.start) as i64, "the whole range is set aside");
    set_aside::count(transaction, allocation.preallocated_bytes)?;
    Ok(allocation)
}

/// Moves all extents from `from` on by `distance` (COLLAPSE, INSERT); there are at most `limit` of them, or nothing is done.
pub(crate) fn shift(
    transaction: &mut Transaction<'_>,
    inode: u64,
    from: u64,
    distance: i64,
    limit: usize,
) -> Result<bool, Error> {
    assert!(distance != 0 && from % BLOCK == 0, "extents are moved from a block on, to another place");
    let extents = extents_touching(transaction, inode, from, END, limit + 1)?;
    if extents.len() > limit {
        return Ok(false);
    }
    for extent in &extents {
        assert!(extent.start >= from, "the extent at the boundary was split");
        transaction.delete(extent.key(inode));
    }
    for extent in &extents {
        let start = extent.start.checked_add_signed(distance).ok_or(Error::TooBig)?;
        assert!(start % BLOCK == 0, "extents are moved by whole blocks");
        Extent { start, ..*extent }.put(transaction, inode);
    }
    Ok(true)
}

/// Splits the extent across `at` (block-aligned), if there is one.
pub(crate) fn split(transaction: &mut Transaction<'_>, inode: u64, at: u64) -> Result<(), Error> {
    assert!(at % BLOCK == 0, "extents are split at block boundaries");
    let touching = extents_touching(transaction, inode, at, at + 1, 1)?;
    let Some(extent) = touching.first().filter(|extent| extent.start < at) else { return Ok(()) };
    part(extent, extent.start..at).put(transaction, inode);
    part(extent, at..extent.end()).put(transaction, inode);
    if !extent.is_preallocated() {
        transaction.reference_blob(extent.value.blob, false)?;
    }
    Ok(())
}
