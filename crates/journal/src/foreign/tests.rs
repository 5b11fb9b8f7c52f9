//! Slots are held as long as they have to be, over any number of owners, and no longer.

use super::*;

const HOLD_MS: u32 = 30_000;

fn one(slot: u32) -> Vec<SlotExtent> {
    extents_of([(0, slot)])
}

#[test]
fn the_last_owners_slots_are_counted_from_the_first_root_on() {
    let mut foreign = Foreign::new(Vec::new(), one(3), 1000);
    foreign.count_on(20_000);
    assert!(foreign.release(90_000).is_empty(), "nobody told the owner before that it was replaced");
    assert_eq!(foreign.told(90_000, HOLD_MS), [HeldSlots { remaining_ms: HOLD_MS, extents: one(3) }]);
    foreign.begin(100_000, HOLD_MS);
    assert!(foreign.release(129_999).is_empty());
    assert_eq!(foreign.told(129_000, HOLD_MS)[0].remaining_ms, 1000);
    assert_eq!(foreign.release(130_000), one(3));
    assert!(foreign.slots().is_empty() && foreign.told(130_000, HOLD_MS).is_empty());
}

/// Each owner is granted a slot of its own, and is replaced nine seconds later.
#[test]
fn owners_that_follow_each_other_quickly_hold_a_few_groups_only() {
    let mut held = Vec::new();
    for owner in 0..100_u32 {
        // Clocks of machines have nothing to do with each other.
        let mut now_ms = u64::from(owner) * 7919 % 1_000_000;
        let mut foreign = Foreign::new(held, one(owner), now_ms);
        foreign.count_on(5000);
        foreign.begin(now_ms, HOLD_MS);
        now_ms += 4000;
        foreign.release(now_ms);
        held = foreign.told(now_ms, HOLD_MS);
        assert!(held.len() <= 5, "owner {owner}: {held:?}");
        // The last three were replaced less than thirty seconds ago.
        let slots: Vec<u32> = slots_of(&foreign.slots()).map(|(_, slot)| slot).collect();
        assert!((owner.saturating_sub(2)..=owner).all(|slot| slots.contains(&slot)), "owner {owner}: {slots:?}");
    }
}

#[test]
fn a_slot_of_two_owners_is_free_after_the_last_of_them() {
    let held = vec![HeldSlots { remaining_ms: 500, extents: extents_of([(0, 1), (0, 2)]) }];
    let mut foreign = Foreign::new(held, extents_of([(0, 2), (0, 3)]), 0);
    foreign.begin(0, HOLD_MS);
    assert_eq!(foreign.release(500), one(1));
    assert_eq!(foreign.release(30_000), extents_of([(0, 2), (0, 3)]));
}

#[test]
fn many_groups_become_a_few_that_end_no_earlier() {
    let group = |number: u32| HeldSlots { remaining_ms: 1000 + number, extents: one(number) };
    let foreign = Foreign::new((0..100).map(group).collect(), Vec::new(), 0);
    let told = foreign.told(0, HOLD_MS);
    assert_eq!(told.len(), LogEntry::HELD_GROUPS_MAX);
    for number in 0..100 {
        let of_slot = told.iter().find(|group| slots_of(&group.extents).any(|slot| slot == (0, number)));
        assert!(of_slot.is_some_and(|group| group.remaining_ms >= 1000 + number), "slot {number}");
    }
}
