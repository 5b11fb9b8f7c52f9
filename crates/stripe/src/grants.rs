//! Who may write where, in a pool that several machines may own one after the other: a lease, and grants of slots.
//!
//! Every write of the pool to a device passes here. One to a slot that is not granted waits until a record in the shared log
//! grants it, so that the next owner knows which slots may still be written to by this one. Every write waits while the lease
//! is over, and fails once the pool is lost to another owner.
//! Invariants: nothing passes to a slot before its grant is in the log; nothing passes after `lose`; a slot leaves the grants
//! only where no write went to it since the checkpoint before the last, and its device was flushed after: a write that a silent device was
//! sent may still be on its way. No clock and no thread is in here. Source:
//! `docs/design/cluster.md`. Read next: the journal's `tail.rs`, which puts grants into the log.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use stere_device::{Completion, DeviceError};
use stere_faults::{Bug, is_planted};
use stere_format::{DeviceIndex, SlotExtent, extents_of};

/// So many slots are granted from the one on that is wanted; on small devices fewer, because the next owner holds them for a while.
const AHEAD_SLOTS: u32 = 16;
/// Not more than this part of a device.
const AHEAD_PART: u32 = 64;

type Act = Box<dyn FnOnce(Result<(), DeviceError>) + Send>;
type Slot = (DeviceIndex, u32);

/// A write that waits.
struct Waiting {
    slot: Option<Slot>,
    act: Act,
}

#[derive(Default)]
struct State {
    lease_until_ms: u64,
    lost: Option<String>,
    /// Granted slots, each with the generation in which it was last written to.
    granted: BTreeMap<Slot, u64>,
    /// Slots that machines which mount through this owner may write to, and for how many rows each.
    lent: BTreeMap<Slot, u32>,
    /// Slots that are to be granted.
    wanted: BTreeSet<Slot>,
    waiting: Vec<Waiting>,
    generation: u64,
    /// For each device, the generation in which its last flush that succeeded began.
    flushed: BTreeMap<DeviceIndex, u64>,
    /// How many slots each device has.
    slot_counts: BTreeMap<DeviceIndex, u32>,
}

/// The lease and the grants of the process that owns a pool.
pub struct Grants {
    state: Mutex<State>,
    /// Milliseconds of a clock that goes on while the machine sleeps.
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Called when something is wanted, with no lock held.
    on_wanted: Mutex<Option<std::sync::Arc<dyn Fn() + Send + Sync>>>,
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        write!(formatter, "Grants({} slots, {} writes wait)", state.granted.len(), state.waiting.len())
    }
}

impl Grants {
    pub fn new(now_ms: Box<dyn Fn() -> u64 + Send + Sync>) -> Grants {
        Grants { state: Mutex::default(), now_ms, on_wanted: Mutex::default() }
    }

    pub fn now_ms(&self) -> u64 {
        (self.now_ms)()
    }

    /// Who is called when a write waits for a grant.
    pub fn set_on_wanted(&self, tell: std::sync::Arc<dyn Fn() + Send + Sync>) {
        *self.on_wanted.lock() = Some(tell);
    }

    pub(crate) fn set_slot_count(&self, device: DeviceIndex, slot_count: u32) {
        self.state.lock().slot_counts.insert(device, slot_count);
    }

    /// Carries a write out: now if it may be, else when it may, or with an error when it may not be any more.
    pub(crate) fn pass(&self, slot: Option<Slot>, act: Act) {
        let mut state = self.state.lock();
        if let Some(error) = state.lost_error() {
            drop(state);
            return act(Err(error));
        }
        let is_granted = slot.is_none_or(|slot| state.note_write(slot));
        if is_granted && (self.now_ms() < state.lease_until_ms || is_planted(Bug::LeaseIgnored)) {
            drop(state);
            return act(Ok(()));
        }
        state.waiting.push(Waiting { slot, act });
        let Some(slot) = slot.filter(|_| !is_granted) else { return };
        state.want(slot);
        drop(state);
        let tell = self.on_wanted.lock().clone();
        if let Some(tell) = tell {
            tell();
        }
    }

    /// Whether writes go out now, where their slots are granted. Before this owner's first root none do.
    pub(crate) fn is_leased(&self) -> bool {
        let state = self.state.lock();
        state.lost.is_none() && self.now_ms() < state.lease_until_ms
    }

    /// Whether a slot may be written to at once, for what may as well be left undone.
    pub(crate) fn allows(&self, slot: Option<Slot>) -> bool {
        let state = self.state.lock();
        let is_granted = slot.is_none_or(|slot| state.granted.contains_key(&slot));
        state.lost.is_none() && is_granted && self.now_ms() < state.lease_until_ms
    }

    /// The lease holds until then.
    pub fn renew(&self, until_ms: u64) {
        {
            let mut state = self.state.lock();
            state.lease_until_ms = state.lease_until_ms.max(until_ms);
        }
        self.go_on();
    }

    /// The pool is another's: whatever waits fails, and so does all that comes.
    pub fn lose(&self, cause: &str) {
        let waiting = {
            let mut state = self.state.lock();
            state.lost.get_or_insert_with(|| cause.to_owned());
            std::mem::take(&mut state.waiting)
        };
        let lost = || DeviceError::Lost { why: cause.to_owned() };
        waiting.into_iter().for_each(|one| (one.act)(Err(lost())));
    }

    /// What is to be granted next.
    pub fn wanted(&self) -> Vec<SlotExtent> {
        extents_of(self.state.lock().wanted.iter().copied())
    }

    /// The log has a record that grants these.
    pub fn granted(&self, extents: &[SlotExtent]) {
        {
            let mut state = self.state.lock();
            let generation = state.generation;
            for slot in slots_of(extents) {
                state.wanted.remove(&slot);
                state.granted.insert(slot, generation);
            }
        }
        self.go_on();
    }

    /// In which generation a flush begins, for `note_flushed`.
    pub(crate) fn generation(&self) -> u64 {
        self.state.lock().generation
    }

    /// These devices have what they were sent before a flush that began in this generation.
    pub(crate) fn note_flushed(&self, devices: impl Iterator<Item = DeviceIndex>, generation: u64) {
        let mut state = self.state.lock();
        assert!(generation <= state.generation, "a flush of generation {generation} ends in {}", state.generation);
        for device in devices {
            let last = state.flushed.entry(device).or_insert(generation);
            *last = generation.max(*last);
        }
    }

    /// The grants that a root of this generation repeats. Those that it does not repeat are over from now on.
    pub fn kept_at_root(&self, generation: u64) -> Vec<SlotExtent> {
        let mut state = self.state.lock();
        assert!(generation >= state.generation, "generation {generation} follows {}", state.generation);
        let before = state.generation;
        state.generation = generation;
        let State { granted, flushed, lent, .. } = &mut *state;
        let is_settled = |device: &DeviceIndex, last: u64| flushed.get(device).is_some_and(|flushed| *flushed > last);
        let is_lent = |slot: &Slot| lent.contains_key(slot) && !is_planted(Bug::LentForgotten);
        granted.retain(|slot, last| *last >= before || is_lent(slot) || !is_settled(&slot.0, *last));
        let kept = extents_of(state.granted.keys().copied());
        assert_eq!(slots_of(&kept).count(), state.granted.len(), "a root repeats every grant that goes on");
        kept
    }

    /// Others write to these slots until as many are returned: their grants go on. Tells by `done` when they have them.
    pub(crate) fn lend(&self, slots: &[Slot], done: &Completion) {
        {
            let mut state = self.state.lock();
            slots.iter().for_each(|slot| *state.lent.entry(*slot).or_default() += 1);
        }
        for slot in slots {
            let ticket = done.ticket(0);
            self.pass(Some(*slot), Box::new(move |outcome| ticket.finish(outcome)));
        }
    }

    /// Nobody else writes to these slots any more, for one of the rows that they were lent for.
    pub(crate) fn take_back(&self, slots: &[Slot]) {
        let mut state = self.state.lock();
        for slot in slots {
            let count = state.lent.get_mut(slot);
            assert!(count.as_ref().is_some_and(|count| **count > 0), "what comes back was lent");
            if let Some(count) = count {
                *count -= 1;
            }
            // The last write was a moment ago at the latest.
            state.note_write(*slot);
        }
        state.lent.retain(|_, count| *count > 0);
    }

    /// How many writes wait for a grant or for the lease.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Carries out what waits and may be done now.
    fn go_on(&self) {
        let may_go = {
            let mut state = self.state.lock();
            if state.lost.is_some() || self.now_ms() >= state.lease_until_ms {
                return;
            }
            assert!(state.lease_until_ms > 0, "whoever goes on has had a lease");
            let waiting = std::mem::take(&mut state.waiting);
            let (may_go, wait): (Vec<Waiting>, Vec<Waiting>) =
                waiting.into_iter().partition(|one| one.slot.is_none_or(|slot| state.note_write(slot)));
            state.waiting = wait;
            may_go
        };
        may_go.into_iter().for_each(|one| (one.act)(Ok(())));
    }
}

impl State {
    fn lost_error(&self) -> Option<DeviceError> {
        self.lost.as_ref().map(|why| DeviceError::Lost { why: why.clone() })
    }

    /// Whether the slot is granted; then it is written to now.
    fn note_write(&mut self, slot: Slot) -> bool {
        let generation = self.generation;
        self.granted.get_mut(&slot).map(|last| *last = generation).is_some()
    }

    fn want(&mut self, (device, slot): Slot) {
        let slot_count = self.slot_counts.get(&device).copied().unwrap_or(u32::MAX);
        let ahead = (slot_count / AHEAD_PART).clamp(1, AHEAD_SLOTS);
        let end = slot.saturating_add(ahead).min(slot_count.max(slot + 1));
        for one in (slot..end).map(|slot| (device, slot)) {
            if !self.granted.contains_key(&one) {
                self.wanted.insert(one);
            }
        }
        assert!(self.wanted.contains(&(device, slot)), "what is waited for is wanted");
    }
}

/// The slots of extents, one by one.
pub fn slots_of(extents: &[SlotExtent]) -> impl Iterator<Item = Slot> + '_ {
    extents.iter().flat_map(|extent| extent.slots().map(move |slot| (extent.device, slot)))
}

#[cfg(test)]
mod tests;
