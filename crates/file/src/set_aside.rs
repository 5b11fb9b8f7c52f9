//! Room set aside by preallocated extents: counted on media, held as a reservation in memory.
//!
//! Invariants: the count on media changes in the transactions that make and remove preallocated extents, so it is exact
//! after any crash; the reservation follows it, at once when it grows and at the latest in the next step when it shrinks. It is
//! never given up to be asked for again: others would take the room (P-6).
//! A preallocated extent does not know how it will be stored: the room is reserved for the scheme that takes most, of the pool's default
//! class, the data that there was at the mount, and the files that room was set aside for since.

use stere_format::{Key, Scheme};
use stere_store::{Reservation, Transaction, View};

use crate::block::BLOCK;
use crate::error::Error;

/// The reservation for what is set aside.
#[derive(Default)]
pub(crate) struct SetAside {
    pub(crate) bytes: u64,
    /// What takes most room of all that may have been meant.
    pub(crate) scheme: Option<Scheme>,
    pub(crate) reservation: Option<Reservation>,
}

/// Counts bytes of preallocated extents that came (or, negative, went).
pub(crate) fn count(transaction: &mut Transaction<'_>, bytes: i64) -> Result<(), Error> {
    if bytes == 0 {
        return Ok(());
    }
    assert!(bytes % BLOCK as i64 == 0, "room is set aside in whole blocks, not {bytes} bytes");
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
