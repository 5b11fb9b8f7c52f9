//! Devices that take many times as long as the others, and since when.
//!
//! The daemon looks every second, and whoever asks for the state looks too. Invariant: what is slow now has a moment at which it was seen
//! to be so first, and what is not slow any more has none. Read next: `report/devices.rs`, `crates/stripe/src/devices.rs`.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use stere_device::Device;
use stere_format::DeviceIndex;

use crate::running::{Running, lock};

/// What takes less is not worth a word, however fast the others are.
const SLOW_FROM_US: u32 = 100_000;

/// A device that is slow.
pub(crate) struct Slow {
    pub latency_us: u32,
    /// For how long it has been seen to be so.
    pub seen_for: Duration,
}

/// Since when which devices are slow.
#[derive(Default)]
pub struct SlowSince(Mutex<HashMap<DeviceIndex, Instant>>);

impl Running {
    /// Looks which devices are slow now.
    pub fn note_slow(&self) {
        let slower = self.store.health.much_slower();
        let devices = self.store.health.pool_devices();
        let is_slow = |index: &DeviceIndex| slower.contains(index);
        let slow = devices.iter().filter(|device| device.latency_us() >= SLOW_FROM_US).map(|device| device.index());
        let slow: Vec<DeviceIndex> = slow.filter(is_slow).collect();
        let mut since = lock(&self.slow_since.0);
        since.retain(|index, _| slow.contains(index));
        for index in slow {
            since.entry(index).or_insert_with(Instant::now);
        }
    }

    pub(crate) fn slow(&self, index: DeviceIndex) -> Option<Slow> {
        self.note_slow();
        let seen_for = lock(&self.slow_since.0).get(&index)?.elapsed();
        let device = self.store.health.pool_devices().into_iter().find(|device| device.index() == index)?;
        Some(Slow { latency_us: device.latency_us(), seen_for })
    }
}
