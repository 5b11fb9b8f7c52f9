//! A stream: the open segment of one class, and the row being filled in memory.
//!
//! Invariants: records in a row are 512-aligned and follow the row header; the row always has room left for its summary;
//! an address is final when `append` returns, whatever height the row gets. Read next: `write.rs`.

use std::sync::Arc;

use stere_device::Buffer;
use stere_format::{Address, DeviceIndex, RowHeader, SECTOR_BYTES, Scheme, SegmentKind, Site, SummaryEntry};

use crate::segment::Segment;

/// What tells one stream from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    pub scheme: Scheme,
    pub class: u8,
    pub kind: SegmentKind,
    /// 0: written by users; 1: survived a cleaning.
    pub temperature: u8,
    /// Of unreplicated data: the device it lies on, so that a file that lies whole on one device is lost with no other.
    pub home: Option<DeviceIndex>,
    /// Tertiary volumes that the segments go to, a set; 0 for none.
    pub tertiary: u16,
    /// On which devices the data shall lie.
    pub site: Site,
    /// Other machines write it, and flush what they write: of unprotected data nobody but they has it in memory.
    pub of_others: bool,
}

/// The row being filled.
pub(crate) struct OpenRow {
    pub buffer: Buffer,
    pub row_block: u32,
    /// Bytes used so far, header included.
    pub used_bytes: usize,
    /// The row may not grow beyond this (what is left of the segment).
    pub limit_bytes: usize,
    pub summary: Vec<u8>,
    pub record_count: u32,
}

impl OpenRow {
    pub fn new(buffer: Buffer, row_block: u32, limit_bytes: usize) -> Self {
        assert!(limit_bytes <= buffer.len(), "a row of {limit_bytes} bytes has {} bytes of memory", buffer.len());
        assert!(RowHeader::SIZE < limit_bytes, "a row of {limit_bytes} bytes has no room for a record");
        OpenRow { buffer, row_block, used_bytes: RowHeader::SIZE, limit_bytes, summary: Vec::new(), record_count: 0 }
    }

    /// Whether a record of this length and its summary entry still fit.
    pub fn fits(&self, length: usize, entry_bytes: usize) -> bool {
        let data = align(length, SECTOR_BYTES);
        let summary = align(self.summary.len() + entry_bytes, SECTOR_BYTES);
        self.used_bytes + data + summary <= self.limit_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Room for a record of this length at the end of the row; the caller copies and then calls `finish_record`.
    pub fn space(&mut self, length: usize) -> &mut [u8] {
        let start = self.used_bytes;
        &mut self.buffer.as_mut_slice()[start..start + length]
    }

    /// Takes the record just copied into `space` into the row and tells its address.
    pub fn finish_record(&mut self, segment: u64, length: usize, mut entry: SummaryEntry) -> Address {
        let offset = self.used_bytes;
        let end = offset + align(length, SECTOR_BYTES);
        assert!(offset % SECTOR_BYTES == 0, "records begin at sectors");
        // The tail of the last sector may hold bytes of an earlier use of the buffer.
        self.buffer.as_mut_slice()[offset + length..end].fill(0);
        entry.offset = u32::try_from(offset).expect("rows are far below 4 GiB");
        entry.length = u32::try_from(length).expect("records are far below 4 GiB");
        entry.encode_to(&mut self.summary);
        let summary = align(self.summary.len(), SECTOR_BYTES);
        assert!(end + summary <= self.limit_bytes, "a row leaves room for what it tells of its records");
        self.record_count += 1;
        self.used_bytes = end;
        Address { segment, row_block: self.row_block, offset: entry.offset, length: entry.length }
    }
}

/// Open segment and row of a stream.
#[derive(Default)]
pub(crate) struct Stream {
    pub segment: Option<Arc<Segment>>,
    pub row: Option<OpenRow>,
    /// Times `seal_idle_homes` came by since the last append.
    pub idle_rounds: u32,
}

pub(crate) fn align(value: usize, to: usize) -> usize {
    value.div_ceil(to) * to
}
