use std::collections::HashMap;

use super::*;
use std::convert::Infallible;

fn tree(entries: &[(u64, u64, Own)]) -> impl FnMut(u64) -> Result<Option<Ancestor>, Infallible> + use<> {
    let map: HashMap<u64, Ancestor> =
        entries.iter().map(|(inode, parent, own)| (*inode, Ancestor { own: *own, parent: *parent })).collect();
    move |inode| Ok(map.get(&inode).copied())
}

fn copies(copies: u8) -> Own {
    Own { copies, ..Own::default() }
}

fn class(class: Class) -> Own {
    Own { class: class.code(), ..Own::default() }
}

fn wish(class: Class) -> Wish {
    Classes::default().wish(class)
}

fn resolve(resolver: &Resolver, inode: u64, entries: &[(u64, u64, Own)]) -> Effective {
    let (_, parent, own) = entries.iter().find(|entry| entry.0 == inode).expect("inode of the test");
    let Ok(effective) = resolver.resolve(inode, own, &Decision::default(), *parent, tree(entries));
    effective
}

#[test]
fn nothing_set_means_the_pools_default() {
    let entries = [(1, 1, Own::default()), (2, 1, Own::default())];
    let effective = resolve(&Resolver::new(Class::Normal), 2, &entries);
    assert_eq!(effective.wish, wish(Class::Normal));
    assert_eq!(effective.scheme_source, Source::Pool);
}

#[test]
fn the_nearest_directory_decides() {
    let entries = [(1, 1, copies(1)), (2, 1, copies(3)), (3, 2, Own::default()), (4, 3, Own::default())];
    let effective = resolve(&Resolver::new(Class::Normal), 4, &entries);
    assert_eq!(effective.wish.scheme, SchemeWish::Copies(3));
    assert_eq!(effective.scheme_source, Source::Inode(2));
    assert_eq!(effective.wish.class, Class::Normal);
}

#[test]
fn a_nearer_class_speaks_for_redundancy_too() {
    let entries = [(1, 1, copies(3)), (2, 1, class(Class::Scratch)), (3, 2, Own::default())];
    let effective = resolve(&Resolver::new(Class::Normal), 3, &entries);
    assert_eq!(effective.wish, wish(Class::Scratch));
    assert_eq!(effective.scheme_source, Source::Inode(2));
}

#[test]
fn a_nearer_number_keeps_the_farther_class() {
    let entries = [(1, 1, class(Class::Precious)), (2, 1, copies(1)), (3, 2, Own::default())];
    let effective = resolve(&Resolver::new(Class::Normal), 3, &entries);
    assert_eq!(effective.wish, Wish { scheme: SchemeWish::Copies(1), ..wish(Class::Precious) });
}

#[test]
fn a_change_is_seen_after_invalidate_and_only_then() {
    let resolver = Resolver::new(Class::Normal);
    let before = [(1, 1, copies(1)), (2, 1, Own::default())];
    let after = [(1, 1, copies(4)), (2, 1, Own::default())];
    assert_eq!(resolve(&resolver, 2, &before).wish.scheme, SchemeWish::Copies(1));
    assert_eq!(resolve(&resolver, 2, &after).wish.scheme, SchemeWish::Copies(1), "the cache is used");
    resolver.invalidate();
    assert_eq!(resolve(&resolver, 2, &after).wish.scheme, SchemeWish::Copies(4));
}

#[test]
fn a_loop_in_damaged_metadata_ends() {
    let entries = [(2, 3, Own::default()), (3, 2, Own::default())];
    let effective = resolve(&Resolver::new(Class::Archive), 2, &entries);
    assert_eq!(effective.wish, wish(Class::Archive));
}

#[test]
fn a_class_of_the_pool_speaks_for_what_it_sets_and_no_more() {
    let resolver = Resolver::new(Class::Normal);
    let photos = Class::User(16);
    let entries = [
        (1, 1, Own { compression: Compression::LZ4.code(), ..Own::default() }),
        (2, 1, class(photos)),
        (3, 2, Own::default()),
    ];
    assert_eq!(resolve(&resolver, 3, &entries).wish.scheme, SchemeWish::Copies(2), "nobody defined it");
    let mut classes = Classes::default();
    let own = Own { copies: 4, encryption: Encryption::DEFAULT.code(), ..Own::default() };
    classes.put(photos, crate::Definition { name: "photos".into(), own, into: None });
    resolver.set_classes(classes.clone());
    let effective = resolve(&resolver, 3, &entries);
    let (scheme, compression, encryption) = (SchemeWish::Copies(4), Compression::LZ4, Encryption::DEFAULT);
    assert_eq!(effective.wish, Wish { class: photos, scheme, compression, encryption, tier: TierWish::Unsaid });
    assert_eq!((effective.scheme_source, effective.compression_source), (Source::Inode(2), Source::Inode(1)));
    let gone = crate::Definition { name: "photos".into(), own, into: Some(Class::Scratch) };
    classes.put(photos, gone);
    resolver.set_classes(classes);
    let effective = resolve(&resolver, 3, &entries);
    assert_eq!((effective.wish.class, effective.wish.scheme), (Class::Scratch, SchemeWish::Copies(1)));
}
