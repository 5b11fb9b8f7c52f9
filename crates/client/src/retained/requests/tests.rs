//! What is kept of a request that was answered before its commit (P-290).

use std::mem::size_of;

use fuse_wire::abi::structs::{AttrOut, EntryOut};
use zerocopy::{FromZeros, IntoBytes};

use super::*;

fn request(number: u64) -> Request {
    Request::of(number, raw::message(opcode::UNLINK, 1, &[b"name\0"]), &[])
}

#[test]
fn what_was_created_is_made_again_without_being_opened() {
    let create = CreateIn { flags: 0o101, mode: 0o100_640, umask: 0o22, ..CreateIn::new_zeroed() };
    let message = raw::message(opcode::CREATE, 7, &[create.as_bytes(), b"name\0"]);
    let mut answer = EntryOut::new_zeroed();
    (answer.nodeid, answer.attr.ctime, answer.attr.ctimensec) = (42, 1000, 999);
    let bytes = [answer.as_bytes(), &[0; 16]].concat();
    let kept = Request::of(3, message, &bytes);
    assert_eq!((kept.number, kept.inode, kept.at), (3, 42, (1000, 999)));
    let header = raw::header(&kept.message).expect("a whole message");
    assert_eq!((header.opcode, header.nodeid, header.len as usize), (opcode::MKNOD, 7, kept.message.len()));
    let (made, name) = split::<MknodIn>(&kept.message[raw::HEADER_BYTES..]).expect("its arguments");
    assert_eq!((made.mode, made.rdev, made.umask, name), (0o100_640, 0, 0o22, &b"name\0"[..]));
}

#[test]
fn attributes_are_set_again_without_a_handle() {
    let set = SetattrIn { valid: fattr::FH | fattr::MODE, fh: 9, mode: 0o600, ..SetattrIn::new_zeroed() };
    let mut answer = AttrOut::new_zeroed();
    answer.attr.ctime = 5;
    let kept = Request::of(1, raw::message(opcode::SETATTR, 7, &[set.as_bytes()]), answer.as_bytes());
    assert_eq!((kept.inode, kept.at), (0, (5, 0)));
    let (set, _) = split::<SetattrIn>(&kept.message[raw::HEADER_BYTES..]).expect("its arguments");
    assert_eq!((set.valid, set.mode), (fattr::MODE, 0o600));
    assert_eq!(kept.message.len(), raw::HEADER_BYTES + size_of::<SetattrIn>());
}

#[test]
fn requests_go_when_they_are_committed() {
    let mut requests = Requests::default();
    for (mark, number) in [(10, 3), (7, 5), (8, 4)] {
        requests.keep(mark, number, request(number));
    }
    assert_eq!(requests.first(), Some(3));
    assert_eq!(requests.all().map(|(mark, one)| (mark, one.number)).collect::<Vec<_>>(), [(10, 3), (8, 4), (7, 5)]);
    requests.let_go_marked(7);
    assert_eq!(requests.all().map(|(mark, _)| mark).collect::<Vec<_>>(), [10, 8]);
    requests.let_go(4);
    assert_eq!(requests.all().map(|(_, one)| one.number).collect::<Vec<_>>(), [4], "answered after that was asked for");
    requests.done(4);
    assert!(requests.is_empty() && requests.first().is_none());
}
