//! Calls one at a time, on a pool in memory: what each does, what it refuses, and what is left after a crash.

use crate::support;

use std::ops::ControlFlow;

use stere_naming::{
    Error, FileSystem, Handle, KEEP_SIZE, OpenFlags, PUNCH_HOLE, RENAME_EXCHANGE, RENAME_NOREPLACE, ROOT,
    SetAttributes, SetMode, SetTime, Timestamp, Whence,
};
use support::{Rig, caller};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: false, read: false };

fn small() -> (Rig, FileSystem) {
    Rig::new(1, 64 << 20)
}

fn make_file(fs: &FileSystem, name: &[u8], data: &[u8]) -> u64 {
    let (attributes, handle) = fs.create(&caller(10), ROOT, name, 0o644, FLAGS).expect("a new file");
    assert_eq!(fs.write(&caller(11), attributes.inode, 0, data, false).expect("a write"), data.len());
    fs.release(&caller(11), attributes.inode, handle).expect("closing");
    attributes.inode
}

fn content(fs: &FileSystem, inode: u64) -> Vec<u8> {
    let size = fs.getattr(&caller(12), inode).expect("attributes").size;
    let mut out = vec![0xaa; size as usize + 10];
    let length = fs.read(&caller(12), inode, 0, &mut out).expect("a read");
    out.truncate(length);
    out
}

fn names(fs: &FileSystem, inode: u64) -> Vec<String> {
    let mut names = Vec::new();
    fs.readdir(&caller(12), inode, 0, true, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        ControlFlow::Continue(())
    })
    .expect("a listing");
    names
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

#[test]
fn files_of_many_sizes_read_back_before_and_after_closing() {
    let (_rig, fs) = small();
    for (number, size) in
        [0usize, 1, 4095, 4096, 4097, 131_072, 131_073, 1 << 20, (1 << 20) + 5].into_iter().enumerate()
    {
        let data = pattern(size, number as u8);
        let name = format!("file{number}");
        let (attributes, handle) = fs.create(&caller(10), ROOT, name.as_bytes(), 0o644, FLAGS).expect("a new file");
        fs.write(&caller(11), attributes.inode, 0, &data, false).expect("a write");
        assert_eq!(content(&fs, attributes.inode), data, "open, size {size}");
        fs.release(&caller(11), attributes.inode, handle).expect("closing");
        assert_eq!(content(&fs, attributes.inode), data, "closed, size {size}");
    }
}

#[test]
fn synced_files_survive_power_loss() {
    let (rig, fs) = small();
    let data = pattern(300_000, 3);
    let (attributes, _handle) = fs.create(&caller(10), ROOT, b"synced", 0o600, FLAGS).expect("a new file");
    fs.write(&caller(11), attributes.inode, 0, &data, false).expect("a write");
    fs.fsync(&caller(11), attributes.inode, false).expect("fsync");
    let fs = rig.reopen(fs, true);
    let found = fs.lookup(&caller(13), ROOT, b"synced").expect("the file");
    assert_eq!(found.size, data.len() as u64);
    assert_eq!(content(&fs, found.inode), data);
}

#[test]
fn names_come_in_the_order_of_their_making_and_lookups_agree() {
    let (_rig, fs) = small();
    for name in ["b", "a", "c"] {
        make_file(&fs, name.as_bytes(), b"x");
    }
    assert_eq!(names(&fs, ROOT), [".", "..", "b", "a", "c"]);
    assert!(matches!(fs.lookup(&caller(1), ROOT, b"d"), Err(Error::NotFound)));
    assert!(matches!(fs.create(&caller(1), ROOT, b"a", 0, OpenFlags { exclusive: true, ..FLAGS }), Err(Error::Exists)));
    assert!(matches!(fs.mkdir(&caller(1), ROOT, &[b'n'; 256], 0o755), Err(Error::NameTooLong)));
}

#[test]
fn directories_count_links_and_refuse_to_go_while_full() {
    let (_rig, fs) = small();
    let outer = fs.mkdir(&caller(5), ROOT, b"outer", 0o755).expect("a directory").inode;
    let inner = fs.mkdir(&caller(6), outer, b"inner", 0o755).expect("a directory").inode;
    assert_eq!(fs.getattr(&caller(6), outer).expect("attributes").nlink, 3);
    assert_eq!(fs.getattr(&caller(6), ROOT).expect("attributes").nlink, 3);
    assert!(matches!(fs.rmdir(&caller(7), ROOT, b"outer"), Err(Error::NotEmpty)));
    assert!(matches!(fs.unlink(&caller(7), ROOT, b"outer"), Err(Error::IsADirectory)));
    assert!(matches!(fs.rename(&caller(7), ROOT, b"outer", inner, b"x", 0), Err(Error::Invalid(_))));
    fs.rmdir(&caller(7), outer, b"inner").expect("an empty directory goes");
    fs.rmdir(&caller(7), ROOT, b"outer").expect("an empty directory goes");
    assert_eq!(fs.getattr(&caller(8), ROOT).expect("attributes").nlink, 2);
    assert_eq!(fs.getattr(&caller(8), ROOT).expect("attributes").size, 0);
}

#[test]
fn an_unlinked_open_file_lives_until_it_is_closed() {
    let (rig, fs) = small();
    let (attributes, handle) = fs.create(&caller(10), ROOT, b"gone", 0o600, FLAGS).expect("a new file");
    fs.write(&caller(11), attributes.inode, 0, &pattern(200_000, 1), false).expect("a write");
    fs.fsync(&caller(11), attributes.inode, false).expect("fsync");
    fs.unlink(&caller(12), ROOT, b"gone").expect("unlink");
    assert_eq!(fs.getattr(&caller(12), attributes.inode).expect("attributes").nlink, 0);
    assert_eq!(content(&fs, attributes.inode), pattern(200_000, 1));
    fs.write(&caller(13), attributes.inode, 5, b"still", false).expect("a write");
    fs.syncfs(&caller(13)).expect("sync");
    // The process dies with the file open: the next mount frees it.
    let fs = rig.reopen(fs, true);
    assert!(fs.getattr(&caller(14), attributes.inode).is_ok(), "listed until the first step");
    while fs.step(&caller(14), 10).expect("a step") {}
    assert!(matches!(fs.getattr(&caller(14), attributes.inode), Err(Error::Stale)));
    let (second, handle_of_second) = fs.create(&caller(15), ROOT, b"second", 0o600, FLAGS).expect("a new file");
    fs.unlink(&caller(15), ROOT, b"second").expect("unlink");
    fs.release(&caller(16), second.inode, handle_of_second).expect("closing");
    assert!(matches!(fs.getattr(&caller(16), second.inode), Err(Error::Stale)));
    let _ = handle;
}

#[test]
fn a_file_without_a_name_can_get_one() {
    let (_rig, fs) = small();
    let (attributes, handle) = fs.tmpfile(&caller(10), ROOT, 0o600, FLAGS).expect("a nameless file");
    fs.write(&caller(11), attributes.inode, 0, b"hello", false).expect("a write");
    assert_eq!(fs.link(&caller(12), attributes.inode, ROOT, b"named").expect("link").nlink, 1);
    fs.release(&caller(12), attributes.inode, handle).expect("closing");
    assert_eq!(content(&fs, fs.lookup(&caller(13), ROOT, b"named").expect("the file").inode), b"hello");
    let (second, handle) = fs.tmpfile(&caller(10), ROOT, 0o600, FLAGS).expect("a nameless file");
    fs.release(&caller(12), second.inode, handle).expect("closing");
    assert!(matches!(fs.getattr(&caller(13), second.inode), Err(Error::Stale)));
}

/// The kernel may open what it has looked up, however late and whatever became of the name.
#[test]
fn removed_files_are_kept_until_the_kernel_forgets_them() {
    let (rig, fs) = small();
    fs.hold_removed();
    let (unlinked, replaced) = (make_file(&fs, b"unlinked", b"1"), make_file(&fs, b"replaced", b"2"));
    make_file(&fs, b"new", b"3");
    fs.unlink(&caller(20), ROOT, b"unlinked").expect("unlink");
    fs.rename(&caller(20), ROOT, b"new", ROOT, b"replaced", 0).expect("replace");
    for (inode, data) in [(unlinked, b"1"), (replaced, b"2")] {
        while fs.step(&caller(21), 10).expect("a step") {}
        assert_eq!(fs.getattr(&caller(21), inode).expect("kept").nlink, 0);
        assert!(matches!(fs.lookup(&caller(21), inode, b"."), Err(Error::Stale)), "nobody new finds it");
        assert!(matches!(fs.link(&caller(21), inode, ROOT, b"back"), Err(Error::NotFound)));
        let (first, second) = (fs.open(&caller(21), inode, FLAGS), fs.open(&caller(21), inode, FLAGS));
        fs.release(&caller(21), inode, first.expect("an open")).expect("closing");
        assert_eq!(content(&fs, inode), data);
        fs.forget(&caller(22), inode).expect("forgetting");
        assert_eq!(content(&fs, inode), data, "it is still open");
        fs.release(&caller(23), inode, second.expect("an open")).expect("closing");
        assert!(matches!(fs.getattr(&caller(23), inode), Err(Error::Stale)));
    }
    let directory = fs.mkdir(&caller(24), ROOT, b"directory", 0o755).expect("mkdir").inode;
    fs.rmdir(&caller(24), ROOT, b"directory").expect("rmdir");
    assert_eq!(fs.getattr(&caller(24), directory).expect("somebody's current directory").nlink, 0);
    assert!(matches!(fs.mkdir(&caller(24), directory, b"below", 0o755), Err(Error::NotFound)));
    fs.forget(&caller(24), directory).expect("forgetting");
    assert!(matches!(fs.getattr(&caller(24), directory), Err(Error::Stale)));
    let (nameless, handle) = fs.tmpfile(&caller(25), ROOT, 0o600, FLAGS).expect("a nameless file");
    fs.write(&caller(25), nameless.inode, 0, b"never saved", false).expect("a write");
    fs.release(&caller(25), nameless.inode, handle).expect("closing");
    assert_eq!(content(&fs, nameless.inode), b"never saved");
    fs.forget(&caller(25), nameless.inode).expect("forgetting");
    assert!(matches!(fs.getattr(&caller(25), nameless.inode), Err(Error::Stale)));
    assert_eq!(stere_naming::check(fs.store()).expect("the check runs"), []);
    let _ = rig;
}

/// What the kernel had not forgotten is freed by an unmount, and after a crash by the next mount.
#[test]
fn removed_files_go_with_the_kernel_that_knew_them() {
    for crash in [false, true] {
        let (rig, fs) = small();
        fs.hold_removed();
        let file = make_file(&fs, b"file", &pattern(300_000, 3));
        let directory = fs.mkdir(&caller(10), ROOT, b"directory", 0o755).expect("mkdir").inode;
        fs.unlink(&caller(11), ROOT, b"file").expect("unlink");
        fs.rmdir(&caller(11), ROOT, b"directory").expect("rmdir");
        fs.syncfs(&caller(12)).expect("sync");
        assert_eq!(content(&fs, file), pattern(300_000, 3));
        if !crash {
            fs.close(&caller(13)).expect("closing");
            assert!(matches!(fs.getattr(&caller(13), file), Err(Error::Stale)));
        }
        let fs = rig.reopen(fs, true);
        assert_eq!(stere_naming::check(fs.store()).expect("the check runs"), []);
        while fs.step(&caller(14), 10).expect("a step") {}
        for inode in [file, directory] {
            assert!(matches!(fs.getattr(&caller(15), inode), Err(Error::Stale)));
        }
        assert_eq!(stere_naming::check(fs.store()).expect("the check runs"), []);
    }
}

#[test]
fn renames_replace_exchange_and_refuse() {
    let (_rig, fs) = small();
    let first = make_file(&fs, b"first", b"1");
    let second = make_file(&fs, b"second", b"2");
    assert!(matches!(fs.rename(&caller(20), ROOT, b"first", ROOT, b"second", RENAME_NOREPLACE), Err(Error::Exists)));
    fs.rename(&caller(20), ROOT, b"first", ROOT, b"second", RENAME_EXCHANGE).expect("exchange");
    assert_eq!(fs.lookup(&caller(21), ROOT, b"first").expect("name").inode, second);
    fs.rename(&caller(22), ROOT, b"first", ROOT, b"second", 0).expect("replace");
    assert_eq!(fs.lookup(&caller(23), ROOT, b"second").expect("name").inode, second);
    assert!(matches!(fs.getattr(&caller(23), first), Err(Error::Stale)));
    assert_eq!(names(&fs, ROOT), [".", "..", "second"]);
}

#[test]
fn holes_read_as_zeros_and_are_found() {
    let (_rig, fs) = small();
    let file = make_file(&fs, b"sparse", b"");
    fs.write(&caller(11), file, 1 << 20, b"tail", false).expect("a write");
    assert_eq!(fs.seek(&caller(12), file, 0, Whence::Data).expect("data"), 1 << 20);
    assert_eq!(fs.seek(&caller(12), file, 0, Whence::Hole).expect("hole"), 0);
    assert_eq!(fs.seek(&caller(12), file, 1 << 20, Whence::Hole).expect("end"), (1 << 20) + 4);
    let data = content(&fs, file);
    assert!(data[..1 << 20].iter().all(|byte| *byte == 0));
    assert_eq!(&data[1 << 20..], b"tail");
    fs.write(&caller(13), file, 0, &pattern(20_000, 9), false).expect("a write");
    fs.fallocate(&caller(14), file, 4096, 8192, PUNCH_HOLE | KEEP_SIZE).expect("punch");
    assert_eq!(fs.seek(&caller(15), file, 0, Whence::Hole).expect("hole"), 4096);
    assert_eq!(fs.seek(&caller(15), file, 4096, Whence::Data).expect("data"), 12_288);
    assert!(matches!(fs.seek(&caller(15), file, 2 << 20, Whence::Data), Err(Error::NoSuchOffset)));
}

#[test]
fn shared_ranges_are_independent() {
    let (_rig, fs) = small();
    let data = pattern(400_000, 5);
    let source = make_file(&fs, b"source", &data);
    let target = make_file(&fs, b"target", b"");
    assert_eq!(fs.copy_range(&caller(12), source, 0, target, 0, 400_000).expect("copy"), 400_000);
    assert_eq!(content(&fs, target), data);
    fs.write(&caller(13), source, 100, b"changed", false).expect("a write");
    fs.unlink(&caller(14), ROOT, b"source").expect("unlink");
    assert_eq!(content(&fs, target), data);
}

#[test]
fn attributes_and_times() {
    let (_rig, fs) = small();
    let file = make_file(&fs, b"file", b"content");
    let set = SetAttributes { mode: Some(0o4755), ..SetAttributes::default() };
    assert_eq!(fs.setattr(&caller(50), file, &set).expect("chmod").ctime.seconds, 50);
    let set = SetAttributes { uid: Some(7), ..SetAttributes::default() };
    assert_eq!(fs.setattr(&caller(51), file, &set).expect("chown").mode & 0o7777, 0o755);
    let at = Timestamp { seconds: 3, nanoseconds: 999_999_999 };
    let set = SetAttributes { mtime: Some(SetTime::At(at)), atime: Some(SetTime::At(at)), ..SetAttributes::default() };
    let got = fs.setattr(&caller(52), file, &set).expect("utimens");
    assert_eq!((got.mtime, got.atime, got.ctime.seconds), (at, at, 52));
    content(&fs, file);
    assert_eq!(
        fs.getattr(&caller(53), file).expect("attributes").atime.seconds,
        12,
        "read at 12, after atime <= mtime"
    );
}

#[test]
fn times_of_access_are_saved_by_a_sync() {
    let (rig, fs) = small();
    let file = make_file(&fs, b"file", b"content");
    content(&fs, file);
    assert_eq!(fs.getattr(&caller(20), file).expect("attributes").atime.seconds, 12);
    fs.syncfs(&caller(20)).expect("sync");
    let fs = rig.reopen(fs, true);
    assert_eq!(fs.getattr(&caller(21), file).expect("attributes").atime.seconds, 12);
    // Newer than the last change, and not a day old: a read leaves it.
    let mut out = [0; 4];
    fs.read(&caller(30), file, 0, &mut out).expect("a read");
    assert_eq!(fs.getattr(&caller(31), file).expect("attributes").atime.seconds, 12);
    fs.read(&caller(100_000), file, 0, &mut out).expect("a read");
    assert_eq!(fs.getattr(&caller(100_001), file).expect("attributes").atime.seconds, 100_000);
}

#[test]
fn extended_attributes_and_policy() {
    let (rig, fs) = Rig::new(2, 64 << 20);
    let file = make_file(&fs, b"file", b"content");
    let c = caller(60);
    fs.setxattr(&c, file, b"user.colour", b"red", SetMode::Create, false).expect("set");
    assert!(matches!(fs.setxattr(&c, file, b"user.colour", b"x", SetMode::Create, false), Err(Error::Exists)));
    assert!(matches!(fs.setxattr(&c, file, b"user.other", b"x", SetMode::Replace, false), Err(Error::NoAttribute)));
    assert_eq!(fs.getxattr(&c, file, b"user.colour").expect("get"), b"red");
    fs.setxattr(&c, ROOT, b"user.stere.copies", b"1", SetMode::Any, false).expect("set policy");
    assert_eq!(fs.getxattr(&c, file, b"user.stere.effective.copies").expect("get"), b"1");
    assert!(matches!(fs.getxattr(&c, file, b"user.stere.copies"), Err(Error::NoAttribute)));
    assert_eq!(fs.getxattr(&c, file, b"user.stere.state").expect("get"), b"pending 4096 bytes");
    let new = make_file(&fs, b"new", b"content");
    assert_eq!(fs.getxattr(&c, new, b"user.stere.survives").expect("get"), b"0");
    assert_eq!(fs.getxattr(&c, file, b"user.attest.survives").expect("get"), b"1");
    assert_eq!(fs.setxattr(&c, file, b"user.stere.where", b"", SetMode::Any, false).expect_err("computed").errno(), 95);
    assert_eq!(fs.setxattr(&c, file, b"user.stere.bad", b"", SetMode::Any, false).expect_err("unknown").errno(), 22);
    assert_eq!(fs.listxattr(&c, ROOT).expect("list"), [b"user.stere.copies".to_vec()]);
    assert_eq!(fs.listxattr(&c, file).expect("list"), [b"user.colour".to_vec()]);
    fs.syncfs(&c).expect("sync");
    let fs = rig.reopen(fs, true);
    assert_eq!(fs.getxattr(&c, file, b"user.colour").expect("get"), b"red");
    fs.removexattr(&c, file, b"user.colour").expect("remove");
    assert!(matches!(fs.removexattr(&c, file, b"user.colour"), Err(Error::NoAttribute)));
    let _ = Handle(0);
}

#[test]
fn appends_go_to_the_end_and_tell_where_it_was() {
    let (_rig, fs) = small();
    let inode = make_file(&fs, b"log", b"begin ");
    assert_eq!(fs.append(&caller(13), inode, b"one ", false).expect("an append"), (6, 4));
    fs.write(&caller(13), inode, 200_000, b"far ", false).expect("a write");
    assert_eq!(fs.append(&caller(13), inode, &pattern(300_000, 3), false).expect("an append"), (200_004, 300_000));
    assert_eq!(fs.append(&caller(13), inode, b"", false).expect("nothing").1, 0);
    let found = content(&fs, inode);
    assert_eq!((found.len(), &found[..10]), (500_004, &b"begin one "[..]));
    assert!(found[200_004..] == pattern(300_000, 3));
    std::thread::scope(|scope| {
        for letter in [b'a', b'b', b'c'] {
            let fs = &fs;
            scope.spawn(move || {
                for _ in 0..100 {
                    fs.append(&caller(14), inode, &[letter; 10], false).expect("an append");
                }
            });
        }
    });
    let found = content(&fs, inode);
    assert_eq!(found.len(), 500_004 + 3000);
    assert!(found[500_004..].chunks(10).all(|line| line.iter().all(|byte| *byte == line[0])), "none is torn");
}
