use super::*;

fn definition(name: &str, own: Own) -> Definition {
    Definition { name: name.into(), own, into: None }
}

#[test]
fn built_in_classes_survive_what_the_interface_promises() {
    let classes = Classes::default();
    let schemes = Class::BUILT_IN.map(|class| classes.wish(class).scheme(5));
    assert_eq!(schemes, [(1, 0), (1, 1), (1, 2), (1, 1)]);
    assert_eq!(classes.compression(Class::Archive), Some(Compression::ZSTD));
    assert_eq!(classes.compression(Class::Normal), None);
    assert_eq!(classes.find("precious"), Some(Class::Precious));
    assert_eq!(classes.find("gold"), None);
}

#[test]
fn a_class_says_what_it_sets_and_nothing_else() {
    let mut classes = Classes::default();
    let photos = classes.unused().expect("room");
    assert_eq!(photos, Class::User(16));
    classes.put(photos, definition("photos", Own { redundancy: 8, ..Own::default() }));
    assert_eq!(classes.find("photos"), Some(photos));
    assert_eq!((classes.scheme(photos), classes.compression(photos)), (Some(SchemeWish::Scale(7)), None));
    assert_eq!(classes.unused(), Some(Class::User(17)));
    classes.put(Class::Archive, definition("archive", Own { copies: 3, ..Own::default() }));
    assert_eq!(classes.compression(Class::Archive), None, "as it was changed");
}

#[test]
fn what_was_deleted_belongs_to_another_class_and_its_name_is_free() {
    let mut classes = Classes::default();
    let (old, new) = (Class::User(16), Class::User(17));
    classes.put(old, Definition { into: Some(Class::Precious), ..definition("photos", Own::default()) });
    assert_eq!((classes.resolve(old), classes.name(old)), (Class::Precious, "precious".into()));
    assert_eq!(classes.find("photos"), None);
    assert_eq!(classes.find_even_deleted("photos"), Some(old));
    classes.put(new, definition("photos", Own { copies: 4, ..Own::default() }));
    assert_eq!((classes.find("photos"), classes.find_even_deleted("photos")), (Some(new), Some(new)));
    assert_eq!(classes.all_of(Class::Precious), [Class::Precious, old]);
    assert_eq!(classes.scheme(old), Some(SchemeWish::Copies(3)));
    // Damaged metadata may lead in a circle.
    classes.put(old, Definition { into: Some(new), ..definition("a", Own::default()) });
    classes.put(new, Definition { into: Some(old), ..definition("b", Own::default()) });
    assert_eq!(classes.resolve(old), Class::Normal);
    assert_eq!(classes.scheme(Class::User(200)), None, "a class that nobody defined says nothing");
}

#[test]
fn names_are_plain() {
    for (name, is_one) in
        [("photos", true), ("a-b_c.1", true), ("", false), ("#16", false), ("a b", false), ("ä", false)]
    {
        assert_eq!(is_class_name(name), is_one, "{name}");
    }
}
