//! P-220: a copy between files has an end: it is bounded, and a signal ends it with what was copied so far.

use crate::support;

use stere_device::{Call, Cancellation};
use stere_naming::{Caller, Error, FileSystem, Io, SetAttributes};
use support::files::make;
use support::{Rig, caller};

const MIB: u64 = 1 << 20;

/// A source of this size, a hole but for its begin, and a target.
fn files(fs: &FileSystem, size: u64) -> (u64, u64) {
    let source = make(fs, stere_naming::ROOT, "source", b"begin");
    let target = make(fs, stere_naming::ROOT, "target", b"x");
    let grown = SetAttributes { size: Some(size), ..SetAttributes::default() };
    fs.setattr(&caller(3), source, &grown).unwrap();
    (source, target)
}

#[test]
fn a_copy_by_bytes_is_bounded_and_goes_on_where_it_ended() {
    let (_rig, fs) = Rig::new(2, 512 * MIB);
    let (source, target) = files(&fs, 100 * MIB);
    let first = fs.copy_range(&caller(4), source, 0, target, 1, 100 * MIB).unwrap();
    assert_eq!(first, 64 * MIB);
    let rest = fs.copy_range(&caller(4), source, first, target, 1 + first, 100 * MIB - first).unwrap();
    assert_eq!(first + rest, 100 * MIB);
    assert_eq!(fs.getattr(&caller(4), target).unwrap().size, 1 + 100 * MIB);
    let mut bytes = [0; 7];
    fs.read(&caller(4), target, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"xbegin\0");
}

#[test]
fn a_copy_ends_with_what_was_copied_when_whoever_asked_got_a_signal() {
    let (_rig, fs) = Rig::new(2, 512 * MIB);
    let (source, target) = files(&fs, 60 * MIB);
    let call = Call::cancelled_by(Cancellation::when(|| true));
    let asker = Caller { io: Io::BLOCKING.of(&call), ..caller(4) };
    let copy = |to, length| fs.copy_range(&asker, source, 0, target, to, length).unwrap();
    assert_eq!(copy(1, 60 * MIB), MIB, "by bytes");
    assert_eq!(copy(4096, 60 * MIB), 32 * MIB, "by reference");
    assert_eq!(copy(4096, 5), 5);
}

#[test]
fn a_copy_that_finds_no_more_room_tells_how_much_was_copied() {
    let (_rig, fs) = Rig::new(2, 64 * MIB);
    let data: Vec<u8> = (0..24 * MIB).map(|at| (at / 7 * 31 % 253) as u8).collect();
    let source = make(&fs, stere_naming::ROOT, "source", &data);
    let target = make(&fs, stere_naming::ROOT, "target", b"x");
    let mut copied = 0;
    let mut calls = 0;
    let refused = loop {
        let from = copied % data.len() as u64;
        match fs.copy_range(&caller(4), source, from, target, 1 + copied, data.len() as u64 - from) {
            Ok(more) => (copied, calls) = (copied + more, calls + 1),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace), "{refused}");
    assert!(copied > 4 * MIB && calls <= 4, "{copied} bytes by {calls} calls");
    assert_eq!(fs.getattr(&caller(4), target).unwrap().size, 1 + copied);
    let mut found = vec![0; copied.min(data.len() as u64) as usize];
    fs.read(&caller(4), target, 1, &mut found).unwrap();
    assert!(found == data[..found.len()]);
}
