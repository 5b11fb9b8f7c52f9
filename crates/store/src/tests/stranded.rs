//! Devices that die while they are written to: nothing that was still in memory is lost, and nothing acknowledged without its copies.

use stere_device::memory::Fault;
use stere_device::{MemoryDevice, Operation};
use stere_format::Key;

use crate::tests::{COPIES, Rig, SINGLE, content, read_file, write_file};
use crate::{Content, Error, Io, Owner, Store};

const MIB: u64 = 1 << 20;

/// Fails these operations from now on.
fn fail(device: &MemoryDevice, failing: &'static [Operation]) {
    device.set_fault_hook(Some(Box::new(move |operation, _, _| failing.contains(&operation).then_some(Fault::Error))));
}

/// A file with one copy on this device, if it takes any.
fn write_at(store: &Store, home: u16, inode: u64, data: &[u8]) {
    for (index, piece) in data.chunks(128 << 10).enumerate() {
        let owner = Owner { inode, offset: (index * (128 << 10)) as u64 };
        let blob = store.append_blob_at_home(Io::BLOCKING, SINGLE, Some(home), owner, &Content::plain(piece)).unwrap();
        enter(store, &blob, owner);
    }
}

fn enter(store: &Store, blob: &crate::NewBlob, owner: Owner) {
    let extent = stere_format::ExtentValue {
        blob: blob.id,
        blob_offset: 0,
        length: blob.length(),
        flags: stere_format::ExtentFlags::Plain,
        charge: 0,
    };
    let entered = store.update(Io::BLOCKING, |transaction| {
        transaction.insert_blob(blob);
        transaction.put(Key::extent(owner.inode, owner.offset), &extent.encode());
        Ok::<_, Error>(())
    });
    entered.unwrap();
}

/// P-5: unreplicated data on its way to a device that dies is written elsewhere, and what the device still gives is given.
#[test]
fn rows_of_a_dying_device_go_elsewhere() {
    for failing in [&[Operation::Write][..], &[Operation::Flush], &[Operation::Write, Operation::Flush]] {
        let (mut rig, store) = Rig::new(3, 64 * MIB);
        let before = content(1, 900_000);
        write_at(&store, 1, 10, &before);
        store.commit(Io::BLOCKING).unwrap();
        let during: Vec<Vec<u8>> = (0..6).map(|seed| content(20 + seed, 1_500_000)).collect();
        write_at(&store, 1, 20, &during[0]);
        fail(&rig.devices[1], failing);
        for (inode, data) in (21..).zip(&during[1..4]) {
            write_at(&store, 1, inode, data);
        }
        store.commit(Io::BLOCKING).unwrap();
        assert!(store.failure().is_none(), "{failing:?}");
        for (inode, data) in (24..).zip(&during[4..]) {
            write_at(&store, 1, inode, data);
            store.commit(Io::BLOCKING).unwrap();
        }
        assert!(store.devices.device_usage(1).unwrap().is_suspended);
        let check = |store: &Store| {
            assert!(read_file(store, 10, before.len()).unwrap() == before, "{failing:?}: what was there before");
            for (inode, data) in (20..).zip(&during) {
                assert!(read_file(store, inode, data.len()).unwrap() == *data, "{failing:?}: file {inode}");
            }
        };
        check(&store);
        assert_eq!(store.log().rows.rerouted_segments(), [0; 0], "nothing waits");
        // What was acknowledged is found after a power cut, without the device's last writes.
        let (store, _) = {
            rig.devices[1].set_fault_hook(None);
            rig.crash(store, |_| false)
        };
        check(&store);
        assert!(store.checker.check(true).unwrap().findings.is_empty());
    }
}

/// P-5: the device is gone altogether: what was synced on it is away with it, and nothing else.
#[test]
fn a_device_that_vanishes_takes_only_what_lay_on_it() {
    let (rig, store) = Rig::new(3, 64 * MIB);
    let (before, during) = (content(1, 900_000), content(2, 3_000_000));
    write_at(&store, 2, 10, &before);
    store.commit(Io::BLOCKING).unwrap();
    // Arrived, and not flushed.
    write_at(&store, 2, 11, &during);
    store.log().close_rows(stere_format::SegmentKind::Data);
    store.log().wait_for_rows().unwrap();
    rig.devices[2].set_offline(true);
    write_at(&store, 2, 12, &during);
    store.checkpoint().unwrap();
    assert!(read_file(&store, 10, before.len()).is_err());
    for inode in [11, 12] {
        assert!(read_file(&store, inode, during.len()).unwrap() == during);
    }
    write_at(&store, 2, 13, &during);
    store.close().unwrap();
    assert!(store.failure().is_none());
    rig.devices[2].set_offline(false);
    assert!(read_file(&store, 10, before.len()).unwrap() == before);
}

/// A blob that is entered only after its row was stranded is saved by the commit that covers it.
#[test]
fn a_blob_that_nobody_names_yet_is_not_forgotten() {
    let (mut rig, store) = Rig::new(3, 64 * MIB);
    let data = content(5, 100_000);
    let owner = Owner { inode: 10, offset: 0 };
    let blob = store.append_blob_at_home(Io::BLOCKING, SINGLE, Some(0), owner, &Content::plain(&data)).unwrap();
    fail(&rig.devices[0], &[Operation::Write]);
    write_at(&store, 0, 11, &data);
    store.commit(Io::BLOCKING).unwrap();
    store.commit(Io::BLOCKING).unwrap();
    assert_eq!(store.log().rows.rerouted_segments().len(), 1, "it is still in memory");
    enter(&store, &blob, owner);
    drop(blob);
    store.commit(Io::BLOCKING).unwrap();
    store.commit(Io::BLOCKING).unwrap();
    assert_eq!(store.log().rows.rerouted_segments(), [0; 0]);
    rig.devices[0].set_fault_hook(None);
    let (store, _) = rig.crash(store, |_| false);
    for inode in [10, 11] {
        assert!(read_file(&store, inode, data.len()).unwrap() == data);
    }
}

/// P-19: that a copy is missing is known as durably as the data is.
#[test]
fn a_copy_that_was_not_written_is_recorded_before_the_commit_is_acknowledged() {
    for failing in [&[Operation::Write][..], &[Operation::Flush]] {
        let (mut rig, store) = Rig::new(3, 64 * MIB);
        let data = content(3, 700_000);
        write_file(&store, COPIES, 10, &data);
        store.commit(Io::BLOCKING).unwrap();
        fail(&rig.devices[1], failing);
        for inode in 11..14 {
            write_file(&store, COPIES, inode, &data);
        }
        store.commit(Io::BLOCKING).unwrap();
        let missing = |store: &Store| -> Vec<(u64, u32)> {
            let mut segments = store.segments().all();
            segments.retain(|segment| segment.kind == stere_format::SegmentKind::Data && segment.missing() != 0);
            segments.iter().map(|segment| (segment.id, segment.missing())).collect()
        };
        let known = missing(&store);
        assert!(!known.is_empty(), "some chunk failed");
        rig.devices[1].set_fault_hook(None);
        let (store, _) = rig.crash(store, |_| false);
        assert_eq!(missing(&store), known, "{failing:?}");
        for inode in 10..14 {
            assert!(read_file(&store, inode, data.len()).unwrap() == data);
        }
    }
}

/// P-5: where nothing else takes it, the pool stops and says so.
#[test]
fn with_no_other_device_the_pool_stops() {
    let (rig, store) = Rig::new(1, 64 * MIB);
    let data = content(3, 700_000);
    write_file(&store, SINGLE, 10, &data);
    store.commit(Io::BLOCKING).unwrap();
    fail(&rig.devices[0], &[Operation::Write]);
    write_file(&store, SINGLE, 11, &data[..100_000]);
    assert!(store.commit(Io::BLOCKING).is_err());
    assert!(store.failure().is_some());
    assert!(read_file(&store, 10, data.len()).unwrap() == data);
}

/// A part of a file that is lost with its device goes on being changed: that does not cut the journal at the next mount.
#[test]
fn what_is_lost_does_not_hold_up_recovery() {
    let (mut rig, store) = Rig::new(3, 64 * MIB);
    let data = content(7, 128 << 10);
    write_at(&store, 1, 10, &data);
    store.close().unwrap();
    // It rots where it lies.
    let segments = store.segments().all();
    let place = segments.iter().find(|segment| segment.home() == Some(1)).unwrap().chunks()[0];
    let start = rig.superblocks[1].layout.slot_offset(place.slot).unwrap();
    rig.devices[1].corrupt(start + 4096, 256 << 10);
    let blob = store.view(Io::BLOCKING, |view| {
        let extent = view.get(&Key::extent(10, 0))?.unwrap();
        Ok::<_, Error>(stere_format::ExtentValue::decode(&extent).unwrap().blob)
    });
    let blob = blob.unwrap();
    let (store, _) = rig.crash(store, |_| true);
    let trimmed = store.update(Io::BLOCKING, |transaction| {
        transaction.trim_blob(blob, 0..65_536)?;
        transaction.put(Key::inode(77), b"synced together");
        Ok::<_, Error>(())
    });
    trimmed.unwrap();
    store.commit(Io::BLOCKING).unwrap();
    let (store, report) = rig.crash(store, |_| false);
    assert_eq!(report.groups_cut, 0);
    let found = store.view(Io::BLOCKING, |view| Ok::<_, Error>(view.get(&Key::inode(77))?.is_some())).unwrap();
    assert!(found && read_file(&store, 10, data.len()).is_err());
}

/// P-1: a crash that takes a device with it takes only what lay on it: what was synced together with that is there.
#[test]
fn a_device_that_is_lost_in_the_crash_does_not_cut_the_journal() {
    let (mut rig, store) = Rig::new(4, 64 * MIB);
    let data = content(9, 300_000);
    store.commit(Io::BLOCKING).unwrap();
    write_at(&store, 3, 10, &data);
    write_file(&store, COPIES, 11, &data);
    store.commit(Io::BLOCKING).unwrap();
    drop(store);
    rig.devices.iter().for_each(|device| device.lose_unflushed(|_| false));
    rig.read_superblocks();
    let mut rest = rig.devices_in();
    rest.truncate(3);
    let (store, report) = Store::open(rest, crate::tests::options()).unwrap();
    assert_eq!(report.groups_cut, 0);
    assert!(read_file(&store, 11, data.len()).unwrap() == data);
    assert!(read_file(&store, 10, data.len()).is_err());
}
