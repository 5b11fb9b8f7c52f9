use super::*;

fn piece(inode: u64) -> Piece {
    Piece { range: whole(inode), bytes: 100 }
}

#[test]
fn what_was_met_twice_is_in_a_metadata_object_once() {
    let mut pieces: VecDeque<Piece> = [7, 9, 8, 7, 12].into_iter().map(piece).collect();
    assert_eq!(next_bundle(&mut pieces), [(Key::inode(7), Key::inode(10)), whole(12)]);
    assert!(pieces.is_empty());
}
