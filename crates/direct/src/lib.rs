//! Content between a machine and the nodes, past the owner of the pool: the owner says where bytes lie or shall lie, and this reads and
//! writes them there.
//!
//! A map names blobs with their checksums, and where their segments lie. Nothing holds these in place: a segment may be moved, and its
//! slots be another's, before they are read. So every byte is given only when it has its checksums, which travel with the map; a node that
//! is away or gives other bytes is computed from the others, and what cannot be had is asked of the owner.
//!
//! Invariant: nothing is written but rows that the owner gave. Read next: `read.rs`, `write.rs`, the format's `content_map.rs` and
//! `row_grant.rs`, `docs/design/direct.md`.

mod error;
mod read;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stere_device::{BufferPool, Deadline, Device};
use stere_format::{DeviceIndex, DeviceLayout};
use stere_stripe::{READ_COST_FAST, Stripe};

pub use error::DirectError;
pub use read::{Found, Opening};
pub use write::{Encoding, NotEncoded, Records, Sealing};

/// Memory for what is computed and decoded, kept between reads.
const BUFFERS_BYTES: usize = 16 << 20;

/// The devices of a pool, as far as this machine reaches them.
pub struct Nodes {
    stripe: Stripe,
    /// The newest owner that gave a row.
    epoch: Mutex<u64>,
    /// How often a flush of each node failed: what it had acknowledged may be lost.
    losses: Mutex<BTreeMap<DeviceIndex, u64>>,
    /// Held by whoever flushes.
    flushing: Mutex<()>,
}

impl Nodes {
    /// Of a pool with chunks of this size, without devices yet.
    #[must_use]
    pub fn new(chunk_bytes: u32) -> Nodes {
        Nodes {
            stripe: Stripe::new(chunk_bytes, BufferPool::new(BUFFERS_BYTES)),
            epoch: Mutex::default(),
            losses: Mutex::default(),
            flushing: Mutex::default(),
        }
    }

    /// From now on this device is read, and written to if it is open for that; a node that says nothing for so long is left behind.
    ///
    /// # Errors
    /// It has chunks of another size.
    pub fn attach(
        &self,
        index: DeviceIndex,
        device: Arc<dyn Device>,
        layout: DeviceLayout,
        patience: Duration,
    ) -> Result<(), DirectError> {
        device.leave_flushing_to_others();
        device.set_deadline(Some(Deadline::of_one_of_many(patience)));
        Ok(self.stripe.attach(index, device, layout, READ_COST_FAST)?)
    }

    /// Whether this device is read.
    #[must_use]
    pub fn has(&self, index: DeviceIndex) -> bool {
        self.stripe.devices.get(index).is_some()
    }
}

#[cfg(test)]
mod tests;
