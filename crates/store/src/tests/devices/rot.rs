//! Rot in the one copy that is there while another is missing.

use super::rig::*;

/// P-190: a copy that is missing and is filled keeps what its slot has right where the other copy is rotten.
#[test]
fn rot_is_not_put_over_what_a_missing_copy_has() {
    let (rig, store) = Rig::new(&[64 * MIB; 2]);
    let before = some_files(Files { placement: placement(1, 1), bytes: 600_000 }, 10..11);
    write(&store, &before);
    // The device goes while that segment is still written to.
    rig.devices[1].set_offline(true);
    let during = some_files(Files { placement: placement(1, 1), bytes: 200_000 }, 20..21);
    write(&store, &during);
    store.devices.detach_device(1, true).unwrap();
    let missing = store.segments().all().iter().filter(|segment| segment.missing() != 0).count();
    assert!(missing > 0, "nothing is missing");
    // The copy that is left rots, in the middle of the first file.
    let slots = layout(&rig.devices[0]).slots_offset;
    for slot in 0..60 {
        rig.devices[0].corrupt(slots + slot * MIB + 300_000, 512);
    }
    assert!(read_file(&store, 10, before[0].2).is_err(), "the one copy that is there is rotten");
    rig.devices[1].set_offline(false);
    store.devices.attach_device(rig.device_in(1)).unwrap();
    mend(&store);
    assert!(store.segments().all().iter().all(|segment| segment.missing() == 0), "all is filled");
    assert_readable(&store, &before);
    assert_readable(&store, &during);
    // And what is right is written over what is not, where it lies.
    let report = store.scrubber.scrub().unwrap();
    assert!(report.unrepairable.is_empty(), "{report:?}");
    assert_complete(&store, &[]);
    rig.devices[1].set_offline(true);
    assert_readable(&store, &before);
}

/// P-190: the same with parity, whichever chunk is missing and whichever of the others rots: what the missing chunk's slot has right is not
/// lost to what rotten chunks would give.
#[test]
fn rot_is_not_put_over_what_a_missing_chunk_of_a_parity_segment_has() {
    for (away, rotten) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let (rig, store) = Rig::new(&[64 * MIB; 3]);
        let before = some_files(Files { placement: placement(2, 1), bytes: 600_000 }, 10..11);
        write(&store, &before);
        rig.devices[away].set_offline(true);
        let during = some_files(Files { placement: placement(2, 1), bytes: 200_000 }, 20..21);
        write(&store, &during);
        store.devices.detach_device(away as u16, true).unwrap();
        let missing = store.segments().all().iter().filter(|segment| segment.missing() != 0).count();
        assert!(missing > 0, "nothing is missing");
        let slots = layout(&rig.devices[rotten]).slots_offset;
        for slot in 0..60 {
            rig.devices[rotten].corrupt(slots + slot * MIB + 100_000, 512);
        }
        assert!(read_file(&store, 10, before[0].2).is_err(), "too few chunks are there and right");
        rig.devices[away].set_offline(false);
        store.devices.attach_device(rig.device_in(away as u16)).unwrap();
        mend(&store);
        assert!(store.segments().all().iter().all(|segment| segment.missing() == 0), "all is filled");
        assert_readable(&store, &before);
        assert_readable(&store, &during);
        let report = store.scrubber.scrub().unwrap();
        assert!(report.unrepairable.is_empty(), "{away} away, {rotten} rotten: {report:?}");
        assert_complete(&store, &[]);
        rig.devices[rotten].set_offline(true);
        assert_readable(&store, &before);
    }
}
