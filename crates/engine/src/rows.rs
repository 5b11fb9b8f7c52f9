//! One row: whether its chunks are as they must be, and making them so.
//!
//! A row is known byte for byte from its verified parts: header, records, summary, zeros between them. From that follows
//! what every chunk should hold, parity too; each chunk is then made to hold it. Where a part cannot be verified any more
//! the places that depend on it are left alone if it is live, and take what is there if it is dead.

mod live;
mod report;

use std::ops::Range;
use std::sync::Arc;

use stere_device::Buffer;
use stere_faults::{Bug, is_planted};
use stere_format::{
    Address, BLOCK_BYTES, BlobValue, CheckpointRecord, NodeReference, RecordSubject, RowHeader, SegmentChunks, Summary,
    SummaryEntry, block_checksums, record_checksum,
};
use stere_log::{Io, Needed, RowContents, Segment, is_digest_of, read_by_block};
use stere_stripe::{Attempt, ReadRequest, Stretch, StripeError, row_capacity, row_pieces};

use crate::engine::Engine;
use crate::error::Error;

pub(crate) use live::address_of;
pub use live::{Standing, standing};
pub use report::{Damage, ScrubReport};

/// A part of a record that cannot be verified.
enum Lost {
    /// No set of chunks gives right bytes.
    Damaged,
    /// Too many devices are away to tell.
    Unreachable,
}

/// What a row should be, as far as it is known.
struct Truth {
    row: Buffer,
    /// Parts of the row that are live and not known.
    unknown: Vec<Range<u64>>,
}

/// Header and summary from a row's bytes, if they are a row of this segment at this block.
pub(crate) fn parse(segment: &Segment, pool: stere_format::PoolId, row_block: u32, row: &[u8]) -> Option<RowContents> {
    let header = parse_header(segment, pool, row_block, row)?;
    let start = header.summary_offset as usize;
    let bytes = row.get(start..start + header.summary_length as usize)?;
    if stere_format::crc32c(bytes) != header.summary_crc32c {
        return None;
    }
    let entries = Summary::decode(&header, bytes).ok()?;
    Some(RowContents { header, entries })
}

/// The header of a row of this segment that begins at this block.
pub fn parse_header(segment: &Segment, pool: stere_format::PoolId, row_block: u32, block: &[u8]) -> Option<RowHeader> {
    let header = RowHeader::decode(block.get(..RowHeader::SIZE)?).ok()?;
    (header.pool == pool && header.segment == segment.id && header.row_block == row_block && header.row_height > 0)
        .then_some(header)
}

/// Whether a record's bytes are what its row and its parent say.
fn is_right(entry: &SummaryEntry, standing: &Standing, bytes: &[u8]) -> bool {
    match (&entry.subject, standing) {
        (_, Standing::Node(crc32c)) => stere_format::crc32c(bytes) == *crc32c,
        (_, Standing::Part(crc32c)) => CheckpointRecord::part_checksum(bytes) == *crc32c,
        (RecordSubject::Blob { .. }, standing) => {
            let checksums = block_checksums(bytes);
            let is_as_parent_says = match standing {
                Standing::Blob(value) => value.checksums[..] == checksums[..] && is_digest_of(&value.checksums, bytes),
                _ => true,
            };
            is_as_parent_says && record_checksum(&checksums, bytes.len()) == entry.crc32c
        }
        _ => stere_format::crc32c(bytes) == entry.crc32c,
    }
}

/// Whether a whole row in memory is right: every record, and zeros where nothing is.
pub(crate) fn row_is_right(contents: &RowContents, standings: &[Standing], row: &[u8]) -> bool {
    assert_eq!(standings.len(), contents.entries.len(), "each record has its standing");
    let mut end = RowHeader::SIZE;
    for (entry, standing) in contents.entries.iter().zip(standings) {
        let range = entry.offset as usize..(entry.offset + entry.length) as usize;
        let Some(bytes) = row.get(range.clone()) else { return false };
        if range.start < end || row[end..range.start].iter().any(|byte| *byte != 0) || !is_right(entry, standing, bytes)
        {
            return false;
        }
        end = range.end;
    }
    let summary_end = (contents.header.summary_offset + contents.header.summary_length) as usize;
    let summary_start = contents.header.summary_offset as usize;
    let is_zero = |range: Range<usize>| row.get(range).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0));
    is_zero(end..summary_start) && is_zero(summary_end..row.len())
}

/// Proves rows of segments, and repairs them where they lie.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub(crate) engine: &'a Engine,
}

impl Engine {
    pub fn rows(&self) -> Rows<'_> {
        Rows::of(self)
    }
}

impl<'a> Rows<'a> {
    pub(crate) fn of(engine: &'a Engine) -> Rows<'a> {
        Rows { engine }
    }
}

impl Rows<'_> {
    /// Makes every chunk of a row hold what it should.
    pub fn mend_row(
        &self,
        segment: &Arc<Segment>,
        placed: &SegmentChunks,
        contents: &RowContents,
        standings: &[Standing],
        report: &mut ScrubReport,
    ) -> Result<(), Error> {
        let truth = self.find_truth(segment, placed, contents, standings, report)?;
        if !self.engine.log.repairs.are_on() {
            report.findings.push(format!(
                "segment {}: chunks of the row at block {} do not agree or cannot be read; mount read-write to repair",
                segment.id, contents.header.row_block
            ));
            return Ok(());
        }
        let Truth { row, unknown } = truth;
        let units = self.engine.log.stripe.row_units(segment.scheme, &row.share()).map_err(stripe_error)?;
        let row_offset = u64::from(contents.header.row_block) * BLOCK_BYTES as u64;
        let units = units.into_iter().take(if is_planted(Bug::ScrubTrusting) { 1 } else { usize::MAX });
        for (chunk, pieces) in units.enumerate() {
            let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes().iter().copied()).collect();
            for known in known_parts(segment, contents, chunk, bytes.len() as u64, &unknown) {
                let right = &bytes[known.start as usize..known.end as usize];
                let at = row_offset + known.start;
                let repair =
                    self.engine.log.stripe.restore(segment.id, placed, chunk, at, right).map_err(stripe_error)?;
                report.repaired_blocks += repair.blocks;
                if repair.blocks > 0 {
                    self.count_bad_chunk(placed, chunk);
                }
                self.engine.log.repairs.note(segment.id, &repair);
            }
        }
        Ok(())
    }

    /// Reads everything live of a row, and reports what cannot be.
    pub(crate) fn prove_row(
        &self,
        segment: &Arc<Segment>,
        placed: &SegmentChunks,
        contents: &RowContents,
        standings: &[Standing],
        report: &mut ScrubReport,
    ) -> Result<(), Error> {
        self.find_truth(segment, placed, contents, standings, report).map(drop)
    }

    fn count_bad_chunk(&self, placed: &SegmentChunks, chunk: usize) {
        if let Some(device) = self.engine.log.stripe.devices.get(placed.chunks[chunk].device) {
            device.count_checksum_error();
        }
    }

    /// Puts a row together from verified parts, and reports what cannot be.
    fn find_truth(
        &self,
        segment: &Arc<Segment>,
        placed: &SegmentChunks,
        contents: &RowContents,
        standings: &[Standing],
        report: &mut ScrubReport,
    ) -> Result<Truth, Error> {
        assert_eq!(standings.len(), contents.entries.len(), "each record has its standing");
        let header = &contents.header;
        let mut row = Buffer::zeroed(row_capacity(segment.scheme, header.row_height));
        row.as_mut_slice()[..RowHeader::SIZE].copy_from_slice(&header.encode());
        let mut summary = Vec::new();
        Summary::encode_to(&contents.entries, &mut summary);
        if stere_format::crc32c(&summary) != header.summary_crc32c {
            return Err(Error::Pool(format!(
                "segment {}: a summary is not encoded as it was; please report",
                segment.id
            )));
        }
        let start = header.summary_offset as usize;
        row.as_mut_slice()[start..start + summary.len()].copy_from_slice(&summary);
        let mut truth = Truth { row, unknown: Vec::new() };
        for (entry, standing) in contents.entries.iter().zip(standings) {
            let address = address_of(contents, entry);
            match standing {
                Standing::Blob(value) => {
                    self.find_blob(segment, placed, entry, value, &mut truth, report);
                }
                Standing::Node(_) | Standing::Part(_) => {
                    let out = record_of(&mut truth.row, entry);
                    let accepts = |bytes: &[u8]| is_right(entry, standing, bytes);
                    let outcome = self.read_whole_of(placed, &address, out, &accepts);
                    if let Err(lost) = outcome.or_else(|lost| self.node_in_memory(entry, &address, out).ok_or(lost)) {
                        let damage = Damage {
                            segment: segment.id,
                            blob: None,
                            inode: None,
                            offset: u64::from(entry.offset),
                            length: u64::from(entry.length),
                        };
                        note_lost(lost, damage, report);
                        truth.unknown.push(range_of(entry, &(0..entry.length)));
                    }
                }
                Standing::Dead => {
                    let out = record_of(&mut truth.row, entry);
                    let accepts = |bytes: &[u8]| is_right(entry, &Standing::Dead, bytes);
                    if self.read_whole_of(placed, &address, out, &accepts).is_err() {
                        self.read_unverified(placed, &address, 0..entry.length, out);
                    }
                }
            }
        }
        Ok(truth)
    }

    /// A tree node that is right nowhere on media and still in memory: its bytes, which are then written again in place.
    fn node_in_memory(&self, entry: &SummaryEntry, address: &Address, out: &mut [u8]) -> Option<()> {
        let RecordSubject::Node { level, .. } = entry.subject else { return None };
        let reference = NodeReference { address: *address, crc32c: entry.crc32c, level };
        let node = self.engine.cache.get(&reference)?;
        let is_it = node.bytes().len() == out.len() && stere_format::crc32c(node.bytes()) == entry.crc32c;
        is_it.then(|| {
            tracing::warn!(segment = address.segment, "a tree node that was lost on all copies is written from memory");
            out.copy_from_slice(node.bytes());
        })
    }

    fn read_whole_of(
        &self,
        placed: &SegmentChunks,
        address: &Address,
        out: &mut [u8],
        accepts: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(), Lost> {
        let granule_bytes = out.len();
        let range = 0..address.length;
        let verify = |_: usize, bytes: &[u8]| accepts(bytes);
        let request = ReadRequest { segment: placed, address: *address, range, out, granule_bytes, verify: &verify };
        self.engine.log.stripe.read_verified(request).map(drop).map_err(|error| lost(&error))
    }

    /// The bytes of a live blob, block by block.
    fn find_blob(
        &self,
        segment: &Arc<Segment>,
        placed: &SegmentChunks,
        entry: &SummaryEntry,
        value: &BlobValue,
        truth: &mut Truth,
        report: &mut ScrubReport,
    ) {
        let RecordSubject::Blob { blob, inode, .. } = entry.subject else { return };
        let has_digest = value.checksums.has_digest();
        if has_digest {
            let out = record_of(&mut truth.row, entry);
            if read_by_block(&self.engine.log.stripe, placed, &value.address, &value.checksums, out).is_ok() {
                return;
            }
        }
        let mut is_every_block_right = true;
        let block_bytes = BLOCK_BYTES as u32;
        let present: Vec<u32> = value.present.iter().collect();
        for (index, checksum) in (0u32..).zip(value.checksums.iter()) {
            let range = index * block_bytes..((index + 1) * block_bytes).min(entry.length);
            let start = entry.offset as usize;
            let out = &mut truth.row.as_mut_slice()[start + range.start as usize..start + range.end as usize];
            let verify = |_: usize, bytes: &[u8]| stere_format::crc32c(bytes) == *checksum;
            let request = ReadRequest {
                segment: placed,
                address: value.address,
                range: range.clone(),
                out: &mut *out,
                granule_bytes: BLOCK_BYTES,
                verify: &verify,
            };
            let Err(error) = self.engine.log.stripe.read_verified(request) else { continue };
            is_every_block_right = false;
            let is_plain = value.encoding == stere_format::BlobEncoding::PLAIN;
            // Where the stored block is in the content; encoded content is lost as a whole.
            let block = if is_plain { present.get(index as usize).copied() } else { Some(0) };
            if is_plain && !block.is_some_and(|block| value.is_live(block)) {
                self.read_unverified(placed, &value.address, range, out);
                continue;
            }
            let (offset, length) = match is_plain {
                true => (u64::from(block.unwrap_or(0)) * BLOCK_BYTES as u64, u64::from(range.end - range.start)),
                false => (0, u64::from(value.logical_bytes)),
            };
            let damage = Damage { segment: segment.id, blob: Some(blob), inode: Some(inode), offset, length };
            note_lost(lost(&error), damage, report);
            truth.unknown.push(range_of(entry, &range));
        }
        if has_digest && is_every_block_right {
            // Which of the blocks is another than it was nobody can tell.
            let (offset, length) = (0, u64::from(value.logical_bytes));
            let damage = Damage { segment: segment.id, blob: Some(blob), inode: Some(inode), offset, length };
            note_lost(Lost::Damaged, damage, report);
            truth.unknown.push(range_of(entry, &(0..entry.length)));
        }
    }

    /// Whatever is there, for dead bytes; zeros where nothing is.
    fn read_unverified(&self, placed: &SegmentChunks, address: &Address, range: Range<u32>, out: &mut [u8]) {
        for attempt in [Attempt::Cheapest, Attempt::Reconstruct { exclude: 0 }] {
            if self.engine.log.stripe.read(placed, address, range.clone(), out, attempt).is_ok() {
                return;
            }
        }
        out.fill(0);
    }

    /// What of a row is live, and the digests of that; where it cannot be told, anything may be.
    pub fn needed_of(&self, contents: &RowContents) -> Needed {
        let Ok(standings) = self.standings_of(contents) else { return Needed { is_any: true, digests: Vec::new() } };
        let is_any = standings.iter().any(|standing| !matches!(standing, Standing::Dead));
        let digest = |(index, standing): (usize, Standing)| match standing {
            Standing::Blob(value) if value.checksums.has_digest() => Some((index, value.checksums.clone())),
            _ => None,
        };
        Needed { is_any, digests: standings.into_iter().enumerate().filter_map(digest).collect() }
    }

    /// Whether all chunks of a row are there, agree and hold what they should.
    pub(crate) fn is_row_whole(&self, segment: &Arc<Segment>, contents: &RowContents) -> Result<bool, Error> {
        let placed = segment.placed();
        let RowHeader { row_block, row_height, .. } = contents.header;
        if self.engine.readable_chunks(&placed, &[]) < placed.chunks.len() {
            return Ok(false);
        }
        let blocks = row_block..row_block + row_height;
        let Ok(stretch) = self.engine.log.stripe.read_stretch(segment.id, &placed, blocks) else { return Ok(false) };
        Ok(self.row_at_rest(segment, &stretch, row_block, row_height)?.is_some())
    }

    /// Makes a row whole where it lies: only what differs from its verified parts is written. The caller flushes.
    pub(crate) fn mend_row_in_place(&self, segment: &Arc<Segment>, contents: &RowContents) -> Result<(), Error> {
        let standings = self.standings_of(contents)?;
        self.mend_row(segment, &segment.placed(), contents, &standings, &mut ScrubReport::default())
    }

    /// The live bytes of a row with which nothing is wrong; `None` where it needs a closer look.
    pub fn row_at_rest(
        &self,
        segment: &Arc<Segment>,
        stretch: &Stretch,
        block: u32,
        height: u32,
    ) -> Result<Option<u64>, Error> {
        let blocks = block..block + height;
        if stretch.failed != 0 || !stretch.agrees(&self.engine.log.stripe, blocks).map_err(stripe_error)? {
            return Ok(None);
        }
        let Some(row) = stretch.row(block, height) else { return Ok(None) };
        let Some(contents) = parse(segment, self.engine.log.pool_id(), block, &row) else { return Ok(None) };
        let standings = self.standings_of(&contents)?;
        let is_right = row_is_right(&contents, &standings, &row);
        Ok(is_right.then(|| usage_of(&contents.entries, &standings)))
    }

    /// Whether all live records of a segment can be read without one of its chunks.
    pub fn is_readable_without(&self, segment: &Arc<Segment>, chunk: usize) -> Result<bool, Error> {
        assert!(chunk < segment.scheme.width(), "segment {} has no chunk {chunk}", segment.id);
        let mut placed = SegmentChunks::clone(&segment.placed());
        placed.missing |= 1 << chunk;
        if placed.missing.count_ones() > u32::from(segment.scheme.parity) {
            return Ok(false);
        }
        let mut block = 1;
        let end = self.engine.log.rows.arrived_blocks(segment);
        while block < end {
            let Ok(Some(contents)) = self.engine.log.read_row_contents(segment, block) else {
                block += 1;
                continue;
            };
            let standings = self.standings_of(&contents)?;
            let mut report = ScrubReport::default();
            self.prove_row(segment, &placed, &contents, &standings, &mut report)?;
            if !report.is_clean() {
                return Ok(false);
            }
            block += contents.header.row_height.max(1);
        }
        Ok(true)
    }

    /// The standing of every record of a row, all at one instant.
    pub fn standings_of(&self, contents: &RowContents) -> Result<Vec<Standing>, Error> {
        let is_checkpoint = |entry: &SummaryEntry| matches!(entry.subject, RecordSubject::Checkpoint { .. });
        let parts = match contents.entries.iter().any(is_checkpoint) {
            true => self
                .engine
                .superblocks
                .lock()
                .first()
                .map(|superblock| superblock.checkpoint.clone())
                .unwrap_or_default(),
            false => Vec::new(),
        };
        let part_at = |address: &Address| parts.iter().find(|part| part.address == *address).map(|part| part.crc32c);
        self.engine.view(Io::BLOCKING, |view| {
            contents.entries.iter().map(|entry| standing(view, contents, entry, &part_at)).collect()
        })
    }
}

fn record_of<'a>(row: &'a mut Buffer, entry: &SummaryEntry) -> &'a mut [u8] {
    &mut row.as_mut_slice()[entry.offset as usize..(entry.offset + entry.length) as usize]
}

/// A part of a record as a part of its row.
fn range_of(entry: &SummaryEntry, part: &Range<u32>) -> Range<u64> {
    u64::from(entry.offset + part.start)..u64::from(entry.offset + part.end)
}

fn lost(error: &StripeError) -> Lost {
    match error {
        StripeError::TooFewChunks { failed, .. } if failed.is_empty() => Lost::Unreachable,
        _ => Lost::Damaged,
    }
}

/// Adds what is lost to the report; neighbouring blocks of a blob as one.
fn note_lost(lost: Lost, damage: Damage, report: &mut ScrubReport) {
    match (lost, report.unrepairable.last_mut()) {
        (Lost::Unreachable, _) => report.unreachable_bytes += damage.length,
        (Lost::Damaged, Some(last))
            if last.blob.is_some()
                && (last.segment, last.blob) == (damage.segment, damage.blob)
                && damage.offset <= last.offset + last.length =>
        {
            let end = (damage.offset + damage.length).max(last.offset + last.length);
            last.length = end - last.offset;
        }
        (Lost::Damaged, _) => report.unrepairable.push(damage),
    }
}

/// The parts of a chunk's share of a row that are known, whatever of the row is not.
fn known_parts(
    segment: &Segment,
    contents: &RowContents,
    chunk: usize,
    length: u64,
    unknown: &[Range<u64>],
) -> Vec<Range<u64>> {
    let scheme = segment.scheme;
    let row_offset = u64::from(contents.header.row_block) * BLOCK_BYTES as u64;
    let mut holes: Vec<Range<u64>> = Vec::new();
    for range in unknown {
        for piece in row_pieces(scheme, contents.header.row_block, range.clone()) {
            // Every copy has it; of units the chunk itself, and parity depends on it.
            if scheme.data == 1 || piece.chunk == chunk || chunk >= usize::from(scheme.data) {
                let start = (piece.chunk_offset - row_offset) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
                let end = (piece.chunk_offset - row_offset + piece.length as u64).next_multiple_of(BLOCK_BYTES as u64);
                holes.push(start..end.min(length));
            }
        }
    }
    holes.sort_by_key(|hole| hole.start);
    let (mut known, mut at) = (Vec::new(), 0);
    for hole in holes {
        if hole.start > at {
            known.push(at..hole.start);
        }
        at = at.max(hole.end);
    }
    if at < length {
        known.push(at..length);
    }
    assert!(known.iter().all(|part| part.end <= length), "what is known of a chunk lies in it");
    assert!(known.is_sorted_by(|one, other| one.end < other.start), "what is not known parts what is");
    known
}

pub fn stripe_error(error: StripeError) -> Error {
    Error::Log(error.into())
}

pub fn usage_of(entries: &[SummaryEntry], standings: &[Standing]) -> u64 {
    assert_eq!(standings.len(), entries.len(), "each record has its standing");
    entries.iter().zip(standings).map(|(entry, standing)| standing.usage_bytes(entry)).sum()
}
