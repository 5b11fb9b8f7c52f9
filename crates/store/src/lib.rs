//! The store: transactions over keys and blobs, durable and recoverable.
//!
//! Keys live in the overlay (changes since the last checkpoint) above the tree (immutable, on media); blobs live in the log
//! and are found through the blob map, which is keys too. The journal makes changes durable between checkpoints; recovery is
//! the newest checkpoint plus the journal behind it. Moving data (cleaning, and later everything else that relocates) is:
//! append the blob to another stream, then change its one entry in the blob map.
//!
//! A `Store` is the engine (`engine.rs`) with the components that work on it, each of which has what is below it: the tier
//! (`tier.rs`). Read next: `engine.rs`.

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
mod scrub;
mod space;
mod stranded;
mod superblock;
mod tertiary;
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

pub use check::{CheckReport, Finding};
pub use clean::CleanerPolicy;
pub use devices::{DeviceUsage, Label, SharedDomains};
pub use engine::{Engine, StoreOptions};
pub use error::Error;
pub use fold::{FoldInfo, ToFold};
pub use forecast::{Change, Forecast};
pub use health::{Health, HealthLimits, HealthState};
pub use loss::{ClassLoss, Loss};
pub use mend::{MendProgress, MendStatus};
pub use places::Lies;
pub use read::Piece;
pub use recover::{DeviceIn, RecoveryReport};
pub use relocate::{Move, Moved, Recoded};
pub use scrub::{Damage, ScrubProgress, ScrubReport};
pub use space::{Reservation, Statistics, takes_more};
pub use stere_device::{Call, Cancellation, PendingRead};
pub use stere_format::ScrubCursor;
pub use stere_log::{Io, RepairTotals};
pub use stere_stripe::DeviceStatistics;
pub use tertiary::{LabelledVolume, Parts, Prefetch, RecallMode, Refusal, TertiaryCounts};
pub use tier::{
    Belonging, Candidate, Costs, Describe, Heat, Media, Member, Members, MetadataCopier, Recalls, ReleaseOrder,
    Released, Repacked, Repacker, SegmentHeat, Stager, Sweeper, Swept, TertiaryProgress, Tier, TierFile, TierMarks,
    TierPolicy, Uploader, VolumePrices, VolumeStatus, put_in_order,
};
pub use transaction::{Settler, Transaction, blob_usage_bytes};
pub use value::Value;
pub use view::{BlobHandle, View};
pub use wish::{MetadataWish, usual_metadata_copies};
pub use write::{Content, NewBlob, Owner, Placement};

use std::sync::Arc;

use stere_format::DeviceEntry;

pub(crate) use engine::{FreedSegment, Inner, LeftSlot};

/// A mounted pool: its engine, and what works on it.
pub struct Store {
    pub(crate) engine: Arc<Engine>,
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
        let report = store.finish_opening(recovered)?;
        Ok((store, report))
    }

    /// From below upwards.
    fn over(engine: Arc<Engine>) -> Store {
        let tier = Tier::new(&engine);
        Store { engine, tier }
    }
}
