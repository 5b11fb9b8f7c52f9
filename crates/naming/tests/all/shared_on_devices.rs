//! P-231: content that a file shares with one that does not go to media stays on devices, whatever is released.

use crate::support;

use std::sync::Arc;

use stere_device::MemoryVolume;
use stere_naming::{Caller, FileSystem, ROOT, Timestamp};
use stere_store::TierMarks;
use support::cold;
use support::edits::{fact, set};
use support::files::{assert_clean, make, mkdir};
use support::volume::{add_volume, segments_of};
use support::{Rig, caller, reconcile};

/// More than a segment.
const LENGTH: u64 = 1_300_000;

fn content(number: u8) -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 700 * 13 + at) as u8 ^ number).collect()
}

/// `here`, of which two copies are kept, and `there`, whose files go to the medium.
fn world() -> (Rig, FileSystem, Arc<MemoryVolume>, u64, u64) {
    let (rig, fs) = Rig::new(3, 96 << 20);
    let volume = add_volume(&fs);
    let (here, there) = (mkdir(&fs, ROOT, "here"), mkdir(&fs, ROOT, "there"));
    set(&fs, here, "copies", "2");
    set(&fs, there, "tier", "cold");
    (rig, fs, volume, here, there)
}

/// As `cp --reflink` does.
fn share(fs: &FileSystem, from: u64, directory: u64, name: &str) -> u64 {
    let to = make(fs, directory, name, b"");
    assert_eq!(fs.copy_range(&caller(3), from, 0, to, 0, LENGTH).unwrap(), LENGTH);
    to
}

fn settle(fs: &FileSystem) {
    fs.syncfs(&caller(1000)).unwrap();
    reconcile(fs);
    while fs.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {}
    (0..3).for_each(|_| fs.store().checkpoint().unwrap());
}

/// As `tier release` of what is below an inode.
fn release(fs: &FileSystem, inode: u64) {
    let mut segments = segments_of(fs, inode);
    let staying = fs.eviction().staying_among(&caller(2000), &segments.iter().copied().collect(), Some(inode)).unwrap();
    segments.retain(|segment| !staying.has(*segment));
    fs.tiers().release_segments(&caller(2000), &segments).unwrap();
}

fn press(fs: &FileSystem, seconds: i64) {
    fs.store().tier.media.set_tier_marks(TierMarks::new(2, 1).unwrap()).unwrap();
    fs.eviction().keep_room(&Caller { now: Timestamp { seconds, nanoseconds: 0 }, ..caller(seconds) }).unwrap();
}

fn residency(fs: &FileSystem, inode: u64) -> &'static str {
    fs.tiers().tier_file(&caller(3), inode).unwrap().residency()
}

#[test]
fn a_reflink_from_elsewhere_keeps_content_here() {
    for by_command in [true, false] {
        let (_rig, fs, _volume, here, there) = world();
        let mine = make(&fs, here, "mine", &content(1));
        let shared = share(&fs, mine, there, "shared");
        let alone = make(&fs, there, "alone", &content(2));
        settle(&fs);
        match by_command {
            true => release(&fs, there),
            false => press(&fs, 2000),
        }
        assert_ne!(residency(&fs, alone), "online", "what is nobody else's goes");
        assert_eq!(residency(&fs, mine), "online");
        // Two copies, and the one of the medium: one more may be lost than copies=2 says.
        assert_eq!((fact(&fs, mine, "survives"), fact(&fs, mine, "state")), ("2".into(), "compliant".into()));
        assert_eq!(residency(&fs, shared), "online");
        // Who shared it is gone, or asks for it no more: it goes at once.
        fs.unlink(&caller(2001), here, b"mine").unwrap();
        settle(&fs);
        match by_command {
            true => release(&fs, there),
            false => press(&fs, 2002),
        }
        assert_eq!(residency(&fs, shared), "nearline", "nobody else has it any more");
        assert_clean(&fs);
    }
}

/// What was stored by a file that is gone, and is another's now.
#[test]
fn content_whose_first_file_is_gone_is_of_who_has_it() {
    for by_command in [true, false] {
        let (_rig, fs, _volume, here, there) = world();
        let first = make(&fs, there, "first", &content(1));
        fs.syncfs(&caller(3)).unwrap();
        let (mine, other) = (share(&fs, first, here, "mine"), share(&fs, first, there, "other"));
        settle(&fs);
        fs.unlink(&caller(5), there, b"first").unwrap();
        fs.unlink(&caller(5), there, b"other").unwrap();
        settle(&fs);
        match by_command {
            true => release(&fs, there),
            false => press(&fs, 2000),
        }
        assert_eq!(residency(&fs, mine), "online");
        let _ = other;
        // By its name it goes.
        release(&fs, mine);
        assert_eq!(residency(&fs, mine) == "nearline", !segments_of(&fs, mine).is_empty());
        assert_clean(&fs);
    }
}

/// Those that all go to media may share what they like, versions too.
#[test]
fn what_only_those_share_that_go_goes() {
    for by_command in [true, false] {
        let (_rig, fs, _volume, _here, there) = world();
        set(&fs, there, "versions", "3");
        let first = make(&fs, there, "first", &content(1));
        let below = mkdir(&fs, there, "below");
        let second = share(&fs, first, below, "second");
        fs.link(&caller(3), second, there, b"again").unwrap();
        fs.write(&caller(5), first, 5000, b"new", false).unwrap();
        settle(&fs);
        match by_command {
            true => release(&fs, there),
            false => press(&fs, 2000),
        }
        assert_eq!(residency(&fs, second), "nearline");
        assert_eq!(residency(&fs, first), "nearline");
        assert_clean(&fs);
    }
}

/// As `cp` does, which goes on until all is copied.
fn copy(fs: &FileSystem, from: u64, directory: u64, name: &str, length: u64) -> u64 {
    let to = make(fs, directory, name, b"");
    let mut at = 0;
    while at < length {
        let copied = fs.copy_range(&caller(3), from, at, to, at, length - at).unwrap();
        assert!(copied > 0, "a copy goes on at {at}");
        at += copied;
    }
    to
}

fn bytes(fs: &FileSystem, inode: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    assert_eq!(fs.read(&caller(9), inode, 0, &mut bytes).unwrap() as u64, length);
    bytes
}

/// A copy of what is on media only is on devices, where its policy says so; it shares what goes to media anyway.
#[test]
fn a_copy_of_what_was_released_is_on_devices() {
    let (_rig, fs, _volume, here, there) = world();
    let source = make(&fs, there, "source", &content(1));
    settle(&fs);
    release(&fs, source);
    // What is written afterwards lies on devices, between what does not; a hole, and an end within a block.
    fs.write(&caller(5), source, 400_000, &content(2)[..90_000], false).unwrap();
    fs.write(&caller(5), source, 3 << 30, b"far away", false).unwrap();
    fs.syncfs(&caller(5)).unwrap();
    let length = (3 << 30) + 8;
    assert_eq!(residency(&fs, source), "partial");
    let shared = copy(&fs, source, there, "shared", length);
    assert_eq!(residency(&fs, shared), "partial", "who goes to media too shares it");
    let mine = copy(&fs, source, here, "mine", length);
    fs.syncfs(&caller(6)).unwrap();
    assert_eq!(residency(&fs, mine), "online");
    reconcile(&fs);
    assert_eq!((fact(&fs, mine, "survives"), fact(&fs, mine, "state")), ("1".into(), "compliant".into()));
    let expected = bytes(&fs, source, LENGTH);
    assert!(bytes(&fs, mine, LENGTH) == expected && bytes(&fs, shared, LENGTH) == expected);
    let mut end = [0; 100];
    assert_eq!(fs.read(&caller(9), mine, 3 << 30, &mut end).unwrap(), 8);
    assert_eq!(&end[..8], b"far away");
    assert_clean(&fs);
}

/// Somebody copies by reference after it was looked who has the content, and before it goes.
#[test]
fn content_that_is_shared_meanwhile_stays() {
    let (_rig, fs, _volume, here, there) = world();
    let source = make(&fs, there, "source", &content(1));
    let alone = make(&fs, there, "alone", &content(2));
    settle(&fs);
    let segments: Vec<u64> = segments_of(&fs, there).into_iter().collect();
    let staying = fs.eviction().staying_among(&caller(2000), &segments.iter().copied().collect(), Some(there)).unwrap();
    assert!(segments.len() >= 2 && !segments.iter().any(|segment| staying.has(*segment)));
    let mine = share(&fs, source, here, "mine");
    let released = fs.tiers().release_as_looked_at(&caller(2001), &segments, staying.change).unwrap();
    assert!(released.newly_shared > 0 && released.waiting == 0, "{released:?}");
    assert_eq!(residency(&fs, mine), "online");
    assert_ne!(residency(&fs, alone), "online", "what nobody shared goes");
    assert_clean(&fs);
}

/// A version is the same file as before: keeping it brings nothing back.
#[test]
fn a_version_of_what_was_released_is_kept_without_reading() {
    let (_rig, fs, _volume, here, _there) = world();
    set(&fs, here, "versions", "3");
    let file = make(&fs, here, "file", &content(1));
    set(&fs, file, "tier", "cold");
    settle(&fs);
    release(&fs, file);
    // Nobody says any more where it goes; it stays where it is.
    fs.removexattr(&caller(4), file, b"user.stere.tier").unwrap();
    assert_eq!(residency(&fs, file), "nearline");
    fs.write(&caller(5), file, 0, &[7; 4096], false).unwrap();
    fs.syncfs(&caller(5)).unwrap();
    assert_eq!(residency(&fs, file), "partial");
    assert_clean(&fs);
}

/// Offloaded metadata is nobody else's: what holds it goes, by command and by itself, and no names come back for that.
#[test]
fn offloaded_metadata_goes() {
    let (_rig, fs, _volume, top) = cold::world();
    cold::release(&fs, top);
    assert!(fs.offload().offload_below(&caller(3), top).unwrap().bundles > 0);
    cold::settle(&fs);
    let resident = cold::resident_keys(&fs);
    let releasable = fs.store().tier.stager.releasable_segments();
    assert!(!releasable.is_empty(), "the metadata objects are on devices still");
    // What is released already is no matter, as when everything below a directory is asked about.
    let everywhere = fs.store().segments().everywhere();
    let on_media = everywhere.iter().filter(|segment| segment.tertiary().there != 0).map(|segment| segment.id);
    let all = on_media.chain(releasable).collect();
    for named in [Some(top), None] {
        let staying = fs.eviction().staying_among(&caller(2000), &all, named).unwrap();
        assert!(staying.of_others.is_empty(), "{named:?}: {staying:?}");
    }
    assert_eq!(cold::resident_keys(&fs), resident, "no names come back");
    cold::assert_all_there(&fs, top);
}
