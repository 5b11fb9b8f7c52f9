//! Decoding: good requests of both shapes, and every way to be too short.

use zerocopy::IntoBytes;

use super::arguments::{Arguments, DecodeContext, fixed_bytes, supplementary_groups};
use super::decode::decode;
use super::*;
use crate::abi::structs::{ForgetOne, InHeader, ReadIn, SetattrIn, SetxattrIn, WriteIn};
use crate::abi::{fattr, flag, opcode};

const CONTEXT: DecodeContext = DecodeContext { setxattr_extended: true, payload_bytes_max: 1 << 20 };

fn header(operation: u32) -> InHeader {
    InHeader { opcode: operation, unique: 2, nodeid: 77, ..InHeader::default() }
}

fn decoded<'a>(operation: u32, fixed: &'a [u8], variable: &'a [u8]) -> Operation<'a> {
    decode(&header(operation), Arguments { fixed, variable, extensions: &[] }, &CONTEXT)
}

#[test]
fn names_end_at_their_nul() {
    let Operation::Lookup { parent, name } = decoded(opcode::LOOKUP, &[], b"abc\0rest") else { panic!() };
    assert_eq!((parent, name), (77, &b"abc"[..]));
    for bad in [&b"abc"[..], b"", b"\0"] {
        assert!(matches!(decoded(opcode::LOOKUP, &[], bad), Operation::Malformed { opcode: opcode::LOOKUP }));
    }
}

#[test]
fn rename_has_two_names() {
    let fixed = [9_u64, 1].map(u64::to_ne_bytes).concat();
    let operation = decoded(opcode::RENAME2, &fixed, b"old\0new\0");
    let Operation::Rename { name, new_parent, new_name, flags, .. } = operation else { panic!() };
    assert_eq!((name, new_parent, new_name, flags), (&b"old"[..], 9, &b"new"[..], 1));
    let one_name = decoded(opcode::RENAME2, &fixed, b"old\0new");
    assert!(matches!(one_name, Operation::Malformed { .. }));
}

#[test]
fn write_takes_exactly_its_data() {
    let mut input = WriteIn { fh: 5, offset: 4096, size: 4, ..WriteIn::default() };
    input.write_flags = flag::WRITE_CACHE | flag::WRITE_KILL_SUIDGID;
    let Operation::Write(write) = decoded(opcode::WRITE, input.as_bytes(), b"data and more") else { panic!() };
    assert_eq!((write.data, write.handle, write.offset), (&b"data"[..], 5, 4096));
    assert!(write.from_cache && write.kill_suid_sgid && write.lock_owner.is_none());
    assert!(matches!(decoded(opcode::WRITE, input.as_bytes(), b"dat"), Operation::Malformed { .. }));
}

#[test]
fn reads_longer_than_the_buffer_are_refused() {
    let mut input = ReadIn { size: 1 << 20, ..ReadIn::default() };
    assert!(matches!(decoded(opcode::READ, input.as_bytes(), &[]), Operation::Read { size: 0x10_0000, .. }));
    input.size += 1;
    for operation in [opcode::READ, opcode::READDIR, opcode::READDIRPLUS] {
        assert!(matches!(decoded(operation, input.as_bytes(), &[]), Operation::Malformed { .. }));
    }
}

#[test]
fn setattr_tells_only_what_is_valid() {
    let input = SetattrIn {
        valid: fattr::SIZE | fattr::MTIME | fattr::ATIME | fattr::ATIME_NOW | fattr::KILL_SUIDGID,
        size: 10,
        mtime: (-5_i64).cast_unsigned(),
        mtimensec: 7,
        mode: 0o777,
        ..SetattrIn::default()
    };
    let Operation::Setattr { changes, .. } = decoded(opcode::SETATTR, input.as_bytes(), &[]) else { panic!() };
    let mtime = Some(TimeChange::At(Timestamp { seconds: -5, nanoseconds: 7 }));
    assert_eq!((changes.size, changes.mtime, changes.atime), (Some(10), mtime, Some(TimeChange::Now)));
    assert_eq!((changes.mode, changes.uid, changes.handle), (None, None, None));
    assert!(changes.kill_suid_sgid);
}

#[test]
fn setxattr_follows_the_negotiated_form() {
    let input = SetxattrIn { size: 3, flags: 1, setxattr_flags: 1, padding: 0 };
    let operation = decoded(opcode::SETXATTR, input.as_bytes(), b"user.x\0abc");
    let Operation::Setxattr { name, value, flags, acl_kill_sgid, .. } = operation else { panic!() };
    assert_eq!((name, value, flags, acl_kill_sgid), (&b"user.x"[..], &b"abc"[..], 1, true));
    let old = DecodeContext { setxattr_extended: false, ..CONTEXT };
    assert_eq!((fixed_bytes(opcode::SETXATTR, &old), fixed_bytes(opcode::SETXATTR, &CONTEXT)), (8, 16));
    let arguments = Arguments { fixed: &input.as_bytes()[..8], variable: b"user.x\0ab", extensions: &[] };
    assert!(matches!(decode(&header(opcode::SETXATTR), arguments, &old), Operation::Malformed { .. }));
}

#[test]
fn batch_forget_believes_no_count() {
    let pairs = [ForgetOne { nodeid: 3, nlookup: 1 }, ForgetOne { nodeid: 4, nlookup: 2 }];
    let count = [2_u32, 0].map(u32::to_ne_bytes).concat();
    let operation = decoded(opcode::BATCH_FORGET, &count, pairs.as_bytes());
    let Operation::BatchForget { forgets } = operation else { panic!() };
    assert_eq!(forgets.iter().collect::<Vec<_>>(), [(3, 1), (4, 2)]);
    for lie in [3_u32, u32::MAX] {
        let count = [lie, 0].map(u32::to_ne_bytes).concat();
        let operation = decoded(opcode::BATCH_FORGET, &count, pairs.as_bytes());
        assert!(matches!(operation, Operation::Malformed { .. }));
    }
}

#[test]
fn groups_are_found_behind_other_extensions() {
    let words = [16_u32, 5, 0, 0, 16, 32, 1, 1000].map(u32::to_ne_bytes).concat();
    assert_eq!(supplementary_groups(&words).collect::<Vec<_>>(), [1000]);
    let lying_count = [16_u32, 32, 2, 1000].map(u32::to_ne_bytes).concat();
    let endless = [0_u32, 7].map(u32::to_ne_bytes).concat();
    let too_long = [64_u32, 32, 1, 1].map(u32::to_ne_bytes).concat();
    for bad in [&lying_count[..], &endless, &too_long, &words[..20], &[]] {
        assert_eq!(supplementary_groups(bad).count(), 0);
    }
}

/// Every operation with every length of every part, filled with every extreme: never a panic.
#[test]
fn nothing_that_arrives_panics() {
    for operation in (0..=64).chain([4096, u32::MAX]) {
        let whole = fixed_bytes(operation, &CONTEXT);
        for fixed_length in 0..=whole {
            for fill in [0_u8, 1, 0x7f, 0xff] {
                let fixed = vec![fill; fixed_length];
                for variable in [&b""[..], b"a", b"a\0", b"a\0b\0", b"\0\0", &[fill; 40]] {
                    let operation = decoded(operation, &fixed, variable);
                    if let Operation::BatchForget { forgets } = operation {
                        assert!(forgets.iter().count() <= 40);
                    }
                }
            }
        }
    }
}

#[test]
fn short_structures_are_malformed() {
    for operation in 1..=64 {
        let whole = fixed_bytes(operation, &CONTEXT);
        if whole == 0 || matches!(operation, opcode::SYNCFS | opcode::INTERRUPT) {
            continue;
        }
        let fixed = vec![0_u8; whole - 1];
        let operation = decoded(operation, &fixed, b"a\0b\0");
        assert!(matches!(operation, Operation::Malformed { .. }), "{operation:?}");
    }
}
