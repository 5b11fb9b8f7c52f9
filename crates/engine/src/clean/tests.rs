//! P-158: when the cleaner rests.

use super::*;

const SEGMENT_BYTES: u64 = 1 << 20;

#[test]
fn passes_that_free_nothing_come_to_rest_until_something_changes() {
    let mut background = Background::default();
    let passes = |background: &mut Background, slots_free: u64, live: i64| {
        let mut passes = 0;
        while passes < 100 && !background.rests(slots_free, live, SEGMENT_BYTES) {
            background.note(slots_free, slots_free, live);
            passes += 1;
        }
        passes
    };
    assert_eq!(passes(&mut background, 10, 500 << 20), FRUITLESS_PASSES_MAX);
    assert_eq!(passes(&mut background, 10, (500 << 20) - 1000), 0, "little died");
    assert_eq!(passes(&mut background, 10, 510 << 20), 0, "more is live");
    assert_eq!(passes(&mut background, 10, 499 << 20), FRUITLESS_PASSES_MAX, "a segment's worth died");
    assert_eq!(passes(&mut background, 9, 499 << 20), FRUITLESS_PASSES_MAX, "a slot was taken");
    assert_eq!(passes(&mut background, 9, 499 << 20), 0);
}

#[test]
fn passes_that_free_slots_go_on() {
    let mut background = Background::default();
    for free in 10..200 {
        assert!(!background.rests(free, 1 << 30, SEGMENT_BYTES));
        background.note(free, free + 1, 1 << 30);
    }
}
