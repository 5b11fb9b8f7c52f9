//! P-141: names of cold subtrees are put away on volumes; what needs one brings it back, and nothing else asks a volume for anything.

use crate::support;

use std::collections::BTreeSet;

use stere_device::VolumeFault;
use stere_format::{FileKind, Key};
use stere_naming::{FileSystem, ROOT};
use stere_store::{Io, RecallMode};
use support::cold::{
    DIRECTORIES, FILES, assert_all_there, find, listed, offload_below, release, resident_keys, settle, world,
};
use support::edits::set;
use support::files::{assert_clean, make, mkdir};
use support::volume::{add_volume, segments_of};
use support::{Rig, caller, reconcile};

/// The top of what was put away is listed with all that `ls -l` shows, and the volume is asked for nothing; what is below comes back.
#[test]
fn the_top_stays_and_the_rest_comes_back() {
    let (rig, fs, volume, cold) = world();
    let before = resident_keys(&fs);
    let outcome = offload_below(&fs, cold);
    assert_eq!(outcome.staying, 0, "{outcome:?}");
    assert_eq!(resident_keys(&fs), before - outcome.keys);
    assert!(resident_keys(&fs) < 40 && outcome.bundles > 2, "{before} keys before, {outcome:?}");
    assert_clean(&fs);
    let fs = rig.reopen(fs, false);
    fs.store().tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
    let requests = volume.requests();
    let top = listed(&fs, cold).unwrap();
    assert_eq!(top.len(), DIRECTORIES + 1);
    assert!(top.contains_key("direct") && listed(&fs, ROOT).unwrap().len() == 2);
    for _ in 0..3 {
        fs.step(&caller(5), 100).unwrap();
        fs.reconciler().reconcile(&caller(5), cold).unwrap();
        reconcile(&fs);
        assert_clean_of_work(&fs);
    }
    assert_eq!(volume.requests(), requests, "the top is here, and background work brings nothing back");
    assert_eq!(resident_keys(&fs), before - outcome.keys);
    assert_all_there(&fs, cold);
    assert!(!fs.store().offload().has_folds() || resident_keys(&fs) > outcome.keys / 2);
    assert_clean(&fs);
    let again = offload_below(&fs, cold);
    assert_eq!(resident_keys(&fs), before - again.keys.max(outcome.keys));
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume, None, true).unwrap();
    assert_all_there(&fs, cold);
    assert_clean(&fs);
}

fn assert_clean_of_work(fs: &FileSystem) {
    let status = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap();
    assert!(status.pending.is_empty() && status.blocked.is_empty(), "{status:?}");
}

/// P-141: with the volume away what needs it fails as chosen, and everything else goes on.
#[test]
fn an_outage_is_felt_below_and_nowhere_else() {
    let (_rig, fs, volume, cold) = world();
    offload_below(&fs, cold);
    volume.set_fault(Some(VolumeFault::Away));
    let above = find(&fs, cold, &["3"]);
    for mode in [RecallMode::Deny, RecallMode::NoWait] {
        fs.store().tier.recalls.set_recall_mode(mode);
        let refused = listed(&fs, above).unwrap_err();
        let expected = if mode == RecallMode::Deny { libc::EPERM } else { libc::EAGAIN };
        assert_eq!(refused.errno(), expected, "{mode:?}");
        let made = fs.mkdir(&caller(6), above, b"new", 0o755).unwrap_err();
        assert_eq!(made.errno(), expected);
    }
    fs.store().tier.recalls.set_recall_mode(RecallMode::Block);
    make(&fs, cold, "new at the top", b"some");
    make(&fs, ROOT, "new", b"some");
    fs.rename(&caller(6), cold, b"3", cold, b"three", 0).unwrap();
    fs.syncfs(&caller(6)).unwrap();
    fs.store().checkpoint().unwrap();
    assert_eq!(listed(&fs, cold).unwrap().len(), DIRECTORIES + 2);
    volume.set_fault(None);
    fs.mkdir(&caller(6), above, b"new", 0o755).unwrap();
    assert_eq!(listed(&fs, above).unwrap().len(), 3);
    fs.rename(&caller(6), cold, b"three", cold, b"3", 0).unwrap();
    assert_all_there(&fs, cold);
    assert_clean(&fs);
}

/// P-141: who brings back what is below a directory in the middle gets all of it, and leaves the rest where it is.
#[test]
fn all_below_a_directory_in_the_middle_comes_back() {
    let (_rig, fs, volume, cold) = world();
    let middle = find(&fs, cold, &["2"]);
    let files: Vec<u64> = listed(&fs, find(&fs, middle, &["deep"])).unwrap().into_values().map(|one| one.2).collect();
    let outcome = offload_below(&fs, cold);
    assert!(files.iter().any(|file| fs.store().offload().is_folded(&Key::inode(*file))), "{outcome:?}");
    let keys = fs.offload().reload_below(&caller(6), middle).unwrap();
    assert!(keys > 0 && keys < outcome.keys, "{keys} of {outcome:?}");
    volume.set_fault(Some(VolumeFault::Away));
    for file in files {
        assert!(
            !fs.store().offload().is_folded(&Key::inode(file))
                && !fs.store().offload().is_folded(&Key::extent(file, 0))
        );
    }
    assert_eq!(listed(&fs, find(&fs, middle, &["deep"])).unwrap().len(), FILES);
    assert!(fs.store().offload().has_folds());
}

/// What is changed comes back first, and is put away as it is then; removing works all the way up.
#[test]
fn changes_and_removals_below() {
    let (rig, fs, volume, cold) = world();
    offload_below(&fs, cold);
    let deep = find(&fs, cold, &["2", "deep"]);
    let file = find(&fs, deep, &["file 7"]);
    fs.write(&caller(7), file, 0, b"changed", false).unwrap();
    fs.unlink(&caller(7), deep, b"file 8").unwrap();
    fs.syncfs(&caller(7)).unwrap();
    let stays = fs.offload().offload_below(&caller(8), cold).unwrap();
    assert!(stays.staying > 0, "it is on devices: {stays:?}");
    fs.reconciler().reconcile(&caller(8), cold).unwrap();
    reconcile(&fs);
    let outcome = offload_below(&fs, cold);
    assert_eq!(outcome.staying, 0, "{outcome:?}");
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume, None, true).unwrap();
    let mut bytes = vec![0; 7];
    fs.read(&caller(9), file, 0, &mut bytes).unwrap();
    assert_eq!(bytes, b"changed", "by its number, as the kernel asks");
    assert_eq!(listed(&fs, deep).unwrap().len(), FILES - 1);
    offload_below(&fs, cold);
    remove_all(&fs, cold);
    fs.rmdir(&caller(9), ROOT, b"cold").unwrap();
    fs.syncfs(&caller(9)).unwrap();
    while fs.step(&caller(20), 100).unwrap() {}
    fs.store().checkpoint().unwrap();
    assert!(!fs.store().offload().has_folds());
    assert_clean(&fs);
}

fn remove_all(fs: &FileSystem, directory: u64) {
    for (name, (_, mode, inode)) in listed(fs, directory).unwrap() {
        if FileKind::Directory.mode_bits() == mode & libc::S_IFMT {
            remove_all(fs, inode);
            fs.rmdir(&caller(9), directory, name.as_bytes()).unwrap();
        } else {
            fs.unlink(&caller(9), directory, name.as_bytes()).unwrap();
        }
    }
}

/// What the pool knows otherwise than by one name, or somebody uses, stays, and all directories above it.
#[test]
fn what_is_known_otherwise_stays() {
    let (_rig, fs, _volume, cold) = world();
    release(&fs, cold);
    let deep = |number: &str| find(&fs, cold, &[number, "deep"]);
    fs.link(&caller(5), find(&fs, deep("0"), &["file 0"]), ROOT, b"second name").unwrap();
    let open = find(&fs, deep("1"), &["file 5"]);
    let handle = fs.open(&caller(5), open, stere_naming::OpenFlags::default()).unwrap();
    set(&fs, deep("2"), "copies", "1");
    reconcile(&fs);
    release(&fs, cold);
    let outcome = fs.offload().offload_below(&caller(6), cold).unwrap();
    assert_eq!(outcome.staying, 3, "{outcome:?}");
    for (number, is_away) in [("0", false), ("1", false), ("2", false), ("3", true)] {
        let above = find(&fs, cold, &[number]);
        assert_eq!(fs.store().offload().is_folded(&Key::dirent(above, 1)), is_away, "{number}");
    }
    fs.release(&caller(6), open, handle).unwrap();
    assert_clean(&fs);
    assert_all_there(&fs, cold);
    let beside = mkdir(&fs, ROOT, "never archived");
    assert_eq!(fs.offload().offload_below(&caller(6), beside).unwrap_err().errno(), libc::EPERM);
}

/// P-141: where a volume is to have no names, none are put away on it.
#[test]
fn no_names_go_to_a_volume_without_metadata() {
    let (_rig, fs) = Rig::new(2, 96 << 20);
    let volume = add_volume(&fs);
    let cold = mkdir(&fs, ROOT, "cold");
    let below = mkdir(&fs, cold, "below");
    make(&fs, below, "secret", b"nobody is to know what it is called");
    fs.syncfs(&caller(2)).unwrap();
    set(&fs, cold, "tier", "cold");
    reconcile(&fs);
    release(&fs, cold);
    let requests = volume.requests();
    assert_eq!(fs.offload().offload_below(&caller(3), cold).unwrap_err().errno(), libc::EPERM);
    assert_eq!((fs.store().offload().has_folds(), volume.requests()), (false, requests));
}

/// P-141: what it frees, for the documents: `--nocapture` tells.
#[test]
fn metadata_on_devices_shrinks() {
    let (_rig, fs, _volume, cold) = world();
    release(&fs, cold);
    let before = metadata_bytes(&fs);
    let outcome = offload_below(&fs, cold);
    for _ in 0..3 {
        fs.store().checkpoint().unwrap();
    }
    let after = metadata_bytes(&fs);
    println!("{} files: {before} bytes of metadata alive before, {after} after; {outcome:?}", DIRECTORIES * FILES);
    assert!(after < before * 2 / 3, "{before} {after}");
}

fn metadata_bytes(fs: &FileSystem) -> u64 {
    let segments = fs.store().segments().all();
    let of_tree = segments.iter().filter(|segment| segment.kind == stere_format::SegmentKind::Meta);
    of_tree.map(|segment| segment.live_bytes()).sum()
}

/// P-85: a search asks no volume for anything: it passes over names that were put away, and finds them when they are back.
#[test]
fn searches_bring_nothing_back() {
    let (_rig, fs, volume, cold) = world();
    let count = |fs: &FileSystem, by_index: bool| {
        let search = fs.search().parse_search("size>1000").unwrap();
        let begun = match by_index {
            true => fs.search().find(&caller(9), ROOT, b"", search),
            false => fs.search().find_without_index(&caller(9), ROOT, b"", search),
        };
        let (mut find, mut count) = (begun.unwrap(), 0);
        while let Some(found) = find.step(&caller(9)).unwrap() {
            count += found.len();
        }
        count
    };
    let before = count(&fs, false);
    assert!(before > DIRECTORIES * 100, "{before}");
    offload_below(&fs, cold);
    let requests = volume.requests();
    assert_eq!((count(&fs, true), count(&fs, false), volume.requests()), (0, 0, requests));
    assert!(fs.offload().reload_below(&caller(9), cold).unwrap() > 0);
    assert_eq!((count(&fs, true), count(&fs, false)), (before, before));
    assert_clean(&fs);
}

/// P-152: content of files whose names are away comes back with that of others; it goes again with theirs, and is nobody else's.
#[test]
fn what_came_back_goes_though_names_in_it_are_away() {
    let (_rig, fs, _volume, cold) = world();
    offload_below(&fs, cold);
    let named = find(&fs, cold, &["0"]);
    fs.offload().reload_below(&caller(6), named).unwrap();
    let file = find(&fs, named, &["deep", "file 140"]);
    let segments = segments_of(&fs, named);
    fs.tiers().bring_back(&caller(6), &segments_of(&fs, file), &[file]).unwrap();
    settle(&fs);
    let is_here = |segment: &u64| fs.store().segments().get(*segment).is_some_and(|segment| !segment.is_released());
    let here: BTreeSet<u64> = segments.iter().copied().filter(is_here).collect();
    let away = |inode: &u64| fs.store().offload().is_folded(&Key::inode(*inode));
    let members = |segment: &u64| fs.store().tier.heat.members_of_segment(*segment).unwrap().inodes;
    assert!(
        here.iter().any(|segment| members(segment).keys().any(away)),
        "others whose names are away lie in {here:?}"
    );
    let staying = fs.eviction().staying_among(&caller(2000), &here, Some(named)).unwrap();
    assert!(staying.of_others.is_empty() && staying.pinned.is_empty(), "{here:?} {staying:?}");
    // Who keeps a part of it here is somebody else.
    let beside = make(&fs, ROOT, "shares", b"");
    let size = fs.getattr(&caller(7), file).unwrap().size;
    assert_eq!(fs.copy_range(&caller(7), file, 0, beside, 0, size).unwrap(), size);
    fs.syncfs(&caller(7)).unwrap();
    let staying = fs.eviction().staying_among(&caller(2000), &here, Some(named)).unwrap();
    assert!(!staying.of_others.is_empty(), "{here:?} {staying:?}");
    assert_clean(&fs);
}
