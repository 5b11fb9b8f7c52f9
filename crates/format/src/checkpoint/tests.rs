//! What the superblock knows a checkpoint by.

use super::*;
use crate::journal::{Counters, JournalPosition};

fn record(generation: u64) -> Vec<u8> {
    let record = CheckpointRecord {
        pool: PoolId([3; 16]),
        generation,
        root: None,
        counters: Counters { next_inode: 2, next_blob: 1, next_segment: 1, next_sequence: 1 },
        journal_start: JournalPosition { position: 0, sequence: 1 },
        hash_key: [7; 16],
        totals: PoolTotals::default(),
        devices: Vec::new(),
        meta_segments: Vec::new(),
    };
    record.encode().unwrap()
}

#[test]
fn checksums_of_parts_tell_generations_apart() {
    let (old, new) = (record(6), record(12));
    assert_eq!(crate::crc32c(&old), crate::crc32c(&new), "why a plain checksum will not do");
    assert_ne!(CheckpointRecord::part_checksum(&old), CheckpointRecord::part_checksum(&new));
}

#[test]
fn rot_anywhere_in_a_part_shows() {
    let part = record(6);
    let right = CheckpointRecord::part_checksum(&part);
    for at in 0..part.len() {
        let mut rotten = part.clone();
        rotten[at] ^= 8;
        assert_ne!(CheckpointRecord::part_checksum(&rotten), right, "byte {at}");
    }
}
