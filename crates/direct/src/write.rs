//! Writing a row that the owner has given: records are encoded and described before the owner is asked, then put in their places.
//!
//! The description is what the owner enters into the file, so it is computed from the same bytes that are written. Invariants: a row counts as
//! written only when every chunk that is not marked as missing has it; nothing is written to a node without the epoch of the owner that
//! gave the row. Read next: the format's `row_grant.rs`, the stripe's `write.rs`.

use std::ops::Range;

use stere_device::{Completion, Device};
use stere_format::{BLOCK_BYTES, crc32c};
use stere_format::{BlobEncoding, BlobFlags, BlobValue, ChecksumKind, Checksums, RowGrant, RowHeader, WriteOffer};
use stere_plugin::Encoded;
use stere_policy::Compression;

use crate::Nodes;
use crate::error::DirectError;

/// How content of a file is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    pub compression: Compression,
    pub checksum: ChecksumKind,
    /// The most content of a record.
    pub record_bytes: u32,
}

impl Default for Encoding {
    /// What pools do unless somebody asks for something else.
    fn default() -> Encoding {
        Encoding { compression: Compression::NONE, checksum: ChecksumKind::Crc32c, record_bytes: 128 << 10 }
    }
}

/// How a record is stored.
#[derive(Debug)]
enum Stored {
    /// As it is: these bytes of the content.
    Plain(Range<usize>),
    Encoded(Vec<u8>),
}

/// Content as it is to be stored, and its description.
#[derive(Debug)]
pub struct Records {
    pub offer: WriteOffer,
    stored: Vec<Stored>,
    data: Vec<u8>,
}

impl Records {
    /// Encodes what is to be written at `offset`.
    #[must_use]
    pub fn of(encoding: &Encoding, offset: u64, data: Vec<u8>) -> Records {
        let (mut stored, mut records, mut at) = (Vec::new(), Vec::new(), 0);
        let record_bytes = u64::from(encoding.record_bytes) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        assert!(record_bytes > 0, "a record has room for a block");
        while at < data.len() {
            let begins = offset + at as u64;
            let end = (at + ((begins / record_bytes + 1) * record_bytes - begins) as usize).min(data.len());
            let (record, bytes) = encode(encoding, &data[at..end]);
            stored.push(bytes.map_or(Stored::Plain(at..end), Stored::Encoded));
            records.push(record);
            at = end;
        }
        assert_eq!(records.len(), stored.len(), "each record has its description");
        Records { offer: WriteOffer { records }, stored, data }
    }

    fn each(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.stored.iter().map(|stored| match stored {
            Stored::Plain(range) => &self.data[range.clone()],
            Stored::Encoded(bytes) => &bytes[..],
        })
    }
}

/// Describes a record; with it the bytes that are stored in its place, if they are others.
fn encode(encoding: &Encoding, piece: &[u8]) -> (BlobValue, Option<Vec<u8>>) {
    let logical_bytes = u32::try_from(piece.len()).expect("a record is far below 4 GiB");
    let (code, flags, bytes) = match encoding.compression.algorithm() {
        None => (BlobEncoding::PLAIN, BlobFlags::NONE, None),
        Some(_) => match stere_plugin::encode(encoding.compression, piece) {
            Encoded::Plain { gave_up } => (BlobEncoding::PLAIN, gave_up, None),
            Encoded::Stored { encoding, bytes } => (encoding, BlobFlags::NONE, Some(bytes)),
        },
    };
    let stored = bytes.as_deref().unwrap_or(piece);
    let mut checksums = Checksums::without_blocks(encoding.checksum, stored).to_push(stored.len());
    stored.chunks(BLOCK_BYTES).for_each(|block| checksums.push(crc32c(block)));
    let address = WriteOffer::unplaced(u32::try_from(stored.len()).expect("a record is far below 4 GiB"));
    let value = match code {
        BlobEncoding::PLAIN => BlobValue::plain(address, checksums),
        code => BlobValue::encoded(address, checksums, code, logical_bytes),
    };
    (BlobValue { flags, ..value }, bytes)
}

impl Nodes {
    /// Whether all nodes that a row goes to can be written to from here.
    #[must_use]
    pub fn reach(&self, grant: &RowGrant) -> bool {
        let chunks = (0..grant.place.chunks.len()).filter(|chunk| !grant.place.is_missing(*chunk));
        let device = |chunk: usize| self.stripe.devices.get(grant.place.chunks[chunk].device);
        chunks.map(device).all(|device| device.is_some_and(|device| device.silent_for().is_none()))
    }

    /// Writes as the owner of this term from now on; false if there was a newer one.
    fn follow(&self, epoch: u64) -> bool {
        let mut known = self.epoch.lock();
        assert!(*known <= self.stripe.devices.epoch(), "nodes were told of every owner that gave a row");
        if epoch > *known {
            self.stripe.devices.set_epoch(epoch);
            *known = epoch;
        }
        epoch == *known
    }

    /// Writes a row, and waits until all of it is there.
    ///
    /// # Errors
    /// Some node does not have its part, or may not.
    pub fn write(&self, grant: &RowGrant, records: &Records) -> Result<(), DirectError> {
        let lacking = DirectError::Lacking { segment: grant.segment };
        if records.stored.len() != grant.offsets.len() || !self.follow(grant.epoch) {
            return Err(lacking);
        }
        let mut row = self.stripe.buffers().take(grant.row_bytes as usize);
        let bytes = row.as_mut_slice();
        bytes[..RowHeader::SIZE].copy_from_slice(&grant.header);
        let mut end = RowHeader::SIZE;
        for (record, offset) in records.each().zip(&grant.offsets) {
            let (at, length) = (*offset as usize, record.len());
            if at < end || at + length > grant.summary_offset as usize {
                return Err(lacking);
            }
            bytes[end..at].fill(0);
            bytes[at..at + length].copy_from_slice(record);
            end = at + length;
        }
        let summary = grant.summary_offset as usize;
        bytes[end..summary].fill(0);
        bytes[summary..summary + grant.summary.len()].copy_from_slice(&grant.summary);
        bytes[summary + grant.summary.len()..].fill(0);
        let completion = Completion::new();
        self.stripe.write_row(grant.segment, &grant.place, grant.row_block, &row.share(), 0, &completion)?;
        match completion.wait().pop() {
            None => Ok(()),
            Some((_, error)) => Err(DirectError::Stripe(error.into())),
        }
    }
}
