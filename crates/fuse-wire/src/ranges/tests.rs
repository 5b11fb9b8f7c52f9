//! Ranges are split, changed and let go.

use super::*;

fn lock(kind: i32, start: u64, end: u64) -> Lock {
    Lock { start, end, kind: kind.cast_unsigned(), pid: 1 }
}

#[test]
fn a_part_is_let_go_and_a_kind_is_changed() {
    let owner = |number| Owner { kernel: None, number };
    let wanted = |number, kind, start, end| Wanted::new(owner(number), &lock(kind, start, end));
    let mut ranges = Ranges::default();
    ranges.set(&wanted(1, libc::F_WRLCK, 0, 100));
    ranges.set(&wanted(1, libc::F_UNLCK, 40, 60));
    assert!(ranges.conflict(&wanted(2, libc::F_WRLCK, 40, 60)).is_none());
    assert!(ranges.conflict(&wanted(2, libc::F_RDLCK, 60, 61)).is_some());
    ranges.set(&wanted(1, libc::F_RDLCK, 0, 100));
    assert!(ranges.conflict(&wanted(2, libc::F_RDLCK, 0, 100)).is_none());
    ranges.remove(|held| held == owner(1));
    assert!(ranges.is_empty());
}
