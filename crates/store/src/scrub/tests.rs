//! Repair on read and scrubbing, on devices in memory whose bytes are spoilt on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stere_device::Operation;
use stere_device::memory::Fault;
use stere_format::{BLOCK_BYTES, DeviceState, ScrubCursor, SegmentKind};
use stere_log::Segment;

use crate::tests::{COPIES, PARITY, Rig, SINGLE, assert_clean, content, options, read_file, remove_file, write_file};
use crate::{BlobHandle, Damage, Error, HealthLimits, HealthState, Io, Placement, Store};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn blob(store: &Store, id: u64) -> BlobHandle {
    store.view(Io::BLOCKING, |view| view.blob(id)).unwrap()
}

/// Where on its device a block of a chunk lies.
fn place(rig: &Rig, segment: &Segment, chunk: usize, block: u32) -> (usize, u64) {
    let place = segment.chunks()[chunk];
    let layout = rig.superblocks[usize::from(place.device)].layout;
    (usize::from(place.device), layout.slot_offset(place.slot).unwrap() + u64::from(block) * BLOCK)
}

/// Flips a piece of a blob's first chunk, or of the given copy: `at` counts within the stored record.
fn rot(rig: &Rig, handle: &BlobHandle, copy: usize, at: u64, length: u64) {
    let (device, start) = place(rig, &handle.segment, copy, handle.value.address.row_block);
    rig.devices[device].corrupt(start + u64::from(handle.value.address.offset) + at, length);
}

/// A committed file that is read from the devices.
fn one_file(rig: &mut Rig, store: Store, placement: Placement, length: usize) -> (Store, Vec<u64>, Vec<u8>) {
    let data = content(5, length);
    let blobs = write_file(&store, placement, 7, &data);
    store.close().unwrap();
    drop(store);
    rig.read_superblocks();
    let (store, _) = rig.reopen();
    (store, blobs, data)
}

fn read_bytes(rig: &Rig) -> (u64, u64) {
    rig.devices
        .iter()
        .map(|device| device.counters())
        .fold((0, 0), |(read, written), counters| (read + counters.read_bytes, written + counters.written_bytes))
}

/// P-30: the reader gets right bytes, the bad ones are written again, once, and it costs about as much as was bad.
#[test]
fn a_bad_block_is_repaired_by_the_read_that_finds_it_and_costs_little() {
    for (placement, copies) in [(COPIES, 1), (PARITY, 2)] {
        let (mut rig, store) = Rig::new(3, 64 << 20);
        let (store, blobs, data) = one_file(&mut rig, store, placement, 4 << 20);
        let third = blob(&store, blobs[3]);
        // Warm: tree nodes are in memory.
        assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
        let before = read_bytes(&rig);
        assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
        let healthy = read_bytes(&rig).0 - before.0;
        let at = if copies == 1 { 8192 } else { 0 };
        rot(&rig, &third, 0, at, 4096);
        let before = read_bytes(&rig);
        assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
        let after = read_bytes(&rig);
        assert!(after.0 - before.0 <= healthy + 12 * 4096, "{} bytes were read for {healthy}", after.0 - before.0);
        assert!((1..=3 * 4096).contains(&(after.1 - before.1)), "{} bytes were written", after.1 - before.1);
        let totals = store.repair_totals();
        assert!((1..=2).contains(&totals.blocks) && totals.reads == 1 && totals.failures == 0, "{totals:?}");
        let health = store.health.health(third.segment.chunks()[0].device).unwrap();
        assert_eq!((health.repaired, health.state), (totals.blocks, HealthState::Good));
        assert!(health.checksum_errors >= 1);
        // It is good now: a healthy read, and scrubbing finds nothing.
        let before = read_bytes(&rig);
        assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
        assert_eq!((read_bytes(&rig).0 - before.0, read_bytes(&rig).1), (healthy, before.1));
        assert_eq!(store.repair_totals(), totals);
        let report = store.scrubber.scrub().unwrap();
        assert!(report.is_clean() && report.repaired_blocks == 0, "{report:?}");
    }
}

/// P-30: a sector that cannot be read is written anew, after a few tries.
#[test]
fn an_unreadable_sector_is_written_anew() {
    let (mut rig, store) = Rig::new(2, 64 << 20);
    let (store, blobs, data) = one_file(&mut rig, store, COPIES, 1 << 20);
    let handle = blob(&store, blobs[2]);
    let (device, start) = place(&rig, &handle.segment, 0, handle.value.address.row_block);
    let sector = start + u64::from(handle.value.address.offset) + 16_384;
    let is_written = Arc::new(AtomicBool::new(false));
    let written = is_written.clone();
    rig.devices[device].set_fault_hook(Some(Box::new(move |operation, offset, length| {
        let is_hit = offset < sector + 512 && sector < offset + length;
        match operation {
            Operation::Write if is_hit => written.store(true, Ordering::SeqCst),
            Operation::Read if is_hit && !written.load(Ordering::SeqCst) => return Some(Fault::Error),
            _ => {}
        }
        None
    })));
    assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
    assert!(is_written.load(Ordering::SeqCst), "the sector was written");
    assert!(store.health.health(device as u16).unwrap().read_errors >= 1);
    let errors = store.health.health(device as u16).unwrap().errors();
    assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
    assert_eq!(store.health.health(device as u16).unwrap().errors(), errors, "no more errors");
}

/// P-30: reading ahead over a bad place that is nobody's content finds it once, not with every small file beside it: no read would ever
/// repair it, and the device would be given up for it.
#[test]
fn a_bad_place_of_nobody_is_not_read_ahead_again_and_again() {
    const FILE_BYTES: usize = 8192;
    let (mut rig, store) = Rig::new(2, 64 << 20);
    let blobs: Vec<u64> =
        (10..40).map(|inode| write_file(&store, COPIES, inode, &content(inode, FILE_BYTES))[0]).collect();
    store.commit(Io::BLOCKING).unwrap();
    let removed = blob(&store, blobs[10]);
    for chunk in 0..2 {
        let (device, start) = place(&rig, &removed.segment, chunk, removed.value.address.row_block);
        let sector = start + u64::from(removed.value.address.offset) + 4096;
        rig.devices[device].set_fault_hook(Some(Box::new(move |operation, offset, length| {
            let is_hit = offset < sector + 512 && sector < offset + length;
            (operation == Operation::Read && is_hit).then_some(Fault::Error)
        })));
    }
    drop(removed);
    remove_file(&store, 20);
    store.close().unwrap();
    drop(store);
    rig.read_superblocks();
    let (store, _) = rig.reopen();
    let errors = |store: &Store| (0..2).map(|device| store.health.health(device).unwrap().errors()).sum::<u64>();
    for round in 0..6 {
        for inode in (10..40).filter(|inode| *inode != 20) {
            assert_eq!(read_file(&store, inode, FILE_BYTES).unwrap(), content(inode, FILE_BYTES), "round {round}");
        }
    }
    assert!((1..=2).contains(&errors(&store)), "{} errors", errors(&store));
}

/// P-30: metadata too, also while the pool is opened.
#[test]
fn rotten_nodes_and_checkpoints_are_repaired() {
    let (mut rig, store) = Rig::new(3, 64 << 20);
    let (store, _, data) = one_file(&mut rig, store, COPIES, 1 << 20);
    // One of the three copies of all metadata.
    for segment in store.segments().all().iter().filter(|segment| segment.kind == SegmentKind::Meta) {
        let (device, start) = place(&rig, segment, 0, 1);
        rig.devices[device].corrupt(start, u64::from(segment.written_blocks() - 1) * BLOCK);
    }
    drop(store);
    let (store, _) = rig.reopen();
    assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
    assert!(store.repair_totals().blocks >= 1, "{:?}", store.repair_totals());
    let report = store.scrubber.scrub().unwrap();
    assert!(report.is_clean() && report.repaired_blocks > 0, "{report:?}");
    let report = store.scrubber.scrub().unwrap();
    assert!(report.is_clean() && report.repaired_blocks == 0, "{report:?}");
    assert_clean(&store);
}

/// P-30: a pool that is only read is not written to, whatever is found.
#[test]
fn a_read_only_pool_is_not_repaired() {
    let (mut rig, store) = Rig::new(2, 64 << 20);
    let (store, blobs, data) = one_file(&mut rig, store, COPIES, 1 << 20);
    rot(&rig, &blob(&store, blobs[0]), 0, 4096, 100);
    store.close().unwrap();
    drop(store);
    rig.read_superblocks();
    let read_only = crate::StoreOptions { read_only: true, ..options() };
    let (store, _) = Store::open(rig.devices_in(), read_only).unwrap();
    let written = read_bytes(&rig).1;
    assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
    let report = store.scrubber.scrub().unwrap();
    assert!(!report.is_clean() && report.repaired_blocks == 0, "{report:?}");
    assert_eq!(read_bytes(&rig).1, written);
}

/// P-31: every copy, every parity, every header, whoever reads them or not.
#[test]
fn scrubbing_repairs_what_nobody_reads() {
    for placement in [COPIES, PARITY] {
        let (mut rig, store) = Rig::new(3, 64 << 20);
        let (store, blobs, data) = one_file(&mut rig, store, placement, 2 << 20);
        let segment = blob(&store, blobs[0]).segment;
        let last = segment.chunks().len() - 1;
        // Records, the row's header, the chunk's header, the summary's block.
        let blocks = [0, 1, 5, 40, segment.written_blocks() - 1];
        for block in blocks {
            let (device, start) = place(&rig, &segment, last, block);
            rig.devices[device].corrupt(start + 100, 600);
        }
        let report = store.scrubber.scrub().unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.repaired_blocks, blocks.len() as u64, "{placement:?}");
        let first = store.health.health(segment.chunks()[last].device).unwrap();
        assert_eq!(first.repaired, blocks.len() as u64);
        let report = store.scrubber.scrub().unwrap();
        assert!(report.is_clean() && report.repaired_blocks == 0, "{report:?}");
        // What was repaired carries the file alone.
        rig.devices[usize::from(segment.chunks()[0].device)].set_offline(true);
        assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
    }
}

/// P-31: superblock copies and journal records have their twins.
#[test]
fn scrubbing_repairs_superblocks_and_the_journal() {
    let (rig, store) = Rig::new(2, 64 << 20);
    // Both generations of superblocks exist then.
    store.checkpoint().unwrap();
    let data = content(1, 300_000);
    write_file(&store, COPIES, 7, &data);
    store.commit(Io::BLOCKING).unwrap();
    store.scrubber.scrub().unwrap();
    let layout = rig.superblocks[0].layout;
    let offsets = layout.superblock_offsets();
    rig.devices[0].corrupt(offsets[0] + 40, 8);
    rig.devices[0].corrupt(offsets[1] + 40, 8);
    rig.devices[1].corrupt(offsets[3] + 40, 8);
    let start = store.single_steps().journal_start().unwrap().position % layout.journal_bytes;
    rig.devices[1].corrupt(layout.journal_offset + start + 200, 10);
    let report = store.scrubber.scrub().unwrap();
    assert!(report.is_clean() && report.repaired_blocks == 4, "{report:?}");
    let report = store.scrubber.scrub().unwrap();
    assert!(report.is_clean() && report.repaired_blocks == 0, "{report:?}");
    // The journal on device 1 alone brings the pool back.
    rig.devices[0].corrupt(layout.journal_offset, layout.journal_bytes);
    let mut rig = rig;
    let (store, found) = rig.crash(store, |_| true);
    assert!(found.groups_replayed > 0, "{found:?}");
    assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
}

/// P-4, P-31: what is bad everywhere is told by file, offset and length, and nothing else is lost.
#[test]
fn damage_beyond_repair_is_named() {
    for placement in [SINGLE, COPIES] {
        let (mut rig, store) = Rig::new(2, 64 << 20);
        let (store, blobs, data) = one_file(&mut rig, store, placement, 1 << 20);
        let handle = blob(&store, blobs[2]);
        for copy in 0..handle.segment.chunks().len() {
            rot(&rig, &handle, copy, 8192, 5000);
        }
        // Another block on one copy only.
        rot(&rig, &handle, 0, 65_536, 10);
        // Extents of these tests have their start in the key, where the format has their end.
        let third = 128 << 10;
        for _ in 0..2 {
            let report = store.scrubber.scrub().unwrap();
            let mut expected = vec![Damage {
                segment: handle.segment.id,
                blob: Some(handle.id),
                inode: Some(7),
                offset: third + 8192,
                length: 8192,
            }];
            if placement == SINGLE {
                expected.push(Damage { offset: third + 65_536, length: 4096, ..expected[0].clone() });
            }
            assert_eq!(report.unrepairable, expected);
        }
        assert!(matches!(read_file(&store, 7, data.len()), Err(Error::Damaged { .. })));
        remove_file(&store, 7);
        store.checkpoint().unwrap();
        assert!(store.scrubber.scrub().unwrap().is_clean());
    }
}

/// A chunk that takes no right bytes counts as missing, but only if the rest can do without it.
#[test]
fn a_chunk_that_cannot_be_written_is_given_up_if_others_have_all_it_holds() {
    for is_other_bad in [false, true] {
        let (mut rig, store) = Rig::new(2, 64 << 20);
        let (store, blobs, data) = one_file(&mut rig, store, COPIES, 1 << 20);
        let (bad, other) = (blob(&store, blobs[2]), blob(&store, blobs[5]));
        rot(&rig, &bad, 0, 4096, 10);
        let device = bad.segment.chunks()[0].device;
        rig.devices[usize::from(device)]
            .set_fault_hook(Some(Box::new(|operation, _, _| (operation == Operation::Write).then_some(Fault::Error))));
        assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
        assert_eq!(store.repair_totals().failures, 1);
        if is_other_bad {
            // Only the chunk in question has this block right; its twin takes no writes either.
            rot(&rig, &other, 1, 4096, 10);
            let twin = usize::from(other.segment.chunks()[1].device);
            rig.devices[twin].set_fault_hook(Some(Box::new(|operation, _, _| {
                (operation == Operation::Write).then_some(Fault::Error)
            })));
        }
        store.scrubber.retire_unwritable().unwrap();
        assert_eq!(bad.segment.missing(), if is_other_bad { 0 } else { 1 });
        assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
        let limits = HealthLimits { sick_errors: 1, retire_errors: 0 };
        store.health.set_health_limits(limits);
        assert_eq!(store.health.health(device).unwrap().state, HealthState::Sick);
        assert_eq!(store.health.health_limits(), limits);
    }
}

/// A device with too many errors is given up only where the others have everything.
#[test]
fn a_failing_device_is_given_up_if_the_others_have_everything() {
    for (placement, expected) in [(COPIES, true), (SINGLE, false)] {
        let (mut rig, store) = Rig::new(3, 64 << 20);
        let (store, blobs, data) = one_file(&mut rig, store, placement, 1 << 20);
        let handle = blob(&store, blobs[0]);
        let device = handle.segment.chunks()[0].device;
        store.health.set_health_limits(HealthLimits { sick_errors: 1, retire_errors: 3 });
        assert!(store.health.devices_to_retire().is_empty());
        for block in 0..3 {
            rot(&rig, &handle, 0, block * 4096, 4);
            assert_eq!(read_file(&store, 7, data.len()).is_ok(), expected);
            // One that has no other copy gives its errors here.
            store.scrubber.scrub().unwrap();
        }
        assert_eq!(store.health.devices_to_retire() == [device], expected);
        store.step(false).unwrap();
        let entries = store.device_entries();
        let state = entries.iter().find(|entry| entry.index == device).unwrap().device_state();
        assert_eq!(state, if expected { DeviceState::Failed } else { DeviceState::Active });
        if expected {
            while !store.rebuilder.mend_step(64 << 20).unwrap().is_done {}
            rig.devices[usize::from(device)].set_offline(true);
            assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
        }
    }
}

/// P-31: until its chunks have moved away, the copies of a device that is given up or being emptied count, and are kept whole.
#[test]
fn a_device_that_is_given_up_is_repaired_until_it_is_empty() {
    for state in [DeviceState::Failed, DeviceState::Leaving] {
        let (mut rig, store) = Rig::new(3, 64 << 20);
        let (store, blobs, data) = one_file(&mut rig, store, COPIES, 1 << 20);
        let handle = blob(&store, blobs[0]);
        let [left, other] = [0, 1].map(|copy| handle.segment.chunks()[copy].device);
        store.devices.set_device_state(left, state).unwrap();
        rot(&rig, &handle, 0, 4096, 4);
        let report = store.scrubber.scrub().unwrap();
        assert!(report.is_clean() && report.repaired_blocks == 1, "{state:?}: {report:?}");
        rig.devices[usize::from(other)].set_offline(true);
        assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
    }
}

/// New data avoids a device that is very slow now.
#[test]
fn writing_goes_on_beside_a_slow_device() {
    let (rig, store) = Rig::new(3, 64 << 20);
    write_file(&store, COPIES, 7, &content(1, 300_000));
    store.commit(Io::BLOCKING).unwrap();
    let segment = store.segments().all().into_iter().find(|segment| segment.kind == SegmentKind::Data).unwrap();
    let slow = segment.chunks()[0].device;
    rig.devices[usize::from(slow)].set_latency_us(100_000);
    store.step(false).unwrap();
    let blobs = write_file(&store, COPIES, 8, &content(2, 3 << 20));
    for id in blobs {
        let chunks = blob(&store, id).segment.chunks();
        assert!(chunks.iter().all(|place| place.device != slow), "{chunks:?}");
    }
    store.commit(Io::BLOCKING).unwrap();
    assert_eq!(read_file(&store, 8, 3 << 20).unwrap(), content(2, 3 << 20));
}

/// A pass in small steps goes through as much as one in one go, over a remount too.
#[test]
fn a_pass_goes_on_from_its_cursor() {
    let (mut rig, store) = Rig::new(3, 64 << 20);
    let (store, blobs, _) = one_file(&mut rig, store, PARITY, 5 << 20);
    let whole = store.scrubber.scrub().unwrap();
    assert!(whole.bytes_checked > 7 << 20 && whole.chunks_checked >= 6, "{whole:?}");
    rot(&rig, &blob(&store, blobs[38]), 0, 0, 100);
    let mut cursor = ScrubCursor::default();
    let (mut steps, mut repaired, mut chunks) = (0, 0, 0);
    let mut store = store;
    loop {
        let progress = store.scrubber.scrub_step(&mut cursor, 100_000).unwrap();
        (steps, repaired) = (steps + 1, repaired + progress.report.repaired_blocks);
        chunks += progress.report.chunks_checked;
        assert!(progress.report.is_clean(), "{:?}", progress.report);
        if progress.is_done {
            break;
        }
        store.scrubber.save_scrub_cursor(&cursor).unwrap();
        if steps == 3 {
            store.close().unwrap();
            drop(store);
            rig.read_superblocks();
            store = rig.reopen().0;
            cursor = store.scrubber.load_scrub_cursor().unwrap();
        }
    }
    assert!(steps > 3 && (1..=2).contains(&repaired), "{steps} steps, {repaired} blocks");
    assert!(chunks >= whole.chunks_checked, "{chunks} chunks");
    assert_eq!((cursor.passes, cursor.segment), (1, 0));
}

/// P-8: accounts are held against what is there.
#[test]
fn a_wrong_account_is_found() {
    let (mut rig, store) = Rig::new(2, 64 << 20);
    let (store, blobs, _) = one_file(&mut rig, store, COPIES, 1 << 20);
    let segment = blob(&store, blobs[0]).segment;
    segment.add_live_bytes(512);
    let report = store.scrubber.scrub().unwrap();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(report.findings[0].contains("live bytes"));
    segment.add_live_bytes(-512);
    assert!(store.scrubber.scrub().unwrap().is_clean());
}

/// A row that lost its header on every copy still gives its records, and they are scrubbed.
#[test]
fn a_row_without_a_header_is_no_loss() {
    let (mut rig, store) = Rig::new(2, 64 << 20);
    let (store, blobs, data) = one_file(&mut rig, store, COPIES, 1 << 20);
    let handle = blob(&store, blobs[0]);
    for copy in 0..2 {
        let (device, start) = place(&rig, &handle.segment, copy, handle.value.address.row_block);
        rig.devices[device].corrupt(start, 512);
    }
    let report = store.scrubber.scrub().unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
}

/// What lies on devices that are away is neither damaged nor scrubbed; the rest is.
#[test]
fn what_is_away_is_not_damage() {
    let (mut rig, store) = Rig::new(3, 64 << 20);
    let data = content(9, 1 << 20);
    for (inode, placement) in [(7, COPIES), (8, SINGLE), (9, PARITY)] {
        write_file(&store, placement, inode, &data);
    }
    let alone = store.segments().all().into_iter().find(|segment| segment.scheme == SINGLE.scheme).unwrap();
    let gone = alone.chunks()[0].device;
    drop(alone);
    store.close().unwrap();
    drop(store);
    rig.read_superblocks();
    let left = rig.devices_in().into_iter().filter(|device| device.index != gone).collect();
    let (store, _) = Store::open(left, options()).unwrap();
    let report = store.scrubber.scrub().unwrap();
    assert_eq!((report.unrepairable.len(), report.findings.len(), report.repaired_blocks), (0, 0, 0), "{report:?}");
    assert!(report.unreachable_bytes >= 128 << 10 && report.bytes_checked > 2 << 20, "{report:?}");
    // One that is gone without a word.
    let (rig, store) = Rig::new(3, 64 << 20);
    write_file(&store, COPIES, 7, &data);
    store.checkpoint().unwrap();
    rig.devices[1].set_offline(true);
    assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
    let report = store.scrubber.scrub().unwrap();
    assert!(report.unrepairable.is_empty() && report.unreachable_bytes == 0, "{report:?}");
    assert_eq!(store.repair_totals().failures, 0);
    assert!(store.segments().all().iter().all(|segment| segment.missing() == 0));
    assert_eq!(store.health.health(1).unwrap().errors(), 0);
}

/// Scrubbing beside writers, checkpoints and cleaning finds nothing that is not so.
#[test]
fn scrubbing_beside_work_finds_nothing() {
    let (_rig, store) = Rig::new(3, 64 << 20);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..60u64 {
                let placement = [SINGLE, COPIES, PARITY][round as usize % 3];
                write_file(&store, placement, 100 + round, &content(round, 700_000));
                if round >= 4 {
                    remove_file(&store, 100 + round - 4);
                }
                match round % 4 {
                    0 => store.checkpoint().unwrap(),
                    1 => store.commit(Io::BLOCKING).unwrap(),
                    _ => drop(store.step(true).unwrap()),
                }
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let mut passes = 0;
        while !is_over.load(Ordering::SeqCst) && !writer.is_finished() {
            let report = store.scrubber.scrub().unwrap();
            assert!(report.is_clean() && report.repaired_blocks == 0, "pass {passes}: {report:?}");
            passes += 1;
        }
        assert!(passes > 3, "{passes} passes");
    });
    let report = store.scrubber.scrub().unwrap();
    assert!(report.is_clean() && report.repaired_blocks == 0, "{report:?}");
    assert_clean(&store);
}

/// P-31: a tree node that rots on all copies is written again from memory, if it is still there.
#[test]
fn a_node_that_is_only_in_memory_is_written_again() {
    let (mut rig, store) = Rig::new(3, 64 << 20);
    let data = content(5, 2 << 20);
    write_file(&store, COPIES, 7, &data);
    store.close().unwrap();
    drop(store);
    rig.read_superblocks();
    let (store, _) = rig.reopen();
    assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
    let root = store.single_steps().root().unwrap();
    let segment = store.segments().get(root.address.segment).unwrap();
    for copy in 0..segment.scheme.width() {
        let (device, start) = place(&rig, &segment, copy, root.address.row_block);
        rig.devices[device].corrupt(start + u64::from(root.address.offset) + 100, 50);
    }
    let report = store.scrubber.scrub().unwrap();
    assert!(report.unrepairable.is_empty() && report.repaired_blocks >= 3, "{report:?}");
    drop((segment, store));
    let (store, _) = rig.reopen();
    assert_eq!(read_file(&store, 7, data.len()).unwrap(), data);
    assert!(store.scrubber.scrub().unwrap().is_clean());
}
