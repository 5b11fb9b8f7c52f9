//! Versions: what files held before they were changed, replaced or removed can be read, restored, and goes when it is to (P-80, P-81, P-82).

use crate::support;

use std::ops::ControlFlow;

use stere_format::Scheme;
use stere_naming::{Caller, Error, FileSystem, OpenFlags, RENAME_EXCHANGE, ROOT, SetAttributes, SetMode, Timestamp};
use support::files::assert_clean;
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;
const DAY: i64 = 86_400;
/// 2027-01-01 in seconds since 1970.
const NOW: i64 = 1_798_761_600;
const WRITE: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: false, read: false };
const EMPTY: OpenFlags = OpenFlags { write: true, truncate: true, exclusive: false, read: false };

fn at(seconds: i64) -> Caller<'static> {
    Caller { now: Timestamp { seconds, nanoseconds: 5 }, ..caller(seconds) }
}

fn code<T: std::fmt::Debug>(outcome: Result<T, Error>) -> i32 {
    outcome.map_or_else(|error| error.errno(), |_| 0)
}

fn set(fs: &FileSystem, inode: u64, value: &str) {
    fs.setxattr(&at(NOW), inode, b"user.stere.versions", value.as_bytes(), SetMode::Any, false).unwrap();
}

fn mkdir(fs: &FileSystem, parent: u64, name: &str) -> u64 {
    fs.mkdir(&at(NOW), parent, name.as_bytes(), 0o755).unwrap().inode
}

fn top(fs: &FileSystem, value: &str) -> u64 {
    let top = mkdir(fs, ROOT, "top");
    set(fs, top, value);
    top
}

fn find(fs: &FileSystem, directory: u64, name: &str) -> Option<u64> {
    match fs.lookup(&at(NOW), directory, name.as_bytes()) {
        Ok(attributes) => Some(attributes.inode),
        Err(Error::NotFound) => None,
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Makes a file, or gives it other content: opened, emptied, written, closed.
fn put(fs: &FileSystem, seconds: i64, directory: u64, name: &str, bytes: &[u8]) -> u64 {
    let who = at(seconds);
    let (attributes, handle) = fs.create(&who, directory, name.as_bytes(), 0o644, EMPTY).unwrap();
    if !bytes.is_empty() {
        assert_eq!(fs.write(&who, attributes.inode, 0, bytes, false).unwrap(), bytes.len());
    }
    fs.release(&who, attributes.inode, handle).unwrap();
    attributes.inode
}

fn read(fs: &FileSystem, inode: u64) -> Vec<u8> {
    let size = fs.getattr(&at(NOW), inode).unwrap().size as usize;
    let mut bytes = vec![0; size + 1];
    assert_eq!(fs.read(&at(NOW), inode, 0, &mut bytes).unwrap(), size);
    bytes.truncate(size);
    bytes
}

fn list(fs: &FileSystem, directory: u64) -> Vec<(String, u64)> {
    let mut names = Vec::new();
    fs.readdir(&at(NOW), directory, 0, false, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.inode));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

/// What the versions of a name hold, the oldest first.
fn versions(fs: &FileSystem, directory: u64, name: &str) -> Vec<Vec<u8>> {
    let Some(shelf) = find(fs, directory, ".versions") else { return Vec::new() };
    let Some(drawer) = find(fs, shelf, name) else { return Vec::new() };
    let mut found = list(fs, drawer);
    assert!(found.is_sorted(), "moments are sorted as they were made: {found:?}");
    found.retain(|(_, inode)| fs.getattr(&at(NOW), *inode).unwrap().mode & libc::S_IFMT == libc::S_IFREG);
    found.iter().map(|(_, inode)| read(fs, *inode)).collect()
}

fn expire(fs: &FileSystem, seconds: i64) {
    while fs.step(&at(seconds), 16).unwrap() {}
}

fn text(of: &str, length: usize) -> Vec<u8> {
    of.bytes().cycle().take(length).collect()
}

/// P-80: each way to lose what a file held leaves it as a version, the file's own content and the listing as they are without.
#[test]
fn what_is_changed_replaced_or_removed_stays_as_a_version() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = top(&fs, "10,30d");
    let (one, two, three) = (text("one", 300_000), text("two", 5), text("three", 70_000));
    put(&fs, NOW, top, "a", &one);
    assert_eq!(find(&fs, top, ".versions"), None, "a file that was only made has none");
    put(&fs, NOW + 1, top, "a", &two);
    // Written in place, twice in a session; then cut without being open.
    let a = find(&fs, top, "a").unwrap();
    let handle = fs.open(&at(NOW + 2), a, WRITE).unwrap();
    fs.write(&at(NOW + 2), a, 1, b"W", false).unwrap();
    fs.write(&at(NOW + 3), a, 2, b"O", false).unwrap();
    fs.release(&at(NOW + 3), a, handle).unwrap();
    fs.setattr(&at(NOW + 4), a, &SetAttributes { size: Some(2), ..SetAttributes::default() }).unwrap();
    // Replaced by another, and that is removed.
    put(&fs, NOW + 5, top, "new", &three);
    fs.rename(&at(NOW + 6), top, b"new", top, b"a", 0).unwrap();
    assert_eq!(read(&fs, find(&fs, top, "a").unwrap()), three);
    fs.unlink(&at(NOW + 7), top, b"a").unwrap();
    let all = [one, two, b"tWO".to_vec(), b"tW".to_vec(), three].map(|bytes| bytes[..].to_vec());
    let wanted = [&all[0][..], b"twotw", b"tWOtw", b"tW", &all[4]];
    assert_eq!(versions(&fs, top, "a"), wanted);
    assert_eq!(list(&fs, top), [], "the directory of versions is not listed");
    let shown = fs.getattr(&at(NOW), top).unwrap();
    assert_eq!((shown.size, shown.nlink), (0, 2), "nor counted");
    assert_clean(&fs);
    fs.syncfs(&at(NOW + 8)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_eq!(versions(&fs, top, "a"), wanted);
    assert_clean(&fs);
    let shelf = find(&fs, top, ".versions").unwrap();
    let drawer = find(&fs, shelf, "a").unwrap();
    assert_eq!(list(&fs, drawer)[0].0, "2027-01-01_00-00-01.000000005");
}

/// P-80: nobody changes a version, whoever asks.
#[test]
fn versions_are_read_only() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = top(&fs, "10");
    put(&fs, NOW, top, "a", b"one");
    put(&fs, NOW + 1, top, "a", b"two");
    let shelf = find(&fs, top, ".versions").unwrap();
    let drawer = find(&fs, shelf, "a").unwrap();
    let (moment, version) = list(&fs, drawer).remove(0);
    let (root, moment) = (at(NOW + 2), moment.as_bytes());
    let size = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let mode = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    let attempts = [
        ("open", code(fs.open(&root, version, WRITE))),
        ("empty", code(fs.open(&root, version, EMPTY))),
        ("cut", code(fs.setattr(&root, version, &size))),
        ("mode", code(fs.setattr(&root, version, &mode))),
        ("mode of the directory", code(fs.setattr(&root, drawer, &mode))),
        ("attribute", code(fs.setxattr(&root, version, b"user.a", b"", SetMode::Any, false))),
        ("policy", code(fs.setxattr(&root, shelf, b"user.stere.copies", b"2", SetMode::Any, false))),
        ("unlink", code(fs.unlink(&root, drawer, moment))),
        ("rmdir", code(fs.rmdir(&root, shelf, b"a"))),
        ("rmdir of all", code(fs.rmdir(&root, top, b".versions"))),
        ("link", code(fs.link(&root, version, top, b"b"))),
        ("link into", code(fs.link(&root, find(&fs, top, "a").unwrap(), drawer, b"b"))),
        ("make", code(fs.create(&root, drawer, b"b", 0o644, WRITE))),
        ("mkdir", code(fs.mkdir(&root, shelf, b"b", 0o755))),
        ("rename out", code(fs.rename(&root, drawer, moment, top, b"b", 0))),
        ("rename away", code(fs.rename(&root, top, b".versions", top, b"b", 0))),
        ("rename into", code(fs.rename(&root, top, b"a", drawer, b"b", 0))),
        ("rename over", code(fs.rename(&root, top, b"a", drawer, moment, 0))),
        ("exchange", code(fs.rename(&root, top, b"a", top, b".versions", RENAME_EXCHANGE))),
    ];
    for (attempt, code) in attempts {
        assert_eq!(code, libc::EROFS, "{attempt}");
    }
    assert_eq!(versions(&fs, top, "a"), [b"one"]);
    // The way back is to copy it.
    let a = find(&fs, top, "a").unwrap();
    let handle = fs.open(&root, a, EMPTY).unwrap();
    assert_eq!(fs.copy_range(&root, version, 0, a, 0, 100).unwrap(), 3);
    fs.release(&root, a, handle).unwrap();
    assert_eq!(read(&fs, a), b"one");
    assert_eq!(versions(&fs, top, "a"), [b"one", b"two"]);
    assert_clean(&fs);
}

/// P-81: a version goes when it is beyond its age or its number, not before; then nothing is left of it, and its room comes back.
#[test]
fn versions_go_by_age_and_by_number() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = top(&fs, "3,10d");
    let live = |fs: &FileSystem| fs.store().space().statistics(Scheme { data: 1, parity: 1 }).live_raw_bytes;
    let before = live(&fs);
    for day in 0..5 {
        put(&fs, NOW + day * DAY, top, "a", &vec![day as u8; 1 << 20]);
    }
    let held = |fs: &FileSystem| {
        let all = versions(fs, top, "a");
        assert!(all.iter().all(|bytes| *bytes == vec![bytes[0]; 1 << 20]));
        all.iter().map(|bytes| bytes[0]).collect::<Vec<_>>()
    };
    assert_eq!(held(&fs), [0, 1, 2, 3]);
    expire(&fs, NOW + 4 * DAY);
    assert_eq!(held(&fs), [1, 2, 3], "the oldest goes");
    // That of day 1 was held until day 2.
    expire(&fs, NOW + 12 * DAY - 1);
    assert_eq!(held(&fs), [1, 2, 3]);
    expire(&fs, NOW + 12 * DAY);
    assert_eq!(held(&fs), [2, 3]);
    fs.syncfs(&at(NOW)).unwrap();
    let fs = rig.reopen(fs, true);
    // What is removed stays as long, and is counted with the others.
    fs.unlink(&at(NOW + 13 * DAY), top, b"a").unwrap();
    assert_eq!(held(&fs), [2, 3, 4]);
    expire(&fs, NOW + 23 * DAY - 1);
    assert_eq!(held(&fs), [4]);
    assert_clean(&fs);
    expire(&fs, NOW + 23 * DAY);
    assert_eq!(find(&fs, top, ".versions"), None);
    assert_clean(&fs);
    fs.syncfs(&at(NOW)).unwrap();
    let left = live(&fs).cast_signed() - before.cast_signed();
    assert!(left < 256 << 10, "{left} bytes are left of 6 MiB on two devices");
    fs.rmdir(&at(NOW), ROOT, b"top").unwrap();
}

/// P-81: what is said later holds for versions that exist; where nothing is said any more, they stay as they were to.
#[test]
fn a_changed_policy_concerns_what_exists() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = top(&fs, "10");
    for second in 0..6 {
        put(&fs, NOW + second, top, "a", &[second as u8; 10]);
        put(&fs, NOW + second, top, "b", &[second as u8; 10]);
    }
    let count = |name| versions(&fs, top, name).len();
    let follow = |seconds| {
        reconcile(&fs);
        expire(&fs, seconds);
    };
    set(&fs, top, "4");
    follow(NOW + 10);
    assert_eq!((count("a"), count("b")), (4, 4));
    set(&fs, find(&fs, top, "a").unwrap(), "2");
    follow(NOW + 11);
    assert_eq!((count("a"), count("b")), (2, 4));
    // They begin to age.
    set(&fs, top, "10d");
    follow(NOW + 10 * DAY);
    assert_eq!((count("a"), count("b")), (2, 4));
    follow(NOW + 10 * DAY + 4);
    assert_eq!((count("a"), count("b")), (2, 1), "a says for itself how many, and nothing of days");
    fs.removexattr(&at(NOW), top, b"user.stere.versions").unwrap();
    follow(NOW + 10 * DAY + 4);
    assert_eq!((count("a"), count("b")), (2, 1));
    put(&fs, NOW + 11 * DAY, top, "b", b"other");
    assert_eq!(count("b"), 1, "nobody asks for versions now");
    set(&fs, top, "no");
    set(&fs, find(&fs, top, "a").unwrap(), "");
    follow(NOW + 11 * DAY);
    assert_eq!(find(&fs, top, ".versions"), None);
    assert_clean(&fs);
}

/// P-80: a tree that is removed stays below the nearest directory that is left, and goes with its age.
#[test]
fn removed_directories_leave_their_versions_above() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = top(&fs, "30d");
    for round in 0..2 {
        let directory = mkdir(&fs, top, "d");
        let below = mkdir(&fs, directory, "e");
        put(&fs, NOW, below, "f", &[round; 9]);
        put(&fs, NOW, directory, "g", &[round + 10; 9]);
        fs.unlink(&at(NOW + 1), below, b"f").unwrap();
        fs.rmdir(&at(NOW + 2), directory, b"e").unwrap();
        fs.unlink(&at(NOW + 3), directory, b"g").unwrap();
        fs.rmdir(&at(NOW + 4), top, b"d").unwrap();
        assert_eq!(find(&fs, top, "d"), None);
    }
    fs.syncfs(&at(NOW)).unwrap();
    assert_clean(&fs);
    let fs = rig.reopen(fs, true);
    let shelf = find(&fs, top, ".versions").unwrap();
    let removed = list(&fs, find(&fs, shelf, "d").unwrap());
    assert_eq!(removed.len(), 2, "{removed:?}");
    for (round, (_, moment)) in (0..).zip(&removed) {
        let one = |directory, name| {
            let found = list(&fs, find(&fs, directory, name).unwrap());
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].1
        };
        assert_eq!(read(&fs, one(*moment, "g")), [round + 10; 9]);
        assert_eq!(read(&fs, one(one(*moment, "e"), "f")), [round; 9]);
    }
    // A directory that is renamed over, too.
    let directory = mkdir(&fs, top, "d");
    put(&fs, NOW, directory, "h", b"h");
    fs.unlink(&at(NOW + 5), directory, b"h").unwrap();
    mkdir(&fs, top, "other");
    fs.rename(&at(NOW + 6), top, b"other", top, b"d", 0).unwrap();
    assert_eq!(list(&fs, find(&fs, shelf, "d").unwrap()).len(), 3);
    assert_clean(&fs);
    expire(&fs, NOW + 31 * DAY);
    assert_eq!(find(&fs, top, ".versions"), None);
    assert_clean(&fs);
}

/// P-80: who has a file open when it is removed goes on as POSIX says; what the file holds at the end is the version.
#[test]
fn a_file_that_is_open_when_it_is_removed_ends_as_a_version() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    fs.hold_removed();
    let top = top(&fs, "10");
    let who = at(NOW + 1);
    let (made, handle) = fs.create(&who, top, b"a", 0o644, WRITE).unwrap();
    fs.write(&who, made.inode, 0, b"before", false).unwrap();
    fs.unlink(&who, top, b"a").unwrap();
    assert_eq!(fs.getattr(&who, made.inode).unwrap().nlink, 0, "removed, for whoever has it open");
    fs.write(&who, made.inode, 0, b"behind, and more", false).unwrap();
    fs.setattr(&who, made.inode, &SetAttributes { size: Some(6), ..SetAttributes::default() }).unwrap();
    assert_eq!(versions(&fs, top, "a"), [b"behind"]);
    fs.release(&who, made.inode, handle).unwrap();
    fs.forget(&who, made.inode).unwrap();
    assert_eq!(fs.getattr(&who, made.inode).unwrap().nlink, 1, "a version like others");
    assert_eq!(code(fs.setattr(&who, made.inode, &SetAttributes { size: Some(0), ..Default::default() })), libc::EROFS);
    // What never held anything while it had a name is nobody's version.
    let (scratch, handle) = fs.create(&who, top, b"scratch", 0o644, WRITE).unwrap();
    fs.unlink(&who, top, b"scratch").unwrap();
    fs.write(&who, scratch.inode, 0, b"scratch", false).unwrap();
    fs.release(&who, scratch.inode, handle).unwrap();
    fs.forget(&who, scratch.inode).unwrap();
    assert_eq!(versions(&fs, top, "scratch"), [b""; 0]);
    assert_eq!(code(fs.getattr(&who, scratch.inode)), libc::ESTALE);
    // Nor is what has another name.
    let linked = put(&fs, NOW, top, "b", b"linked");
    fs.link(&who, linked, top, b"c").unwrap();
    fs.unlink(&who, top, b"b").unwrap();
    assert_eq!(versions(&fs, top, "b"), [b""; 0]);
    // A version that is read when its time has come is read to its end.
    let shelf = find(&fs, top, ".versions").unwrap();
    let (_, version) = list(&fs, find(&fs, shelf, "a").unwrap()).remove(0);
    let reading = fs.open(&who, version, OpenFlags::default()).unwrap();
    set(&fs, top, "no");
    reconcile(&fs);
    expire(&fs, NOW + 2);
    assert_eq!((find(&fs, top, ".versions"), read(&fs, version)), (None, b"behind".to_vec()));
    fs.release(&who, version, reading).unwrap();
    expire(&fs, NOW + 2);
    assert_eq!(code(fs.getattr(&who, version)), libc::ESTALE);
    fs.syncfs(&who).unwrap();
    assert_clean(&fs);
    assert_clean(&rig.reopen(fs, true));
}

/// P-80: a user's own `.versions` stays the user's.
#[test]
fn a_name_that_is_taken_is_left_alone() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    let own = put(&fs, NOW, top, ".versions", b"mine");
    set(&fs, top, "10");
    put(&fs, NOW, top, "a", b"one");
    put(&fs, NOW + 1, top, "a", b"two");
    put(&fs, NOW + 2, top, ".versions", b"mine too");
    assert_eq!((read(&fs, own), find(&fs, top, ".versions")), (b"mine too".to_vec(), Some(own)));
    let shelf = find(&fs, top, ".versions.stere").unwrap();
    let held = |name| read(&fs, list(&fs, find(&fs, shelf, name).unwrap())[0].1);
    assert_eq!((held("a"), held(".versions")), (b"one".to_vec(), b"mine".to_vec()));
    let names: Vec<_> = list(&fs, top).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [".versions", "a"]);
    // With both taken nothing is kept, and nothing is in the way.
    let other = mkdir(&fs, ROOT, "other");
    for name in [".versions", ".versions.stere", "a"] {
        put(&fs, NOW, other, name, b"1");
    }
    set(&fs, other, "10");
    put(&fs, NOW, other, "a", b"2");
    fs.unlink(&at(NOW), other, b"a").unwrap();
    assert_eq!(list(&fs, other).len(), 2);
    assert_clean(&fs);
}

/// P-82: of what is kept only what changed takes room, and who keeps nothing pays nothing.
#[test]
fn only_what_changed_takes_room() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = top(&fs, "100");
    let a = put(&fs, NOW, top, "a", &text("content", 8 << 20));
    fs.syncfs(&at(NOW)).unwrap();
    let before = fs.statfs().blocks_free;
    for second in 1..=16 {
        let handle = fs.open(&at(NOW + second), a, WRITE).unwrap();
        fs.write(&at(NOW + second), a, second as u64 * (128 << 10), &[second as u8; 4096], false).unwrap();
        fs.release(&at(NOW + second), a, handle).unwrap();
    }
    fs.syncfs(&at(NOW)).unwrap();
    assert_eq!(versions(&fs, top, "a").len(), 16);
    let taken = before - fs.statfs().blocks_free;
    assert!(taken < 512, "16 versions of 8 MiB with a block changed take {taken} blocks");
    assert_clean(&fs);
}

/// P-6, P-82: a pool that gets full gets room from versions, those that would go first; what is removed in a full pool is gone.
#[test]
fn versions_make_room_when_the_pool_is_full() {
    let (_rig, fs) = Rig::new(1, 64 << 20);
    let top = top(&fs, "30d");
    let mut seconds = NOW;
    let mut full = 0;
    // Several times what the pool holds goes through one name.
    for round in 0..120u8 {
        seconds += 1;
        let (made, handle) = fs.create(&at(seconds), top, b"a", 0o644, EMPTY).unwrap();
        let written = fs.write(&at(seconds), made.inode, 0, &vec![round; 1 << 20], false);
        full += u32::from(matches!(written, Err(Error::NoSpace)));
        fs.release(&at(seconds), made.inode, handle).expect("what was accepted has its room");
        expire(&fs, seconds);
        fs.syncfs(&at(seconds)).unwrap();
        while fs.store().step(true).unwrap() {}
    }
    assert_eq!(full, 0, "a mebibyte at a time never finds the pool full");
    let kept = versions(&fs, top, "a");
    assert!(kept.len() > 10, "{} versions are left", kept.len());
    let first = 119 - kept.len();
    let is_kept = |(at, bytes): (usize, &Vec<u8>)| *bytes == vec![(first + at) as u8; 1 << 20];
    assert!(kept.iter().enumerate().all(is_kept), "the newest are left");
    // Filled with what is no version, the pool gets room by removing.
    let other = mkdir(&fs, ROOT, "other");
    let mut files = 0;
    loop {
        let (made, handle) = fs.create(&at(seconds), top, format!("f{files}").as_bytes(), 0o644, WRITE).unwrap();
        let written = fs.write(&at(seconds), made.inode, 0, &[1; 1 << 20], false);
        fs.release(&at(seconds), made.inode, handle).unwrap();
        files += 1;
        expire(&fs, seconds);
        fs.syncfs(&at(seconds)).unwrap();
        while fs.store().step(true).unwrap() {}
        match written {
            Ok(_) => {}
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(find(&fs, top, ".versions"), None, "no version is left where there is no room for files");
    for file in 0..files {
        fs.unlink(&at(seconds), top, format!("f{file}").as_bytes()).unwrap();
        if file == 0 {
            assert_eq!(find(&fs, top, ".versions"), None, "what is removed from a full pool is removed");
        }
    }
    put(&fs, seconds, other, "a", &[7; 1 << 20]);
    fs.syncfs(&at(seconds)).unwrap();
    assert_clean(&fs);
}
