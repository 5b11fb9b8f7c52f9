//! A pool whose log is shared: what an owner before may still do.
//! Invariant: slots that an owner before was granted are given to nobody, and nothing is appended to segments that lie in them, until it
//! writes no more. Read next: the journal's `tail.rs`.

use std::collections::BTreeSet;

use stere_faults::{Bug, is_planted};
use stere_log::{LogError, Segment};
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

    /// Appends, and again when room is free that is held for an owner before. A checkpoint cannot be given up half-way.
    pub(crate) fn with_held_room<T>(self, append: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        let mut tries = 0;
        loop {
            let outcome = append();
            let Some(tail) = self.engine.options.tail.as_ref() else { return outcome };
            let is_held = matches!(outcome, Err(Error::NoSpace | Error::Log(LogError::NoSpace)))
                && self.engine.log.stripe.slots.holds_free();
            if !is_held || (self.release_foreign_slots() == 0 && !tail.wait_for_foreign(tries)) {
                return outcome;
            }
            tries += 1;
        }
    }

    /// Frees slots that owners before cannot write to any more, as time has passed. How many those are.
    pub fn release_foreign_slots(self) -> usize {
        let over = self.engine.options.tail.as_ref().map(|tail| tail.release_foreign()).unwrap_or_default();
        self.engine.log.stripe.slots.release_held(&over)
    }
}
