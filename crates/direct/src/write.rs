//! Writing a row that the owner has given: records are encoded and described before the owner is asked, then put in their places.
//!
//! The description is what the owner enters into the file, so it is computed from the same bytes that are written. Invariants: a row counts as
//! written only when every chunk that is not marked as missing has it, and one without parity when it is flushed; nothing is written to a node without the epoch of the owner that
//! gave the row. Read next: the format's `row_grant.rs`, the stripe's `write.rs`.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use stere_crypt::{CryptError, DataKey, Keyring, Place, seal_record};
use stere_device::{Completion, Device};
use stere_faults::{Bug, is_planted};
use stere_format::{Address, BLOCK_BYTES, crc32c};
use stere_format::{BlobEncoding, BlobValue, ChecksumKind, Checksums, RowGrant, RowHeader, WriteOffer};
use stere_plugin::{Passed, Stack, StackFailure};
use stere_policy::Compression;

use crate::Nodes;
use crate::error::DirectError;

/// How content of a file is to be stored.
#[derive(Debug, Clone)]
pub struct Encoding {
    /// Users' plugins, and the number of their stack.
    pub stack: Option<(u16, Arc<Stack>)>,
    pub compression: Compression,
    pub checksum: ChecksumKind,
    /// The most content of a record.
    pub record_bytes: u32,
}

impl Default for Encoding {
    /// What pools do unless somebody asks for something else.
    fn default() -> Encoding {
        Encoding {
            stack: None,
            compression: Compression::NONE,
            checksum: ChecksumKind::Crc32c,
            record_bytes: 128 << 10,
        }
    }
}

/// With what the records of a file are encrypted.
pub struct Sealing<'a> {
    pub keyring: &'a Keyring,
    /// Number of the key.
    pub key: u16,
    pub inode: u64,
}

/// Why content cannot be encoded here.
#[derive(Debug, thiserror::Error)]
pub enum NotEncoded {
    #[error(transparent)]
    Plugin(#[from] StackFailure),
    #[error(transparent)]
    Key(#[from] CryptError),
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
    /// Encodes what is to be written at `offset`, and encrypts it where it is to be sealed.
    ///
    /// # Errors
    /// A plugin fails, or the key is locked.
    pub fn of(
        encoding: &Encoding,
        sealing: Option<&Sealing<'_>>,
        offset: u64,
        data: Vec<u8>,
    ) -> Result<Records, NotEncoded> {
        let (mut stored, mut records, mut at) = (Vec::new(), Vec::new(), 0);
        let record_bytes = u64::from(encoding.record_bytes) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        assert!(record_bytes > 0, "a record has room for a block");
        let key = sealing.map(|sealing| sealing.keyring.open_key(sealing.key)).transpose()?;
        while at < data.len() {
            let begins = offset + at as u64;
            let end = (at + ((begins / record_bytes + 1) * record_bytes - begins) as usize).min(data.len());
            let (mut record, mut bytes) = encode(encoding, &data[at..end])?;
            if let (Some(sealing), Some(key)) = (sealing, &key) {
                (record, bytes) = sealing.seal(key, begins, encoding.checksum, record, &bytes)?;
            }
            assert_eq!(record.stack != 0, record.encoding.is_plugged(), "what passed plugins says which");
            stored.push(match bytes {
                Cow::Borrowed(_) => Stored::Plain(at..end),
                Cow::Owned(bytes) => Stored::Encoded(bytes),
            });
            records.push(record);
            at = end;
        }
        assert_eq!(records.len(), stored.len(), "each record has its description");
        Ok(Records { offer: WriteOffer { records }, stored, data })
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.stored.len()
    }

    /// How much content those before this one have.
    #[must_use]
    pub fn content_bytes_before(&self, record: usize) -> u64 {
        self.offer.records.iter().take(record).map(|record| u64::from(record.logical_bytes)).sum()
    }

    /// Those from this one on, which have no row yet, as they are offered.
    #[must_use]
    pub fn offer_from(&self, first: usize) -> Vec<u8> {
        WriteOffer { records: self.offer.records[first..].to_vec() }.encode()
    }

    fn each(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.stored.iter().map(|stored| match stored {
            Stored::Plain(range) => &self.data[range.clone()],
            Stored::Encoded(bytes) => &bytes[..],
        })
    }
}

impl Sealing<'_> {
    /// Encrypts a record of the file that begins at `offset`.
    fn seal<'data>(
        &self,
        key: &DataKey,
        offset: u64,
        checksum: ChecksumKind,
        record: BlobValue,
        content: &[u8],
    ) -> Result<(BlobValue, Cow<'data, [u8]>), CryptError> {
        let (encoding, logical_bytes) = (record.encoding.encrypted(), record.logical_bytes);
        let place = Place { inode: self.inode, offset, logical_bytes, encoding: encoding.0 };
        let mut stored = Vec::new();
        seal_record(key, &self.keyring.nonce()?, &place, content, &mut stored);
        let (address, checksums) = described(checksum, &stored);
        let BlobValue { flags, stack, .. } = record;
        let sealed = BlobValue::encoded(address, checksums, encoding, logical_bytes);
        Ok((BlobValue { flags, stack, key: key.number(), ..sealed }, Cow::Owned(stored)))
    }
}

/// Encodes a record: its description, and what is stored in its place.
fn encode<'data>(encoding: &Encoding, piece: &'data [u8]) -> Result<(BlobValue, Cow<'data, [u8]>), StackFailure> {
    let logical_bytes = u32::try_from(piece.len()).expect("a record is far below 4 GiB");
    let stack = encoding.stack.as_ref();
    let Passed { bytes, encoding: code, gave_up: flags } =
        stere_plugin::encode_record(stack.map(|(_, stack)| &**stack), encoding.compression, piece)?;
    assert_eq!(code.is_plugged(), stack.is_some(), "what passed plugins says so");
    let (address, checksums) = described(encoding.checksum, &bytes);
    let value = match code {
        BlobEncoding::PLAIN => BlobValue::plain(address, checksums),
        code => BlobValue::encoded(address, checksums, code, logical_bytes),
    };
    Ok((BlobValue { flags, stack: stack.map_or(0, |(number, _)| *number), ..value }, bytes))
}

/// Length and checksums of what is stored.
fn described(kind: ChecksumKind, stored: &[u8]) -> (Address, Checksums) {
    let mut checksums = Checksums::without_blocks(kind, stored).to_push(stored.len());
    stored.chunks(BLOCK_BYTES).for_each(|block| checksums.push(crc32c(block)));
    (WriteOffer::unplaced(u32::try_from(stored.len()).expect("a record is far below 4 GiB")), checksums)
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

    /// Writes a row of the records from `first` on, and waits until all of it is there.
    ///
    /// # Errors
    /// Some node does not have its part, or may not.
    pub fn write(&self, grant: &RowGrant, records: &Records, first: usize) -> Result<(), DirectError> {
        let lacking = DirectError::Lacking { segment: grant.segment };
        if records.stored.len() < first + grant.offsets.len() || !self.follow(grant.epoch) {
            return Err(lacking);
        }
        let mut row = self.stripe.buffers().take(grant.row_bytes as usize);
        let bytes = row.as_mut_slice();
        bytes[..RowHeader::SIZE].copy_from_slice(&grant.header);
        let mut end = RowHeader::SIZE;
        for (record, offset) in records.each().skip(first).zip(&grant.offsets) {
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
        let losses = self.losses_of(grant);
        let completion = Completion::new();
        self.stripe.write_row(grant.segment, &grant.place, grant.row_block, &row.share(), 0, &completion)?;
        match completion.wait().pop() {
            None if grant.place.scheme.parity == 0 && !is_planted(Bug::LentNotFlushed) => self.flush(grant, &losses),
            None => Ok(()),
            Some((_, error)) => Err(DirectError::Stripe(error.into())),
        }
    }

    /// How often each node of a row may have lost what it had acknowledged.
    pub(crate) fn losses_of(&self, grant: &RowGrant) -> Vec<u64> {
        let losses = self.losses.lock();
        grant.place.chunks.iter().map(|place| losses.get(&place.device).copied().unwrap_or_default()).collect()
    }

    /// Makes a row durable that nothing could be computed from, before the owner counts on it. `losses` are from before it was written.
    pub(crate) fn flush(&self, grant: &RowGrant, losses: &[u64]) -> Result<(), DirectError> {
        // One at a time: whoever waits here finds his row flushed too, mostly, or that a flush failed which was for it too.
        let flushing = self.flushing.lock();
        let devices: Vec<_> =
            grant.place.chunks.iter().filter_map(|place| self.stripe.devices.get(place.device)).collect();
        assert_eq!(devices.len(), losses.len(), "the row was written to all of its nodes");
        let failed = self.stripe.devices.flush_of(&devices);
        for (device, _) in &failed {
            *self.losses.lock().entry(*device).or_default() += 1;
        }
        drop(flushing);
        match failed.into_iter().next() {
            Some((_, error)) => Err(DirectError::Stripe(error.into())),
            None if self.losses_of(grant) == losses => Ok(()),
            None => Err(DirectError::Lacking { segment: grant.segment }),
        }
    }
}
