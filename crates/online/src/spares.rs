//! Devices that fail by themselves: hot spares take over, and who answers again is taken back.

use std::path::Path;

use stere_device::{Access, Device, FileOptions};
use stere_format::{DeviceEntry, DeviceIndex, DeviceState};
use stere_pool::{Holds, identify};

use crate::outcome::Outcome;
use crate::running::{Running, lock};
use stere_machine::error::Result;

impl Running {
    /// Whether this path leads to that device, as far as a look without locks tells.
    pub fn is_there(&self, entry: &DeviceEntry, path: &str) -> bool {
        let options = FileOptions { access: Access::ReadOnly, direct: false, writer_threads: 0 };
        let Ok(device) = stere_nbd::open(Path::new(path), &options) else { return false };
        match identify(&*device) {
            Holds::Member(identity) => identity.superblock.device == entry.id,
            _ => false,
        }
    }

    /// Takes a device back that answers again.
    pub fn return_of(&self, entry: &DeviceEntry, path: &str) -> Result<String> {
        let _one_at_a_time = lock(&self.changing);
        let outcome = self.bring_back(entry, Path::new(path), false)?;
        self.remember();
        self.mending.wake();
        match outcome {
            Outcome::Done(said) => Ok(said),
            Outcome::Forecast(forecast) => Ok(forecast.text),
        }
    }

    /// Whether a device does not answer, so that writing went on without it.
    pub fn is_silent(&self, index: DeviceIndex) -> bool {
        self.store.health.pool_devices().iter().any(|device| device.index() == index && device.silent_for().is_some())
    }

    pub fn spare(&self) -> Option<DeviceEntry> {
        let is_spare = |entry: &DeviceEntry| {
            DeviceState::from_code(entry.state) == Some(DeviceState::Spare) && self.attached(entry.index).is_some()
        };
        self.store.device_entries().into_iter().find(is_spare)
    }

    /// The device is given up, which calls a spare in, and what it held is rebuilt.
    pub fn spare_takes_over(&self, failed: &DeviceEntry) -> Result<()> {
        let _one_at_a_time = lock(&self.changing);
        let Some(spare) = self.spare() else { return Ok(()) };
        tracing::warn!(spare = spare.name, failed = failed.name, "a hot spare takes over");
        self.store.devices.set_device_state(failed.index, DeviceState::Failed)?;
        self.mending.wake();
        Ok(())
    }
}
