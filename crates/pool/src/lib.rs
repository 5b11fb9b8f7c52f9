//! Devices put together to a pool: made, found, opened, or refused with the finding that speaks against it.
//!
//! `create` lays a new pool over devices; `identify` reads what superblocks say; `Assembly::new` decides which devices
//! belong together and which do not; `Assembly::open` gives the store. Devices come in open, with the words people
//! know them by; this crate opens no files, reads no clock and draws no random number.
//!
//! Invariants: a refusal changes nothing on any device; everything that can be refused is refused before the first write.
//!
//! Read next: `create.rs`, `identify.rs`, `assemble.rs`, `open.rs`, `join.rs`.

mod assemble;
mod claim;
mod class;
mod create;
mod error;
mod floors;
mod history;
mod identify;
mod join;
mod lost_records;
mod move_log;
mod open;
mod void;

#[cfg(test)]
mod tests;

pub use assemble::{AssembleOptions, Assembly, Candidate, LeftOut, Member, Nameless, WhyLeftOut};
pub use claim::{BEAT_INTERVAL_MS, Claim, Claimant, Hold, Next, POLL_MS, Shared, WATCH_MS};
pub use class::DeviceClass;
pub use create::{
    CreateOptions, MetadataCopies, NewDevice, Randomness, check_new, chunk_bytes_for, create, draw_pool_id,
};
pub use error::Error;
pub use floors::{Floors, floors};
pub use identify::{DamagedCopy, Holds, Identity, identify};
pub use join::{Joining, Return, check_newcomer, free_index, judge_return, newcomer, release};
pub use lost_records::note_lost_records;
pub use open::{DEVICE_TIMEOUT, Degraded, OpenOptions, Opened};
pub use void::settled_superblock;
