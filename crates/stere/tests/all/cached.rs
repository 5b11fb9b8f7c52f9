//! What the kernel has of files in its memory, with the real binary: refused stores through mappings are seen by nobody (P-172), direct
//! asynchronous writes leave nothing stale (P-173), and what `-o writeback` accepted is kept or refused (P-174). Needs root and
//! /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs::{self, File};
use std::io::{Error, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::tier::until;
use support::{World, can_mount};

const PAGE: usize = 4096;

/// A shared mapping of the first page of a file.
struct Mapping(*mut u8);

impl Mapping {
    fn of(file: &File) -> Mapping {
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a file that is open.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, read_write, shared, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Mapping(at.cast())
    }

    fn store(&self, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: within the page that is mapped.
            unsafe { self.0.add(at).write_volatile(*byte) };
        }
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: the page that is mapped.
        let outcome = unsafe { libc::msync(self.0.cast(), PAGE, libc::MS_SYNC) };
        if outcome < 0 { Err(Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the page that is mapped, which nobody else knows.
        unsafe { libc::munmap(self.0.cast(), PAGE) };
    }
}

fn both(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_store_into_a_mapping_of_a_retained_file_is_seen_by_nobody() {
    if !can_mount("a_store_into_a_mapping_of_a_retained_file_is_seen_by_nobody") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let path = world.mountpoint().join("contract");
    fs::write(&path, b"kept ".repeat(1000)).unwrap();
    let file = both(&path);
    let mapping = Mapping::of(&file);
    // Accepted before the file is retained, so it is kept.
    mapping.store(b"KEPT");
    world.ok("policy set mount/contract retain=3h");
    let seen = || fs::read(&path).unwrap()[..5].to_vec();
    assert_eq!(seen(), b"KEPT ");
    mapping.store(b"EVIL");
    assert_eq!(mapping.sync().unwrap_err().raw_os_error(), Some(libc::EPERM));
    until("the refused bytes are seen", || seen() == b"KEPT ");
    // Again, and this time nobody asks what became of it: the kernel writes it back when it likes, here when it is told to.
    mapping.store(b"EVIL");
    // SAFETY: a plain system call on a file that is open.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    until("the refused bytes are seen", || seen() == b"KEPT ");
    drop((mapping, file));
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_eq!(seen(), b"KEPT ");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// What a quota refuses when it is written back is shown to nobody either.
#[test]
fn a_store_into_a_mapping_that_a_quota_refuses_is_seen_by_nobody() {
    if !can_mount("a_store_into_a_mapping_that_a_quota_refuses_is_seen_by_nobody") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    fs::create_dir(world.mountpoint().join("small")).unwrap();
    world.ok("volume create mount/small/volume bytes=64K");
    let path = world.mountpoint().join("small/volume/file");
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    file.set_len(PAGE as u64).unwrap();
    let mapping = Mapping::of(&file);
    // Something else takes all there may be.
    let mut rest = File::create(path.with_file_name("rest")).unwrap();
    while rest.write_all(&[7; PAGE]).is_ok() {}
    mapping.store(b"much");
    if mapping.sync().is_ok() {
        eprintln!("the store found room: its block was counted with the size");
    } else {
        until("the refused bytes are seen", || fs::read(&path).unwrap()[..4] == [0; 4]);
    }
    drop((mapping, file, rest));
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// The same of a pool that is full.
#[test]
fn a_store_into_a_mapping_on_a_full_pool_is_kept_or_seen_by_nobody() {
    if !can_mount("a_store_into_a_mapping_on_a_full_pool_is_kept_or_seen_by_nobody") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=64M b.img,size=64M");
    world.ok("mount tank mount");
    let paths: Vec<_> = (0..40).map(|number| world.mountpoint().join(format!("holes{number}"))).collect();
    let create = |path| File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let files: Vec<File> = paths.iter().map(create).collect();
    let mappings: Vec<Mapping> =
        files.iter().inspect(|file| file.set_len(PAGE as u64).unwrap()).map(Mapping::of).collect();
    let mut rest = File::create(world.mountpoint().join("rest")).unwrap();
    let noise: Vec<u8> = (0..64 * PAGE).map(|at| (at * at / 7 + at) as u8).collect();
    while rest.write_all(&noise).and_then(|()| rest.sync_data()).is_ok() {}
    let mut kept = Vec::new();
    for (mapping, path) in mappings.iter().zip(&paths) {
        mapping.store(b"much");
        let is_kept = mapping.sync().is_ok();
        let expected: &[u8; 4] = if is_kept { b"much" } else { &[0; 4] };
        until("what was refused is seen", || fs::read(path).unwrap()[..4] == expected[..]);
        kept.push(*expected);
    }
    println!("{} of {} stores found room", kept.iter().filter(|expected| **expected != [0; 4]).count(), kept.len());
    drop((mappings, files, rest));
    world.ok("umount mount");
    world.ok("mount tank mount");
    for (path, expected) in paths.iter().zip(kept) {
        assert_eq!(fs::read(path).unwrap()[..4], expected, "{}", path.display());
    }
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// The same of a file whose key is locked before the store is written back.
#[test]
fn a_store_into_a_mapping_of_a_file_whose_key_is_locked_is_kept_or_seen_by_nobody() {
    if !can_mount("a_store_into_a_mapping_of_a_file_whose_key_is_locked_is_kept_or_seen_by_nobody") {
        return;
    }
    let world = World::with_pool();
    fs::write(world.path("pass"), "open sesame\n").unwrap();
    world.ok("mount tank mount");
    let vault = world.mountpoint().join("vault");
    fs::create_dir(&vault).unwrap();
    world.ok("key create tank family --passphrase-file pass");
    world.ok("policy set mount/vault encrypt=yes");
    let path = vault.join("file");
    fs::write(&path, b"kept ".repeat(1000)).unwrap();
    let file = both(&path);
    let mapping = Mapping::of(&file);
    mapping.store(b"KEPT");
    world.ok("key lock tank");
    let expected: &[u8] = if mapping.sync().is_ok() { b"KEPT " } else { b"kept " };
    assert_eq!(fs::read(&path).unwrap_err().raw_os_error(), Some(libc::ENOKEY));
    world.ok("key unlock tank --passphrase-file pass");
    let seen = || fs::read(&path).unwrap()[..5].to_vec();
    until("the same is seen", || seen() == expected);
    drop((mapping, file));
    world.ok("umount mount");
    world.ok("mount tank mount");
    world.ok("key unlock tank --passphrase-file pass");
    assert_eq!(seen(), expected);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// Ten asynchronous direct writes of 64 KiB at once, as `io_submit` makes them.
fn write_asynchronously(context: usize, file: &File, bytes: &[u8]) {
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Control {
        data: u64,
        key_and_flags: u64,
        opcode: u16,
        priority: i16,
        descriptor: u32,
        buffer: u64,
        length: u64,
        offset: i64,
        reserved: u64,
        flags: u32,
        event: u32,
    }
    const WRITE: u16 = 1;
    let pieces: Vec<Control> = bytes
        .chunks(65_536)
        .enumerate()
        .map(|(number, piece)| Control {
            opcode: WRITE,
            descriptor: file.as_raw_fd().cast_unsigned(),
            buffer: piece.as_ptr() as u64,
            length: piece.len() as u64,
            offset: (number * 65_536) as i64,
            ..Control::default()
        })
        .collect();
    let list: Vec<*const Control> = pieces.iter().map(|piece| &raw const *piece).collect();
    let mut events = vec![[0_u64; 4]; list.len()];
    // SAFETY: control blocks, buffers and events live until all events have come.
    unsafe {
        let sent = libc::syscall(libc::SYS_io_submit, context, list.len(), list.as_ptr());
        assert_eq!(sent, list.len() as i64, "{}", Error::last_os_error());
        let all = list.len();
        let came =
            libc::syscall(libc::SYS_io_getevents, context, all, all, events.as_mut_ptr(), std::ptr::null::<u8>());
        assert_eq!(came, list.len() as i64, "{}", Error::last_os_error());
    }
    for [_, _, outcome, _] in events {
        assert_eq!(outcome, 65_536, "a direct write into a pool with room is whole");
    }
}

#[test]
fn after_direct_asynchronous_writes_reads_are_right() {
    if !can_mount("after_direct_asynchronous_writes_reads_are_right") {
        return;
    }
    const LENGTH: usize = 655_360;
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M");
    world.ok("mount tank mount");
    let path = world.mountpoint().join("file");
    fs::write(&path, vec![0; LENGTH]).unwrap();
    let direct = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let mut context = 0_usize;
    // SAFETY: writes into a live variable.
    assert_eq!(unsafe { libc::syscall(libc::SYS_io_setup, 16, &raw mut context) }, 0);
    let mut room = vec![0_u8; LENGTH + PAGE];
    let start = room.as_ptr().align_offset(PAGE);
    for round in 1..=4_u8 {
        let stop = AtomicBool::new(false);
        let mut last = 0;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Acquire) {
                        let file = File::open(&path).unwrap();
                        let mut page = [0; PAGE];
                        for at in 0..LENGTH / PAGE {
                            file.read_at(&mut page, (at * PAGE) as u64).unwrap();
                        }
                    }
                });
            }
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_secs(3) {
                last = last % 250 + 1;
                room.fill(last);
                write_asynchronously(context, &direct, &room[start..start + LENGTH]);
            }
            stop.store(true, Ordering::Release);
        });
        let buffered = fs::read(&path).unwrap();
        let stale = buffered.iter().filter(|byte| **byte != last).count();
        assert_eq!(stale, 0, "round {round}: bytes of {LENGTH} that are not those written last");
    }
    // SAFETY: the context is used no more.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
    drop(direct);
    world.ok("umount mount");
}

/// P-175. Each file that a listing meets is renamed: it does not meet it again under the new name, and ends.
#[test]
fn a_listing_ends_while_names_are_made_and_renamed() {
    if !can_mount("a_listing_ends_while_names_are_made_and_renamed") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let folder = world.mountpoint().join("folder");
    fs::create_dir(&folder).unwrap();
    (0..1500).for_each(|number| fs::write(folder.join(format!("old{number}")), b"").unwrap());
    let mut met = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        met += 1;
        assert!(met <= 3000, "the listing of 1500 names does not end");
        fs::rename(entry.unwrap().path(), folder.join(format!("new{met}"))).unwrap();
    }
    assert_eq!(met, 1500);
    // The next listing, and one that begins anew on the same handle, have all of them, and what was made since.
    let directory = File::open(&folder).unwrap();
    let mut again = rustix::fs::Dir::read_from(&directory).unwrap();
    assert_eq!(again.by_ref().count(), 1502);
    fs::write(folder.join("later"), b"").unwrap();
    again.rewind();
    assert_eq!(again.count(), 1503);
    drop(directory);
    world.ok("umount mount");
}

/// A full pool: a direct write gives all its bytes, some of them, or says that there is no room.
#[test]
fn a_direct_write_on_a_full_pool_says_that_it_is_full() {
    if !can_mount("a_direct_write_on_a_full_pool_says_that_it_is_full") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=128M b.img,size=128M");
    world.ok("mount tank mount");
    let mount = world.mountpoint();
    let mut room = vec![7_u8; 65_536 + PAGE];
    room.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7919 / 13) as u8);
    let start = room.as_ptr().align_offset(PAGE);
    let direct =
        |path: &Path| File::options().write(true).create(true).truncate(false).custom_flags(libc::O_DIRECT).open(path);
    let (mut short, mut full) = (0, 0);
    for round in 0..30 {
        let path = mount.join(format!("file{round}"));
        let Ok(file) = direct(&path) else { break };
        for at in 0..10_000_u64 {
            match file.write_at(&room[start..start + 65_536], at * 65_536) {
                Ok(65_536) => {}
                Ok(some) => {
                    assert!(some > 0);
                    short += 1;
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "after {short} short writes");
                    full += 1;
                    break;
                }
            }
        }
        // Not a multiple of what is written at a time becomes free.
        fs::write(mount.join("small"), vec![1; 4096 * (round + 1)]).ok();
        if round % 3 == 2 {
            fs::remove_file(mount.join(format!("file{}", round - 2))).unwrap();
        }
    }
    assert!(full > 0, "the pool became full");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

#[test]
fn what_the_writeback_cache_accepted_is_kept_or_refused() {
    if !can_mount("what_the_writeback_cache_accepted_is_kept_or_refused") {
        return;
    }
    const LENGTH: usize = 1_500_000;
    let world = World::new();
    world.ok("create tank a.img,size=128M b.img,size=128M");
    world.ok("mount tank mount -o writeback");
    let content = |number: usize| -> Vec<u8> {
        let mut state = number as u64 + 1;
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(LENGTH)
        .collect()
    };
    let (mut kept, mut refused) = (Vec::new(), 0);
    for number in 0..160 {
        let path = world.mountpoint().join(format!("file{number}"));
        let written = File::create(&path).and_then(|mut file| file.write_all(&content(number)));
        let synced = File::open(world.mountpoint()).and_then(|directory| {
            // SAFETY: a plain system call on a directory that is open.
            if unsafe { libc::syncfs(directory.as_raw_fd()) } < 0 { Err(Error::last_os_error()) } else { Ok(()) }
        });
        match written.and(synced) {
            Ok(()) => kept.push(number),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
                refused += 1;
                drop(fs::remove_file(&path));
                if let Some(oldest) = (refused % 2 == 0).then(|| kept.remove(0)) {
                    fs::remove_file(world.mountpoint().join(format!("file{oldest}"))).unwrap();
                }
                // Odd room is left.
                let odd = world.mountpoint().join(format!("odd{}", refused % 7));
                drop(fs::write(odd, vec![3; 1 + refused * 7001 % 400_000]));
            }
        }
    }
    assert!(refused > 0, "the pool became full");
    world.ok("umount mount");
    world.ok("mount tank mount");
    for number in kept {
        let read = fs::read(world.mountpoint().join(format!("file{number}"))).unwrap();
        assert_eq!(read.len(), LENGTH, "file {number} was accepted and synced");
        assert!(read == content(number), "file {number} holds other bytes");
    }
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}
