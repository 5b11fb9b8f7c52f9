//! P-158: when the cleaner rests. P-230: what is remembered of series that made no room.

use stere_format::{Scheme, SegmentKind, Site};

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

fn key(class: u8) -> StreamKey {
    let (scheme, kind, site) = (Scheme { data: 1, parity: 1 }, SegmentKind::Data, Site::ANYWHERE);
    StreamKey { scheme, class, kind, temperature: 0, home: None, tertiary: 0, site, of_others: false }
}

fn fill(died_bytes: u64, slots_free: u64) -> Fill {
    Fill { died_bytes, slots_free, generation: 7 }
}

#[test]
fn a_futile_series_is_not_repeated_until_enough_died_or_a_slot_is_free() {
    let mut series = FutileSeries::default();
    assert!(!series.rests(&key(1), fill(0, 4)), "nothing is known yet");
    series.note(&key(1), 160, fill(1000, 4));
    assert!(series.rests(&key(1), fill(1009, 4)), "too little died");
    assert!(series.rests(&key(1), fill(1009, 3)), "a slot was taken");
    assert!(!series.rests(&key(1), fill(1000, 4)), "and given back");
    assert!(!series.rests(&key(2), fill(1000, 4)), "another kind of data");
    assert!(!series.rests(&key(1), fill(1010, 3)), "a sixteenth died");
    assert!(!series.rests(&key(1), Fill { generation: 7 + GENERATIONS_MAX, ..fill(1000, 3) }), "long ago");
    series.note(&key(1), 0, fill(1010, 3));
    assert!(!series.rests(&key(1), fill(1010, 3)), "a series that moved nothing costs nothing");
}

#[test]
fn only_so_many_kinds_are_remembered() {
    let mut series = FutileSeries::default();
    for class in 0..40 {
        series.note(&key(class), 1600, fill(0, 1));
    }
    assert_eq!(series.last.len(), SERIES_MAX);
    assert!(series.rests(&key(39), fill(0, 1)) && !series.rests(&key(0), fill(0, 1)));
}
