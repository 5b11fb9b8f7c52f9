//! The simulator: the real stack, from naming to device, on simulated devices; a reference model as oracle.
//!
//! One seed is one history: a pool of some devices, operations on it, crashes, faults. Everything runs inline on one thread, and
//! nothing here or below draws chance or time from elsewhere, so a seed that failed fails again. What is promised is in
//! `docs/promises.md`, what can go wrong in `docs/faults.md`.
//!
//! A history is made of a machine with devices (`device.rs`) and media (`volume.rs`, `library.rs`), the pool under test
//! (`pool.rs`), the reference (`model.rs`) and the summary. Each step of it is a function of the module that knows its
//! subject, such as `tertiary::verify_volume(history, ..)`; `execute.rs` has the match that calls them.
//!
//! Read next: `history.rs` (the rules), `execute.rs` (operations on both sides), `recovery.rs` (crashes), `area.rs` (what
//! only some histories take part in), `operation.rs` (what is drawn), `run.rs` (seeds to outcomes).

pub mod accounts;
pub mod area;
mod background;
pub mod backups;
pub mod checksums;
pub mod clients;
pub mod cluster;
pub mod content;
pub mod device;
mod device_lifecycle;
pub mod disk;
pub mod encryption;
mod execute;
pub mod exhaustive;
pub mod fault;
mod features;
pub mod followers;
mod hang;
mod hanging;
pub mod history;
pub mod library;
mod many;
pub mod medium;
pub mod medium_faults;
pub mod metadata_offload;
pub mod model;
mod nearly_full;
mod non_blocking;
pub mod observe;
pub mod operation;
pub mod placement;
pub mod plugins;
pub mod policy_lists;
pub mod pool;
mod quotas;
pub mod random;
mod recalls;
pub mod records;
mod recovery;
mod remains;
pub mod retention;
mod rivals;
pub mod run;
mod single_copies;
pub mod summary;
pub mod syncs;
mod takeover;
pub mod tertiary;
pub mod tiers;
mod total_loss;
mod verification;
mod versions;
pub mod volume;
mod watermark_eviction;
