//! Maps of users and groups (P-258, P-259): one to one, and applied wherever ids are in messages. A new operation of the kernel needs a line in
//! `places`: here its number is looked for.

use std::mem::offset_of;

use fuse_wire::abi::structs::{
    AttrOut, Dirent, EntryOut, FileAttr, GetxattrIn, MkdirIn, SetattrIn, SetxattrIn, SetxattrInCompat, Statx, StatxOut,
};
use fuse_wire::abi::{fattr, opcode};
use fuse_wire::raw;
use zerocopy::IntoBytes;

use super::messages::{Places, places};
use super::*;

/// 1000 here is 2000 in the pool, 1001 is 1000; of groups 100 is 1000.
fn identities() -> Identities {
    let (mut users, mut groups) = (Ids::Same, Ids::Same);
    users.add_pairs("1000:2000+1001:1000").expect("a map");
    groups.add_pairs("100:1000").expect("a map");
    Identities::of_options(&users, &groups).expect("a map").expect("known")
}

/// The operations of the kernel, as the source has them.
fn operations() -> Vec<(String, u32)> {
    let source = include_str!("../../../fuse-wire/src/abi.rs");
    let from = source.find("pub mod opcode").expect("there are some");
    let all = &source[from..from + source[from..].find('}').expect("its end")];
    let of_line = |line: &str| {
        let (name, number) = line.trim().strip_prefix("pub const ")?.split_once(": u32 = ")?;
        Some((name.to_owned(), number.trim_end_matches(';').parse().ok()?))
    };
    all.lines().filter_map(of_line).collect()
}

#[test]
fn of_every_operation_it_is_known_where_it_names_ids() {
    let all = operations();
    assert!(all.len() >= 50, "{all:?}");
    for (name, operation) in &all {
        assert!(places(*operation).is_some(), "{name} is not in the table");
    }
    let unknown = all.iter().map(|(_, number)| number + 1).max().expect("some");
    let mut message = raw::message(unknown, 1, &[]);
    assert_eq!(identities().translate_request(&mut message, true), Err(libc::ENOSYS), "what is not known is not sent");
    assert_eq!(
        Identities::default().translate_request(&mut message, true),
        Ok(()),
        "ids that are the same need nothing"
    );
}

/// A request of user 1000 and group 100 of this machine.
fn request(operation: u32, arguments: &[&[u8]]) -> Vec<u8> {
    of_user(operation, arguments, 1000)
}

fn of_user(operation: u32, arguments: &[&[u8]], uid: u32) -> Vec<u8> {
    let mut message = raw::message(operation, 1, arguments);
    message[24..28].copy_from_slice(&uid.to_ne_bytes());
    message[28..32].copy_from_slice(&100_u32.to_ne_bytes());
    let header = raw::header(&message).expect("a header");
    assert_eq!((header.uid, header.gid), (uid, 100));
    message
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

#[test]
fn who_asks_is_told_in_ids_of_the_pool_whatever_is_asked() {
    for (name, operation) in operations() {
        let mut message = request(operation, &[&[0; 256]]);
        identities().translate_request(&mut message, true).unwrap_or_else(|errno| panic!("{name}: {errno}"));
        let header = raw::header(&message).expect("a header");
        assert_eq!((header.uid, header.gid), (2000, 1000), "{name}");
        assert!(message[raw::HEADER_BYTES..] == [0; 256], "{name} names nobody else");
    }
}

#[test]
fn who_has_no_counterpart_makes_nothing_and_is_nobody_otherwise() {
    // 2000 of the pool is somebody else here.
    let makes = [opcode::CREATE, opcode::MKDIR, opcode::MKNOD, opcode::SYMLINK, opcode::TMPFILE];
    for (name, operation) in operations() {
        let mut message = of_user(operation, &[&[0; 256]], 2000);
        let before = message.clone();
        let outcome = identities().translate_request(&mut message, true);
        if makes.contains(&operation) {
            assert_eq!((outcome, &message), (Err(libc::EOVERFLOW), &before), "{name}");
            continue;
        }
        let header = raw::header(&message).expect("a header");
        assert_eq!((outcome, header.uid), (Ok(()), NOBODY), "{name}");
    }
    for uid in [ROOT, NOBODY, 7, u32::MAX] {
        let mut message = of_user(opcode::MKDIR, &[MkdirIn::default().as_bytes(), b"made\0"], uid);
        assert_eq!(identities().translate_request(&mut message, true), Ok(()));
        assert_eq!(raw::header(&message).expect("a header").uid, uid, "others are the same");
    }
}

#[test]
fn an_owner_that_is_set_is_of_the_pool_or_refused() {
    let set = |valid: u32, uid: u32, gid: u32| {
        let input = SetattrIn { valid, uid, gid, ..SetattrIn::default() };
        let mut message = request(opcode::SETATTR, &[input.as_bytes()]);
        let outcome = identities().translate_request(&mut message, true);
        let at = |place| word(&message, raw::HEADER_BYTES + place);
        outcome.map(|()| (at(offset_of!(SetattrIn, uid)), at(offset_of!(SetattrIn, gid))))
    };
    let both = fattr::UID | fattr::GID;
    assert_eq!(set(both, 1001, 100), Ok((1000, 1000)));
    assert_eq!(set(fattr::UID, 1000, 100), Ok((2000, 100)), "the group is not set");
    assert_eq!(set(fattr::MODE, 2000, 2000), Ok((2000, 2000)), "nothing of both is set");
    assert_eq!(set(both, 2000, 100), Err(libc::EINVAL), "it has no counterpart");
    assert_eq!(set(both, 1000, 1000), Err(libc::EINVAL), "the group has none");
    assert_eq!(set(fattr::UID, NOBODY, 0), Err(libc::EINVAL), "it stands for many");
}

fn acl(entries: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&6_u16.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

#[test]
fn acls_are_translated_both_ways_and_other_attributes_are_not() {
    let none = u32::MAX;
    let here = acl(&[(1, none), (2, 1000), (2, 1001), (4, none), (8, 100), (16, none), (32, none)]);
    let pool = acl(&[(1, none), (2, 2000), (2, 1000), (4, none), (8, 1000), (16, none), (32, none)]);
    for (name, is_acl) in [("system.posix_acl_access", true), ("system.posix_acl_default", true), ("user.acl", false)] {
        let name = [name.as_bytes(), b"\0"].concat();
        let size = here.len() as u32;
        let heads = [
            (true, SetxattrIn { size, ..SetxattrIn::default() }.as_bytes().to_vec()),
            (false, SetxattrInCompat { size, flags: 0 }.as_bytes().to_vec()),
        ];
        for (is_extended, head) in heads {
            let mut message = request(opcode::SETXATTR, &[&head, &name, &here]);
            identities().translate_request(&mut message, is_extended).expect("all have counterparts");
            assert!(message.ends_with(if is_acl { &pool } else { &here }), "{name:?}");
        }
        let input = GetxattrIn { size, padding: 0 };
        let message = request(opcode::GETXATTR, &[input.as_bytes(), &name]);
        let mut answer = pool.clone();
        identities().translate_answer(&message, &mut answer);
        assert!(answer == if is_acl { here.clone() } else { pool.clone() }, "{name:?}");
    }
    let name: &[u8] = b"system.posix_acl_access\0";
    let foreign = acl(&[(1, none), (2, 2000), (4, none), (32, none)]);
    let head = SetxattrIn { size: foreign.len() as u32, ..SetxattrIn::default() };
    let mut message = request(opcode::SETXATTR, &[head.as_bytes(), name, &foreign]);
    assert_eq!(identities().translate_request(&mut message, true), Err(libc::EINVAL));
    // The size alone is no ACL, even where its bytes look like one.
    let message = request(opcode::GETXATTR, &[GetxattrIn::default().as_bytes(), name]);
    let mut answer = pool.clone();
    identities().translate_answer(&message, &mut answer);
    assert!(answer == pool);
}

fn attributes() -> FileAttr {
    FileAttr { uid: 2000, gid: 1000, size: 7, ..FileAttr::default() }
}

#[test]
fn owners_in_answers_are_those_of_this_machine() {
    let entry = EntryOut { nodeid: 9, attr: attributes(), ..EntryOut::default() };
    let of_entry = offset_of!(EntryOut, attr);
    let plain = AttrOut { attr: attributes(), ..AttrOut::default() };
    let of_statx = StatxOut { stat: Statx { uid: 2000, gid: 1000, ..Statx::default() }, ..StatxOut::default() };
    for (name, operation) in operations() {
        let message = request(operation, &[&[0; 64]]);
        let (mut answer, owner) = match places(operation) {
            Some(Places::Entry | Places::Makes) => (entry.as_bytes().to_vec(), of_entry + offset_of!(FileAttr, uid)),
            Some(Places::Attributes | Places::SetsOwner) => {
                (plain.as_bytes().to_vec(), offset_of!(AttrOut, attr) + offset_of!(FileAttr, uid))
            }
            Some(Places::Statx) => (of_statx.as_bytes().to_vec(), offset_of!(StatxOut, stat) + offset_of!(Statx, uid)),
            _ => continue,
        };
        let before = answer.clone();
        identities().translate_answer(&message, &mut answer);
        assert_eq!((word(&answer, owner), word(&answer, owner + 4)), (1000, 100), "{name}");
        assert!(answer[..owner] == before[..owner] && answer[owner + 8..] == before[owner + 8..], "{name}");
        // An answer that is cut off anywhere harms nobody.
        (0..before.len()).for_each(|end| identities().translate_answer(&message, &mut before[..end].to_vec()));
    }
    let mut listed = Vec::new();
    for name in ["a", "twelve bytes", "eight b."] {
        let head = Dirent { namelen: name.len() as u32, ..Dirent::default() };
        listed.extend_from_slice(&[entry.as_bytes(), head.as_bytes(), name.as_bytes()].concat());
        listed.resize(listed.len().next_multiple_of(8), 0);
    }
    let message = request(opcode::READDIRPLUS, &[&[0; 40]]);
    let mut answer = listed.clone();
    identities().translate_answer(&message, &mut answer);
    let owners = |bytes: &[u8]| bytes.windows(4).filter(|four| *four == 1000_u32.to_ne_bytes()).count();
    // Each had group 1000 and has user 1000 now.
    assert_eq!((owners(&listed), owners(&answer)), (3, 3));
    let strange = answer.windows(4).filter(|four| *four == 2000_u32.to_ne_bytes()).count();
    assert_eq!(strange, 0, "none is left of the pool");
    (0..listed.len()).for_each(|end| identities().translate_answer(&message, &mut listed[..end].to_vec()));
}

#[test]
fn what_is_read_and_written_again_is_the_same() {
    let map = identities().users.expect("there are pairs");
    for id in (0..3000).chain([65_533, 65_535, u32::MAX - 1]) {
        let here = map.to_here(id);
        match here {
            NOBODY => assert_eq!(map.stated_to_pool(here), None, "{id} is not written away as nobody"),
            here => assert_eq!(map.stated_to_pool(here), Some(id)),
        }
    }
    assert_eq!((map.to_here(2000), map.to_here(1000), map.to_here(1001)), (1000, 1001, NOBODY));
    assert_eq!((map.to_pool(2000), map.to_pool(2001)), (None, Some(2001)));
}

#[test]
fn of_names_only_those_that_both_sides_know_are_anybody() {
    let names = [(1000, 2000), (1000, 2001), (1002, 2000), (0, 5), (7, 0), (1003, 1003)];
    let found = Identities::with_names((&Ids::Names, &Ids::Same), (&names, &[])).expect("a map");
    let map = found.users.as_ref().expect("of names");
    assert_eq!((map.to_pool(1000), map.to_pool(1002), map.to_pool(1003)), (Some(2000), None, Some(1003)));
    assert_eq!((map.to_pool(0), map.to_here(0), map.to_here(5), map.to_here(2001)), (Some(0), 0, NOBODY, NOBODY));
    assert_eq!((found.user(1002), found.group(1002)), (NOBODY, 1002), "groups are the same");
    assert_eq!(Identities::of_options(&Ids::Names, &Ids::Same), Ok(None), "they have to be looked up");
}

#[test]
fn what_is_no_map_is_refused() {
    let mut ids = Ids::Same;
    for text in ["", "1000", "1000:", "a:b", "+1:2", "1000:2000+", "-1:5", "1:4294967296", "1:2:3"] {
        assert!(matches!(ids.add_pairs(text), Err(PairError::Form(_))), "{text}");
    }
    assert_eq!(ids.add_pairs("0:1000"), Err(PairError::Root));
    assert_eq!(ids.add_pairs("1000:65534"), Err(PairError::Reserved(NOBODY)));
    assert_eq!(ids.add_pairs("4294967295:1"), Err(PairError::Reserved(u32::MAX)));
    assert_eq!(ids.add_pairs("1000:1+1000:2"), Err(PairError::Twice(1000)));
    assert_eq!((ids.add_pairs("1000:1"), ids.add_pairs("1001:1")), (Ok(()), Err(PairError::Twice(1))));
    assert_eq!((ids.add_pairs("1001:2"), ids), (Ok(()), Ids::Pairs(vec![(1000, 1), (1001, 2)])));
}

#[test]
fn bytes_that_are_no_message_harm_nothing() {
    let identities = identities();
    let mut seed = 1_u64;
    for round in 0..20_000_u32 {
        let bytes: Vec<u8> = (0..round % 200)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 56) as u8
            })
            .collect();
        let mut message = raw::message(round % 60, 1, &[&bytes]);
        let _whether_sent = identities.translate_request(&mut message, round % 2 == 0);
        identities.translate_answer(&message, &mut bytes.clone());
        let _whether_sent = identities.translate_request(&mut bytes.clone(), true);
    }
}
