//! Files of many pieces, at large offsets, and directories of many names: changes go in bounded transactions and are
//! finished after a crash.

use crate::support;

use std::ops::ControlFlow;

use stere_format::{InodeValue, Key};
use stere_naming::{
    COLLAPSE_RANGE, Error, FILE_BYTES_MAX, FileSystem, INSERT_RANGE, Io, OpenFlags, ROOT, SetAttributes, Whence,
};
use support::{Rig, caller};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
/// More than one transaction frees.
const PIECES: u64 = 1300;

/// A file with a hole behind each block.
fn make_pieces(fs: &FileSystem, name: &[u8]) -> u64 {
    let (made, handle) = fs.create(&caller(3), ROOT, name, 0o644, FLAGS).expect("a new file");
    for piece in 0..PIECES {
        fs.write(&caller(3), made.inode, piece * 8192, &[1; 4096], false).expect("a write");
    }
    fs.release(&caller(3), made.inode, handle).expect("closing");
    made.inode
}

fn check(fs: &FileSystem) {
    assert_eq!(fs.store().checker.check(true).expect("the check runs").findings, []);
    assert_eq!(stere_naming::check(fs.store()).expect("the check runs"), []);
}

fn resize(fs: &FileSystem, inode: u64, size: u64) -> Result<u64, Error> {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    Ok(fs.setattr(&caller(8), inode, &set)?.size)
}

#[test]
fn a_removed_file_of_many_pieces_is_freed_in_steps_even_after_a_crash() {
    let (rig, fs) = Rig::new(1, 128 << 20);
    let inode = make_pieces(&fs, b"pieces");
    fs.unlink(&caller(4), ROOT, b"pieces").expect("unlinking");
    fs.syncfs(&caller(4)).expect("sync");
    let fs = rig.reopen(fs, true);
    assert!(fs.step(&caller(5), 1).expect("a step"), "there is more to free");
    check(&fs);
    fs.syncfs(&caller(5)).expect("sync");
    let fs = rig.reopen(fs, true);
    while fs.step(&caller(6), 1).expect("a step") {}
    assert!(matches!(fs.getattr(&caller(6), inode), Err(Error::Stale)));
    check(&fs);
}

#[test]
fn a_cut_that_a_crash_interrupted_is_finished_before_the_file_grows() {
    let (rig, fs) = Rig::new(1, 128 << 20);
    let inode = make_pieces(&fs, b"pieces");
    // What the first transaction of a cut leaves when there is more to free than it may.
    fs.store()
        .update(Io::BLOCKING, |transaction| {
            let mut value =
                InodeValue::decode(&transaction.get(&Key::inode(inode))?.expect("the file")).expect("valid");
            value.size = 100;
            transaction.put(Key::inode(inode), &value.encode());
            transaction.put(Key::orphan(inode), &[2]);
            Ok::<_, stere_store::Error>(())
        })
        .expect("an update");
    fs.syncfs(&caller(4)).expect("sync");
    let fs = rig.reopen(fs, true);
    assert_eq!(fs.getattr(&caller(5), inode).expect("attributes").size, 100);
    assert_eq!(resize(&fs, inode, 1 << 20).expect("growing"), 1 << 20);
    let mut out = vec![9; 1 << 20];
    assert_eq!(fs.read(&caller(6), inode, 0, &mut out).expect("a read"), 1 << 20);
    assert!(out[..100].iter().all(|byte| *byte == 1) && out[100..].iter().all(|byte| *byte == 0));
    check(&fs);
}

#[test]
fn cutting_many_pieces_takes_effect_at_once() {
    let (_rig, fs) = Rig::new(1, 128 << 20);
    let inode = make_pieces(&fs, b"pieces");
    assert_eq!(resize(&fs, inode, 5000).expect("cutting"), 5000);
    assert_eq!(fs.getattr(&caller(9), inode).expect("attributes").blocks_512, 8);
    check(&fs);
}

#[test]
fn offsets_go_to_16_tib_and_no_further() {
    let (rig, fs) = Rig::new(1, 64 << 20);
    let (made, _handle) = fs.create(&caller(3), ROOT, b"far", 0o644, FLAGS).expect("a new file");
    assert_eq!(fs.write(&caller(3), made.inode, FILE_BYTES_MAX - 3, b"end of it", false).expect("a write"), 3);
    assert!(matches!(fs.write(&caller(3), made.inode, FILE_BYTES_MAX, b"x", false), Err(Error::FileTooBig)));
    assert!(matches!(resize(&fs, made.inode, FILE_BYTES_MAX + 1), Err(Error::FileTooBig)));
    fs.fsync(&caller(4), made.inode, false).expect("fsync");
    let fs = rig.reopen(fs, true);
    assert_eq!(fs.getattr(&caller(5), made.inode).expect("attributes").size, FILE_BYTES_MAX);
    let mut out = [0; 10];
    assert_eq!(fs.read(&caller(5), made.inode, FILE_BYTES_MAX - 5, &mut out).expect("a read"), 5);
    assert_eq!(&out[..5], b"\0\0end");
    assert_eq!(fs.seek(&caller(5), made.inode, 0, Whence::Data).expect("data"), FILE_BYTES_MAX - 4096);
    check(&fs);
}

#[test]
fn ranges_are_pushed_in_and_taken_out() {
    let (_rig, fs) = Rig::new(1, 128 << 20);
    let inode = make_pieces(&fs, b"pieces");
    let size = fs.getattr(&caller(3), inode).expect("attributes").size;
    let mut before = vec![0; size as usize];
    fs.read(&caller(3), inode, 0, &mut before).expect("a read");
    fs.fallocate(&caller(4), inode, 12_288, 1 << 20, INSERT_RANGE).expect("inserting");
    assert_eq!(fs.getattr(&caller(4), inode).expect("attributes").size, size + (1 << 20));
    fs.fallocate(&caller(5), inode, 12_288, 1 << 20, COLLAPSE_RANGE).expect("collapsing");
    let mut after = vec![0; size as usize];
    assert_eq!(fs.read(&caller(6), inode, 0, &mut after).expect("a read"), size as usize);
    assert!(before == after);
    check(&fs);
}

#[test]
fn a_directory_of_many_names_is_listed_whole_while_it_changes() {
    const NAMES: usize = 20_000;
    let (rig, fs) = Rig::new(1, 256 << 20);
    for number in 0..NAMES {
        fs.mknod(&caller(3), ROOT, format!("name {number}").as_bytes(), 0o100644, 0).expect("a new file");
        if number % 2000 == 0 {
            fs.store().step(false).expect("a step of the store");
        }
    }
    fs.syncfs(&caller(3)).expect("sync");
    let fs = rig.reopen(fs, true);
    let mut cookie = 2;
    let mut seen = Vec::new();
    loop {
        let mut count = 0;
        fs.readdir(&caller(4), ROOT, cookie, true, &mut |entry| {
            assert!(entry.attributes.is_some());
            seen.push(entry.name.to_vec());
            cookie = entry.next_cookie;
            count += 1;
            if count == 500 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("a listing");
        if count == 0 {
            break;
        }
        // What was listed goes.
        for name in &seen[seen.len() - count..] {
            fs.unlink(&caller(5), ROOT, name).expect("unlinking");
        }
    }
    let wanted: Vec<_> = (0..NAMES).map(|number| format!("name {number}").into_bytes()).collect();
    assert!(seen == wanted);
    assert_eq!(fs.getattr(&caller(6), ROOT).expect("attributes").size, 0);
    check(&fs);
}
