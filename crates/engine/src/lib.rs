//! The engine: transactions over keys and blobs, durable and recoverable.
//!
//! Keys live in the overlay (changes since the last checkpoint) above the tree (immutable, on media); blobs live in the log
//! and are found through the blob map, which is keys too. The journal makes changes durable between checkpoints; recovery is
//! the newest checkpoint plus the journal behind it. Moving data (cleaning, and everything else that relocates) is: append
//! the blob to another stream, then change its one entry in the blob map.
//!
//! An `Engine` (`engine.rs`) holds the state of a mounted pool; what has one job is a handle over it. `Devices` and
//! `Rebuilder` work on it from above. What the crates `tier` and `store` put on it asks for what it needs by the methods in
//! `upkeep.rs` and `still.rs`. Read next: `engine.rs`.

mod access;
mod batch;
mod checkpoint;
mod checkpointer;
mod clean;
mod commit;
mod condemn;
mod content;
mod damage;
mod devices;
mod durable;
mod engine;
mod epoch;
mod error;
mod fold;
mod folds;
mod freed;
mod given;
mod harm;
mod make_room;
mod mend;
mod mirrors;
mod moving;
mod place_table;
mod places;
mod read;
mod rebuild;
mod reclaim;
mod recover;
mod reload;
mod relocate;
mod resize;
mod rows;
mod shared;
mod single_steps;
mod space;
mod still;
mod stranded;
mod superblock;
mod transaction;
mod twin_copies;
mod unproven;
mod update;
mod upkeep;
mod view;
mod write;

pub use clean::{BLOBS_PER_UPDATE, Cleaning};
pub use content::{Content, NewBlob, Owner, Placement};
pub use damage::DamageLog;
pub use devices::{DeviceUsage, Devices, Label, SharedDomains};
pub use engine::{Engine, HealthLimits, StoreOptions};
pub use error::Error;
pub use fold::{FoldInfo, Gathered, Offload, ToFold};
pub use mend::{MendProgress, MendStatus, Rebuilder};
pub use moving::Moving;
pub use places::{Lies, Places};
pub use read::Piece;
pub use recover::{DeviceIn, Recovered, Recovery, RecoveryReport};
pub use relocate::{Move, Moved, Recoded};
pub use rows::{Damage, Rows, ScrubReport, Standing, parse_header, standing, stripe_error, usage_of};
pub use shared::SharedLog;
pub use single_steps::{HalfCheckpoint, JournalEnd, SingleSteps};
pub use space::{Capacity, Reservation, Statistics, takes_more};
pub use stere_cleaner::{CleaningFigures, UTILISATION_PARTS};
pub use stere_format::{CleanerChoice, CleanerPolicy};
pub use stere_stripe::{MetadataWish, usual_metadata_copies};
pub use stere_tree::Value;
pub use still::StillState;
pub use transaction::{Settler, Transaction, blob_usage_bytes};
pub use twin_copies::TwinCopies;
pub use upkeep::{CheckpointHeld, ChunksHeld, SegmentChange};
pub use view::{LossesBorne, View};

pub(crate) use engine::{FreedSegment, Inner, LeftSlot};
