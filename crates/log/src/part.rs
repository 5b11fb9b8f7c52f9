//! A part of a record: which bytes are read, where they go, and whether they are right.
//!
//! Invariant: bytes are handed out only after the checksums of all blocks they touch matched. Read next: `read.rs`.

use std::sync::Arc;

use stere_faults::{Bug, is_planted};
use stere_format::{Address, BLOCK_BYTES, Checksums};

use crate::segment::Segment;

/// A run of bytes of one record, and where they go.
pub struct Part<'a> {
    /// What the record is to the caller; comes back in errors.
    pub tag: u64,
    pub segment: &'a Arc<Segment>,
    pub address: Address,
    /// Bytes into the record.
    pub offset: u32,
    /// Of the record's blocks, the last of which may be short, and of the record.
    pub checksums: &'a Checksums,
    pub into: &'a mut [u8],
}

impl Part<'_> {
    /// The blocks of the record that the part touches, as a byte range of the record.
    pub fn covering(&self) -> std::ops::Range<usize> {
        let start = self.offset as usize / BLOCK_BYTES * BLOCK_BYTES;
        let end = (self.offset as usize + self.into.len()).next_multiple_of(BLOCK_BYTES);
        start..end.min(self.address.length as usize)
    }

    /// Whether these bytes, the blocks that cover the part, have their checksums.
    pub fn matches(&self, blocks: &[u8]) -> bool {
        if is_planted(Bug::ChecksumIgnored) {
            return true;
        }
        let checksums = &self.checksums[self.covering().start / BLOCK_BYTES..];
        blocks.chunks(BLOCK_BYTES).zip(checksums).all(|(block, checksum)| stere_format::crc32c(block) == *checksum)
            && (!self.is_whole() || is_digest_of(self.checksums, blocks))
    }

    /// Whether it touches all blocks of the record.
    pub(crate) fn is_whole(&self) -> bool {
        self.covering().len() == self.address.length as usize
    }
}

/// Whether a record's digest, if it has one, is that of these bytes.
pub fn is_digest_of(checksums: &Checksums, record: &[u8]) -> bool {
    is_planted(Bug::DigestIgnored) || checksums.is_digest_of(record)
}

/// Whether a record's checksums are all those of these bytes.
pub fn are_of(checksums: &Checksums, record: &[u8]) -> bool {
    checksums.have_blocks_of(record) && is_digest_of(checksums, record)
}
