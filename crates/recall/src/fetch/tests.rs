//! What is kept of what was fetched.

use super::*;

const PIECE: usize = 8 << 20;

fn chunk(segment: u64, is_ahead: bool) -> Chunk {
    Chunk { segment, bytes: Arc::new(vec![0; PIECE]), is_ahead }
}

fn segments(kept: &Kept) -> Vec<u64> {
    kept.chunks.iter().map(|chunk| chunk.segment).collect()
}

/// P-146: what nobody asked for takes the room that is left, and not all of that; it goes first when somebody asks for something.
#[test]
fn what_nobody_asked_for_takes_no_room_from_others() {
    let mut kept = Kept::default();
    (0..7).for_each(|segment| kept.keep(chunk(segment, true)));
    assert_eq!(segments(&kept), [0, 1, 2, 3], "half of it");
    (10..14).for_each(|segment| kept.keep(chunk(segment, false)));
    assert_eq!(kept.chunks.len(), 8);
    kept.keep(chunk(20, true));
    assert!(!segments(&kept).contains(&20), "there is no room");
    // Somebody asked for it after all.
    assert!(kept.chunk_asked_for(0).is_some());
    (14..17).for_each(|segment| kept.keep(chunk(segment, false)));
    assert_eq!(segments(&kept), [0, 10, 11, 12, 13, 14, 15, 16]);
    kept.keep(chunk(17, false));
    assert_eq!(segments(&kept), [10, 11, 12, 13, 14, 15, 16, 17], "then the oldest");
}
