//! The owner's side of a pool that several machines mount: their kernels' requests are served as those of this machine's kernel.
//!
//! [`Owner::start`] listens; each machine that is admitted, and proves that it has its key and knows the secret, has a session: what it has open, what its kernel knows,
//! what it was answered. A session outlives its connection by ten seconds, so that a request which is sent again is performed once.
//! What changes through one kernel, those of others are told.
//!
//! Invariants: no client is believed: lengths and handles are checked, and what one does wrong ends its own connection and nothing
//! else; names are answered when nobody can lose them; what an owner before has done for a request is not done again; after a commit has failed
//! nobody is answered any more; nothing changes before those who may believe the contrary have heard.
//! Read next: `session.rs` (a client), `connection.rs` (its threads), `definite.rs` (what is durable), `effects.rs` (who is told), `leases.rs` (who may believe what), `writers.rs` (who may gather),
//! `commands.rs` (commands of other machines),
//! `docs/design/machines.md`.

mod appends;
mod bounded;
mod commands;
mod connection;
mod definite;
mod departed;
mod effects;
mod greet;
mod leases;
mod listener;
mod members;
mod repeated;
mod session;
mod sharing;
mod uncommitted;
mod writers;

pub use commands::Answer;
pub use listener::{Owner, OwnerError, OwnerOptions};
pub use members::ReadMembers;
