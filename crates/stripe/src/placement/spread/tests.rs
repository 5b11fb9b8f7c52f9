use std::collections::BTreeMap;

use proptest::prelude::*;
use stere_format::{DeviceIndex, DeviceState, Scheme};

use super::super::{Kept, Placement};

fn placement(slot_counts: &[u32]) -> Placement {
    let mut placement = Placement::default();
    for (index, &slot_count) in slot_counts.iter().enumerate() {
        placement.set_slot_count(index as u16, slot_count);
        placement.set_attached(index as u16, true);
        placement.set_state(index as u16, DeviceState::Active);
    }
    placement
}

fn copies(count: u8) -> Scheme {
    Scheme::new(1, count - 1).unwrap()
}

/// Content of users is placed beside what is kept for others, which is nothing here.
fn of_users() -> [Kept; 1] {
    [Kept { scheme: copies(1), segments: 0, only: 0 }]
}

/// How often each pair of devices meets in so many segments.
fn pairs(placement: &mut Placement, scheme: Scheme, segments: u64) -> BTreeMap<(DeviceIndex, DeviceIndex), u64> {
    let mut pairs = BTreeMap::new();
    for _ in 0..segments {
        let chunks = placement.allocate(scheme, &of_users()).unwrap().chunks;
        for one in &chunks {
            let others = chunks.iter().filter(|other| other.device > one.device);
            others.for_each(|other| *pairs.entry((one.device, other.device)).or_insert(0) += 1);
        }
    }
    pairs
}

/// P-187.
#[test]
fn on_unlike_disks_all_pairs_meet_and_none_has_nearly_all() {
    for (slot_counts, pairs_min, most) in
        [(vec![60, 120, 240, 240], 6, 60), (vec![500, 1000, 2000, 2000], 6, 60), (vec![100, 100, 100, 300], 3, 40)]
    {
        // From a tenth on, as in a pool with little in it.
        for part in [10, 3, 1] {
            let mut placement = placement(&slot_counts);
            let segments = placement.capacity(copies(2)).segments_free / part;
            let pairs = pairs(&mut placement, copies(2), segments);
            let worst = pairs.values().max().unwrap() * 100 / segments;
            assert!(pairs.len() >= pairs_min && worst <= most, "{slot_counts:?} 1/{part}: {worst} %, {pairs:?}");
        }
    }
}

/// P-187: over mounts too, in each of which only a few segments are begun.
#[test]
fn pairs_change_from_mount_to_mount() {
    let mut met = std::collections::BTreeSet::new();
    let mut used = Vec::new();
    for _ in 0..30 {
        let mut placement = placement(&[60, 120, 240, 240]);
        placement.mark_used(&used).unwrap();
        let segment = placement.allocate(copies(2), &of_users()).unwrap();
        let mut devices: Vec<DeviceIndex> = segment.chunks.iter().map(|place| place.device).collect();
        devices.sort_unstable();
        met.insert(devices);
        used.extend(segment.chunks.iter().copied());
    }
    assert!(met.len() >= 4, "{met:?}");
}

#[test]
fn like_disks_share_exactly() {
    let mut placement = placement(&[100; 6]);
    for _ in 0..20 {
        for _ in 0..3 {
            placement.allocate(copies(2), &of_users()).unwrap();
        }
        let free: Vec<u32> = (0..6).map(|index| placement.usage(index).unwrap().free).collect();
        assert!(free.iter().max().unwrap() - free.iter().min().unwrap() <= 1, "{free:?}");
    }
}

proptest! {
    /// P-187: devices fill up together as far as copies allow, and nothing fits less for it: what is placed in all is the optimum.
    #[test]
    fn devices_fill_up_together_and_to_the_end(
        slot_counts in prop::collection::vec(20u32..400, 2..8), width in 1u8..4, part in 1u64..10,
    ) {
        prop_assume!(usize::from(width) <= slot_counts.len());
        let mut placement = placement(&slot_counts);
        let fits = placement.capacity(copies(width)).segments_free;
        let segments = fits * part / 10;
        pairs(&mut placement, copies(width), segments);
        // What of each device can be used at all: where one is larger than all others together, less than all of it.
        let usable: u64 = slot_counts.iter().map(|&count| u64::from(count).min(fits)).sum();
        for (index, &count) in slot_counts.iter().enumerate() {
            let used = u64::from(count - placement.usage(index as u16).unwrap().free);
            let expected = u64::from(count).min(fits) * segments * u64::from(width) / usable;
            // A device that every segment needs leaves little choice of the others: to lose no room, the fullest are taken there.
            let has_choice = slot_counts.iter().all(|&count| u64::from(count) < fits);
            prop_assert!(
                !has_choice || used.abs_diff(expected) <= 4 + expected / 20,
                "{index}: {used}, not {expected} of {slot_counts:?}"
            );
        }
        pairs(&mut placement, copies(width), fits - segments);
        prop_assert!(placement.allocate(copies(width), &of_users()).is_err());
    }
}
