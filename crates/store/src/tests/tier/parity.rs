//! P-305: what is archived lies on devices as its policy says, parity included, before it is released and after it came back.

use super::*;
use crate::tests::{content, read_file};
use stere_format::Scheme;

/// Files of 2+1, small and large, that are on a volume too.
fn archived_with_parity() -> (Rig, Store, Arc<MemoryVolume>, Files) {
    let (rig, store, volume) = with_volume_beside(4);
    let sizes = [1, 4096, 31 << 10, 65_537, 900_000, 900_000, 3_000_000];
    let files: Files = (10..).zip(sizes).map(|(inode, bytes)| (inode, placement(2, 1), bytes)).collect();
    write(&store, &files);
    archive(&store, &files, 1).unwrap();
    settle(&store);
    (rig, store, volume, files)
}

fn schemes(store: &Store, files: &Files) -> BTreeSet<Scheme> {
    segments_of(store, files).iter().map(|id| store.segments().get(*id).unwrap().scheme).collect()
}

/// Down, released, read by ranges and whole, back, and a device lost afterwards: the scheme holds all the time.
#[test]
fn parity_goes_down_and_comes_back() {
    let (rig, store, volume, files) = archived_with_parity();
    let wanted = BTreeSet::from([Scheme { data: 2, parity: 1 }]);
    assert_eq!(schemes(&store, &files), wanted);
    let is_two = |name: &String| stere_format::data_chunks_of_object(name) == Some(2);
    let objects: Vec<String> = volume.objects().into_iter().filter(|name| name.starts_with("segments/")).collect();
    assert!(!objects.is_empty() && objects.iter().all(is_two), "{objects:?}");
    let segments = segments_of(&store, &files);
    let swept = store.tier.sweeper.sweep_volume(0, true).unwrap();
    assert_eq!((swept.objects, swept.damaged.len(), swept.lacking.len()), (segments.len() as u64, 0, 0));
    assert_eq!(store.tier.stager.release(&segments).unwrap().segments, segments.len() as u64);
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    for (inode, _, bytes) in &files {
        // Within one record each.
        let first = (*bytes).min(128 << 10);
        for at in [0, first / 3, first - 1] {
            let length = (first - at).min(5000);
            let read = read_range(&store, *inode, at, length).unwrap();
            assert_eq!(read, content(*inode, *bytes)[at..at + length], "file {inode} from {at} on");
        }
    }
    assert_readable(&store, &files);
    assert!(is_released(&store, &files));
    store.tier.recalls.want_back(&segments);
    settle(&store);
    assert!(!is_released(&store, &files));
    assert_eq!(schemes(&store, &files), wanted);
    assert_complete(&store, &[]);
    assert_clean(&store);
    store.close().unwrap();
    drop(store);
    for lost in 0..4 {
        let left: Vec<u16> = (0..4).filter(|index| *index != lost).collect();
        let store = rig.copy().open(&left);
        assert_readable(&store, &files);
        assert_eq!(store.tier.recalls.tertiary_counts().fetches, 0, "devices are enough without {lost}");
    }
}

/// One byte of an object is wrong: nothing wrong is read, and nothing of it comes to devices.
#[test]
fn a_damaged_object_with_parity_is_noticed() {
    let (_rig, store, volume, files) = archived_with_parity();
    let segments = segments_of(&store, &files);
    store.tier.stager.release(&segments).unwrap();
    let names: Vec<String> = volume.objects().into_iter().filter(|name| name.starts_with("segments/")).collect();
    for name in names {
        volume.tamper(&name, |bytes| {
            bytes[4096 + 512] ^= 1;
            true
        });
    }
    let mut refused = 0;
    for (inode, _, bytes) in &files {
        match read_file(&store, *inode, *bytes) {
            Ok(read) => assert_eq!(read, content(*inode, *bytes), "file {inode}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0, "what is damaged is not given");
    let swept = store.tier.sweeper.sweep_volume(0, true).unwrap();
    assert_eq!(swept.damaged.len(), segments.len());
    store.tier.recalls.want_back(&segments);
    settle(&store);
    assert!(is_released(&store, &files), "what is damaged comes back to no device");
}

/// What was moved together by repacking keeps its scheme, too.
#[test]
fn repacking_keeps_parity() {
    let (_rig, store, _volume, files) = archived_with_parity();
    store.tier.stager.release(&segments_of(&store, &files)).unwrap();
    let (mut moved, (gone, left)) = (0, files.split_at(5));
    gone.iter().for_each(|(inode, _, _)| crate::tests::remove_file(&store, *inode));
    store.commit(Io::BLOCKING).unwrap();
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    while {
        let done = store.tier.repacker.repack_step(1, 95, &crate::Belonging::NONE, &describe).unwrap();
        moved += done.segments_emptied;
        done.waits_for.is_none() && done.segments_emptied + done.segments_left > 0
    } {}
    assert!(moved > 0, "something was packed anew");
    let left: Files = left.to_vec();
    assert_eq!(schemes(&store, &left), BTreeSet::from([Scheme { data: 2, parity: 1 }]));
    assert_readable(&store, &left);
    assert_clean(&store);
}
