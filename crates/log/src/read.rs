//! Reading records: from rows still in memory, else from the devices, verified.
//!
//! Invariants: bytes are handed out only after the checksums of all blocks they touch matched. Read next: the stripe crate's
//! `read.rs`.

use std::sync::Arc;

use stere_format::{Address, BLOCK_BYTES, RowHeader, Summary, SummaryEntry};
use stere_stripe::StripeError;

use crate::segment::Segment;
use crate::write::RowInMemory;
use crate::{Log, LogError, Wait};

/// A run of bytes of one record, and where they go.
pub struct Part<'a> {
    /// What the record is to the caller; comes back in errors.
    pub tag: u64,
    pub segment: &'a Arc<Segment>,
    pub address: Address,
    /// Bytes into the record.
    pub offset: u32,
    /// CRC32C of each 4 KiB block of the record; the last block may be short.
    pub checksums: &'a [u32],
    pub into: &'a mut [u8],
}

impl Part<'_> {
    /// The blocks of the record that the part touches, as a byte range of the record.
    fn covering(&self) -> std::ops::Range<usize> {
        let start = self.offset as usize / BLOCK_BYTES * BLOCK_BYTES;
        let end = (self.offset as usize + self.into.len()).next_multiple_of(BLOCK_BYTES);
        start..end.min(self.address.length as usize)
    }
}

/// Whether every block has its checksum.
fn matches(bytes: &[u8], checksums: &[u32]) -> bool {
    bytes.len().div_ceil(BLOCK_BYTES) <= checksums.len()
        && bytes.chunks(BLOCK_BYTES).zip(checksums).all(|(block, checksum)| stere_format::crc32c(block) == *checksum)
}

fn damaged(part: &Part<'_>, error: StripeError) -> LogError {
    tracing::error!(segment = part.segment.id, record = part.tag, %error, "data cannot be read");
    LogError::Damaged { tag: part.tag, offset: part.offset, length: part.into.len() as u32 }
}

/// What one row holds.
#[derive(Debug)]
pub struct RowContents {
    pub header: RowHeader,
    pub entries: Vec<SummaryEntry>,
}

impl Log {
    /// Reads all parts, each verified.
    pub fn read(&self, wait: Wait, parts: &mut [Part<'_>]) -> Result<(), LogError> {
        let mut on_devices = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter_mut().enumerate() {
            if !self.read_from_memory(&part.address, part.offset as usize, part.into) {
                on_devices.push(index);
            }
        }
        if on_devices.is_empty() {
            return Ok(());
        }
        if wait == Wait::Never {
            return Err(LogError::WouldBlock);
        }
        self.read_from_devices(parts, &on_devices)
    }

    fn read_from_devices(&self, parts: &mut [Part<'_>], wanted: &[usize]) -> Result<(), LogError> {
        for index in wanted {
            let part = &mut parts[*index];
            let covering = part.covering();
            let start = covering.start;
            let offset = part.offset as usize;
            let length = part.into.len();
            let place = part.segment.placed();
            if covering.len() == length {
                let (checksums, first) = (part.checksums, start / BLOCK_BYTES);
                let verify = |bytes: &[u8]| matches(bytes, &checksums[first..]);
                self.stripe
                    .read_verified(&place, &part.address, start as u32, part.into, &verify)
                    .map_err(|error| damaged(part, error))?;
                continue;
            }
            let mut bounce = self.buffers.take(covering.len());
            let checksums = &part.checksums[start / BLOCK_BYTES..];
            self.stripe
                .read_verified(&place, &part.address, start as u32, bounce.as_mut_slice(), &|bytes| matches(bytes, checksums))
                .map_err(|error| damaged(part, error))?;
            part.into.copy_from_slice(&bounce[offset - start..offset - start + length]);
        }
        Ok(())
    }

    /// One whole record.
    pub fn read_record(
        &self,
        segment: &Arc<Segment>,
        address: &Address,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; address.length as usize];
        if self.read_from_memory(address, 0, &mut bytes) {
            return Ok(bytes);
        }
        self.stripe.read_verified(&segment.placed(), address, 0, &mut bytes, verify)?;
        Ok(bytes)
    }

    /// Copies from a row that is still in memory; false when there is none.
    fn read_from_memory(&self, address: &Address, offset: usize, into: &mut [u8]) -> bool {
        let id = (address.segment, address.row_block);
        let start = address.offset as usize + offset;
        loop {
            let stream = {
                let rows = self.rows.read();
                match rows.get(&id) {
                    None => return false,
                    Some(RowInMemory::Flying(row)) => {
                        into.copy_from_slice(&row.buffer[start..start + into.len()]);
                        return true;
                    }
                    Some(RowInMemory::Open(stream)) => stream.clone(),
                }
            };
            let guard = stream.lock();
            let segment = guard.segment.as_ref().map(|segment| segment.id);
            if let (Some(row), Some(segment)) = (&guard.row, segment) {
                if (segment, row.row_block) == id {
                    into.copy_from_slice(&row.buffer[start..start + into.len()]);
                    return true;
                }
            }
            // The row was closed in between: look again.
        }
    }

    /// What the row that begins at this block holds; `None` where no row of this segment begins.
    pub fn read_row_contents(&self, segment: &Arc<Segment>, row_block: u32) -> Result<Option<RowContents>, LogError> {
        let header_address =
            Address { segment: segment.id, row_block, offset: 0, length: RowHeader::SIZE as u32 };
        let pool = self.pool_id();
        let belongs = |bytes: &[u8]| {
            RowHeader::decode(bytes)
                .is_ok_and(|header| header.pool == pool && header.segment == segment.id && header.row_block == row_block)
        };
        let Ok(bytes) = self.read_record(segment, &header_address, &belongs) else { return Ok(None) };
        let bad = |detail: String| LogError::BadRow { segment: segment.id, row_block, detail };
        let header = RowHeader::decode(&bytes).map_err(|error| bad(error.to_string()))?;
        let summary_address = Address {
            segment: segment.id,
            row_block,
            offset: header.summary_offset,
            length: header.summary_length,
        };
        let bytes = self
            .read_record(segment, &summary_address, &|bytes| stere_format::crc32c(bytes) == header.summary_crc32c)
            .map_err(|error| bad(error.to_string()))?;
        let entries = Summary::decode(&header, &bytes).map_err(|error| bad(error.to_string()))?;
        Ok(Some(RowContents { header, entries }))
    }
}
