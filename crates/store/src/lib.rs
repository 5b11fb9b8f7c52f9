//! The store: a mounted pool's engine, and what keeps its data in order.
//!
//! A `Store` is the engine (the crate `engine`) with the components that work on it: devices, forecasts, rebuilding, health,
//! scrub, check, losses and the tier (the crate `tier`). Each has what is below it, so the order in which they are made is the
//! order in which they may call each other; the engine knows none of them. Read next: `scrub.rs`, the tier's and the engine's
//! `lib.rs`.

mod accounts;
mod check;
mod forecast;
mod health;
mod loss;
mod mapped;
mod scrub;

#[cfg(test)]
mod tests;

pub use check::{CheckReport, Checker, Finding};
pub use forecast::{Change, Forecast, Forecaster, TooWide};
pub use health::{Health, HealthMonitor, HealthState};
pub use loss::{ClassLoss, Loss, Losses};
pub use mapped::map_of;
pub use scrub::{ScrubProgress, Scrubber};
pub use stere_device::{Call, Cancellation, PendingRead};
pub use stere_engine::{
    Capacity, CleanerChoice, CleanerPolicy, Cleaning, Content, Damage, DamageLog, DeviceIn, DeviceUsage, Devices,
    Engine, Error, FoldInfo, HealthLimits, Label, Lies, LossesBorne, MendProgress, MendStatus, MetadataWish, Move,
    Moved, NewBlob, Offload, Owner, Piece, Placement, Places, Rebuilder, Recoded, RecoveryReport, Reservation,
    ScrubReport, Settler, SharedDomains, SharedLog, Statistics, StoreOptions, ToFold, Transaction, Value, View,
    blob_usage_bytes, takes_more, usual_metadata_copies,
};
pub use stere_format::ScrubCursor;
pub use stere_log::{GivenRow, Io, RepairTotals, Segment};
pub use stere_recall::{BlobHandle, LabelledVolume, Parts, Prefetch, RecallMode, Refusal, TertiaryCounts, object_of};
pub use stere_stripe::DeviceStatistics;
pub use stere_tier::{
    Belonging, Candidate, Costs, Describe, Heat, Media, Member, Members, MetadataCopier, Recalls, ReleaseOrder,
    Released, Repacked, Repacker, SegmentHeat, Stager, Sweeper, Swept, TertiaryProgress, Tier, TierFile, TierMarks,
    TierPolicy, Uploader, VolumePrices, VolumeStatus, put_in_order,
};

use std::sync::Arc;

use stere_engine::Recovery;
use stere_format::DeviceEntry;

/// A mounted pool: its engine, and what works on it.
pub struct Store {
    engine: Arc<Engine>,
    pub devices: Arc<Devices>,
    pub forecaster: Arc<Forecaster>,
    pub rebuilder: Rebuilder,
    pub health: HealthMonitor,
    pub scrubber: Scrubber,
    pub checker: Checker,
    pub losses: Losses,
    pub tier: Tier,
}

impl std::ops::Deref for Store {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Store {
    /// Makes an empty pool on devices whose superblocks are filled in, and writes the first checkpoint.
    pub fn create(devices: Vec<DeviceIn>, entries: Vec<DeviceEntry>, options: StoreOptions) -> Result<Store, Error> {
        Ok(Store::over(Arc::new(Engine::create(devices, entries, options)?)))
    }

    /// Opens a pool, replaying its journal.
    pub fn open(devices: Vec<DeviceIn>, options: StoreOptions) -> Result<(Store, RecoveryReport), Error> {
        let (engine, recovered) = Engine::open(devices, options)?;
        let store = Store::over(Arc::new(engine));
        store.tier.load()?;
        let report = Recovery::of(&store.engine).finish(recovered)?;
        Ok((store, report))
    }

    /// From below upwards.
    fn over(engine: Arc<Engine>) -> Store {
        let devices = Arc::new(Devices::new(&engine));
        let forecaster = Arc::new(Forecaster::new(&engine));
        let rebuilder = Rebuilder::new(&engine, &devices);
        let health = HealthMonitor::new(&engine, &devices, &forecaster);
        let (scrubber, checker, losses) = (Scrubber::new(&engine), Checker::new(&engine), Losses::new(&engine));
        let tier = Tier::new(&engine);
        Store { engine, devices, forecaster, rebuilder, health, scrubber, checker, losses, tier }
    }

    /// Background work; returns whether there is more to do. `idle` allows cleaning that nobody waits for.
    pub fn step(&self, idle: bool) -> Result<bool, Error> {
        if self.check_writable().is_err() {
            return Ok(false);
        }
        self.log().reap();
        self.scrubber.retire_unwritable()?;
        self.health.retire_failing()?;
        self.damage().save_damage()?;
        self.health.leave_slow_devices();
        self.write_in_background(idle)
    }

    /// Whether there is room that only is held for writes of an owner before.
    pub fn holds_room(&self) -> bool {
        self.log().stripe.slots.holds_free()
    }

    /// Makes everything durable and leaves the pool so that the next mount has nothing to replay.
    pub fn close(&self) -> Result<(), Error> {
        self.end_writing()
    }
}
