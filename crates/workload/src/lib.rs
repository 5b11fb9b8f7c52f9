//! What a load of requests is like: profiles, long-range dependence, traces, advice.
//!
//! A front end notes each call ([`profile::Profile::note`], or [`subjects::Subjects::note`] for many subjects), in some tens of
//! nanoseconds and in memory that does not grow. From a profile come tables ([`table`]), pictures ([`picture`]) and advice
//! ([`advise`]). A trace ([`trace`]) keeps the calls themselves, and replaying it gives the same profile ([`analyse`]).
//!
//! Invariants: no I/O, no clock, no thread, no chance: times come in as nanoseconds, sampling is by hashes. Profiles merge.
//! Nothing here changes policy. The thesis whose chapter 3 this follows is Narayan's ATTEST (2010).
//!
//! Read next: `call.rs`, `profile.rs`, `dependence.rs` and `hurst.rs`, then `docs/design/workload.md`.

pub mod advise;
pub mod analyse;
pub mod call;
mod chart;
pub mod dependence;
mod distinct;
pub mod dxt;
mod error;
pub mod fuzz;
pub mod histogram;
pub mod hurst;
pub mod loads;
pub mod picture;
pub mod profile;
mod recent;
pub mod reuse;
mod rules;
pub mod subjects;
pub mod table;
pub mod table_file;
pub mod trace;

pub use call::{Call, CallKind};
pub use distinct::{hashed, mixed};
pub use error::WorkloadError;
pub use profile::Profile;
pub use subjects::{Subject, SubjectKind, Subjects};
