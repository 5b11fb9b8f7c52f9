//! Fault isolation: an unreplicated file lies whole on one device, its home, so that it is lost with no other device.
//!
//! The home is where the file's first unreplicated blob lies; a file that has none gets one in turn. Nothing of this is on
//! media beside the places of the blobs. Room comes before isolation: when the home is full, the rest of the file goes
//! elsewhere (the store tells where), until reconciling brings it together again. So does asking for other devices.

use std::ops::ControlFlow;

use stere_format::DeviceIndex;
use stere_store::{Io, Placement, View};

use crate::Files;
use crate::error::Error;
use crate::keys::visit_extents;

/// Extents looked at for a home; a file whose first ones are replicated is being converted.
const EXTENTS_SEEN_MAX: usize = 16;

impl Files {
    /// The device for new data of a file, if this placement is unreplicated.
    pub(crate) fn home(
        &self,
        io: Io<'_>,
        inode: u64,
        known: Option<DeviceIndex>,
        placement: Placement,
    ) -> Result<Option<DeviceIndex>, Error> {
        if !self.store.places().is_unreplicated(placement) {
            return Ok(None);
        }
        let suits = |home: &DeviceIndex| self.store.places().suits(placement, *home);
        if let Some(home) = known.filter(suits) {
            return Ok(Some(home));
        }
        match self.store.view(io, |view| stored_home(view, inode))?.filter(suits) {
            Some(home) => Ok(Some(home)),
            None => Ok(self.store.places().choose_home(placement)),
        }
    }
}

/// Where the file lies so far, if it is unreplicated.
pub(crate) fn stored_home(view: &View<'_>, inode: u64) -> Result<Option<DeviceIndex>, Error> {
    let (mut home, mut failure, mut seen) = (None, None, 0);
    visit_extents(view, inode, 0, &mut |extent| {
        seen += 1;
        if !extent.is_preallocated() {
            match view.blob(extent.value.blob) {
                Ok(blob) => home = blob.home(),
                Err(error) => failure = Some(error),
            }
        }
        let done = home.is_some() || failure.is_some() || seen == EXTENTS_SEEN_MAX;
        if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(home),
    }
}
