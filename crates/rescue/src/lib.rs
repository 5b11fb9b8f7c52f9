//! Rescue: everything that can still be found on whatever is left of a pool's devices, copied out, with nothing written to them.
//!
//! It stands beside the store, not on it: the store refuses what is damaged, and this goes on past it. Everything is read
//! through the same checksums, so what is copied is right, and what is missing is told by path. The order of the work:
//! `sources.rs` (which devices), `state.rs` (which root, and the journal), `walk.rs` (names), `content.rs` (bytes), `lost.rs`
//! (what has no name any more). `media.rs`, `rows.rs` and `nodes.rs` find records without tables. Only `mend.rs` is about pools
//! that can still be opened.
//!
//! Invariants: media are hostile input, and nothing in here panics on them; nothing is written to a device; a byte that is
//! handed to the sink matched its checksum; a file is called whole only if all that leads to it is certain.

mod content;
mod error;
mod folds;
mod journal;
mod keys;
mod lost;
mod media;
mod mend;
mod nodes;
mod report;
mod rows;
mod sink;
mod sources;
mod state;
mod unlock;
mod volumes;
mod walk;

#[cfg(test)]
mod tests;

pub use error::Error;
pub use mend::{Mended, mend};
pub use report::{Counts, Damage, LostRange, Problem, Report};
pub use sink::{Attributes, Sink, SinkError, Told, Verdict};
pub use sources::{DeviceFacts, Source};
pub use state::State;
pub use stere_crypt::{Place, Secret};
pub use unlock::Unlocked;
pub use volumes::VolumeSource;

use media::Media;
use sources::Members;
use walk::Walk;

/// How a rescue is done.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Contents are not read: only what is there by name.
    pub names_only: bool,
    /// What opens keys: without, what is encrypted stays holes under names that tell nothing.
    pub secrets: &'a [Secret],
}

/// Copies everything that can be found into the sink.
pub fn rescue(sources: Vec<Source>, options: Options<'_>, sink: &mut dyn Sink) -> Result<Report, Error> {
    rescue_with_volumes(sources, Vec::new(), options, sink)
}

/// The same from devices and media, or from volumes alone.
pub fn rescue_with_volumes(
    sources: Vec<Source>,
    volumes: Vec<VolumeSource>,
    options: Options<'_>,
    sink: &mut dyn Sink,
) -> Result<Report, Error> {
    let members = Members::gather(sources, volumes)?;
    let devices = members.facts.clone();
    let (mut keys, mut state) = state::find(Media::new(members));
    state.notes.extend(folds::bring_back(&mut keys));
    let unlocked = Unlocked::open(&mut keys, options.secrets)?;
    let report = Report {
        state,
        devices,
        counts: Counts::default(),
        damaged_nodes: 0,
        damage: Vec::new(),
        older: Vec::new(),
        problems: Vec::new(),
    };
    let mut walk = Walk::new(keys, unlocked, sink, report, options.names_only);
    walk.root()?;
    walk.lost_and_found()?;
    let mut report = walk.report;
    report.damaged_nodes = walk.keys.damaged_nodes.len() as u64;
    Ok(report)
}

/// Opens keys with what media have of a pool's metadata, for records that are found without it.
pub fn unlock_by_volumes(volumes: Vec<VolumeSource>, secrets: &[Secret]) -> Result<Unlocked, Error> {
    let (mut keys, _) = state::find(Media::new(Members::gather(Vec::new(), volumes)?));
    Unlocked::open(&mut keys, secrets)
}
