//! The shared log: numbered records that machines agree on, in an engine that has `put` if absent.
//!
//! Records are numbered from 1 without gaps. Invariants every engine keeps: what is in a number never changes; a number
//! below the first that is kept is `Taken`, also for a `put` that was begun before the trim; after `Mine` a record
//! survives whatever the engine survives; an answer that was lost is settled by looking whose record is there. Calls
//! are bounded in time by the engine: they end with `Error::Away`. An entry of the registry of machines is replaced only
//! by whoever told what it replaces. Source: `docs/design/cluster.md`. Read next:
//! `memory.rs`, the crate `log-engines`.

mod error;
mod memory;

pub use error::{Error, too_many_machines};
pub use memory::MemoryLog;

/// Bytes one record has at most; longer values are several records.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// Machines that one pool has at most, and what one entry of the registry has.
pub const MACHINES_MAX: usize = 1024;
pub const ENTRY_BYTES_MAX: usize = 512;

/// The id of a machine, under which its entry lies.
pub type Machine = [u8; 16];

/// What became of a `put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The record is in the log, durably, and was put by this handle.
    Mine,
    /// Somebody else's record has this number, or had it before it was trimmed.
    Taken,
}

/// The numbers a log holds: from `first`, and `next` is the first that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub first: u64,
    pub next: u64,
}

/// One record with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub sequence: u64,
    pub bytes: Vec<u8>,
}

/// A log in an engine, opened by one process for one pool.
pub trait SharedLog: Send + Sync {
    /// Puts a record under a number if the number is free. `sequence` is `bounds().next` or what the caller believes it is.
    fn put(&self, sequence: u64, record: &[u8]) -> Result<Put, Error>;

    /// The records from `from` on, in order and without gaps, as many as fit into `bytes_max`, but at least one if there is
    /// any. Records before the first that is kept are `Error::Trimmed`.
    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<Record>, Error>;

    /// Forgets what is before a number; never the last record.
    fn trim(&self, before: u64) -> Result<(), Error>;

    /// What the log holds now.
    fn bounds(&self) -> Result<Bounds, Error>;

    /// Replaces the beat: a few hundred bytes that tell who is the owner and that it lives. It need not be durable.
    fn beat(&self, beat: &[u8]) -> Result<(), Error>;

    /// The last beat; empty when there was none.
    fn last_beat(&self) -> Result<Vec<u8>, Error>;

    /// All entries of the registry of machines, by their ids; none in logs that were made before there was one.
    fn machines(&self) -> Result<Vec<(Machine, Vec<u8>)>, Error>;

    /// Puts the entry of a machine durably, if its entry is `before` (`None`: it has none), or is the new one already.
    /// `Taken`: it is another one now.
    fn put_machine(&self, machine: Machine, before: Option<&[u8]>, entry: &[u8]) -> Result<Put, Error>;
}
