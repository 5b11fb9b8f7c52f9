//! The reservation for what is set aside, made to follow the count on media. Read next: `set_aside.rs`.

use stere_format::Scheme;
use stere_store::{Io, Placement, Reservation};

use crate::Files;
use crate::error::Error;
use crate::set_aside::counted;

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
            None => self.store.space().widest_scheme(Scheme { data, parity }),
        };
        if let Some((own, _)) = granted.filter(|(own, _)| stere_store::takes_more(*own, scheme)) {
            scheme = own;
        }
        let class = self.options.default_class.code();
        let placement = Placement { scheme, class, site: stere_format::Site::ANYWHERE };
        let (before, granted) = (held.reservation.take(), granted.map(|(_, granted)| granted));
        held.reservation = self.store.space().renew_promise(before, placement, wanted, granted);
        held.bytes = wanted;
        held.scheme = (wanted > 0).then_some(scheme);
        Ok(())
    }

    /// Whether room is held for what is set aside.
    pub(crate) fn holds_set_aside(&self) -> bool {
        self.set_aside.lock().reservation.is_some()
    }
}
