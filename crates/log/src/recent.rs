//! Rows that were written lately, kept in memory for a while: what was just written in small pieces is often read, or
//! written on, right away (a log that is opened for each line, a compiler's output, the last block of a file that ends within one).
//!
//! Invariants: rows never change and their numbers are given once, so nothing here ever goes stale. What is kept holds no segment.
//! Only rows of small records are kept: of large ones the kernel has whole pages and asks no more. No more than `bytes_max` is
//! kept, the memory behind it counted and not what is used of it. Read next: `read.rs`, `stranded.rs` (`row_landed`).

use std::collections::{BTreeMap, VecDeque};

use parking_lot::RwLock;
use stere_device::{Buffer, SharedBuffer};
use stere_format::{Address, SegmentKind};

use crate::segment::Segment;

/// Rows with larger records on average are not kept.
const RECORD_BYTES_MAX: usize = 32 << 10;

/// A row: its segment, and its first block there.
pub(crate) type RowNumber = (u64, u32);

#[derive(Default)]
struct Kept {
    rows: BTreeMap<RowNumber, SharedBuffer>,
    /// Oldest first.
    order: VecDeque<RowNumber>,
    bytes: usize,
}

/// The rows that are kept, oldest out first.
pub(crate) struct RecentRows {
    bytes_max: usize,
    kept: RwLock<Kept>,
}

impl RecentRows {
    pub fn new(bytes_max: usize) -> Self {
        RecentRows { bytes_max, kept: RwLock::default() }
    }

    /// Whether a row of this segment is worth being kept when it has arrived.
    pub fn wants(&self, segment: &Segment, row_bytes: usize, records: u32) -> bool {
        let is_users = segment.kind == SegmentKind::Data && segment.temperature == 0;
        self.bytes_max > 0 && is_users && row_bytes <= RECORD_BYTES_MAX * records as usize
    }

    /// Keeps a row that has arrived on its devices.
    pub fn keep(&self, number: RowNumber, row: SharedBuffer) {
        // A row that was closed early leaves most of its memory unused.
        let row = match row.capacity_bytes() > 4 * row.len() {
            true => Buffer::copy_of(&row).share(),
            false => row,
        };
        let bytes = row.capacity_bytes();
        if bytes > self.bytes_max {
            return;
        }
        let mut gone = Vec::new();
        let mut kept = self.kept.write();
        let before = kept.rows.insert(number, row);
        assert!(before.is_none(), "a row arrives once");
        kept.order.push_back(number);
        kept.bytes += bytes;
        while kept.bytes > self.bytes_max {
            let oldest = kept.order.pop_front().expect("what is kept has an order");
            let row = kept.rows.remove(&oldest).expect("the order names what is kept");
            assert!(kept.bytes >= row.capacity_bytes(), "a row that goes was counted when it was kept");
            kept.bytes -= row.capacity_bytes();
            gone.push(row);
        }
        assert_eq!(kept.order.len(), kept.rows.len(), "each row that is kept has its turn to go");
        drop(kept);
        // Giving memory back to the system takes its time.
        drop(gone);
    }

    /// Copies bytes of a record, if its row is kept.
    pub fn read(&self, address: &Address, offset: usize, into: &mut [u8]) -> bool {
        if self.bytes_max == 0 {
            return false;
        }
        let kept = self.kept.read();
        let Some(row) = kept.rows.get(&(address.segment, address.row_block)) else { return false };
        let start = address.offset as usize + offset;
        into.copy_from_slice(&row[start..start + into.len()]);
        true
    }

    #[cfg(test)]
    pub fn kept_bytes(&self) -> usize {
        self.kept.read().bytes
    }
}

#[cfg(test)]
mod tests;
