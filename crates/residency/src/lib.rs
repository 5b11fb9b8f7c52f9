//! What decides where data and metadata stay: residency policy, units, eviction, metadata offload.
//!
//! Read next: `residency_policy` (what is said), `eviction` (room on devices), `offload` (metadata on media); `residency` puts it
//! together.

pub mod eviction;
pub mod offload;
pub mod offload_ranges;
pub mod quiescence;
pub mod residency;
pub mod residency_policy;
pub mod units;
