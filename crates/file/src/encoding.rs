//! How data is encoded: what a policy asks for, and what was decoded lately. Read next: `encode.rs`, which does it.

use std::sync::Arc;

use parking_lot::Mutex;
use stere_crypt::{DataKey, Place};
use stere_faults::{Bug, is_planted};
use stere_format::{BLOCK_BYTES, ChecksumKind, SECTOR_BYTES};
use stere_plugin::Stack;
use stere_policy::{Checksum, Compression};
use stere_store::Placement;

use crate::record::RECORD_BYTES;

/// How new data of a file is stored.
#[derive(Debug, Clone)]
pub(crate) struct Storing {
    pub placement: Placement,
    pub compression: Compression,
    pub sealing: Option<Arc<DataKey>>,
    /// Users' plugins that records pass first, and their number.
    pub stack: Option<(u16, Arc<Stack>)>,
    /// How much becomes one blob at most.
    pub record_bytes: u64,
    /// What is kept to know blobs by.
    pub checksum: ChecksumKind,
}

impl Storing {
    /// The number of the key; 0 for none.
    pub fn key(&self) -> u16 {
        self.sealing.as_ref().map_or(0, |key| key.number())
    }

    /// The number of the stack of users' plugins; 0 for none.
    pub fn stack(&self) -> u16 {
        self.stack.as_ref().map_or(0, |(number, _)| *number)
    }

    /// Whether handing data over takes long enough for others not to wait for it.
    pub fn is_slow(&self) -> bool {
        self.compression.algorithm().is_some() || self.sealing.is_some() || self.stack.is_some()
    }

    /// Whether it is that slow before anything is encrypted, which is quick.
    pub(crate) fn is_coded(&self) -> bool {
        self.compression.algorithm().is_some() || self.stack.is_some()
    }

    /// Where the blob ends that begins here with more bytes to come: at the end of its record.
    pub fn blob_end(&self, start: u64) -> u64 {
        let record_bytes = if is_planted(Bug::RecordsUncut) { RECORD_BYTES } else { self.record_bytes };
        let record_bytes = record_bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        assert!(record_bytes > 0, "a blob has room for a block");
        (start / record_bytes + 1) * record_bytes
    }

    /// The blobs that bytes from here on become, each with where it begins.
    pub fn cut<'data>(&self, mut start: u64, mut rest: &'data [u8]) -> impl Iterator<Item = (u64, &'data [u8])> {
        std::iter::from_fn(move || {
            let at = start;
            let (piece, behind) = rest.split_at(rest.len().min((self.blob_end(at) - at) as usize));
            (start, rest) = (at + piece.len() as u64, behind);
            (!piece.is_empty()).then_some((at, piece))
        })
    }

    /// What so many bytes can take: at worst every block becomes a record.
    pub fn stored_bytes_max(&self, bytes: u64) -> u64 {
        let sector_each = bytes.div_ceil(BLOCK_BYTES as u64) * SECTOR_BYTES as u64;
        bytes + sector_each * (u64::from(self.sealing.is_some()) + u64::from(self.stack.is_some()))
    }
}

/// The encoding that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AskedEncoding {
    pub compression: Compression,
    /// Number of the key; 0 for none.
    pub key: u16,
    /// Number of the stack of users' plugins; 0 for none.
    pub stack: u16,
    /// What is kept to know blobs by.
    pub checksum: ChecksumKind,
}

/// What the blob map calls it.
pub(crate) fn kind_of(checksum: Checksum) -> ChecksumKind {
    match checksum {
        Checksum::None => ChecksumKind::None,
        Checksum::Crc32c => ChecksumKind::Crc32c,
        Checksum::Xxh3 => ChecksumKind::Xxh3,
        Checksum::Blake3 => ChecksumKind::Blake3,
    }
}

/// Memory that is kept for stored bytes on their way from devices: as much as two readers have under way of what is encrypted.
pub(crate) const STORED_BYTES_KEPT: usize = 16 << 20;

/// Decoded records that are kept: enough for a few readers that read in small steps.
pub(crate) const KEPT_RECORDS: usize = 16;

/// The records that were decoded last, the newest first.
#[derive(Default)]
pub(crate) struct Decoded(Mutex<Vec<(Known, Arc<[u8]>)>>);

/// A blob; an encrypted one with the place that it was proved to be for.
pub(crate) type Known = (u64, Option<Place>);

impl Decoded {
    pub(crate) fn get(&self, blob: &Known) -> Option<Arc<[u8]>> {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|(known, _)| known == blob)?;
        kept[..=at].rotate_right(1);
        Some(kept[0].1.clone())
    }

    pub(crate) fn keep(&self, blob: Known, content: Arc<[u8]>) {
        let mut kept = self.0.lock();
        if kept.iter().all(|(known, _)| *known != blob) {
            kept.truncate(KEPT_RECORDS - 1);
            kept.insert(0, (blob, content));
        }
    }

    /// Forgets what was decrypted.
    pub fn forget_encrypted(&self) {
        self.0.lock().retain(|((_, place), _)| place.is_none());
    }
}
