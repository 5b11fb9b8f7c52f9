use super::*;
use crate::{Address, ChecksumKind, Checksums, ChunkPlace};

fn place(device: u16) -> SegmentChunks {
    let chunks = (0..3).map(|chunk| ChunkPlace { device: device + chunk, slot: 7 }).collect();
    SegmentChunks { scheme: Scheme { data: 2, parity: 1 }, missing: 2, chunks }
}

fn piece(at: u32, segment: u16, number: u64) -> MappedPiece {
    let address = Address { segment: number, row_block: 1, offset: 512, length: 8192 };
    let value = BlobValue::plain(address, Checksums::of(ChecksumKind::Xxh3, &[5; 8192]));
    MappedPiece { at, offset: 4096, length: 4096, segment, value }
}

fn map() -> ContentMap {
    let pieces = vec![piece(0, 1, 30), piece(8192, 0, 40), piece(12_288, 1, 30)];
    ContentMap { length: 20_000, segments: vec![place(0), place(3)], pieces }
}

#[test]
fn a_map_is_what_was_told() {
    assert_eq!(ContentMap::decode(&map().encode()), Ok(map()));
    let empty = ContentMap { length: 5, segments: Vec::new(), pieces: Vec::new() };
    assert_eq!(ContentMap::decode(&empty.encode()), Ok(empty));
}

#[test]
fn what_is_no_map_is_refused() {
    let refused = |change: fn(&mut ContentMap)| {
        let mut wrong = map();
        change(&mut wrong);
        ContentMap::decode(&wrong.encode()).unwrap_err()
    };
    refused(|map| map.length = 12_000);
    refused(|map| map.pieces.swap(0, 1));
    refused(|map| map.pieces[1].at = 100);
    refused(|map| map.pieces[1].length = 0);
    refused(|map| map.pieces[1].offset = 4097);
    refused(|map| map.pieces[1].segment = 2);
    // Two segments by one place, and a segment that nothing lies in.
    refused(|map| map.pieces[1].segment = 1);
    refused(|map| map.pieces[1] = piece(8192, 1, 30));
    for cut in 0..map().encode().len() {
        assert!(ContentMap::decode(&map().encode()[..cut]).is_err(), "{cut}");
    }
}
