//! Several threads at volumes: copying out side by side, and readers who go on while the rest of their segment is on its way.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use stere_device::{Cancellation, MediumWait, PIECE_BYTES, Take, Volume, VolumeError};

use super::*;

/// A volume that holds puts until so many are under way, and gives so many pieces of an object before it is let go on.
pub(super) struct Held {
    pub inner: MemoryVolume,
    puts: AtomicUsize,
    puts_most: AtomicUsize,
    pieces: Mutex<usize>,
    let_go: Condvar,
    pub streams: AtomicUsize,
    /// So many pieces of an object are wrong on the way, however right it is where it lies.
    pub wrong_pieces: AtomicUsize,
    /// Whether it begins anywhere.
    pub begins_anywhere: AtomicBool,
    /// Streams that ended because nobody wanted them any more.
    pub given_up: AtomicUsize,
}

impl Held {
    pub fn new(name: &str) -> Arc<Held> {
        Arc::new(Held {
            inner: MemoryVolume::new(name),
            puts: AtomicUsize::new(0),
            puts_most: AtomicUsize::new(0),
            pieces: Mutex::new(usize::MAX),
            let_go: Condvar::new(),
            streams: AtomicUsize::new(0),
            wrong_pieces: AtomicUsize::new(0),
            given_up: AtomicUsize::new(0),
            begins_anywhere: AtomicBool::new(false),
        })
    }

    pub fn give_pieces(&self, count: usize) {
        *self.pieces.lock() = count;
        self.let_go.notify_all();
    }
}

impl Volume for Held {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        let under_way = self.puts.fetch_add(1, Ordering::SeqCst) + 1;
        self.puts_most.fetch_max(under_way, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
        let outcome = self.inner.put(object, bytes);
        self.puts.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        self.inner.get(object, offset, into, wait)
    }

    fn stream(&self, object: &str, length: usize, take: &Take, cancellation: &Cancellation) -> Result<(), VolumeError> {
        self.stream_part(object, 0, length, take, cancellation)
    }

    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        self.streams.fetch_add(1, Ordering::SeqCst);
        let mut bytes = vec![0; length];
        self.inner.get(object, offset, &mut bytes, &MediumWait::NONE)?;
        for (number, piece) in bytes.chunks_mut(PIECE_BYTES).enumerate() {
            let mut pieces = self.pieces.lock();
            while number >= *pieces {
                if cancellation.is_cancelled() {
                    self.given_up.fetch_add(1, Ordering::SeqCst);
                    return Err(VolumeError::GivenUp { volume: self.describe() });
                }
                self.let_go.wait_for(&mut pieces, Duration::from_millis(1));
            }
            drop(pieces);
            if number < self.wrong_pieces.load(Ordering::SeqCst) {
                piece.iter_mut().for_each(|byte| *byte ^= 0x55);
            }
            take(piece);
        }
        Ok(())
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.inner.length(object)
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        self.inner.delete(object)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        self.inner.list(prefix)
    }

    fn begins_at(&self, _: &str, offset: u64) -> Option<u64> {
        self.begins_anywhere.load(Ordering::SeqCst).then_some(offset / 65_536 * 65_536)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// Lent threads go home, whatever a test comes to.
pub(super) struct EndFetching<'a>(pub &'a Store);

impl Drop for EndFetching<'_> {
    fn drop(&mut self) {
        self.0.tier.recalls.end_fetching();
    }
}

/// And so does what a volume holds.
pub(super) struct LetGo<'a>(pub &'a Held);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.give_pieces(usize::MAX);
    }
}

/// Files enough for a good many segments.
fn many() -> Files {
    (10..22).map(|inode| (inode, placement(1, 1), 900_000)).collect()
}

/// P-60, P-96, with several who copy out: each segment once, proven, to all its volumes, which take theirs side by side.
#[test]
fn several_copy_out_side_by_side() {
    let (_rig, store) = Rig::new(&[64 * MIB; 2]);
    let volumes = [Held::new("one"), Held::new("other")];
    for volume in &volumes {
        store.tier.media.add_volume(entry(&volume.describe(), 3), volume.clone(), "tank", false).unwrap();
    }
    let files = many();
    write(&store, &files);
    archive(&store, &files, 3).unwrap();
    store.tier.step(true, &describe).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| while store.tier.upload_step(&describe).unwrap().is_busy {});
        }
    });
    settle(&store);
    let segments = segments_of(&store, &files);
    assert!(segments.len() > 4, "{segments:?}");
    for volume in &volumes {
        assert!(volume.puts_most.load(Ordering::SeqCst) > 1, "one at a time is not side by side");
        assert_eq!(volume.inner.objects().len(), 1 + 2 * segments.len());
        // Four for each segment (is it there, names, object, read back), and the label: is it there, written, read back.
        assert_eq!(volume.inner.requests(), 4 * segments.len() as u64 + 4, "nothing twice");
    }
    assert_eq!(store.tier.stager.release(&segments).unwrap().segments, segments.len() as u64);
    for away in &volumes {
        away.inner.set_fault(Some(VolumeFault::Away));
        assert_readable(&store, &files);
        away.inner.set_fault(None);
    }
    assert_clean(&store);
}

/// P-62, P-96: a volume that is away keeps nothing from the others.
#[test]
fn what_others_are_to_get_does_not_wait() {
    let (_rig, store) = Rig::new(&[64 * MIB; 2]);
    let volumes = [Held::new("one"), Held::new("other")];
    for volume in &volumes {
        store.tier.media.add_volume(entry(&volume.describe(), 3), volume.clone(), "tank", false).unwrap();
    }
    volumes[0].inner.set_fault(Some(VolumeFault::Away));
    let files = many();
    write(&store, &files);
    archive(&store, &files[..6], 3).unwrap();
    archive(&store, &files[6..], 2).unwrap();
    assert!(settle(&store).waits_for.is_some());
    let segments = segments_of(&store, &files);
    assert_eq!(volumes[1].inner.objects().len(), 1 + 2 * segments.len());
    volumes[0].inner.set_fault(None);
    assert_eq!(settle(&store).waits_for, None);
    assert_eq!(store.tier.stager.release(&segments).unwrap().segments, segments.len() as u64);
    assert_readable(&store, &files);
}

/// P-96: a reader goes on as soon as its range is there, the rest of the segment follows, and one read of the object serves all.
#[test]
fn readers_do_not_wait_for_the_rest() {
    let files = some();
    let (_rig, store, volume, segments) = standing_still(&files);
    let fetches = &store.volumes().fetches;
    std::thread::scope(|scope| {
        scope.spawn(|| store.tier.recalls.fetch_for_readers());
        while fetches.idle_threads() == 0 {
            std::thread::yield_now();
        }
        let before = volume.inner.requests();
        read_range(&store, 10, 0, 4096).unwrap();
        // The volume stands still behind the first piece.
        let read = |number: usize| read_range(&store, 10, 4096 * number, 4096).unwrap();
        let readers: Vec<_> = (1..5).map(|number| scope.spawn(move || read(number))).collect();
        let expected = content(10, 900_000);
        for (number, reader) in (1..5).zip(readers) {
            assert_eq!(reader.join().unwrap(), expected[4096 * number..4096 * (number + 1)]);
        }
        assert!(fetches.kept(segments[0]).is_none(), "the rest is on its way still");
        assert_eq!(volume.inner.requests() - before, 2, "the first read by itself, and one for all after it");
        assert_eq!(volume.streams.load(Ordering::SeqCst), 1);
        volume.give_pieces(usize::MAX);
        while fetches.kept(segments[0]).is_none() {
            std::thread::yield_now();
        }
        assert_readable(&store, &files);
        store.tier.recalls.end_fetching();
    });
    settle(&store);
    assert!(!store.segments().get(segments[0]).unwrap().is_released(), "it is back on devices");
    assert_readable(&store, &files);
    assert_clean(&store);
}

/// Who reads on through a segment finds the next one fetched.
#[test]
fn the_next_segment_is_fetched_ahead() {
    let (_rig, store) = Rig::new(&[64 * MIB; 2]);
    let volume = Held::new("cold");
    store.tier.media.add_volume(entry("cold", 3), volume.clone(), "tank", false).unwrap();
    let files = many();
    write(&store, &files);
    archive(&store, &files, 1).unwrap();
    settle(&store);
    let segments = segments_of(&store, &files);
    store.tier.stager.release(&segments).unwrap();
    let fetches = &store.volumes().fetches;
    std::thread::scope(|scope| {
        scope.spawn(|| store.tier.recalls.fetch_for_readers());
        while fetches.idle_threads() == 0 {
            std::thread::yield_now();
        }
        read_range(&store, 10, 0, 4096).unwrap();
        read_range(&store, 10, 4096, 4096).unwrap();
        while fetches.kept(segments[0]).is_none() || fetches.idle_threads() == 0 {
            std::thread::yield_now();
        }
        assert!(fetches.kept(segments[1]).is_none(), "nobody reads on");
        for at in (0..800_000).step_by(64 << 10) {
            read_range(&store, 10, at, 64 << 10).unwrap();
        }
        while fetches.kept(segments[1]).is_none() {
            std::thread::yield_now();
        }
        let streams = volume.streams.load(Ordering::SeqCst);
        read_range(&store, 11, 400_000 / 4096 * 4096, 4096).unwrap();
        assert_eq!(volume.streams.load(Ordering::SeqCst), streams, "it is there");
        store.tier.recalls.end_fetching();
    });
    assert_readable(&store, &files);
}

/// A volume with files that are on it only; it gives one piece of an object and then stands still.
fn standing_still(files: &Files) -> (Rig, Store, Arc<Held>, Vec<u64>) {
    standing_still_of_class(3, files)
}

fn standing_still_of_class(class: u8, files: &Files) -> (Rig, Store, Arc<Held>, Vec<u64>) {
    let (rig, store) = Rig::new(&[64 * MIB; 2]);
    let volume = Held::new("cold");
    store.tier.media.add_volume(entry("cold", class), volume.clone(), "tank", false).unwrap();
    write(&store, files);
    archive(&store, files, 1).unwrap();
    settle(&store);
    let segments = segments_of(&store, files);
    store.tier.stager.release(&segments).unwrap();
    volume.give_pieces(1);
    (rig, store, volume, segments)
}

/// With a lent thread that has nothing to do yet.
fn with_lent_thread(store: &Store, volume: &Held, work: impl FnOnce()) {
    std::thread::scope(|scope| {
        scope.spawn(|| store.tier.recalls.fetch_for_readers());
        let (_end, _let_go) = (EndFetching(store), LetGo(volume));
        until(|| store.volumes().fetches.idle_threads() == 1);
        work();
    });
}

pub(super) fn until(is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(30), "it does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// P-96: what arrives wrong is given to nobody, also while the rest is on its way: the reader asks for his own part, which is right.
#[test]
fn what_arrives_wrong_is_given_to_nobody() {
    let files = some();
    let (_rig, store, volume, segments) = standing_still(&files);
    volume.wrong_pieces.store(1, Ordering::SeqCst);
    with_lent_thread(&store, &volume, || {
        let expected = content(10, 900_000);
        for number in 0..5 {
            let found = read_range(&store, 10, 4096 * number, 4096).unwrap();
            assert!(found == expected[4096 * number..4096 * (number + 1)], "block {number} is wrong");
        }
        assert_eq!(volume.streams.load(Ordering::SeqCst), 1, "it arrived, and was not believed");
        assert!(store.volumes().fetches.is_under_way(segments[0]), "the rest is on its way still");
        // All of it is there, and wrong: it is not kept either.
        volume.give_pieces(usize::MAX);
        until(|| !store.volumes().fetches.is_under_way(segments[0]));
        assert!(store.volumes().fetches.kept(segments[0]).is_none());
    });
    volume.wrong_pieces.store(0, Ordering::SeqCst);
    assert_readable(&store, &files);
}

/// The same for a file's part of a segment.
#[test]
fn a_range_that_arrives_wrong_is_given_to_nobody() {
    // The second one lies in the middle of a segment, and is more than a piece.
    let files: Files = (10..13).map(|inode| (inode, placement(1, 1), 500_000)).collect();
    let (_rig, store, volume, _segments) = standing_still(&files);
    volume.wrong_pieces.store(1, Ordering::SeqCst);
    with_lent_thread(&store, &volume, || {
        let blobs = blobs_of(&store, 11).into_iter();
        let handles: Vec<_> = blobs.map(|id| store.view(Io::BLOCKING, |view| view.blob(id)).unwrap()).collect();
        store.tier.recalls.expect(Io::BLOCKING, &handles);
        let before = volume.streams.load(Ordering::SeqCst);
        let expected = content(11, 500_000);
        for number in 0..5 {
            let found = read_range(&store, 11, 4096 * number, 4096).unwrap();
            assert!(found == expected[4096 * number..4096 * (number + 1)], "block {number} is wrong");
        }
        assert_eq!(volume.streams.load(Ordering::SeqCst), before + 1, "it was asked for");
        assert!(store.tier.recalls.is_fetching(), "the rest is on its way still");
    });
}

/// P-146: what nobody asked for ends at once where nobody will: nothing of the segment is alive, the option changes, the mount ends, or
/// somebody who asks finds no thread. Who asked for it meanwhile keeps it.
#[test]
fn what_nobody_will_ask_for_ends() {
    let files = many();
    for reason in ["option", "end", "removed", "thread", "asked for"] {
        let (_rig, store, volume, segments) = standing_still(&files);
        with_lent_thread(&store, &volume, || {
            let segment = store.segments().get(segments[0]).unwrap();
            store.volumes().fetch_ahead(&segment);
            until(|| volume.streams.load(Ordering::SeqCst) == 1);
            match reason {
                "option" => store.tier.recalls.set_prefetch(crate::Prefetch::Nothing),
                "end" => store.tier.recalls.end_fetching(),
                "removed" => {
                    files.iter().for_each(|(inode, _, _)| crate::tests::remove_file(&store, *inode));
                    store.checkpoint().unwrap();
                }
                "thread" => {
                    assert!(!store.volumes().fetches.would_hand_over(&store.segments().get(segments[1]).unwrap()));
                }
                _ => {
                    // The second read of a segment asks for all of it.
                    let read = |at: usize| read_range(&store, 10, at, 4096).unwrap();
                    (0..3).for_each(|number| drop(read(4096 * number)));
                    store.tier.recalls.set_prefetch(crate::Prefetch::Nothing);
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(store.volumes().fetches.is_under_way(segments[0]), "somebody asked for it");
                    return;
                }
            }
            until(|| volume.given_up.load(Ordering::SeqCst) == 1);
            assert!(store.volumes().fetches.kept(segments[0]).is_none(), "{reason}");
        });
        let complaints = store.tier.media.volume_statuses().into_iter().filter_map(|status| status.complaint);
        assert_eq!(complaints.count(), 0, "{reason}: the volume did nothing wrong");
    }
}

/// On media that find blocks, who reads in the middle of a segment has his bytes before what lies before them; all of the segment is there
/// in the end, in order.
#[test]
fn the_middle_comes_first_where_media_find_it() {
    for begins_anywhere in [true, false] {
        // On media: a tape.
        let (_rig, store, volume, segments) = standing_still_of_class(4, &some());
        volume.begins_anywhere.store(begins_anywhere, Ordering::SeqCst);
        with_lent_thread(&store, &volume, || {
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| read_range(&store, 10, 602_112, 4096).unwrap());
                until(|| volume.streams.load(Ordering::SeqCst) > 0);
                if begins_anywhere {
                    assert!(reader.join().unwrap() == content(10, 900_000)[602_112..606_208]);
                    assert!(store.volumes().fetches.is_under_way(segments[0]), "the rest follows");
                    volume.give_pieces(usize::MAX);
                } else {
                    std::thread::sleep(Duration::from_millis(50));
                    assert!(!reader.is_finished(), "what lies before it comes first");
                    volume.give_pieces(usize::MAX);
                    assert!(reader.join().unwrap() == content(10, 900_000)[602_112..606_208]);
                }
            });
            until(|| store.volumes().fetches.kept(segments[0]).is_some());
            let streams = volume.streams.load(Ordering::SeqCst);
            for at in (0..800_000).step_by(65_536) {
                assert!(read_range(&store, 10, at, 4096).unwrap() == content(10, 900_000)[at..at + 4096], "at {at}");
            }
            assert_eq!(volume.streams.load(Ordering::SeqCst), streams, "all of it is there");
        });
        assert_eq!(store.tier.recalls.tertiary_counts().bad_objects, 0);
    }
}
