//! Room set aside by preallocated extents: counted on media, held as a reservation in memory.
//!
//! Invariants: the count on media changes in the transactions that make and remove preallocated extents, so it is exact
//! after any crash; the reservation follows it, at once when it grows and at the latest in the next step when it shrinks.
//! The room is reserved as for the pool's default class: a preallocated extent does not know how it will be stored.

use stere_format::{Key, Scheme};
use stere_store::{Placement, Reservation, Transaction, View, Wait};

use crate::Files;
use crate::error::Error;

/// The reservation for what is set aside.
#[derive(Default)]
pub(crate) struct SetAside {
    bytes: u64,
    reservation: Option<Reservation>,
}

/// Counts bytes of preallocated extents that came (or, negative, went).
pub(crate) fn count(transaction: &mut Transaction<'_>, bytes: i64) -> Result<(), Error> {
    if bytes == 0 {
        return Ok(());
    }
    let before = transaction.get(&Key::preallocated())?.map_or(0, |value| decode(&value));
    match before.saturating_add_signed(bytes) {
        0 => transaction.delete(Key::preallocated()),
        after => transaction.put(Key::preallocated(), &after.to_le_bytes()),
    }
    Ok(())
}

/// Bytes all preallocated extents cover.
pub fn counted(view: &View<'_>) -> Result<u64, stere_store::Error> {
    Ok(view.get(&Key::preallocated())?.map_or(0, |value| decode(&value)))
}

/// A value of another length is damage, which the check tells; nothing is reserved for it.
fn decode(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_le_bytes)
}

impl Files {
    /// Makes the reservation what the count says.
    pub(crate) fn hold_set_aside(&self, wait: Wait) -> Result<(), Error> {
        let wanted = self.store.view(wait, counted)?;
        let mut held = self.set_aside.lock();
        if held.bytes == wanted {
            return Ok(());
        }
        // Without the old reservation the new one is a change in either direction.
        *held = SetAside::default();
        if wanted > 0 {
            let (data, parity) = self.resolver.classes().wish(self.options.default_class).scheme(self.device_count());
            let class = self.options.default_class.code();
            let placement = Placement { scheme: Scheme { data, parity }, class, site: stere_format::Site::ANYWHERE };
            // No room for what was set aside before: devices are missing. What is held is then nothing.
            held.reservation = self.store.reserve(wait, placement, wanted).ok();
            held.bytes = wanted;
        }
        Ok(())
    }
}
