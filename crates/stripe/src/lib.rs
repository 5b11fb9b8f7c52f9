//! Segments over devices: slot placement, k+m rows, degraded reads.
//!
//! A segment is k data + m parity chunks in slots of k+m different devices. This crate hands out slots, writes rows with
//! their parity, reads any part of a record back, and, when bytes do not match their checksum or a device is away, finds
//! the bytes that do match from the other copies or by reconstruction. It knows nothing of blobs, trees or journals.
//!
//! Invariants: a chunk marked missing is never read; bytes are handed out as verified only if the caller's own check
//! accepted them; nothing is repaired behind the caller's back (`repair` writes only what was verified).
//!
//! Read next: `pool_slots` and `placement` (where segments go), `geometry` (where bytes lie), `write`, `read`, `recover`, `whole`.

mod degraded;
mod devices;
mod error;
pub mod geometry;
mod grants;
mod homes;
mod lent;
mod metadata_wish;
mod parity;
mod pending;
mod placement;
mod pool_slots;
mod read;
mod read_window;
mod recover;
mod repair;
mod scrub;
mod slots;
mod told;
mod whole;
mod write;

pub use devices::{DeviceStatistics, Devices, PoolDevice};
pub use error::{BadCause, BadChunk, StripeError};
pub use geometry::{RowPiece, row_capacity, row_height, row_pieces};
pub use grants::{Grants, slots_of};
pub use lent::Lent;
pub use metadata_wish::{MetadataWish, usual_metadata_copies};
pub use parity::{POSITION_BYTES, xor_all, xor_into};
pub use placement::{Capacity, Kept, SlotUsage};
pub use pool_slots::Slots;
pub use read::{Attempt, ReadReport, ReadRequest};
pub use recover::RangeCheck;
pub use repair::Repair;
pub use scrub::Stretch;
pub use whole::Whole;
pub use write::{split_tag, write_tag};

use parity::ParityCoder;
use std::sync::Arc;
use stere_device::{Buffer, BufferPool, Device, SharedBuffer};
use stere_format::{ChunkHeader, ChunkPlace, DeviceIndex, DeviceLayout, STRIPE_UNIT_BYTES, SegmentChunks};

/// The open devices of a pool and all that is done with segments on them.
#[derive(Debug)]
pub struct Stripe {
    chunk_bytes: u32,
    pub devices: Arc<Devices>,
    pub slots: Slots,
    coder: ParityCoder,
    buffers: BufferPool,
    /// One stripe unit, to fill up what a row leaves empty.
    zeros: SharedBuffer,
    told: told::Told,
}

/// Read cost of a device that is as good as any.
pub const READ_COST_FAST: u32 = 1;
/// Read cost of a device with a seeking head: it is read only where fast copies are missing or very busy.
pub const READ_COST_SEEKING: u32 = 30;

impl Stripe {
    /// A pool with no devices yet.
    pub fn new(chunk_bytes: u32, buffers: BufferPool) -> Stripe {
        let devices = Arc::new(Devices::default());
        Stripe {
            chunk_bytes,
            slots: Slots::new(chunk_bytes, devices.clone()),
            devices,
            coder: ParityCoder::default(),
            buffers,
            zeros: Buffer::zeroed(STRIPE_UNIT_BYTES).share(),
            told: told::Told::default(),
        }
    }

    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// The memory rows and parity are built in.
    pub fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    /// Opens a device for reads, writes and new chunks. `read_cost` says which copy to prefer (`READ_COST_*`).
    pub fn attach(
        &self,
        index: DeviceIndex,
        device: Arc<dyn Device>,
        layout: DeviceLayout,
        read_cost: u32,
    ) -> Result<(), StripeError> {
        if layout.chunk_bytes != self.chunk_bytes {
            let (found, expected) = (layout.chunk_bytes, self.chunk_bytes);
            return Err(StripeError::ChunkBytes { index, found, expected });
        }
        self.devices.attach(index, device, layout, read_cost);
        self.slots.attach(index, layout.slot_count);
        Ok(())
    }

    /// Takes a device away; what is known of its slots stays, so it can come back.
    pub fn detach(&self, index: DeviceIndex) -> Option<Arc<PoolDevice>> {
        self.slots.detach(index);
        self.devices.detach(index)
    }

    /// Forgets a device for good, with its slots.
    pub fn forget(&self, index: DeviceIndex) {
        drop(self.devices.detach(index));
        self.slots.forget(index);
    }

    /// Checks what the methods rely on; segments come from media.
    fn check_segment(&self, number: u64, segment: &SegmentChunks) -> Result<(), StripeError> {
        let impossible = |reason| Err(StripeError::ImpossibleSegment { segment: number, reason });
        if !segment.scheme.is_possible() {
            return impossible("its scheme");
        }
        if segment.chunks.len() != segment.scheme.width() {
            return impossible("number of chunks");
        }
        Ok(())
    }

    /// The device of a chunk and where the chunk starts there; none if it is away or the chunk was never written.
    fn chunk(&self, segment: &SegmentChunks, chunk: usize) -> Result<Option<(Arc<PoolDevice>, u64)>, StripeError> {
        if segment.is_missing(chunk) {
            return Ok(None);
        }
        let place = segment.chunks[chunk];
        match self.devices.get(place.device) {
            None => Ok(None),
            Some(device) => device.slot_offset(place).map(|offset| Some((device, offset))),
        }
    }

    /// Reads and checks the header of the chunk in a slot.
    pub fn read_chunk_header(&self, place: ChunkPlace) -> Result<ChunkHeader, StripeError> {
        let device = self.devices.get(place.device).ok_or(StripeError::Absent { index: place.device })?;
        let mut block = self.buffers.take(ChunkHeader::SIZE);
        device.read(device.slot_offset(place)?, &mut block)?;
        Ok(ChunkHeader::decode(&block)?)
    }
}

#[cfg(test)]
mod tests;
