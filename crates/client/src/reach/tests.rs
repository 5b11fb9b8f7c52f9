//! Since when there is no owner (P-256): from the first failure on, whatever fails after it.

use super::*;

#[test]
fn the_time_without_an_owner_counts_from_its_first_failure() {
    let mut reaching = Reaching::default();
    std::thread::sleep(Duration::from_millis(30));
    assert!(reaching.away().0 >= Duration::from_millis(30), "there was none from the beginning");
    reaching.succeeds();
    assert_eq!(reaching.away(), (Duration::ZERO, String::new()));
    reaching.fails("it is silent");
    std::thread::sleep(Duration::from_millis(30));
    reaching.fails("it cannot be reached");
    let (since, why) = reaching.away();
    assert!(since >= Duration::from_millis(30), "{since:?}");
    assert_eq!(why, "it cannot be reached");
}
