//! What is kept is what was written last, until it is durable.

use super::*;

/// The kept bytes of a file as (offset, text).
fn of(retained: &Retained, node: u64) -> Vec<(u64, String)> {
    let text = |piece: &Piece| String::from_utf8(piece.bytes.clone()).expect("letters");
    let file = retained.files.get(&node).cloned().unwrap_or_default();
    let kept: Vec<_> = file.iter().map(|(at, piece)| (*at, text(piece))).collect();
    let bytes: usize = retained.files.values().flatten().map(|(_, piece)| piece.bytes.len()).sum();
    assert_eq!(bytes, retained.bytes);
    kept
}

#[test]
fn the_newest_bytes_win() {
    let mut retained = Retained::default();
    retained.keep(1, 0, b"aaaaaaaaaa", 1);
    retained.keep(1, 3, b"bbb", 1);
    assert_eq!(of(&retained, 1), [(0, "aaa".into()), (3, "bbb".into()), (6, "aaaa".into())]);
    retained.keep(1, 2, b"cccccccccc", 1);
    assert_eq!(of(&retained, 1), [(0, "aa".into()), (2, "cccccccccc".into())]);
    retained.cut(1, 1, 4);
    assert_eq!(of(&retained, 1), [(0, "a".into()), (5, "ccccccc".into())]);
    retained.cut(1, 0, u64::MAX);
    assert!(retained.is_empty() && retained.bytes == 0);
}

#[test]
fn what_is_durable_goes() {
    let mut retained = Retained::default();
    retained.keep(1, 0, b"one", 1);
    let order = retained.order();
    retained.keep(1, 10, b"two", 2);
    retained.keep(2, 0, b"three", 2);
    retained.let_go(Some(1), order);
    assert_eq!(of(&retained, 1), [(10, "two".into())]);
    retained.let_go_marked(1);
    assert_eq!(of(&retained, 1).len() + of(&retained, 2).len(), 2);
    retained.mark(1, 10, 5);
    retained.let_go_marked(2);
    assert_eq!((of(&retained, 1).len(), of(&retained, 2).len()), (1, 0));
    retained.let_go(None, retained.order());
    assert!(retained.is_empty());
}

#[test]
fn a_piece_is_entered_in_parts() {
    let mut retained = Retained::default();
    retained.gather(1, 0, b"abcdef");
    assert!([(0, 1), (5, 1), (2, 2)].iter().all(|(at, length)| retained.has_unentered(1, *at, *length)));
    retained.entered(1, 2, 2, 7);
    assert!(retained.has_unentered(1, 0, 2) && !retained.has_unentered(1, 2, 2) && retained.has_unentered(1, 4, 9));
    retained.let_go_marked(7);
    assert_eq!(retained.lose_gathered(), 1);
    assert!(retained.is_empty() && retained.loss(1) == Some(libc::EIO));
}

#[test]
fn a_loss_is_told_once() {
    let mut retained = Retained::default();
    retained.keep(1, 0, b"one", 1);
    retained.lose(1, 0, 3, libc::ENOSPC);
    assert!(retained.is_empty() && retained.loss(1) == Some(libc::ENOSPC));
    assert_eq!([1, 1, 2].map(|node| retained.tell_loss(node)), [Some(libc::ENOSPC), None, None]);
}

#[test]
fn it_gets_full() {
    let mut retained = Retained::default();
    (0..=64).for_each(|at| retained.keep(1, at << 20, &vec![1; 1 << 20], 1));
    assert!(retained.is_full());
    retained.let_go(None, retained.order());
    assert!(!retained.is_full());
}

#[test]
fn what_no_owner_has_is_kept_whatever_is_durable() {
    let mut retained = Retained::default();
    retained.keep(1, 0, b"on its way", UNENTERED);
    retained.let_go(Some(1), retained.order());
    retained.let_go(None, retained.order());
    retained.let_go_marked(u64::MAX - 1);
    assert!(retained.has_unentered(1, 0, 10) && !retained.has_unentered(1, 10, 1) && !retained.has_unentered(2, 0, 10));
    // Another machine wrote over a part of it.
    retained.cut(1, 2, 3);
    retained.entered(1, 0, 10, 7);
    assert!(!retained.has_unentered(1, 0, 10));
    retained.let_go_marked(7);
    assert!(retained.is_empty());
}

/// P-280.
#[test]
fn what_others_wrote_takes_out_what_is_older_also_of_answers_that_come_late() {
    let mut retained = Retained::default();
    retained.keep(1, 0, b"aaaaaa", 5);
    retained.others_wrote((1, 2, 2), 5, 10);
    assert_eq!(of(&retained, 1), [(0, "aaaaaa".into())], "what others wrote is older");
    retained.others_wrote((1, 2, 2), 6, 10);
    assert_eq!(of(&retained, 1), [(0, "aa".into()), (4, "aa".into())]);
    retained.keep(1, 0, b"bbbb", 4);
    assert_eq!(of(&retained, 1), [(0, "bb".into()), (4, "aa".into())], "an answer that was on its way");
    retained.keep(1, 0, b"cccc", 7);
    assert_eq!(of(&retained, 1), [(0, "cccc".into()), (4, "aa".into())]);
    retained.keep(1, 8, b"dd", UNENTERED);
    retained.others_wrote((1, 8, 1), 9, 10);
    assert_eq!(of(&retained, 1)[2], (8, "dd".into()), "no owner has that yet");
    retained.entered(1, 8, 2, 8);
    assert_eq!(of(&retained, 1)[2], (9, "d".into()));
    retained.answered_below(10);
    retained.keep(1, 2, b"e", 1);
    assert_eq!(of(&retained, 1)[1], (2, "e".into()), "nothing older is under way any more");
}

/// P-290 and P-291: whatever is done again is done in the order in which the owner before did it.
#[test]
fn changes_and_writes_are_done_again_in_the_order_of_their_marks() {
    let change = |number| Request { number, message: Vec::new(), inode: 0, at: (0, 0) };
    let write = |node, mtime| Again::Write { node, offset: 0, bytes: b"a".to_vec(), mtime };
    let mut retained = Retained::default();
    retained.keep(2, 0, b"a", UNENTERED);
    retained.keep_request(7, change(3));
    retained.keep(1, 0, b"a", 6);
    retained.keep_request(5, change(4));
    let told_later = retained.order();
    retained.keep(3, 0, b"a", 8);
    retained.date(1, told_later, (9, 1));
    retained.date(3, told_later, (9, 2));
    let all =
        [Again::Request(change(4)), write(1, Some((9, 1))), Again::Request(change(3)), write(3, None), write(2, None)];
    assert_eq!(retained.again(), all);
    retained.let_go_marked(7);
    assert_eq!(retained.again(), all[3..]);
}
