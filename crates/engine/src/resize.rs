//! A device that has grown: the table is told what its superblock says.

use stere_format::DeviceIndex;

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
}
