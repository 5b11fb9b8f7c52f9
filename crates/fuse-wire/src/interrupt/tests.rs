//! An interrupt reaches its request whether it comes before, during or after it, and no other.

use super::*;

#[test]
fn a_request_under_way_is_told() {
    let interrupts = Interrupts::new(2);
    interrupts.begin(1, 10);
    let cancel = Cancel::new(Arc::clone(&interrupts), 1, 10);
    assert!(!cancel.is_cancelled());
    interrupts.mark(10);
    assert!(cancel.is_cancelled());
    assert_eq!(interrupts.early_count.load(Ordering::SeqCst), 0);
    interrupts.begin(1, 12);
    assert!(!Cancel::new(interrupts, 1, 12).is_cancelled());
}

#[test]
fn an_interrupt_may_overtake_its_request() {
    let interrupts = Interrupts::new(1);
    interrupts.mark(20);
    interrupts.begin(0, 18);
    assert!(!Cancel::new(Arc::clone(&interrupts), 0, 18).is_cancelled());
    interrupts.begin(0, 20);
    assert!(Cancel::new(Arc::clone(&interrupts), 0, 20).is_cancelled());
    assert_eq!(interrupts.early_count.load(Ordering::SeqCst), 0);
}

#[test]
fn interrupts_of_unknown_requests_do_not_pile_up() {
    let interrupts = Interrupts::new(1);
    for unique in 1..1000 {
        interrupts.mark(unique * 2);
    }
    assert_eq!(interrupts.early_count.load(Ordering::SeqCst), EARLY_MAX);
}

#[test]
fn the_end_of_the_session_cancels_all() {
    let interrupts = Interrupts::new(1);
    interrupts.begin(0, 2);
    let cancel = Cancel::new(Arc::clone(&interrupts), 0, 2);
    interrupts.end();
    assert!(cancel.is_cancelled());
}
