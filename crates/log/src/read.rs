//! Reading records: from rows still in memory, else from the devices, verified.
//!
//! Invariants: bytes are handed out only after the checksums of all blocks they touch matched. Read next: the stripe crate's
//! `read.rs`.

use std::sync::Arc;

use stere_device::Buffer;
use stere_format::{Address, BLOCK_BYTES, ChecksumKind, Checksums, RowHeader, SegmentChunks, Summary, SummaryEntry};
use stere_stripe::{Attempt, ReadReport, ReadRequest, Stripe, StripeError};

use crate::part::{Part, are_of, is_digest_of};
use crate::segment::Segment;
use crate::{Io, Log, LogError};

/// Reads a record that is verified as a whole; tells what was bad on the way.
pub fn read_whole(
    stripe: &Stripe,
    place: &SegmentChunks,
    address: &Address,
    out: &mut [u8],
    verify: &dyn Fn(&[u8]) -> bool,
) -> Result<ReadReport, LogError> {
    let granule_bytes = out.len();
    let request = ReadRequest {
        segment: place,
        address: *address,
        range: 0..address.length,
        out,
        granule_bytes,
        verify: &|_, bytes| verify(bytes),
    };
    Ok(stripe.read_verified(request)?)
}

/// A record whose blocks may be good on different devices; where all of them have their CRCs and the record has not its digest, from
/// the chunks that give it together.
pub fn read_by_block(
    stripe: &Stripe,
    placed: &SegmentChunks,
    address: &Address,
    checksums: &Checksums,
    out: &mut [u8],
) -> Result<ReadReport, LogError> {
    let verify = |at: usize, block: &[u8]| checksums.get(at / BLOCK_BYTES) == Some(&stere_format::crc32c(block));
    let range = 0..address.length;
    let request =
        ReadRequest { segment: placed, address: *address, range, out, granule_bytes: BLOCK_BYTES, verify: &verify };
    let report = stripe.read_verified(request)?;
    Ok(with_digest(stripe, placed, address, checksums, out, report)?)
}

/// The same record if it has its digest; else, although each block has its CRC, from the chunks that give it right as a whole.
fn with_digest(
    stripe: &Stripe,
    placed: &SegmentChunks,
    address: &Address,
    checksums: &Checksums,
    record: &mut [u8],
    report: ReadReport,
) -> Result<ReadReport, StripeError> {
    if is_digest_of(checksums, record) {
        return Ok(report);
    }
    let (range, granule_bytes) = (0..address.length, record.len());
    let verify = |_: usize, bytes: &[u8]| are_of(checksums, bytes);
    let (segment, address) = (placed, *address);
    stripe.read_verified(ReadRequest { segment, address, range, out: record, granule_bytes, verify: &verify })
}

fn damaged(part: &Part<'_>, error: StripeError) -> LogError {
    tracing::error!(segment = part.segment.id, record = part.tag, %error, "data cannot be read");
    LogError::Damaged { tag: part.tag, offset: part.offset, length: part.into.len() as u32 }
}

/// What one row holds.
#[derive(Debug)]
pub struct RowContents {
    pub header: RowHeader,
    pub entries: Vec<SummaryEntry>,
}

impl Log {
    /// Reads all parts that devices have, each verified. Gives the indices of those that only tertiary media have, for a caller that may
    /// recall; another one is told `WouldBlock` before anything is read.
    pub fn read(&self, io: Io<'_>, parts: &mut [Part<'_>]) -> Result<Vec<usize>, LogError> {
        let mut on_devices = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter_mut().enumerate() {
            let offset = part.offset as usize;
            let is_in_memory = self.rows.read(&part.address, offset, part.into)
                || self.rows.recent.read(&part.address, offset, part.into);
            if !is_in_memory && !self.ahead.serve(part) {
                on_devices.push(index);
            }
        }
        if on_devices.is_empty() {
            return Ok(Vec::new());
        }
        if !io.may_block() {
            return self.read_non_blocking(io, parts, &on_devices).map(|()| Vec::new());
        }
        let (on_media, on_devices): (Vec<usize>, Vec<usize>) =
            on_devices.into_iter().partition(|index| parts[*index].segment.is_released());
        if !on_media.is_empty() && !io.may_recall() {
            return Err(LogError::WouldBlock);
        }
        if on_devices.is_empty() {
            return Ok(on_media);
        }
        if let [index] = on_devices[..] {
            let is_ahead = self.ahead.prepare(&self.stripe, &parts[index], self.chunk_bytes());
            if is_ahead && self.ahead.serve(&mut parts[index]) {
                return Ok(on_media);
            }
        }
        match self.read_from_devices(parts, &on_devices) {
            Ok(()) => Ok(on_media),
            // Devices have lost it, or it was released this moment; a medium may have it.
            Err(error) if on_devices.iter().any(|index| parts[*index].segment.tertiary().there != 0) => {
                self.read_one_by_one(io, parts, &on_devices, on_media, error)
            }
            Err(error) => Err(error),
        }
    }

    /// Each part by itself from devices; adds those that only media may have to `on_media`.
    fn read_one_by_one(
        &self,
        io: Io<'_>,
        parts: &mut [Part<'_>],
        wanted: &[usize],
        mut on_media: Vec<usize>,
        error: LogError,
    ) -> Result<Vec<usize>, LogError> {
        let mut is_any_lost = false;
        for index in wanted {
            if self.read_from_devices(parts, &[*index]).is_ok() {
                continue;
            }
            match parts[*index].segment.tertiary().there {
                0 => is_any_lost = true,
                _ if !io.may_recall() => return Err(LogError::WouldBlock),
                _ => on_media.push(*index),
            }
        }
        assert!(on_media.is_empty() || io.may_recall(), "only a call that may recall is told what media have");
        if is_any_lost { Err(error) } else { Ok(on_media) }
    }

    fn read_from_devices(&self, parts: &mut [Part<'_>], wanted: &[usize]) -> Result<(), LogError> {
        let places: Vec<Arc<SegmentChunks>> = wanted.iter().map(|index| parts[*index].segment.placed()).collect();
        let checks: Vec<_> = wanted
            .iter()
            .map(|index| {
                let part = &parts[*index];
                let checksums = &part.checksums[part.covering().start / BLOCK_BYTES..];
                let is_unread = part.checksums.kind() == ChecksumKind::None;
                move |at: usize, bytes: &[u8]| {
                    is_unread || checksums.get(at / BLOCK_BYTES) == Some(&stere_format::crc32c(bytes))
                }
            })
            .collect();
        // A part that does not begin and end with its blocks goes through a buffer that does.
        let mut bounces: Vec<Option<Buffer>> = wanted
            .iter()
            .map(|index| &parts[*index])
            .map(|part| (part.covering().len() != part.into.len()).then(|| self.buffers.take(part.covering().len())))
            .collect();
        let mut wanted_next = 0;
        let mut requests = Vec::with_capacity(wanted.len());
        let mut bounce = bounces.iter_mut();
        for (index, part) in parts.iter_mut().enumerate() {
            if wanted.get(wanted_next) != Some(&index) {
                continue;
            }
            let covering = part.covering();
            let out = match bounce.next().and_then(Option::as_mut) {
                Some(buffer) => buffer.as_mut_slice(),
                None => &mut *part.into,
            };
            requests.push(ReadRequest {
                segment: &places[wanted_next],
                address: part.address,
                range: covering.start as u32..covering.end as u32,
                out,
                granule_bytes: BLOCK_BYTES,
                verify: &checks[wanted_next],
            });
            wanted_next += 1;
        }
        assert_eq!(requests.len(), wanted.len(), "each part that is wanted is asked for");
        let outcomes = self.stripe.read_many(&mut requests);
        drop(requests);
        assert_eq!(outcomes.len(), wanted.len(), "each part has its outcome");
        let mut first_error = None;
        for (((index, outcome), mut bounce), placed) in wanted.iter().zip(outcomes).zip(bounces).zip(&places) {
            let part = &mut parts[*index];
            let outcome = match outcome {
                Ok(report) if part.is_whole() => {
                    let (address, checksums) = (part.address, part.checksums);
                    let record = bounce.as_mut().map_or(&mut *part.into, |buffer| buffer.as_mut_slice());
                    with_digest(&self.stripe, placed, &address, checksums, record, report)
                }
                outcome => outcome,
            };
            match outcome {
                Ok(report) => self.repair_part(part, placed, bounce.as_deref(), &report),
                Err(error) => {
                    first_error = first_error.or(Some(damaged(part, error)));
                    continue;
                }
            }
            if let Some(buffer) = bounce {
                let start = part.offset as usize - part.covering().start;
                part.into.copy_from_slice(&buffer[start..start + part.into.len()]);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Repairs what reading a part found bad; `covering` are its whole blocks where they are not the part itself.
    fn repair_part(&self, part: &Part<'_>, placed: &SegmentChunks, covering: Option<&[u8]>, report: &ReadReport) {
        let range = part.covering();
        let range = range.start as u32..range.end as u32;
        self.repairs.repair(part.segment, placed, &part.address, &range, covering.unwrap_or(part.into), report);
    }

    /// One whole record; `Released` where only tertiary media have it.
    pub fn read_record(
        &self,
        segment: &Arc<Segment>,
        address: &Address,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, LogError> {
        let placed = segment.placed();
        let (bytes, report) = self.find_record(segment, &placed, address, verify)?;
        self.repairs.repair(segment, &placed, address, &(0..address.length), &bytes, &report);
        Ok(bytes)
    }

    /// The same without repairing: what a row tells of itself may be of a future that a crash cut off, and what is live may lie
    /// where the other copies have something else.
    pub(crate) fn look_at_record(
        &self,
        segment: &Arc<Segment>,
        address: &Address,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, LogError> {
        self.find_record(segment, &segment.placed(), address, verify).map(|(bytes, _)| bytes)
    }

    fn find_record(
        &self,
        segment: &Arc<Segment>,
        placed: &SegmentChunks,
        address: &Address,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(Vec<u8>, ReadReport), LogError> {
        let mut bytes = vec![0; address.length as usize];
        if self.rows.read(address, 0, &mut bytes) {
            return Ok((bytes, ReadReport::default()));
        }
        if segment.is_released() {
            return Err(LogError::Released { segment: segment.id });
        }
        let report = read_whole(&self.stripe, placed, address, &mut bytes, verify)?;
        Ok((bytes, report))
    }

    /// One whole record, each 4 KiB of it checked by itself: different blocks may be good on different devices. `Released` where only
    /// tertiary media have it.
    pub fn read_blocks(
        &self,
        segment: &Arc<Segment>,
        address: &Address,
        checksums: &Checksums,
    ) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; address.length as usize];
        if self.rows.read(address, 0, &mut bytes) {
            return Ok(bytes);
        }
        if segment.is_released() {
            return Err(LogError::Released { segment: segment.id });
        }
        let placed = segment.placed();
        let report = read_by_block(&self.stripe, &placed, address, checksums, &mut bytes)?;
        self.repairs.repair(segment, &placed, address, &(0..address.length), &bytes, &report);
        Ok(bytes)
    }

    /// Whether a record can be read, for what may well be torn: nothing is counted and nothing repaired.
    pub fn has_blocks(&self, segment: &Arc<Segment>, address: &Address, checksums: &Checksums) -> bool {
        let mut bytes = self.buffers.take(address.length as usize);
        read_by_block(&self.stripe, &segment.placed(), address, checksums, &mut bytes).is_ok()
    }

    /// What the row that begins at this block holds; `None` where no row of this segment begins.
    pub fn read_row_contents(&self, segment: &Arc<Segment>, row_block: u32) -> Result<Option<RowContents>, LogError> {
        let belongs = |bytes: &[u8]| self.is_header_at(segment.id, row_block, bytes);
        let Ok(bytes) = self.look_at_record(segment, &header_address(segment.id, row_block), &belongs) else {
            return Ok(None);
        };
        let bad = |detail: String| LogError::BadRow { segment: segment.id, row_block, detail };
        let header = RowHeader::decode(&bytes).map_err(|error| bad(error.to_string()))?;
        let header = self.newest_header(segment, header);
        let summary_address =
            Address { segment: segment.id, row_block, offset: header.summary_offset, length: header.summary_length };
        let bytes = self
            .look_at_record(segment, &summary_address, &|bytes| stere_format::crc32c(bytes) == header.summary_crc32c)
            .map_err(|error| bad(error.to_string()))?;
        let entries = Summary::decode(&header, &bytes).map_err(|error| bad(error.to_string()))?;
        Ok(Some(RowContents { header, entries }))
    }

    /// The row that was written last at its place, as any chunk has it: one that lost a write still holds what a crash left there
    /// before, which is a row too. Sequences rise from mount to mount.
    fn newest_header(&self, segment: &Arc<Segment>, first: RowHeader) -> RowHeader {
        let placed = segment.placed();
        let address = header_address(segment.id, first.row_block);
        // The header is in every copy, or in the first unit and what that is rebuilt from.
        let others: Vec<Attempt> = match (placed.scheme.data, placed.scheme.parity) {
            (_, 0) => Vec::new(),
            (1, _) => (0..placed.chunks.len()).filter(|copy| !placed.is_missing(*copy)).map(Attempt::Primary).collect(),
            _ => vec![Attempt::Reconstruct { exclude: 1 }],
        };
        let seen = others.into_iter().filter_map(|attempt| {
            let mut bytes = [0; RowHeader::SIZE];
            self.stripe.read(&placed, &address, 0..address.length, &mut bytes, attempt).ok()?;
            self.is_header_at(segment.id, first.row_block, &bytes).then(|| RowHeader::decode(&bytes).ok())?
        });
        seen.fold(first, |best, other| if other.sequence > best.sequence { other } else { best })
    }

    /// Whether no chunk has a later row in this place.
    pub(crate) fn is_newest(&self, segment: &Arc<Segment>, header: &RowHeader) -> bool {
        self.newest_header(segment, *header).sequence == header.sequence
    }

    fn is_header_at(&self, segment: u64, row_block: u32, bytes: &[u8]) -> bool {
        let is_it =
            |header: RowHeader| (header.pool, header.segment, header.row_block) == (self.pool_id(), segment, row_block);
        RowHeader::decode(bytes).is_ok_and(is_it)
    }
}

fn header_address(segment: u64, row_block: u32) -> Address {
    Address { segment, row_block, offset: 0, length: RowHeader::SIZE as u32 }
}
