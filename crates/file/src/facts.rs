//! Where a file's data lies, from the blob map and the segments: facts, not settings.

use stere_format::BlobEncoding;
use stere_store::{BlobHandle, Io, Store};

use crate::block::END;
use crate::error::Error;
use crate::keys::{Extent, extents_touching};

/// Bytes of a file that are stored, one behind the other in one blob.
#[derive(Debug, Clone)]
pub struct StoredExtent {
    /// Where they are in the file.
    pub start: u64,
    /// How many they are.
    pub length: u32,
    /// Where they are in the blob.
    pub blob_offset: u32,
    /// The blob, which stays in place while this lives.
    pub blob: BlobHandle,
}

impl StoredExtent {
    /// Where they end in the file.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }
}

/// The stored extents of a file that end behind `from`, at most `limit` of them, and where to go on; `None` at the end.
pub fn stored_extents(
    store: &Store,
    io: Io<'_>,
    inode: u64,
    from: u64,
    limit: usize,
) -> Result<(Vec<StoredExtent>, Option<u64>), Error> {
    store.view(io, |view| {
        let extents = extents_touching(view, inode, from, END, limit)?;
        let next = if extents.len() == limit { extents.last().map(Extent::block_end) } else { None };
        assert!(next.is_none_or(|next| next > from), "a file is gone through in order, from {from} to {next:?}");
        let plain = extents.into_iter().filter(|extent| !extent.is_preallocated());
        let stored = plain.map(|extent| {
            let blob = view.blob(extent.value.blob)?;
            let (length, blob_offset) = (extent.value.length, extent.value.blob_offset);
            Ok(StoredExtent { start: extent.start, length, blob_offset, blob })
        });
        Ok((stored.collect::<Result<Vec<_>, Error>>()?, next))
    })
}

impl StoredExtent {
    /// Its part of what is stored of its blob.
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes(self)
    }
}

/// Its part of what is stored of its blob.
pub(crate) fn stored_bytes(extent: &StoredExtent) -> u64 {
    let value = &extent.blob.value;
    if value.encoding == BlobEncoding::PLAIN {
        return u64::from(extent.length);
    }
    u64::from(value.address.length) * u64::from(extent.length) / u64::from(value.logical_bytes)
}
