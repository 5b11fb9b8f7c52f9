//! The store: transactions over keys and blobs, durable and recoverable.
//!
//! Keys live in the overlay (changes since the last checkpoint) above the tree (immutable, on media); blobs live in the log
//! and are found through the blob map, which is keys too. The journal makes changes durable between checkpoints; recovery is
//! the newest checkpoint plus the journal behind it. Moving data (cleaning, and later everything else that relocates) is:
//! append the blob to another stream, then change its one entry in the blob map.
//!
//! A `Store` is the engine (`engine.rs`) with the components that work on it: devices, forecasts, rebuilding, health,
//! scrub, check, losses and the tier (`tier.rs`). Each has what is below it, so the order in which they are made is the
//! order in which they may call each other; the engine knows none of them. Read next: `engine.rs`.

mod accounts;
mod check;
mod checkpoint;
mod clean;
mod commit;
mod damage;
mod devices;
mod engine;
mod epoch;
mod error;
mod fold;
mod forecast;
mod health;
mod journal;
mod journal_scan;
mod loss;
mod make_room;
mod mend;
mod overlay;
mod places;
mod read;
mod rebuild;
mod recover;
mod relocate;
mod resize;
mod rows;
mod scrub;
mod space;
mod stranded;
mod superblock;
mod tier;
mod transaction;
mod unproven;
mod value;
mod view;
mod void;
mod wish;
mod write;

#[cfg(test)]
mod tests;

pub use check::{CheckReport, Checker, Finding};
pub use clean::{CleanerPolicy, Cleaning};
pub use damage::DamageLog;
pub use devices::{DeviceUsage, Devices, Label, SharedDomains};
pub use engine::{Engine, HealthLimits, StoreOptions};
pub use error::Error;
pub use fold::{FoldInfo, Offload, ToFold};
pub use forecast::{Change, Forecast, Forecaster};
pub use health::{Health, HealthMonitor, HealthState};
pub use loss::{ClassLoss, Loss, Losses};
pub use mend::{MendProgress, MendStatus, Rebuilder};
pub use places::{Lies, Places};
pub use read::Piece;
pub use recover::{DeviceIn, RecoveryReport};
pub use relocate::{Move, Moved, Recoded};
pub use rows::{Damage, ScrubReport};
pub use scrub::{ScrubProgress, Scrubber};
pub use space::{Capacity, Reservation, Statistics, takes_more};
pub use stere_device::{Call, Cancellation, PendingRead};
pub use stere_format::ScrubCursor;
pub use stere_log::{Io, RepairTotals};
pub use stere_recall::{BlobHandle, LabelledVolume, Parts, Prefetch, RecallMode, Refusal, TertiaryCounts};
pub use stere_stripe::DeviceStatistics;
pub use tier::{
    Belonging, Candidate, Costs, Describe, Heat, Media, Member, Members, MetadataCopier, Recalls, ReleaseOrder,
    Released, Repacked, Repacker, SegmentHeat, Stager, Sweeper, Swept, TertiaryProgress, Tier, TierFile, TierMarks,
    TierPolicy, Uploader, VolumePrices, VolumeStatus, put_in_order,
};
pub use transaction::{Settler, Transaction, blob_usage_bytes};
pub use value::Value;
pub use view::View;
pub use wish::{MetadataWish, usual_metadata_copies};
pub use write::{Content, NewBlob, Owner, Placement};

use std::sync::Arc;

use stere_format::DeviceEntry;

pub(crate) use engine::{FreedSegment, Inner, LeftSlot};
use recover::Recovery;

/// A mounted pool: its engine, and what works on it.
pub struct Store {
    pub(crate) engine: Arc<Engine>,
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
        Ok(Store::over(Arc::new(recover::create(devices, entries, options)?)))
    }

    /// Opens a pool, replaying its journal.
    pub fn open(devices: Vec<DeviceIn>, options: StoreOptions) -> Result<(Store, RecoveryReport), Error> {
        let (engine, recovered) = recover::open(devices, options)?;
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
        self.log.reap();
        self.scrubber.retire_unwritable()?;
        self.health.retire_failing()?;
        self.damage().save_damage()?;
        self.health.leave_slow_devices();
        let (overlay_bytes, pending_bytes) = {
            let inner = self.inner.read();
            (inner.active.bytes(), inner.active.pending_bytes())
        };
        let journal = {
            let journal = self.journal.lock();
            (journal.used_bytes() as usize + pending_bytes, journal.region_bytes as usize)
        };
        if overlay_bytes > self.space().overlay_bytes_max() / 2
            || journal.0 > journal.1 / 2
            || self.checkpoints().lacks_mirrors()
        {
            self.checkpoint()?;
            return Ok(true);
        }
        if pending_bytes > journal.1 / 8 {
            self.commit(Io::BLOCKING)?;
            return Ok(true);
        }
        if idle {
            self.prove_at_rest()?;
        }
        self.cleaning().clean_in_background(idle)
    }

    /// Makes everything durable and leaves the pool so that the next mount has nothing to replay.
    pub fn close(&self) -> Result<(), Error> {
        if self.check_writable().is_err() {
            return Ok(());
        }
        // What was mended so far counts.
        if let Err(error) = self.chunk_writer().settled_mender().map(drop) {
            tracing::warn!(%error, "what was being mended is given up");
        }
        if let Err(error) = self.damage().save_damage() {
            tracing::warn!(%error, "what is known to be damaged could not be kept");
        }
        self.checkpoints().close()
    }
}
