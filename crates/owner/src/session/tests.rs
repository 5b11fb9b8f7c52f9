//! Answers that are kept, and what has to be durable before which.

use super::work::need;
use super::*;
use crate::definite::Need;

#[test]
fn answers_are_kept_until_they_are_acknowledged_and_no_more_than_there_is_room_for() {
    let mut kept = Kept::default();
    (1..=5).for_each(|number| kept.keep(number, &[0; 100]));
    kept.acknowledge(4);
    assert_eq!((kept.answers.keys().copied().collect::<Vec<_>>(), kept.bytes), (vec![4, 5], 200));
    kept.keep(5, &[0; 50]);
    assert_eq!(kept.bytes, 150);
    (6..200).for_each(|number| kept.keep(number, &vec![0; KEPT_ANSWER_BYTES_MAX]));
    assert!(kept.bytes <= KEPT_BYTES_MAX && !kept.answers.contains_key(&4) && kept.answers.contains_key(&199));
    kept.acknowledge(u64::MAX);
    assert_eq!((kept.answers.len(), kept.bytes), (0, 0));
}

#[test]
fn names_wait_for_a_commit_and_writes_do_not() {
    assert_eq!(need(opcode::RENAME2, 1, false), Some(Need::Names));
    assert_eq!(need(opcode::FALLOCATE, 7, false), Some(Need::File(7)));
    assert_eq!((need(opcode::WRITE, 1, false), need(opcode::LOOKUP, 1, false)), (None, None));
    assert_eq!(need(opcode::SETATTR, 1, false), Some(Need::Names));
    assert_eq!(need(opcode::SETATTR, 1, true), Some(Need::File(1)));
}
