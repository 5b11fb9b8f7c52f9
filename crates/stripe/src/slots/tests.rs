use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn slots_are_handed_out_in_order_and_round() {
    let mut map = SlotMap::default();
    assert_eq!(map.take(), None);
    map.set_slot_count(130);
    for expected in 0..130 {
        assert_eq!(map.take(), Some(expected));
    }
    assert_eq!((map.take(), map.free_count()), (None, 0));
    assert!(map.mark_free(7) && map.mark_free(100));
    assert!(!map.mark_free(7));
    assert_eq!((map.take(), map.take(), map.take()), (Some(7), Some(100), None));
}

#[test]
fn use_is_remembered_before_the_size_is_known() {
    let mut map = SlotMap::default();
    assert!(map.mark_used(70) && map.mark_used(3));
    assert!(!map.mark_used(70));
    assert_eq!(map.free_count(), 0);
    map.set_slot_count(71);
    assert_eq!(map.free_count(), 69);
    assert!(map.is_used(70) && !map.is_used(69));
}

proptest! {
    #[test]
    fn a_map_is_a_set(slot_count in 1u32..200, steps in prop::collection::vec((0u8..3, 0u32..220), 0..400)) {
        let mut map = SlotMap::default();
        map.set_slot_count(slot_count);
        let mut used = BTreeSet::new();
        for (step, slot) in steps {
            match step {
                0 => prop_assert_eq!(map.mark_used(slot), used.insert(slot)),
                1 => prop_assert_eq!(map.mark_free(slot), used.remove(&slot)),
                _ => match map.take() {
                    Some(slot) => prop_assert!(slot < slot_count && used.insert(slot)),
                    None => prop_assert!((0..slot_count).all(|slot| used.contains(&slot))),
                },
            }
            prop_assert_eq!(map.free_count() as usize, (0..slot_count).filter(|slot| !used.contains(slot)).count());
        }
    }
}

#[test]
fn held_slots_are_given_to_nobody() {
    let mut map = SlotMap::default();
    map.set_slot_count(130);
    assert!(map.mark_used(3));
    for slot in [0, 3, 64, 129, 500] {
        map.hold(slot);
    }
    assert_eq!(map.free_count(), 126);
    assert!(map.mark_free(3), "it was used");
    assert_eq!(map.free_count(), 126, "freed, and still held");
    let taken: Vec<u32> = std::iter::from_fn(|| map.take()).collect();
    assert_eq!(taken.len(), 126);
    assert!([0, 3, 64, 129].iter().all(|slot| !taken.contains(slot)));
    assert_eq!((0..=500).filter(|slot| map.release_held(*slot)).count(), 5);
    let taken: BTreeSet<u32> = std::iter::from_fn(|| map.take()).collect();
    assert_eq!(taken, BTreeSet::from([0, 3, 64, 129]));
}
