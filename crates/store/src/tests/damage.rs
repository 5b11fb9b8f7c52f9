//! Content that no device gives any more: known, told, and forgotten when it is gone.

use stere_device::Operation;
use stere_device::memory::Fault;
use stere_format::{DeviceIndex, DeviceState, SegmentKind};

use crate::ScrubReport;
use crate::tests::devices::rig::*;
use crate::tests::remove_file;
use crate::{HealthState, Placement, Store};

const DEVICE_BYTES: u64 = 64 * MIB;

/// The device that holds the first file that is stored once.
fn holder_of_single(store: &Store, devices: u16) -> DeviceIndex {
    let holds = |index: &DeviceIndex| {
        let segments = store.segments().all();
        segments.iter().any(|s| s.kind == SegmentKind::Data && s.live_bytes() > 0 && s.chunks()[0].device == *index)
    };
    (0..devices).find(holds).unwrap()
}

/// Reads of slots fail on this device, from the byte `from` of each slot on.
fn fail_reads(rig: &Rig, index: DeviceIndex, from: u64) {
    let start = layout(&rig.devices[usize::from(index)]).slots_offset;
    let chunk = u64::from(CHUNK_BYTES);
    let is_bad = move |operation, offset: u64, length: u64| {
        let end = offset + length;
        let is_hit =
            (start..DEVICE_BYTES).step_by(chunk as usize).any(|slot| offset < slot + chunk && end > slot + from);
        (operation == Operation::Read && is_hit).then_some(Fault::Error)
    };
    rig.devices[usize::from(index)].set_fault_hook(Some(Box::new(is_bad)));
}

fn single(inodes: std::ops::Range<u64>) -> Vec<(u64, Placement, usize)> {
    some_files(Files { placement: placement(1, 0), bytes: 700_000 }, inodes)
}

/// P-160: what a device does not give is not moved: its place stays known, and all is there when the device reads again.
#[test]
fn what_cannot_be_read_stays_where_it_is() {
    for state in [DeviceState::Removing, DeviceState::Leaving, DeviceState::Failed] {
        for from in [0, 300_000] {
            let (rig, store) = Rig::new(&[DEVICE_BYTES; 3]);
            let files = single(10..30);
            write(&store, &files);
            store.close().unwrap();
            drop(store);
            let store = rig.open(&[0, 1, 2]);
            let holder = holder_of_single(&store, 3);
            fail_reads(&rig, holder, from);
            store.devices.set_device_state(holder, state).unwrap();
            mend(&store);
            let status = store.rebuilder.mend_status();
            assert!(status.unreadable_chunks > 0, "{state:?}: {status:?}");
            assert_eq!(status.impossible_chunks, status.chunks_left, "{status:?}");
            assert!(store.devices.device_usage(holder).unwrap().chunks > 0);
            assert!(store.damage().has_damage());
            rig.devices[usize::from(holder)].set_fault_hook(None);
            // Also after the next mount.
            store.close().unwrap();
            drop(store);
            let store = rig.open(&[0, 1, 2]);
            assert!(store.damage().has_damage(), "known in the pool");
            assert_readable(&store, &files);
            store.damage().review_damage(usize::MAX).unwrap();
            assert!(!store.damage().has_damage());
            mend(&store);
            let chunks = store.devices.device_usage(holder).map_or(0, |usage| usage.chunks);
            assert_eq!(chunks, 0, "{state:?}: the device is empty at last");
            assert_readable(&store, &files);
            assert_clean(&store);
        }
    }
}

/// P-160: a spare takes over from a device that fails for a while and comes back intact.
#[test]
fn a_device_that_comes_back_after_a_spare_took_over_has_all_it_had() {
    let (mut rig, store) = Rig::new(&[DEVICE_BYTES; 3]);
    let files = single(10..30);
    write(&store, &files);
    let spare = rig.buy(DEVICE_BYTES);
    let entry = stere_format::DeviceEntry { state: DeviceState::Spare.code(), ..rig.entry(spare) };
    store.devices.add_device(rig.new_device(spare), entry).unwrap();
    let holder = holder_of_single(&store, 3);
    fail_reads(&rig, holder, 0);
    store.devices.set_device_state(holder, DeviceState::Failed).unwrap();
    mend(&store);
    rig.devices[usize::from(holder)].set_fault_hook(None);
    store.devices.set_device_state(holder, DeviceState::Active).unwrap();
    mend(&store);
    assert_readable(&store, &files);
    assert_clean(&store);
}

/// P-160: of stripes that have lost too much, a chunk on a good device can leave it: it is copied as it lies.
#[test]
fn a_chunk_of_a_damaged_stripe_leaves_a_good_device() {
    let (rig, store) = Rig::new(&[DEVICE_BYTES; 5]);
    let files = some_files(Files { placement: placement(3, 0), bytes: 900_000 }, 10..16);
    write(&store, &files);
    fail_reads(&rig, 0, 0);
    store.devices.set_device_state(1, DeviceState::Leaving).unwrap();
    mend(&store);
    assert_eq!(store.devices.device_usage(1).unwrap().chunks, 0);
    rig.devices[0].set_fault_hook(None);
    assert_readable(&store, &files);
}

/// P-161: what no copy gives is known until it is gone or right, in the pool too, and counts on its device.
#[test]
fn damage_is_known_until_it_is_gone_or_right() {
    let (rig, store) = Rig::new(&[DEVICE_BYTES]);
    let files = single(10..14);
    write(&store, &files);
    store.close().unwrap();
    drop(store);
    let start = layout(&rig.devices[0]).slots_offset;
    let intact = rig.copy();
    for slot in 0..40 {
        rig.devices[0].corrupt(start + slot * u64::from(CHUNK_BYTES) + 200_000, 4096);
    }
    let store = rig.open(&[0]);
    assert!(!store.damage().has_damage());
    let report: ScrubReport = store.scrubber.scrub().unwrap();
    assert!(!report.unrepairable.is_empty());
    assert!(store.damage().has_damage());
    assert_eq!(store.health.health(0).unwrap().state, HealthState::Sick);
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0]);
    assert!(store.damage().has_damage(), "after a new mount");
    assert_eq!(store.health.health(0).unwrap().state, HealthState::Sick);
    store.damage().review_damage(usize::MAX).unwrap();
    assert!(store.damage().has_damage(), "still damaged");
    // Right again: as if the right bytes were put back from outside.
    drop(store);
    let store = intact.open(&[0]);
    assert_readable(&store, &files);
    assert!(!store.damage().has_damage());
    drop(store);
    // Gone.
    let store = rig.open(&[0]);
    files.iter().for_each(|(inode, _, _)| remove_file(&store, *inode));
    store.damage().forget_freed_damage();
    assert!(!store.damage().has_damage());
    assert_eq!(store.health.health(0).unwrap().state, HealthState::Good);
}

/// P-161: a read that finds no right copy makes it known.
#[test]
fn a_failed_read_is_known() {
    let (rig, store) = Rig::new(&[DEVICE_BYTES]);
    let files = single(10..12);
    write(&store, &files);
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0]);
    fail_reads(&rig, 0, 0);
    assert!(files.iter().any(|(inode, _, length)| crate::tests::read_file(&store, *inode, *length).is_err()));
    assert!(store.damage().has_damage());
    rig.devices[0].set_fault_hook(None);
    assert!(store.damage().review_damage(usize::MAX).unwrap());
    assert!(!store.damage().has_damage());
}

/// P-161: a device that counts as having missed a chunk gave nothing wrong, and is not blamed for what the other one does not give.
#[test]
fn who_missed_a_chunk_is_not_blamed() {
    let (rig, store) = Rig::new(&[DEVICE_BYTES; 2]);
    store.devices.detach_device(1, false).unwrap();
    let files = some_files(Files { placement: placement(1, 1), bytes: 700_000 }, 10..12);
    write(&store, &files);
    store.checkpoint().unwrap();
    store.devices.attach_device(rig.device_in(1)).unwrap();
    fail_reads(&rig, 0, 0);
    assert!(files.iter().any(|(inode, _, length)| crate::tests::read_file(&store, *inode, *length).is_err()));
    assert!(store.damage().has_damage());
    assert_eq!(store.health.health(0).unwrap().state, HealthState::Sick);
    assert_eq!(store.health.health(1).unwrap().state, HealthState::Good);
    rig.devices[0].set_fault_hook(None);
}
