//! Rows that are given away: another machine writes them to the devices, and says when it has.
//!
//! Their place, header and summary are made here, from the lengths and checksums of their records; the bytes never come by. Invariants: a row
//! that is given counts as on its way until it is taken back, written or not, so nobody looks at it, copies or moves it; what holds it
//! keeps its segment, and the grants of its slots. Read next: `write.rs`, the stripe's `lent.rs`, `docs/design/direct.md`.

use std::sync::Arc;

use stere_format::{Address, BLOCK_BYTES, RowGrant, RowHeader, SECTOR_BYTES, SegmentChunks, SummaryEntry};
use stere_stripe::Lent;

use crate::segment::Segment;
use crate::stream::{Stream, StreamKey, align};
use crate::{Log, LogError};

/// A row that another machine writes.
#[derive(Debug)]
pub struct GivenRow {
    pub segment: Arc<Segment>,
    /// Where it lies; what is there stays while this is held.
    pub place: Arc<SegmentChunks>,
    /// Where each record is.
    pub addresses: Vec<Address>,
    pub header: RowHeader,
    pub summary: Vec<u8>,
    /// Whole blocks.
    pub row_bytes: usize,
    lent: Lent,
}

impl GivenRow {
    fn number(&self) -> (u64, u32) {
        (self.segment.id, self.header.row_block)
    }

    /// What the other machine is told, with the number under which it is entered, and the owner's epoch.
    pub fn grant(&self, number: u64, epoch: u64) -> RowGrant {
        RowGrant {
            number,
            epoch,
            segment: self.segment.id,
            place: SegmentChunks::clone(&self.place),
            row_block: self.header.row_block,
            row_bytes: u32::try_from(self.row_bytes).expect("rows are far below 4 GiB"),
            offsets: self.addresses.iter().map(|address| address.offset).collect(),
            header: self.header.encode().try_into().expect("a header has one length"),
            summary_offset: self.header.summary_offset,
            summary: self.summary.clone(),
        }
    }

    /// Waits until the row may be written.
    pub fn wait(&self) -> Result<(), LogError> {
        Ok(self.lent.wait().map_err(stere_stripe::StripeError::from)?)
    }
}

impl Log {
    /// Gives a row away for records of these lengths and descriptions; none where it has to be written here: no other machine may write, a
    /// segment has no room for such a row, or what is in it could not do without a device.
    pub fn give_row(&self, key: &StreamKey, records: Vec<(u32, SummaryEntry)>) -> Result<Option<GivenRow>, LogError> {
        assert!(!records.is_empty(), "a row has records");
        assert_eq!(key.kind, stere_format::SegmentKind::Data, "only content is written by others");
        let (mut offset, mut summary, mut places) = (RowHeader::SIZE, Vec::new(), Vec::with_capacity(records.len()));
        let record_count = u32::try_from(records.len()).expect("a row has few records");
        for (length, entry) in records {
            let begins = u32::try_from(offset).expect("rows are far below 4 GiB");
            SummaryEntry { offset: begins, length, ..entry }.encode_to(&mut summary);
            places.push((begins, length));
            offset += align(length as usize, SECTOR_BYTES);
        }
        let row_bytes = align(offset + align(summary.len(), SECTOR_BYTES), BLOCK_BYTES);
        let capacity = stere_stripe::row_capacity(key.scheme, self.chunk_blocks() - 1);
        // Of a single copy a row is kept here until it is flushed.
        if key.scheme.parity == 0 || row_bytes > capacity || self.stripe.lending_clock_ms().is_none() {
            return Ok(None);
        }
        let stream = self.stream(key);
        let mut guard = stream.lock();
        guard.idle_rounds = 0;
        let segment = self.segment_with_room(key, &mut guard, row_bytes)?;
        let place = segment.placed();
        let Some(lent) = self.stripe.lend(&place) else { return Ok(None) };
        assert!(!segment.is_sealed() && segment.scheme == key.scheme, "a row goes to an open segment of its stream");
        let row_block = segment.written_blocks();
        let row_height = stere_stripe::row_height(segment.scheme, row_bytes);
        assert!(row_block + row_height <= self.chunk_blocks(), "a row ends within its chunks");
        self.stripe.await_row(&place, row_block, row_height)?;
        let header = RowHeader {
            pool: self.pool_id(),
            segment: segment.id,
            sequence: self.counters.next_sequence(),
            row_block,
            row_height,
            record_count,
            summary_offset: u32::try_from(offset).expect("rows are far below 4 GiB"),
            summary_length: u32::try_from(summary.len()).expect("rows are far below 4 GiB"),
            summary_crc32c: stere_format::crc32c(&summary),
        };
        let address = |(offset, length)| Address { segment: segment.id, row_block, offset, length };
        let addresses = places.into_iter().map(address).collect();
        // As for rows that are written here: it is known as under way before it counts as written.
        self.rows.give((segment.id, row_block));
        segment.set_written_blocks(row_block + row_height);
        self.changed.note(&segment);
        Ok(Some(GivenRow { segment, place, addresses, header, summary, row_bytes, lent }))
    }

    /// The stream's segment, with no row open and room for one of this length.
    fn segment_with_room(
        &self,
        key: &StreamKey,
        guard: &mut Stream,
        row_bytes: usize,
    ) -> Result<Arc<Segment>, LogError> {
        if guard.row.as_ref().is_some_and(|row| !row.is_empty()) {
            self.close_row(guard);
        }
        self.drop_empty_row(guard);
        if let Some(segment) = &guard.segment
            && (self.row_limit(segment) < row_bytes || segment.has_lost_chunks())
        {
            segment.seal();
            self.changed.note(segment);
            guard.segment = None;
        }
        let segment = match guard.segment.take() {
            Some(segment) => segment,
            None => self.begin_segment(key)?,
        };
        guard.segment = Some(segment.clone());
        Ok(segment)
    }

    /// The row is on its devices; its records may be entered now, and the next flush makes them durable.
    pub fn note_given_written(&self, row: &GivenRow) {
        self.statistics.row(row.row_bytes);
        self.note_unflushed(&row.segment, row.header.row_block);
        self.stripe.note_row_of_others(&row.place, row.header.row_height);
        self.rows.take_back(row.number(), row.row_bytes as u64);
        self.changed.note(&row.segment);
    }

    /// The row is not written: nothing will ever be in it.
    pub fn note_given_dropped(&self, row: &GivenRow) {
        self.rows.take_back(row.number(), 0);
        self.changed.note(&row.segment);
    }
}
