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
fn combinations_are_all_different() {
    for (n, k) in [(1, 1), (4, 2), (5, 3), (6, 6), (7, 1)] {
        let all: BTreeSet<Vec<usize>> = (0..binomial(n, k)).map(|rank| combination(n, k, rank)).collect();
        assert_eq!(all.len() as u64, binomial(n, k));
        assert!(all.iter().all(|one| one.windows(2).all(|pair| pair[0] < pair[1]) && one[k - 1] < n));
    }
}

#[test]
fn copies_rotate_over_all_pairs_and_first_copies_over_all_devices() {
    for count in [3usize, 4, 5] {
        let mut placement = placement(&vec![100; count]);
        let (mut pairs, mut firsts) = (HashMap::new(), HashMap::new());
        for _ in 0..count * 30 {
            let places = placement.allocate(scheme(1, 1), &[]).unwrap();
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
        (0..150).flat_map(|_| devices(&placement.allocate(scheme(4, 2), &[]).unwrap())).collect();
    assert_eq!(used.len(), 100);
    let mut wide = super::tests::placement(&[3; 40]);
    assert_eq!(wide.allocate(scheme(28, 4), &[]).unwrap().len(), 32);
}

#[test]
fn a_large_device_takes_part_in_every_segment() {
    let mut placement = placement(&[30, 10, 10, 10]);
    assert_eq!(placement.capacity(scheme(1, 1)).segments_free, 30);
    for _ in 0..30 {
        assert!(devices(&placement.allocate(scheme(1, 1), &[]).unwrap()).contains(&0));
    }
    assert!(matches!(placement.allocate(scheme(1, 1), &[]), Err(StripeError::NoSpace { segments_free: 0, .. })));
}

#[test]
fn what_is_kept_back_stays_for_those_who_may() {
    let mut placement = placement(&[10, 10]);
    let kept = [Kept { scheme: scheme(1, 1), segments: 3 }];
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
    let first = placement.allocate(scheme(1, 1), &[]).unwrap();
    let second = placement.allocate(scheme(1, 1), &[]).unwrap();
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
            let places = placement.allocate(scheme, &[]).unwrap();
            prop_assert_eq!(devices(&places).len(), scheme.width());
            prop_assert!(places.iter().all(|place| seen.insert(*place)), "no slot twice");
            prop_assert_eq!(placement.capacity(scheme).segments_free, left);
        }
        prop_assert!(placement.allocate(scheme, &[]).is_err());
    }

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
            .map(|(data, parity, segments)| Kept { scheme: scheme(data, parity), segments })
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
        let kept = [Kept { scheme: wide, segments }];
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
