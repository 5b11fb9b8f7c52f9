//! Tertiary volumes: named objects, written once and whole, read in parts. Directories here; others elsewhere.
//!
//! A volume is no `Device`: it has no slots, no order of writes to keep and no flush. An object that `put` acknowledged is durable,
//! whole, and never changes. A volume may be away for as long as it likes: then every call says `Away` at once, nothing hangs
//! on it, and whoever needs it waits or comes back. Invariant: an object is there under its name whole or not at all.
//!
//! Read next: `volume/directory.rs`, `volume/memory.rs`, the crate `recall`.

use std::sync::Arc;
use std::time::Duration;

use crate::Cancellation;

mod directory;
mod memory;
mod recording;

pub use directory::DirectoryVolume;
pub use memory::{MemoryVolume, VolumeFault};
pub use recording::calls_that_are_lost;

/// What can go wrong with a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// The volume cannot be reached now; what it holds is not lost.
    #[error("{volume} cannot be reached ({why}); bring it back, or put the medium in")]
    Away { volume: String, why: String },
    /// The volume is there and has no such object.
    #[error("{volume} has no object {object}; restore it, or use another copy")]
    NoObject { volume: String, object: String },
    /// The object ends before what was asked for.
    #[error("object {object} on {volume} is too short: {length} bytes, {needed} are needed; it was cut or replaced")]
    Short { volume: String, object: String, length: u64, needed: u64 },
    /// The object is there, and a part of it cannot be read.
    #[error("object {object} on {volume} is damaged: {why}; restore it, or use another copy")]
    Damaged { volume: String, object: String, why: String },
    /// It takes nothing more.
    #[error("{volume} is full; free some of it, or add another volume")]
    Full { volume: String },
    /// Another volume, or none of stere's.
    #[error("{volume} is not the volume it should be ({found}); put the right one in")]
    Stranger { volume: String, found: String },
    /// Nobody wants the answer any more; this says nothing of the volume.
    #[error("what was asked of {volume} is not wanted any more")]
    GivenUp { volume: String },
}

impl VolumeError {
    /// Whether trying again later may help with nobody doing anything to this object.
    pub fn is_passing(&self) -> bool {
        use VolumeError::{Away, Full, GivenUp, Stranger};
        matches!(self, Away { .. } | Full { .. } | Stranger { .. } | GivenUp { .. })
    }
}

/// How long a read waits for a volume, and who cancels it.
#[derive(Debug, Clone, Default)]
pub struct MediumWait {
    /// A volume that is away may be waited for, if that was chosen: somebody reads a file. Background work wants its answer now.
    pub for_away: bool,
    pub cancellation: Cancellation,
}

impl MediumWait {
    /// For background work.
    pub const NONE: MediumWait = MediumWait { for_away: false, cancellation: Cancellation::NONE };

    /// For background work that can be cancelled.
    pub fn cancelled_by(cancellation: &Cancellation) -> MediumWait {
        MediumWait { for_away: false, cancellation: cancellation.clone() }
    }

    /// For somebody who reads a file.
    pub fn of_reader(cancellation: Cancellation) -> MediumWait {
        MediumWait { for_away: true, cancellation }
    }
}

/// What arrives together, where an object is read in pieces.
pub const PIECE_BYTES: usize = 256 << 10;

/// After so many bytes of an object it is looked whether anybody wants the rest.
pub const LOOK_BYTES: usize = 1 << 20;

/// Where the pieces of an object go as they arrive. A volume that others serve calls it from their threads.
pub type Take = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Named objects somewhere slow.
pub trait Volume: Send + Sync {
    /// Stores an object, whole and durable, in the place of one of this name.
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError>;

    /// Reads `into.len()` bytes from `offset` on.
    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError>;

    /// Reads so many bytes from the beginning on, in pieces as they arrive: `take` gets each, behind the one before. What is taken is
    /// not proven by anything, and an error may come after some of it. Ends early where it is cancelled.
    fn stream(&self, object: &str, length: usize, take: &Take, cancellation: &Cancellation) -> Result<(), VolumeError> {
        let mut bytes = vec![0; length];
        self.get(object, 0, &mut bytes, &MediumWait::cancelled_by(cancellation))?;
        take(&bytes);
        Ok(())
    }

    /// The same for `length` bytes from `offset` on.
    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        let mut bytes = vec![0; length];
        self.get(object, offset, &mut bytes, &MediumWait::cancelled_by(cancellation))?;
        take(&bytes);
        Ok(())
    }

    /// Bytes of an object; none if it is not there.
    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError>;

    /// The same for a caller that may be cancelled. What asks a server answers by itself.
    fn length_for(&self, object: &str, _cancellation: &Cancellation) -> Result<Option<u64>, VolumeError> {
        self.length(object)
    }

    /// Takes an object away; it may be gone already.
    fn delete(&self, object: &str) -> Result<(), VolumeError>;

    /// Names and bytes of all objects whose names begin like this. May lag behind.
    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError>;

    /// One line for people.
    fn describe(&self) -> String;

    /// What it consists of, where that is more than one medium.
    fn media(&self) -> Vec<Medium> {
        Vec::new()
    }

    /// Bytes it can take still, as far as it knows.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// On which medium an object is, and how long it takes about until its first byte is here; none if that is no matter, or not known.
    fn estimate(&self, _object: &str) -> Option<(String, Duration)> {
        None
    }

    /// Where in an object reading begins best for who wants what lies at `offset`, if not at its front: at the block that holds it, where
    /// its medium is positioned by blocks.
    fn begins_at(&self, _object: &str, _offset: u64) -> Option<u64> {
        None
    }

    /// Whether each of its media proves by itself that it belongs to the volume: then it stays the right one when one of them was away.
    fn is_proven_by_its_media(&self) -> bool {
        false
    }

    /// Whether another medium may be at its place with nobody being told, as where people change disks. Then its label is read again and
    /// again, which must cost next to nothing.
    fn may_be_exchanged(&self) -> bool {
        false
    }

    /// Nobody needs it any more for now: media are put away.
    fn close(&self) {}
}

/// A medium of a volume that has many: a cartridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Medium {
    pub name: String,
    /// `unknown`, `blank`, `ours`, `full`, `reusable` (full, and nothing on it is alive) or `foreign`.
    pub kind: String,
    /// `slot`, `drive N`, `away` or `unknown`.
    pub place: String,
    /// Objects that count, and their bytes.
    pub objects: u64,
    pub bytes: u64,
    /// Why it is not used.
    pub complaint: Option<String>,
}

#[cfg(test)]
mod tests;
