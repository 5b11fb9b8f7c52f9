//! A directory that files are copied to: plain copies in their places, a manifest of what they are, and what was there before.
//!
//! Knows nothing of pools: whoever has files hands over their paths, facts and bytes. Reads no clock and starts no thread.
//!
//! ```text
//! stere-backup        marker: whose backup this is; without it nothing is written
//! current/PATH        the latest copy of every file, plain
//! manifest            what lies in current: BLAKE3, size, mode, owner, times, path; and attributes; directories too
//! manifest.changes    what a run that has not ended did and will do, told before it is done
//! kept/MOMENT/PATH    what the run of that moment replaced or took away
//! kept/MOMENT.manifest    what lay in current before it
//! unplaced/N          copies on their way
//! ```
//!
//! Invariants: a copy is whole and durable, and told in `manifest.changes`, before it takes its place by a rename; whoever opens the
//! directory first ends what an interrupted run had told. So every file of the manifest is in its place at any moment after that.
//! Read next: `manifest` (lines), `destination` (opening, ending what was begun), `run` (writing), `check` (proving), `restore`, `disk` (what it lies on).

mod check;
mod destination;
mod disk;
mod error;
mod manifest;
mod restore;
mod run;
#[cfg(test)]
mod tests;

pub use check::Findings;
pub use destination::{Destination, Id, State};
pub use disk::{Disk, DiskFile, Found, Machine};
pub use error::Error;
pub use manifest::{Entry, ExtendedAttributes, Facts, Kind, Stamp, fuzz_manifest};
pub use restore::{LeftOut, Preserved, Restored};
pub use run::{Newcomer, Run, Staged};
