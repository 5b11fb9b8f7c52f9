//! Where the requests of a session are noted: each slot holds one whose answer the client may still lack.
//!
//! Invariant: a slot is taken over from a request whose answer the client has; only where all are taken that long, from the oldest.
//! Read next: `requests.rs`.

use std::collections::BTreeMap;

use crate::requests::{Noted, SLOTS_MAX};

#[cfg(test)]
mod tests;

/// The slots of one session, with the numbers of the requests in them; 0: none.
#[derive(Debug, Default)]
pub struct Slots(Vec<u64>);

impl Slots {
    /// As an owner before has left them.
    pub fn of(noted: &BTreeMap<u64, Noted>) -> Slots {
        let mut slots = Slots::default();
        for (number, noted) in noted {
            let slot = usize::from(noted.slot);
            if slots.0.len() <= slot {
                slots.0.resize(slot + 1, 0);
            }
            slots.0[slot] = *number;
        }
        assert!(slots.0.len() <= usize::from(SLOTS_MAX), "no note lies in a slot that there is not");
        slots
    }

    /// A slot for a request. The client has the answers to all below `acknowledged`.
    pub fn take(&mut self, number: u64, acknowledged: u64) -> u16 {
        assert!(number > 0, "requests are numbered from 1 on");
        let is_free = |before: &u64| *before == number || *before < acknowledged.max(1);
        let slot = match self.0.iter().position(is_free) {
            Some(slot) => slot,
            None if self.0.len() < usize::from(SLOTS_MAX) => {
                self.0.push(0);
                self.0.len() - 1
            }
            None => {
                let oldest = self.0.iter().enumerate().min_by_key(|(_, before)| **before);
                oldest.map_or(0, |(slot, _)| slot)
            }
        };
        self.0[slot] = number;
        u16::try_from(slot).unwrap_or(0)
    }
}
