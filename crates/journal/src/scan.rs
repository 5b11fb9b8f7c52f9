//! Reading the journal back: group after group, each record from the first mirror that has it whole.
//!
//! Invariants: a record counts only with the epoch that the superblock assigns to its sequence; a gap is a torn tail unless a
//! later record proves that what is missing had been durable. Records hold what users wrote (names, attributes), which may
//! look like a record: a proof counts only where it lies at the place it names, where so many records before it have room,
//! and not within another record that is whole. Epochs are random numbers, so that nobody can guess one. Read next:
//! the engine's `recover.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stere_device::{Buffer, Completion, Device};
use stere_faults::{Bug, is_planted};
use stere_format::{
    BLOCK_BYTES, Counters, DeviceIndex, Epoch, JournalChanges, JournalHeader, JournalPosition, PoolId, Superblock,
};
use stere_stripe::Stripe;

use crate::{Change, Journal, JournalError, Mirror};

/// How much of the journal is looked at in one read when searching for proofs.
const SEARCH_BYTES: usize = 1 << 20;

/// Changes that belong together.
pub struct Group {
    pub changes: Vec<Change>,
    pub counters: Counters,
    pub last_sequence: u64,
    /// Where the next record begins.
    pub end: JournalPosition,
}

struct Record {
    header: JournalHeader,
    bytes: Vec<u8>,
    /// Mirrors that do not hold it.
    lacking: Vec<Mirror>,
}

/// Reads what recovery needs, from where the superblock says.
pub struct Scan<'a> {
    stripe: &'a Stripe,
    pool: PoolId,
    mirrors: Vec<Mirror>,
    region_bytes: u64,
    start: JournalPosition,
    next: JournalPosition,
    epochs: Vec<Epoch>,
    proven: u64,
    lacking: Vec<(JournalHeader, Vec<u8>, Vec<Mirror>)>,
    /// Where the log is shared: its records, by sequence.
    shared: Option<Arc<BTreeMap<u64, Vec<u8>>>>,
}

impl<'a> Scan<'a> {
    pub fn new(stripe: &'a Stripe, journal: &Journal, superblock: &Superblock) -> Self {
        let mut scan = Self::of_durable(stripe, journal, superblock);
        if let Some(tail) = &journal.tail {
            let records = tail.records();
            // What is in the shared log is durable, with all that it names.
            scan.proven = records.keys().next_back().copied().unwrap_or(scan.start.sequence.saturating_sub(1));
            scan.shared = Some(records);
            return scan;
        }
        scan.proven = superblock.journal_start.sequence.saturating_sub(1);
        scan.proven = scan.proven.max(scan.search_proof());
        scan
    }

    /// Of a journal in use: what is durable is known, and so is what recovery found, to which nobody writes any more.
    pub fn of_durable(stripe: &'a Stripe, journal: &Journal, superblock: &Superblock) -> Self {
        Scan {
            stripe,
            pool: journal.pool,
            mirrors: journal.mirrors.clone(),
            region_bytes: superblock.journal_bytes,
            start: superblock.journal_start,
            next: superblock.journal_start,
            epochs: superblock.epochs.clone(),
            proven: journal.durable_sequence.max(journal.recovered_sequence),
            lacking: Vec::new(),
            shared: None,
        }
    }

    /// Takes the durable records that some mirrors lack: place and bytes of each, and where it lacks. Of others nobody knows whether
    /// they are only being written.
    pub fn take_lacking(&mut self) -> Vec<(JournalHeader, Vec<u8>, Vec<Mirror>)> {
        let mut lacking = std::mem::take(&mut self.lacking);
        lacking.retain(|(header, _, _)| header.at.sequence <= self.proven);
        lacking
    }

    /// Every record up to this sequence was durable when a later one was written.
    pub fn proven(&self) -> u64 {
        self.proven
    }

    /// The next whole group, or `None` at the end of the journal.
    pub fn next_group(&mut self) -> Result<Option<Group>, JournalError> {
        let mut changes: Vec<Change> = Vec::new();
        let mut records = Vec::new();
        let mut at = self.next;
        loop {
            let Some(record) = self.record_at(at) else {
                if at.sequence <= self.proven && !is_planted(Bug::OneMirrorRead) {
                    return Err(JournalError::Damaged { sequence: at.sequence });
                }
                return Ok(None);
            };
            let header = record.header;
            let payload = &record.bytes[JournalHeader::SIZE..JournalHeader::SIZE + header.payload_length as usize];
            for change in JournalChanges::new(payload) {
                let (key, value) = change.map_err(|error| JournalError::BadRecord { detail: error.to_string() })?;
                changes.push((key, value.map(Arc::from)));
            }
            at = JournalPosition {
                position: header.at.position + header.record_bytes() as u64,
                sequence: header.at.sequence + 1,
            };
            records.push(record);
            if header.group_end {
                self.next = at;
                let lacking = records.into_iter().filter(|record| !record.lacking.is_empty());
                self.lacking.extend(lacking.map(|record| (record.header, record.bytes, record.lacking)));
                let end = JournalPosition { position: at.position, sequence: at.sequence };
                return Ok(Some(Group { changes, counters: header.counters, last_sequence: header.at.sequence, end }));
            }
        }
    }

    /// Writes records to the mirrors that lack them; those from `end` on were cut and stay as they are. Tells how many those are, and which
    /// mirrors failed at it, so that others go on without them.
    pub fn repair(&mut self, end: u64) -> (u64, Vec<DeviceIndex>) {
        let completion = Completion::new();
        let mut repaired = 0;
        for (header, bytes, mirrors) in self.lacking.drain(..) {
            if header.at.sequence >= end {
                continue;
            }
            let length = bytes.len();
            let buffer = Buffer::copy_of(&bytes).share();
            for mirror in mirrors {
                let offset = mirror.offset + header.at.position % self.region_bytes;
                let ticket = completion.ticket(u64::from(mirror.device));
                if let Some(device) = self.stripe.devices.get(mirror.device) {
                    device.submit_write(offset, buffer.clone(), 0..length, ticket);
                    repaired += 1;
                }
            }
        }
        let written = completion.wait().into_iter().map(|(device, error)| (device as DeviceIndex, error));
        let mut failed = BTreeSet::new();
        for (device, error) in written.chain(self.stripe.devices.flush()) {
            tracing::warn!(device, %error, "the journal on a device could not be repaired");
            failed.insert(device);
        }
        (repaired, failed.into_iter().collect())
    }

    fn epoch_of(&self, sequence: u64) -> Option<u32> {
        self.epochs.iter().rev().find(|epoch| epoch.first_sequence <= sequence).map(|epoch| epoch.epoch)
    }

    /// The record with this sequence, which begins here or, if it did not fit, at the next turn of the circle.
    fn record_at(&self, at: JournalPosition) -> Option<Record> {
        if let Some(shared) = &self.shared {
            let bytes = shared.get(&at.sequence)?;
            let header = JournalHeader::decode(bytes).ok()?;
            header.payload(bytes).ok()?;
            return Some(Record { header, bytes: bytes.clone(), lacking: Vec::new() });
        }
        let turn = at.position.next_multiple_of(self.region_bytes);
        let places = if turn == at.position { vec![at.position] } else { vec![at.position, turn] };
        places.into_iter().find_map(|position| self.record_at_position(position, at.sequence))
    }

    fn record_at_position(&self, position: u64, sequence: u64) -> Option<Record> {
        let mut found: Option<(JournalHeader, Vec<u8>)> = None;
        let mut lacking = Vec::new();
        let read_from = if is_planted(Bug::OneMirrorRead) { 1 } else { self.mirrors.len() };
        for mirror in self.mirrors.iter().take(read_from) {
            match self.read_record(mirror, position, sequence) {
                Some(record) => found = found.or(Some(record)),
                None => lacking.push(mirror.clone()),
            }
        }
        found.map(|(header, bytes)| Record { header, bytes, lacking })
    }

    fn read_record(&self, mirror: &Mirror, position: u64, sequence: u64) -> Option<(JournalHeader, Vec<u8>)> {
        let offset = mirror.offset + position % self.region_bytes;
        let mut bytes = vec![0; BLOCK_BYTES];
        let device = self.stripe.devices.get(mirror.device)?;
        device.read(offset, &mut bytes).ok()?;
        let header = JournalHeader::decode(&bytes).ok()?;
        let expected = JournalPosition { position, sequence };
        let epoch_is_wrong = Some(header.epoch) != self.epoch_of(sequence) && !is_planted(Bug::EpochIgnored);
        if header.pool != self.pool || header.at != expected || epoch_is_wrong {
            return None;
        }
        let length = header.record_bytes();
        if position % self.region_bytes + length as u64 > self.region_bytes {
            return None;
        }
        bytes.resize(length, 0);
        if length > BLOCK_BYTES {
            let rest = offset + BLOCK_BYTES as u64;
            device.read(rest, &mut bytes[BLOCK_BYTES..]).ok()?;
        }
        header.payload(&bytes).ok()?;
        Some((header, bytes))
    }

    /// The highest `durable_sequence` that any record from the start on tells, on any mirror.
    fn search_proof(&self) -> u64 {
        self.mirrors.iter().map(|mirror| self.search_proof_on(mirror)).max().unwrap_or(0)
    }

    fn search_proof_on(&self, mirror: &Mirror) -> u64 {
        let Some(device) = self.stripe.devices.get(mirror.device) else { return 0 };
        let (mut proven, mut at, mut whole_to) = (0, 0, 0);
        while at < self.region_bytes {
            let length = (self.region_bytes - at).min(SEARCH_BYTES as u64);
            let bytes = read_what_can_be(&*device, mirror.offset + at, length as usize);
            for (block, place) in bytes.chunks(BLOCK_BYTES).zip((at..).step_by(BLOCK_BYTES)) {
                let Some(header) = self.proof_in(block, place).filter(|_| place >= whole_to) else { continue };
                proven = proven.max(header.durable_sequence);
                if self.read_record(mirror, header.at.position, header.at.sequence).is_some() {
                    whole_to = place + header.record_bytes() as u64;
                }
            }
            at += length;
        }
        proven
    }

    /// The header of a record that may lie at this place of the region.
    fn proof_in(&self, block: &[u8], place: u64) -> Option<JournalHeader> {
        let header = JournalHeader::decode(block).ok()?;
        let is_mine = header.pool == self.pool && Some(header.epoch) == self.epoch_of(header.at.sequence);
        let records_before = header.at.sequence.checked_sub(self.start.sequence)?;
        let bytes_before = header.at.position.checked_sub(self.start.position)?;
        let is_in_place = header.at.position % self.region_bytes == place && bytes_before < self.region_bytes;
        let has_room = records_before <= bytes_before / BLOCK_BYTES as u64;
        (is_mine && is_in_place && has_room).then_some(header)
    }
}

/// Bytes of a device, zeros for the blocks that cannot be read: one bad sector, perhaps where nothing is, hides no other record.
fn read_what_can_be(device: &impl Device, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    if device.read(offset, &mut bytes).is_err() {
        for (block, at) in bytes.chunks_mut(BLOCK_BYTES).zip((offset..).step_by(BLOCK_BYTES)) {
            if device.read(at, block).is_err() {
                block.fill(0);
            }
        }
    }
    bytes
}
