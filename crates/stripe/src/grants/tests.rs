//! What passes, what waits, and what fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::*;

struct Rig {
    now_ms: Arc<AtomicU64>,
    grants: Grants,
    passed: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

impl Rig {
    fn new() -> Rig {
        let now_ms = Arc::new(AtomicU64::new(1000));
        let clock = now_ms.clone();
        let grants = Grants::new(Box::new(move || clock.load(Ordering::Relaxed)));
        grants.renew(5000);
        grants.set_slot_count(0, 40);
        Rig { now_ms, grants, passed: Arc::default(), failed: Arc::default() }
    }

    fn write(&self, slot: Option<Slot>) {
        let (passed, failed) = (self.passed.clone(), self.failed.clone());
        let act = move |outcome: Result<(), DeviceError>| {
            let count = if outcome.is_ok() { passed } else { failed };
            count.fetch_add(1, Ordering::Relaxed);
        };
        self.grants.pass(slot, Box::new(act));
    }

    fn counts(&self) -> (usize, usize, usize) {
        (self.passed.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed), self.grants.waiting())
    }
}

#[test]
fn a_write_waits_for_its_grant() {
    let rig = Rig::new();
    rig.grants.set_slot_count(0, 64 * 40);
    rig.write(None);
    rig.write(Some((0, 64 * 40 - 10)));
    assert_eq!(rig.counts(), (1, 0, 1));
    let wanted = rig.grants.wanted();
    assert_eq!(wanted, vec![SlotExtent { device: 0, first: 64 * 40 - 10, count: 10 }], "no slot beyond the device");
    rig.grants.granted(&wanted);
    assert_eq!(rig.counts(), (2, 0, 0));
    rig.write(Some((0, 64 * 40 - 9)));
    assert_eq!(rig.counts(), (3, 0, 0), "slots ahead are granted too");
    assert!(rig.grants.wanted().is_empty());
}

/// P-242: the next owner holds what this one was granted.
#[test]
fn of_a_small_device_few_slots_are_granted_ahead() {
    for (slot_count, ahead) in [(40, 1), (256, 4), (1 << 20, 16)] {
        let rig = Rig::new();
        rig.grants.set_slot_count(0, slot_count);
        rig.write(Some((0, 7)));
        assert_eq!(rig.grants.wanted(), vec![SlotExtent { device: 0, first: 7, count: ahead }]);
    }
}

#[test]
fn everything_waits_while_the_lease_is_over() {
    let rig = Rig::new();
    rig.now_ms.store(5000, Ordering::Relaxed);
    rig.write(None);
    assert_eq!(rig.counts(), (0, 0, 1));
    rig.grants.renew(4000);
    assert_eq!(rig.counts(), (0, 0, 1), "a lease that is over already brings nothing");
    rig.grants.renew(9000);
    assert_eq!(rig.counts(), (1, 0, 0));
}

#[test]
fn nothing_passes_once_the_pool_is_lost() {
    let rig = Rig::new();
    rig.write(Some((0, 1)));
    rig.grants.lose("host b took it");
    assert_eq!(rig.counts(), (0, 1, 0));
    rig.grants.renew(90_000);
    rig.grants.granted(&[SlotExtent { device: 0, first: 1, count: 1 }]);
    rig.write(None);
    rig.write(Some((0, 1)));
    assert_eq!(rig.counts(), (0, 3, 0));
    assert!(!rig.grants.allows(None));
}

#[test]
fn a_grant_ends_after_two_checkpoints_without_a_write() {
    let rig = Rig::new();
    rig.grants.granted(&[SlotExtent { device: 0, first: 1, count: 2 }]);
    assert_eq!(rig.grants.kept_at_root(5).len(), 1);
    rig.write(Some((0, 2)));
    rig.grants.note_flushed([0].into_iter(), 5);
    let second = vec![SlotExtent { device: 0, first: 2, count: 1 }];
    assert_eq!(rig.grants.kept_at_root(6), second);
    assert_eq!(rig.counts(), (1, 0, 0));
    // Another device's flush tells nothing of this one, whose write may still be on its way.
    rig.grants.note_flushed([1].into_iter(), 6);
    assert_eq!(rig.grants.kept_at_root(7), second);
    rig.grants.note_flushed([0].into_iter(), 7);
    assert_eq!(rig.grants.kept_at_root(8), Vec::new());
    rig.write(Some((0, 2)));
    assert_eq!(rig.counts(), (1, 0, 1), "it has to be granted again");
}

/// P-279: another machine may write there for as long as a slot is lent, whatever this one writes.
#[test]
fn a_slot_that_is_lent_stays_granted() {
    let rig = Rig::new();
    let done = Completion::new();
    rig.grants.lend(&[(0, 3)], &done);
    assert!(!done.is_done(), "it waits until the log grants it");
    let wanted = rig.grants.wanted();
    rig.grants.granted(&wanted);
    assert!(done.is_done() && done.wait().is_empty());
    let keeps = |generation: u64| {
        rig.grants.note_flushed([0].into_iter(), rig.grants.generation());
        slots_of(&rig.grants.kept_at_root(generation)).any(|slot| slot == (0, 3))
    };
    assert!((1..8).all(keeps), "roots repeat it although nobody here writes");
    rig.grants.take_back(&[(0, 3)]);
    assert!(keeps(8), "the last write was a moment ago");
    assert!(!(9..12).all(keeps), "in the end it goes");
}
