//! The journal: a circle of records on each of a few devices, the same on all of them.
//!
//! Positions count bytes since the pool was made; a record lies at `position % region` and never wraps: one that does not
//! fit before the end begins at the next multiple of the region. A group of records that belong together ends with one
//! marked so, and counts only as a whole. Invariants: nothing from `start_position` on is overwritten; a record's
//! `durable_sequence` tells which earlier ones were flushed before it was written. Read next: `commit.rs`, `recover.rs`.

use std::sync::Arc;

use stere_device::{Buffer, Completion};
use stere_format::{
    BLOCK_BYTES, Counters, DeviceIndex, JOURNAL_HEADER_BYTES, JournalHeader, Key, PoolId, append_change,
};
use stere_stripe::Stripe;

use crate::error::Error;

/// One change for the journal.
pub(crate) type Change = (Key, Option<Arc<[u8]>>);

/// Where the journal lies on one device.
#[derive(Clone, Debug)]
pub(crate) struct Mirror {
    pub device: DeviceIndex,
    pub offset: u64,
}

pub(crate) struct Journal {
    pub pool: PoolId,
    pub mirrors: Vec<Mirror>,
    pub region_bytes: u64,
    pub position: u64,
    pub sequence: u64,
    pub epoch: u32,
    pub durable_sequence: u64,
    pub durable_change: u64,
    pub start_position: u64,
    pub start_sequence: u64,
    pub generation: u64,
}

impl Journal {
    /// Bytes of payload one record takes at most.
    pub fn payload_bytes_max(&self) -> usize {
        usize::try_from(self.region_bytes / 8).unwrap_or(usize::MAX).min(8 << 20)
    }

    /// Bytes between the start and the head.
    pub fn used_bytes(&self) -> u64 {
        self.position - self.start_position
    }

    /// Whether changes of about so many encoded bytes fit without overwriting anything that is needed.
    pub fn has_room(&self, payload_bytes: usize) -> bool {
        let records = payload_bytes / self.payload_bytes_max() + 1;
        let need = payload_bytes + records * (JOURNAL_HEADER_BYTES + 2 * BLOCK_BYTES) + 2 * self.payload_bytes_max();
        self.used_bytes() + need as u64 <= self.region_bytes
    }

    /// Writes the changes as one group of records to all mirrors; they are durable after `completion` and a flush.
    pub fn submit(&mut self, stripe: &Stripe, changes: &[Change], counters: &Counters, completion: &Completion) -> Result<(), Error> {
        let max = self.payload_bytes_max();
        let mut payload = Vec::with_capacity(64 * 1024);
        let mut rest = changes.iter().peekable();
        while rest.peek().is_some() {
            payload.clear();
            while let Some((key, value)) = rest.peek() {
                let bytes = value.as_ref().map_or(0, |value| value.len()) + 64;
                if bytes > max {
                    return Err(Error::UpdateTooLarge { bytes, max });
                }
                if payload.len() + bytes > max {
                    break;
                }
                append_change(&mut payload, key, value.as_deref());
                rest.next();
            }
            self.submit_record(stripe, &payload, counters, rest.peek().is_none(), completion);
        }
        Ok(())
    }

    fn submit_record(&mut self, stripe: &Stripe, payload: &[u8], counters: &Counters, group_end: bool, completion: &Completion) {
        let length = (JOURNAL_HEADER_BYTES + payload.len()).next_multiple_of(BLOCK_BYTES);
        let left = self.region_bytes - self.position % self.region_bytes;
        if (length as u64) > left {
            self.position += left;
        }
        assert!(self.used_bytes() + length as u64 <= self.region_bytes, "the journal never overwrites what it needs");
        let header = JournalHeader {
            pool: self.pool,
            epoch: self.epoch,
            sequence: self.sequence,
            durable_sequence: self.durable_sequence,
            generation: self.generation,
            counters: counters.clone(),
            group_end,
            payload_length: u32::try_from(payload.len()).expect("a journal record is far below 4 GiB"),
            payload_crc: crc32c::crc32c(payload),
        };
        let mut buffer = Buffer::zeroed(length);
        header.encode(&mut buffer.as_mut_slice()[..JOURNAL_HEADER_BYTES]);
        buffer.as_mut_slice()[JOURNAL_HEADER_BYTES..JOURNAL_HEADER_BYTES + payload.len()].copy_from_slice(payload);
        let buffer = buffer.share();
        for mirror in &self.mirrors {
            let at = mirror.offset + self.position % self.region_bytes;
            stripe.submit_raw_write(mirror.device, at, buffer.clone(), 0..length, completion.ticket(u64::from(mirror.device)));
        }
        self.position += length as u64;
        self.sequence += 1;
    }
}
