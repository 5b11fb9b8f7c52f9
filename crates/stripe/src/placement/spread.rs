//! Which devices a segment takes: each by its share of the free slots, and every combination of them now and then.
//!
//! Always taking the devices with most free slots loses no room and puts everything on the largest ones for as long as they are
//! the emptiest: on unlike disks all copies lie on one pair. Here a device takes part in as large a part of the segments as
//! its free slots allow it to, at most in all of them, so that devices fill up together; which ones meet changes by turns.
//! Such a choice stands only where as many segments fit afterwards, beside what is kept, as after the best choice. Else the
//! devices with most free slots are taken, of which that is true.
//!
//! Each device earns its share with every segment, and those with most credit, and a varying bonus, take it and pay one. So
//! the shares come true within a few segments. No clock, no random numbers: the bonus is a hash of the turn and of what is free.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use stere_format::{DeviceIndex, Scheme};

use super::{DeviceSlots, Kept, Placement, free_slots};

/// One part in a segment, as credit.
const PART: i64 = 1 << 20;
/// Bonuses are below this: half a part, so that of like devices those that were left out come next.
const BONUS: i64 = PART / 2;
/// Before the first choice of a mount, where unlike devices are: else the first segments of all mounts lie alike.
const BONUS_FIRST: i64 = PART;
/// Credit is at most so much, either way: who was passed over for want of room does not make up for all of it.
const CREDIT_MAX: i64 = 4 * PART;

/// Turns and credit of devices.
#[derive(Debug, Default, Clone)]
pub(super) struct Spread {
    turn: u64,
    /// Whether some devices were taken and others not.
    has_chosen: bool,
    credit: BTreeMap<DeviceIndex, i64>,
}

impl Spread {
    /// The next turn: each of these devices earns its share, in parts of a segment. Tells how they rank, the highest first.
    fn next(&mut self, earned: &[(DeviceIndex, i64)], salt: u64) -> BTreeMap<DeviceIndex, i64> {
        self.turn = self.turn.wrapping_add(1);
        let seed = mix(self.turn ^ salt.rotate_left(32));
        let are_alike = earned.windows(2).all(|pair| pair[0].1 == pair[1].1);
        let bonus_max = match (self.has_chosen, are_alike) {
            (true, _) => BONUS,
            (false, true) => 1,
            (false, false) => BONUS_FIRST,
        };
        // Far below what fits in 63 bits.
        let bonus = |index: DeviceIndex| (mix(seed ^ u64::from(index)) % bonus_max.unsigned_abs()) as i64;
        let mut ranks = BTreeMap::new();
        for &(index, share) in earned {
            let credit = self.credit.entry(index).or_default();
            *credit = (*credit + share).min(CREDIT_MAX);
            ranks.insert(index, *credit + bonus(index));
        }
        ranks
    }

    fn pay(&mut self, chosen: &[DeviceIndex], open: &[Open]) {
        self.has_chosen |= chosen.len() < open.len();
        for index in chosen {
            let credit = self.credit.entry(*index).or_default();
            assert!(credit.abs() <= CREDIT_MAX, "credit is bounded either way");
            *credit = (*credit - PART).max(-CREDIT_MAX);
        }
    }

    pub(super) fn forget(&mut self, index: DeviceIndex) {
        self.credit.remove(&index);
    }
}

/// Spreads bits of what is counted (the finalizer of splitmix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// A device that can take a chunk.
struct Open {
    index: DeviceIndex,
    free: u64,
    rank: i64,
}

impl Placement {
    /// Devices for a segment that fits: over hosts and shelves, and by their shares, where that costs no room.
    pub(super) fn choose_spread(&mut self, scheme: Scheme, kept: &[Kept]) -> Vec<DeviceIndex> {
        let width = scheme.width();
        let open = self.next_turn(width);
        let after = self.room_after(scheme, kept);
        let fullest = pick(&open, width, |one| (Reverse(one.free), Reverse(one.rank)));
        let by_share = pick(&open, width, |one| (Reverse(one.rank), one.free));
        let has_domains = self.devices.values().any(|slots| !slots.host.is_empty() || !slots.shelf.is_empty());
        let mut choices = Vec::new();
        // Where nothing is kept beside it, it may be what others kept room for, and more of that may follow: only the best choice leaves
        // room for all of it in any order.
        let may_spread = !kept.is_empty();
        if has_domains {
            if may_spread {
                choices.push(self.pick_apart(&open, width, |one| (Reverse(one.rank), one.free)));
            }
            choices.push(self.pick_apart(&open, width, |one| (Reverse(one.free), Reverse(one.rank))));
        }
        if may_spread {
            choices.push(by_share);
        }
        let shared = self.shared(&fullest);
        let found = choices.into_iter().find(|choice| {
            choice.len() == width && self.shared(choice) <= shared && self.leaves(choice, scheme, kept, after)
        });
        let chosen = found.unwrap_or(fullest);
        assert!(chosen.iter().all(|index| self.is_open(*index)), "only open devices are chosen");
        self.spread.pay(&chosen, &open);
        chosen
    }

    /// The open devices with most free slots; ties by turns.
    pub(super) fn choose(&mut self, width: usize) -> Vec<DeviceIndex> {
        let open = self.next_turn(width);
        let chosen = pick(&open, width, |one| (Reverse(one.free), Reverse(one.rank)));
        assert_eq!(chosen.len(), width, "enough devices have room");
        self.spread.pay(&chosen, &open);
        chosen
    }

    /// Devices with room. No device can take part in more segments than fit at all.
    fn next_turn(&mut self, width: usize) -> Vec<Open> {
        let open = self.devices.iter().filter(|(_, slots)| slots.is_open && slots.map.free_count() > 0);
        let free: Vec<(DeviceIndex, u64)> =
            open.map(|(&index, slots)| (index, u64::from(slots.map.free_count()))).collect();
        let sum = |segments: u64| free.iter().map(|&(_, free)| free.min(segments)).sum::<u64>();
        let mut fits = free.iter().map(|&(_, free)| free).max().unwrap_or(0);
        let width = width as u64;
        // Each round comes closer to the largest number that fits, and stops there.
        while fits > 1 && sum(fits) < fits * width {
            fits = sum(fits) / width;
        }
        let (fits, total) = (fits.max(1), sum(fits.max(1)).max(1));
        let share = |free: u64| {
            let parts = u128::from(free.min(fits)) * u128::from(width) * u128::from(PART.unsigned_abs());
            i64::try_from(parts / u128::from(total)).unwrap_or(PART).min(PART)
        };
        let earned: Vec<(DeviceIndex, i64)> = free.iter().map(|&(index, free)| (index, share(free))).collect();
        let ranks = self.spread.next(&earned, free.iter().map(|&(_, free)| free).sum());
        free.into_iter().map(|(index, free)| Open { index, free, rank: ranks[&index] }).collect()
    }

    /// How many segments of the scheme can be placed after one more at best: of themselves, and beside what is kept.
    fn room_after(&self, scheme: Scheme, kept: &[Kept]) -> (u64, u64) {
        let alone = self.fits(scheme, |slots| u64::from(slots.map.free_count()));
        let beside = self.room_of(scheme, kept, free_slots, |_, _| 0).0;
        (alone.saturating_sub(1), beside.saturating_sub(1))
    }

    /// Whether these devices leave that.
    fn leaves(&self, chosen: &[DeviceIndex], scheme: Scheme, kept: &[Kept], (alone, beside): (u64, u64)) -> bool {
        let left = |slots: &DeviceSlots, index: &DeviceIndex| {
            u64::from(slots.map.free_count()) - u64::from(chosen.contains(index))
        };
        self.fits_of(scheme, left) >= alone
            && self.leaves_room(scheme, beside, kept, |index, slots| left(slots, &index))
    }

    /// How much these devices share hosts and shelves.
    fn shared(&self, devices: &[DeviceIndex]) -> u32 {
        let pairs = (0..devices.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
        pairs.map(|(one, other)| self.devices[&devices[one]].shares_with(&self.devices[&devices[other]])).sum()
    }

    /// One device after the other, each with as little in common with those before as can be; then in this order.
    fn pick_apart<K: Ord>(&self, open: &[Open], width: usize, order: impl Fn(&Open) -> K) -> Vec<DeviceIndex> {
        let mut chosen: Vec<DeviceIndex> = Vec::with_capacity(width);
        while chosen.len() < width {
            let cost = |one: &&Open| {
                let slots = &self.devices[&one.index];
                let shared: u32 = chosen.iter().map(|other| slots.shares_with(&self.devices[other])).sum();
                (shared, order(one), one.index)
            };
            let left = open.iter().filter(|one| !chosen.contains(&one.index));
            let Some(next) = left.min_by_key(cost) else { break };
            chosen.push(next.index);
        }
        chosen
    }
}

/// So many of these devices, the first in this order.
fn pick<K: Ord>(open: &[Open], width: usize, order: impl Fn(&Open) -> K) -> Vec<DeviceIndex> {
    let mut sorted: Vec<&Open> = open.iter().collect();
    sorted.sort_by_key(|one| (order(one), one.index));
    sorted.into_iter().take(width).map(|one| one.index).collect()
}

#[cfg(test)]
mod tests;
