//! A pool whose log is shared: what an owner before may still do.
//! Invariant: slots that an owner before was granted are given to nobody, and nothing is appended to segments that lie in them, until it
//! writes no more. Read next: the journal's `tail.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use stere_device::{Device, DeviceError};
use stere_faults::{Bug, is_planted};
use stere_format::Superblock;
use stere_journal::JournalError;
use stere_log::Segment;
use stere_stripe::slots_of;

use crate::engine::Engine;
use crate::error::Error;

/// Whoever holds the superblocks may wait for the log.
const NOTE_WAIT_MAX: Duration = Duration::from_secs(2);

/// The engine, as far as its log is shared.
#[derive(Clone, Copy)]
pub struct SharedLog<'a> {
    engine: &'a Engine,
}

impl<'a> SharedLog<'a> {
    pub fn of(engine: &'a Engine) -> SharedLog<'a> {
        SharedLog { engine }
    }

    /// Gives slots that an owner before may write to nobody, and goes on in open segments where none is among theirs.
    pub(crate) fn reopen_segments(self) -> Result<(), Error> {
        let foreign = self.engine.options.tail.as_ref().map(|tail| {
            tail.forget_records();
            tail.foreign()
        });
        let foreign = foreign.filter(|_| !is_planted(Bug::SlotGrantedTwice)).unwrap_or_default();
        self.engine.log.stripe.slots.hold(&foreign);
        let slots: BTreeSet<_> = slots_of(&foreign).collect();
        let is_foreign =
            |segment: &Segment| segment.chunks().iter().any(|place| slots.contains(&(place.device, place.slot)));
        Ok(self.engine.log.reopen(&|segment| !is_foreign(segment))?)
    }

    /// Whether the journal and the roots lie there.
    pub fn is_used(self) -> bool {
        self.engine.options.tail.is_some()
    }

    /// Why it takes nothing now.
    pub fn trouble(self) -> Option<String> {
        self.engine.options.tail.as_ref()?.trouble()
    }

    /// Whether it lacks records that it had taken.
    pub fn lacks_records(self) -> bool {
        let tail = self.engine.options.tail.as_ref();
        tail.is_some_and(|tail| matches!(tail.check(), Err(JournalError::LogDamaged { .. })))
    }

    /// Tells the devices of a root after the last one, so that nobody opens the pool with a log that lacks what was acknowledged: the log has
    /// no such root. Not for an owner that was replaced, and whatever devices take it; those that do not are told of.
    pub fn note_lost_records(self) {
        assert!(self.lacks_records(), "only a log that lost records is told of");
        let superblocks = self.engine.superblocks.try_lock_for(NOTE_WAIT_MAX).map(|superblocks| superblocks.clone());
        for superblock in superblocks.into_iter().flatten() {
            let Some(device) = self.engine.log.stripe.devices.get(superblock.device_index) else { continue };
            if let Err(error) = note_on(&**device.device(), &superblock) {
                tracing::warn!(device = superblock.device_index, %error, "a device does not take a note that the log lost records");
            }
        }
    }

    /// Frees slots that owners before cannot write to any more, as time has passed. How many those are.
    pub fn release_foreign_slots(self) -> usize {
        let over = self.engine.options.tail.as_ref().map(|tail| tail.release_foreign()).unwrap_or_default();
        self.engine.log.stripe.slots.release_held(&over)
    }
}

fn note_on(device: &dyn Device, last: &Superblock) -> Result<(), Error> {
    let superblock = Superblock { generation: last.generation + 1, clean: false, ..last.clone() };
    let untold = |error: DeviceError| Error::Pool(error.to_string());
    let bytes = superblock.encode().map_err(|error| Error::Pool(error.to_string()))?;
    assert_eq!(bytes.len(), Superblock::SIZE, "a superblock fills its slot");
    for offset in superblock.layout.superblock_offsets_of_generation(superblock.generation) {
        device.write_bytes(offset, &bytes).map_err(untold)?;
    }
    device.flush().map_err(untold)
}
