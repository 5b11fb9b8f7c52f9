use crate::grants::Grants;
use crate::tests::{Pool, address, pattern, scheme};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stere_device::memory::Fault;
use stere_device::{Device, Operation};
use stere_format::{SegmentChunks, extents_of};

const RECORD: u32 = 100_000;

fn one_record(pool: &Pool, segment: &SegmentChunks) -> Vec<u8> {
    let bytes = pattern(RECORD as usize, 3);
    let mut row = vec![0; 512];
    row.extend_from_slice(&bytes);
    row.resize(row.len().next_multiple_of(4096), 0);
    pool.write(segment, 1, &row);
    bytes
}

/// Where a chunk begins on its device.
fn start_of(pool: &Pool, segment: &SegmentChunks, chunk: usize) -> u64 {
    let place = segment.chunks[chunk];
    pool.stripe.devices.get(place.device).unwrap().layout().slot_offset(place.slot).unwrap()
}

/// A sector that cannot be read until it is written.
fn make_unreadable(pool: &Pool, segment: &SegmentChunks, chunk: usize, offset: u64) -> Arc<AtomicU64> {
    let sector = start_of(pool, segment, chunk) + offset / 512 * 512;
    let failures = Arc::new(AtomicU64::new(0));
    let (counted, is_written) = (failures.clone(), AtomicU64::new(0));
    pool.memory_of(segment.chunks[chunk]).set_fault_hook(Some(Box::new(move |operation, at, length| {
        let is_hit = at < sector + 512 && sector < at + length;
        match operation {
            Operation::Write if is_hit => is_written.store(1, Ordering::SeqCst),
            Operation::Read if is_hit && is_written.load(Ordering::SeqCst) == 0 => {
                counted.fetch_add(1, Ordering::SeqCst);
                return Some(Fault::Error);
            }
            _ => {}
        }
        None
    })));
    failures
}

/// A takeover hung for ever where a copy of metadata was bad: its lease begins with a root that came after the read.
#[test]
fn a_read_without_a_lease_does_not_wait_to_repair() {
    let now_ms = Arc::new(AtomicU64::new(0));
    let clock = now_ms.clone();
    let grants = Arc::new(Grants::new(Box::new(move || clock.load(Ordering::SeqCst))));
    let pool = Pool::with_grants(3, Some(grants.clone()));
    let segment = pool.segment(scheme(1, 1));
    let slots = segment.chunks.iter().map(|place| (place.device, place.slot));
    grants.granted(&extents_of(slots));
    grants.renew(1000);
    let bytes = one_record(&pool, &segment);
    // Whichever copy is read first.
    pool.corrupt(&segment, 0, 4096 + 512..4096 + 1024);
    pool.corrupt(&segment, 1, 4096 + 51_200..4096 + 51_712);
    let read = || pool.read(&segment, address(1, 512, RECORD), 0..RECORD, &bytes).unwrap();
    let repair = |(out, report): &(Vec<u8>, crate::ReadReport)| {
        assert!(out == &bytes && !report.bad.is_empty(), "the other copy is right");
        pool.stripe.repair(&segment, &address(1, 512, RECORD), &(0..RECORD), out, report).unwrap().blocks
    };
    now_ms.store(1000, Ordering::SeqCst);
    assert_eq!(repair(&read()), 0, "nothing goes out now");
    assert_eq!(grants.waiting(), 0);
    grants.renew(2000);
    assert!(repair(&read()) > 0);
}

#[test]
fn an_unreadable_sector_is_written_anew_and_its_neighbours_with_it() {
    for (data, parity) in [(1, 1), (3, 1), (3, 2)] {
        let pool = Pool::new(5);
        let segment = pool.segment(scheme(data, parity));
        let bytes = one_record(&pool, &segment);
        let failures = make_unreadable(&pool, &segment, 0, 4096 + 10_000);
        let (out, report) = pool.read(&segment, address(1, 512, RECORD), 0..RECORD, &bytes).unwrap();
        assert_eq!(out, bytes);
        let repair = pool.stripe.repair(&segment, &address(1, 512, RECORD), &(0..RECORD), &out, &report).unwrap();
        assert_eq!((repair.blocks, repair.unwritable.len()), (1, 0), "{data}+{parity}: only the block that is bad");
        assert!(failures.load(Ordering::SeqCst) <= 4, "tries are bounded");
        pool.memory_of(segment.chunks[0]).set_fault_hook(None);
        let (_, report) = pool.read(&segment, address(1, 512, RECORD), 0..RECORD, &bytes).unwrap();
        assert!(report.bad.is_empty());
        assert!(pool.stripe.check_blocks(1, &segment, 1..12).unwrap().differing.is_empty(), "neighbours are right too");
    }
}

#[test]
fn a_device_that_takes_no_writes_is_told() {
    let pool = Pool::new(2);
    let segment = pool.segment(scheme(1, 1));
    let bytes = one_record(&pool, &segment);
    pool.corrupt(&segment, 0, 4096 + 600..4096 + 700);
    let (out, report) = pool.read(&segment, address(1, 512, RECORD), 0..RECORD, &bytes).unwrap();
    let hook = |operation, _, _| (operation == Operation::Write).then_some(Fault::Error);
    pool.memory_of(segment.chunks[0]).set_fault_hook(Some(Box::new(hook)));
    let repair = pool.stripe.repair(&segment, &address(1, 512, RECORD), &(0..RECORD), &out, &report).unwrap();
    assert_eq!((repair.blocks, repair.unwritable.len(), repair.unwritable[0].0), (0, 1, 0));
    assert_eq!(pool.stripe.devices.get(segment.chunks[0].device).unwrap().statistics().write_errors, 1);
}

#[test]
fn the_only_copy_is_asked_for_three_times() {
    let pool = Pool::new(1);
    let segment = pool.segment(scheme(1, 0));
    let bytes = one_record(&pool, &segment);
    let tries = Arc::new(AtomicU64::new(0));
    for failing in [2, 3] {
        let counted = tries.clone();
        counted.store(0, Ordering::SeqCst);
        pool.memory_of(segment.chunks[0]).set_fault_hook(Some(Box::new(move |operation, _, _| {
            let is_failing = operation == Operation::Read && counted.fetch_add(1, Ordering::SeqCst) < failing;
            is_failing.then_some(Fault::Error)
        })));
        let outcome = pool.read(&segment, address(1, 512, RECORD), 0..4096, &bytes[..4096]);
        assert_eq!(outcome.is_ok(), failing == 2);
        assert_eq!(tries.load(Ordering::SeqCst), 3);
    }
}

#[test]
fn only_the_damaged_block_is_written() {
    let pool = Pool::new(2);
    let segment = pool.segment(scheme(1, 1));
    let bytes = one_record(&pool, &segment);
    pool.corrupt(&segment, 0, 4096 + 20_000..4096 + 20_001);
    let (out, report) = pool.read(&segment, address(1, 512, RECORD), 0..RECORD, &bytes).unwrap();
    let before = pool.memory_of(segment.chunks[0]).counters();
    pool.stripe.repair(&segment, &address(1, 512, RECORD), &(0..RECORD), &out, &report).unwrap();
    let after = pool.memory_of(segment.chunks[0]).counters();
    assert!(after.written_bytes - before.written_bytes <= 4096);
    assert!(after.read_bytes - before.read_bytes <= 8192);
    let mut on_medium = vec![0; 4096];
    pool.memory_of(segment.chunks[0]).read(start_of(&pool, &segment, 0) + 4096 + 512, &mut on_medium).unwrap();
    assert_eq!(on_medium, bytes[..4096]);
}
