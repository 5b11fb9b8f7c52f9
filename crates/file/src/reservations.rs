//! Room for files: promised before a write is accepted, and held for what is set aside, as the count on media says.
//!
//! Where there is no room, what was removed is freed first. Read next: `set_aside.rs`, `orphan.rs`.

use std::sync::Arc;

use parking_lot::Mutex;
use stere_format::Scheme;
use stere_store::{Io, Placement, Reservation, Store};

use crate::error::Error;
use crate::orphan::Orphans;
use crate::policies::Policies;
use crate::set_aside::{SetAside, counted};

/// Room that is promised to files, made by freeing what was removed where there is none.
pub struct Reservations {
    store: Arc<Store>,
    policies: Arc<Policies>,
    orphans: Arc<Orphans>,
    set_aside: Mutex<SetAside>,
}

impl Reservations {
    /// With the room held that is set aside on media.
    pub(crate) fn load(
        store: Arc<Store>,
        policies: Arc<Policies>,
        orphans: Arc<Orphans>,
    ) -> Result<Reservations, Error> {
        let reservations = Reservations { store, policies, orphans, set_aside: Mutex::default() };
        reservations.hold_set_aside(Io::BLOCKING)?;
        Ok(reservations)
    }

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
        let (data, parity) =
            self.policies.resolver.classes().wish(self.policies.default_class).scheme(self.policies.device_count());
        let mut scheme = match held.scheme {
            Some(scheme) => scheme,
            None => self.store.space().widest_scheme(Scheme { data, parity }),
        };
        if let Some((own, _)) = granted.filter(|(own, _)| stere_store::takes_more(*own, scheme)) {
            scheme = own;
        }
        let class = self.policies.default_class.code();
        let placement = Placement { scheme, class, site: stere_format::Site::ANYWHERE };
        let (before, granted) = (held.reservation.take(), granted.map(|(_, granted)| granted));
        held.reservation = self.store.space().renew_promise(before, placement, wanted, granted);
        assert!(wanted == 0 || held.reservation.is_some(), "room is held for what is set aside");
        held.bytes = wanted;
        held.scheme = (wanted > 0).then_some(scheme);
        Ok(())
    }

    /// Whether room is held for what is set aside.
    pub(crate) fn holds_set_aside(&self) -> bool {
        self.set_aside.lock().reservation.is_some()
    }

    /// Frees what was removed and cut, so that its room counts as free, a bounded number of pieces; what was set aside of it too.
    /// `is_scarce`: somebody found no room, so that every byte counts. Tells whether there is more to free.
    pub fn free_removed(&self, io: Io<'_>, is_scarce: bool) -> Result<bool, Error> {
        let more = self.orphans.free_ready(io)?;
        self.hold_set_aside(io)?;
        match self.store.space().release_emptied(io, is_scarce) {
            Err(stere_store::Error::WouldBlock) => Err(stere_store::Error::WouldBlock.into()),
            // What cannot be given back now keeps nobody from what there is.
            _ => Ok(more),
        }
    }

    /// Promises room for so many bytes; where there is none, what was removed is freed first.
    pub(crate) fn promise(&self, io: Io<'_>, placement: Placement, bytes: u64) -> Result<Reservation, Error> {
        let mut may_be_freed = true;
        loop {
            match self.store.space().reserve(io, placement, bytes) {
                Err(stere_store::Error::NoSpace) if may_be_freed => may_be_freed = self.free_removed(io, true)?,
                reserved => return Ok(reserved?),
            }
        }
    }
}
