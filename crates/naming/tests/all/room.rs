//! What is told to be free can be set aside, what is set aside can be written, and what is removed is free at once.

use crate::support;

use stere_naming::{Error, FileSystem, Handle, OpenFlags, ROOT, SetMode};
use support::random::Random;
use support::{Rig, caller};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: true };
const MIB: u64 = 1 << 20;
/// Pools: sizes of devices, and copies of all files.
const POOLS: [(&[u64], &str); 8] = [
    (&[64 * MIB], "1"),
    (&[200 * MIB], "1"),
    (&[64 * MIB, 64 * MIB], "2"),
    (&[64 * MIB, 128 * MIB, 256 * MIB, 256 * MIB], "2"),
    (&[64 * MIB, 64 * MIB, 64 * MIB], "3"),
    (&[80 * MIB, 100 * MIB, 160 * MIB], "3"),
    (&[64 * MIB, 64 * MIB, 64 * MIB], "2"),
    (&[64 * MIB, 64 * MIB], "1"),
];

fn pool(sizes: &[u64], copies: &str) -> (Rig, FileSystem) {
    let (rig, fs) = Rig::unlike(sizes);
    fs.setxattr(&caller(2), ROOT, b"user.stere.copies", copies.as_bytes(), SetMode::Any, false).unwrap();
    (rig, fs)
}

fn free_bytes(fs: &FileSystem) -> u64 {
    let statistics = fs.quotas().statfs_at(stere_naming::Io::BLOCKING, ROOT).unwrap();
    statistics.blocks_free * u64::from(statistics.block_bytes)
}

fn create(fs: &FileSystem, name: &str) -> (u64, Handle) {
    let (made, handle) = fs.create(&caller(3), ROOT, name.as_bytes(), 0o644, FLAGS).unwrap();
    (made.inode, handle)
}

/// Writes files until there is no room; how much was accepted.
fn fill(fs: &FileSystem, piece: usize) -> u64 {
    let data = vec![5; piece];
    let mut accepted = 0;
    for number in 0.. {
        let name = format!("fill{number}");
        let Ok((made, handle)) = fs.create(&caller(3), ROOT, name.as_bytes(), 0o644, FLAGS) else { return accepted };
        for at in 0..16 {
            match fs.write(&caller(3), made.inode, at * piece as u64, &data, false) {
                Ok(written) => accepted += written as u64,
                Err(Error::NoSpace) => {
                    fs.release(&caller(3), made.inode, handle).unwrap();
                    return accepted;
                }
                Err(error) => panic!("{error}"),
            }
        }
        fs.release(&caller(3), made.inode, handle).unwrap();
        while fs.store().step(false).unwrap() {}
    }
    unreachable!("a pool gets full")
}

/// P-188
#[test]
fn what_is_told_to_be_free_can_be_set_aside() {
    for (sizes, copies) in POOLS {
        // What a default class tells is for its own redundancy.
        if copies != "2" && sizes.len() > 1 {
            continue;
        }
        for part in [0, 3, 10] {
            let (_rig, fs) = pool(sizes, copies);
            if part > 0 {
                let (inode, _) = create(&fs, "data");
                let length = free_bytes(&fs) * part / 20;
                let data = vec![7; MIB as usize];
                for at in 0..length / MIB {
                    assert_eq!(fs.write(&caller(3), inode, at * MIB, &data, false).unwrap(), data.len());
                }
                fs.syncfs(&caller(4)).unwrap();
            }
            let (inode, _) = create(&fs, "aside");
            let free = free_bytes(&fs);
            let set_aside = fs.fallocate(&caller(5), inode, 0, free, 0);
            assert!(set_aside.is_ok(), "{sizes:?}, {copies} copies, {part}: {free} bytes are free: {set_aside:?}");
            assert!(free_bytes(&fs) <= free / 50, "{} of {free} bytes are free still", free_bytes(&fs));
        }
    }
}

/// P-6, P-188: in a pool that was filled beside it, in small pieces in any order, each made durable now and then.
#[test]
fn what_is_set_aside_takes_what_is_written() {
    for (number, (sizes, copies)) in POOLS.into_iter().enumerate() {
        for percent in [20, 60] {
            let (rig, mut fs) = pool(sizes, copies);
            let (inode, _) = create(&fs, "aside");
            let length = free_bytes(&fs) * percent / 100 / copies.parse::<u64>().unwrap() / MIB * MIB;
            fs.fallocate(&caller(5), inode, 0, length, 0).unwrap();
            fill(&fs, 300_000);
            if number % 2 == 1 {
                fs.syncfs(&caller(5)).unwrap();
                fs = rig.reopen(fs, false);
            }
            let mut random = Random(number as u64 + percent);
            let mut blocks: Vec<u64> = (0..length / 4096).collect();
            for at in (1..blocks.len()).rev() {
                blocks.swap(at, random.below(at as u64 + 1) as usize);
            }
            for (turn, block) in blocks.into_iter().enumerate() {
                let what = || format!("{sizes:?}, {copies} copies, {percent} %: block {block}, {turn} before it");
                let data = vec![block as u8; 4096];
                let written = fs.write(&caller(6), inode, block * 4096, &data, false);
                assert!(written.is_ok(), "{}: {written:?}", what());
                if turn % 64 == 0 {
                    let durable = fs.fsync(&caller(6), inode, false);
                    assert!(durable.is_ok(), "{}: {durable:?}", what());
                }
                if turn % 512 == 0 {
                    fs.step(&caller(7), 10).unwrap();
                    fs.store().step(false).unwrap();
                }
            }
            fs.fsync(&caller(8), inode, false).unwrap();
            // And again, over what is there.
            for block in (0..length / 4096).step_by(7) {
                fs.write(&caller(9), inode, block * 4096, &vec![block as u8; 4096], false).unwrap();
                if block % 64 == 0 {
                    fs.fsync(&caller(9), inode, false).unwrap();
                }
            }
            fs.fsync(&caller(9), inode, false).unwrap();
            let mut out = vec![0; 4096];
            for block in 0..length / 4096 {
                assert_eq!(fs.read(&caller(9), inode, block * 4096, &mut out).unwrap(), 4096);
                assert!(out.iter().all(|byte| *byte == block as u8), "block {block}");
            }
        }
    }
}

/// P-188: `df` after `rm`, and room for the next who asks, though a large file is freed in pieces.
#[test]
fn what_is_removed_is_free_at_once() {
    let (_rig, fs) = pool(&[200 * MIB], "1");
    let before = free_bytes(&fs);
    let data = vec![3; 4096];
    for round in 0..3 {
        let (inode, handle) = create(&fs, "big");
        // Every second block, so that it has many pieces.
        for block in 0..6000 {
            fs.write(&caller(3), inode, block * 8192, &data, false).unwrap();
        }
        fs.fallocate(&caller(3), inode, 60 * MIB, 80 * MIB, 0).unwrap();
        fs.release(&caller(3), inode, handle).unwrap();
        fs.syncfs(&caller(3)).unwrap();
        fs.unlink(&caller(4), ROOT, b"big").unwrap();
        if round == 1 {
            let free = free_bytes(&fs);
            assert!(free + 4 * MIB >= before, "{before} bytes were free, {free} are");
        }
        let (inode, handle) = create(&fs, "aside");
        fs.fallocate(&caller(5), inode, 0, before - 8 * MIB, 0).unwrap();
        fs.release(&caller(5), inode, handle).unwrap();
        fs.unlink(&caller(5), ROOT, b"aside").unwrap();
    }
}

/// P-187: unlike devices are filled as far as arithmetic allows, and `df` is true on the way.
#[test]
fn unlike_devices_take_what_is_told() {
    for sizes in [
        &[64 * MIB, 128 * MIB, 256 * MIB, 256 * MIB][..],
        &[64 * MIB, 64 * MIB, 300 * MIB],
        &[300 * MIB, 100 * MIB, 64 * MIB, 64 * MIB],
        &[64 * MIB, 200 * MIB, 210 * MIB],
    ] {
        let (_rig, fs) = pool(sizes, "2");
        let begin = free_bytes(&fs);
        let (inode, _) = create(&fs, "half");
        let data = vec![7; MIB as usize];
        for at in 0..begin / 2 / MIB {
            fs.write(&caller(3), inode, at * MIB, &data, false).unwrap();
        }
        fs.syncfs(&caller(3)).unwrap();
        let left = free_bytes(&fs);
        assert!(
            left.abs_diff(begin / 2) <= begin / 25,
            "{sizes:?}: {left} of {begin} bytes are left after half of them"
        );
        let accepted = begin / 2 / MIB * MIB + fill(&fs, 500_000);
        assert!(accepted >= begin - MIB, "{sizes:?}: {accepted} of {begin} bytes were taken");
        println!("{sizes:?}: {accepted} of {begin} bytes");
        fs.syncfs(&caller(3)).unwrap();
        assert_eq!(fs.store().checker.check(true).unwrap().findings, []);
    }
}
