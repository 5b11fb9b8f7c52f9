//! A device that has grown, and one of which less is to be used.
//!
//! Growing tells the table what the superblock says. Shrinking goes in two steps. First nothing new is put beyond the new end, and
//! mending moves what lies there (`bound_device`); that is in memory only, so whatever ends it leaves the device as it was. When
//! nothing lies there any more, the superblock and the table say so (`use_less`). Invariant: at no moment does anything durable name a
//! slot beyond the end that the newest superblock tells. Read next: `mend.rs`.

use stere_format::{DeviceIndex, DeviceLayout};

use crate::devices::Devices;
use crate::error::Error;

impl Devices {
    /// Puts the size of a device that was opened with a grown layout into the device table; durable when it returns.
    pub fn adopt_device_size(&self, index: DeviceIndex) -> Result<(), Error> {
        self.engine.check_writable()?;
        let layout = {
            let superblocks = self.engine.superblocks.lock();
            let superblock = superblocks.iter().find(|superblock| superblock.device_index == index);
            superblock.map(|superblock| superblock.layout)
        };
        let layout = layout.ok_or_else(|| Error::Pool("a device that is not there cannot be resized".into()))?;
        {
            let mut devices = self.engine.devices.lock();
            for entry in devices.iter_mut().filter(|entry| entry.index == index) {
                (entry.size_bytes, entry.slot_count) = (layout.size_bytes, layout.slot_count);
            }
        }
        self.engine.checkpoint()
    }

    /// Puts nothing more beyond the end that a device is to have, and has what lies there moved; with its present layout, not any more.
    pub fn bound_device(&self, index: DeviceIndex, layout: DeviceLayout) -> Result<(), Error> {
        self.engine.check_writable()?;
        let mut mender = self.engine.chunk_writer().settled_mender()?;
        let device = self.engine.log.stripe.devices.get(index).ok_or(Error::UnknownDevice { index })?;
        let now = device.layout();
        assert!(layout.slot_count <= now.slot_count, "a device of {} slots is bounded to {layout:?}", now.slot_count);
        assert_eq!(layout.slots_offset, now.slots_offset, "slots stay where they are");
        self.change_size(index, layout)?;
        self.engine.log.stripe.slots.declare(index, layout.slot_count);
        mender.forget_failures();
        self.engine.chunk_writer().end_weak_segments();
        Ok(())
    }

    /// Slots that are in use beyond the end that a device is to have.
    pub fn slots_beyond(&self, index: DeviceIndex) -> u32 {
        self.engine.log.stripe.slots.used_beyond(index)
    }

    /// Uses no more of a device than this from now on; nothing may lie beyond it. Durable when it returns: then what lies beyond its end can
    /// be cut off.
    pub fn use_less(&self, index: DeviceIndex, layout: DeviceLayout, read_cost: u32) -> Result<(), Error> {
        self.engine.check_writable()?;
        let mut mender = self.engine.chunk_writer().settled_mender()?;
        let device = self.engine.log.stripe.devices.get(index).ok_or(Error::UnknownDevice { index })?;
        if self.slots_beyond(index) > 0 || self.engine.log.stripe.slots.is_suspended(index) {
            return Err(Error::Pool("something lies where the device is to end; wait until it was moved".into()));
        }
        {
            // No checkpoint on its way may write to the places of the old size only.
            let _checkpointer = self.engine.checkpointer.lock();
            let mut superblocks = self.engine.superblocks.lock();
            let own = superblocks.iter_mut().find(|superblock| superblock.device_index == index);
            own.ok_or(Error::UnknownDevice { index })?.layout = layout;
            let attached = self.engine.log.stripe.attach(index, device.device().clone(), layout, read_cost);
            attached.map_err(|error| Error::Pool(error.to_string()))?;
        }
        self.change_size(index, layout)?;
        mender.forget_failures();
        // Both pairs of copies of the superblock tell the new end.
        self.engine.checkpoint()?;
        self.engine.checkpoint()
    }

    fn change_size(&self, index: DeviceIndex, layout: DeviceLayout) -> Result<(), Error> {
        self.change_entry(index, |entry| (entry.size_bytes, entry.slot_count) = (layout.size_bytes, layout.slot_count))
            .map(drop)
    }
}
