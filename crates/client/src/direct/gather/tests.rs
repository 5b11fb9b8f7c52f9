//! Where pieces are cut.

use super::*;

#[test]
fn pieces_end_where_rows_do() {
    const MIB: u64 = 1 << 20;
    assert_eq!([0, 1, MIB - 1, MIB].map(piece_end), [MIB, MIB, MIB, 2 * MIB]);
}

#[test]
fn whole_blocks_go_past_the_owner_if_they_are_enough() {
    assert_eq!(cut(&(0..1 << 20)), vec![(0..1 << 20, true)]);
    assert_eq!(cut(&(0..4096)), vec![(0..4096, false)]);
    assert_eq!(cut(&(1..300_000)), vec![(1..4096, false), (4096..299_008, true), (299_008..300_000, false)]);
    assert_eq!(cut(&(1..262_144)), vec![(1..262_144, false)]);
}
