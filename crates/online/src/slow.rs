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

/// Since when which devices are slow.
#[derive(Default)]
pub struct SlowSince(Mutex<HashMap<DeviceIndex, Instant>>);

impl Running {
    /// Looks which devices are slow now.
    pub fn note_slow(&self) {
        let slower = self.store.health.much_slower();
        let mut slow = self.store.health.pool_devices();
        slow.retain(|device| device.latency_us() >= SLOW_FROM_US && slower.contains(&device.index()));
        let mut since = lock(&self.slow_since.0);
        since.retain(|index, _| slow.iter().any(|device| device.index() == *index));
        for device in slow {
            since.entry(device.index()).or_insert_with(Instant::now);
        }
    }

    /// For how long a device has been seen to be slow, as of the last look.
    pub(crate) fn slow_for(&self, index: DeviceIndex) -> Option<Duration> {
        lock(&self.slow_since.0).get(&index).map(Instant::elapsed)
    }
}
