use super::*;

const KIB: usize = 1 << 10;

fn row(byte: u8, length: usize) -> SharedBuffer {
    Buffer::copy_of(&vec![byte; length]).share()
}

fn address(segment: u64, row_block: u32, offset: u32) -> Address {
    Address { segment, row_block, offset, length: 512 }
}

#[test]
fn the_oldest_rows_leave_first_and_no_more_is_kept_than_may_be() {
    let recent = RecentRows::new(64 * KIB);
    for number in 0..10_u8 {
        recent.keep((1, u32::from(number)), row(number, 16 * KIB));
        assert!(recent.kept_bytes() <= 64 * KIB);
    }
    let mut bytes = [0; 100];
    for number in 0..6 {
        assert!(!recent.read(&address(1, number, 0), 0, &mut bytes), "row {number} is the older");
    }
    for number in 6..10_u8 {
        assert!(recent.read(&address(1, u32::from(number), 512), 7, &mut bytes));
        assert_eq!(bytes, [number; 100]);
    }
    assert!(!recent.read(&address(2, 9, 0), 0, &mut bytes), "another segment's row");
}

#[test]
fn a_short_row_in_a_long_buffer_is_copied_and_counted_as_what_it_is() {
    let recent = RecentRows::new(64 * KIB);
    let mut buffer = Buffer::zeroed(1024 * KIB);
    buffer.as_mut_slice()[..8 * KIB].fill(3);
    buffer.set_length(8 * KIB);
    recent.keep((1, 1), buffer.share());
    assert_eq!(recent.kept_bytes(), 8 * KIB);
    let mut bytes = [0; 512];
    assert!(recent.read(&address(1, 1, 4096), 0, &mut bytes));
    assert_eq!(bytes, [3; 512]);
}

#[test]
fn a_row_larger_than_all_that_may_be_kept_is_not_kept_and_nothing_leaves_for_it() {
    let recent = RecentRows::new(16 * KIB);
    recent.keep((1, 1), row(1, 8 * KIB));
    recent.keep((1, 2), row(2, 32 * KIB));
    let mut bytes = [0; 8];
    assert!(recent.read(&address(1, 1, 0), 0, &mut bytes));
    assert!(!recent.read(&address(1, 2, 0), 0, &mut bytes));
    let none = RecentRows::new(0);
    none.keep((1, 1), row(1, 4 * KIB));
    assert!(!none.read(&address(1, 1, 0), 0, &mut bytes));
}
