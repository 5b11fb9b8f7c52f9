//! P-146: what was recalled together comes together the next time, never in the way of those who ask; and is repacked side by side.

use std::sync::atomic::Ordering;

use super::beside::{EndFetching, Held, LetGo};
use super::*;
use crate::tests::remove_file;
use crate::{Belonging, Prefetch};

/// Twelve files of about a segment each, on a volume only.
fn twelve() -> (Rig, Store, Arc<Held>, Files, Vec<u64>) {
    let (rig, store) = Rig::new(&[64 * MIB; 2]);
    let volume = Held::new("cold");
    store.tier.media.add_volume(entry("cold", 3), volume.clone(), "tank", false).unwrap();
    let files: Files = (10..22).map(|inode| (inode, placement(1, 1), 900_000)).collect();
    write(&store, &files);
    archive(&store, &files, 1).unwrap();
    settle(&store);
    let segments = segments_of(&store, &files);
    store.tier.stager.release(&segments).unwrap();
    store.checkpoint().unwrap();
    (rig, store, volume, files, segments)
}

/// A file that begins in this segment, and where in it.
fn in_segment(store: &Store, files: &Files, segment: u64) -> (u64, usize) {
    for (inode, _, _) in files {
        for (number, blob) in blobs_of(store, *inode).into_iter().enumerate() {
            let blob = store.view(Io::BLOCKING, |view| view.blob(blob)).unwrap();
            if blob.segment_id() == segment {
                return (*inode, number * (128 << 10));
            }
        }
    }
    panic!("segment {segment} is nobody's");
}

fn touch(store: &Store, files: &Files, segment: u64) {
    let (inode, at) = in_segment(store, files, segment);
    assert_eq!(read_range(store, inode, at, 4096).unwrap(), content(inode, 900_000)[at..at + 4096]);
}

fn let_go(store: &Store, segments: &[u64]) {
    segments.iter().for_each(|id| store.volumes().forget_fetched(*id));
}

/// With threads that fetch while `act` is done; then whoever is under way ends.
fn with_threads(store: &Store, volume: &Held, count: usize, act: impl FnOnce()) {
    let fetches = &store.volumes().fetches;
    std::thread::scope(|scope| {
        let _end = (EndFetching(store), LetGo(volume));
        (0..count).for_each(|_| drop(scope.spawn(|| store.tier.recalls.fetch_for_readers())));
        while fetches.idle_threads() < count {
            std::thread::yield_now();
        }
        act();
        while store.tier.recalls.is_fetching() || fetches.idle_threads() < count {
            std::thread::yield_now();
        }
    });
}

#[test]
fn what_was_recalled_together_comes_together() {
    let (rig, store, volume, files, segments) = twelve();
    let order = [segments[1], segments[6], segments[3]];
    store.tier.recalls.note_time(100);
    order.iter().for_each(|id| touch(&store, &files, *id));
    // An hour later it is somebody else's.
    store.tier.recalls.note_time(3700);
    touch(&store, &files, segments[8]);
    assert_eq!(store.tier.recalls.recalled_after(order[0]), [order[1]]);
    assert_eq!(store.tier.recalls.recalled_after(order[1]), [order[2]]);
    assert_eq!(store.tier.recalls.recalled_after(order[2]), []);
    settle(&store);
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0, 1]);
    store.tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
    assert_eq!(store.tier.recalls.recalled_after(order[0]), [order[1]], "it is known after a mount");
    for (prefetch, is_fetched) in [(Prefetch::Nothing, false), (Prefetch::Sequence, false), (Prefetch::Cluster, true)] {
        let_go(&store, &segments);
        store.tier.recalls.note_time(9000 + prefetch as u64 * 1000);
        store.tier.recalls.set_prefetch(prefetch);
        store.volumes().fetches.reopen();
        with_threads(&store, &volume, 4, || {
            touch(&store, &files, order[0]);
            for id in [order[1], order[2]] {
                while is_fetched && !store.volumes().fetches.is_there(id) {
                    std::thread::yield_now();
                }
            }
        });
        for id in [order[1], order[2]] {
            assert_eq!(store.volumes().fetches.is_there(id), is_fetched, "{prefetch:?}");
        }
        assert!(!store.volumes().fetches.is_there(segments[8]));
    }
    settle(&store);
    assert!(
        order.iter().all(|id| store.segments().get(*id).unwrap().is_released()),
        "nobody read it, so it takes no room"
    );
    let before = volume.inner.requests();
    touch(&store, &files, order[1]);
    assert_eq!(volume.inner.requests(), before);
    assert_readable(&store, &files);
    assert_clean(&store);
}

/// What somebody asks for does not wait for what nobody did.
#[test]
fn who_asks_comes_first() {
    let (_rig, store, volume, files, segments) = twelve();
    for after in &segments[4..8] {
        let_go(&store, &segments);
        touch(&store, &files, segments[0]);
        touch(&store, &files, *after);
    }
    assert_eq!(store.tier.recalls.recalled_after(segments[0]).len(), 4);
    let_go(&store, &segments);
    store.tier.recalls.set_prefetch(Prefetch::Cluster);
    let streams = volume.streams.load(Ordering::SeqCst);
    volume.give_pieces(0);
    with_threads(&store, &volume, 4, || {
        touch(&store, &files, segments[0]);
        let start = std::time::Instant::now();
        while volume.streams.load(Ordering::SeqCst) < streams + 2 || store.volumes().fetches.idle_threads() != 2 {
            assert!(start.elapsed().as_secs() < 60, "two threads are left for those who ask");
            std::thread::yield_now();
        }
        // Two threads hold what nobody asked for, the others wait for work; a reader of something else is served by one of them.
        let reader = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                touch(&store, &files, segments[10]);
                touch(&store, &files, segments[10]);
            });
            while volume.streams.load(Ordering::SeqCst) < streams + 3 {
                std::thread::yield_now();
            }
            volume.give_pieces(usize::MAX);
            reader.join()
        });
        reader.unwrap();
    });
}

/// The table is bounded, and what was often so is not forgotten for what was once.
#[test]
fn the_table_stays_small() {
    let (_rig, store, _, files, segments) = twelve();
    for round in 0..3 {
        for after in [1, 1, 1, 2 + round] {
            let_go(&store, &segments);
            touch(&store, &files, segments[0]);
            touch(&store, &files, segments[after]);
        }
    }
    for after in 5..10 {
        let_go(&store, &segments);
        touch(&store, &files, segments[0]);
        touch(&store, &files, segments[after]);
    }
    let followers = store.tier.recalls.recalled_after(segments[0]);
    assert_eq!((followers.len(), followers[0]), (4, segments[1]));
    settle(&store);
    for (inode, _, _) in &files {
        remove_file(&store, *inode);
    }
    (0..3).for_each(|_| store.checkpoint().unwrap());
    settle(&store);
    assert_clean(&store);
}

/// What is alive in segments that were recalled together is side by side afterwards.
#[test]
fn repacking_puts_together_what_was_recalled_together() {
    let (_rig, store, volume) = with_volume();
    let files: Files = (100..200).map(|inode| (inode, placement(1, 1), 60_000)).collect();
    write(&store, &files);
    archive(&store, &files, 1).unwrap();
    settle(&store);
    let segments = segments_of(&store, &files);
    assert!(segments.len() > 5, "{segments:?}");
    store.tier.stager.release(&segments).unwrap();
    store.checkpoint().unwrap();
    // Of each segment one file stays.
    let mut alive: Vec<(u64, Placement, usize)> = Vec::new();
    for file in files {
        let own = segments_of(&store, &[file]);
        let is_first = own.len() == 1 && !alive.iter().any(|known| segments_of(&store, &[*known]) == own);
        if is_first { alive.push(file) } else { remove_file(&store, file.0) }
    }
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    let together = [alive[4], alive[0], alive[3]];
    for file in together {
        read_range(&store, file.0, 0, 4096).unwrap();
    }
    while store.tier.repacker.repack_step(1, 50, &Belonging::NONE, &describe).unwrap().segments_emptied > 0 {}
    let place = |file: &(u64, Placement, usize)| {
        let blob = store.view(Io::BLOCKING, |view| view.blob(blobs_of(&store, file.0)[0])).unwrap();
        let address = blob.value.address;
        (address.segment, address.row_block, address.offset)
    };
    let mut places: Vec<_> = alive.iter().map(|file| (place(file), file.0)).collect();
    places.sort_unstable();
    let order: Vec<u64> = places.into_iter().map(|(_, inode)| inode).collect();
    let first = order.iter().position(|inode| *inode == together[0].0).unwrap();
    assert_eq!(order[first..][..3], together.map(|(inode, _, _)| inode), "{order:?}");
    assert_readable(&store, &alive);
    assert_clean(&store);
    drop(volume);
}
