//! Devices that fail while a pool is mounted after a crash.

use std::collections::BTreeSet;

use super::*;

/// Refuses what a device that fails at it is asked for.
fn refuse(device: &MemoryDevice, refused: Operation) {
    device.set_fault_hook(Some(Box::new(move |operation, _, _| (operation == refused).then_some(Fault::Error))));
}

/// A pool that crashed in the middle of a commit, of which one device kept nothing, and who has chunks of what was written last.
fn crashed(placement: Placement, lacking: Option<usize>) -> (Rig, BTreeSet<usize>) {
    let (mut rig, store) = Rig::new(3, 64 << 20);
    write_file(&store, COPIES, 10, &content(1, 4096));
    store.commit(Io::BLOCKING).unwrap();
    write_file(&store, placement, 11, &content(2, 200_000));
    rig.devices.iter().for_each(|device| refuse(device, Operation::Flush));
    store.commit(Io::BLOCKING).unwrap_err();
    let holding = store.log().segments.all().into_iter().filter(|segment| segment.class == placement.class);
    let holders = holding.flat_map(|segment| segment.chunks()).map(|place| usize::from(place.device)).collect();
    drop(store);
    for (index, device) in rig.devices.iter().enumerate() {
        device.set_fault_hook(None);
        device.lose_unflushed(|_| Some(index) != lacking);
    }
    rig.read_superblocks();
    (rig, holders)
}

/// P-216: a device that takes no writes, or no flushes, keeps nobody from mounting after a crash; the journal goes on without it, and what
/// was not proven before is durable on the others.
#[test]
fn a_mirror_that_cannot_be_repaired_drops_out() {
    for refused in [Operation::Write, Operation::Flush] {
        for failing in 1..3 {
            let (mut rig, _) = crashed(COPIES, Some(failing));
            refuse(&rig.devices[failing], refused);
            let (store, report) = Store::open(rig.devices_in(), options()).unwrap();
            assert!(report.records_repaired > 0 && report.groups_cut == 0, "{report:?}");
            assert!(!store.journal_mirrors().contains(&(failing as u16)), "{:?}", store.journal_mirrors());
            assert_eq!(read_file(&store, 11, 200_000).unwrap(), content(2, 200_000));
            drop(store);
            rig.devices.iter().for_each(|device| device.lose_unflushed(|_| false));
            rig.devices[failing].set_fault_hook(None);
            rig.read_superblocks();
            let mut devices = rig.devices_in();
            drop(devices.remove(failing));
            let (store, _) = Store::open(devices, options()).unwrap();
            assert_eq!(read_file(&store, 11, 200_000).unwrap(), content(2, 200_000), "{refused:?} on {failing}");
        }
    }
}

/// P-216: where all mirrors fail the pool is refused, and nothing was changed.
#[test]
fn without_a_mirror_nobody_mounts() {
    let (mut rig, _) = crashed(COPIES, Some(1));
    rig.devices.iter().for_each(|device| refuse(device, Operation::Write));
    assert!(Store::open(rig.devices_in(), options()).is_err());
    rig.devices.iter().for_each(|device| device.set_fault_hook(None));
    let (store, _) = rig.reopen();
    assert_eq!(read_file(&store, 11, 200_000).unwrap(), content(2, 200_000));
}

/// P-216: of one copy on a device that fails at flushing nobody knows whether it is durable: it is written elsewhere before it is shown.
#[test]
fn one_copy_on_a_device_that_drops_out_is_written_elsewhere() {
    let (mut rig, holders) = crashed(SINGLE, None);
    let failing = *holders.first().unwrap();
    // Its journal lacks the first record, and is to be repaired.
    let superblock = &rig.superblocks[failing];
    let first = superblock.journal_start.position % superblock.journal_bytes;
    rig.devices[failing].corrupt(superblock.layout.journal_offset + first, 4096);
    refuse(&rig.devices[failing], Operation::Flush);
    let (store, report) = Store::open(rig.devices_in(), options()).unwrap();
    assert!(report.records_repaired > 0, "{report:?}");
    drop(store);
    rig.devices.iter().for_each(|device| device.lose_unflushed(|_| false));
    rig.devices[failing].set_fault_hook(None);
    rig.read_superblocks();
    let mut devices = rig.devices_in();
    drop(devices.remove(failing));
    let (store, _) = Store::open(devices, options()).unwrap();
    assert_eq!(read_file(&store, 11, 200_000).unwrap(), content(2, 200_000));
}
