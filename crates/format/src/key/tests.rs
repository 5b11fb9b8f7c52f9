use super::*;
use proptest::prelude::*;

fn keys() -> impl Strategy<Value = Key> {
    let number = || prop_oneof![0..3u64, any::<u64>(), Just(u64::MAX)];
    let byte = || prop_oneof![0..6u8, Just(u8::MAX)];
    (byte(), number(), byte(), number()).prop_map(|(tree, object, kind, position)| Key { tree, object, kind, position })
}

#[test]
fn the_end_has_no_successor() {
    assert_eq!(Key::MAX.successor(), None);
    assert_eq!(Key::new(1, 2, 3, u64::MAX).successor(), Some(Key::new(1, 2, 4, 0)));
    assert_eq!(Key::new(1, u64::MAX, 255, u64::MAX).successor(), Some(Key::new(2, 0, 0, 0)));
}

proptest! {
    #[test]
    fn byte_order_is_key_order(a in keys(), b in keys()) {
        prop_assert_eq!(a.cmp(&b), a.encode().cmp(&b.encode()));
        prop_assert_eq!(Key::decode(&a.encode()), a);
        if let Some(next) = a.successor() {
            prop_assert!(a < next);
            prop_assert!(b <= a || b >= next, "nothing is between a key and its successor");
        }
    }
}
