//! P-96: a file that is read from its beginning costs a request in each segment that it lies in.

use std::sync::atomic::Ordering;

use stere_device::Volume;

use super::beside::{EndFetching, Held, LetGo, until};
use super::*;
use crate::BlobHandle;

/// Files of these lengths on a volume only.
fn on_volume_only(lengths: &[usize]) -> (Rig, Store, Arc<Held>, Files) {
    on_volume_of(64 * MIB, lengths)
}

fn on_volume_of(device_bytes: u64, lengths: &[usize]) -> (Rig, Store, Arc<Held>, Files) {
    let (rig, store) = Rig::new(&[device_bytes; 2]);
    let volume = Held::new("cold");
    store.tier.media.add_volume(entry("cold", 3), volume.clone() as Arc<dyn Volume>, "tank", false).unwrap();
    let files: Files = (20..).zip(lengths).map(|(inode, length)| (inode, placement(1, 1), *length)).collect();
    write(&store, &files);
    archive(&store, &files, 1).unwrap();
    settle(&store);
    store.tier.stager.release(&segments_of(&store, &files)).unwrap();
    store.checkpoint().unwrap();
    (rig, store, volume, files)
}

fn expect(store: &Store, inode: u64) {
    let handle = |id: u64| store.view(Io::BLOCKING, |view| view.blob(id)).unwrap();
    let blobs: Vec<BlobHandle> = blobs_of(store, inode).into_iter().map(handle).collect();
    store.tier.recalls.expect(Io::BLOCKING, &blobs);
}

/// Reads it as the kernel does; how many requests that took.
fn read_through(store: &Store, volume: &Held, inode: u64, length: usize) -> u64 {
    let before = volume.inner.requests();
    let expected = content(inode, length);
    for at in (0..length).step_by(32 << 10) {
        let end = (at + (32 << 10)).min(length);
        assert_eq!(read_range(store, inode, at, end - at).unwrap(), expected[at..end], "{inode} at {at}");
    }
    volume.inner.requests() - before
}

#[test]
fn a_file_from_its_beginning_is_one_request_a_segment() {
    let (_rig, store, volume, files) = on_volume_only(&[100_000, 200_000, 900_000, 2_500_000]);
    let mut is_any_in_several = false;
    for (inode, placement, length) in files {
        // Each as if nobody had read anything yet.
        segments_of(&store, &[(inode, placement, length)]).iter().for_each(|id| store.volumes().forget_fetched(*id));
        expect(&store, inode);
        let segments = segments_of(&store, &[(inode, placement, length)]).len() as u64;
        is_any_in_several |= segments > 2;
        assert_eq!(read_through(&store, &volume, inode, length), segments, "file {inode} of {length}");
    }
    assert!(is_any_in_several);
    assert_clean(&store);
}

/// Several files of one segment, or one a second time, are reasons to have all of it.
#[test]
fn what_is_read_again_comes_whole() {
    let (_rig, store, volume, files) = on_volume_only(&[100_000; 5]);
    assert_eq!(segments_of(&store, &files).len(), 1);
    expect(&store, 21);
    assert_eq!(read_through(&store, &volume, 21, 100_000), 1);
    settle(&store);
    assert!(is_released(&store, &files), "one reader of a small part is no reason to bring the segment back");
    expect(&store, 21);
    assert_eq!(read_through(&store, &volume, 21, 100_000), 1);
    let segment = segments_of(&store, &files)[0];
    assert!(store.volumes().fetches.kept(segment).is_some());
    for inode in [20, 22, 23, 24] {
        expect(&store, inode);
        assert_eq!(read_through(&store, &volume, inode, 100_000), 0);
    }
    settle(&store);
    assert!(!is_released(&store, &files));
    assert_clean(&store);
}

/// The reader has his bytes before the rest of the range has arrived, and nothing is asked for twice.
#[test]
fn readers_of_a_beginning_do_not_wait_for_the_rest() {
    let (_rig, store, volume, files) = on_volume_only(&[200_000, 400_000, 300_000]);
    assert_eq!(segments_of(&store, &files).len(), 1);
    volume.give_pieces(1);
    std::thread::scope(|scope| {
        let _end = (EndFetching(&store), LetGo(&volume));
        scope.spawn(|| store.tier.recalls.fetch_for_readers());
        while store.volumes().fetches.idle_threads() == 0 {
            std::thread::yield_now();
        }
        let before = volume.inner.requests();
        expect(&store, 21);
        let expected = content(21, 400_000);
        assert_eq!(read_range(&store, 21, 0, 65_536).unwrap(), expected[..65_536]);
        let behind = scope.spawn(|| read_range(&store, 21, 300_000 / 4096 * 4096, 4096).unwrap());
        assert!(store.tier.recalls.is_fetching(), "the volume stands still behind the first piece");
        volume.give_pieces(usize::MAX);
        let at = 300_000 / 4096 * 4096;
        assert_eq!(behind.join().unwrap(), expected[at..at + 4096]);
        for at in (0..400_000).step_by(50_000).map(|at| at / 4096 * 4096) {
            assert_eq!(read_range(&store, 21, at, 4096).unwrap(), expected[at..at + 4096]);
        }
        assert_eq!((volume.inner.requests() - before, volume.streams.load(Ordering::SeqCst)), (1, 1));
    });
    assert_readable(&store, &files);
}

/// A range that cannot be had, or has wrong bytes, is no reason to fail where another copy is right.
#[test]
fn a_wrong_range_is_asked_for_elsewhere() {
    let (_rig, store, volume, files) = on_volume_only(&[100_000, 900_000]);
    let other = Arc::new(MemoryVolume::new("second"));
    add(&store, "second", &other);
    archive(&store, &files, 3).unwrap();
    settle(&store);
    store.tier.stager.release(&segments_of(&store, &files)).unwrap();
    let objects: Vec<String> =
        volume.inner.objects().into_iter().filter(|name| name.starts_with("segments/")).collect();
    for name in objects {
        volume.inner.tamper(&name, |bytes| {
            bytes[4096..].iter_mut().for_each(|byte| *byte = !*byte);
            true
        });
    }
    for (inode, _, length) in &files {
        expect(&store, *inode);
        read_through(&store, &volume, *inode, *length);
    }
    volume.inner.set_fault(Some(VolumeFault::Away));
    for (inode, _, length) in &files {
        expect(&store, *inode);
        read_through(&store, &volume, *inode, *length);
    }
}

/// Who goes on through his part of a segment waits for what is on its way, as far ahead as he reads; who jumps asks for what he wants.
#[test]
fn what_is_on_its_way_is_asked_for_once() {
    const MEGABYTE: usize = 1 << 20;
    // In the middle of a segment, and as most of one.
    for lengths in [[2 * MEGABYTE, 5 * MEGABYTE].as_slice(), &[5 * MEGABYTE]] {
        let (_rig, store, volume, files) = on_volume_of(LARGE_BYTES, lengths);
        let (inode, _, length) = *files.last().unwrap();
        let expected = content(inode, length);
        let segments = segments_of(&store, &files[files.len() - 1..]);
        assert_eq!(segments.len(), 1);
        for jumps in [false, true] {
            store.volumes().forget_fetched(segments[0]);
            store.volumes().fetches.reopen();
            volume.give_pieces(1);
            std::thread::scope(|scope| {
                let _end = (EndFetching(&store), LetGo(&volume));
                scope.spawn(|| store.tier.recalls.fetch_for_readers());
                until(|| store.volumes().fetches.idle_threads() == 1);
                let before = volume.inner.requests();
                expect(&store, inode);
                assert!(read_range(&store, inode, 0, 65_536).unwrap() == expected[..65_536]);
                if jumps {
                    let at = 4 * MEGABYTE;
                    let reader = scope.spawn(|| read_range(&store, inode, 4 * MEGABYTE, 4096).unwrap());
                    until(|| reader.is_finished());
                    assert!(reader.join().unwrap() == expected[at..at + 4096]);
                    assert_eq!(volume.inner.requests() - before, 2, "what lies far behind is not waited for");
                    return;
                }
                let mut readers = Vec::new();
                for from in (MEGABYTE..length).step_by(MEGABYTE) {
                    let (store, expected) = (&store, &expected);
                    readers.push(scope.spawn(move || {
                        assert!(read_range(store, inode, from, 4096).unwrap() == expected[from..from + 4096], "{from}");
                    }));
                    // In this order.
                    until(|| store.volumes().asked_on_end(segments[0]) > from);
                }
                volume.give_pieces(usize::MAX);
                readers.into_iter().for_each(|reader| reader.join().unwrap());
                assert_eq!((volume.inner.requests() - before, volume.streams.load(Ordering::SeqCst)), (1, 1));
            });
            volume.streams.store(0, Ordering::SeqCst);
        }
        assert_clean(&store);
    }
}
