//! P-145: what is below a directory with `unit=yes` goes down as one, comes back as one, and is as old as the youngest of it.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use stere_device::MemoryVolume;
use stere_naming::{FileSystem, ROOT, SetMode};
use stere_store::TierMarks;
use support::edits::set;
use support::files::{assert_clean, make, mkdir};
use support::volume::{self, add_volume};
use support::{Rig, caller, reconcile};

/// More than a segment.
const LENGTH: usize = 1_300_000;

fn content(number: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 700 * 13 + at + number as usize * 31) as u8).collect()
}

fn rig(size_bytes: u64) -> (Rig, FileSystem, Arc<MemoryVolume>) {
    let (rig, fs) = Rig::new(2, size_bytes);
    let volume = add_volume(&fs);
    (rig, fs, volume)
}

fn settle(fs: &FileSystem) {
    while fs.store().tertiary_step(true, &|_| Vec::new()).unwrap().is_busy {}
}

fn segments_of(fs: &FileSystem, inode: u64) -> BTreeSet<u64> {
    volume::segments_of(fs, inode).into_iter().collect()
}

fn residency(fs: &FileSystem, inode: u64) -> &'static str {
    fs.tier_file(&caller(3), inode).unwrap().residency()
}

fn attribute(fs: &FileSystem, inode: u64, name: &str) -> Option<String> {
    let value = fs.getxattr(&caller(3), inode, format!("user.stere.{name}").as_bytes()).ok()?;
    Some(String::from_utf8(value).unwrap())
}

#[test]
fn the_nearest_directory_decides() {
    let (rig, fs, _) = rig(96 << 20);
    let top = mkdir(&fs, ROOT, "top");
    let (inner, other) = (mkdir(&fs, top, "inner"), mkdir(&fs, top, "other"));
    let file = make(&fs, inner, "file", b"some");
    assert_eq!((attribute(&fs, file, "effective.unit"), fs.unit_of(caller(3).wait, file).unwrap()), (None, None));
    set(&fs, top, "unit", "yes");
    assert_eq!(fs.unit_of(caller(3).wait, file).unwrap(), Some(top));
    assert!(attribute(&fs, file, "source.unit").unwrap().contains("/top"), "{:?}", attribute(&fs, file, "source.unit"));
    set(&fs, inner, "unit", "no");
    assert_eq!(attribute(&fs, file, "effective.unit").as_deref(), Some("no"));
    assert_eq!(fs.unit_of(caller(3).wait, file).unwrap(), None);
    set(&fs, inner, "unit", "yes");
    assert_eq!(fs.unit_of(caller(3).wait, file).unwrap(), Some(inner));
    for (inode, value) in [(file, "yes"), (other, "perhaps")] {
        assert!(fs.setxattr(&caller(3), inode, b"user.stere.unit", value.as_bytes(), SetMode::Any, false).is_err());
    }
    assert!(fs.listxattr(&caller(3), inner).unwrap().contains(&b"user.stere.unit".to_vec()));
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_eq!(fs.unit_of(caller(3).wait, file).unwrap(), Some(inner), "after a crash too");
    set(&fs, inner, "unit", "");
    assert_eq!((attribute(&fs, inner, "unit"), fs.unit_of(caller(3).wait, file).unwrap()), (None, Some(top)));
    assert_clean(&fs);
}

#[test]
fn a_unit_goes_down_in_one_go() {
    let (_rig, fs, _) = rig(96 << 20);
    let (unit, elsewhere) = (mkdir(&fs, ROOT, "unit"), mkdir(&fs, ROOT, "elsewhere"));
    set(&fs, unit, "unit", "yes");
    let below = mkdir(&fs, unit, "below");
    let first = make(&fs, unit, "first", &content(1, LENGTH));
    let other = make(&fs, elsewhere, "other", &content(2, LENGTH));
    let second = make(&fs, below, "second", &content(3, LENGTH));
    let stays = make(&fs, below, "stays", &content(4, LENGTH));
    fs.syncfs(&caller(3)).unwrap();
    for inode in [first, other, second] {
        set(&fs, inode, "tier", "cold");
    }
    reconcile(&fs);
    settle(&fs);
    let last = [first, second].iter().flat_map(|inode| segments_of(&fs, *inode)).max().unwrap();
    assert!(last <= *segments_of(&fs, other).first().unwrap(), "what belongs together lies together");
    assert!(segments_of(&fs, stays).is_empty(), "no policy sends it down");
    assert_clean(&fs);
}

#[test]
fn a_unit_comes_back_as_one() {
    let (rig, fs, volume) = rig(96 << 20);
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "unit", "yes");
    set(&fs, top, "tier", "cold");
    let (below, apart) = (mkdir(&fs, top, "below"), mkdir(&fs, top, "apart"));
    set(&fs, apart, "unit", "no");
    let members: Vec<u64> = [(top, "a"), (below, "b"), (below, "c")]
        .into_iter()
        .map(|(directory, name)| make(&fs, directory, name, &content(9, LENGTH)))
        .collect();
    // Between what belongs together and what does not.
    make(&fs, below, "d", &content(1, LENGTH));
    make(&fs, apart, "alone", &content(5, LENGTH));
    let also = make(&fs, apart, "also", &content(6, LENGTH));
    fs.syncfs(&caller(3)).unwrap();
    reconcile(&fs);
    settle(&fs);
    let all: Vec<u64> = segments_of(&fs, top).into_iter().collect();
    fs.release_segments(&caller(3), &all).unwrap();
    fs.store().commit(caller(3).wait).unwrap();
    // What says that it is one is there after a crash, and nothing else is needed.
    let fs = rig.reopen(fs, true);
    fs.store().attach_volume(0, volume, None, true).unwrap();
    assert!(members.iter().all(|inode| residency(&fs, *inode) == "nearline"));
    assert_eq!(fs.stage_units(&caller(4)).unwrap(), 0, "nobody has read anything");
    let mut bytes = [0; 5000];
    fs.read(&caller(4), members[1], 700_000, &mut bytes).unwrap();
    assert!(bytes == content(9, LENGTH)[700_000..705_000]);
    assert!(fs.stage_units(&caller(4)).unwrap() > 2);
    assert_eq!(fs.stage_units(&caller(4)).unwrap(), 0, "it is on its way");
    settle(&fs);
    assert!(members.iter().all(|inode| residency(&fs, *inode) == "online"));
    assert_ne!(residency(&fs, also), "online");
    // What is no unit comes alone.
    fs.read(&caller(4), also, 700_000, &mut bytes).unwrap();
    assert_eq!(fs.stage_units(&caller(4)).unwrap(), 0);
    assert_clean(&fs);
}

/// What is old in a unit is kept as long as something in it is young.
#[test]
fn a_unit_is_as_old_as_its_youngest_member() {
    for is_unit in [false, true] {
        let (_rig, fs, _) = rig(192 << 20);
        let (directory, elsewhere) = (mkdir(&fs, ROOT, "unit"), mkdir(&fs, ROOT, "elsewhere"));
        set(&fs, directory, "unit", if is_unit { "yes" } else { "no" });
        let old = make(&fs, directory, "old", &content(1, 10 << 20));
        let other = make(&fs, elsewhere, "other", &content(2, 40 << 20));
        let young = make(&fs, directory, "young", b"");
        for (inode, seconds) in [(other, 500), (young, 1000)] {
            fs.write(&caller(seconds), inode, 0, b"later", false).unwrap();
        }
        fs.syncfs(&caller(1000)).unwrap();
        for inode in [old, other] {
            set(&fs, inode, "tier", "cold");
        }
        reconcile(&fs);
        settle(&fs);
        (0..3).for_each(|_| fs.store().checkpoint().unwrap());
        let used = fs.store().used_percent();
        fs.store().set_tier_marks(TierMarks::new(used, used - 1).unwrap()).unwrap();
        assert!(fs.keep_room(&caller(2000)).unwrap().unwrap() > 0);
        // A segment that both have a part of may go.
        let is_here = fs.tier_file(&caller(3), old).unwrap().local_bytes > 8 << 20;
        assert_eq!((is_here, residency(&fs, other) != "online"), (is_unit, true));
    }
}

/// What is remembered of directories that say something is what the pool has, as they come and go and across crashes.
#[test]
fn directories_that_are_pinned_are_known_as_they_are() {
    let (rig, mut fs, _) = rig(96 << 20);
    let directories: Vec<u64> = (0..4).map(|number| mkdir(&fs, ROOT, &format!("d{number}"))).collect();
    let roots = |fs: &FileSystem| {
        let mut roots = fs.pinned_roots(caller(3).wait).unwrap();
        roots.sort_unstable();
        roots
    };
    let mut expected = BTreeSet::new();
    for step in 0..40 {
        let directory = directories[step * 7 % 4];
        match step % 3 {
            2 => {
                set(&fs, directory, "pin", "");
                expected.remove(&directory);
            }
            _ => {
                set(&fs, directory, "pin", "yes");
                expected.insert(directory);
            }
        }
        assert_eq!(roots(&fs), expected.iter().copied().collect::<Vec<_>>(), "step {step}");
        if step % 11 == 10 {
            fs.syncfs(&caller(3)).unwrap();
            fs = rig.reopen(fs, true);
        }
    }
    set(&fs, directories[0], "pin", "yes");
    assert!(roots(&fs).contains(&directories[0]));
    fs.rmdir(&caller(3), ROOT, b"d0").unwrap();
    assert!(!roots(&fs).contains(&directories[0]), "it is gone");
    fs.syncfs(&caller(3)).unwrap();
    assert_clean(&fs);
}

/// Whoever asked before anything was a unit is told when something is, and when it is none any more.
#[test]
fn what_is_made_a_unit_late_comes_back_as_one() {
    let (_rig, fs, _) = rig(96 << 20);
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "tier", "cold");
    let members: Vec<u64> =
        (0..6).map(|number| make(&fs, top, &format!("f{number}"), &content(number, LENGTH))).collect();
    fs.syncfs(&caller(3)).unwrap();
    reconcile(&fs);
    settle(&fs);
    fs.release_segments(&caller(3), &segments_of(&fs, top).into_iter().collect::<Vec<_>>()).unwrap();
    let read = |at: usize| {
        let mut bytes = [0; 5000];
        fs.read(&caller(4), members[at], 700_000, &mut bytes).unwrap();
        assert!(bytes == content(at as u64, LENGTH)[700_000..705_000]);
        let asked_for = fs.stage_units(&caller(4)).unwrap();
        settle(&fs);
        asked_for
    };
    assert_eq!(read(0), 0);
    set(&fs, top, "unit", "yes");
    assert!(members.iter().any(|inode| residency(&fs, *inode) != "online"));
    assert!(read(2) > 0);
    assert!(members.iter().all(|inode| residency(&fs, *inode) == "online"));
    set(&fs, top, "unit", "");
    fs.release_segments(&caller(3), &segments_of(&fs, top).into_iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(read(4), 0);
    assert_clean(&fs);
}
