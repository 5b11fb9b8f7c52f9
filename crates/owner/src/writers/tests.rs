//! One machine gathers a file, and everybody else waits until it has sent what it has.

use super::*;

type Known = Writers<u64, u64>;

fn set() -> (Arc<Known>, Arc<u64>, Arc<u64>) {
    (Arc::default(), Arc::new(1), Arc::new(2))
}

#[test]
fn one_machine_gathers_and_the_others_wait_until_it_has_returned() {
    let (writers, first, second) = set();
    assert!(writers.give((1, &first), 7, || true));
    assert!(writers.give((1, &first), 7, || panic!("it is not asked again")));
    assert!(!writers.give((2, &second), 7, || true));
    assert!(writers.has_others(2) && !writers.has_others(1));
    assert_eq!([1, 2].map(|tag| writers.machines(tag)), [1, 2]);
    let held = Arc::new(5);
    assert!(writers.wait(1, &[7], &held).is_empty(), "nobody waits for itself");
    let recalls = writers.wait(2, &[7, 8], &held);
    let [recall] = &recalls[..] else { panic!("one machine hears of one file") };
    assert_eq!((*recall.session, recall.node), (1, 7));
    assert!(writers.wait(2, &[7], &held).is_empty(), "it has heard");
    assert!(!writers.give((1, &first), 7, || true), "what is recalled is given no more");
    assert_eq!(writers.recalled_of(1), vec![(7, recall.number)]);
    assert!(writers.returned(2, 7, recall.number).is_empty(), "another one returns nothing");
    assert!(writers.returned(1, 7, recall.number + 1).is_empty(), "nor does an answer to another recall");
    assert_eq!(writers.returned(1, 7, recall.number).len(), 2);
    assert!(!writers.has_others(2));
    assert!(!writers.give((1, &first), 7, || true), "not at once again");
}

#[test]
fn what_was_asked_for_before_a_lease_ended_may_be_old() {
    let (writers, first, _) = set();
    let before = writers.now();
    assert!(!writers.may_be_old(2, 7, before));
    assert!(writers.give((1, &first), 7, || true));
    assert!(writers.may_be_old(2, 7, writers.now()));
    assert!(!writers.may_be_old(1, 7, writers.now()));
    let held = Arc::new(5);
    let number = writers.wait(2, &[7], &held)[0].number;
    drop(writers.returned(1, 7, number));
    assert!(writers.may_be_old(2, 7, before));
    assert!(!writers.may_be_old(2, 7, writers.now()));
}

#[test]
fn a_file_that_somebody_else_has_open_is_not_gathered() {
    let (writers, first, _) = set();
    let opening = writers.opening(2, 7);
    assert!(!writers.give((1, &first), 7, || true));
    writers.opened(2, 7);
    drop(opening);
    assert!(!writers.give((1, &first), 7, || true));
    drop(writers.closed(2, 7));
    (0..2).for_each(|_| writers.opened(1, 7));
    assert!(writers.give((1, &first), 7, || true));
    assert!(writers.closed(1, 7).is_empty() && writers.has_others(2), "it has it open still");
    let held = Arc::new(5);
    drop(writers.wait(2, &[7], &held));
    assert_eq!(writers.closed(1, 7).len(), 1);
    assert!(!writers.has_others(2), "who has closed it gathers no more");
}

#[test]
fn who_has_to_do_with_it_is_asked_when_others_see_that_it_is_gathered() {
    let (writers, first, _) = set();
    assert!(!writers.give((1, &first), 7, || {
        assert!(writers.has_others(2), "whoever comes now waits");
        false
    }));
    assert!(!writers.has_others(2));
    let held = Arc::new(5);
    let mut number = 0;
    assert!(!writers.give((1, &first), 7, || {
        number = writers.wait(2, &[7], &held)[0].number;
        false
    }));
    assert_eq!(writers.returned(1, 7, number).len(), 1, "it says that it has nothing");
}

#[test]
fn the_end_of_a_session_lets_go_of_all_that_wait_for_it() {
    let (writers, first, second) = set();
    assert!(writers.give((1, &first), 7, || true));
    assert!(writers.give((2, &second), 8, || true));
    let held = Arc::new(5);
    drop(writers.wait(3, &[7, 8], &held));
    assert_eq!(writers.overdue(Duration::ZERO).len(), 2);
    assert!(writers.overdue(Duration::from_secs(60)).is_empty());
    std::thread::sleep(Duration::from_millis(20));
    writers.goes_on(1, 7);
    writers.goes_on(1, 8);
    writers.goes_on(3, 7);
    assert_eq!(writers.overdue(Duration::from_millis(10)).into_iter().map(|one| *one).collect::<Vec<_>>(), [2]);
    assert_eq!(writers.ended(1).len(), 1);
    assert_eq!((writers.all_others(3), writers.machines(2)), (vec![8], 1));
}
