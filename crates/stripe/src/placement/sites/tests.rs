use super::*;

const NVME: u8 = 2;
const DISKS: u8 = 3;

fn scheme(data: u8, parity: u8) -> Scheme {
    Scheme::new(data, parity).unwrap()
}

/// Devices with so many slots; the first two are of the place `NVME`, the others of `DISKS`.
fn placement(slot_counts: &[u32]) -> Placement {
    let mut placement = Placement::default();
    for (index, slots) in (0..).zip(slot_counts) {
        placement.set_slot_count(index, *slots);
        placement.set_attached(index, true);
    }
    placement.set_place(NVME, BTreeSet::from([0, 1]));
    placement.set_place(DISKS, (2..slot_counts.len() as u16).collect());
    placement
}

fn on(place: u8) -> Site {
    Site { on: place, only: 0, node: 0 }
}

fn only(place: u8) -> Site {
    Site { on: 0, only: place, node: 0 }
}

fn devices(places: &SegmentChunks) -> BTreeSet<DeviceIndex> {
    places.chunks.iter().map(|place| place.device).collect()
}

/// P-142: what is required is placed nowhere else, however much room there is.
#[test]
fn only_never_goes_elsewhere() {
    let mut placement = placement(&[3, 3, 100, 100, 100]);
    for _ in 0..3 {
        let places = placement.allocate_at(only(NVME), scheme(1, 1), &[]).unwrap();
        assert_eq!(devices(&places), BTreeSet::from([0, 1]));
    }
    assert!(matches!(placement.allocate_at(only(NVME), scheme(1, 1), &[]), Err(StripeError::NoSpace { .. })));
    assert!(matches!(placement.allocate_at(only(NVME), scheme(1, 2), &[]), Err(StripeError::TooFewDevices { .. })));
    assert_eq!(placement.fit_within(NVME, scheme(1, 2)).unwrap(), scheme(1, 1));
    // A place that no device is of.
    assert!(placement.allocate_at(only(9), scheme(1, 0), &[]).is_err());
    assert!(placement.fit_within(9, scheme(1, 1)).is_err());
    assert_eq!(placement.room_within(NVME, scheme(1, 1), &[], &BTreeMap::new()), (0, 3));
    assert_eq!(placement.room_within(0, scheme(1, 1), &[], &BTreeMap::new()).0, 150);
    assert_eq!(placement.open_devices(0).len(), 5, "nothing stays hidden");
}

/// P-143: a wish is followed as far as it can be, and never keeps anything from being written.
#[test]
fn on_falls_back_to_others() {
    let mut placement = placement(&[2, 2, 100, 100]);
    for _ in 0..2 {
        assert_eq!(placement.nearest(on(NVME), scheme(1, 1), &[]), Some(2));
        assert_eq!(devices(&placement.allocate_at(on(NVME), scheme(1, 1), &[]).unwrap()), BTreeSet::from([0, 1]));
    }
    assert_eq!(placement.nearest(on(NVME), scheme(1, 1), &[]), Some(0));
    assert_eq!(devices(&placement.allocate_at(on(NVME), scheme(1, 1), &[]).unwrap()), BTreeSet::from([2, 3]));
}

/// P-143: where too few are there for the redundancy, as many chunks as can lie there do.
#[test]
fn a_wish_is_followed_in_part() {
    let mut placement = placement(&[10, 10, 100, 100]);
    let places = placement.allocate_at(on(NVME), scheme(2, 1), &[]).unwrap();
    assert!(devices(&places).is_superset(&BTreeSet::from([0, 1])));
    assert_eq!(placement.nearest(on(NVME), scheme(2, 1), &[]), Some(2));
    placement.set_attached(1, false);
    let places = placement.allocate_at(on(NVME), scheme(1, 1), &[]).unwrap();
    assert!(places.missing == 0 && devices(&places).contains(&0), "the others are there, nothing is deferred");
    // Within what is required.
    let both = Site { on: NVME, only: DISKS, node: 0 };
    assert_eq!(devices(&placement.allocate_at(both, scheme(1, 1), &[]).unwrap()), BTreeSet::from([2, 3]));
}

/// P-142: what may lie anywhere leaves the last slots to what can lie nowhere else.
#[test]
fn the_last_slots_are_kept_for_what_needs_them() {
    let mut placement = placement(&[4, 4, 4, 4]);
    let kept = [Kept { scheme: scheme(1, 1), segments: 2, only: NVME }];
    let mut begun = 0;
    while placement.allocate_at(Site::ANYWHERE, scheme(1, 1), &kept).is_ok() {
        begun += 1;
    }
    assert_eq!(begun, 6);
    for _ in 0..2 {
        placement.allocate_at(only(NVME), scheme(1, 1), &[]).unwrap();
    }
}

/// P-142: a chunk that leaves its device goes where its segment may lie, or nowhere.
#[test]
fn chunks_move_within_their_place() {
    let mut placement = placement(&[4, 4, 100, 100]);
    assert_eq!(placement.best_beside(only(NVME), &[0], 1, None), None);
    assert_eq!(placement.best_beside(only(DISKS), &[0], 1, None), Some(2));
    assert_eq!(placement.best_beside(on(NVME), &[2], 3, None), Some(0), "rather than a device with more room");
    assert_eq!(placement.best_beside(on(NVME), &[0], 1, None), Some(2));
    for _ in 0..4 {
        assert!(placement.choose_home(only(NVME)).is_some_and(|home| home < 2));
        assert!(placement.choose_home(on(DISKS)).is_some_and(|home| home >= 2));
    }
    assert!(placement.allocate_on(only(NVME), 2, &[], 0).is_err());
    assert!(placement.has_room_for_home(only(NVME), 0, &[], 2));
}
