//! Data on the devices that policy asks for or insists on.

use std::collections::BTreeSet;

use stere_format::{DeviceIndex, DeviceState, SegmentKind, Site};

use crate::tests::devices::rig::*;
use crate::{Error, Io, Label, Placement, Store};

const DEVICES: [u64; 4] = [64 * MIB; 4];

fn label(store: &Store, index: DeviceIndex, tag: &str) {
    let tags = Some(vec![tag.to_owned()]);
    store.devices.label_device(index, Label { tags, ..Label::default() }).unwrap();
}

fn only(store: &Store, word: &str) -> Placement {
    let only = store.places().place_number(&[word.to_owned()]).unwrap();
    Placement { site: Site { only, ..Site::ANYWHERE }, ..placement(1, 1) }
}

/// Devices of the segments that hold data of this placement.
fn lies_on(store: &Store, placement: Placement) -> BTreeSet<DeviceIndex> {
    let segments = store.segments().all().into_iter();
    let meant =
        segments.filter(|one| one.kind == SegmentKind::Data && one.site == placement.site && one.live_bytes() > 0);
    meant.flat_map(|segment| segment.chunks()).map(|place| place.device).collect()
}

fn mend(store: &Store) {
    for _ in 0..10_000 {
        if store.rebuilder.mend_step(8 << 20).unwrap().is_done {
            return;
        }
    }
    panic!("mending does not end");
}

/// P-142: a lost device is rebuilt within the place, and waits rather than going elsewhere.
#[test]
fn what_is_lost_is_rebuilt_within_its_place() {
    let (rig, store) = Rig::new(&DEVICES);
    [0, 1].into_iter().for_each(|index| label(&store, index, "fast"));
    let fast = only(&store, "fast");
    let data = content(3, 5_000_000);
    write_file(&store, fast, 10, &data);
    write_file(&store, placement(1, 1), 11, &data);
    store.commit(Io::BLOCKING).unwrap();
    assert_eq!(lies_on(&store, fast), BTreeSet::from([0, 1]));
    rig.devices[1].set_offline(true);
    store.devices.detach_device(1, false).unwrap();
    store.devices.set_device_state(1, DeviceState::Failed).unwrap();
    mend(&store);
    assert_eq!(lies_on(&store, fast), BTreeSet::from([0, 1]), "nobody else may have it");
    assert!(store.rebuilder.mend_status().impossible_chunks > 0);
    assert_eq!(read_file(&store, 10, data.len()).unwrap(), data);
    label(&store, 3, "fast");
    mend(&store);
    assert_eq!(lies_on(&store, fast), BTreeSet::from([0, 3]));
    assert_eq!(store.rebuilder.mend_status().impossible_chunks, 0);
    assert_eq!(read_file(&store, 10, data.len()).unwrap(), data);
    assert_clean(&store);
}

/// P-142: cleaning keeps what it moves where it must lie, and numbers of places mean the same after a crash.
#[test]
fn cleaning_and_crashes_keep_the_place() {
    let (rig, store) = Rig::new(&DEVICES);
    [2, 3].into_iter().for_each(|index| label(&store, index, "slow"));
    let slow = only(&store, "slow");
    let data = content(5, 900_000);
    for inode in 10..40 {
        write_file(&store, slow, inode, &data);
    }
    store.commit(Io::BLOCKING).unwrap();
    for segment in store.segments().all() {
        if segment.kind == SegmentKind::Data && segment.is_sealed() && segment.live_bytes() > 0 {
            assert!(store.cleaning().clean_segment(&segment).unwrap());
        }
    }
    store.commit(Io::BLOCKING).unwrap();
    assert_eq!(lies_on(&store, slow), BTreeSet::from([2, 3]));
    assert_eq!(lies_on(&store, placement(1, 1)), BTreeSet::new(), "nothing forgot where it must lie");
    drop(store);
    rig.lose_power(|at| at % 3 == 0);
    let store = rig.open(&[0, 1, 2, 3]);
    assert_eq!(only(&store, "slow"), slow);
    write_file(&store, slow, 50, &data);
    store.commit(Io::BLOCKING).unwrap();
    assert_eq!(lies_on(&store, slow), BTreeSet::from([2, 3]));
    for inode in 10..40 {
        assert_eq!(read_file(&store, inode, data.len()).unwrap(), data);
    }
    assert_clean(&store);
}

/// P-142: room is promised only where it is, and a pool knows so many places and no more.
#[test]
fn room_is_promised_where_it_is() {
    let (_rig, store) = Rig::new(&[64 * MIB, 64 * MIB, 512 * MIB, 512 * MIB]);
    [0, 1].into_iter().for_each(|index| label(&store, index, "small"));
    let small = only(&store, "small");
    assert!(store.space().reserve(Io::BLOCKING, placement(1, 1), 100 * MIB).is_ok());
    assert!(matches!(store.space().reserve(Io::BLOCKING, small, 100 * MIB), Err(Error::NoSpace)));
    let held = store.space().reserve(Io::BLOCKING, small, 20 * MIB).unwrap();
    assert!(matches!(store.space().reserve(Io::BLOCKING, small, 40 * MIB), Err(Error::NoSpace)));
    drop(held);
    assert!(store.space().reserve(Io::BLOCKING, small, 20 * MIB).is_ok());
    let nowhere = only(&store, "nowhere");
    assert!(matches!(store.space().reserve(Io::BLOCKING, nowhere, 1), Err(Error::NoSpace)));
    let refused = (0..300).find(|number| store.places().place_number(&[format!("p{number}")]).is_err());
    assert_eq!(refused, Some(248));
}

/// P-142: what emptying a device would leave without a place is told before it begins, by the place.
#[test]
fn a_forecast_knows_what_must_lie_where() {
    let (_rig, store) = Rig::new(&DEVICES);
    [0, 1].into_iter().for_each(|index| label(&store, index, "fast"));
    let fast = only(&store, "fast");
    let data = content(7, 5_000_000);
    write_file(&store, fast, 10, &data);
    write_file(&store, placement(1, 1), 11, &data);
    store.commit(Io::BLOCKING).unwrap();
    let told = |index| store.forecaster.forecast(&crate::Change::Evacuate(index)).unwrap();
    let forecast = told(0);
    assert!(!forecast.fits && forecast.homeless_chunks > 0, "{forecast:?}");
    // Two copies have two devices there and not one, however much room that has.
    let wide: Vec<_> = forecast.too_wide.iter().map(|(wide, bytes)| (wide.only, wide.devices_left, *bytes)).collect();
    assert!(
        matches!(wide[..], [(only, 1, bytes)] if only == fast.site.only && bytes >= data.len() as u64),
        "{forecast:?}"
    );
    assert!(told(2).fits && told(3).fits, "what may lie anywhere finds room");
    label(&store, 3, "fast");
    assert!(told(0).fits && told(0).too_wide.is_empty() && told(0).homeless_bytes.is_empty(), "{:?}", told(0));
    // And it is as it was told.
    store.devices.set_device_state(0, DeviceState::Leaving).unwrap();
    mend(&store);
    assert_eq!(lies_on(&store, fast), BTreeSet::from([1, 3]));
    assert_eq!(store.rebuilder.mend_status().impossible_chunks, 0);
    assert_clean(&store);
}
