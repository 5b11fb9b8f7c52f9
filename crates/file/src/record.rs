//! One record's worth of bytes that were written and not yet handed to the store.
//!
//! Invariants: `bytes` covers every dirty range; `base` is a multiple of the block; bytes of `bytes` that are not dirty are
//! unspecified until they are filled from the store (`fill`), which happens only for blocks that are partly dirty.

use std::ops::Range;

use stere_format::BLOCK_BYTES;
use stere_store::Reservation;

use crate::ranges::Ranges;

/// Bytes of a record; also the alignment of records in a file.
pub const RECORD_BYTES: u64 = 128 * 1024;
const BLOCK: u32 = BLOCK_BYTES as u32;

/// Dirty bytes of one record.
#[derive(Default)]
pub(crate) struct Record {
    base: u32,
    bytes: Vec<u8>,
    dirty: Ranges,
    reservations: Vec<Reservation>,
    reserved_bytes: u64,
}

impl Record {
    pub fn dirty(&self) -> &Ranges {
        &self.dirty
    }

    /// Memory held.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether every byte of the record is dirty.
    pub fn is_full(&self) -> bool {
        self.dirty.start() == Some(0) && self.dirty.gaps(0..RECORD_BYTES as u32).is_empty()
    }

    /// Bytes of room to reserve in addition before `range` becomes dirty; grows in doubling steps so that small
    /// sequential writes do not ask each time.
    pub fn reservation_lacking(&self, range: Range<u32>) -> u64 {
        assert!(u64::from(range.end) <= RECORD_BYTES, "bytes of a record end in it, not at {}", range.end);
        let mut after = self.dirty.clone();
        after.insert(range);
        let needed = u64::from(after.blocks(BLOCK)) * u64::from(BLOCK);
        if needed <= self.reserved_bytes {
            return 0;
        }
        needed.max((self.reserved_bytes * 2).min(RECORD_BYTES)) - self.reserved_bytes
    }

    pub fn add_reservation(&mut self, reservation: Reservation, bytes: u64) {
        assert!(bytes > 0, "room that is reserved is not empty");
        self.reservations.push(reservation);
        self.reserved_bytes += bytes;
        assert!(self.reserved_bytes <= RECORD_BYTES, "{} bytes are reserved for one record", self.reserved_bytes);
    }

    /// Takes over `data` at `start` in the record.
    pub fn write(&mut self, start: u32, data: &[u8]) {
        let end = start + data.len() as u32;
        assert!(u64::from(end) <= RECORD_BYTES, "a write to a record ends in it");
        self.cover(start, end);
        let at = (start - self.base) as usize;
        self.bytes[at..at + data.len()].copy_from_slice(data);
        self.dirty.insert(start..end);
        self.assert_invariants();
    }

    fn assert_invariants(&self) {
        let covered = u64::from(self.base) + self.bytes.len() as u64;
        assert!(covered <= RECORD_BYTES, "the bytes of a record end in it, not at {covered}");
        assert!(self.dirty.start().is_none_or(|dirty| self.base <= dirty), "the bytes begin before what is dirty");
        assert!(self.dirty.end().is_none_or(|dirty| u64::from(dirty) <= covered), "the bytes reach over what is dirty");
    }

    /// Makes `bytes` reach over `start..end`.
    fn cover(&mut self, start: u32, end: u32) {
        let start = start / BLOCK * BLOCK;
        if self.bytes.is_empty() {
            self.base = start;
        }
        if start < self.base {
            let missing = (self.base - start) as usize;
            self.bytes.splice(0..0, std::iter::repeat_n(0, missing));
            self.base = start;
        }
        assert!(self.base % BLOCK == 0 && self.base <= start, "the bytes begin at a block, before what is covered");
        let length = (end - self.base) as usize;
        if length > self.bytes.len() {
            self.bytes.resize(length, 0);
        }
    }

    /// Drops everything from `end` on.
    pub fn truncate(&mut self, end: u32) {
        self.dirty.truncate(end);
        let keep = end.saturating_sub(self.base) as usize;
        self.bytes.truncate(keep);
        self.assert_invariants();
    }

    /// What has to be written: whole blocks, ending at `end` in the record at the latest.
    pub fn runs(&self, end: u32) -> Ranges {
        assert!(self.dirty.end().is_none_or(|dirty| dirty <= end), "no byte is dirty behind {end}, the file's end");
        self.dirty.rounded(BLOCK, end)
    }

    /// Marks `range` as dirty after `read` has filled it with what the store has there.
    pub fn fill<E>(&mut self, range: Range<u32>, read: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        self.cover(range.start, range.end);
        let at = (range.start - self.base) as usize;
        read(&mut self.bytes[at..at + range.len()])?;
        self.dirty.insert(range);
        self.assert_invariants();
        Ok(())
    }

    /// The bytes of a range that is dirty as a whole.
    pub fn slice(&self, range: &Range<u32>) -> &[u8] {
        assert!(self.dirty.gaps(range.clone()).is_empty(), "only dirty bytes are handed out");
        &self.bytes[(range.start - self.base) as usize..(range.end - self.base) as usize]
    }

    /// Copies the dirty bytes in `start..start + out.len()` over `out`.
    pub fn lay_over(&self, start: u32, out: &mut [u8]) {
        assert!(u64::from(start) + out.len() as u64 <= RECORD_BYTES, "what is laid over lies in one record");
        let end = start + out.len() as u32;
        for range in self.dirty.iter() {
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from < to {
                let source = &self.bytes[(from - self.base) as usize..(to - self.base) as usize];
                out[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
            }
        }
    }
}
