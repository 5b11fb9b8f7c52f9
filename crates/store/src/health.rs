//! How well the devices do: errors counted, and what follows from too many.
//!
//! Counts are of this mount. A device with more errors than the first limit is sick: it is told, and goes on. What cannot be
//! written again although it is bad makes a chunk count as missing, so that it is rebuilt where it can be written; but only
//! when everything live in its segment has been read without it. Read next: `scrub.rs`, the log's `repairs.rs`.

use std::sync::Arc;

use stere_format::{DeviceEntry, DeviceIndex, DeviceState};
use stere_log::Segment;
use stere_stripe::PoolDevice;

use crate::forecast::Change;
use crate::forecast::Forecaster;
use parking_lot::Mutex;
use stere_engine::Devices;
use stere_engine::Error;
use stere_engine::{Engine, HealthLimits};

/// Whether a device is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    Good,
    Sick,
}

/// Errors of a device since it was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    pub read_errors: u64,
    pub write_errors: u64,
    pub checksum_errors: u64,
    /// Blocks that were bad and are right again.
    pub repaired: u64,
    /// Blobs that it holds, and that could be read from nowhere; known from earlier mounts, too.
    pub unrepairable: u64,
    pub state: HealthState,
}

impl Health {
    pub fn errors(&self) -> u64 {
        self.read_errors + self.write_errors + self.checksum_errors
    }
}

/// Counts errors of devices, and gives up those with too many.
pub struct HealthMonitor {
    pub(crate) engine: Arc<Engine>,
    devices: Arc<Devices>,
    forecaster: Arc<Forecaster>,
    limits: Mutex<HealthLimits>,
}

impl HealthMonitor {
    pub(crate) fn new(engine: &Arc<Engine>, devices: &Arc<Devices>, forecaster: &Arc<Forecaster>) -> HealthMonitor {
        HealthMonitor {
            engine: engine.clone(),
            devices: devices.clone(),
            forecaster: forecaster.clone(),
            limits: Mutex::new(engine.health_limits()),
        }
    }
}

impl HealthMonitor {
    /// How a device that is there does.
    pub fn health(&self, index: DeviceIndex) -> Option<Health> {
        let counts = self.engine.log().stripe.devices.get(index)?.statistics();
        let mut health = Health {
            read_errors: counts.read_errors,
            write_errors: counts.write_errors,
            checksum_errors: counts.checksum_errors,
            repaired: counts.repaired,
            unrepairable: self.engine.damage().unrepairable_on(index),
            state: HealthState::Good,
        };
        let limit = self.limits.lock().sick_errors;
        if limit > 0 && (health.errors() >= limit || health.unrepairable > 0) {
            health.state = HealthState::Sick;
        }
        Some(health)
    }

    /// The devices that are there, to be asked about themselves.
    pub fn pool_devices(&self) -> Vec<Arc<PoolDevice>> {
        self.engine.log().stripe.devices.all()
    }

    /// Devices that take many times as long as the others.
    pub fn much_slower(&self) -> Vec<DeviceIndex> {
        self.engine.log().stripe.devices.slow()
    }

    pub fn health_limits(&self) -> HealthLimits {
        *self.limits.lock()
    }

    /// Sets the limits for the rest of this mount.
    pub fn set_health_limits(&self, limits: HealthLimits) {
        *self.limits.lock() = limits;
    }

    /// Devices with more errors than the second limit, without which everything live can still be read: to be given up.
    pub fn devices_to_retire(&self) -> Vec<DeviceIndex> {
        let limit = self.limits.lock().retire_errors;
        let devices = self.engine.log().stripe.devices.all();
        let has_failed = |index: DeviceIndex| self.health(index).is_some_and(|health| health.errors() >= limit);
        let indices = devices.iter().map(|device| device.index());
        indices.filter(|index| limit > 0 && has_failed(*index) && self.can_do_without(*index)).collect()
    }

    /// Gives up the devices that have too many errors: their chunks are rebuilt elsewhere, and until then they are read.
    pub(crate) fn retire_failing(&self) -> Result<(), Error> {
        for index in self.devices_to_retire() {
            let state =
                self.engine.device_entries().iter().find(|entry| entry.index == index).map(DeviceEntry::device_state);
            if state == Some(DeviceState::Active) && self.has_room_without(index)? {
                tracing::error!(device = index, "too many errors: the device is given up, its chunks move elsewhere");
                self.devices.set_device_state(index, DeviceState::Failed)?;
            }
        }
        Ok(())
    }

    /// Whether the others could take over: a device that fails now and then is better than no second copy at all.
    fn has_room_without(&self, index: DeviceIndex) -> Result<bool, Error> {
        let is_spare = |entry: &DeviceEntry| {
            entry.device_state() == DeviceState::Spare && self.engine.log().stripe.devices.get(entry.index).is_some()
        };
        if self.engine.device_entries().iter().any(is_spare) {
            return Ok(true);
        }
        let forecast = self.forecaster.forecast(&Change::Evacuate(index))?;
        Ok(forecast.fits || forecast.survives_after > 0)
    }

    /// Streams that write to a device which is very slow now go on elsewhere, if there are enough others.
    pub(crate) fn leave_slow_devices(&self) {
        let slow = self.engine.log().stripe.devices.slow();
        if slow.is_empty() {
            return;
        }
        let open = self.engine.log().stripe.slots.open_devices();
        let others = open.iter().filter(|index| !slow.contains(index)).count();
        let is_slow = |segment: &Segment| {
            let chunks = segment.chunks();
            others >= chunks.len() && chunks.iter().any(|place| slow.contains(&place.device))
        };
        self.engine.log().end_segments(&is_slow);
    }

    /// Whether every live segment has enough other chunks that are there.
    fn can_do_without(&self, index: DeviceIndex) -> bool {
        let is_away = |place: &stere_format::ChunkPlace| {
            place.device == index || self.engine.log().stripe.devices.get(place.device).is_none()
        };
        self.engine.log().segments.all().iter().filter(|segment| segment.live_bytes() > 0).all(|segment| {
            let placed = segment.placed();
            let lost =
                (0..placed.chunks.len()).filter(|&chunk| placed.is_missing(chunk) || is_away(&placed.chunks[chunk]));
            lost.count() <= usize::from(placed.scheme.parity)
        })
    }
}
