use super::*;

#[test]
fn codes_and_words_come_back() {
    for class in Class::BUILT_IN.into_iter().chain([Class::User(16), Class::User(255)]) {
        assert_eq!(Class::from_code(class.code()), Some(class));
        assert_eq!(Class::from_text(&class.text()), Some(class));
    }
    for code in [0, 5, 15] {
        assert_eq!((Class::from_code(code), Class::from_text(&format!("#{code}"))), (None, None));
    }
    assert_eq!((Class::from_text("Normal"), Class::from_text("#256")), (None, None));
}

#[test]
fn too_few_devices_give_up_data_units_before_parity() {
    assert_eq!(SchemeWish::Parity { data: 4, parity: 2 }.scheme(6), (4, 2));
    assert_eq!(SchemeWish::Parity { data: 4, parity: 2 }.scheme(4), (2, 2));
    assert_eq!(SchemeWish::Parity { data: 4, parity: 2 }.scheme(2), (1, 1));
    assert_eq!(SchemeWish::Copies(3).scheme(2), (1, 1));
    assert_eq!(SchemeWish::Copies(3).scheme(1), (1, 0));
}

#[test]
fn parity_alone_uses_all_devices_up_to_a_limit() {
    assert_eq!(SchemeWish::Parity { data: 0, parity: 1 }.scheme(4), (3, 1));
    assert_eq!(SchemeWish::Parity { data: 0, parity: 2 }.scheme(32), (8, 2));
    assert_eq!(SchemeWish::Parity { data: 0, parity: 1 }.scheme(1), (1, 0));
}

#[test]
fn the_scale_gives_the_best_that_the_devices_can() {
    let schemes = |place: u8| [1, 2, 3, 6].map(|devices| SchemeWish::Scale(place).scheme(devices));
    assert_eq!(schemes(0), [(1, 0); 4]);
    assert_eq!(schemes(3), [(1, 0), (1, 1), (2, 1), (5, 1)]);
    assert_eq!(schemes(5), [(1, 0), (1, 1), (1, 1), (1, 1)]);
    assert_eq!(schemes(7), [(1, 0), (1, 1), (1, 2), (4, 2)]);
    assert_eq!(schemes(9), [(1, 0), (1, 1), (1, 2), (1, 2)]);
    assert_eq!(schemes(10), [(1, 0), (1, 1), (1, 2), (1, 5)]);
    for devices in 1..=32 {
        let survived: Vec<u8> = (0..=10).map(|place| SchemeWish::Scale(place).scheme(devices).1).collect();
        assert!(survived.is_sorted(), "more is never less: {survived:?}");
        for place in 0..=10 {
            let wish = SchemeWish::Scale(place);
            assert_eq!(wish.survives_at_least(devices), wish.scheme(devices).1, "the scale is never impossible");
        }
    }
    assert_eq!(SchemeWish::Copies(3).survives_at_least(1), 2);
}
