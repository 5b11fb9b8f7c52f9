//! Files that shall lie on some devices rather than others, or on no others (P-142, P-143): new data, what is there already, and what
//! happens when devices are labelled otherwise, full, leaving, or not there at all.

use crate::support;

use std::collections::BTreeSet;

use stere_format::{DeviceIndex, DeviceState};
use stere_naming::{Error, FileSystem, OpenFlags, ROOT, SetMode};
use stere_store::Label;
use support::edits::{fact, set};
use support::files::{assert_clean, check, directory, make, mkdir, stored_bytes};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;

fn content(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at / 512 * 7 + at + number * 31) as u8).collect()
}

fn tag(fs: &FileSystem, index: DeviceIndex, tags: &[&str]) {
    let tags = Some(tags.iter().map(|tag| (*tag).to_owned()).collect());
    fs.store().devices.label_device(index, Label { tags, ..Label::default() }).unwrap();
}

/// A pool of which the first two devices have a tag.
fn rig(sizes_bytes: &[u64]) -> (Rig, FileSystem) {
    let (rig, fs) = Rig::unlike(sizes_bytes);
    [0, 1].into_iter().for_each(|index| tag(&fs, index, &["nvme"]));
    (rig, fs)
}

fn mend(fs: &FileSystem) {
    for _ in 0..10_000 {
        if fs.store().rebuilder.mend_step(8 << 20).unwrap().is_done {
            return;
        }
    }
    panic!("mending does not end");
}

fn devices(fs: &FileSystem, inode: u64) -> BTreeSet<String> {
    fact(fs, inode, "where").split_whitespace().map(str::to_owned).collect()
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

/// What there is to be known of a file that lies as it should.
fn assert_lies(fs: &FileSystem, inode: u64, bytes: &[u8], on: &[&str]) {
    assert!(devices(fs, inode).is_subset(&names(on)), "{:?} is not on {on:?}", devices(fs, inode));
    assert_eq!(fact(fs, inode, "state"), "compliant");
    check(fs, inode, bytes);
}

/// P-142: what is written below a requirement lies there and nowhere else, with any redundancy, and says so.
#[test]
fn new_data_lies_only_where_it_must() {
    let (rig, fs) = rig(&[DEVICE_BYTES; 5]);
    let inside = directory(&fs, "inside", "only", "nvme");
    let bytes = content(1, 900_000);
    for setting in ["copies=2", "copies=1", "parity=1"] {
        let (key, value) = setting.split_once('=').unwrap();
        let below = mkdir(&fs, inside, setting);
        set(&fs, below, key, value);
        for number in 0..4 {
            let inode = make(&fs, below, &format!("f{number}"), &bytes);
            assert_lies(&fs, inode, &bytes, &["d0", "d1"]);
            assert_eq!(fact(&fs, inode, "effective.only"), "nvme");
            assert_eq!(fact(&fs, inode, "source.only"), "inherited from /inside");
        }
    }
    assert_eq!(fact(&fs, inside, "only"), "nvme");
    let beside: BTreeSet<String> =
        (0..8).flat_map(|number| devices(&fs, make(&fs, ROOT, &format!("g{number}"), &bytes))).collect();
    assert!(beside.len() > 2, "others lie anywhere: {beside:?}");
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_eq!(fact(&fs, inside, "only"), "nvme");
    assert_clean(&fs);
}

/// P-142: what exists follows a requirement, through a crash at any point, and is let go again.
#[test]
fn what_exists_follows_and_a_crash_does_not_matter() {
    let (rig, mut fs) = rig(&[DEVICE_BYTES; 4]);
    let place = mkdir(&fs, ROOT, "place");
    let files: Vec<(u64, Vec<u8>)> = (0..12)
        .map(|number| {
            let bytes = content(number, [3000, 400_000, 2_000_000][number as usize % 3]);
            (make(&fs, place, &format!("f{number}"), &bytes), bytes)
        })
        .collect();
    fs.syncfs(&caller(3)).unwrap();
    for (value, on) in [("d2,d3", ["d2", "d3"]), ("nvme", ["d0", "d1"])] {
        set(&fs, place, "only", value);
        fs.syncfs(&caller(3)).unwrap();
        for round in 0..3 {
            fs.reconciler().reconcile_step(&caller(7), 1 << 20).unwrap();
            fs = rig.crash(fs, |at| round == 1 && at % 2 == 0);
            files.iter().for_each(|(inode, bytes)| check(&fs, *inode, bytes));
        }
        reconcile(&fs);
        files.iter().for_each(|(inode, bytes)| assert_lies(&fs, *inode, bytes, &on));
    }
    // A file of its own mind, and nobody's any more.
    set(&fs, files[0].0, "only", "any");
    reconcile(&fs);
    assert_eq!(
        (fact(&fs, files[0].0, "effective.only"), fact(&fs, files[0].0, "state")),
        ("NoAttribute".into(), "compliant".into())
    );
    assert_clean(&fs);
}

/// P-142: a device that gets or loses a tag gets or loses what must lie there, chunk by chunk, in the background.
#[test]
fn what_is_labelled_otherwise_moves() {
    let (rig, fs) = rig(&[DEVICE_BYTES; 4]);
    let place = directory(&fs, "place", "only", "nvme");
    let bytes = content(5, 3_000_000);
    let file = make(&fs, place, "file", &bytes);
    fs.syncfs(&caller(3)).unwrap();
    assert_lies(&fs, file, &bytes, &["d0", "d1"]);
    tag(&fs, 2, &["fast", "nvme"]);
    tag(&fs, 0, &[]);
    assert!(fact(&fs, file, "state").starts_with("pending "), "{}", fact(&fs, file, "state"));
    mend(&fs);
    assert_lies(&fs, file, &bytes, &["d1", "d2"]);
    let more = make(&fs, place, "more", &bytes);
    assert_lies(&fs, more, &bytes, &["d1", "d2"]);
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_lies(&fs, file, &bytes, &["d1", "d2"]);
    assert_clean(&fs);
}

/// P-142: where there is no room a write is refused before anything is accepted, and nothing goes elsewhere; the pool goes on.
#[test]
fn full_means_refused_and_not_elsewhere() {
    let (_rig, fs) = rig(&[64 << 20, 64 << 20, DEVICE_BYTES, DEVICE_BYTES]);
    let place = directory(&fs, "place", "only", "nvme");
    let bytes = content(7, 1 << 20);
    let mut made: Vec<u64> = Vec::new();
    let refused = (0..200).find_map(|number| {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let name = format!("f{number}");
        let (file, handle) = fs.create(&caller(3), place, name.as_bytes(), 0o644, flags).unwrap();
        let written = fs.write(&caller(3), file.inode, 0, &bytes, false);
        fs.release(&caller(3), file.inode, handle).unwrap();
        fs.syncfs(&caller(3)).unwrap();
        written.as_ref().is_ok_and(|count| *count == bytes.len()).then(|| made.push(file.inode));
        written.err()
    });
    assert!(matches!(refused, Some(Error::NoSpace)), "{refused:?} after {}", made.len());
    assert!(made.len() > 10, "{} MiB fit", made.len());
    made.iter().for_each(|inode| assert_lies(&fs, *inode, &bytes, &["d0", "d1"]));
    let beside = make(&fs, ROOT, "beside", &bytes);
    check(&fs, beside, &bytes);
    // What is removed makes room again.
    (0..8).for_each(|number| fs.unlink(&caller(4), place, format!("f{number}").as_bytes()).unwrap());
    while fs.step(&caller(4), 100).unwrap() {}
    fs.store().checkpoint().unwrap();
    let again = make(&fs, place, "again", &bytes);
    assert_lies(&fs, again, &bytes, &["d0", "d1"]);
    assert_clean(&fs);
}

/// P-142: what cannot be is said, is refused, is not tried without end, and is done as soon as it can be.
#[test]
fn the_impossible_is_told_and_waited_for() {
    let (_rig, fs) = rig(&[DEVICE_BYTES; 3]);
    let bytes = content(9, 500_000);
    let place = mkdir(&fs, ROOT, "place");
    let file = make(&fs, place, "file", &bytes);
    set(&fs, place, "only", "tape");
    assert!(fact(&fs, file, "state").starts_with("impossible: no device has"), "{}", fact(&fs, file, "state"));
    reconcile(&fs);
    assert!(!fs.reconciler().reconcile_step(&caller(7), 1 << 20).unwrap(), "nobody tries for ever");
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (new, handle) = fs.create(&caller(3), place, b"new", 0o644, flags).unwrap();
    let refused = fs.write(&caller(3), new.inode, 0, &bytes, false);
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    fs.release(&caller(3), new.inode, handle).unwrap();
    check(&fs, file, &bytes);
    tag(&fs, 2, &["tape"]);
    fs.reconciler().pause_reconcile(false);
    reconcile(&fs);
    assert_eq!(devices(&fs, file), names(&["d2"]));
    assert_eq!(
        fact(&fs, file, "state"),
        "impossible: surviving the loss of 1 device needs 2 devices and only= names 1, so files survive the loss of 0 devices; add devices, or ask for less"
    );
    tag(&fs, 1, &["tape"]);
    fs.reconciler().reconcile(&caller(7), place).unwrap();
    reconcile(&fs);
    assert_lies(&fs, file, &bytes, &["d1", "d2"]);
    assert_clean(&fs);
}

/// P-142: a device that is emptied gives nothing to devices where it must not lie, and says so; then to one that comes to be of the place.
#[test]
fn evacuating_respects_the_requirement() {
    let (_rig, fs) = rig(&[DEVICE_BYTES; 5]);
    let place = directory(&fs, "place", "only", "nvme");
    let bytes = content(11, 2_000_000);
    let file = make(&fs, place, "file", &bytes);
    let beside = make(&fs, ROOT, "beside", &bytes);
    fs.syncfs(&caller(3)).unwrap();
    fs.store().devices.set_device_state(0, DeviceState::Leaving).unwrap();
    mend(&fs);
    assert!(fs.store().rebuilder.mend_status().impossible_chunks > 0, "{:?}", fs.store().rebuilder.mend_status());
    assert_eq!(devices(&fs, file), names(&["d0", "d1"]));
    assert!(!devices(&fs, beside).contains("d0"), "others left");
    tag(&fs, 3, &["nvme"]);
    mend(&fs);
    assert_eq!(fs.store().rebuilder.mend_status().impossible_chunks, 0);
    assert_lies(&fs, file, &bytes, &["d1", "d3"]);
    assert_clean(&fs);
}

/// P-143: a wish is followed by what is new and by what exists, as far as there is room; what finds none goes elsewhere, and comes when
/// there is some.
#[test]
fn a_wish_is_followed_as_far_as_it_can_be() {
    let (rig, fs) = rig(&[64 << 20, 64 << 20, DEVICE_BYTES, DEVICE_BYTES]);
    let place = mkdir(&fs, ROOT, "place");
    let bytes = content(13, 2 << 20);
    let old = make(&fs, place, "old", &bytes);
    set(&fs, place, "on", "nvme|fast");
    reconcile(&fs);
    assert_lies(&fs, old, &bytes, &["d0", "d1"]);
    assert_eq!(fact(&fs, old, "effective.on"), "fast,nvme");
    let mut inside = 0;
    let files: Vec<u64> = (0..30).map(|number| make(&fs, place, &format!("f{number}"), &bytes)).collect();
    fs.syncfs(&caller(3)).unwrap();
    for inode in &files {
        inside += usize::from(devices(&fs, *inode).is_subset(&names(&["d0", "d1"])));
        check(&fs, *inode, &bytes);
    }
    assert!((3..29).contains(&inside), "{inside} of 30 lie inside");
    // Too few for the redundancy: as many copies as can lie there do.
    let three = directory(&fs, "three", "on", "nvme");
    set(&fs, three, "copies", "3");
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    for number in 0..26 {
        fs.unlink(&caller(4), place, format!("f{number}").as_bytes()).unwrap();
    }
    while fs.step(&caller(4), 100).unwrap() {}
    fs.store().checkpoint().unwrap();
    mend(&fs);
    for number in 26..30 {
        let inode = fs.lookup(&caller(4), place, format!("f{number}").as_bytes()).unwrap().inode;
        assert_lies(&fs, inode, &bytes, &["d0", "d1"]);
    }
    let wide = make(&fs, three, "wide", &bytes);
    assert!(devices(&fs, wide).is_superset(&names(&["d0", "d1"])), "{:?}", devices(&fs, wide));
    assert_eq!(fact(&fs, wide, "state"), "compliant");
    assert_clean(&fs);
}

/// P-142: rules, classes and locks know both keys; words that mean nothing are refused.
#[test]
fn rules_classes_and_locks_name_devices() {
    let (_rig, fs) = rig(&[DEVICE_BYTES; 4]);
    let place = mkdir(&fs, ROOT, "place");
    fs.setxattr(
        &caller(3),
        place,
        b"user.stere.rules",
        b"*.c: on=nvme,d3, copies=2; *.o: only=d2, copies=1",
        SetMode::Any,
        false,
    )
    .unwrap();
    let bytes = content(15, 300_000);
    let (source, object) = (make(&fs, place, "a.c", &bytes), make(&fs, place, "a.o", &bytes));
    assert_eq!(
        (fact(&fs, source, "effective.on"), fact(&fs, object, "effective.only")),
        ("d3,nvme".into(), "d2".into())
    );
    assert!(
        fact(&fs, object, "source.only").starts_with("rule of /place: *.o: only=d2"),
        "{}",
        fact(&fs, object, "source.only")
    );
    assert_lies(&fs, object, &bytes, &["d2"]);
    assert_lies(&fs, source, &bytes, &["d0", "d1", "d3"]);
    fs.policy().create_class(&caller(3), "quick", &[("only".into(), "nvme".into())]).unwrap();
    let shown = fs
        .classes()
        .list_classes(stere_naming::Io::BLOCKING)
        .unwrap()
        .into_iter()
        .find(|class| class.name == "quick")
        .unwrap();
    assert_eq!(shown.settings, [("only", "nvme".to_owned())]);
    let quick = directory(&fs, "quick", "class", "quick");
    let file = make(&fs, quick, "file", &bytes);
    assert_lies(&fs, file, &bytes, &["d0", "d1"]);
    fs.setxattr(&caller(3), ROOT, b"trusted.stere.only", b"d2,d3", SetMode::Any, false).unwrap();
    reconcile(&fs);
    for inode in [source, file] {
        assert_eq!(fact(&fs, inode, "effective.only"), "d2,d3");
        assert_lies(&fs, inode, &bytes, &["d2", "d3"]);
    }
    let contradicts = fs.setxattr(&caller(3), file, b"user.stere.only", b"nvme", SetMode::Any, false);
    assert!(matches!(contradicts, Err(Error::NotPermitted(_))), "{contradicts:?}");
    for bad in ["a b", "x=y", "nvme,", "#5", "a,b,c,d,e,f,g,h,i"] {
        let refused = fs.setxattr(&caller(3), place, b"user.stere.on", bad.as_bytes(), SetMode::Any, false);
        assert!(matches!(refused, Err(Error::Policy(_))), "{bad}: {refused:?}");
    }
    assert_clean(&fs);
}

/// Where a note waits to be looked at.
fn noted(fs: &FileSystem) -> BTreeSet<String> {
    let status = fs.reconciler().reconcile_status(stere_naming::Io::BLOCKING).unwrap();
    status.pending.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
}

/// P-142: a device that is labelled otherwise has those files looked at whose policy names a place that means other devices now, and no
/// others: by keys, locks, rules and classes, also after a mount; the pool's own rules are about all.
#[test]
fn a_label_concerns_whose_policy_names_it() {
    let (rig, fs) = rig(&[DEVICE_BYTES; 5]);
    let named = directory(&fs, "named", "only", "nvme");
    let wished = directory(&fs, "wished", "on", "nvme,old");
    directory(&fs, "other", "only", "old");
    let (ruled, locked) = (mkdir(&fs, ROOT, "ruled"), mkdir(&fs, ROOT, "locked"));
    let rules = |fs: &FileSystem, text: &[u8]| {
        fs.setxattr(&caller(3), ruled, b"user.stere.rules", text, SetMode::Any, false).unwrap();
    };
    rules(&fs, b"*.c: only=nvme; *.o: copies=1");
    fs.setxattr(&caller(3), locked, b"trusted.stere.only", b"nvme", SetMode::Any, false).unwrap();
    fs.policy().create_class(&caller(3), "quick", &[("on".into(), "nvme".into())]).unwrap();
    let quick = directory(&fs, "quick", "class", "quick");
    let left = directory(&fs, "left", "only", "nvme");
    set(&fs, left, "only", "any");
    let bytes = content(17, 400_000);
    let three = mkdir(&fs, named, "three");
    set(&fs, three, "copies", "3");
    let file = make(&fs, three, "file", &bytes);
    for directory in [wished, quick, left, ruled, ROOT] {
        make(&fs, directory, "a.c", &bytes);
    }
    reconcile(&fs);
    assert_eq!(devices(&fs, file), names(&["d0", "d1"]));
    let all = ["/named", "/wished", "/ruled", "/locked", "/quick"];
    let of = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<BTreeSet<String>>();
    tag(&fs, 2, &["nvme"]);
    fs.classes().follow_labels(&caller(5)).unwrap();
    assert_eq!(noted(&fs), of(&all));
    reconcile(&fs);
    // There are enough of them now.
    assert_lies(&fs, file, &bytes, &["d0", "d1", "d2"]);
    tag(&fs, 3, &["nobody-names-it"]);
    fs.classes().follow_labels(&caller(5)).unwrap();
    assert_eq!(noted(&fs), of(&[]));
    fs.syncfs(&caller(5)).unwrap();
    let fs = rig.reopen(fs, true);
    fs.classes().follow_labels(&caller(5)).unwrap();
    assert_eq!(noted(&fs), of(&[]), "a mount is no change");
    tag(&fs, 3, &["old"]);
    fs.classes().follow_labels(&caller(5)).unwrap();
    assert_eq!(noted(&fs), of(&["/wished", "/other"]));
    reconcile(&fs);
    rules(&fs, b"*.c: only=old");
    reconcile(&fs);
    tag(&fs, 4, &["nvme"]);
    fs.classes().follow_labels(&caller(5)).unwrap();
    assert_eq!(noted(&fs), of(&["/named", "/wished", "/locked", "/quick"]));
    reconcile(&fs);
    fs.policy().load_rules(&caller(6), "*.iso: on=nvme").unwrap();
    reconcile(&fs);
    tag(&fs, 4, &[]);
    fs.classes().follow_labels(&caller(5)).unwrap();
    assert_eq!(noted(&fs), of(&["/"]));
    reconcile(&fs);
    assert_clean(&fs);
}

/// P-142: of files that share a blob and must lie in different places each has one of its own in its place, and sharing is kept where
/// all of them go to the same; deduplication joins nothing that must lie apart.
#[test]
fn requirements_that_contradict_each_other_part_what_is_shared() {
    let (rig, fs) = rig(&[DEVICE_BYTES; 6]);
    [2, 3].into_iter().for_each(|index| tag(&fs, index, &["slow"]));
    [4, 5].into_iter().for_each(|index| tag(&fs, index, &["far"]));
    let whole = 12u64 * (128 << 10);
    let bytes = content(19, whole as usize);
    let (left, right) = (directory(&fs, "left", "only", "nvme"), mkdir(&fs, ROOT, "right"));
    let file = make(&fs, left, "file", &bytes);
    let copies: Vec<u64> = ["one", "two"].map(|name| make(&fs, right, name, b"")).into();
    fs.syncfs(&caller(3)).unwrap();
    for copy in &copies {
        assert_eq!(fs.copy_range(&caller(3), file, 0, *copy, 0, whole).unwrap(), whole);
    }
    assert_eq!(stored_bytes(&fs), whole, "they share");
    set(&fs, right, "only", "slow");
    reconcile(&fs);
    assert_lies(&fs, file, &bytes, &["d0", "d1"]);
    copies.iter().for_each(|inode| assert_lies(&fs, *inode, &bytes, &["d2", "d3"]));
    assert_eq!(stored_bytes(&fs), 3 * whole);
    // All who share it go to the same place: they still share afterwards.
    let (third, fourth) = (make(&fs, left, "third", b""), make(&fs, left, "fourth", b""));
    for copy in [third, fourth] {
        assert_eq!(fs.copy_range(&caller(3), file, 0, copy, 0, whole).unwrap(), whole);
    }
    fs.syncfs(&caller(3)).unwrap();
    set(&fs, left, "only", "far");
    reconcile(&fs);
    for inode in [file, third, fourth] {
        assert_lies(&fs, inode, &bytes, &["d4", "d5"]);
    }
    assert_eq!(stored_bytes(&fs), 3 * whole, "nothing is parted that goes to the same place");
    // Who looks for the same content finds it, and leaves it where it must lie.
    set(&fs, ROOT, "dedup", "yes");
    reconcile(&fs);
    reconcile(&fs);
    assert!(!fs.reconciler().reconcile_step(&caller(9), 1 << 20).unwrap(), "nobody joins and parts without end");
    assert_eq!(stored_bytes(&fs), 2 * (128 << 10), "all records are the same: one in each place");
    let fs = rig.reopen(fs, true);
    [file, third, fourth].into_iter().for_each(|inode| assert_lies(&fs, inode, &bytes, &["d4", "d5"]));
    copies.iter().for_each(|inode| assert_lies(&fs, *inode, &bytes, &["d2", "d3"]));
    assert_clean(&fs);
}
