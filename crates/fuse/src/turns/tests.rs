//! Turns are given in order, within limits, and come back whatever becomes of who had them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;

/// A number, and its turn if who asked was still there.
type Called = (u32, Option<Turn>);

/// Asks for turns by number, and notes whose turn has come or who is gone.
struct Rig {
    turns: Arc<Turns>,
    come: Arc<Mutex<Vec<Called>>>,
}

impl Rig {
    fn new(user: Option<usize>, tier: Option<usize>) -> Rig {
        Rig { turns: Turns::new(RecallLimits { user, tier }), come: Arc::default() }
    }

    fn ask(&self, number: u32, user: u32, volumes: u16) -> Arc<AtomicBool> {
        let (come, is_gone) = (self.come.clone(), Arc::new(AtomicBool::new(false)));
        let begin = move |one| {
            let turn = match one {
                Come::Turn(turn) => Some(turn),
                Come::Gone => None,
            };
            come.lock().push((number, turn));
        };
        let gone = is_gone.clone();
        self.turns.ask(Claim { user, volumes }, begin, move || gone.load(Ordering::Acquire));
        is_gone
    }

    fn come(&self) -> Vec<u32> {
        self.come.lock().iter().map(|(number, _)| *number).collect()
    }

    fn end(&self, number: u32) {
        let mut come = self.come.lock();
        let place = come.iter().position(|(other, _)| *other == number).unwrap();
        let turn = come.remove(place);
        // The next one is noted by the drop.
        drop(come);
        drop(turn);
    }
}

/// P-139: one user has so many at a time and in order; others, and root, go on.
#[test]
fn one_user_does_not_keep_others_waiting() {
    let rig = Rig::new(Some(2), None);
    (0..5).for_each(|number| drop(rig.ask(number, 1000, 1)));
    assert_eq!((rig.come(), rig.turns.counts().1), (vec![0, 1], 3));
    rig.ask(5, 1001, 1);
    (6..10).for_each(|number| drop(rig.ask(number, 0, 1)));
    assert_eq!(rig.come(), [0, 1, 5, 6, 7, 8, 9]);
    rig.end(1);
    assert_eq!(rig.come(), [0, 5, 6, 7, 8, 9, 2], "in order");
    rig.end(0);
    rig.end(2);
    assert_eq!(rig.come(), [5, 6, 7, 8, 9, 3, 4]);
    assert_eq!(rig.turns.counts().1, 0);
}

/// P-139: so many from one set of volumes, root's too; other volumes are not kept waiting.
#[test]
fn one_set_of_volumes_does_not_keep_others_waiting() {
    let rig = Rig::new(None, Some(1));
    rig.ask(0, 0, 1);
    rig.ask(1, 1000, 1);
    rig.ask(2, 1000, 2);
    rig.ask(3, 1001, 1);
    assert_eq!(rig.come(), [0, 2]);
    rig.end(0);
    assert_eq!(rig.come(), [2, 1]);
    rig.end(1);
    assert_eq!(rig.come(), [2, 3]);
}

/// P-139: both limits hold, and nobody is passed by for ever.
#[test]
fn who_needs_both_is_not_passed_by_for_ever() {
    let rig = Rig::new(Some(1), Some(1));
    rig.ask(0, 1000, 1);
    rig.ask(1, 1001, 2);
    // Needs what each of the two has.
    rig.ask(2, 1000, 2);
    let (mut of_user, mut of_volume) = (0, 1);
    for number in (3..1000).step_by(2) {
        // The user's next read, elsewhere; and another user's of the same volume: one of them always keeps number 2 waiting.
        rig.ask(number, 1000, 1);
        rig.ask(number + 1, 1001, 2);
        rig.end(of_user);
        if rig.come().contains(&2) {
            break;
        }
        rig.end(of_volume);
        if rig.come().contains(&2) {
            break;
        }
        (of_user, of_volume) = (number, number + 1);
    }
    assert!(rig.come().contains(&2), "{:?}", rig.come());
}

/// P-139: who is killed while he waits waits no more, and is never begun.
#[test]
fn who_is_gone_waits_no_more() {
    let rig = Rig::new(Some(1), None);
    rig.ask(0, 1000, 1);
    let is_gone = rig.ask(1, 1000, 1);
    rig.ask(2, 1000, 1);
    is_gone.store(true, Ordering::Release);
    let start = Instant::now();
    while rig.turns.counts().1 > 1 || rig.come().len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "it is noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(rig.come.lock().iter().any(|(number, turn)| *number == 1 && turn.is_none()));
    rig.end(0);
    assert_eq!(rig.come(), [1, 2]);
}

#[test]
fn at_the_end_nobody_waits() {
    let rig = Rig::new(Some(1), Some(1));
    (0..4).for_each(|number| drop(rig.ask(number, 1000, 1)));
    rig.turns.end();
    assert_eq!((rig.come(), rig.turns.counts().1), (vec![0, 1, 2, 3], 0));
    rig.ask(4, 1000, 1);
    assert_eq!(rig.come(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_thread_waits_for_its_turn() {
    let turns = Turns::new(RecallLimits { user: Some(1), tier: None });
    let claim = Claim { user: 1000, volumes: 1 };
    let first = turns.wait(claim).unwrap();
    let other = turns.clone();
    let second = std::thread::spawn(move || other.wait(claim).is_some());
    while turns.counts().1 == 0 {
        std::thread::yield_now();
    }
    drop(first);
    assert!(second.join().unwrap());
    assert_eq!((turns.counts(), turns.state.lock().under_way.len()), ((0, 0), 0), "all is given back");
}

/// Two users at two volumes, one read of each under way, and a third read (number 2, whose going is told) that needs what both have and was
/// passed by so often that it keeps it free. The last number that was used.
fn kept_free(rig: &Rig) -> (Arc<AtomicBool>, u32) {
    rig.ask(0, 1000, 1);
    let is_gone = rig.ask(2, 1000, 2);
    let mut number = 3;
    for _ in 0..PASSED_MAX {
        // The volume is free each time, and the user is not.
        rig.ask(number, 1001, 2);
        assert!(rig.come().contains(&number), "{number} passes it by");
        rig.end(number);
        number += 1;
    }
    (is_gone, number)
}

/// P-139: who was passed by so often keeps free what he needs, and nothing else.
#[test]
fn what_is_kept_free_is_what_is_needed() {
    let rig = Rig::new(Some(1), Some(1));
    let (_, number) = kept_free(&rig);
    rig.ask(number, 1001, 2);
    assert!(!rig.come().contains(&number), "it was passed by often enough");
    rig.ask(number + 1, 1002, 3);
    assert!(rig.come().contains(&(number + 1)), "who needs nothing of it goes on");
    rig.end(0);
    assert!(rig.come().contains(&2), "its turn has come");
    assert!(!rig.come().contains(&number));
    rig.end(2);
    assert!(rig.come().contains(&number));
}

/// P-139: who is passed by those who take nothing that he needs keeps nothing from anybody.
#[test]
fn who_is_passed_by_elsewhere_keeps_nothing() {
    let rig = Rig::new(Some(1), Some(1));
    rig.ask(0, 1000, 1);
    rig.ask(2, 1000, 2);
    for number in 3..3 + 2 * PASSED_MAX {
        rig.ask(number, 1001, 3);
        rig.end(number);
    }
    rig.ask(1000, 1001, 2);
    assert!(rig.come().contains(&1000), "{:?}", rig.come());
}

/// P-139: what somebody kept free who is gone is others' at once, and not only when a turn ends.
#[test]
fn who_is_gone_keeps_nothing() {
    let rig = Rig::new(Some(1), Some(1));
    let (is_gone, number) = kept_free(&rig);
    rig.ask(number, 1001, 2);
    assert!(!rig.come().contains(&number));
    is_gone.store(true, Ordering::Release);
    let start = Instant::now();
    while !rig.come().contains(&number) {
        assert!(start.elapsed() < Duration::from_secs(60), "nobody keeps it any more, and it waits");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(rig.come().contains(&0), "no turn has ended");
}
