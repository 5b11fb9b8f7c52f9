//! Pools whose journal and roots lie in a shared log, in memory here: what is acknowledged is found by the next owner, and whoever was
//! replaced writes nothing (P-240, P-241, P-242, P-243).

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use stere_journal::{Tail, TailWorld};
use stere_shared_log::{MemoryLog, SharedLog};
use stere_store::SharedLog as StoreLog;

use super::*;

const LEASE_MS: u64 = 4000;

/// Opens the log as another process does. Grants are put by whoever wants them.
fn tail_of(log: &MemoryLog, owner: u8) -> Arc<Tail> {
    tail_at(log, owner, &Arc::default())
}

/// The same, on a machine with this clock.
fn tail_at(log: &MemoryLog, owner: u8, clock: &Arc<AtomicU64>) -> Arc<Tail> {
    let clock = clock.clone();
    let now_ms = Arc::new(move || clock.load(Ordering::Relaxed));
    let world = TailWorld { now_ms, pause: Box::new(|_, tries| tries < 3), lease_ms: LEASE_MS, hold_ms: 30_000 };
    tail_in(log, owner, world)
}

fn tail_in(log: &MemoryLog, owner: u8, world: TailWorld) -> Arc<Tail> {
    let tail = Tail::open(Arc::new(log.another()), PoolId([9; 16]), [owner; 16], world).unwrap();
    let weak: Weak<Tail> = Arc::downgrade(&tail);
    tail.grants().set_on_wanted(Arc::new(move || {
        // Whoever waits for a grant that is not put hears it by his write.
        weak.upgrade().into_iter().for_each(|tail| drop(tail.put_grants()));
    }));
    tail
}

fn make_shared(log: &MemoryLog, sizes: &[u64]) -> Vec<Arc<MemoryDevice>> {
    let devices = memory_devices(sizes);
    let options = CreateOptions { tail: Some(tail_of(log, 1)), pool: Some(PoolId([9; 16])), ..options() };
    let store = create(new_devices(&devices), &options, &mut Counting(1)).unwrap();
    store.close().unwrap();
    devices
}

fn assemble_shared(log: &MemoryLog, owner: u8, devices: &[Arc<MemoryDevice>]) -> Result<Assembly, Error> {
    assemble_with(tail_of(log, owner), devices)
}

fn assemble_with(tail: Arc<Tail>, devices: &[Arc<MemoryDevice>]) -> Result<Assembly, Error> {
    let devices: Vec<&Arc<MemoryDevice>> = devices.iter().collect();
    let options = AssembleOptions { tail: Some(tail), ..AssembleOptions::default() };
    Assembly::with(candidates(&devices), &options)
}

fn open_shared(log: &MemoryLog, owner: u8, devices: &[Arc<MemoryDevice>]) -> crate::Opened {
    let options = OpenOptions { epoch_nonce: u32::from(owner), ..open_options() };
    assemble_shared(log, owner, devices).unwrap().open(&options, &nowhere).unwrap()
}

/// Opens the pool on a machine with this clock.
fn open_at(log: &MemoryLog, owner: u8, devices: &[Arc<MemoryDevice>], clock: &Arc<AtomicU64>) -> crate::Opened {
    let options = OpenOptions { epoch_nonce: u32::from(owner), ..open_options() };
    assemble_with(tail_at(log, owner, clock), devices).unwrap().open(&options, &nowhere).unwrap()
}

fn is_sound(store: &Store) -> bool {
    let report = store.checker.check(true).unwrap();
    // These tests write blobs, and no files that name them.
    report.findings.iter().all(|finding| finding.text.ends_with("is named by no file"))
}

#[test]
fn what_was_acknowledged_is_found_by_the_next_owner() {
    let log = MemoryLog::new();
    let devices = make_shared(&log, &[64 * MIB, 64 * MIB, 64 * MIB]);
    let scheme = Scheme { data: 1, parity: 1 };
    for owner in 2..6 {
        let opened = open_shared(&log, owner, &devices);
        assert_eq!(changes_in(&opened.store), usize::from(owner) - 2);
        change(&opened.store);
        write_blob(&opened.store, scheme, owner);
        // Without a word: it was killed.
        drop(opened);
    }
    let opened = open_shared(&log, 9, &devices);
    assert_eq!(changes_in(&opened.store), 4);
    assert!(is_sound(&opened.store));
    opened.store.close().unwrap();
    let opened = open_shared(&log, 10, &devices);
    assert!(opened.recovery.clean);
    assert_eq!(changes_in(&opened.store), 4);
}

#[test]
fn who_was_replaced_acknowledges_and_writes_nothing() {
    let log = MemoryLog::new();
    let devices = make_shared(&log, &[64 * MIB, 64 * MIB]);
    let old = open_shared(&log, 2, &devices);
    change(&old.store);
    let new = open_shared(&log, 3, &devices);
    change(&new.store);
    let before: Vec<Vec<u8>> = devices.iter().map(|device| contents(device)).collect();
    let changed: Result<(), stere_store::Error> = old.store.update(Io::BLOCKING, |transaction| {
        let inode = transaction.allocate_inode();
        transaction.put(Key::inode(inode), &[8; 16]);
        Ok(())
    });
    changed.unwrap();
    let error = old.store.commit(Io::BLOCKING).unwrap_err();
    assert!(error.is_replaced(), "{error}");
    // Not by another way either.
    assert!(old.store.checkpoint().is_err());
    drop(old.store.close());
    let after: Vec<Vec<u8>> = devices.iter().map(|device| contents(device)).collect();
    assert!(before == after, "who was replaced wrote to a device");
    drop(old);
    assert_eq!(changes_in(&new.store), 2);
    new.store.close().unwrap();
    let opened = open_shared(&log, 4, &devices);
    assert_eq!(changes_in(&opened.store), 2);
    assert!(is_sound(&opened.store));
}

/// Whoever hears it ends the process, and requests that are under way ask the log meanwhile.
#[test]
fn the_log_answers_while_its_loss_is_told() {
    let log = MemoryLog::new();
    let devices = make_shared(&log, &[64 * MIB, 64 * MIB]);
    let tail = tail_of(&log, 2);
    let (sender, told) = std::sync::mpsc::channel();
    let asked = tail.clone();
    tail.set_on_lost(Box::new(move |_| {
        let (tail, answer) = (asked.clone(), sender.clone());
        let asking = std::thread::spawn(move || answer.send(tail.check().is_err()).unwrap());
        let start = std::time::Instant::now();
        while !asking.is_finished() && start.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        sender.send(asking.is_finished()).unwrap();
    }));
    let candidates = candidates(&devices.iter().collect::<Vec<_>>());
    let options = AssembleOptions { tail: Some(tail), ..AssembleOptions::default() };
    let old = Assembly::with(candidates, &options).unwrap().open(&open_options(), &nowhere).unwrap();
    let new = open_shared(&log, 3, &devices);
    change(&new.store);
    drop(old.store.update(Io::BLOCKING, |transaction| {
        let inode = transaction.allocate_inode();
        transaction.put(Key::inode(inode), &[8; 16]);
        Ok::<(), stere_store::Error>(())
    }));
    assert!(old.store.commit(Io::BLOCKING).is_err());
    assert_eq!([told.recv(), told.recv()], [Ok(true), Ok(true)], "it was told while nobody could ask");
}

/// Slots that are given to a new segment, of all devices.
fn slots_in_use(store: &Store) -> Vec<(u16, u32)> {
    let segments = store.segments().all();
    segments.iter().flat_map(|segment| segment.chunks()).map(|place| (place.device, place.slot)).collect()
}

#[test]
fn slots_of_an_earlier_owner_are_left_alone() {
    let log = MemoryLog::new();
    let devices = make_shared(&log, &[64 * MIB, 64 * MIB]);
    let scheme = Scheme { data: 1, parity: 1 };
    let old = open_shared(&log, 2, &devices);
    write_blob(&old.store, scheme, 1);
    let of_old = slots_in_use(&old.store);
    let clock: Arc<AtomicU64> = Arc::default();
    let new = open_at(&log, 3, &devices, &clock);
    let known = slots_in_use(&new.store);
    for number in 2..12 {
        write_blob(&new.store, scheme, number);
    }
    new.store.checkpoint().unwrap();
    let foreign: Vec<(u16, u32)> = stere_stripe::slots_of(&tail_of(&log, 7).foreign()).collect();
    assert!(of_old.iter().any(|slot| foreign.contains(slot)), "what the old owner had open is remembered in roots");
    let fresh: Vec<(u16, u32)> = slots_in_use(&new.store).into_iter().filter(|slot| !known.contains(slot)).collect();
    assert!(!fresh.is_empty());
    let granted_to_old: Vec<(u16, u32)> = fresh.iter().filter(|slot| of_old.contains(slot)).copied().collect();
    assert!(granted_to_old.is_empty(), "{granted_to_old:?}");
    // The old one may still write there, until thirty seconds are over.
    clock.store(29_999, Ordering::Relaxed);
    assert_eq!(StoreLog::of(&new.store).release_foreign_slots(), 0);
    clock.store(30_000, Ordering::Relaxed);
    assert!(StoreLog::of(&new.store).release_foreign_slots() > 0);
    assert_eq!(StoreLog::of(&new.store).release_foreign_slots(), 0);
    // Also the owner after a close in order leaves alone what one before that was granted.
    drop(new);
    let third = open_shared(&log, 4, &devices);
    third.store.close().unwrap();
    assert!(!tail_of(&log, 5).foreign().is_empty());
    let clock: Arc<AtomicU64> = Arc::default();
    let fourth = open_at(&log, 5, &devices, &clock);
    assert_eq!(StoreLog::of(&fourth.store).release_foreign_slots(), 0);
    clock.store(30_000, Ordering::Relaxed);
    assert!(StoreLog::of(&fourth.store).release_foreign_slots() > 0);
    assert!(is_sound(&fourth.store));
    fourth.store.close().unwrap();
    assert!(tail_of(&log, 6).foreign().is_empty());
}

/// Opens the pool where a second passes with each pause.
fn open_patiently(log: &MemoryLog, owner: u8, devices: &[Arc<MemoryDevice>], clock: &Arc<AtomicU64>) -> crate::Opened {
    let (told, passing) = (clock.clone(), clock.clone());
    let pause = move |_: &str, tries| {
        passing.fetch_add(1000, Ordering::Relaxed);
        tries < 100
    };
    let now_ms = Arc::new(move || told.load(Ordering::Relaxed));
    let world = TailWorld { now_ms, pause: Box::new(pause), lease_ms: 1000 * LEASE_MS, hold_ms: 30_000 };
    let options = OpenOptions { epoch_nonce: u32::from(owner), ..open_options() };
    assemble_with(tail_in(log, owner, world), devices).unwrap().open(&options, &nowhere).unwrap()
}

#[test]
fn metadata_waits_for_room_that_is_held() {
    let log = MemoryLog::new();
    let devices = make_shared(&log, &[64 * MIB, 64 * MIB, 64 * MIB]);
    let clock: Arc<AtomicU64> = Arc::default();
    change(&open_patiently(&log, 2, &devices, &clock).store);
    // Each leaves what it was granted to nobody, for as long as it may still write there.
    for owner in 3..90 {
        let opened = open_patiently(&log, owner, &devices, &clock);
        opened.store.checkpoint().unwrap_or_else(|error| panic!("owner {owner}: {error}"));
        assert_eq!(opened.store.failure(), None, "owner {owner} stopped writing");
    }
    assert!(clock.load(Ordering::Relaxed) > 0, "there always was room that nobody held");
    let opened = open_patiently(&log, 90, &devices, &clock);
    assert_eq!(changes_in(&opened.store), 1);
    assert!(is_sound(&opened.store));
    opened.store.close().unwrap();
}

#[test]
fn an_older_log_is_refused() {
    let log = MemoryLog::new();
    let devices = make_shared(&log, &[64 * MIB, 64 * MIB]);
    let opened = open_shared(&log, 2, &devices);
    let restored_to = log.bounds().unwrap().next;
    change(&opened.store);
    opened.store.checkpoint().unwrap();
    drop(opened);
    log.cut_to(restored_to - 1);
    let before: Vec<Vec<u8>> = devices.iter().map(|device| contents(device)).collect();
    let error = assemble_shared(&log, 3, &devices).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("restored from an older state"), "{error}");
    let devices_of: Vec<&Arc<MemoryDevice>> = devices.iter().collect();
    let error = assemble(&devices_of).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("stere pool import"), "{error}");
    let after: Vec<Vec<u8>> = devices.iter().map(|device| contents(device)).collect();
    assert!(before == after, "a refusal changed a device");
}

#[test]
fn a_lost_answer_is_no_second_commit_and_an_absent_log_is_waited_for() {
    let log = MemoryLog::new();
    let devices = make_shared(&log, &[64 * MIB, 64 * MIB]);
    let opened = open_shared(&log, 2, &devices);
    let before = log.bounds().unwrap().next;
    log.lose_answers(1);
    change(&opened.store);
    let after = log.bounds().unwrap().next;
    assert_eq!(after - before, 1, "one commit is one record");
    assert_eq!(StoreLog::of(&opened.store).trouble(), None);
    // Given up after three tries, by the rule of this test: nothing is acknowledged.
    log.set_away(true);
    let changed: Result<(), stere_store::Error> = opened.store.update(Io::BLOCKING, |transaction| {
        let inode = transaction.allocate_inode();
        transaction.put(Key::inode(inode), &[8; 16]);
        Ok(())
    });
    changed.unwrap();
    assert!(opened.store.commit(Io::BLOCKING).is_err());
    assert!(StoreLog::of(&opened.store).trouble().is_some());
    log.set_away(false);
    drop(opened);
    let opened = open_shared(&log, 3, &devices);
    assert_eq!(changes_in(&opened.store), 1);
    assert!(is_sound(&opened.store));
}

#[test]
fn checkpoints_keep_the_log_small() {
    let log = MemoryLog::new();
    let devices = make_shared(&log, &[64 * MIB, 64 * MIB]);
    let opened = open_shared(&log, 2, &devices);
    for _ in 0..20 {
        change(&opened.store);
        opened.store.checkpoint().unwrap();
    }
    let bounds = log.bounds().unwrap();
    assert!(bounds.next - bounds.first < 8, "{bounds:?}");
    assert!(bounds.next > 40);
    drop(opened);
    assert_eq!(changes_in(&open_shared(&log, 3, &devices).store), 20);
}

/// A device that was away, and one that is new, know of the shared log as the others do.
#[test]
fn devices_come_and_go() {
    let log = MemoryLog::new();
    let devices = make_shared(&log, &[64 * MIB, 64 * MIB, 64 * MIB]);
    for owner in 2..30 {
        let opened = open_shared(&log, owner, &devices[..2]);
        change(&opened.store);
        drop(opened);
    }
    let opened = open_shared(&log, 40, &devices);
    assert_eq!(changes_in(&opened.store), 28);
    assert!(opened.store.open_devices().len() == 3, "it was away for many owners, and is no stranger");
}
