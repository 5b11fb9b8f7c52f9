//! Checksums of what a server told to be durable last, so that one that comes back with an older disk is known.
//!
//! Of the last writes that a flush covered the checksum of the first block is remembered. A server that was restarted, and holds something else
//! there, was given another disk, an image of yesterday, or lied about its flushes: nothing on it can be believed. Invariant: what somebody began
//! to write over, or to discard, is no witness any more, whether that was carried out or not.

use std::collections::BTreeMap;

/// Writes that are remembered.
const WITNESSES_MAX: usize = 64;
pub const BLOCK_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Seen {
    length: u64,
    checksum: u32,
    /// Which of all writes it was.
    number: u64,
}

/// Written blocks by their offset.
#[derive(Debug, Default)]
pub struct Witnesses {
    written: BTreeMap<u64, Seen>,
    /// Writes up to this number are durable.
    durable: u64,
}

/// Of the first block of what is written.
pub fn checksum(block: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, block) as u32
}

impl Witnesses {
    /// A range is about to change.
    pub fn forget(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let over = self.written.range(..end).filter(|(at, seen)| *at + seen.length > offset);
        let over: Vec<u64> = over.map(|(at, _)| *at).collect();
        self.written.retain(|at, _| !over.contains(at));
    }

    /// A write was acknowledged.
    pub fn note(&mut self, offset: u64, length: u64, checksum: u32, number: u64) {
        assert!(length >= BLOCK_BYTES as u64, "a write has a first block");
        assert!(number > self.durable, "what was not written yet is not durable");
        self.forget(offset, length);
        self.written.insert(offset, Seen { length, checksum, number });
        if self.written.len() > WITNESSES_MAX {
            let oldest = self.written.iter().min_by_key(|(_, seen)| seen.number).map(|(at, _)| *at);
            oldest.map(|at| self.written.remove(&at));
        }
    }

    /// Writes up to this number are durable.
    pub fn flushed(&mut self, number: u64) {
        self.durable = self.durable.max(number);
    }

    /// What was not durable may be gone.
    pub fn forget_what_was_not_durable(&mut self) {
        let durable = self.durable;
        self.written.retain(|_, seen| seen.number <= durable);
    }

    /// Blocks that must be there, with their checksums.
    pub fn durable(&self) -> Vec<(u64, u32)> {
        let those = self.written.iter().filter(|(_, seen)| seen.number <= self.durable);
        those.map(|(at, seen)| (*at, seen.checksum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_durable_and_untouched_is_a_witness() {
        let mut witnesses = Witnesses::default();
        witnesses.note(0, 4096, 1, 1);
        witnesses.note(8192, 65_536, 2, 2);
        assert_eq!(witnesses.durable(), []);
        witnesses.flushed(1);
        assert_eq!(witnesses.durable(), [(0, 1)]);
        witnesses.flushed(2);
        assert_eq!(witnesses.durable(), [(0, 1), (8192, 2)]);
        // Somebody begins to write into the second one, behind its first block; that says nothing of the first block, but who knows.
        witnesses.forget(40_960, 4096);
        assert_eq!(witnesses.durable(), [(0, 1)]);
        witnesses.note(0, 4096, 3, 3);
        assert_eq!(witnesses.durable(), []);
        witnesses.flushed(3);
        assert_eq!(witnesses.durable(), [(0, 3)]);
        (4..200).for_each(|number| witnesses.note(number * 4096, 4096, 0, number));
        witnesses.flushed(200);
        assert_eq!(witnesses.durable().len(), WITNESSES_MAX);
        assert!(!witnesses.durable().contains(&(0, 3)), "the oldest goes");
    }
}
