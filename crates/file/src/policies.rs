//! What the policies of files ask for, with the devices there are: placement, scheme, media, the device of an unreplicated file.
//!
//! Fault isolation: an unreplicated file lies whole on one device, its affinity device, so that it is lost with no other. That
//! is where the file's first unreplicated blob lies; a file that has none gets one in turn. Nothing of this is on media beside
//! the places of the blobs. Room comes before isolation: when that device is full, the rest of the file goes elsewhere (the
//! store tells where), until reconciling brings it together again. So does asking for other devices.
//! Read next: `policy.rs`, `storing.rs`, `sealing.rs`, `stored_facts.rs`.

use std::ops::ControlFlow;
use std::sync::Arc;

use stere_crypt::Keyring;
use stere_format::{DeviceEntry, DeviceIndex, DeviceState, InodeValue, Scheme, Site};
use stere_policy::{Class, Effective, Resolver, TierWish};
use stere_store::{Io, Placement, Store, View};

use crate::error::Error;
use crate::keys::{self, Keys, visit_extents};
use crate::plugins::Plugins;
use crate::policy::{self, says};

/// Extents looked at for a home; a file whose first ones are replicated is being converted.
const EXTENTS_SEEN_MAX: usize = 16;

/// What the policies of files ask for, and how their data is stored by that.
pub struct Policies {
    pub(crate) store: Arc<Store>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) plugins: Arc<Plugins>,
    /// Policy of what says nothing else.
    pub(crate) default_class: Class,
}

impl Policies {
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

    /// The policy that holds for an inode.
    pub fn effective(&self, keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<Effective, Error> {
        policy::effective(&self.resolver, keys, inode, value)
    }

    /// The policy of what is made in a directory, before any rules; from memory, once it was asked for.
    pub fn effective_below(&self, keys: &impl Keys, directory: u64) -> Result<Effective, Error> {
        self.resolver.directory(directory, &mut |number| {
            Ok::<_, Error>(keys::inode_if_any(keys, number)?.map(|value| says(&value)))
        })
    }

    /// Where a policy wants data; the store fits it to the devices there are.
    pub(crate) fn placement_of(&self, effective: &Effective) -> Placement {
        let wish = &effective.wish;
        let devices = match wish.scheme.depends_on_devices() {
            true => self.devices_for(effective),
            false => stere_format::WIDTH_MAX,
        };
        let site = Site { on: wish.on, only: wish.only, node: wish.node };
        let (data, parity) = wish.scheme.scheme(devices);
        Placement { scheme: Scheme { data, parity }, class: wish.class.code(), site }
    }

    /// The scheme that new data of a policy gets with the devices there are.
    pub fn scheme_now(&self, effective: &Effective) -> Scheme {
        self.store.places().fit_for(self.placement_of(effective))
    }

    /// Where a policy wants data.
    pub fn site_of(&self, effective: &Effective) -> Site {
        self.placement_of(effective).site
    }

    /// Devices that can take data of a policy.
    pub fn devices_for(&self, effective: &Effective) -> usize {
        match effective.wish.only {
            0 => self.device_count(),
            only => self.store.places().devices_of_place(only).max(1),
        }
    }

    /// Devices that can take data; hot spares take none.
    pub fn device_count(&self) -> usize {
        let is_spare = |entry: &DeviceEntry| DeviceState::from_code(entry.state) == Some(DeviceState::Spare);
        self.store.device_entries().iter().filter(|entry| !is_spare(entry)).count().max(1)
    }

    /// The set of volumes a wish stands for, 0 for none; `None` where what is there stays where it is.
    pub fn media_of(&self, wish: TierWish) -> Option<u16> {
        match wish {
            TierWish::Unsaid => None,
            TierWish::Nowhere => Some(0),
            TierWish::Usual => Some(self.store.tier.media.usual_tier()).filter(|set| *set != 0),
            TierWish::Volumes(set) => Some(self.store.tier.media.in_place_of(set)),
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
