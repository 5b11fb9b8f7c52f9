//! Many threads on one store over slow devices: what was committed survives a power cut, every reader reads what was written,
//! a tiny memory never stops anybody for good. Then the races that were found so far, each alone.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stere_device::memory::Fault;
use stere_device::{Device, Operation};
use stere_format::{DeviceLayout, ExtentFlags, ExtentValue, Key, Scheme};
use stere_store::{Error, Io, Owner, Piece, Placement, Store};
use support::{CHUNK_BYTES, Random, Rig, SlowDevice, Watchdog, duration, seed, within};

const SINGLE: Placement =
    Placement { scheme: Scheme { data: 1, parity: 0 }, class: 1, site: stere_format::Site::ANYWHERE };
const COPIES: Placement =
    Placement { scheme: Scheme { data: 1, parity: 1 }, class: 2, site: stere_format::Site::ANYWHERE };
const PARITY: Placement =
    Placement { scheme: Scheme { data: 2, parity: 1 }, class: 3, site: stere_format::Site::ANYWHERE };
/// An extent of a file of the tests has room for the largest blob.
const EXTENT_BYTES: u64 = 128 << 10;

/// Bytes that tell whose they are.
fn content(inode: u64, extent: u64, version: u64, length: usize) -> Vec<u8> {
    let mut random = Random(inode << 40 ^ extent << 24 ^ version);
    let mut bytes = Vec::with_capacity(length + 24);
    for word in [inode, extent, version] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Reads one extent; its version, checked byte by byte.
fn read_extent(store: &Store, inode: u64, extent: u64) -> Option<u64> {
    let key = Key::extent(inode, extent * EXTENT_BYTES);
    let found = store.view(Io::BLOCKING, |view| {
        let Some(bytes) = view.get(&key)? else { return Ok::<_, Error>(None) };
        let value = ExtentValue::decode(&bytes).expect("an extent");
        Ok(Some((value, view.blob(value.blob)?)))
    });
    let (value, blob) = found.expect("a view")?;
    let mut out = vec![0; value.length as usize];
    let piece = Piece { blob, offset: 0, length: value.length, at: 0 };
    store.read_blobs(Io::BLOCKING, &[piece], &mut out).expect("what is in the map can be read");
    let version = u64::from_le_bytes(out[16..24].try_into().expect("eight bytes"));
    assert!(out == content(inode, extent, version, out.len()), "inode {inode}, extent {extent}, version {version}");
    Some(version)
}

/// Replaces an extent's content, or takes it away.
fn change_extent(
    store: &Store,
    placement: Placement,
    inode: u64,
    extent: u64,
    data: Option<&[u8]>,
) -> Result<(), Error> {
    let offset = extent * EXTENT_BYTES;
    let key = Key::extent(inode, offset);
    let new = match data {
        Some(data) => Some(store.append_blob(Io::BLOCKING, placement, Owner { inode, offset }, data)?),
        None => None,
    };
    store.update(Io::BLOCKING, |transaction| {
        if let Some(bytes) = transaction.get(&key)? {
            let old = ExtentValue::decode(&bytes).expect("an extent");
            transaction.release_blob(old.blob, 0..old.length)?;
        }
        match &new {
            Some(new) => {
                transaction.insert_blob(new);
                let value = ExtentValue {
                    blob: new.id,
                    blob_offset: 0,
                    length: new.length(),
                    flags: ExtentFlags::Plain,
                    charge: 0,
                };
                transaction.put(key, &value.encode());
            }
            None => transaction.delete(key),
        }
        Ok(())
    })
}

/// What an extent may be found to hold after a power cut: what was committed last, and all since.
type Model = Vec<Vec<Option<u64>>>;

struct Shared<'a> {
    store: &'a Store,
    watchdog: &'a Watchdog,
    until: Instant,
    load: Load,
}

/// How much the writers write.
#[derive(Clone, Copy)]
struct Load {
    writers: u64,
    /// Of each writer's file.
    extents: u64,
    blob_bytes_max: u64,
}

/// Writes a file of its own, commits, reads it back and looks into the others'.
fn writer(shared: &Shared<'_>, worker: u64, mut random: Random) -> Model {
    let (store, load) = (shared.store, shared.load);
    let placement = [SINGLE, COPIES, PARITY][worker as usize % 3];
    let inode = 100 + worker;
    let mut model: Model = vec![vec![None]; load.extents as usize];
    let mut version = 0;
    while Instant::now() < shared.until {
        let extent = random.below(load.extents);
        match random.below(16) {
            0..=7 => {
                version += 1;
                let length = 24 + random.below(load.blob_bytes_max - 24) as usize;
                let data = content(inode, extent, version, length);
                shared.watchdog.step(worker as usize, "reserving");
                let Ok(_room) = store.space().reserve(Io::BLOCKING, placement, EXTENT_BYTES) else { continue };
                shared.watchdog.step(worker as usize, "writing");
                change_extent(store, placement, inode, extent, Some(&data)).expect("room was reserved");
                model[extent as usize].push(Some(version));
            }
            8..=9 => {
                shared.watchdog.step(worker as usize, "deleting");
                change_extent(store, placement, inode, extent, None).expect("deleting needs no room");
                model[extent as usize].push(None);
            }
            10 => {
                shared.watchdog.step(worker as usize, "committing");
                store.commit(Io::BLOCKING).expect("a commit");
                model.iter_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
            }
            11..=13 => {
                shared.watchdog.step(worker as usize, "reading its own");
                let newest = model[extent as usize].last().expect("never empty");
                assert_eq!(read_extent(store, inode, extent), *newest, "inode {inode}, extent {extent}");
            }
            _ => {
                shared.watchdog.step(worker as usize, "reading another's");
                read_extent(store, 100 + random.below(load.writers), extent);
            }
        }
    }
    model
}

/// Runs writers and the background for a while; then checks, cuts the power, and checks what was committed.
fn stress(rig: &Rig, store: Store, seed: u64, load: Load) {
    let watchdog = Watchdog::new(load.writers as usize);
    let shared = Shared { store: &store, watchdog: &watchdog, until: Instant::now() + duration(), load };
    let over = AtomicBool::new(false);
    let models: Vec<Model> = std::thread::scope(|scope| {
        scope.spawn(|| watchdog.watch());
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let more = store.step(true).expect("a step");
                if !more {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        scope.spawn(|| {
            let mut random = Random(seed);
            while !over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(random.below(30)));
                store.checkpoint().expect("a checkpoint");
            }
        });
        let shared = &shared;
        let writers: Vec<_> = (0..load.writers)
            .map(|worker| scope.spawn(move || writer(shared, worker, Random(seed ^ worker << 32))))
            .collect();
        let outcomes: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        watchdog.end();
        outcomes.into_iter().map(|outcome| outcome.expect("a writer")).collect()
    });
    println!("{} steps, {:?}", watchdog.steps(), store.space().statistics(SINGLE.scheme));
    assert_eq!(store.checker.check(true).expect("the check runs").findings, []);
    let mut random = Random(!seed);
    let store = rig.crash(store, &mut random);
    for (worker, model) in models.iter().enumerate() {
        for (extent, versions) in model.iter().enumerate() {
            let found = read_extent(&store, 100 + worker as u64, extent as u64);
            assert!(versions.contains(&found), "writer {worker}, extent {extent}: {found:?}, not one of {versions:?}");
        }
    }
    assert_eq!(store.checker.check(true).expect("the check runs").findings, []);
    store.close().expect("the pool closes");
}

#[test]
fn what_was_committed_survives_whatever_runs_beside() {
    let seed = seed();
    let (rig, store) = Rig::new(3, 128 << 20, 32 << 20, seed, 300);
    stress(&rig, store, seed, Load { writers: 6, extents: 24, blob_bytes_max: EXTENT_BYTES });
}

#[test]
fn small_blobs_in_tiny_memory() {
    let seed = seed();
    let (rig, store) = Rig::new(3, 96 << 20, 1 << 20, seed, 100);
    stress(&rig, store, seed, Load { writers: 8, extents: 2000, blob_bytes_max: 8 << 10 });
}

#[test]
fn a_full_pool_stops_nobody_for_good() {
    let seed = seed();
    // The files together would be about 150 MiB, of three classes.
    let (rig, store) = Rig::new(1, 96 << 20, 8 << 20, seed, 50);
    stress(&rig, store, seed, Load { writers: 8, extents: 400, blob_bytes_max: EXTENT_BYTES });
}

/// A row whose first chunk has arrived before its second was submitted must not count as written.
#[test]
fn a_row_is_under_way_until_all_of_it_was_submitted() {
    let (rig, store) = Rig::new(2, 64 << 20, 64 << 20, 1, 0);
    change_extent(&store, COPIES, 100, 0, Some(&content(100, 0, 1, 64 << 10))).expect("a write");
    std::thread::scope(|scope| {
        rig.devices.iter().for_each(|device| device.gate.arm());
        let filler = scope.spawn(|| {
            for extent in 1..12 {
                change_extent(&store, COPIES, 100, extent, Some(&content(100, extent, 1, 128 << 10))).expect("a write");
            }
        });
        // The one with the first chunk is held behind its write; the other one has not been asked yet.
        let first = loop {
            match rig.devices.iter().find(|device| device.gate.is_held()) {
                Some(device) => break device,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        rig.devices.iter().for_each(|device| device.gate.disarm());
        store.step(false).expect("a step");
        // The copy that was written cannot be read now, the other one is not written yet.
        let refuse = |operation, _, _| (operation == Operation::Read).then_some(Fault::Error);
        first.memory.set_fault_hook(Some(Box::new(refuse)));
        let found = scope.spawn(|| read_extent(&store, 100, 0)).join();
        first.gate.open();
        filler.join().expect("the writer");
        assert_eq!(found.expect("the row is still in memory"), Some(1));
    });
}

/// Makes every write to the journal fail from now on, the first only after a while.
fn fail_journal(device: &SlowDevice) {
    let layout = DeviceLayout::for_size(device.size_bytes(), CHUNK_BYTES).expect("the size is possible");
    let journal = layout.journal_offset..layout.journal_offset + layout.journal_bytes;
    device.memory.set_fault_hook(Some(Box::new(move |operation, offset, _| {
        if operation != Operation::Write || !journal.contains(&offset) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(300));
        Some(Fault::Error)
    })));
}

/// Who waited for a commit that failed has not been made durable by the empty one that follows.
#[test]
fn a_commit_behind_a_failed_one_fails() {
    let (rig, store) = Rig::new(1, 64 << 20, 64 << 20, 1, 0);
    fail_journal(&rig.devices[0]);
    store
        .update(Io::BLOCKING, |transaction| {
            transaction.put(Key::extent(1, 0), b"a");
            Ok::<_, Error>(())
        })
        .expect("an update");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| store.commit(Io::BLOCKING));
        std::thread::sleep(Duration::from_millis(100));
        let second = scope.spawn(|| store.commit(Io::BLOCKING));
        assert!(first.join().expect("no panic").is_err());
        assert!(second.join().expect("no panic").is_err(), "its changes were lost with the first one's");
    });
}

/// A checkpoint that fails half-way leaves its overlay frozen; the next one in must not begin.
#[test]
fn a_checkpoint_behind_a_failed_one_fails() {
    let (rig, store) = Rig::new(1, 64 << 20, 64 << 20, 1, 0);
    fail_journal(&rig.devices[0]);
    store
        .update(Io::BLOCKING, |transaction| {
            transaction.put(Key::extent(1, 0), b"a");
            Ok::<_, Error>(())
        })
        .expect("an update");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| store.checkpoint());
        std::thread::sleep(Duration::from_millis(100));
        let others = [scope.spawn(|| store.checkpoint()), scope.spawn(|| store.close())];
        assert!(first.join().expect("no panic").is_err());
        for other in others {
            let _outcome = other.join().expect("no panic");
        }
    });
    assert!(store.failure().is_some());
}

/// Writers that add more while a commit looks whether the journal has room must not make it overwrite itself.
#[test]
fn the_journal_never_overflows() {
    let (_rig, store) = Rig::new(1, 64 << 20, 64 << 20, 1, 0);
    let value = vec![7u8; 8 << 10];
    let (until, next) = (Instant::now() + duration(), AtomicU64::new(0));
    within(duration() + Duration::from_secs(180), "commits beside writers", || {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while Instant::now() < until {
                        let updated = store.update(Io::BLOCKING, |transaction| {
                            for _ in 0..16 {
                                let position = next.fetch_add(1, Ordering::Relaxed) % 512;
                                transaction.put(Key::extent(7, position << 17), &value);
                            }
                            Ok::<_, Error>(())
                        });
                        updated.expect("an update");
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while Instant::now() < until {
                        store.commit(Io::BLOCKING).expect("a commit");
                    }
                });
            }
        });
    });
}

/// A call that needs more nodes at once than the cache holds comes to an end all the same.
#[test]
fn a_view_may_need_more_nodes_than_the_cache_holds() {
    const KEYS: u64 = 40_000;
    let (_rig, store) = Rig::new(1, 256 << 20, 1 << 20, 1, 0);
    let value = vec![7u8; 300];
    for start in (0..KEYS).step_by(500) {
        let updated = store.update(Io::BLOCKING, |transaction| {
            (start..start + 500).for_each(|index| transaction.put(Key::extent(7, index << 17), &value));
            Ok::<_, Error>(())
        });
        updated.expect("an update");
    }
    store.checkpoint().expect("a checkpoint");
    within(Duration::from_secs(300), "a view of 400 leaves", || {
        let seen = store.view(Io::BLOCKING, |view| {
            let mut seen = 0;
            for index in (0..KEYS).step_by(100) {
                seen += usize::from(view.get(&Key::extent(7, index << 17))?.is_some());
            }
            Ok::<_, Error>(seen)
        });
        assert_eq!(seen.expect("a view"), 400);
        let updated = store.update(Io::BLOCKING, |transaction| {
            for index in (0..KEYS).step_by(100) {
                transaction.get(&Key::extent(7, index << 17))?;
                transaction.delete(Key::extent(7, index << 17));
            }
            Ok::<_, Error>(())
        });
        updated.expect("an update");
    });
}
