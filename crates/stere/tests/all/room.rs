//! What `df` tells, on a real mount (P-188): what is removed is free for whoever asks next.

use crate::support;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use support::tier::until;
use support::{World, can_mount};

const FILE_BYTES: usize = 12 << 20;

fn available_bytes(world: &World) -> u64 {
    let told = rustix::fs::statvfs(world.mountpoint()).unwrap();
    told.f_bavail * told.f_frsize
}

/// Bytes that nothing makes smaller.
fn noise(seed: u64) -> Vec<u8> {
    noise_of(seed, FILE_BYTES)
}

fn noise_of(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Fills the pool to the last byte; how many files that took.
fn fill(folder: &Path) -> u64 {
    for number in 0.. {
        if fs::write(folder.join(number.to_string()), noise(number)).is_err() {
            return number;
        }
    }
    unreachable!("a pool is full at some point");
}

#[test]
fn what_is_removed_is_free_for_who_asks_next() {
    if !can_mount("what_is_removed_is_free_for_who_asks_next") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=192M b.img,size=192M c.img,size=384M");
    world.ok("mount tank mount");
    let point = world.mountpoint();
    let empty = available_bytes(&world);
    let count = fill(&point);
    assert!(count > 8, "{count} files fit");
    let full = available_bytes(&world);
    assert!(full < FILE_BYTES as u64, "{full} bytes are free where nothing fits");
    // The first makes up for what the last writes took beyond what is told.
    fs::remove_file(point.join("0")).unwrap();
    rustix::fs::syncfs(fs::File::open(&point).unwrap()).unwrap();
    // The next are free at once, one by one, but for what metadata may need.
    for number in 1..5 {
        let before = available_bytes(&world);
        fs::remove_file(point.join(number.to_string())).unwrap();
        rustix::fs::syncfs(fs::File::open(&point).unwrap()).unwrap();
        // The kernel lets go of a removed file when it gets to it.
        let gained = || available_bytes(&world).saturating_sub(before);
        until("the room of a removed file", || gained() >= FILE_BYTES as u64 * 2 / 3);
    }
    // And it can be had, at once.
    fs::write(point.join("next"), noise(99)).unwrap();
    for entry in fs::read_dir(&point).unwrap().flatten() {
        fs::remove_file(entry.path()).unwrap();
    }
    rustix::fs::syncfs(fs::File::open(&point).unwrap()).unwrap();
    // The kernel lets go of the last ones when it gets to it.
    until("as much room as in the beginning", || available_bytes(&world) + (8 << 20) >= empty);
    world.ok("umount mount");
    world.ok("check tank");
}

const PIECE_BYTES: usize = 80 << 20;

/// P-188: of two who each remove a file and ask for its room again, beside a busy machine, none is refused, although the kernel tells
/// only after the removal that it has let go of the file.
#[test]
fn room_that_the_kernel_is_letting_go_of_is_waited_for() {
    if !can_mount("room_that_the_kernel_is_letting_go_of_is_waited_for") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M");
    world.ok("mount tank mount");
    let point = world.mountpoint();
    let is_over = AtomicBool::new(false);
    let set_aside = || {
        let path = point.join("set aside");
        let mut rounds = 0;
        while !is_over.load(Ordering::Acquire) {
            let file = fs::File::create(&path).unwrap();
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, PIECE_BYTES as u64)
                .unwrap_or_else(|error| panic!("round {rounds}: {error}"));
            drop(file);
            fs::remove_file(&path).unwrap();
            rounds += 1;
        }
        rounds
    };
    let spin = || {
        while !is_over.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        let setting_aside = scope.spawn(set_aside);
        (0..4).for_each(|_| drop(scope.spawn(spin)));
        let content = vec![7; PIECE_BYTES];
        let written = std::panic::catch_unwind(|| {
            for round in 0..40 {
                fs::write(point.join("written"), &content).unwrap_or_else(|error| panic!("round {round}: {error}"));
                fs::remove_file(point.join("written")).unwrap();
            }
        });
        is_over.store(true, Ordering::Release);
        assert!(setting_aside.join().expect("room is set aside") > 40);
        written.expect("room is written to");
    });
    world.ok("umount mount");
    world.ok("check tank");
}

/// P-187: on unlike disks no pair has all files of two copies, so losing a pair loses some of them (all 1,000 lay on one pair once).
#[test]
fn no_pair_of_unlike_disks_has_everything() {
    if !can_mount("no_pair_of_unlike_disks_has_everything") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=500M b.img,size=1G c.img,size=2G d.img,size=2G");
    world.ok("mount tank mount");
    const FILES: usize = 1000;
    for number in 0..FILES {
        fs::write(world.mountpoint().join(format!("f{number}")), noise_of(number as u64, 100_000)).unwrap();
    }
    world.ok("flush mount --wait");
    let mut worst = 0;
    for pair in ["a b", "a c", "a d", "b c", "b d", "c d"] {
        let lost = world.json(&format!("lose {pair} --pool tank --json"));
        let files = lost["files"].as_array().map_or(0, Vec::len);
        println!("{pair}: {files}");
        worst = worst.max(files);
    }
    assert!(worst > 0 && worst < FILES * 3 / 4, "{worst} of {FILES} files lie on one pair");
    world.ok("umount mount");
}
