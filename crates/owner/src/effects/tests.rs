//! Changes are told together where they are alike.

use super::*;

fn write(by: u64, node: u64, offset: i64, length: i64) -> Changes {
    Changes { by: Some(by), inodes: vec![ChangedInode { node, offset, length }], ..Changes::default() }
}

#[test]
fn writes_of_one_file_by_one_kernel_that_touch_are_told_as_one() {
    let effects = Effects::default();
    [write(1, 5, 0, 10), write(1, 5, 10, 10), write(1, 5, -1, 0), write(2, 5, 0, 1), write(2, 6, 0, 1)]
        .into_iter()
        .for_each(|changes| effects.push(changes));
    effects.push(write(2, 6, 5, 1));
    let told = std::mem::take(&mut effects.queue.lock().changes);
    assert_eq!(told, [write(1, 5, 0, 20), write(2, 5, 0, 1), write(2, 6, 0, 1), write(2, 6, 5, 1)]);
}

#[test]
fn a_range_to_the_end_stays_one() {
    let range = |offset, length| ChangedInode { node: 1, offset, length };
    assert_eq!(both(range(100, 0), range(0, 5)), range(0, 0));
    assert_eq!(both(range(-1, 0), range(7, 5)), range(7, 5));
    assert_eq!(both(range(3, 2), range(9, 1)), range(3, 7));
}

#[test]
fn the_queue_is_bounded() {
    let effects = Effects::default();
    (0..QUEUE_MAX as u64 + 9).for_each(|node| effects.push(write(1, node, 0, 1)));
    assert_eq!(effects.queue.lock().changes.len(), QUEUE_MAX);
}
