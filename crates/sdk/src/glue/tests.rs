//! The other side of these bytes is the crate plugin's: what it writes is read here, and the other way.

use super::*;

#[test]
fn events_are_read_as_they_were_told() {
    use stere_plugin::{Event as Told, EventKind as ToldKind};
    for (told_kind, kind) in ToldKind::ALL.into_iter().zip(EventKind::ALL) {
        let (name, new_name) = (&b"name"[..], &b"the new one"[..]);
        let (user, group, offset, length, size) = (1000, 100, u64::MAX - 1, 1 << 40, 77);
        let bytes = Told { kind: told_kind, user, group, offset, length, size, name, new_name }.encode();
        let expected = Event { kind, user, group, offset, length, size, name, new_name };
        assert_eq!(event(&bytes), Ok(expected));
        for cut in 0..bytes.len() {
            assert!(event(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
    let mut bad =
        Told { kind: ToldKind::Open, user: 0, group: 0, offset: 0, length: 0, size: 0, name: b"", new_name: b"" };
    bad.name = b"x";
    let mut bytes = bad.encode();
    bytes[0] = 7;
    assert_eq!(event(&bytes), Err("event 7 is not known".to_owned()));
}

#[test]
fn verdicts_are_understood_as_they_were_meant() {
    use stere_plugin::Verdict as Understood;
    let pairs = [
        (Verdict::Allow, Understood::Allow),
        (Verdict::Deny("no".into()), Understood::Deny("no".into())),
        (Verdict::Annotate(vec![1, 2]), Understood::Annotate(vec![1, 2])),
    ];
    for (meant, understood) in pairs {
        assert_eq!(Understood::decode(&verdict(meant)), Ok(understood));
    }
    assert_eq!(events(&[EventKind::Create, EventKind::Delete]), 0x41);
    assert!(stere_plugin::Events(events(&EventKind::ALL)).is_known());
}
