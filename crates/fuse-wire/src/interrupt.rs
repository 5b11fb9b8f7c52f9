//! INTERRUPT: how a handler learns that nobody waits for its answer any more.
//!
//! Every slot that can hold a request has two numbers: the request in it, and the last request in it that was
//! interrupted. Setting the first costs one store on the fast path and looking is one load. An INTERRUPT may
//! overtake its request (it comes over /dev/fuse, the request over a ring), so those that match no slot are kept
//! for a while and looked at by arriving requests. `unique` numbers are never used twice in a session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

#[cfg(test)]
mod tests;

/// Interrupts of requests that are not (or no longer) known; more are forgotten, oldest first.
const EARLY_MAX: usize = 64;

#[derive(Debug, Default)]
struct Slot {
    current: AtomicU64,
    interrupted: AtomicU64,
}

/// Who is interrupted, for one session.
#[derive(Debug)]
pub(crate) struct Interrupts {
    slots: Box<[Slot]>,
    early: Mutex<VecDeque<u64>>,
    early_count: AtomicUsize,
    ended: AtomicBool,
}

impl Interrupts {
    pub fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            early: Mutex::new(VecDeque::new()),
            early_count: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        })
    }

    /// A request came into a slot.
    pub fn begin(&self, slot: usize, unique: u64) {
        self.slots[slot].current.store(unique, Ordering::SeqCst);
        // SeqCst here and in mark(): either we see its early entry or it sees our slot.
        if self.early_count.load(Ordering::SeqCst) != 0 {
            self.take_early(slot, unique);
        }
    }

    fn take_early(&self, slot: usize, unique: u64) {
        let mut early = self.early.lock();
        assert_eq!(self.early_count.load(Ordering::Relaxed), early.len(), "early interrupts are counted");
        if let Some(at) = early.iter().position(|waiting| *waiting == unique) {
            early.remove(at);
            self.early_count.store(early.len(), Ordering::SeqCst);
            self.slots[slot].interrupted.store(unique, Ordering::Release);
        }
    }

    /// The kernel interrupted the request `unique`.
    pub fn mark(&self, unique: u64) {
        let mut early = self.early.lock();
        assert_eq!(self.early_count.load(Ordering::Relaxed), early.len(), "early interrupts are counted");
        if early.len() == EARLY_MAX {
            early.pop_front();
        }
        early.push_back(unique);
        self.early_count.store(early.len(), Ordering::SeqCst);
        for slot in &self.slots {
            if slot.current.load(Ordering::SeqCst) == unique {
                slot.interrupted.store(unique, Ordering::Release);
                early.retain(|waiting| *waiting != unique);
                self.early_count.store(early.len(), Ordering::SeqCst);
                return;
            }
        }
    }

    /// The connection is gone: nobody waits for any answer.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    fn is_interrupted(&self, slot: usize, unique: u64) -> bool {
        self.slots[slot].interrupted.load(Ordering::Acquire) == unique || self.ended.load(Ordering::Acquire)
    }
}

/// Tells whether a request was interrupted (or its session has ended). Cheap to ask; may outlive the request.
#[derive(Clone, Debug)]
pub struct Cancel {
    interrupts: Arc<Interrupts>,
    slot: usize,
    unique: u64,
}

impl Cancel {
    pub(crate) fn new(interrupts: Arc<Interrupts>, slot: usize, unique: u64) -> Self {
        Self { interrupts, slot, unique }
    }

    /// True when the caller got a signal: give up where that is safe, and answer EINTR.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.interrupts.is_interrupted(self.slot, self.unique)
    }
}
