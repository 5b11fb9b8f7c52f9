//! Rot of every 4 KiB block of a device, each in its turn: every file always reads right, and scrubbing ends clean.

use crate::support;

use std::sync::atomic::{AtomicUsize, Ordering};

use stere_device::{Device, MemoryDevice};
use stere_naming::{FileSystem, OpenFlags, ROOT, SetMode};
use support::{Rig, caller};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
const DEVICE_BYTES: u64 = 64 << 20;
const BLOCK: u64 = 4096;
/// Blocks that hold nothing are spoilt so many at a time: nothing depends on any of them.
const EMPTY_AT_ONCE: usize = 256;

fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

type Files = Vec<(String, Vec<u8>)>;

fn write(fs: &FileSystem, files: &mut Files, name: String, data: Vec<u8>) {
    let (made, handle) = fs.create(&caller(2), ROOT, name.as_bytes(), 0o644, FLAGS).expect("a file");
    assert_eq!(fs.write(&caller(2), made.inode, 0, &data, false).expect("a write"), data.len());
    fs.release(&caller(2), made.inode, handle).expect("a release");
    files.push((name, data));
}

/// A pool with files in a checkpoint and files that only the journal tells of.
fn pool(count: u16, parity: Option<&[u8]>) -> (Rig, Files) {
    let (rig, fs) = Rig::new(count, DEVICE_BYTES);
    if let Some(parity) = parity {
        fs.setxattr(&caller(1), ROOT, b"user.stere.parity", parity, SetMode::Any, false).expect("a policy");
    }
    let mut files = Files::new();
    for (number, length) in [0, 1, 4096, 5000, 40_000, 131_072, 300_000, 700_001].into_iter().enumerate() {
        write(&fs, &mut files, format!("old{number}"), content(number as u64, length));
    }
    fs.syncfs(&caller(3)).expect("a sync");
    fs.store().checkpoint().expect("a checkpoint");
    for (number, length) in [10, 9000, 200_000].into_iter().enumerate() {
        write(&fs, &mut files, format!("new{number}"), content(100 + number as u64, length));
        fs.syncfs(&caller(4)).expect("a sync");
    }
    // Not closed: the journal has something to tell.
    std::mem::forget(fs);
    (rig, files)
}

fn read_all(fs: &FileSystem, files: &Files, spoilt: &[u64]) {
    for (name, data) in files {
        let inode = fs.lookup(&caller(5), ROOT, name.as_bytes()).expect("the name is there").inode;
        let mut out = vec![0; data.len() + 10];
        let length =
            fs.read(&caller(5), inode, 0, &mut out).unwrap_or_else(|error| panic!("{spoilt:?}: {name}: {error}"));
        assert!(length == data.len() && out[..length] == data[..], "{spoilt:?}: {name} reads wrong");
    }
}

/// Spoils these blocks of a device of a pool nobody has touched since, and goes through everything.
fn spoil(rig: &Rig, files: &Files, device: usize, blocks: &[u64]) {
    let images = rig.images();
    blocks.iter().for_each(|block| images[device].corrupt(block * BLOCK, BLOCK));
    let fs = rig.open(&images);
    read_all(&fs, files, blocks);
    let first = fs.store().scrubber.scrub().expect("a pass");
    assert!(first.is_clean(), "blocks {blocks:?}: {first:?}");
    let second = fs.store().scrubber.scrub().expect("a pass");
    assert!(second.is_clean() && second.repaired_blocks == 0, "blocks {blocks:?}: {second:?}");
    assert_eq!(fs.store().checker.check(true).expect("a check").findings, [], "blocks {blocks:?}");
    read_all(&fs, files, blocks);
    if blocks.len() == 1 {
        // The device that was spoilt is as good as any again.
        let other = (device + 1) % images.len();
        images[other].set_offline(true);
        read_all(&fs, files, blocks);
    }
    std::mem::forget(fs);
}

fn is_empty(device: &MemoryDevice, block: u64) -> bool {
    let mut bytes = [0; BLOCK as usize];
    device.read(block * BLOCK, &mut bytes).expect("a device in memory is readable");
    bytes.iter().all(|byte| *byte == 0)
}

/// All blocks of a device: each with something in it alone, the empty ones together.
fn every_block(rig: &Rig, files: &Files, device: usize) -> (usize, usize) {
    let image = &rig.images()[device];
    let (empty, used): (Vec<u64>, Vec<u64>) = (0..DEVICE_BYTES / BLOCK).partition(|block| is_empty(image, *block));
    let turns: Vec<&[u64]> = used.chunks(1).chain(empty.chunks(EMPTY_AT_ONCE)).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(turn) = turns.get(next.fetch_add(1, Ordering::Relaxed)) {
                    spoil(rig, files, device, turn);
                }
            });
        }
    });
    (used.len(), empty.len())
}

/// P-3, P-30, P-31.
#[test]
fn every_block_of_a_device_of_two_copies() {
    let (rig, files) = pool(2, None);
    read_all(&rig.open(&rig.images()), &files, &[]);
    let (used, empty) = every_block(&rig, &files, 0);
    println!("{used} blocks in use, {empty} empty");
    assert!(used > 300 && used + empty == (DEVICE_BYTES / BLOCK) as usize);
}

/// P-3, P-30, P-31.
#[test]
fn every_block_of_a_device_of_four_plus_one() {
    let (rig, files) = pool(5, Some(b"4+1"));
    for device in [0, 1] {
        let (used, empty) = every_block(&rig, &files, device);
        println!("{used} blocks in use, {empty} empty");
        assert!(used > 60 && used + empty == (DEVICE_BYTES / BLOCK) as usize);
    }
}
