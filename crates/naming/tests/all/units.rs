//! P-145: what is below a directory with `unit=yes` goes down as one, comes back as one, and is as old as the youngest of it.

use crate::support;

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
    while fs.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {}
}

fn segments_of(fs: &FileSystem, inode: u64) -> BTreeSet<u64> {
    volume::segments_of(fs, inode).into_iter().collect()
}

fn residency(fs: &FileSystem, inode: u64) -> &'static str {
    fs.tiers().tier_file(&caller(3), inode).unwrap().residency()
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
    assert_eq!((attribute(&fs, file, "effective.unit"), fs.units().unit_of(caller(3).io, file).unwrap()), (None, None));
    set(&fs, top, "unit", "yes");
    assert_eq!(fs.units().unit_of(caller(3).io, file).unwrap(), Some(top));
    assert!(attribute(&fs, file, "source.unit").unwrap().contains("/top"), "{:?}", attribute(&fs, file, "source.unit"));
    set(&fs, inner, "unit", "no");
    assert_eq!(attribute(&fs, file, "effective.unit").as_deref(), Some("no"));
    assert_eq!(fs.units().unit_of(caller(3).io, file).unwrap(), None);
    set(&fs, inner, "unit", "yes");
    assert_eq!(fs.units().unit_of(caller(3).io, file).unwrap(), Some(inner));
    for (inode, value) in [(file, "yes"), (other, "perhaps")] {
        assert!(fs.setxattr(&caller(3), inode, b"user.stere.unit", value.as_bytes(), SetMode::Any, false).is_err());
    }
    assert!(fs.listxattr(&caller(3), inner).unwrap().contains(&b"user.stere.unit".to_vec()));
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_eq!(fs.units().unit_of(caller(3).io, file).unwrap(), Some(inner), "after a crash too");
    set(&fs, inner, "unit", "");
    assert_eq!((attribute(&fs, inner, "unit"), fs.units().unit_of(caller(3).io, file).unwrap()), (None, Some(top)));
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
    fs.tiers().release_segments(&caller(3), &all).unwrap();
    fs.store().commit(caller(3).io).unwrap();
    // What says that it is one is there after a crash, and nothing else is needed.
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume, None, true).unwrap();
    assert!(members.iter().all(|inode| residency(&fs, *inode) == "nearline"));
    assert_eq!(fs.units().stage_units(&caller(4)).unwrap(), 0, "nobody has read anything");
    let mut bytes = [0; 5000];
    fs.read(&caller(4), members[1], 700_000, &mut bytes).unwrap();
    assert!(bytes == content(9, LENGTH)[700_000..705_000]);
    assert!(fs.units().stage_units(&caller(4)).unwrap() > 2);
    assert_eq!(fs.units().stage_units(&caller(4)).unwrap(), 0, "it is on its way");
    settle(&fs);
    assert!(members.iter().all(|inode| residency(&fs, *inode) == "online"));
    assert_ne!(residency(&fs, also), "online");
    // What is no unit comes alone.
    fs.read(&caller(4), also, 700_000, &mut bytes).unwrap();
    assert_eq!(fs.units().stage_units(&caller(4)).unwrap(), 0);
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
        let used = fs.store().space().used_percent();
        fs.store().tier.media.set_tier_marks(TierMarks::new(used, used - 1).unwrap()).unwrap();
        assert!(fs.eviction().keep_room(&caller(2000)).unwrap().unwrap() > 0);
        // A segment that both have a part of may go.
        let is_here = fs.tiers().tier_file(&caller(3), old).unwrap().local_bytes > 8 << 20;
        assert_eq!((is_here, residency(&fs, other) != "online"), (is_unit, true));
    }
}

/// What is remembered of directories that say something is what the pool has, as they come and go and across crashes.
#[test]
fn directories_that_are_pinned_are_known_as_they_are() {
    let (rig, mut fs, _) = rig(96 << 20);
    let directories: Vec<u64> = (0..4).map(|number| mkdir(&fs, ROOT, &format!("d{number}"))).collect();
    let roots = |fs: &FileSystem| {
        let mut roots = fs.eviction().pinned_roots(caller(3).io).unwrap();
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
    fs.tiers().release_segments(&caller(3), &segments_of(&fs, top).into_iter().collect::<Vec<_>>()).unwrap();
    let read = |at: usize| {
        let mut bytes = [0; 5000];
        fs.read(&caller(4), members[at], 700_000, &mut bytes).unwrap();
        assert!(bytes == content(at as u64, LENGTH)[700_000..705_000]);
        let asked_for = fs.units().stage_units(&caller(4)).unwrap();
        settle(&fs);
        asked_for
    };
    assert_eq!(read(0), 0);
    set(&fs, top, "unit", "yes");
    assert!(members.iter().any(|inode| residency(&fs, *inode) != "online"));
    assert!(read(2) > 0);
    assert!(members.iter().all(|inode| residency(&fs, *inode) == "online"));
    set(&fs, top, "unit", "");
    fs.tiers().release_segments(&caller(3), &segments_of(&fs, top).into_iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(read(4), 0);
    assert_clean(&fs);
}

/// Looks for new files as a mount does, at this time; what is not waited for goes down.
fn look_for_new(fs: &FileSystem, seconds: i64) {
    fs.reconciler().send_new_down(&caller(seconds), false).unwrap();
    while fs.reconciler().reconcile_step(&caller(seconds), 1 << 20).unwrap() {}
    settle(fs);
}

/// Files of one unit that are written minutes apart go down together once it is quiet; nothing else waits for that.
#[test]
fn a_unit_that_is_written_is_waited_for() {
    let (rig, fs, volume) = rig(192 << 20);
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "tier", "cold");
    let (unit, elsewhere) = (mkdir(&fs, top, "unit"), mkdir(&fs, top, "elsewhere"));
    set(&fs, unit, "unit", "yes");
    reconcile(&fs);
    let make_at = |fs: &FileSystem, directory, name: &str, seconds| {
        let file = make(fs, directory, name, &content(seconds as u64, LENGTH));
        fs.write(&caller(seconds), file, 0, b"now", false).unwrap();
        fs.syncfs(&caller(seconds)).unwrap();
        file
    };
    let (mut members, mut others) = (Vec::new(), Vec::new());
    for minute in 1..6 {
        let seconds = 10_000 + minute * 60;
        members.push(make_at(&fs, unit, &format!("f{minute}"), seconds));
        others.push(make_at(&fs, elsewhere, &format!("g{minute}"), seconds));
        look_for_new(&fs, seconds + 1);
        assert!(members.iter().all(|inode| segments_of(&fs, *inode).is_empty()), "minute {minute}");
        assert!(others.iter().all(|inode| !segments_of(&fs, *inode).is_empty()), "minute {minute}");
        assert!(fs.reconciler().is_anything_new());
    }
    // A crash forgets that anybody waits, and nothing else.
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume, None, true).unwrap();
    while fs.reconciler().reconcile_step(&caller(10_301), 1 << 20).unwrap() {}
    look_for_new(&fs, 10_301);
    assert!(fs.reconciler().is_anything_new());
    look_for_new(&fs, 10_300 + 121);
    assert!(!fs.reconciler().is_anything_new());
    let inner: BTreeSet<u64> = members.iter().flat_map(|inode| segments_of(&fs, *inode)).collect();
    let (first, last) = (*inner.first().unwrap(), *inner.last().unwrap());
    let is_between = |segment: &u64| (first + 1..last).contains(segment);
    assert!(
        inner.len() > 4 && !others.iter().any(|inode| segments_of(&fs, *inode).iter().any(is_between)),
        "{inner:?}"
    );
    // By a word it goes at once,
    let asked = make_at(&fs, unit, "asked", 20_000);
    look_for_new(&fs, 20_001);
    assert!(segments_of(&fs, asked).is_empty());
    fs.reconciler().reconcile(&caller(20_002), unit).unwrap();
    reconcile(&fs);
    assert!(!segments_of(&fs, asked).is_empty());
    // and one that is never quiet goes in the end.
    let busy = make_at(&fs, unit, "busy", 30_000);
    for minute in 0..62 {
        let seconds = 30_000 + minute * 60;
        fs.write(&caller(seconds), busy, 0, b"busy", false).unwrap();
        fs.syncfs(&caller(seconds)).unwrap();
        look_for_new(&fs, seconds + 1);
        let is_down = !segments_of(&fs, busy).is_empty();
        assert_eq!(is_down, minute >= 60, "minute {minute}");
    }
    assert_clean(&fs);
}

/// A file of a unit in each of several segments that are full of others' files.
fn scattered(fs: &FileSystem, count: u64) -> (u64, Vec<u64>) {
    let (unit, elsewhere) = (mkdir(fs, ROOT, "unit"), mkdir(fs, ROOT, "elsewhere"));
    set(fs, unit, "unit", "yes");
    let mut members = Vec::new();
    for number in 0..count {
        let make_other = |at: u64| make(fs, elsewhere, &format!("o{number}-{at}"), &content(100 + at, 90_000));
        let mut inodes: Vec<u64> = (0..OTHERS / 2).map(make_other).collect();
        let member = make(fs, unit, &format!("m{number}"), &content(number, MEMBER));
        inodes.push(member);
        inodes.extend((OTHERS / 2..OTHERS).map(make_other));
        fs.syncfs(&caller(3)).unwrap();
        inodes.into_iter().for_each(|inode| set(fs, inode, "tier", "cold"));
        reconcile(fs);
        settle(fs);
        members.push(member);
    }
    fs.tiers().release_segments(&caller(3), &segments_of(fs, ROOT).into_iter().collect::<Vec<_>>()).unwrap();
    (unit, members)
}

/// Less than a quarter of a segment.
const MEMBER: usize = 60_000;
/// Files beside each member.
const OTHERS: u64 = 10;

fn read_member(fs: &FileSystem, members: &[u64], number: usize) {
    let mut bytes = vec![0; MEMBER];
    fs.read(&caller(4), members[number], 0, &mut bytes).unwrap();
    assert!(bytes == content(number as u64, MEMBER), "member {number}");
}

/// Lets the fetching thread go whatever an assertion says; a test that fails would hang otherwise.
struct EndFetching<'a>(&'a FileSystem);

impl Drop for EndFetching<'_> {
    fn drop(&mut self) {
        self.0.store().tier.recalls.end_fetching();
    }
}

/// A unit that lies scattered among what does not belong to it: its parts are on their way as soon as one of them was read, each is
/// fetched once, by one request, and nothing comes to devices for it.
#[test]
fn a_scattered_unit_comes_by_its_parts() {
    let (_rig, fs, volume) = rig(192 << 20);
    let (_, members) = scattered(&fs, 12);
    let requests = || volume.requests();
    std::thread::scope(|scope| {
        scope.spawn(|| fs.store().tier.recalls.fetch_for_readers());
        let _end = EndFetching(&fs);
        let bytes = || fs.store().tier.recalls.tertiary_counts().bytes_fetched;
        let (requests_before, bytes_before) = (requests(), bytes());
        // Until the thread has lent itself nothing is fetched by parts.
        until(|| fs.store().tier.recalls.lends_threads());
        read_member(&fs, &members, 3);
        let asked_for = fs.units().stage_units(&caller(4)).unwrap();
        assert!(asked_for >= 11, "{asked_for}");
        assert_eq!(fs.store().tier.recalls.wanted_back(), 0, "no whole segment");
        // Between two fetches none is under way: so it has ended when nothing came for a while.
        let mut fetched_before = 0;
        until(|| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            let fetched = requests() - requests_before;
            let is_same = std::mem::replace(&mut fetched_before, fetched) == fetched;
            is_same && fetched >= 12 && !fs.store().tier.recalls.is_fetching()
        });
        let fetched = requests() - requests_before;
        (0..members.len()).for_each(|number| read_member(&fs, &members, number));
        assert_eq!(fs.units().stage_units(&caller(5)).unwrap(), 0, "it was asked for");
        assert_eq!(requests() - requests_before, fetched, "what was on its way is there");
        let wanted = (members.len() * MEMBER) as u64;
        assert!(bytes() - bytes_before < 2 * wanted, "{} for {wanted}", bytes() - bytes_before);
        assert!(members.iter().all(|inode| residency(&fs, *inode) == "nearline"));
    });
    assert_clean(&fs);
}

/// What is alive of a unit in mostly dead objects is put together when they are repacked, whatever lies among it.
#[test]
fn repacking_puts_a_scattered_unit_together() {
    for is_unit in [false, true] {
        let (_rig, fs, _) = rig(192 << 20);
        let (unit, members) = scattered(&fs, 8);
        set(&fs, unit, "unit", if is_unit { "yes" } else { "no" });
        let elsewhere = fs.lookup(&caller(3), ROOT, b"elsewhere").unwrap().inode;
        for (number, at) in (0..8).flat_map(|number| (0..OTHERS).map(move |at| (number, at))) {
            if at % 3 != 0 {
                fs.unlink(&caller(3), elsewhere, format!("o{number}-{at}").as_bytes()).unwrap();
            }
        }
        fs.syncfs(&caller(3)).unwrap();
        (0..3).for_each(|_| fs.store().checkpoint().unwrap());
        while fs.units().repack_step(&caller(4), 1, 50, &|_| Vec::new()).unwrap().segments_emptied > 0 {}
        let spread = members.iter().flat_map(|inode| segments_of(&fs, *inode)).collect::<BTreeSet<u64>>().len();
        assert_eq!(spread == 1, is_unit, "{spread} segments");
        (0..members.len()).for_each(|number| read_member(&fs, &members, number));
        assert_clean(&fs);
    }
}

/// Where nobody fetches for readers it comes whole; a recall that was cancelled is asked for anew by the next.
#[test]
fn what_was_cancelled_is_asked_for_anew() {
    let (_rig, fs, _) = rig(192 << 20);
    let (unit, members) = scattered(&fs, 6);
    read_member(&fs, &members, 1);
    assert!(fs.units().stage_units(&caller(4)).unwrap() > 3);
    let some: Vec<u64> = segments_of(&fs, members[0]).into_iter().collect();
    assert!(fs.store().tier.recalls.want_back_no_more(&some) > 0);
    read_member(&fs, &members, 2);
    assert_eq!(fs.units().stage_units(&caller(4)).unwrap(), 0, "the rest is on its way");
    fs.units().forget_coming_units();
    read_member(&fs, &members, 2);
    assert!(fs.units().stage_units(&caller(4)).unwrap() > 0);
    settle(&fs);
    assert!(members.iter().all(|inode| residency(&fs, *inode) == "online"));
    assert!(!segments_of(&fs, unit).is_empty());
    assert_clean(&fs);
}

fn until(mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < std::time::Duration::from_secs(30), "it does not come");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
