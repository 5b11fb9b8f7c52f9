use super::*;

fn own(setting: Setting, value: &str) -> Result<Own, PolicyError> {
    let mut own = Own::default();
    own.set(setting, value.as_bytes())?;
    Ok(own)
}

#[test]
fn names_are_recognised_with_both_prefixes() {
    assert_eq!(parse_name(b"user.stere.copies"), Some(Ok(Name::Setting(Setting::Copies))));
    assert_eq!(parse_name(b"user.attest.copies"), Some(Ok(Name::Setting(Setting::Copies))));
    assert_eq!(
        parse_name(b"user.stere.effective.parity"),
        Some(Ok(Name::Computed(Computed::Effective(Setting::Parity))))
    );
    assert_eq!(parse_name(b"user.stere.where"), Some(Ok(Name::Computed(Computed::Where))));
    assert_eq!(parse_name(b"user.other"), None);
    assert_eq!(parse_name(b"trusted.stere.copies"), Some(Ok(Name::Lock(Setting::Copies))));
    assert_eq!(parse_name(b"trusted.stere.plugins"), Some(Ok(Name::ListLock(List::Plugins))));
    assert_eq!(parse_name(b"trusted.stere.versions"), Some(Ok(Name::ListLock(List::Versions))));
    for key in ["rules", "pin", "effective.copies", "", "colour"] {
        let refused = parse_name(format!("trusted.stere.{key}").as_bytes());
        assert_eq!(refused, Some(Err(PolicyError::NotLockable(key.into()))));
    }
    assert_eq!(parse_name(b"trusted.other"), None);
    for unknown in [&b"user.stere.colour"[..], b"user.stere.", b"user.stere.\xff", b"user.stere.effective.where"] {
        assert!(matches!(parse_name(unknown), Some(Err(PolicyError::UnknownKey(_)))), "{unknown:?}");
    }
}

#[test]
fn good_values_are_read_back_canonically() {
    for (setting, value, back) in [
        (Setting::Copies, "1", "1"),
        (Setting::Copies, "03", "3"),
        (Setting::Parity, "2", "2"),
        (Setting::Parity, "4+2", "4+2"),
        (Setting::Parity, "5+0", "5+0"),
        (Setting::Parity, "30+2", "30+2"),
        (Setting::Class, "precious", "precious"),
    ] {
        assert_eq!(own(setting, value).expect("good value").get(setting).as_deref(), Some(back), "{value}");
    }
}

#[test]
fn bad_values_are_refused() {
    for (setting, value) in [
        (Setting::Copies, "0"),
        (Setting::Copies, "33"),
        (Setting::Copies, "+2"),
        (Setting::Copies, "2 "),
        (Setting::Copies, "two"),
        (Setting::Parity, "0"),
        (Setting::Parity, "1+0"),
        (Setting::Parity, "0+0"),
        (Setting::Parity, "0+2"),
        (Setting::Parity, "31+2"),
        (Setting::Parity, "4+"),
        (Setting::Parity, "300+2"),
        (Setting::Class, "Normal"),
        (Setting::Class, "gold"),
    ] {
        assert!(matches!(own(setting, value), Err(PolicyError::BadValue { .. })), "{value}");
    }
}

#[test]
fn an_empty_value_inherits_again() {
    let mut own = own(Setting::Parity, "4+2").expect("good value");
    own.set(Setting::Parity, b"").expect("empty value");
    assert!(own.is_empty());
}

#[test]
fn the_more_careful_of_copies_and_parity_wins() {
    let mut own = own(Setting::Copies, "4").expect("good value");
    own.set(Setting::Parity, b"4+2").expect("good value");
    assert_eq!(own.scheme_wish(), Some(SchemeWish::Copies(4)));
    own.set(Setting::Copies, b"3").expect("good value");
    assert_eq!(own.scheme_wish(), Some(SchemeWish::Parity { data: 4, parity: 2 }));
}
