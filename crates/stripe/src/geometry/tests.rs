use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn scheme(data: u8, parity: u8) -> Scheme {
    Scheme::new(data, parity).unwrap()
}

#[test]
fn copies_are_one_piece() {
    let pieces: Vec<_> = row_pieces(scheme(1, 2), 3, 512..200_000).collect();
    assert_eq!(pieces, [RowPiece { chunk: 0, chunk_offset: 3 * 4096 + 512, at: 0, length: 199_488 }]);
    assert_eq!((row_height(scheme(1, 1), 1), row_height(scheme(1, 1), 8192), row_height(scheme(1, 1), 0)), (1, 2, 0));
}

#[test]
fn units_go_round() {
    let pieces: Vec<_> = row_pieces(scheme(2, 1), 1, 30_000..140_000).map(|p| (p.chunk, p.chunk_offset)).collect();
    assert_eq!(pieces, [(0, 34_096), (1, 4096), (0, 4096 + 32_768), (1, 4096 + 32_768), (0, 4096 + 65_536)]);
    assert_eq!(row_height(scheme(4, 1), 1), 1);
    assert_eq!(row_height(scheme(4, 1), 32_768), 8);
    assert_eq!(row_height(scheme(4, 1), 4 * 32_768), 8);
    assert_eq!(row_height(scheme(4, 1), 4 * 32_768 + 1), 9);
    assert_eq!(row_height(scheme(4, 1), 1 << 20), 64);
}

#[test]
fn nothing_has_no_pieces() {
    assert_eq!(row_pieces(scheme(3, 1), 1, 512..512).count(), 0);
}

#[test]
fn ranges_beyond_a_chunk_are_refused() {
    check_chunk_range(1, 4096, 4096, 8192).unwrap();
    assert!(matches!(check_chunk_range(1, 4096, 4097, 8192), Err(StripeError::OutsideChunk { end: 8193, .. })));
    assert!(check_chunk_range(1, u64::MAX, 1, 8192).is_err());
}

proptest! {
    #[test]
    fn every_byte_has_one_place_within_the_height(data in 1u8..8, sectors in 1usize..3000, row_block in 1u32..9) {
        let scheme = scheme(data, 1);
        let bytes = sectors * 512;
        let height = u64::from(row_height(scheme, bytes));
        let mut sectors_seen = HashSet::new();
        let mut at = 0;
        let mut ends = vec![u64::from(row_block) * 4096; usize::from(data)];
        for piece in row_pieces(scheme, row_block, 0..bytes as u64) {
            prop_assert_eq!(piece.at, at);
            at += piece.length;
            prop_assert!(piece.chunk_offset + piece.length as u64 <= (u64::from(row_block) + height) * 4096);
            prop_assert_eq!(piece.chunk_offset, ends[piece.chunk], "parts on one chunk follow each other");
            ends[piece.chunk] = piece.chunk_offset + piece.length as u64;
            for sector in 0..piece.length / 512 {
                prop_assert!(sectors_seen.insert((piece.chunk, piece.chunk_offset + 512 * sector as u64)));
            }
        }
        prop_assert_eq!(at, bytes);
        let used = ends.iter().max().unwrap() - u64::from(row_block) * 4096;
        prop_assert_eq!(used.div_ceil(4096), height, "no higher than needed");
    }

    #[test]
    fn capacity_is_the_inverse_of_height(data in 1u8..8, height in 1u32..300) {
        let scheme = scheme(data, 1);
        let capacity = row_capacity(scheme, height);
        prop_assert_eq!(row_height(scheme, capacity), height);
        // Beyond a partial first unit the row may grow without getting higher, but never without limit.
        let whole = usize::from(data) * height as usize * BLOCK_BYTES;
        prop_assert!(capacity <= whole && row_height(scheme, whole + 1) > height);
    }

    #[test]
    fn a_part_is_a_part_of_the_whole(data in 1u8..6, start in 0u64..200_000, length in 1u64..200_000) {
        let scheme = scheme(data, 2);
        for piece in row_pieces(scheme, 5, start..start + length) {
            let first = row_pieces(scheme, 5, start + piece.at as u64..start + piece.at as u64 + 1).next().unwrap();
            prop_assert_eq!((first.chunk, first.chunk_offset), (piece.chunk, piece.chunk_offset));
        }
    }
}
