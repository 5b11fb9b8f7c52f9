use std::collections::HashMap;

use super::*;
use std::convert::Infallible;

use crate::rules::{Decided, Decision};

fn tree(
    entries: &[(u64, u64, Own)],
    locks: &[(u64, Own)],
) -> impl FnMut(u64) -> Result<Option<Ancestor>, Infallible> + use<> {
    let locks: HashMap<u64, Own> = locks.iter().copied().collect();
    let says = |inode: u64, parent: u64, own: Own| {
        (inode, Ancestor { own, locked: locks.get(&inode).copied().unwrap_or_default(), parent })
    };
    let map: HashMap<u64, Ancestor> = entries.iter().map(|(inode, parent, own)| says(*inode, *parent, *own)).collect();
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
    resolve_locked(resolver, inode, entries, &[], &Decision::default())
}

fn resolve_locked(
    resolver: &Resolver,
    inode: u64,
    entries: &[(u64, u64, Own)],
    locks: &[(u64, Own)],
    decision: &Decision,
) -> Effective {
    let mut fetch = tree(entries, locks);
    let Ok(says) = fetch(inode);
    let Ok(effective) = resolver.resolve(inode, &says.expect("inode of the test"), decision, fetch);
    effective
}

/// P-58.
#[test]
fn a_lock_goes_before_all_that_is_said_below_it() {
    let entries = [(1, 1, copies(4)), (2, 1, class(Class::Scratch)), (3, 2, copies(1)), (4, 3, copies(1))];
    let locks = [(2, copies(3)), (1, class(Class::Precious))];
    let mut decision = Decision::default();
    decision.add(&copies(2), true, Decided::default());
    for (inode, decision) in
        [(2, Decision::default()), (3, Decision::default()), (4, Decision::default()), (4, decision)]
    {
        let effective = resolve_locked(&Resolver::new(Class::Normal), inode, &entries, &locks, &decision);
        assert_eq!((effective.wish.scheme, effective.scheme_source), (SchemeWish::Copies(3), Source::Lock(2)));
        assert_eq!((effective.wish.class, effective.class_source), (Class::Precious, Source::Lock(1)));
    }
    let above = resolve_locked(&Resolver::new(Class::Normal), 1, &entries, &locks, &Decision::default());
    assert_eq!((above.wish.scheme, above.scheme_source), (SchemeWish::Copies(3), Source::Lock(1)), "as the class says");
}

/// P-58.
#[test]
fn what_contradicts_a_lock_is_refused_and_the_same_is_not() {
    let entries = [(1, 1, Own::default()), (2, 1, Own::default())];
    let effective = resolve_locked(&Resolver::new(Class::Normal), 2, &entries, &[(1, copies(3))], &Decision::default());
    let classes = Classes::default();
    let refuses = |setting, text: &str| {
        let mut own = Own::default();
        own.set(setting, text.as_bytes()).unwrap();
        effective.refuses(setting, &own, &classes)
    };
    assert!(refuses(Setting::Copies, "2") && refuses(Setting::Parity, "4+2") && refuses(Setting::Redundancy, "10"));
    assert!(
        !refuses(Setting::Copies, "3") && !refuses(Setting::Class, "scratch") && !refuses(Setting::Compress, "lz4")
    );
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
    assert_eq!(
        effective.wish,
        Wish {
            class: photos,
            scheme,
            compression,
            encryption,
            tier: TierWish::Unsaid,
            record: crate::RecordSize::USUAL,
            checksum: crate::Checksum::default(),
            on: 0,
            only: 0,
            node: 0,
            sync: crate::Sync::Asked,
        }
    );
    assert_eq!((effective.scheme_source, effective.compression_source), (Source::Inode(2), Source::Inode(1)));
    let gone = crate::Definition { name: "photos".into(), own, into: Some(Class::Scratch) };
    classes.put(photos, gone);
    resolver.set_classes(classes);
    let effective = resolve(&resolver, 3, &entries);
    assert_eq!((effective.wish.class, effective.wish.scheme), (Class::Scratch, SchemeWish::Copies(1)));
}

/// P-57: with a class of its own, classes further up say nothing of it, whether that is set on a file or on a directory; keys do.
#[test]
fn a_nearer_class_silences_those_further_up_also_on_a_file() {
    let resolver = Resolver::new(Class::Normal);
    let (photos, squeezed) = (Class::User(16), Class::User(17));
    let mut classes = Classes::default();
    let define = |name: &str, own| crate::Definition { name: name.into(), own, into: None };
    classes.put(photos, define("photos", copies(4)));
    classes.put(squeezed, define("squeezed", Own { compression: Compression::LZ4.code(), ..Own::default() }));
    resolver.set_classes(classes);
    let entries = [
        (1, 1, Own { encryption: Encryption::DEFAULT.code(), ..Own::default() }),
        (2, 1, class(photos)),
        (3, 2, class(squeezed)),
        (4, 3, Own::default()),
        (5, 2, Own::default()),
    ];
    let (scheme, compression, encryption) = (SchemeWish::Copies(2), Compression::LZ4, Encryption::DEFAULT);
    let expected = Wish {
        class: squeezed,
        scheme,
        compression,
        encryption,
        tier: TierWish::Unsaid,
        record: crate::RecordSize::USUAL,
        checksum: crate::Checksum::default(),
        on: 0,
        only: 0,
        node: 0,
        sync: crate::Sync::Asked,
    };
    for inode in [3, 4, 3] {
        let effective = resolve(&resolver, inode, &entries);
        assert_eq!((effective.wish, effective.scheme_source), (expected, Source::Pool), "inode {inode}");
        assert_eq!(effective.encryption_source, Source::Inode(1));
    }
    assert_eq!(resolve(&resolver, 5, &entries).wish.scheme, SchemeWish::Copies(4), "a neighbour without a class");
    // Unless the class further up is locked: then the nearer one says nothing.
    let locked = resolve_locked(&resolver, 3, &entries, &[(2, class(photos))], &Decision::default());
    resolver.invalidate();
    let after = resolve_locked(&resolver, 3, &entries, &[(2, class(photos))], &Decision::default());
    assert_eq!(locked.wish.class, squeezed, "remembered from before");
    assert_eq!(
        (after.wish.class, after.wish.scheme, after.scheme_source),
        (photos, SchemeWish::Copies(4), Source::Lock(2))
    );
}

/// P-303: a class names media, and one that nobody changed goes where it went; P-301: it says when changes are durable.
#[test]
fn classes_name_media_and_say_when_changes_are_durable() {
    let resolver = Resolver::new(Class::Normal);
    let films = Class::User(16);
    let mut classes = Classes::default();
    let own = Own { tiers: 6, sync: crate::Sync::Always.code(), ..Own::default() };
    classes.put(films, crate::Definition { name: "films".into(), own, into: None });
    resolver.set_classes(classes.clone());
    let entries = [(1, 1, class(films)), (2, 2, class(Class::Archive)), (3, 1, Own::default())];
    let wish = |inode| resolve(&resolver, inode, &entries).wish;
    assert_eq!((wish(3).tier, wish(3).sync), (TierWish::Volumes(6), crate::Sync::Always));
    assert_eq!((wish(2).tier, wish(2).sync), (TierWish::Usual, crate::Sync::Asked));
    let archive = classes.get(Class::Archive).cloned().unwrap();
    let own = Own { tiers: crate::TIERS_NONE, ..archive.own };
    classes.put(Class::Archive, crate::Definition { own, ..archive });
    resolver.set_classes(classes);
    assert_eq!(resolve(&resolver, 2, &entries).wish.tier, TierWish::Nowhere);
}

/// A rule that gave the class `archive` before rules spoke of media themselves is understood as it was.
#[test]
fn decisions_from_before_still_send_down() {
    let resolver = Resolver::new(Class::Normal);
    let own = Own { class: Class::Archive.code(), ..Own::default() };
    let old = Decision { own, decided: Decided::CLASS };
    let above =
        |number: u64| Ok::<_, ()>(Some(Ancestor { own: Own::default(), locked: Own::default(), parent: number }));
    let ancestor = Ancestor { own: Own::default(), locked: Own::default(), parent: 1 };
    let wish = |decision: &Decision| resolver.resolve(5, &ancestor, decision, above).unwrap().wish.tier;
    assert_eq!(wish(&old), TierWish::Usual);
    let new = Decision { own, decided: Decided::CLASS.and(Decided::TIER) };
    assert_eq!(wish(&new), TierWish::Unsaid, "something nearer says where it goes, or nobody");
}
