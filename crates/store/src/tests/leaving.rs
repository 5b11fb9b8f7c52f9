//! Devices that leave together, as those of a host do: judged as one change (P-275).

use stere_format::{DeviceIndex, DeviceState};

use super::devices::rig::*;
use crate::{Change, Forecast, Store};

fn leave(store: &Store, devices: &[DeviceIndex]) -> Forecast {
    store.forecaster.forecast(&Change::Leave(devices.to_vec())).unwrap()
}

/// None of those that leave is a place for another, though each alone would be.
#[test]
fn devices_that_leave_together_take_nothing_of_each_other() {
    let (_rig, store) = Rig::new(&[64 * MIB; 4]);
    let wide = some_files(Files { placement: placement(2, 1), bytes: 900_000 }, 10..20);
    write(&store, &wide);
    for alone in 0..4 {
        assert!(leave(&store, &[alone]).fits);
    }
    let two = leave(&store, &[0, 1]);
    assert!(!two.fits && two.devices_left == 2, "{two:?}");
    let told: Vec<_> = two.too_wide.keys().map(|wide| (wide.data, wide.parity, wide.devices_left)).collect();
    assert_eq!(told, [(2, 1, 2)]);
    // As it is told of one: it goes, and all is there.
    store.devices.set_device_state(0, DeviceState::Removing).unwrap();
    mend(&store);
    assert_eq!(store.device_entries().len(), 3);
    assert_readable(&store, &wide);
    assert_clean(&store);
}

/// Content that only an absent device has goes with it, and is told; what others have does not.
#[test]
fn what_an_absent_device_has_alone_is_lost_with_it() {
    let (rig, store) = Rig::new(&[64 * MIB; 4]);
    let (single, double) = (placement(1, 0), placement(1, 1));
    write(&store, &some_files(Files { placement: single, bytes: 900_000 }, 10..22));
    write(&store, &some_files(Files { placement: double, bytes: 900_000 }, 30..40));
    assert_eq!(leave(&store, &[0, 1]).lost_bytes, 0, "both are there, and are read");
    let alone = |store: &Store, index: DeviceIndex| -> u64 {
        let segments = store.segments().all();
        let on_it = segments.iter().filter(|segment| segment.scheme.parity == 0 && segment.chunks()[0].device == index);
        on_it.map(|segment| segment.live_bytes()).sum()
    };
    let expected = alone(&store, 1);
    assert!(expected > 0, "single copies lie on every device");
    rig.devices[1].set_offline(true);
    store.devices.detach_device(1, true).unwrap();
    assert_eq!(leave(&store, &[0, 1]).lost_bytes, expected);
    assert_eq!(leave(&store, &[0]).lost_bytes, 0, "what is lost with another device is none of this one's");
}

/// Copies on two hosts go to two devices of one where no other has room: that is told.
#[test]
fn content_that_would_be_bound_to_one_host_is_told() {
    let (_rig, store) = Rig::labelled(&[64 * MIB; 4], &["a", "a", "b", "c"], &[]);
    let files = some_files(Files { placement: placement(1, 1), bytes: 900_000 }, 10..20);
    write(&store, &files);
    let one = leave(&store, &[3]);
    assert!(one.fits && one.host_bound_bytes == 0, "host b has room: {one:?}");
    let two = leave(&store, &[2, 3]);
    assert!(two.fits && two.host_bound_bytes > 0, "only host a is left: {two:?}");
    for index in [2, 3] {
        store.devices.set_device_state(index, DeviceState::Removing).unwrap();
    }
    mend(&store);
    assert_eq!(store.device_entries().len(), 2);
    assert!(store.devices.shared_domains().sharing_host > 0);
    assert_readable(&store, &files);
    assert_clean(&store);
}
