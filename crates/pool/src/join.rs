//! A device that joins a pool that is open: looked at, wiped, and described as the store wants it.
//!
//! Invariant: nothing that belongs to anybody is destroyed without being told to; a refusal has written nothing. The store
//! writes the first superblock itself, so that a device becomes a member only when the pool knows it.

use std::collections::BTreeSet;

use stere_device::Device;
use stere_format::{
    DEVICES_MAX, DeviceEntry, DeviceId, DeviceIndex, DeviceLayout, DeviceState, FORMAT_MINOR, Superblock,
};
use stere_store::{DeviceIn, Store};

use crate::create::{NewDevice, Randomness, SLOTS_MIN, check_content, check_label_texts, draw_uuid, wipe_device};
use crate::error::Error;
use crate::history::knows_last_epoch;
use crate::identify::{Holds, identify};

/// How a device joins.
#[derive(Debug, Clone, Copy)]
pub struct Joining {
    /// Its number in the table.
    pub index: DeviceIndex,
    pub state: DeviceState,
    /// Destroy what the device holds.
    pub force: bool,
}

/// A number that no device of the table has and no segment names.
pub fn free_index(store: &Store) -> Result<DeviceIndex, Error> {
    let mut taken: BTreeSet<DeviceIndex> = store.device_entries().iter().map(|entry| entry.index).collect();
    for segment in store.segments().all() {
        taken.extend(segment.placed().chunks.iter().map(|place| place.device));
    }
    let free = (0..DEVICES_MAX as DeviceIndex).find(|index| !taken.contains(index));
    free.ok_or(Error::TooManyDevices { max: DEVICES_MAX })
}

/// Refuses what cannot join, and tells the layout it would get. Writes nothing.
pub fn check_newcomer(newest: &Superblock, new: &NewDevice, force: bool) -> Result<DeviceLayout, Error> {
    check_label_texts(new)?;
    let device = new.path.clone();
    if !force
        && let Holds::Member(identity) = identify(&*new.device)
        && identity.superblock.pool == newest.pool
    {
        return Err(Error::InThisPool { device });
    }
    check_content(new, force)?;
    let chunk_bytes = newest.layout.chunk_bytes;
    let layout = DeviceLayout::for_size(new.device.size_bytes(), chunk_bytes)?;
    match layout.slot_count < SLOTS_MIN {
        true => Err(Error::TooFewSlots { device, chunk_bytes, slots: layout.slot_count }),
        false => Ok(layout),
    }
}

/// Wipes a device that may join and describes it. `newest` is the superblock of any device of the pool.
pub fn newcomer(
    newest: &Superblock,
    new: &NewDevice,
    joining: Joining,
    randomness: &mut dyn Randomness,
) -> Result<(DeviceIn, DeviceEntry), Error> {
    let layout = check_newcomer(newest, new, joining.force)?;
    wipe_device(&new.path, &*new.device)?;
    let id = DeviceId(draw_uuid(randomness));
    let superblock = Superblock {
        format_minor: FORMAT_MINOR,
        device: id,
        device_index: joining.index,
        layout,
        host: new.host.clone(),
        shelf: new.shelf.clone(),
        ..newest.clone()
    };
    let entry = new.entry(&superblock, joining.state);
    let read_cost = new.class.read_cost();
    Ok((DeviceIn { index: joining.index, superblock, device: new.device.clone(), read_cost }, entry))
}

/// Whether a device that came back may be used as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// It was only away; what it missed is known.
    Welcome,
    /// It was written to without the others, or nobody can tell.
    OtherHistory,
    /// It is another device.
    Stranger,
}

/// Judges a device of the table that came back while the pool is open. `newest` is a superblock of the pool as it is now.
pub fn judge_return(newest: &Superblock, entry: &DeviceEntry, returned: &Superblock) -> Return {
    let is_it = returned.pool == newest.pool && returned.device == entry.id && returned.device_index == entry.index;
    // Only who had the log wrote to it.
    let is_of_log = newest.is_log_shared && returned.is_log_shared;
    match (is_it, is_of_log || knows_last_epoch(newest, returned)) {
        (false, _) => Return::Stranger,
        (true, true) => Return::Welcome,
        (true, false) => Return::OtherHistory,
    }
}

/// Takes the signs of membership off a device that has left its pool, so that it is free for anything.
pub fn release(path: &str, device: &dyn Device) -> Result<(), Error> {
    wipe_device(path, device)
}
