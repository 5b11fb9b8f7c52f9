//! Fault isolation: unreplicated files lie whole on one device, what is lost with a device is named exactly, and everything
//! else stays readable (P-17).

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use stere_naming::{Error, FileSystem, LostFile, OpenFlags, ROOT};
use support::edits::{fact, set};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;

fn content(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at / 512 * 7 + at + number * 31) as u8).collect()
}

fn make(fs: &FileSystem, directory: u64, name: &str, bytes: &[u8]) -> u64 {
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (attributes, handle) = fs.create(&caller(2), directory, name.as_bytes(), 0o644, flags).unwrap();
    write(fs, attributes.inode, 0, bytes);
    fs.release(&caller(2), attributes.inode, handle).unwrap();
    attributes.inode
}

fn write(fs: &FileSystem, inode: u64, offset: u64, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let piece = &bytes[at..bytes.len().min(at + (1 << 20))];
        at += fs.write(&caller(2), inode, offset + at as u64, piece, false).unwrap();
    }
}

fn read(fs: &FileSystem, inode: u64, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; length];
    let length = fs.read(&caller(5), inode, offset, &mut out)?;
    out.truncate(length);
    Ok(out)
}

fn lost(fs: &FileSystem, gone: &[u16]) -> Vec<LostFile> {
    let loss = fs.store().losses.loss(&|device| gone.contains(&device));
    let mut files = Vec::new();
    stere_naming::lost_files(fs.store(), &loss, &mut |file| {
        files.push(file);
        ControlFlow::Continue(())
    })
    .unwrap();
    files
}

#[test]
fn unreplicated_files_lie_whole_on_one_device_and_share_the_devices_evenly() {
    let (rig, fs) = Rig::new(3, DEVICE_BYTES);
    set(&fs, ROOT, "class", "scratch");
    let mut homes: BTreeMap<String, usize> = BTreeMap::new();
    let mut inodes = Vec::new();
    for number in 0..90 {
        let length = if number % 9 == 0 { 700_000 } else { 20_000 };
        inodes.push((number, length, make(&fs, ROOT, &format!("f{number}"), &content(number, length))));
    }
    fs.syncfs(&caller(3)).unwrap();
    for (_, _, inode) in &inodes {
        *homes.entry(fact(&fs, *inode, "where")).or_default() += 1;
    }
    assert_eq!(homes, BTreeMap::from([("d0".into(), 30), ("d1".into(), 30), ("d2".into(), 30)]));
    // The home is for life: rewritten, extended, and taken up again by another process.
    let fs = rig.reopen(fs, true);
    for (number, length, inode) in &inodes {
        let before = fact(&fs, *inode, "where");
        write(&fs, *inode, *length as u64, &content(*number, 300_000));
        write(&fs, *inode, 0, &content(number + 1, 5000));
        fs.fsync(&caller(4), *inode, false).unwrap();
        assert_eq!(fact(&fs, *inode, "where"), before, "file {number} stays at home");
        assert_eq!(fact(&fs, *inode, "survives"), "0");
    }
}

#[test]
fn cleaning_keeps_files_at_home() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    set(&fs, ROOT, "class", "scratch");
    let kept: Vec<u64> =
        (0..60).map(|number| make(&fs, ROOT, &format!("k{number}"), &content(number, 60_000))).collect();
    let before: Vec<String> = kept.iter().map(|inode| fact(&fs, *inode, "where")).collect();
    // Files that come and go leave half-empty segments behind, until the cleaner has moved every file that stays.
    for round in 0..8 {
        for number in 0..40 {
            make(&fs, ROOT, &format!("t{number}"), &content(number + round, 1 << 20));
        }
        for number in 0..40 {
            fs.unlink(&caller(6), ROOT, format!("t{number}").as_bytes()).unwrap();
        }
        fs.syncfs(&caller(6)).unwrap();
        while fs.step(&caller(6), 1000).unwrap() || fs.store().step(true).unwrap() {}
    }
    let after: Vec<String> = kept.iter().map(|inode| fact(&fs, *inode, "where")).collect();
    assert_eq!(before, after);
    assert!(before.iter().collect::<BTreeSet<_>>().len() == 3);
}

#[test]
fn a_full_home_gives_way_and_reconciling_brings_the_file_together_again() {
    let (_rig, fs) = Rig::new(3, 64 << 20);
    set(&fs, ROOT, "class", "scratch");
    // Larger than any device: room comes before isolation.
    let large = make(&fs, ROOT, "large", &content(1, 80 << 20));
    fs.syncfs(&caller(3)).unwrap();
    assert!(fact(&fs, large, "where").contains(' '), "80 MiB do not fit on a device of 64 MiB");
    assert_eq!(read(&fs, large, 79 << 20, 1 << 20).unwrap(), content(1, 80 << 20)[79 << 20..]);
    fs.fallocate(&caller(4), large, 0, 60 << 20, stere_naming::PUNCH_HOLE | stere_naming::KEEP_SIZE).unwrap();
    while fs.step(&caller(6), 1000).unwrap() || fs.store().step(true).unwrap() {}
    fs.reconciler().reconcile(&caller(5), large).unwrap();
    reconcile(&fs);
    assert!(!fact(&fs, large, "where").contains(' '), "20 MiB fit: {}", fact(&fs, large, "where"));
    assert_eq!(read(&fs, large, 61 << 20, 4 << 20).unwrap(), content(1, 80 << 20)[61 << 20..65 << 20]);
}

#[test]
fn beyond_what_is_borne_exactly_the_named_ranges_fail_and_names_stay() {
    for gone in [&[1u16][..], &[0, 2], &[1, 3]] {
        lose(gone);
    }
}

/// A pool of four devices loses some of them.
fn lose(gone: &[u16]) {
    let (rig, fs) = Rig::new(4, DEVICE_BYTES);
    let mut files: Vec<(u64, String, Vec<u8>)> = Vec::new();
    for (directory, settings) in
        [("single", "class=scratch"), ("two", "copies=2"), ("stripes", "parity=2+1"), ("safe", "copies=3")]
    {
        let made = fs.mkdir(&caller(2), ROOT, directory.as_bytes(), 0o755).unwrap().inode;
        let (key, value) = settings.split_once('=').unwrap();
        set(&fs, made, key, value);
        for number in 0..24 {
            let bytes = content(number, if number % 8 == 0 { 400_000 } else { 33_000 });
            let inode = make(&fs, made, &format!("f{number}"), &bytes);
            files.push((inode, format!("/{directory}/f{number}"), bytes));
        }
    }
    fs.syncfs(&caller(3)).unwrap();
    let foretold = lost(&fs, gone);
    fs.store().close().unwrap();
    drop(fs);
    let fs = rig.open_without(gone);
    assert_eq!(lost(&fs, &[]), foretold, "what is lost now is what was foretold");
    let told: BTreeMap<Vec<u8>, LostFile> = lost(&fs, &[]).into_iter().map(|file| (file.path.clone(), file)).collect();
    for (inode, path, bytes) in &files {
        let file = told.get(path.as_bytes());
        assert!(fs.lookup(&caller(4), ROOT, path[1..].split('/').next().unwrap().as_bytes()).is_ok());
        let mut lost_bytes = 0;
        for (block, expected) in bytes.chunks(4096).enumerate() {
            let start = block as u64 * 4096;
            let is_told = file.is_some_and(|file| {
                file.ranges.iter().any(|range| range.start <= start && start + expected.len() as u64 <= range.end)
            });
            match read(&fs, *inode, start, expected.len()) {
                Ok(found) => {
                    assert!(found == expected, "{path} has wrong bytes at {start}");
                    assert!(!is_told, "{path} is readable at {start} though it was named as lost");
                }
                Err(error) => {
                    assert_eq!(error.errno(), libc::EIO, "{path} at {start}: {error}");
                    assert!(is_told, "{path} fails at {start} and is not named, without devices {gone:?}");
                    lost_bytes += expected.len() as u64;
                }
            }
        }
        assert_eq!(file.map_or(0, |file| file.lost_bytes), lost_bytes, "{path}");
        assert_eq!(file.map_or(bytes.len() as u64, |file| file.size_bytes), bytes.len() as u64);
        if path.starts_with("/safe") || (gone.len() == 1 && !path.starts_with("/single")) {
            assert_eq!(file, None);
        }
    }
    let names = told.keys().filter(|path| path.starts_with(b"/single")).count();
    // A quarter of the unreplicated files for each device.
    assert_eq!(names, 6 * gone.len());
}

#[test]
fn a_file_with_two_names_is_told_by_both_and_counted_once() {
    let (_rig, fs) = Rig::new(1, DEVICE_BYTES);
    let directory = fs.mkdir(&caller(2), ROOT, b"d", 0o755).unwrap().inode;
    let inode = make(&fs, directory, "first", &content(1, 10_000));
    fs.link(&caller(2), inode, ROOT, b"second").unwrap();
    fs.syncfs(&caller(3)).unwrap();
    let files = lost(&fs, &[0]);
    let told: Vec<(&[u8], bool)> = files.iter().map(|file| (&*file.path, file.is_repeated)).collect();
    assert_eq!(told, [(&b"/d/first"[..], false), (b"/second", true)]);
    assert_eq!(files[0].lost_bytes, 10_000);
    assert!(files[0].ranges.iter().eq([&(0..10_000)]));
    assert!(fs.store().losses.loss(&|_| true).is_metadata_lost);
    assert!(lost(&fs, &[]).is_empty());
}
