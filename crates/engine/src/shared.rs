//! A pool whose log is shared: what an owner before may still do, and what this one tells of the log.
//!
//! Invariant: slots that an owner before was granted are given to nobody, and nothing is appended to segments that lie in them, until it
//! writes no more for certain. Read next: the journal's `tail.rs`.

use std::collections::BTreeSet;

use stere_faults::{Bug, is_planted};
use stere_log::Segment;
use stere_stripe::slots_of;

use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Goes on in open segments, where nobody else may still write to them.
    pub(crate) fn reopen_segments(&self) -> Result<(), Error> {
        let foreign = self.options.tail.as_ref().map(|tail| {
            tail.forget_records();
            tail.foreign()
        });
        let foreign = foreign.filter(|_| !is_planted(Bug::SlotGrantedTwice)).unwrap_or_default();
        let slots: BTreeSet<_> = slots_of(&foreign).collect();
        let is_foreign = |segment: &Segment| {
            segment.chunks().iter().any(|place| slots.contains(&(place.device, place.slot)))
        };
        Ok(self.log.reopen(&|segment| !is_foreign(segment))?)
    }

    /// Gives slots that an owner before may write to nobody.
    pub(crate) fn hold_foreign_slots(&self) {
        if let Some(tail) = self.options.tail.as_ref().filter(|_| !is_planted(Bug::SlotGrantedTwice)) {
            self.log.stripe.slots.hold(&tail.foreign());
        }
    }

    /// Whether the journal and the roots lie in a shared log.
    pub fn has_shared_log(&self) -> bool {
        self.options.tail.is_some()
    }

    /// Why the shared log takes nothing now, if there is one.
    pub fn log_trouble(&self) -> Option<String> {
        self.options.tail.as_ref()?.trouble()
    }

    /// Whoever had the pool before writes nothing any more: its slots are free. How many those are.
    pub fn release_foreign_slots(&self) -> usize {
        if let Some(tail) = &self.options.tail {
            tail.forget_foreign();
        }
        self.log.stripe.slots.release_held()
    }
}
