//! Pools as this machine knows them: which are remembered, where their devices and media are, and how they are opened.
//!
//! Everything here works without a daemon and without a file system: paths, labels, locks, small files. Invariant: nothing is
//! written to a device before `claim.rs` holds it. Read next: `registry.rs`, `devices.rs`, then the crate `online`.

pub mod admission;
pub mod at_once;
pub mod claim;
pub mod clock;
pub mod devices;
pub mod error;
pub mod key;
pub mod memory;
pub mod mountinfo;
pub mod places;
pub mod plugins;
pub mod random;
pub mod registry;
pub mod shared_log;
pub mod size;
