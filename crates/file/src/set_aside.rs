//! Room set aside by preallocated extents: counted on media, held as a reservation in memory.
//!
//! Invariants: the count on media changes in the transactions that make and remove preallocated extents, so it is exact
//! after any crash; the reservation follows it, at once when it grows and at the latest in the next step when it shrinks. It is
//! never given up to be asked for again: others would take the room (P-6).
//! A preallocated extent does not know how it will be stored: the room is reserved for the scheme that takes most, of the pool's default
//! class, the data that there was at the mount, and the files that room was set aside for since.

use stere_format::{Key, Scheme};
use stere_store::{Io, Placement, Reservation, Store, Transaction, View};

use crate::Files;
use crate::error::Error;

/// The reservation for what is set aside.
#[derive(Default)]
pub(crate) struct SetAside {
    bytes: u64,
    /// What takes most room of all that may have been meant.
    scheme: Option<Scheme>,
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
    pub(crate) fn hold_set_aside(&self, io: Io<'_>) -> Result<(), Error> {
        self.hold_set_aside_with(io, None)
    }

    /// The same where the room for what is new was granted to a file, and is still held by the caller.
    pub(crate) fn hold_granted(&self, io: Io<'_>, scheme: Scheme, granted: &Reservation) -> Result<(), Error> {
        self.hold_set_aside_with(io, Some((scheme, granted)))
    }

    fn hold_set_aside_with(&self, io: Io<'_>, granted: Option<(Scheme, &Reservation)>) -> Result<(), Error> {
        let wanted = self.store.view(io, counted)?;
        let mut held = self.set_aside.lock();
        if held.bytes == wanted {
            return Ok(());
        }
        let (data, parity) = self.resolver.classes().wish(self.options.default_class).scheme(self.device_count());
        let mut scheme = match held.scheme {
            Some(scheme) => scheme,
            None => self.store.widest_scheme(Scheme { data, parity }),
        };
        if let Some((own, _)) = granted.filter(|(own, _)| stere_store::takes_more(*own, scheme)) {
            scheme = own;
        }
        let class = self.options.default_class.code();
        let placement = Placement { scheme, class, site: stere_format::Site::ANYWHERE };
        let (before, granted) = (held.reservation.take(), granted.map(|(_, granted)| granted));
        held.reservation = self.store.renew_promise(before, placement, wanted, granted);
        held.bytes = wanted;
        held.scheme = (wanted > 0).then_some(scheme);
        Ok(())
    }

    /// Whether room is held for what is set aside.
    pub(crate) fn holds_set_aside(&self) -> bool {
        self.set_aside.lock().reservation.is_some()
    }
}
