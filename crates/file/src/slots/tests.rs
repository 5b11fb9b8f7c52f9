use super::*;

#[test]
fn a_slot_is_used_again_when_its_answer_has_arrived() {
    let mut slots = Slots::default();
    assert_eq!((slots.take(1, 0), slots.take(2, 0)), (0, 1));
    assert_eq!(slots.take(3, 2), 0, "the answer to 1 has arrived");
    assert_eq!(slots.take(4, 2), 2, "2 and 3 are under way");
    assert_eq!(slots.take(3, 2), 0, "what is asked again stays where it is");
    assert_eq!(slots.take(5, 5), 0);
}

#[test]
fn what_an_owner_before_noted_is_kept_until_it_is_answered() {
    let noted = BTreeMap::from([(7, Noted { slot: 0, place: 0 }), (9, Noted { slot: 2, place: 5 })]);
    let mut slots = Slots::of(&noted);
    assert_eq!(slots.take(10, 7), 1);
    assert_eq!(slots.take(11, 7), 3);
    assert_eq!(slots.take(12, 8), 0);
}

#[test]
fn the_oldest_goes_where_all_are_taken() {
    let mut slots = Slots::default();
    for number in 1..=u64::from(SLOTS_MAX) {
        assert_eq!(u64::from(slots.take(number, 0)), number - 1);
    }
    assert_eq!((slots.take(5000, 0), slots.take(5001, 0)), (0, 1));
}
