use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

fn scheme(data: u8, parity: u8) -> Scheme {
    Scheme::new(data, parity).unwrap()
}

fn placement(slot_counts: &[u32]) -> Placement {
    let mut placement = Placement::default();
    for (index, &slot_count) in slot_counts.iter().enumerate() {
        placement.set_slot_count(index as u16, slot_count);
        placement.set_open(index as u16, true);
    }
    placement
}

fn devices(places: &[ChunkPlace]) -> BTreeSet<DeviceIndex> {
    places.iter().map(|place| place.device).collect()
}

#[test]
fn an_unreplicated_segment_goes_where_its_file_lies_and_leaves_the_last_slots() {
    let mut placement = placement(&[4, 100]);
    for _ in 0..2 {
        assert_eq!(placement.allocate_on(stere_format::Site::ANYWHERE, 0, &[], 2).unwrap().chunks[0].device, 0);
    }
    // Two are left: they are kept while the other device has more ...
    assert!(matches!(placement.allocate_on(stere_format::Site::ANYWHERE, 0, &[], 2), Err(StripeError::NoSpace { .. })));
    assert!(
        !placement.has_room_for_home(stere_format::Site::ANYWHERE, 0, &[], 2)
            && placement.has_room_for_home(stere_format::Site::ANYWHERE, 0, &[], 0)
    );
    for _ in 0..98 {
        assert_eq!(placement.allocate_on(stere_format::Site::ANYWHERE, 1, &[], 2).unwrap().chunks[0].device, 1);
    }
    // ... and taken when nobody has more, but never those that the pool as a whole must keep.
    assert!(matches!(
        placement.allocate_on(
            stere_format::Site::ANYWHERE,
            0,
            &[Kept { scheme: scheme(1, 0), segments: 4, only: 0 }],
            2
        ),
        Err(StripeError::NoSpace { .. })
    ));
    for device in [0, 0, 1, 1] {
        assert_eq!(
            placement.allocate_on(stere_format::Site::ANYWHERE, device, &[], 2).unwrap().chunks[0].device,
            device
        );
    }
    assert!(matches!(placement.allocate_on(stere_format::Site::ANYWHERE, 0, &[], 0), Err(StripeError::NoSpace { .. })));
    placement.set_open(1, false);
    assert!(matches!(placement.allocate_on(stere_format::Site::ANYWHERE, 1, &[], 0), Err(StripeError::NoSpace { .. })));
}

#[test]
fn copies_rotate_over_all_pairs_and_first_copies_over_all_devices() {
    for count in [3usize, 4, 5] {
        let mut placement = placement(&vec![100; count]);
        let (mut pairs, mut firsts) = (HashMap::new(), HashMap::new());
        for _ in 0..count * 30 {
            let places = placement.allocate(scheme(1, 1), &[]).unwrap().chunks;
            *pairs.entry(devices(&places)).or_insert(0) += 1;
            *firsts.entry(places[0].device).or_insert(0) += 1;
        }
        assert_eq!(pairs.len(), count * (count - 1) / 2, "{pairs:?}");
        assert_eq!(firsts.len(), count);
        assert!(firsts.values().all(|&times| times > 15), "{firsts:?}");
    }
}

#[test]
fn many_equal_devices_are_no_trouble() {
    let mut placement = placement(&[10; 100]);
    let used: BTreeSet<DeviceIndex> =
        (0..150).flat_map(|_| devices(&placement.allocate(scheme(4, 2), &[]).unwrap().chunks)).collect();
    assert_eq!(used.len(), 100);
    let mut wide = super::tests::placement(&[3; 40]);
    assert_eq!(wide.allocate(scheme(28, 4), &[]).unwrap().chunks.len(), 32);
}

#[test]
fn a_large_device_takes_part_in_every_segment() {
    let mut placement = placement(&[30, 10, 10, 10]);
    assert_eq!(placement.capacity(scheme(1, 1)).segments_free, 30);
    for _ in 0..30 {
        assert!(devices(&placement.allocate(scheme(1, 1), &[]).unwrap().chunks).contains(&0));
    }
    assert!(matches!(placement.allocate(scheme(1, 1), &[]), Err(StripeError::NoSpace { segments_free: 0, .. })));
}

#[test]
fn what_is_kept_back_stays_for_those_who_may() {
    let mut placement = placement(&[10, 10]);
    let kept = [Kept { scheme: scheme(1, 1), segments: 3, only: 0 }];
    for _ in 0..7 {
        placement.allocate(scheme(1, 1), &kept).unwrap();
    }
    let refused = placement.allocate(scheme(1, 1), &kept);
    assert!(matches!(refused, Err(StripeError::NoSpace { segments_free: 3, segments_kept: 3, .. })));
    for _ in 0..3 {
        placement.allocate(scheme(1, 1), &[]).unwrap();
    }
}

#[test]
fn freed_slots_come_back_with_their_generation() {
    let mut placement = placement(&[2, 2]);
    let first = placement.allocate(scheme(1, 1), &[]).unwrap().chunks;
    let second = placement.allocate(scheme(1, 1), &[]).unwrap().chunks;
    placement.free_later(&first, 5);
    placement.free_later(&second, 6);
    let capacity = placement.capacity(scheme(1, 1));
    assert_eq!((capacity.segments_total, capacity.segments_free, capacity.segments_free_after_release), (2, 0, 2));
    assert_eq!(placement.usage(0), Some(SlotUsage { slot_count: 2, free: 0, pending: 2 }));
    assert!(placement.release(4).is_empty());
    assert_eq!(placement.release(5), first.to_vec());
    assert_eq!(placement.capacity(scheme(1, 1)).segments_free, 1);
    assert_eq!(placement.release(u64::MAX), second.to_vec());
    assert_eq!(placement.usage(1), Some(SlotUsage { slot_count: 2, free: 2, pending: 0 }));
}

#[test]
fn use_of_a_slot_is_checked() {
    let mut placement = placement(&[4]);
    let place = |device, slot| ChunkPlace { device, slot };
    placement.mark_used(&[place(0, 3), place(9, 77)]).unwrap();
    assert!(matches!(placement.mark_used(&[place(0, 3)]), Err(StripeError::SlotUsedTwice { .. })));
    assert!(matches!(placement.mark_used(&[place(0, 4)]), Err(StripeError::SlotOutOfRange { .. })));
    assert!(placement.is_used(place(9, 77)) && !placement.is_used(place(0, 0)));
    placement.set_slot_count(9, 100);
    assert_eq!(placement.usage(9).unwrap().free, 99);
}

#[test]
fn the_scheme_shrinks_to_the_devices_there_are() {
    let fit = |count: usize, data, parity| placement(&vec![1; count]).fit(scheme(data, parity)).ok();
    assert_eq!(fit(3, 1, 2), Some(scheme(1, 2)));
    assert_eq!(fit(2, 1, 2), Some(scheme(1, 1)));
    assert_eq!(fit(1, 1, 2), Some(scheme(1, 0)));
    assert_eq!(fit(5, 4, 2), Some(scheme(3, 2)));
    assert_eq!(fit(3, 4, 2), Some(scheme(1, 2)));
    assert_eq!(fit(2, 4, 2), Some(scheme(1, 1)));
    assert_eq!(fit(2, 4, 0), Some(scheme(2, 0)));
    assert_eq!(fit(0, 1, 1), None);
    let mut closed = placement(&[1, 1]);
    closed.set_open(0, false);
    assert_eq!(closed.fit(scheme(1, 1)).unwrap(), scheme(1, 0));
    assert!(matches!(closed.allocate(scheme(1, 1), &[]), Err(StripeError::TooFewDevices { present: 1, .. })));
}

proptest! {
    /// The formula is exact: so many are placed and not one more, whatever the sizes.
    #[test]
    fn capacity_is_what_can_be_placed(
        slot_counts in prop::collection::vec(0u32..40, 1..9), data in 1u8..4, parity in 0u8..3,
    ) {
        let scheme = scheme(data, parity);
        let mut placement = placement(&slot_counts);
        let capacity = placement.capacity(scheme);
        prop_assert_eq!(capacity.segments_total, capacity.segments_free);
        let mut seen = BTreeSet::new();
        for left in (0..capacity.segments_free).rev() {
            let places = placement.allocate(scheme, &[]).unwrap().chunks;
            prop_assert_eq!(devices(&places).len(), scheme.width());
            prop_assert!(places.iter().all(|place| seen.insert(*place)), "no slot twice");
            prop_assert_eq!(placement.capacity(scheme).segments_free, left);
        }
        prop_assert!(placement.allocate(scheme, &[]).is_err());
    }
}

fn attached(slot_counts: &[u32]) -> Placement {
    let mut placement = Placement::default();
    for (index, &slot_count) in slot_counts.iter().enumerate() {
        let index = index as u16;
        placement.set_slot_count(index, slot_count);
        placement.set_attached(index, true);
        placement.set_state(index, DeviceState::Active);
    }
    placement
}

#[test]
fn a_device_that_is_expected_back_is_deferred_chunks_only_where_it_is_needed() {
    let mut placement = attached(&[10, 10, 10]);
    placement.set_attached(2, false);
    // Two copies have two devices: nothing is deferred.
    let segment = placement.allocate(scheme(1, 1), &[]).unwrap();
    assert_eq!((segment.missing, devices(&segment.chunks)), (0, BTreeSet::from([0, 1])));
    // Three have not: one is deferred.
    assert_eq!(placement.fit(scheme(1, 2)).unwrap(), scheme(1, 2));
    assert_eq!(placement.fit(scheme(2, 1)).unwrap(), scheme(2, 1));
    for wide in [scheme(1, 2), scheme(2, 1)] {
        let segment = placement.allocate(wide, &[]).unwrap();
        let deferred = segment.chunks.iter().position(|place| place.device == 2).unwrap();
        assert_eq!(segment.missing, 1 << deferred);
    }
    // Without two there is too little for the content of 2+1: fewer data chunks on fewer devices.
    placement.set_attached(1, false);
    assert_eq!(placement.fit(scheme(2, 1)).unwrap(), scheme(1, 0));
    assert_eq!(placement.fit(scheme(1, 2)).unwrap(), scheme(1, 2));
    // Who is not expected back is deferred nothing.
    placement.set_state(1, DeviceState::Failed);
    assert_eq!(placement.fit(scheme(1, 2)).unwrap(), scheme(1, 1));
    assert!(placement.allocate(scheme(1, 2), &[]).is_err());
    placement.set_state(2, DeviceState::Leaving);
    assert_eq!(placement.fit(scheme(1, 2)).unwrap(), scheme(1, 0));
}

#[test]
fn what_is_deferred_has_its_capacity() {
    for slot_counts in [[10u32, 10, 10], [10, 4, 10], [10, 2, 3]] {
        for wide in [scheme(1, 2), scheme(2, 1)] {
            let mut placement = attached(&slot_counts);
            placement.set_attached(2, false);
            let fits = placement.capacity(wide).segments_free;
            assert_eq!(fits, u64::from(*slot_counts.iter().min().unwrap()));
            for _ in 0..fits {
                let segment = placement.allocate(wide, &[]).unwrap();
                assert_eq!(segment.missing.count_ones(), 1);
            }
            assert!(matches!(placement.allocate(wide, &[]), Err(StripeError::NoSpace { .. })));
        }
    }
}

/// P-6: what is kept for metadata that is deferred chunks takes slots of the devices that are there, beside those of the data.
#[test]
fn what_is_kept_for_segments_that_are_deferred_chunks_is_kept_where_they_go() {
    let (copies, wide) = (scheme(1, 1), scheme(1, 2));
    let kept = [Kept { scheme: wide, segments: 4, only: 0 }];
    let mut placement = attached(&[10, 8, 500]);
    placement.set_attached(1, false);
    assert_eq!(placement.fit(wide).unwrap(), wide, "one of three is deferred its chunk");
    assert_eq!(placement.room(copies, &kept), (6, 6), "both kinds need the small device that is there");
    while placement.allocate(copies, &kept).is_ok() {}
    for _ in 0..4 {
        placement.allocate(wide, &[]).unwrap();
    }
    assert!(placement.allocate(wide, &[]).is_err(), "no more was kept than asked for");
}

#[test]
fn a_device_that_fails_again_and_again_is_suspended_until_it_is_attached_again() {
    let mut placement = attached(&[10, 10]);
    assert!(!placement.note_write_error(1, false));
    assert!(!placement.note_write_error(1, false));
    assert!(placement.is_open(1));
    assert!(placement.note_write_error(1, false));
    assert!(placement.is_suspended(1) && !placement.is_open(1));
    assert!(!placement.note_write_error(1, true), "only once");
    placement.set_attached(1, true);
    assert!(placement.is_open(1));
    assert!(placement.note_write_error(1, true), "what is gone is gone at once");
}

#[test]
fn chunks_go_to_different_hosts_and_shelves_where_that_costs_nothing() {
    let mut placement = attached(&[20, 20, 20, 20]);
    for (index, host) in ["a", "a", "b", "b"].into_iter().enumerate() {
        placement.set_domain(index as u16, host, "");
    }
    let mut used = HashMap::new();
    for _ in 0..40 {
        let segment = placement.allocate(scheme(1, 1), &[]).unwrap();
        let hosts: BTreeSet<u16> = segment.chunks.iter().map(|place| place.device / 2).collect();
        assert_eq!(hosts.len(), 2, "{segment:?}");
        segment.chunks.iter().for_each(|place| *used.entry(place.device).or_insert(0) += 1);
    }
    assert_eq!(used.values().copied().collect::<BTreeSet<i32>>(), BTreeSet::from([20]));
    // A host with far more room than the others: nothing fits less for the sake of hosts.
    let mut lopsided = attached(&[20, 20, 4]);
    for (index, host) in ["a", "a", "b"].into_iter().enumerate() {
        lopsided.set_domain(index as u16, host, "");
    }
    let fits = lopsided.capacity(scheme(1, 1)).segments_free;
    for _ in 0..fits {
        lopsided.allocate(scheme(1, 1), &[]).unwrap();
    }
    assert_eq!(fits, 22);
}

#[test]
fn a_chunk_that_moves_keeps_apart_from_its_siblings() {
    let mut placement = attached(&[10, 10, 50, 5]);
    for (index, host) in ["a", "b", "a", "c"].into_iter().enumerate() {
        placement.set_domain(index as u16, host, "");
    }
    // Its sibling lies on host a: device 2 has most room, but device 3 shares nothing with it.
    assert_eq!(placement.place_beside(stere_format::Site::ANYWHERE, &[0], 1, None).unwrap().device, 3);
    assert_eq!(placement.place_beside(stere_format::Site::ANYWHERE, &[0], 1, Some(2)).unwrap().device, 2);
    assert_eq!(placement.place_beside(stere_format::Site::ANYWHERE, &[0, 2, 3], 1, None), None);
}

/// P-187: what was kept is placed where most is free, or the next of it finds no room: a single copy on each of the two devices that
/// 2+2 needs every slot of.
#[test]
fn what_was_kept_is_not_spread() {
    let mut placement = placement(&[2, 2, 4, 3]);
    let kept = [(scheme(1, 1), 2), (scheme(2, 2), 1)].map(|(scheme, segments)| Kept { scheme, segments, only: 0 });
    placement.allocate(scheme(1, 2), &kept).unwrap();
    for scheme in [scheme(1, 1), scheme(1, 1), scheme(2, 2)] {
        assert!(placement.allocate(scheme, &[]).is_ok(), "{scheme:?} was kept room for");
    }
}

proptest! {
    /// What is kept for others, of any schemes, can be placed whenever a segment was granted beside it, in any order; and a
    /// refusal is right: no choice of devices at all would have left room.
    #[test]
    fn what_is_kept_fits_and_nothing_is_refused_that_fits(
        slot_counts in prop::collection::vec(0u32..5, 1..5),
        wanted in (1u8..3, 0u8..3),
        kept in prop::collection::vec((1u8..3, 0u8..3, 0u64..4), 0..3),
        order in any::<u64>(),
    ) {
        let scheme_wanted = scheme(wanted.0, wanted.1);
        prop_assume!(scheme_wanted.width() <= slot_counts.len());
        let kept: Vec<Kept> = kept
            .into_iter()
            .map(|(data, parity, segments)| Kept { scheme: scheme(data, parity), segments, only: 0 })
            .filter(|kept| kept.scheme.width() <= slot_counts.len())
            .collect();
        let mut all: Vec<Scheme> =
            kept.iter().flat_map(|kept| std::iter::repeat_n(kept.scheme, kept.segments as usize)).collect();
        let mut placement = placement(&slot_counts);
        let granted = placement.allocate(scheme_wanted, &kept).is_ok();
        let mut with_wanted: Vec<usize> = all.iter().map(|scheme| scheme.width()).collect();
        with_wanted.push(scheme_wanted.width());
        prop_assert_eq!(granted, fit_somehow(&slot_counts, &with_wanted));
        if granted {
            let turns = all.len().max(1);
            all.rotate_left(order as usize % turns);
            for scheme in all {
                prop_assert!(placement.allocate(scheme, &[]).is_ok(), "{scheme:?} was kept room for");
            }
        }
    }

    /// Single copies never take the slots that copies or metadata need, however unlike the devices are.
    #[test]
    fn narrow_segments_leave_room_for_wide_ones(
        slot_counts in prop::collection::vec(4u32..60, 2..6), segments in 1u64..6, parity in 0u8..3,
    ) {
        let wide = scheme(1, parity.min(slot_counts.len() as u8 - 1));
        let kept = [Kept { scheme: wide, segments, only: 0 }];
        let mut placement = placement(&slot_counts);
        prop_assume!(placement.capacity(wide).segments_free >= segments);
        let (room_before, _) = placement.room(scheme(1, 0), &kept);
        let mut placed = 0;
        while placement.allocate(scheme(1, 0), &kept).is_ok() {
            placed += 1;
        }
        prop_assert_eq!(placed, room_before, "as many as were promised");
        prop_assert_eq!(placement.capacity(wide).segments_free, segments, "and the rest is for the others");
    }
}

/// Tries every choice of devices.
fn fit_somehow(counts: &[u32], widths: &[usize]) -> bool {
    let Some((&width, rest)) = widths.split_first() else { return true };
    for choice in 0u32..1 << counts.len() {
        let is_chosen = |at: usize| choice >> at & 1 == 1;
        if choice.count_ones() as usize != width || (0..counts.len()).any(|at| is_chosen(at) && counts[at] == 0) {
            continue;
        }
        let after: Vec<u32> = counts.iter().enumerate().map(|(at, count)| count - u32::from(is_chosen(at))).collect();
        if fit_somehow(&after, rest) {
            return true;
        }
    }
    false
}
