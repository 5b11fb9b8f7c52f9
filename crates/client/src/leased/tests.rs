//! What is believed, until when, and after what (P-284).

use fuse_wire::abi::opcode;
use fuse_wire::abi::structs::Dirent;

use super::*;

fn lookup(name: &[u8]) -> Operation<'_> {
    Operation::Lookup { parent: 1, name }
}

fn getattr(node: u64) -> Operation<'static> {
    Operation::Getattr { node, handle: None }
}

fn entry(node: u64, size: u64) -> EntryOut {
    EntryOut {
        nodeid: node,
        generation: 1,
        attr: FileAttr { ino: node, size, ..FileAttr::default() },
        ..EntryOut::default()
    }
}

/// Connected at 0, and heard then.
fn connected() -> Leased {
    let mut leased = Leased::default();
    leased.clear();
    leased.asks(0);
    leased.heard();
    leased
}

fn learn_at(leased: &mut Leased, asked: (u64, u64), operation: &Operation<'_>, code: u32, answer: &[u8]) -> bool {
    let may_learn = leased.may_learn(asked, operation, code, answer);
    if may_learn {
        leased.learn(asked.0, operation, code, answer);
    }
    may_learn
}

fn learn(leased: &mut Leased, since: u64, name: &[u8], node: u64) -> bool {
    learn_at(leased, (0, since), &lookup(name), opcode::LOOKUP, entry(node, 5).as_bytes())
}

fn node_of(leased: &Leased, now_ms: u64, name: &[u8]) -> Option<u64> {
    leased.answer(now_ms, &lookup(name)).and_then(|answer| split::<EntryOut>(&answer).map(|(entry, _)| entry.nodeid))
}

#[test]
fn a_name_and_its_attributes_are_believed_until_they_are_recalled() {
    let mut leased = connected();
    let now = leased.now();
    assert!(learn(&mut leased, now, b"a", 7));
    assert!(learn(&mut leased, now, b"absent", 0));
    assert_eq!(node_of(&leased, 0, b"a"), Some(7));
    assert_eq!(node_of(&leased, 0, b"absent"), Some(0));
    assert_eq!(node_of(&leased, 0, b"never asked"), None);
    leased.recall(&Notice::Inode { node: 7, offset: -1, length: 0, settled: 0 });
    assert_eq!(node_of(&leased, 0, b"a"), None, "an entry has attributes");
    assert!(leased.answer(0, &getattr(7)).is_none());
    leased.recall(&Notice::Entry { parent: 1, name: b"absent".to_vec() });
    assert_eq!(node_of(&leased, 0, b"absent"), None);
    assert_eq!(leased.count, 1, "the name alone is left");
}

#[test]
fn an_answer_that_was_on_its_way_when_something_was_recalled_is_not_believed() {
    let mut leased = connected();
    let asked = leased.now();
    leased.recall(&Notice::Entry { parent: 1, name: b"a".to_vec() });
    assert!(!learn(&mut leased, asked, b"a", 7), "the directory's names");
    let asked = leased.now();
    leased.recall(&Notice::Inode { node: 7, offset: -1, length: 0, settled: 0 });
    assert!(!learn(&mut leased, asked, b"a", 7), "the attributes");
    let asked = leased.now();
    assert!(learn(&mut leased, asked, b"a", 7));
    leased.clear();
    assert_eq!(node_of(&leased, 0, b"a"), None, "of another connection");
    leased.asks(0);
    leased.heard();
    assert!(!learn(&mut leased, asked, b"a", 7), "asked over another connection");
}

#[test]
fn what_this_machine_changes_it_does_not_believe() {
    let mut leased = connected();
    let now = leased.now();
    assert!(learn(&mut leased, now, b"a", 7));
    leased.begin(&Operation::Unlink { parent: 1, name: b"a" });
    assert_eq!(node_of(&leased, 0, b"a"), None);
    assert!(leased.answer(0, &getattr(7)).is_none(), "it has a name less");
    assert!(!learn(&mut leased, now, b"a", 7));
    let now = leased.now();
    assert!(learn(&mut leased, now, b"a", 7));
    leased.change_attributes(7);
    assert!(leased.answer(0, &getattr(7)).is_none());
}

#[test]
fn the_answer_to_a_change_is_believed_unless_something_else_came_between() {
    let mut leased = connected();
    let made = Operation::Mkdir { parent: 1, name: b"a", mode: 0, umask: 0 };
    let answered = |leased: &mut Leased, between: Option<Notice>| {
        leased.begin(&made);
        let asked = leased.now();
        between.iter().for_each(|notice| leased.recall(notice));
        let may_learn = leased.may_learn((0, asked), &made, opcode::MKDIR, entry(7, 0).as_bytes());
        leased.end(&made, true, may_learn);
        if may_learn {
            leased.learn(0, &made, opcode::MKDIR, entry(7, 0).as_bytes());
        }
        node_of(leased, 0, b"a")
    };
    assert_eq!(answered(&mut leased, None), Some(7));
    let name = Notice::Entry { parent: 1, name: b"b".to_vec() };
    assert_eq!(answered(&mut leased, Some(name)), None);
    let child = Notice::Inode { node: 7, offset: -1, length: 0, settled: 0 };
    assert_eq!(answered(&mut leased, Some(child)), None);
}

#[test]
fn nothing_is_believed_when_the_owner_may_not_hear_this_side_any_more() {
    let mut leased = Leased::default();
    leased.clear();
    let now = leased.now();
    assert!(!learn(&mut leased, now, b"a", 7), "nobody knows yet whether the owner hears");
    leased.asks(1000);
    leased.asks(2000);
    leased.heard();
    assert!(learn_at(&mut leased, (2500, now), &lookup(b"a"), opcode::LOOKUP, entry(7, 5).as_bytes()));
    assert_eq!(node_of(&leased, 1000 + LEASE_MS - 1, b"a"), Some(7));
    assert_eq!(node_of(&leased, 1000 + LEASE_MS, b"a"), None, "the second ping is not answered");
    leased.heard();
    assert_eq!(node_of(&leased, 1000 + LEASE_MS, b"a"), Some(7));
    assert_eq!(node_of(&leased, 2500 + BELIEVED_MS, b"a"), None, "some things change without a request");
}

#[test]
fn a_listing_tells_names_and_what_the_kernel_forgets_is_forgotten() {
    let mut leased = connected();
    let mut listing = Vec::new();
    for (name, node) in [(&b".."[..], 0), (b"a", 7), (b"long name", 8)] {
        listing.extend_from_slice(entry(node, 5).as_bytes());
        let namelen = u32::try_from(name.len()).expect("short");
        listing.extend_from_slice(Dirent { ino: node, namelen, ..Dirent::default() }.as_bytes());
        listing.extend_from_slice(name);
        listing.resize(listing.len().next_multiple_of(8), 0);
    }
    let asked = Operation::Readdirplus { node: 1, handle: 0, offset: 0, size: 4096 };
    let now = leased.now();
    assert!(learn_at(&mut leased, (0, now), &asked, opcode::READDIRPLUS, &listing));
    assert_eq!((node_of(&leased, 0, b"a"), node_of(&leased, 0, b"long name")), (Some(7), Some(8)));
    assert_eq!(node_of(&leased, 0, b".."), None);
    leased.forget(7);
    assert_eq!(node_of(&leased, 0, b"a"), None);
    leased.forget(1);
    assert_eq!(node_of(&leased, 0, b"long name"), None);
    leased.forget(8);
    assert_eq!(leased.count, 0);
}

#[test]
fn a_read_that_moves_the_time_of_access_is_noted() {
    let mut leased = connected();
    let read = Operation::Read { node: 7, handle: 0, offset: 0, size: 1, flags: 0, lock_owner: None };
    let old = FileAttr { atime: 5, mtime: 6, ..FileAttr::default() };
    let now = leased.now();
    learn_at(
        &mut leased,
        (0, now),
        &getattr(7),
        opcode::GETATTR,
        AttrOut { attr: old, ..AttrOut::default() }.as_bytes(),
    );
    leased.begin(&read);
    assert!(leased.answer(0, &getattr(7)).is_none());
    let now = leased.now();
    let new = FileAttr { atime: 7, ..old };
    learn_at(
        &mut leased,
        (0, now),
        &getattr(7),
        opcode::GETATTR,
        AttrOut { attr: new, ..AttrOut::default() }.as_bytes(),
    );
    leased.begin(&read);
    assert!(leased.answer(0, &getattr(7)).is_some());
}

/// Makes or removes something, and has the answer.
fn ask(leased: &mut Leased, operation: &Operation<'_>, (code, node): (u32, u64), is_done: bool) {
    leased.begin(operation);
    let asked = leased.now();
    let answer = if node == 0 { Vec::new() } else { entry(node, 0).as_bytes().to_vec() };
    let may_learn = node != 0 && is_done && leased.may_learn((0, asked), operation, code, &answer);
    leased.end(operation, is_done, may_learn);
    if may_learn {
        leased.learn(0, operation, code, &answer);
    }
}

#[test]
fn a_directory_that_this_machine_made_has_the_names_that_it_made_there() {
    let mkdir = |name| Operation::Mkdir { parent: 1, name, mode: 0, umask: 0 };
    let make = |name| Operation::Mknod { parent: 7, name, mode: 0, umask: 0, rdev: 0 };
    let inside = |leased: &Leased, now_ms: u64, name: &'static [u8]| {
        let answer = leased.answer(now_ms, &Operation::Lookup { parent: 7, name })?;
        split::<EntryOut>(&answer).map(|(entry, _)| entry.nodeid)
    };
    let mut leased = connected();
    ask(&mut leased, &mkdir(b"d"), (opcode::MKDIR, 7), true);
    assert_eq!((inside(&leased, 0, b"a"), inside(&leased, 0, b".versions")), (Some(0), None));
    assert_eq!((inside(&leased, 0, &[b'n'; 255]), inside(&leased, 0, &[b'n'; 256])), (Some(0), None));
    ask(&mut leased, &make(b"a"), (opcode::MKNOD, 8), true);
    assert_eq!((inside(&leased, 0, b"a"), inside(&leased, 0, b"b")), (Some(8), Some(0)));
    leased.begin(&make(b"b"));
    assert_eq!(inside(&leased, 0, b"c"), None, "something is under way");
    leased.end(&make(b"b"), false, false);
    assert_eq!(inside(&leased, 0, b"b"), None, "it may be there");
    for is_done in [true, false] {
        let mut leased = connected();
        ask(&mut leased, &mkdir(b"d"), (opcode::MKDIR, 7), true);
        ask(&mut leased, &make(b"a"), (opcode::MKNOD, 8), true);
        ask(&mut leased, &Operation::Unlink { parent: 7, name: b"a" }, (opcode::UNLINK, 0), is_done);
        assert_eq!(inside(&leased, 0, b"a"), is_done.then_some(0), "removed, or perhaps there still");
        leased.recall(&Notice::Entry { parent: 7, name: b"other".to_vec() });
        assert_eq!(inside(&leased, 0, b"other"), None, "made elsewhere");
    }
    let mut leased = connected();
    ask(&mut leased, &mkdir(b"d"), (opcode::MKDIR, 7), true);
    leased.asks(BELIEVED_MS - 1);
    leased.heard();
    assert_eq!(inside(&leased, BELIEVED_MS - 1, b"a"), Some(0));
    assert_eq!(inside(&leased, BELIEVED_MS, b"a"), None);
}
