//! Changing the redundancy of files that exist: content stays, protection never falls below the lesser of old and new, and a
//! crash at any point leaves work that goes on by itself (P-18).

use crate::support;

use std::collections::BTreeSet;

use stere_naming::{FileSystem, Io, ROOT, SetMode};
use support::edits::fact;
use support::files::{assert_clean, check, make};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;

fn content(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at / 512 * 7 + at + number * 31) as u8).collect()
}

fn set(fs: &FileSystem, inode: u64, settings: &str) {
    for setting in settings.split(' ') {
        let (key, value) = setting.split_once('=').unwrap();
        let name = format!("user.stere.{key}");
        fs.setxattr(&caller(3), inode, name.as_bytes(), value.as_bytes(), SetMode::Any, false).unwrap();
    }
}

/// Removes what was set and sets this.
fn set_only(fs: &FileSystem, inode: u64, settings: &str) {
    for key in ["class", "copies", "parity"] {
        drop(fs.removexattr(&caller(3), inode, format!("user.stere.{key}").as_bytes()));
    }
    set(fs, inode, settings);
}

/// Files of several shapes: small, large, with holes, shared with another one.
fn make_files(fs: &FileSystem, directory: u64) -> Vec<(u64, Vec<u8>)> {
    let mut files = Vec::new();
    for number in 0..12 {
        let bytes = content(number, [3000, 40_000, 700_000][number as usize % 3]);
        files.push((make(fs, directory, &format!("f{number}"), &bytes), bytes));
    }
    let (original, bytes) = files[2].clone();
    let copy = make(fs, directory, "reflink", b"");
    assert_eq!(fs.copy_range(&caller(3), original, 0, copy, 0, bytes.len() as u64).unwrap(), bytes.len() as u64);
    files.push((copy, bytes));
    let holed = files[5].0;
    fs.fallocate(&caller(3), holed, 40_960, 200_704, stere_naming::PUNCH_HOLE | stere_naming::KEEP_SIZE).unwrap();
    files[5].1[40_960..40_960 + 200_704].fill(0);
    fs.syncfs(&caller(3)).unwrap();
    files
}

#[test]
fn files_go_from_copies_to_parity_and_back_and_nothing_else_changes() {
    let (rig, fs) = Rig::new(5, DEVICE_BYTES);
    let directory = fs.mkdir(&caller(2), ROOT, b"d", 0o755).unwrap().inode;
    let beside = make(&fs, ROOT, "beside", &content(99, 50_000));
    let files = make_files(&fs, directory);
    let mut fs = fs;
    for (settings, survives) in [
        ("parity=2+1", "1"),
        ("parity=3+2", "2"),
        ("copies=2", "1"),
        ("copies=4", "3"),
        ("class=scratch", "0"),
        ("parity=4+1", "1"),
        ("copies=1", "0"),
        ("class=normal", "1"),
    ] {
        set_only(&fs, directory, settings);
        let pending = files.iter().filter(|(inode, _)| fact(&fs, *inode, "state").starts_with("pending")).count();
        // Two files share blobs: they are content with blobs that survive as much as each of them asks for.
        assert!(pending >= files.len() - 2, "{settings}: {pending}");
        reconcile(&fs);
        for (inode, bytes) in &files {
            assert_eq!(fact(&fs, *inode, "survives"), survives, "{settings}");
            assert_eq!(fact(&fs, *inode, "state"), "compliant", "{settings}");
            check(&fs, *inode, bytes);
        }
        assert_eq!(fact(&fs, beside, "survives"), "1");
        let moved = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes;
        fs.reconciler().reconcile(&caller(4), directory).unwrap();
        reconcile(&fs);
        assert_eq!(
            fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes,
            moved,
            "done is done: {settings}"
        );
        fs = rig.reopen(fs, true);
        assert!(fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().pending.is_empty());
        assert_clean(&fs);
    }
    while fs.store().step(true).unwrap() {}
    // What the conversions left behind is free again.
    let live = fs.store().space().statistics(stere_format::Scheme { data: 1, parity: 1 }).live_raw_bytes;
    assert!(live < 16 << 20, "{live} bytes");
}

/// The least number of losses that every file survives, by trying: no file may be named as lost.
fn assert_survives_one(fs: &FileSystem, devices: u16) {
    for gone in 0..devices {
        let loss = fs.store().losses.loss(&|device| device == gone);
        assert!(loss.is_nothing(), "content is lost without device {gone}");
    }
}

#[test]
fn a_crash_at_any_point_keeps_content_and_protection_and_the_work_goes_on() {
    for seed in 0..24u64 {
        let (rig, fs) = Rig::new(4, DEVICE_BYTES);
        let directory = fs.mkdir(&caller(2), ROOT, b"d", 0o755).unwrap().inode;
        let (before, after) =
            [("copies=2", "parity=2+1"), ("parity=3+1", "copies=2"), ("copies=2", "copies=3")][seed as usize % 3];
        set(&fs, directory, before);
        let files = make_files(&fs, directory);
        reconcile(&fs);
        set_only(&fs, directory, after);
        fs.syncfs(&caller(3)).unwrap();
        let mut fs = fs;
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..4 {
            for _ in 0..next(6) {
                fs.reconciler().reconcile_step(&caller(7), 1 + next(600_000)).unwrap();
                match next(4) {
                    0 => fs.store().commit(Io::BLOCKING).unwrap(),
                    1 => fs.store().checkpoint().unwrap(),
                    _ => {}
                }
            }
            let pattern = next(u64::MAX >> 33);
            fs = rig.crash(fs, |write| (pattern >> (write % 31)) & 1 == 1);
            for (inode, bytes) in &files {
                check(&fs, *inode, bytes);
            }
            assert_survives_one(&fs, 4);
            assert_clean(&fs);
        }
        // Nobody asks for it again.
        reconcile(&fs);
        for (inode, bytes) in &files {
            assert_eq!(fact(&fs, *inode, "state"), "compliant", "seed {seed}");
            check(&fs, *inode, bytes);
        }
        assert!(fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().pending.is_empty());
        assert_survives_one(&fs, 4);
        assert_clean(&fs);
    }
}

#[test]
fn who_shares_blobs_gets_the_best_that_one_asks_for_and_they_do_not_move_for_ever() {
    let (_rig, fs) = Rig::new(4, DEVICE_BYTES);
    let bytes = content(1, 300_000);
    let (one, other) = (make(&fs, ROOT, "one", &bytes), make(&fs, ROOT, "other", b""));
    fs.copy_range(&caller(3), one, 0, other, 0, bytes.len() as u64).unwrap();
    set(&fs, one, "copies=3");
    set(&fs, other, "parity=2+1");
    reconcile(&fs);
    assert_eq!((fact(&fs, one, "survives"), fact(&fs, other, "survives")), ("2".into(), "2".into()));
    assert_eq!((fact(&fs, one, "state"), fact(&fs, other, "state")), ("compliant".into(), "compliant".into()));
    let moved = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes;
    for _ in 0..3 {
        fs.reconciler().reconcile(&caller(4), ROOT).unwrap();
        reconcile(&fs);
    }
    assert_eq!(fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes, moved);
    // When both agree the blobs follow, even to less.
    set_only(&fs, one, "parity=2+1");
    fs.reconciler().reconcile(&caller(4), ROOT).unwrap();
    reconcile(&fs);
    assert_eq!((fact(&fs, one, "survives"), fact(&fs, other, "survives")), ("1".into(), "1".into()));
    check(&fs, other, &bytes);
    assert_clean(&fs);
}

#[test]
fn a_policy_that_was_set_is_work_that_survives_a_crash_and_can_be_paused() {
    let (rig, fs) = Rig::new(3, DEVICE_BYTES);
    let directory = fs.mkdir(&caller(2), ROOT, b"sub", 0o755).unwrap().inode;
    let deeper = fs.mkdir(&caller(2), directory, b"deeper", 0o755).unwrap().inode;
    let file = make(&fs, deeper, "file", &content(5, 200_000));
    set(&fs, deeper, "copies=3");
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    let status = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap();
    assert_eq!(status.pending, [b"/sub/deeper".to_vec()]);
    fs.reconciler().pause_reconcile(true);
    assert!(!fs.reconciler().reconcile_step(&caller(7), 1 << 20).unwrap());
    assert_eq!(fact(&fs, file, "survives"), "1");
    assert!(fact(&fs, file, "state").starts_with("pending 200"), "{}", fact(&fs, file, "state"));
    fs.reconciler().pause_reconcile(false);
    reconcile(&fs);
    assert_eq!(fact(&fs, file, "survives"), "2");
    assert_eq!(fact(&fs, file, "source.copies"), "inherited from /sub/deeper");
    assert_eq!(fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().pending, Vec::<Vec<u8>>::new());
}

#[test]
fn what_is_moved_to_a_directory_with_another_policy_follows_it() {
    let (rig, fs) = Rig::new(3, DEVICE_BYTES);
    let [one, other, third] =
        ["one", "other", "third"].map(|name| fs.mkdir(&caller(2), ROOT, name.as_bytes(), 0o755).unwrap().inode);
    set(&fs, one, "copies=2");
    set(&fs, other, "copies=3");
    set(&fs, third, "copies=2");
    reconcile(&fs);
    let folder = fs.mkdir(&caller(2), one, b"folder", 0o755).unwrap().inode;
    let (deep, file) = (make(&fs, folder, "deep", &content(1, 50_000)), make(&fs, one, "file", &content(2, 50_000)));
    fs.syncfs(&caller(3)).unwrap();
    // Alike policies make no work.
    fs.rename(&caller(4), one, b"file", third, b"file", 0).unwrap();
    assert_eq!(fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().pending, Vec::<Vec<u8>>::new());
    fs.rename(&caller(4), one, b"folder", other, b"moved", 0).unwrap();
    fs.rename(&caller(4), third, b"file", other, b"file", 0).unwrap();
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    let mut pending = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().pending;
    pending.sort();
    assert_eq!(pending, [b"/other/file".to_vec(), b"/other/moved".to_vec()]);
    reconcile(&fs);
    assert_eq!((fact(&fs, deep, "survives"), fact(&fs, file, "survives")), ("2".into(), "2".into()));
    check(&fs, deep, &content(1, 50_000));
}

#[test]
fn writers_and_readers_go_on_beside_it() {
    let (_rig, fs) = Rig::new(4, DEVICE_BYTES);
    let files: Vec<(u64, Vec<u8>)> = (0..20)
        .map(|number| content(number, 200_000))
        .map(|bytes| (make(&fs, ROOT, &format!("f{}", bytes[0]), &bytes), bytes))
        .collect();
    fs.syncfs(&caller(3)).unwrap();
    set(&fs, ROOT, "parity=2+1");
    let mut files = files;
    let mut turn = 0usize;
    while fs.reconciler().reconcile_step(&caller(7), 100_000).unwrap() {
        let index = turn * 7 % files.len();
        let (inode, bytes) = &mut files[index];
        let at = turn * 4093 % 190_000;
        let new = content(turn as u64 + 500, 5000);
        fs.write(&caller(8), *inode, at as u64, &new, false).unwrap();
        bytes[at..at + 5000].copy_from_slice(&new);
        if turn % 3 == 0 {
            fs.fsync(&caller(8), *inode, false).unwrap();
        }
        check(&fs, *inode, bytes);
        turn += 1;
    }
    fs.syncfs(&caller(9)).unwrap();
    assert!(turn > 10, "the work was done in {turn} steps");
    let states: BTreeSet<String> = files.iter().map(|(inode, _)| fact(&fs, *inode, "state")).collect();
    assert_eq!(states, BTreeSet::from(["compliant".to_owned()]));
    files.iter().for_each(|(inode, bytes)| check(&fs, *inode, bytes));
    assert_clean(&fs);
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// One change of a file, and what it holds then.
fn change_something(fs: &FileSystem, files: &mut [(u64, Vec<u8>)], random: &mut Random) {
    let index = random.below(files.len() as u64) as usize;
    let other = random.below(files.len() as u64) as usize;
    let (inode, length) = (files[index].0, files[index].1.len());
    match random.below(5) {
        0 | 1 => {
            let at = random.below(length as u64 + 1) as usize;
            let new = content(random.below(1000), 1 + random.below(150_000) as usize);
            fs.write(&caller(8), inode, at as u64, &new, false).unwrap();
            let bytes = &mut files[index].1;
            bytes.resize(length.max(at + new.len()), 0);
            bytes[at..at + new.len()].copy_from_slice(&new);
        }
        2 => {
            let (at, hole) = (random.below(40) * 4096, (1 + random.below(20)) * 4096);
            let mode = stere_naming::PUNCH_HOLE | stere_naming::KEEP_SIZE;
            fs.fallocate(&caller(8), inode, at, hole, mode).unwrap();
            let end = ((at + hole) as usize).min(length);
            files[index].1[(at as usize).min(end)..end].fill(0);
        }
        3 if index != other => {
            let from = random.below(files[other].1.len() as u64) / 4096 * 4096;
            let wanted = 1 + random.below(300_000);
            let copied = fs.copy_range(&caller(8), files[other].0, from, inode, from, wanted).unwrap() as usize;
            let (from, piece) = (from as usize, files[other].1[from as usize..from as usize + copied].to_vec());
            let bytes = &mut files[index].1;
            bytes.resize(length.max(from + copied), 0);
            bytes[from..from + copied].copy_from_slice(&piece);
        }
        _ => {
            let settings = ["copies=1", "copies=2", "copies=3", "parity=2+1", "parity=3+1", "class=scratch"];
            set_only(fs, inode, settings[random.below(6) as usize]);
        }
    }
}

#[test]
fn changes_sharing_conversions_and_crashes_in_any_order() {
    for seed in 0..40u64 {
        let (rig, mut fs) = Rig::new(4, DEVICE_BYTES);
        let mut files: Vec<(u64, Vec<u8>)> = Vec::new();
        for number in 0..6 {
            let bytes = content(number, [9000, 140_000, 400_000][number as usize % 3]);
            files.push((make(&fs, ROOT, &format!("f{number}"), &bytes), bytes));
        }
        let mut random = Random(seed * 77 + 5);
        for _ in 0..25 {
            for _ in 0..1 + random.below(3) {
                change_something(&fs, &mut files, &mut random);
            }
            // From here on everything is known to be durable.
            fs.syncfs(&caller(9)).unwrap();
            for _ in 0..random.below(5) {
                fs.reconciler().reconcile_step(&caller(7), 1 + random.below(200_000)).unwrap();
                match random.below(6) {
                    0 => fs.store().commit(Io::BLOCKING).unwrap(),
                    1 => fs.store().checkpoint().unwrap(),
                    2 => drop(fs.store().step(true).unwrap()),
                    _ => {}
                }
            }
            if random.below(3) == 0 {
                let pattern = random.below(u64::MAX >> 33);
                fs = rig.crash(fs, |write| (pattern >> (write % 31)) & 1 == 1);
            }
            files.iter().for_each(|(inode, bytes)| check(&fs, *inode, bytes));
        }
        fs = rig.reopen(fs, true);
        reconcile(&fs);
        for (inode, bytes) in &files {
            check(&fs, *inode, bytes);
            assert_eq!(fact(&fs, *inode, "state"), "compliant", "seed {seed}");
        }
        assert_clean(&fs);
    }
}
