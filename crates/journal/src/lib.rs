//! The journal: a circle of records on each of a few devices, the same on all of them.
//!
//! Positions count bytes since the pool was made; a record lies at `position % region` and never wraps: one that does not
//! fit before the end begins at the next multiple of the region. A group of records that belong together ends with one
//! marked so, and counts only as a whole. Invariants: nothing from `start_position` on is overwritten; a record's
//! `durable_sequence` tells which earlier ones were flushed before it was written. Read next: `scan.rs`, the engine's
//! `commit.rs`.

mod error;
mod foreign;
mod scan;
mod tail;
mod tail_read;

use std::sync::Arc;

use stere_device::{Buffer, Completion, Device};
use stere_faults::{Bug, is_planted};
use stere_format::{
    BLOCK_BYTES, Counters, DeviceIndex, JournalHeader, JournalPosition, Key, PoolId, Superblock, append_change,
    journal::change_bytes,
};
use stere_stripe::Stripe;

pub use error::JournalError;
pub use scan::{Group, Scan};
pub use tail::{Tail, TailWorld};

/// One change for the journal.
pub type Change = (Key, Option<Arc<[u8]>>);

/// Where the journal lies on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub device: DeviceIndex,
    pub offset: u64,
}

/// A pool's journal, as it is written.
pub struct Journal {
    pub pool: PoolId,
    pub mirrors: Vec<Mirror>,
    pub region_bytes: u64,
    pub position: u64,
    pub sequence: u64,
    pub epoch: u32,
    pub durable_sequence: u64,
    /// Up to here recovery read records, and wrote them to the mirrors that lacked them: some may not be proven durable yet.
    pub recovered_sequence: u64,
    pub durable_change: u64,
    /// Whether what devices failed to take of the last batch is not recorded yet.
    pub is_unsettled: bool,
    /// Whether a record tells that the last changes were durable.
    pub is_end_proven: bool,
    pub start_position: u64,
    pub generation: u64,
    /// Where the log is shared: records go there, and there are no mirrors.
    pub tail: Option<Arc<Tail>>,
    /// Records that are to be put, once all that they name is durable.
    pub unput: Vec<Vec<u8>>,
}

/// Bytes of payload that leave room for headers in a record of the shared log.
const SHARED_PAYLOAD_BYTES_MAX: usize = stere_shared_log::RECORD_BYTES_MAX - (64 << 10);

impl Journal {
    pub fn new(superblock: &Superblock, mirrors: Vec<Mirror>) -> Self {
        let start = superblock.journal_start;
        Journal {
            pool: superblock.pool,
            mirrors,
            region_bytes: superblock.journal_bytes,
            position: start.position,
            sequence: start.sequence,
            epoch: superblock.epochs.last().map_or(0, |epoch| epoch.epoch),
            durable_sequence: start.sequence.saturating_sub(1),
            recovered_sequence: 0,
            durable_change: 0,
            is_unsettled: false,
            is_end_proven: true,
            start_position: start.position,
            generation: superblock.generation,
            tail: None,
            unput: Vec::new(),
        }
    }

    /// Whether anything takes records.
    pub fn is_somewhere(&self) -> bool {
        self.tail.is_some() || !self.mirrors.is_empty()
    }

    /// Whether something submitted is held back.
    pub fn is_holding(&self) -> bool {
        !self.unput.is_empty()
    }

    /// Puts what was submitted into the shared log, if there is one. Where devices did not take what it names it is held, and put with
    /// the next group, which names where that is instead, as one: whoever takes the pool over sees both or none.
    pub fn put_submitted(&mut self, is_durable: bool) -> Result<(), JournalError> {
        let Some(tail) = self.tail.clone() else { return Ok(()) };
        // What was not written because the pool is lost is written nowhere else.
        tail.check()?;
        if !is_durable {
            return self.hold_submitted();
        }
        if is_planted(Bug::AcknowledgedBeforePut) {
            return Ok(());
        }
        tail.put_journal(std::mem::take(&mut self.unput))
    }

    /// Makes the last record one in the middle of its group.
    fn hold_submitted(&mut self) -> Result<(), JournalError> {
        let Some(last) = self.unput.last_mut() else { return Ok(()) };
        let header = JournalHeader::decode(last);
        let header = header.map_err(|error| JournalError::BadRecord { detail: error.to_string() })?;
        assert_eq!(header.at.sequence + 1, self.sequence, "the last record that was submitted is held");
        last[..JournalHeader::SIZE].copy_from_slice(&JournalHeader { group_end: false, ..header }.encode());
        Ok(())
    }

    /// A durable checkpoint needs nothing before this position any more.
    pub fn start_at(&mut self, start: &JournalPosition, generation: u64) {
        assert!(start.position >= self.start_position, "the journal's start only moves on");
        self.start_position = start.position;
        self.is_end_proven |= start.position == self.position;
        assert!(generation >= self.generation, "generation {generation} follows {}", self.generation);
        self.generation = generation;
        self.assert_invariants();
    }

    fn assert_invariants(&self) {
        let (start, end) = (self.start_position, self.position);
        assert!(start <= end, "the journal begins at {start} and ends at {end}");
        let region_bytes = self.region_bytes;
        assert!(end - start <= region_bytes, "the journal holds {} bytes of {region_bytes}", end - start);
        assert!(self.durable_sequence < self.sequence, "a record that is not written yet is not durable");
    }

    /// Goes on without the mirrors that did not take a write or a flush; an error when none is left.
    pub fn drop_failed_mirrors(&mut self, failed: &[DeviceIndex]) -> Result<(), JournalError> {
        if failed.is_empty() || self.tail.is_some() {
            return Ok(());
        }
        self.mirrors.retain(|mirror| !failed.contains(&mirror.device));
        if self.mirrors.is_empty() {
            return Err(JournalError::NoMirror);
        }
        tracing::warn!(?failed, "devices dropped out of the journal");
        Ok(())
    }

    /// Bytes of payload one record takes at most.
    pub fn payload_bytes_max(&self) -> usize {
        let max = if self.tail.is_some() { SHARED_PAYLOAD_BYTES_MAX } else { 8 << 20 };
        usize::try_from(self.region_bytes / 8).unwrap_or(usize::MAX).min(max)
    }

    /// Bytes between the start and the head.
    pub fn used_bytes(&self) -> u64 {
        self.position - self.start_position
    }

    /// Whether changes of about so many encoded bytes fit without overwriting anything that is needed.
    pub fn has_room(&self, payload_bytes: usize) -> bool {
        let records = payload_bytes / self.payload_bytes_max() + 1;
        let need = payload_bytes + records * (JournalHeader::SIZE + 2 * BLOCK_BYTES) + 2 * self.payload_bytes_max();
        self.used_bytes() + need as u64 <= self.region_bytes
    }

    /// Writes the changes as one group of records to all mirrors; they are durable after `completion` and a flush.
    pub fn submit(
        &mut self,
        stripe: &Stripe,
        changes: &[Change],
        counters: &Counters,
        completion: &Completion,
    ) -> Result<(), JournalError> {
        self.is_end_proven = false;
        let max = self.payload_bytes_max();
        let mut payload = Vec::with_capacity(64 * 1024);
        let mut rest = changes.iter().peekable();
        while rest.peek().is_some() {
            payload.clear();
            while let Some((key, value)) = rest.peek() {
                let bytes = change_bytes(value.as_deref());
                if bytes > max {
                    return Err(JournalError::UpdateTooLarge { bytes, max });
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

    /// Writes a record without changes, for what its header tells.
    pub fn submit_proof(&mut self, stripe: &Stripe, counters: &Counters, completion: &Completion) {
        self.submit_record(stripe, &[], counters, true, completion);
    }

    fn submit_record(
        &mut self,
        stripe: &Stripe,
        payload: &[u8],
        counters: &Counters,
        group_end: bool,
        completion: &Completion,
    ) {
        assert!(payload.len() <= self.payload_bytes_max(), "a record holds no more than recovery takes for one");
        let length = (JournalHeader::SIZE + payload.len()).next_multiple_of(BLOCK_BYTES);
        let left = self.region_bytes - self.position % self.region_bytes;
        if (length as u64) > left {
            self.position += left;
        }
        assert!(self.used_bytes() + length as u64 <= self.region_bytes, "the journal never overwrites what it needs");
        let header = JournalHeader {
            pool: self.pool,
            epoch: self.epoch,
            at: JournalPosition { position: self.position, sequence: self.sequence },
            durable_sequence: self.durable_sequence,
            checkpoint_generation: self.generation,
            counters: *counters,
            group_end,
            payload_length: u32::try_from(payload.len()).expect("a journal record is far below 4 GiB"),
            payload_crc32c: stere_format::crc32c(payload),
        };
        let mut buffer = Buffer::zeroed(length);
        buffer.as_mut_slice()[..JournalHeader::SIZE].copy_from_slice(&header.encode());
        buffer.as_mut_slice()[JournalHeader::SIZE..JournalHeader::SIZE + payload.len()].copy_from_slice(payload);
        if self.tail.is_some() {
            assert!(self.mirrors.is_empty(), "a journal in a shared log has no mirrors");
            self.unput.push(buffer.as_slice().to_vec());
        }
        let buffer = buffer.share();
        for mirror in &self.mirrors {
            let at = mirror.offset + self.position % self.region_bytes;
            let ticket = completion.ticket(u64::from(mirror.device));
            // A ticket that is dropped counts as a failed write.
            if let Some(device) = stripe.devices.get(mirror.device) {
                device.submit_write(at, buffer.clone(), 0..length, ticket);
            }
        }
        self.position += length as u64;
        self.sequence += 1;
        self.assert_invariants();
    }
}
