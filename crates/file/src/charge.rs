//! Charges: what contents take on the pool's devices, for accounts of stored bytes.
//!
//! Every extent carries what it counts: its part of what is stored of its blob, with the copies or the parity that the blob had when the
//! extent was put. The inode carries the sum, and accounts hold the sums of inodes. Blobs are moved without any extent being changed (by
//! the cleaner, into the same scheme; by the policy, into another one), so a charge may be that of an earlier scheme until the walk that moved the
//! file's blobs has passed (`recharge`); the sums are exact all the time. Nobody who puts an extent has to think of it: transactions
//! are looked at before they take effect (`settle`).
//! Invariants, where stored bytes are counted: an inode's `charged_bytes` are what its extents say; an extent that is taken for the
//! first time or in part is charged as its blob lies then. Read next: `accounts.rs`.

use std::collections::BTreeMap;

use stere_format::{BLOCK_BYTES, BlobEncoding, ExtentFlags, ExtentValue, InodeValue, Key, SECTOR_BYTES, Scheme, key};
use stere_store::{Error, Transaction};

use crate::keys::put_inode;

/// What stored bytes take with copies or parity.
pub(crate) fn on_devices(bytes: u64, scheme: Scheme) -> u64 {
    (bytes * scheme.width() as u64).div_ceil(u64::from(scheme.data))
}

/// What an extent counts as its blob lies now.
pub(crate) fn charge(transaction: &Transaction<'_>, extent: &ExtentValue) -> Result<u16, Error> {
    if extent.flags == ExtentFlags::Preallocated {
        return Ok(0);
    }
    let blob = transaction.blob(extent.blob)?;
    let stored = match blob.value.encoding == BlobEncoding::PLAIN {
        true => u64::from(extent.length),
        // Of what is one piece each block has the same part.
        false => {
            let blocks = |bytes: u32| u64::from(bytes.div_ceil(BLOCK_BYTES as u32));
            let all = u64::from(blob.value.address.length) * blocks(extent.length);
            all.div_ceil(blocks(blob.value.logical_bytes))
        }
    };
    let sectors = on_devices(stored.div_ceil(SECTOR_BYTES as u64), blob.scheme());
    Ok(u16::try_from(sectors).unwrap_or(u16::MAX))
}

/// What a transaction does to the extents of one inode.
#[derive(Default)]
struct Change {
    charged_bytes: i64,
    length: i64,
}

/// Charges the extents that a transaction puts, and sets what its inodes say of that. Tells whether a file got more content; else no
/// limit of stored bytes is to refuse what changed of it.
pub(crate) fn settle(transaction: &mut Transaction<'_>) -> Result<bool, Error> {
    let (mut put, mut changes) = (Vec::new(), BTreeMap::<u64, Change>::new());
    transaction.changed(key::tree::NAMES, key::kind::EXTENT, |key, before, after| {
        // What does not decode counts nothing.
        let decode = |bytes: Option<&[u8]>| bytes.and_then(|bytes| ExtentValue::decode(bytes).ok());
        let change = changes.entry(key.object).or_default();
        if let Some(before) = decode(before) {
            change.charged_bytes -= before.charged_bytes() as i64;
            change.length -= i64::from(before.length);
        }
        if let Some(after) = decode(after) {
            change.length += i64::from(after.length);
            put.push((*key, after));
        }
        Ok(())
    })?;
    for (key, extent) in put {
        let charged = ExtentValue { charge: charge(transaction, &extent)?, ..extent };
        changes.entry(key.object).or_default().charged_bytes += charged.charged_bytes() as i64;
        if charged != extent {
            transaction.put(key, &charged.encode());
        }
    }
    let mut before = BTreeMap::new();
    transaction.changed(key::tree::NAMES, key::kind::INODE, |key, bytes, _| {
        let value = bytes.and_then(|bytes| InodeValue::decode(bytes).ok());
        before.insert(key.object, value.map_or(0, |value| value.charged_bytes));
        Ok(())
    })?;
    let gets_more = changes.is_empty() || changes.values().any(|change| change.length > 0);
    for inode in changes.keys().filter(|inode| !before.contains_key(inode)).copied().collect::<Vec<_>>() {
        before.insert(inode, value(transaction, inode)?.map_or(0, |value| value.charged_bytes));
    }
    for (inode, before) in before {
        let delta = changes.get(&inode).map_or(0, |change| change.charged_bytes);
        let charged_bytes = before.saturating_add_signed(delta);
        if let Some(value) = value(transaction, inode)?.filter(|value| value.charged_bytes != charged_bytes) {
            put_inode(transaction, inode, &InodeValue { charged_bytes, ..value });
        }
    }
    Ok(gets_more)
}

pub(crate) fn value(transaction: &Transaction<'_>, inode: u64) -> Result<Option<InodeValue>, Error> {
    let bytes = transaction.get(&Key::inode(inode))?;
    Ok(bytes.and_then(|bytes| InodeValue::decode(&bytes).ok()))
}
