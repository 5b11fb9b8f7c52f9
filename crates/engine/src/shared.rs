//! A pool whose log is shared: what an owner before may still do.
//! Invariant: slots that an owner before was granted are given to nobody, and nothing is appended to segments that lie in them, until it
//! writes no more. Read next: the journal's `tail.rs`.

use std::collections::BTreeSet;

use stere_faults::{Bug, is_planted};
use stere_log::Segment;
use stere_stripe::slots_of;

use crate::engine::Engine;
use crate::error::Error;

/// The engine, as far as its log is shared.
#[derive(Clone, Copy)]
pub struct SharedLog<'a> {
    engine: &'a Engine,
}

impl<'a> SharedLog<'a> {
    pub fn of(engine: &'a Engine) -> SharedLog<'a> {
        SharedLog { engine }
    }

    /// Gives slots that an owner before may write to nobody, and goes on in open segments where none is among theirs.
    pub(crate) fn reopen_segments(self) -> Result<(), Error> {
        let foreign = self.engine.options.tail.as_ref().map(|tail| {
            tail.forget_records();
            tail.foreign()
        });
        let foreign = foreign.filter(|_| !is_planted(Bug::SlotGrantedTwice)).unwrap_or_default();
        self.engine.log.stripe.slots.hold(&foreign);
        let slots: BTreeSet<_> = slots_of(&foreign).collect();
        let is_foreign =
            |segment: &Segment| segment.chunks().iter().any(|place| slots.contains(&(place.device, place.slot)));
        Ok(self.engine.log.reopen(&|segment| !is_foreign(segment))?)
    }

    /// Whether the journal and the roots lie there.
    pub fn is_used(self) -> bool {
        self.engine.options.tail.is_some()
    }

    /// Why it takes nothing now.
    pub fn trouble(self) -> Option<String> {
        self.engine.options.tail.as_ref()?.trouble()
    }

    /// Frees slots that owners before cannot write to any more, as time has passed. How many those are.
    pub fn release_foreign_slots(self) -> usize {
        let over = self.engine.options.tail.as_ref().map(|tail| tail.release_foreign()).unwrap_or_default();
        self.engine.log.stripe.slots.release_held(&over)
    }
}
