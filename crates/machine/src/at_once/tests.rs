use super::*;
use std::time::{Duration, Instant};

#[test]
fn the_slow_ones_are_slow_together() {
    let start = Instant::now();
    let answers = at_once(&[1, 2, 3, 4, 5], |number| {
        std::thread::sleep(Duration::from_millis(200));
        number * 2
    });
    assert_eq!(answers, [2, 4, 6, 8, 10]);
    assert!(start.elapsed() < Duration::from_millis(800), "{:?}", start.elapsed());
}
