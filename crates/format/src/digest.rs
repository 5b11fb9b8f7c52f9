//! What is kept of a blob's stored bytes to know them by: a CRC32C for each 4 KiB of them, always, and a digest of all of them
//! where policy asks for one.
//!
//! The CRCs are enough to tell torn writes and rotten bits, and to choose between copies, block by block. They are 32 bits and
//! linear: who wants to be sure of more asks for a digest, which counts whenever all stored bytes are in hand.
//! Invariant: the digest is of the same bytes as the CRCs. Read next: `checksum.rs`, `blob.rs`.

use std::ops::Deref;

use smallvec::SmallVec;

use crate::BLOCK_BYTES;
use crate::checksum::crc32c;
use crate::wire::{Reader, Writer};
use crate::{BlobFlags, DecodeError};

/// How a blob's stored bytes are known to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ChecksumKind {
    /// By the CRCs of their blocks.
    #[default]
    Crc32c,
    /// By XXH3 of 64 bits too.
    Xxh3,
    /// By BLAKE3 of 256 bits too.
    Blake3,
    /// The CRCs are there, for repair and recovery; reading does not look at them.
    None,
}

impl ChecksumKind {
    /// The two bits in the flags of the blob map's entry.
    pub(crate) const FLAGS: u8 = 3 << Self::SHIFT;
    const SHIFT: u8 = 3;

    pub(crate) fn flags(self) -> BlobFlags {
        BlobFlags((self as u8) << Self::SHIFT)
    }

    pub(crate) fn of_flags(flags: u8) -> Self {
        [Self::Crc32c, Self::Xxh3, Self::Blake3, Self::None][usize::from((flags & Self::FLAGS) >> Self::SHIFT)]
    }
}

/// What is kept beside the CRCs; boxed where it is large, because most blobs have none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
enum Digest {
    #[default]
    Absent,
    Xxh3(u64),
    Blake3(Box<[u8; blake3::OUT_LEN]>),
    Unread,
}

impl Digest {
    fn of(kind: ChecksumKind, stored: &[u8]) -> Self {
        match kind {
            ChecksumKind::Crc32c => Self::Absent,
            ChecksumKind::Xxh3 => Self::Xxh3(xxhash_rust::xxh3::xxh3_64(stored)),
            ChecksumKind::Blake3 => Self::Blake3(Box::new(*blake3::hash(stored).as_bytes())),
            ChecksumKind::None => Self::Unread,
        }
    }
}

/// Checksums of the stored bytes of a blob; those of up to four blocks (16 KiB) need no heap.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Checksums {
    blocks: SmallVec<[u32; 4]>,
    digest: Digest,
}

impl Checksums {
    /// Of all these bytes.
    pub fn of(kind: ChecksumKind, stored: &[u8]) -> Self {
        Self { blocks: stored.chunks(BLOCK_BYTES).map(crc32c).collect(), digest: Digest::of(kind, stored) }
    }

    /// What only all bytes together give; the CRCs are still to be pushed.
    pub fn without_blocks(kind: ChecksumKind, stored: &[u8]) -> Self {
        Self { blocks: SmallVec::new(), digest: Digest::of(kind, stored) }
    }

    /// The same without CRCs and with room for those of so many bytes, which are pushed as they are copied.
    pub fn to_push(&self, stored_bytes: usize) -> Self {
        let blocks = SmallVec::with_capacity(stored_bytes.div_ceil(BLOCK_BYTES));
        Self { blocks, digest: self.digest.clone() }
    }

    /// The CRC of the next block.
    pub fn push(&mut self, crc32c: u32) {
        self.blocks.push(crc32c);
    }

    pub fn kind(&self) -> ChecksumKind {
        match self.digest {
            Digest::Absent => ChecksumKind::Crc32c,
            Digest::Xxh3(_) => ChecksumKind::Xxh3,
            Digest::Blake3(_) => ChecksumKind::Blake3,
            Digest::Unread => ChecksumKind::None,
        }
    }

    /// Whether there is something that only all stored bytes together can be held against.
    pub fn has_digest(&self) -> bool {
        matches!(self.digest, Digest::Xxh3(_) | Digest::Blake3(_))
    }

    /// Whether the digest, if there is one, is that of these bytes, which are all.
    pub fn is_digest_of(&self, stored: &[u8]) -> bool {
        !self.has_digest() || self.digest == Digest::of(self.kind(), stored)
    }

    /// Whether these bytes, which are all, have all the CRCs and the digest.
    pub fn are_of(&self, stored: &[u8]) -> bool {
        self.have_blocks_of(stored) && self.is_digest_of(stored)
    }

    /// Whether these bytes, which are all, have all the CRCs.
    pub fn have_blocks_of(&self, stored: &[u8]) -> bool {
        stored.chunks(BLOCK_BYTES).map(crc32c).eq(self.blocks.iter().copied())
    }

    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
        self.blocks.iter().for_each(|crc32c| out.put_u32(*crc32c));
        match &self.digest {
            Digest::Absent | Digest::Unread => {}
            Digest::Xxh3(digest) => out.put_u64(*digest),
            Digest::Blake3(digest) => out.extend_from_slice(&digest[..]),
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, blocks: usize, kind: ChecksumKind) -> Result<Self, DecodeError> {
        let blocks = reader.take(blocks * 4)?.chunks_exact(4);
        let blocks = blocks.map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect();
        let digest = match kind {
            ChecksumKind::Crc32c => Digest::Absent,
            ChecksumKind::Xxh3 => Digest::Xxh3(reader.u64()?),
            ChecksumKind::Blake3 => Digest::Blake3(Box::new(reader.array()?)),
            ChecksumKind::None => Digest::Unread,
        };
        Ok(Self { blocks, digest })
    }
}

impl Deref for Checksums {
    type Target = [u32];

    /// The CRCs.
    fn deref(&self) -> &[u32] {
        &self.blocks
    }
}

impl FromIterator<u32> for Checksums {
    /// CRCs alone.
    fn from_iter<T: IntoIterator<Item = u32>>(blocks: T) -> Self {
        Self { blocks: blocks.into_iter().collect(), digest: Digest::Absent }
    }
}

#[cfg(test)]
mod tests;
