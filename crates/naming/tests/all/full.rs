//! A full pool is never stuck: what frees room works, what replaces as much as it frees works, and room comes back.

use crate::support;

use stere_naming::{Error, FileSystem, KEEP_SIZE, OpenFlags, PUNCH_HOLE, ROOT, SetAttributes};
use support::{Rig, caller};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };

fn settle(fs: &FileSystem) {
    fs.syncfs(&caller(9)).expect("sync");
    while fs.step(&caller(9), 100).expect("a step") {}
    for _ in 0..200 {
        if !fs.store().step(true).expect("a step of the store") {
            break;
        }
    }
}

/// Fills the pool; gives the files made and how much the last one holds.
fn fill(fs: &FileSystem, piece: usize) -> (Vec<u64>, u64) {
    let data = vec![5; piece];
    let mut inodes = Vec::new();
    for number in 0.. {
        let name = format!("fill{number}");
        let (made, handle) = match fs.create(&caller(3), ROOT, name.as_bytes(), 0o644, FLAGS) {
            Ok(made) => made,
            Err(Error::NoSpace) => return (inodes, 0),
            Err(error) => panic!("{error}"),
        };
        inodes.push(made.inode);
        for at in 0..8 {
            match fs.write(&caller(3), made.inode, at * piece as u64, &data, false) {
                Ok(written) => assert_eq!(written, piece),
                Err(Error::NoSpace) => {
                    fs.release(&caller(3), made.inode, handle).expect("what was accepted is saved");
                    return (inodes, at * piece as u64);
                }
                Err(error) => panic!("{error}"),
            }
        }
        fs.release(&caller(3), made.inode, handle).expect("what was accepted is saved");
        while fs.store().step(false).expect("a step of the store") {}
    }
    unreachable!("a pool gets full")
}

#[test]
fn a_full_pool_frees_and_replaces() {
    for piece in [1 << 20, 100_000] {
        let (rig, fs) = Rig::new(2, 64 << 20);
        let free_before = fs.statfs().blocks_free;
        let (inodes, last_size) = fill(&fs, piece);
        settle(&fs);
        assert!(fs.statfs().blocks_free * 4096 < 4 << 20, "{} blocks are left", fs.statfs().blocks_free);
        assert_eq!(fs.getattr(&caller(4), *inodes.last().expect("files")).expect("attributes").size, last_size);
        // What replaces as much as it frees.
        let first = inodes[0];
        let fresh = vec![6; piece];
        for round in 0..8 {
            assert_eq!(fs.write(&caller(5), first, 0, &fresh, false).expect("an overwrite"), piece, "round {round}");
            fs.fsync(&caller(5), first, false).expect("fsync");
        }
        assert_eq!(fs.write(&caller(5), first, 100, b"small", false).expect("an overwrite"), 5);
        fs.fsync(&caller(5), first, false).expect("fsync");
        // What frees.
        fs.fallocate(&caller(6), first, 8192, 65_536, PUNCH_HOLE | KEEP_SIZE).expect("punching");
        let cut = SetAttributes { size: Some(1000), ..SetAttributes::default() };
        fs.setattr(&caller(6), first, &cut).expect("truncating");
        for number in 1..inodes.len() {
            fs.unlink(&caller(7), ROOT, format!("fill{number}").as_bytes()).expect("unlinking");
        }
        settle(&fs);
        let fs = rig.reopen(fs, true);
        settle(&fs);
        let free_after = fs.statfs().blocks_free;
        assert!(free_after + 600 > free_before, "{free_before} blocks were free, now {free_after}");
        assert_eq!(fs.store().checker.check(true).expect("the check runs").findings, []);
        assert_eq!(stere_naming::check(fs.store()).expect("the check runs"), []);
    }
}

#[test]
fn room_set_aside_is_there_when_the_pool_is_full() {
    let (rig, fs) = Rig::new(1, 64 << 20);
    let (made, handle) = fs.create(&caller(3), ROOT, b"set aside", 0o644, FLAGS).expect("a new file");
    fs.fallocate(&caller(3), made.inode, 0, 4 << 20, 0).expect("setting room aside");
    assert_eq!(fs.getattr(&caller(3), made.inode).expect("attributes").blocks_512, (4 << 20) / 512);
    let free = fs.statfs().blocks_free;
    fill(&fs, 1 << 20);
    let scheme = stere_format::Scheme { data: 1, parity: 0 };
    assert!(fs.store().space().statistics(scheme).live_raw_bytes < (free + 256) * 4096, "the room is kept free");
    fs.syncfs(&caller(4)).expect("sync");
    let fs = rig.reopen(fs, false);
    let data = vec![8; 1 << 20];
    for at in 0..4 {
        assert_eq!(fs.write(&caller(5), made.inode, at << 20, &data, false).expect("room was set aside"), 1 << 20);
    }
    fs.fsync(&caller(5), made.inode, false).expect("fsync");
    let mut out = vec![0; 4 << 20];
    assert_eq!(fs.read(&caller(6), made.inode, 0, &mut out).expect("a read"), 4 << 20);
    assert!(out.iter().all(|byte| *byte == 8));
    assert_eq!(fs.store().checker.check(true).expect("the check runs").findings, []);
    let _ = handle;
}

#[test]
fn more_than_there_is_cannot_be_set_aside() {
    let (_rig, fs) = Rig::new(1, 64 << 20);
    let (made, _handle) = fs.create(&caller(3), ROOT, b"file", 0o644, FLAGS).expect("a new file");
    assert!(matches!(fs.fallocate(&caller(3), made.inode, 0, 1 << 40, 0), Err(Error::NoSpace)));
    assert_eq!(fs.getattr(&caller(3), made.inode).expect("attributes").blocks_512, 0);
}
