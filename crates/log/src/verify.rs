//! Proving a segment that was read whole: every record against the checksum in its row's summary, before a chunk is written anew from
//! it. What does not match is looked for record by record in the other chunks, and put right in memory.
//!
//! Invariant: rows hold nothing but header, records, summary and zeros, so a row whose parts were all found is known byte by byte.

use std::ops::Range;
use std::sync::Arc;

use stere_format::{
    Address, BLOCK_BYTES, Checksums, ObjectRows, RecordSubject, RowHeader, Summary, SummaryEntry, block_checksums,
};
use stere_stripe::Whole;

use crate::Log;
use crate::part::is_digest_of;
use crate::read::RowContents;
use crate::segment::Segment;

/// What proving a segment showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub rows: u64,
    pub records: u64,
    /// Rows that were not as they should be and were put together from other chunks.
    pub mended_rows: u64,
    /// Records that match their checksum nowhere; they stay as they were read.
    pub damaged_records: u64,
    /// Bytes of the content that no chunk has right, where content lies in one piece (copies).
    pub damaged: Vec<Range<usize>>,
    /// Where a row should begin none was found: some blocks could not be looked at.
    pub is_cut: bool,
}

/// What those who know say of the records of a row.
#[derive(Clone, Debug, Default)]
pub struct Needed {
    /// Whether anybody needs one of them, or nobody can tell.
    pub is_any: bool,
    /// Of each record that has a digest beside its checksum: its place in the row's list, and that.
    pub digests: Vec<(usize, Checksums)>,
}

impl Needed {
    fn digest_of(&self, index: usize) -> Option<&Checksums> {
        self.digests.iter().find(|(at, _)| *at == index).map(|(_, checksums)| checksums)
    }

    fn has_digests_of(&self, contents: &RowContents, row: &[u8]) -> bool {
        self.digests.iter().all(|(index, checksums)| {
            let entry = contents.entries.get(*index);
            entry
                .and_then(|entry| slice(row, entry.offset, entry.length))
                .is_some_and(|record| is_digest_of(checksums, record))
        })
    }
}

/// Where a row begins in what a chunk holds, headers of the chunk aside.
fn content_offset(row_block: u32) -> usize {
    (row_block as usize - 1) * BLOCK_BYTES
}

/// Whether a record's bytes match the checksum in the summary.
fn matches(entry: &SummaryEntry, record: &[u8]) -> bool {
    match entry.subject {
        RecordSubject::Blob { .. } => {
            stere_format::record_checksum(&block_checksums(record), record.len()) == entry.crc32c
        }
        RecordSubject::Node { .. } | RecordSubject::Checkpoint { .. } => stere_format::crc32c(record) == entry.crc32c,
    }
}

fn slice(row: &[u8], offset: u32, length: u32) -> Option<&[u8]> {
    row.get(offset as usize..)?.get(..length as usize)
}

/// What a row holds that is right in every record, else none.
fn prove(header: RowHeader, row: &[u8]) -> Option<RowContents> {
    let summary = slice(row, header.summary_offset, header.summary_length)?;
    if stere_format::crc32c(summary) != header.summary_crc32c {
        return None;
    }
    let entries = Summary::decode(&header, summary).ok()?;
    let is_right =
        |entry: &SummaryEntry| slice(row, entry.offset, entry.length).is_some_and(|record| matches(entry, record));
    entries.iter().all(is_right).then_some(RowContents { header, entries })
}

/// A row with each record from where it is right; those that are right in neither stay as they are.
fn join(header: RowHeader, mine: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let summary = slice(mine, header.summary_offset, header.summary_length)?;
    if stere_format::crc32c(summary) != header.summary_crc32c {
        return None;
    }
    let mut joined = mine.to_vec();
    for entry in Summary::decode(&header, summary).ok()? {
        let (own, other) = (slice(mine, entry.offset, entry.length)?, slice(theirs, entry.offset, entry.length)?);
        if !matches(&entry, own) && matches(&entry, other) {
            joined.get_mut(entry.offset as usize..)?.get_mut(..other.len())?.copy_from_slice(other);
        }
    }
    Some(joined)
}

/// Whether the rows of a segment with so many data chunks, one behind the other as in its object and headers of chunks aside, are right in
/// every record and all there.
pub fn proves_rows(pool: stere_format::PoolId, segment: u64, data_chunks: u8, content: &[u8]) -> bool {
    assert!(data_chunks > 0, "segment {segment} has a data chunk");
    let mut rows = ObjectRows::new(data_chunks, content);
    while let Some((header, row)) = rows.next() {
        let is_own = header.pool == pool && header.segment == segment && rows.is_whole(&header, row);
        if !is_own || prove(header, row).is_none() {
            return false;
        }
    }
    rows.is_at_end()
}

impl Log {
    /// Proves the rows of a sealed segment that was read whole, and mends in memory what other chunks have right. A chunk that lost
    /// a write holds what was in its place before, which may be a whole row, of a future that a crash cut off: where nothing in a row
    /// is `needed` by anybody, the other chunks are asked whether they have a later one.
    pub fn verify_whole(
        &self,
        segment: &Arc<Segment>,
        whole: &mut Whole,
        needed: &dyn Fn(&RowContents) -> Needed,
    ) -> Verified {
        let mut verified = Verified::default();
        let end = 1 + whole.blocks();
        let mut row_block = 1;
        let mut scratch = Vec::new();
        while row_block < end {
            let header = self.header_in(segment, whole, row_block);
            let proven = header.and_then(|header| self.prove_in(segment, whole, header, needed, &mut scratch));
            let height = match proven {
                Some(row) => {
                    verified.records += row.entries.len() as u64;
                    Some(row.header.row_height)
                }
                None => self.mend_row(segment, whole, row_block, needed, &mut verified),
            };
            let Some(height) = height else {
                verified.is_cut = true;
                let next = (row_block + 1..end).find(|block| self.header_in(segment, whole, *block).is_some());
                let next = next.unwrap_or(end);
                verified.damaged.push(content_offset(row_block)..content_offset(next));
                row_block = next;
                continue;
            };
            assert!(height > 0 && row_block + height <= end, "a proven row lies within its chunk");
            verified.rows += 1;
            row_block += height;
        }
        verified
    }

    /// A row in which every record is right, and which is not of a future that a crash cut off.
    fn prove_in(
        &self,
        segment: &Arc<Segment>,
        whole: &Whole,
        header: RowHeader,
        needed: &dyn Fn(&RowContents) -> Needed,
        scratch: &mut Vec<u8>,
    ) -> Option<RowContents> {
        let row = whole.row(header.row_block, header.row_height, scratch)?;
        let contents = prove(header, row)?;
        let needed = needed(&contents);
        let has_digests = needed.digests.is_empty() || needed.has_digests_of(&contents, row);
        (has_digests && (needed.is_any || self.is_newest(segment, &contents.header))).then_some(contents)
    }

    /// Puts rows that `other` proves in the place of those that `whole` does not: `other` was read from other chunks, among them some that
    /// nobody else asks, because they count as missing. Of a row that neither has whole the records are taken that `other` has right.
    pub fn take_proven(
        &self,
        segment: &Arc<Segment>,
        whole: &mut Whole,
        other: &Whole,
        needed: &dyn Fn(&RowContents) -> Needed,
    ) {
        let end = 1 + whole.blocks();
        let (mut row_block, mut scratch, mut beside) = (1, Vec::new(), Vec::new());
        while row_block < end {
            let own = self.header_in(segment, whole, row_block);
            if let Some(row) = own.and_then(|header| self.prove_in(segment, whole, header, needed, &mut scratch)) {
                row_block += row.header.row_height;
                continue;
            }
            let theirs = self.header_in(segment, other, row_block);
            if let Some(row) = theirs.and_then(|header| self.prove_in(segment, other, header, needed, &mut scratch))
                && let Some(bytes) = other.row(row_block, row.header.row_height, &mut scratch)
            {
                whole.put_row(row_block, bytes);
                row_block += row.header.row_height;
                continue;
            }
            let height = own.and_then(|header| {
                let mine = whole.row(row_block, header.row_height, &mut scratch)?;
                let theirs = other.row(row_block, header.row_height, &mut beside)?;
                let joined = join(header, mine, theirs)?;
                whole.put_row(row_block, &joined);
                Some(header.row_height)
            });
            row_block += height.unwrap_or(1);
        }
    }

    fn header_in(&self, segment: &Segment, whole: &Whole, row_block: u32) -> Option<RowHeader> {
        let header = RowHeader::decode(whole.first_block_of_row(row_block)?.get(..RowHeader::SIZE)?).ok()?;
        let is_own = header.pool == self.pool_id() && header.segment == segment.id && header.row_block == row_block;
        is_own.then_some(header)
    }

    /// Puts a row together from whatever chunks have its parts right; its height, if there is a row at all.
    fn mend_row(
        &self,
        segment: &Arc<Segment>,
        whole: &mut Whole,
        row_block: u32,
        needed: &dyn Fn(&RowContents) -> Needed,
        verified: &mut Verified,
    ) -> Option<u32> {
        let contents = self.read_row_contents(segment, row_block).ok().flatten()?;
        let needed = needed(&contents);
        let header = contents.header;
        let mut scratch = Vec::new();
        let as_read = whole.row(row_block, header.row_height, &mut scratch)?.to_vec();
        let mut row = vec![0; as_read.len()];
        row.get_mut(..RowHeader::SIZE)?.copy_from_slice(&header.encode());
        let mut summary = Vec::with_capacity(header.summary_length as usize);
        for (index, entry) in contents.entries.into_iter().enumerate() {
            let has_digest =
                |bytes: &[u8]| needed.digest_of(index).is_none_or(|checksums| is_digest_of(checksums, bytes));
            entry.encode_to(&mut summary);
            let range = entry.offset as usize..(entry.offset + entry.length) as usize;
            let address = Address { segment: segment.id, row_block, offset: entry.offset, length: entry.length };
            verified.records += 1;
            match self.look_at_record(segment, &address, &|bytes| matches(&entry, bytes) && has_digest(bytes)) {
                Ok(record) => row.get_mut(range)?.copy_from_slice(&record),
                Err(error) => {
                    tracing::warn!(segment = segment.id, row_block, offset = entry.offset, %error, "a record is damaged");
                    verified.damaged_records += 1;
                    let start = content_offset(row_block);
                    verified.damaged.push(start + range.start..start + range.end);
                    row.get_mut(range.clone())?.copy_from_slice(as_read.get(range)?);
                }
            }
        }
        let start = header.summary_offset as usize;
        row.get_mut(start..start + summary.len())?.copy_from_slice(&summary);
        verified.mended_rows += 1;
        assert!(row.len() % BLOCK_BYTES == 0, "rows are whole blocks");
        whole.put_row(row_block, &row);
        Some(header.row_height)
    }
}
