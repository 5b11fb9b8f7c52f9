//! What is to be stored and where: placements, records as they are to be written, blobs that were appended.
//!
//! Invariant: a `NewBlob` pins its segment, so that nothing is freed between appending and entering it into the blob map.
//! Read next: `write.rs`, `transaction.rs`.

use std::sync::Arc;

use stere_format::{
    BLOCK_BYTES, BlobEncoding, BlobFlags, BlobValue, ChecksumKind, Checksums, DeviceIndex, Scheme, Site,
};
use stere_log::Segment;

/// Where new data goes: the scheme, class and devices its policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    pub scheme: Scheme,
    pub class: u8,
    /// On which devices.
    pub site: Site,
}

/// Whose data it is; a hint for rescue, written next to the data.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    pub inode: u64,
    pub offset: u64,
}

/// A record as it is to be stored. What an encoding means is not the store's business: it keeps the bytes, and moves them.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    pub stored: &'a [u8],
    /// Bytes of content that the stored bytes stand for.
    pub logical_bytes: u32,
    pub encoding: BlobEncoding,
    /// Number of the key it is encrypted with; 0 if it is not.
    pub key: u16,
    /// Number of the stack of users' plugins that had it first; 0 if none had.
    pub stack: u16,
    /// What is noted about it.
    pub flags: BlobFlags,
    /// What is kept to know it by.
    pub checksum: ChecksumKind,
}

impl<'a> Content<'a> {
    /// Bytes that are stored as they are.
    pub fn plain(data: &'a [u8]) -> Self {
        let logical_bytes = u32::try_from(data.len()).expect("a blob is far below 4 GiB");
        let (encoding, flags, checksum) = (BlobEncoding::PLAIN, BlobFlags::NONE, ChecksumKind::Crc32c);
        Content { stored: data, logical_bytes, encoding, key: 0, stack: 0, flags, checksum }
    }

    pub(crate) fn value(&self, address: stere_format::Address, checksums: Checksums) -> BlobValue {
        let stored = self.stored.len();
        assert_eq!(address.length as usize, stored, "a record is as long as what is stored in it");
        assert_eq!(checksums.len(), stored.div_ceil(BLOCK_BYTES), "each stored block has its checksum");
        let is_plain = self.encoding == BlobEncoding::PLAIN;
        assert!(!is_plain || stored == self.logical_bytes as usize, "plain content is stored as it is");
        assert_eq!(self.encoding.is_encrypted(), self.key != 0, "what is encrypted has a key, and nothing else");
        let value = match self.encoding {
            BlobEncoding::PLAIN => BlobValue::plain(address, checksums),
            encoding => BlobValue::encoded(address, checksums, encoding, self.logical_bytes),
        };
        BlobValue { flags: self.flags, key: self.key, stack: self.stack, ..value }
    }
}

/// A blob that was appended but that no extent names yet.
#[derive(Debug)]
pub struct NewBlob {
    pub id: u64,
    pub value: BlobValue,
    pub(crate) segment: Arc<Segment>,
}

impl NewBlob {
    /// Bytes of content.
    pub fn length(&self) -> u32 {
        self.value.logical_bytes
    }

    /// The one device that has it, if it is unreplicated.
    pub fn home(&self) -> Option<DeviceIndex> {
        self.segment.home()
    }
}
