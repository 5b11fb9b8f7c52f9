//! Slots that owners before may still write to, and for how long that is so.
//!
//! What the last owner was granted is counted from this owner's first root on, because it may write until it hears of that; what
//! owners before it were granted is counted on from what the last root says. So owners that follow each other quickly do not hold more and
//! more. Invariants: clocks of two machines are never compared; a root repeats every group that is not over. Read next: `tail.rs`.

use std::collections::BTreeSet;

use stere_faults::{Bug, is_planted};
use stere_format::{HeldSlots, LogEntry, SlotExtent, extents_of};
use stere_stripe::slots_of;

#[derive(Debug)]
struct Group {
    /// When it is over; not known before this owner's first root.
    until_ms: Option<u64>,
    extents: Vec<SlotExtent>,
}

/// All groups of such slots.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    groups: Vec<Group>,
}

impl Foreign {
    /// As a log tells it that was read before `now_ms`.
    pub(crate) fn new(held: Vec<HeldSlots>, granted: Vec<SlotExtent>, now_ms: u64) -> Foreign {
        let counted =
            |held: HeldSlots| Group { until_ms: Some(now_ms + u64::from(held.remaining_ms)), extents: held.extents };
        let last = Group { until_ms: None, extents: granted };
        let groups = held.into_iter().map(counted).chain([last]).filter(|group| !group.extents.is_empty()).collect();
        Foreign { groups }
    }

    /// The last root was in the log for so long before the log was read.
    pub(crate) fn count_on(&mut self, ms: u64) {
        for until_ms in self.groups.iter_mut().filter_map(|group| group.until_ms.as_mut()) {
            *until_ms = until_ms.saturating_sub(ms);
        }
    }

    pub(crate) fn slots(&self) -> Vec<SlotExtent> {
        extents_of(self.groups.iter().flat_map(|group| slots_of(&group.extents)))
    }

    /// What a root says that is put at `now_ms` or later.
    pub(crate) fn told(&self, now_ms: u64, hold_ms: u32) -> Vec<HeldSlots> {
        let remaining = |group: &Group| match group.until_ms {
            Some(until_ms) => u32::try_from(until_ms.saturating_sub(now_ms)).unwrap_or(u32::MAX),
            None => hold_ms,
        };
        let group = |group: &Group| HeldSlots { remaining_ms: remaining(group), extents: group.extents.clone() };
        let is_forgotten = |group: &&Group| is_planted(Bug::HeldForgotten) && group.until_ms.is_some();
        let groups = self.groups.iter().filter(|group| !is_forgotten(group)).map(group);
        let mut told: Vec<HeldSlots> = groups.filter(|group| group.remaining_ms > 0).collect();
        told.sort_by_key(|group| group.remaining_ms);
        while told.len() > LogEntry::HELD_GROUPS_MAX {
            // Those that are over first are held as long as the next.
            let first = told.remove(0);
            let both = slots_of(&first.extents).chain(slots_of(&told[0].extents));
            told[0].extents = extents_of(both);
        }
        assert!(told.len() <= LogEntry::HELD_GROUPS_MAX, "a root has room for {} groups", told.len());
        told
    }

    /// This owner's root is in the log.
    pub(crate) fn begin(&mut self, now_ms: u64, hold_ms: u32) {
        let hold_ms = if is_planted(Bug::LateWriteIntoReusedSlot) { 0 } else { hold_ms };
        for group in &mut self.groups {
            group.until_ms.get_or_insert(now_ms + u64::from(hold_ms));
        }
        assert!(self.groups.iter().all(|group| group.until_ms.is_some()), "every group ends some time");
    }

    /// Ends what is over; slots that nobody holds any more.
    pub(crate) fn release(&mut self, now_ms: u64) -> Vec<SlotExtent> {
        let is_over = |group: &Group| group.until_ms.is_some_and(|until_ms| until_ms <= now_ms);
        let (over, held): (Vec<Group>, Vec<Group>) = std::mem::take(&mut self.groups).into_iter().partition(is_over);
        let still: BTreeSet<_> = held.iter().flat_map(|group| slots_of(&group.extents)).collect();
        self.groups = held;
        let free = over.iter().flat_map(|group| slots_of(&group.extents)).filter(|slot| !still.contains(slot));
        let free = extents_of(free);
        assert!(slots_of(&free).all(|slot| !still.contains(&slot)), "what is held goes to nobody");
        free
    }
}

#[cfg(test)]
mod tests;
