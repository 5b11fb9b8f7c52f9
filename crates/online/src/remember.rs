//! What the registry keeps of an open pool: where its devices are, and which files of this machine its media may use.

use std::path::PathBuf;

use stere_format::{DeviceEntry, DeviceIndex};
use stere_store::SharedLog;

use crate::running::{Attached, Running, lock};
use stere_machine::devices::{absolute, serial_of};
use stere_machine::registry::{DeviceRecord, PoolRecord};

impl Running {
    /// Tells the registry where devices are, and forgets those that left the table.
    pub fn remember(&self) {
        let entries = self.store.device_entries();
        let is_known = |index: &DeviceIndex| entries.iter().any(|entry| entry.index == *index);
        let gone: Vec<Attached> = {
            let mut places = lock(&self.places);
            let gone: Vec<DeviceIndex> = places.attached.keys().copied().filter(|index| !is_known(index)).collect();
            places.left_out.retain(|index, _| is_known(index));
            gone.into_iter().filter_map(|index| places.attached.remove(&index)).collect()
        };
        for attached in gone {
            match stere_pool::release(&attached.path, &*attached.device) {
                Ok(()) => tracing::info!(path = attached.path, "the device has left the pool"),
                Err(error) => tracing::warn!(%error, "the device has left the pool, but still looks like a part of it"),
            }
        }
        self.save(&entries);
        let media = self.store.tier.media.volumes();
        let served = self.registry.serve_media(&self.pool, |places| {
            places.retain(|place| media.iter().any(|entry| entry.place == *place));
        });
        if let Err(error) = served {
            tracing::warn!(%error, "what media this machine serves could not be remembered");
        }
    }

    fn save(&self, entries: &[DeviceEntry]) {
        let old = self.registry.find(&self.pool).ok().flatten();
        if old.as_ref().is_some_and(|old| old.id != self.id) {
            tracing::warn!(pool = self.pool, "another pool is remembered by this name, so this one is not");
            return;
        }
        let record = |entry: &DeviceEntry| {
            let id = entry.id.to_string();
            let path = self.path_of(entry).map(PathBuf::from).unwrap_or_default();
            let before = old.as_ref().and_then(|old| old.devices.iter().find(|device| device.id == id));
            let serial = serial_of(&path).or_else(|| before.and_then(|device| device.serial.clone()));
            let (name, host) = (entry.name.clone(), entry.host.clone());
            DeviceRecord { id, index: entry.index, name, path: absolute(&path), host, serial }
        };
        let devices = entries.iter().map(record).collect();
        let scrub = old.as_ref().map(|old| old.scrub.clone()).unwrap_or_default();
        // A choice is carried out by a mount for writing.
        let choose = old.as_ref().and_then(|old| old.choose.clone()).filter(|_| self.read_only);
        let is_reconcile_paused = old.as_ref().is_some_and(|old| old.is_reconcile_paused);
        let log = old.as_ref().and_then(|old| old.log.clone()).filter(|_| SharedLog::of(&self.store).is_used());
        let (name, id, agreed) = (self.pool.clone(), self.id.clone(), Some(self.agreed_places(old.as_ref())));
        let record = PoolRecord { name, id, devices, choose, scrub, is_reconcile_paused, agreed, log };
        if old.as_ref() == Some(&record) {
            return;
        }
        if let Err(error) = self.registry.save(&record) {
            tracing::warn!(%error, "the pool's devices could not be remembered");
        }
    }
}
