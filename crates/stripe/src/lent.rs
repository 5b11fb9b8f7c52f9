//! Slots that are lent: machines that mount through the owner write rows there, and tell it when they have.
//!
//! Invariants: before anybody else writes to a slot its grant is in the shared log, and goes on until the slot is returned, so that the next
//! owner keeps away from it; what others have written is flushed with what the owner writes. Source: `docs/design/direct.md`.
//! Read next: `grants.rs`.

use std::sync::Arc;

use stere_device::{Completion, Device, DeviceError};
use stere_format::{BLOCK_BYTES, DeviceIndex, SegmentChunks};

use crate::Stripe;
use crate::error::StripeError;
use crate::grants::Grants;

/// The slots of one segment, lent for one row. Dropping it returns them.
#[derive(Debug)]
pub struct Lent {
    grants: Arc<Grants>,
    slots: Vec<(DeviceIndex, u32)>,
    granted: Completion,
}

impl Lent {
    /// Waits until the log says that these slots may be written to.
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.granted.wait().pop().map_or(Ok(()), |(_, error)| Err(error))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.grants.take_back(&self.slots);
    }
}

impl Stripe {
    /// Lends the slots of a segment for a row; none where only one machine reaches the devices.
    pub fn lend(&self, segment: &SegmentChunks) -> Option<Lent> {
        let grants = self.devices.grants()?.clone();
        let there = |chunk: &usize| !segment.is_missing(*chunk);
        let slots: Vec<_> = (0..segment.chunks.len())
            .filter(there)
            .map(|chunk| segment.chunks[chunk])
            .map(|at| (at.device, at.slot))
            .collect();
        assert!(slots.len() >= usize::from(segment.scheme.data), "enough chunks are there for what is written");
        let granted = Completion::new();
        grants.lend(&slots, &granted);
        Some(Lent { grants, slots, granted })
    }

    /// Milliseconds of a clock that goes on while the machine sleeps; none where only one machine reaches the devices.
    pub fn lending_clock_ms(&self) -> Option<u64> {
        self.devices.grants().map(|grants| grants.now_ms())
    }

    /// Others are about to write a row: what is there now proves nothing of the devices any more.
    pub fn await_row(&self, segment: &SegmentChunks, row_block: u32, height: u32) -> Result<(), StripeError> {
        assert!(row_block >= 1 && height >= 1, "a row lies behind the header of its chunks");
        let length = u64::from(height) * BLOCK_BYTES as u64;
        for chunk in 0..segment.chunks.len() {
            if let Some((device, offset)) = self.chunk(segment, chunk)? {
                device.expect_other_writer(offset + u64::from(row_block) * BLOCK_BYTES as u64, length);
            }
        }
        Ok(())
    }

    /// Others have written a row; a flush that begins from now on covers it.
    pub fn note_row_of_others(&self, segment: &SegmentChunks, height: u32) {
        for chunk in (0..segment.chunks.len()).filter(|chunk| !segment.is_missing(*chunk)) {
            if let Some(device) = self.devices.get(segment.chunks[chunk].device) {
                device.note_written_elsewhere(u64::from(height) * BLOCK_BYTES as u64);
            }
        }
    }
}
