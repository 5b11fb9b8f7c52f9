//! What crashes left half-written, and rows of futures that a crash cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stere_device::memory::Fault;
use stere_device::{Device, Operation};
use stere_format::{DeviceIndex, DeviceState};

use crate::tests::devices::rig::mend;
use crate::tests::{CHUNK_BYTES, COPIES, Rig, SINGLE, assert_clean, content, options, read_file, write_file};
use crate::{Error, Io, Store};

/// P-3: what a power cut left with one good copy gets its other one where it lies, durably, before the device with the good one is
/// written anything but superblocks and journal: a write that goes astray there could hit it.
#[test]
fn what_one_device_alone_kept_is_made_whole_before_anything_is_written_beside_it() {
    let (mut rig, store) = Rig::new(2, 64 << 20);
    write_file(&store, COPIES, 10, &content(1, 4096));
    store.commit(Io::BLOCKING).unwrap();
    write_file(&store, COPIES, 11, &content(2, 300_000));
    let refuse_flush = |operation, _, _| (operation == Operation::Flush).then_some(Fault::Error);
    rig.devices.iter().for_each(|device| device.set_fault_hook(Some(Box::new(refuse_flush))));
    store.commit(Io::BLOCKING).unwrap_err();
    drop(store);
    rig.devices[0].lose_unflushed(|_| true);
    rig.devices[1].lose_unflushed(|_| false);
    rig.read_superblocks();
    let layout = rig.superblocks[0].layout;
    let slots =
        layout.slot_offset(0).unwrap()..layout.slot_offset(layout.slot_count - 1).unwrap() + u64::from(CHUNK_BYTES);
    let [has_written, has_flushed, was_early] = std::array::from_fn(|_| Arc::new(AtomicBool::new(false)));
    let (written, flushed, of_slots) = (has_written.clone(), has_flushed.clone(), slots.clone());
    rig.devices[1].set_fault_hook(Some(Box::new(move |operation, offset, _| {
        written.fetch_or(operation == Operation::Write && of_slots.contains(&offset), Ordering::Relaxed);
        flushed.fetch_or(operation == Operation::Flush && written.load(Ordering::Relaxed), Ordering::Relaxed);
        None
    })));
    let (flushed, early) = (has_flushed.clone(), was_early.clone());
    rig.devices[0].set_fault_hook(Some(Box::new(move |operation, offset, _| {
        let is_early = operation == Operation::Write && slots.contains(&offset) && !flushed.load(Ordering::Relaxed);
        early.fetch_or(is_early, Ordering::Relaxed);
        None
    })));
    let (store, report) = Store::open(rig.devices_in(), options()).unwrap();
    assert_eq!(report.groups_cut, 0);
    assert!(has_flushed.load(Ordering::Relaxed), "the second copy was written and flushed");
    assert!(!was_early.load(Ordering::Relaxed), "nothing was written beside the one good copy before");
    rig.devices.iter().for_each(|device| device.set_fault_hook(None));
    drop(store);
    // Without the device that had it all.
    rig.read_superblocks();
    rig.devices[0].set_offline(true);
    let devices = rig.devices_in().split_off(1);
    let (store, _) = Store::open(devices, options()).unwrap();
    assert_eq!(read_file(&store, 11, 300_000).unwrap(), content(2, 300_000));
}
/// A row of a future that a crash cut off, in whose place another row lies now.
struct Abandoned {
    bytes: Vec<u8>,
    /// Device and offset of each copy.
    places: Vec<(usize, u64)>,
}

impl Abandoned {
    /// Spoils a copy so that so much of the abandoned row shows in its place again.
    fn show(&self, rig: &Rig, copy: usize, length: usize) {
        let (device, offset) = self.places[copy];
        rig.devices[device].write_bytes(offset, &self.bytes[..length]).unwrap();
    }
}

/// Two copies of a small committed file, 12, whose row lies where a larger abandoned row was.
fn in_place_of_an_abandoned_row(rig: &mut Rig, store: Store, abandoned_bytes: usize) -> (Store, Abandoned) {
    write_file(&store, COPIES, 10, &content(1, 4096));
    store.commit(Io::BLOCKING).unwrap();
    // Its rows reach the devices, the journal does not: this future is cut off.
    write_file(&store, COPIES, 11, &content(2, abandoned_bytes));
    store.log().close_rows(stere_format::SegmentKind::Data);
    store.log().wait_for_rows().unwrap();
    let (store, _) = rig.crash(store, |_| true);
    let blob = write_file(&store, COPIES, 12, &content(3, 3670))[0];
    let handle = store.view(Io::BLOCKING, |view| view.blob(blob)).unwrap();
    let row_offset = u64::from(handle.value.address.row_block) * 4096;
    let place_of = |chunk: &stere_format::ChunkPlace| {
        let device = usize::from(chunk.device);
        (device, rig.superblocks[device].layout.slot_offset(chunk.slot).unwrap() + row_offset)
    };
    let places: Vec<_> = handle.segment.placed().chunks.iter().map(place_of).collect();
    let mut bytes = vec![0; 4 * 4096];
    rig.devices[places[1].0].read(places[1].1, &mut bytes).unwrap();
    let header = stere_format::RowHeader::decode(&bytes).expect("the abandoned row is in this very place");
    assert!(header.row_height > 2, "it is larger than what replaces it");
    store.commit(Io::BLOCKING).unwrap();
    (store, Abandoned { bytes, places })
}

/// P-3: a row whose header a power cut took, so that one of a future which an earlier crash cut off shows in its place, is not made
/// whole from that.
#[test]
fn a_row_of_an_abandoned_future_is_nobodys_truth() {
    let (mut rig, store) = Rig::new(2, 64 << 20);
    let (store, abandoned) = in_place_of_an_abandoned_row(&mut rig, store, 2_000_000);
    drop(store);
    abandoned.show(&rig, 0, 512);
    abandoned.show(&rig, 1, 8192);
    let (store, report) = rig.reopen();
    assert_eq!(report.groups_cut, 0);
    assert!(read_file(&store, 12, 3670).unwrap() == content(3, 3670));
    assert_clean(&store);
}

/// P-3: nor does a scrub write such a row over the copy that is right.
#[test]
fn a_scrub_mends_no_row_of_an_abandoned_future() {
    let (mut rig, store) = Rig::new(2, 64 << 20);
    let (store, abandoned) = in_place_of_an_abandoned_row(&mut rig, store, 3 * 4096);
    write_file(&store, COPIES, 13, &content(4, 100_000));
    store.commit(Io::BLOCKING).unwrap();
    // Proven, so that recovery believes it, and not in memory any more.
    store.step(true).unwrap();
    drop(store);
    abandoned.show(&rig, 0, 512);
    abandoned.show(&rig, 1, 4 * 4096);
    let (store, _) = rig.reopen();
    let report = store.scrubber.scrub().unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(read_file(&store, 12, 3670).unwrap() == content(3, 3670));
    // The device with the copy that was right goes: the scrub has brought it to the other.
    store.commit(Io::BLOCKING).unwrap();
    drop(store);
    rig.read_superblocks();
    let gone = abandoned.places[0].0;
    rig.devices[gone].set_offline(true);
    let mut devices = rig.devices_in();
    devices.remove(gone);
    let (store, _) = Store::open(devices, options()).unwrap();
    assert!(read_file(&store, 12, 3670).unwrap() == content(3, 3670));
}

/// P-31: where a copy lost its write, so that a larger row that was there before shows in its place, a scrub brings the row there.
#[test]
fn a_larger_row_that_shows_in_its_place_hides_no_row_from_a_scrub() {
    for stale in [0, 1] {
        let (mut rig, store) = Rig::new(2, 64 << 20);
        let (store, abandoned) = in_place_of_an_abandoned_row(&mut rig, store, 3 * 4096);
        store.step(true).unwrap();
        drop(store);
        abandoned.show(&rig, stale, 4 * 4096);
        let (store, _) = rig.reopen();
        let report = store.scrubber.scrub().unwrap();
        assert!(report.is_clean() && report.repaired_blocks > 0, "{report:?}");
        drop(store);
        rig.read_superblocks();
        let gone = abandoned.places[1 - stale].0;
        rig.devices[gone].set_offline(true);
        let mut devices = rig.devices_in();
        devices.remove(gone);
        let (store, _) = Store::open(devices, options()).unwrap();
        assert!(read_file(&store, 12, 3670).unwrap() == content(3, 3670), "copy {stale} had lost its write");
    }
}

/// P-3: nor is it copied to another device in place of the right one. Whichever copy lost its write, the other's device leaves.
#[test]
fn a_row_of_an_abandoned_future_is_not_rebuilt_from() {
    for stale in [0, 1] {
        let (mut rig, store) = Rig::new(3, 64 << 20);
        let (store, abandoned) = in_place_of_an_abandoned_row(&mut rig, store, 3 * 4096);
        write_file(&store, COPIES, 13, &content(4, 100_000));
        store.commit(Io::BLOCKING).unwrap();
        store.step(true).unwrap();
        drop(store);
        abandoned.show(&rig, stale, 4 * 4096);
        let (store, _) = rig.reopen();
        let leaving = abandoned.places[1 - stale].0 as DeviceIndex;
        store.devices.set_device_state(leaving, DeviceState::Removing).unwrap();
        mend(&store);
        assert_eq!(store.device_entries().len(), 2, "it is empty and gone");
        assert!(read_file(&store, 12, 3670).unwrap() == content(3, 3670), "copy {stale} had lost its write");
    }
}

/// P-3: when nothing follows a commit, a record tells that it was durable: what is damaged later is an error of its file then, and the
/// commit is not taken for one that nobody was told of.
#[test]
fn a_commit_at_rest_is_proven() {
    for is_at_rest in [false, true] {
        let (mut rig, store) = Rig::new(1, 64 << 20);
        let blob = write_file(&store, SINGLE, 10, &content(1, 4096))[0];
        store.commit(Io::BLOCKING).unwrap();
        store.step(is_at_rest).unwrap();
        let written = rig.devices[0].counters().writes;
        store.step(is_at_rest).unwrap();
        assert_eq!(rig.devices[0].counters().writes, written, "once is enough");
        let handle = store.view(Io::BLOCKING, |view| view.blob(blob)).unwrap();
        let chunk = handle.segment.chunks()[0];
        let start = rig.superblocks[0].layout.slot_offset(chunk.slot).unwrap();
        let row = start + u64::from(handle.value.address.row_block) * 4096;
        rig.devices[0].corrupt(row + u64::from(handle.value.address.offset), 4096);
        drop(handle);
        let (store, report) = rig.crash(store, |_| true);
        assert_eq!(report.groups_cut, u64::from(!is_at_rest));
        let read = read_file(&store, 10, 4096);
        match is_at_rest {
            true => assert!(matches!(read, Err(Error::Damaged { .. })), "the loss is named"),
            false => assert!(read.is_ok_and(|bytes| bytes == vec![0; 4096]), "the file is as before the commit"),
        }
    }
}
