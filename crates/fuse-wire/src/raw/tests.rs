//! Handles and nodes in raw bytes.

use zerocopy::IntoBytes;

use super::*;
use crate::abi::structs::{ReadIn, SetattrIn};
use crate::directory::{DirectoryEntry, DirectoryWriter};
use crate::reply::Entry;

#[test]
fn handles_are_found_and_replaced() {
    let read = ReadIn { fh: 77, ..ReadIn::default() };
    let mut bytes = message(opcode::READ, 5, &[read.as_bytes()]);
    let places = handle_places(&bytes);
    assert_eq!(places, [(HEADER_BYTES, 5)]);
    assert_eq!(number_at(&bytes, places[0].0), Some(77));
    set_number(&mut bytes, places[0].0, 78);
    assert_eq!(number_at(&bytes, places[0].0), Some(78));
    let with = SetattrIn { valid: fattr::FH, fh: 4, ..SetattrIn::default() };
    assert_eq!(handle_places(&message(opcode::SETATTR, 5, &[with.as_bytes()])).len(), 1);
    let without = SetattrIn::default();
    assert!(handle_places(&message(opcode::SETATTR, 5, &[without.as_bytes()])).is_empty());
    let copy = CopyFileRangeIn { nodeid_out: 6, ..CopyFileRangeIn::default() };
    let places = handle_places(&message(opcode::COPY_FILE_RANGE, 5, &[copy.as_bytes()]));
    assert_eq!(places, [(HEADER_BYTES, 5), (HEADER_BYTES + 24, 6)]);
    assert!(handle_places(&message(opcode::READ, 5, &[&[1, 2]])).is_empty(), "too short");
}

#[test]
fn nodes_of_listings_and_entries_are_told_once_for_each_reference() {
    let mut room = vec![0_u64; 128];
    let mut writer = DirectoryWriter::new(room.as_mut_bytes());
    for (inode, name) in [(0, &b"."[..]), (8, b"a"), (9, b"a longer name")] {
        let shown = DirectoryEntry { inode, next_offset: 1, mode: 0, name };
        assert!(writer.add_plus(&shown, &Entry { node: inode, ..Entry::default() }));
    }
    let used = writer.used_bytes();
    let mut found = Vec::new();
    each_found(opcode::READDIRPLUS, &room.as_bytes()[..used], |node| found.push(node));
    assert_eq!(found, [8, 9]);
    each_found(opcode::LOOKUP, EntryOut::default().as_bytes(), |_| panic!("there is no such name"));
    each_found(opcode::READDIRPLUS, &[0; 200], |_| panic!("nothing whole is there"));
}

#[test]
fn forgets_are_told() {
    let (head, ones) = (BatchForgetIn { count: 2, dummy: 0 }, [3_u64, 1, 4, 2]);
    let mut told = Vec::new();
    each_forgotten(&message(opcode::BATCH_FORGET, 0, &[head.as_bytes(), ones.as_bytes()]), |node, count| {
        told.push((node, count));
    });
    assert_eq!(told, [(3, 1), (4, 2)]);
}

#[test]
fn what_is_written_and_whose_locks_a_close_ends_is_told_of_whole_messages_only() {
    let words = |words: [u64; 4]| words.map(u64::to_ne_bytes).concat();
    // Behind the size of a WRITE are its flags.
    let write = message(opcode::WRITE, 5, &[&words([1, 4096, 7 << 32 | 10, 0])]);
    assert_eq!(written_range(&write), Some((4096, 10)));
    let enter = |is_withdrawn| message(opcode::ENTER_WRITE, 5, &[&words([1, 4096, 1 << 20, is_withdrawn])]);
    assert_eq!((written_range(&enter(0)), written_range(&enter(1))), (Some((4096, 1 << 20)), None));
    let close = close_message(5, 1, 77);
    assert_eq!((closed_by(&close), closed_by(&write), written_range(&close)), (Some((5, 77)), None, None));
    for whole in [&write, &enter(0), &close] {
        for length in 0..HEADER_BYTES + 16 {
            assert_eq!((written_range(&whole[..length]), closed_by(&whole[..length])), (None, None), "{length} bytes");
        }
    }
}
