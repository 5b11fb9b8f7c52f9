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

/// A row that has room for some of the records only, at the end of a segment, is not worth it where it is shorter.
const LAID_BYTES_MIN: usize = 64 << 10;

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

/// Records as they lie in a row.
struct Laid {
    /// Offset and length of each.
    places: Vec<(u32, u32)>,
    summary: Vec<u8>,
    summary_offset: usize,
    row_bytes: usize,
}

impl Laid {
    /// As many of these records as a row of so many bytes has room for, in their order.
    fn out(records: &[(u32, SummaryEntry)], bytes_max: usize) -> Laid {
        let mut laid =
            Laid { places: Vec::new(), summary: Vec::new(), summary_offset: RowHeader::SIZE, row_bytes: BLOCK_BYTES };
        for (length, entry) in records {
            let begins = u32::try_from(laid.summary_offset).expect("rows are far below 4 GiB");
            let summary_bytes = laid.summary.len();
            SummaryEntry { offset: begins, length: *length, ..entry.clone() }.encode_to(&mut laid.summary);
            let summary_offset = laid.summary_offset + align(*length as usize, SECTOR_BYTES);
            let row_bytes = align(summary_offset + align(laid.summary.len(), SECTOR_BYTES), BLOCK_BYTES);
            if row_bytes > bytes_max {
                laid.summary.truncate(summary_bytes);
                break;
            }
            laid.places.push((begins, *length));
            (laid.summary_offset, laid.row_bytes) = (summary_offset, row_bytes);
        }
        assert!(laid.places.len() <= records.len(), "each record has one place");
        laid
    }
}

impl Log {
    /// Gives a row away for the first of these records, as many as have room in the open segment, or in a new one; none where a row has to be
    /// written here, because no other machine may.
    pub fn give_row(&self, key: &StreamKey, records: Vec<(u32, SummaryEntry)>) -> Result<Option<GivenRow>, LogError> {
        assert!(!records.is_empty(), "a row has records");
        assert_eq!(key.kind, stere_format::SegmentKind::Data, "only content is written by others");
        if self.stripe.lending_clock_ms().is_none() {
            return Ok(None);
        }
        // What is written here of unprotected data is written elsewhere when a device fails, with all that follows in its segment.
        let key = &StreamKey { of_others: key.scheme.parity == 0, ..*key };
        let stream = self.stream(key);
        let mut guard = stream.lock();
        guard.idle_rounds = 0;
        if guard.row.as_ref().is_some_and(|row| !row.is_empty()) {
            self.close_row(&mut guard);
        }
        self.drop_empty_row(&mut guard);
        let open = guard.segment.as_ref().filter(|segment| !segment.has_lost_chunks());
        let in_open = open.map(|segment| Laid::out(&records, self.row_limit(segment)));
        let in_open =
            in_open.filter(|laid| laid.places.len() == records.len() || laid.summary_offset >= LAID_BYTES_MIN);
        let in_new = || Laid::out(&records, stere_stripe::row_capacity(key.scheme, self.chunk_blocks() - 1));
        let Laid { places, summary, summary_offset, row_bytes } = in_open.unwrap_or_else(in_new);
        let record_count = u32::try_from(places.len()).expect("a row has few records");
        if places.is_empty() {
            return Ok(None);
        }
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
            summary_offset: u32::try_from(summary_offset).expect("rows are far below 4 GiB"),
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

    /// The stream's segment, which has no row open, with room for one of this length.
    fn segment_with_room(
        &self,
        key: &StreamKey,
        guard: &mut Stream,
        row_bytes: usize,
    ) -> Result<Arc<Segment>, LogError> {
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

    /// The row is on its devices; its records may be entered now, and the next flush makes them durable. Whoever wrote unprotected ones has
    /// flushed them: there is nothing to make them of, if a flush here failed.
    pub fn note_given_written(&self, row: &GivenRow) {
        self.statistics.row(row.row_bytes);
        if !row.segment.of_others {
            self.note_unflushed(&row.segment, row.header.row_block);
            self.stripe.note_row_of_others(&row.place, row.header.row_height);
        }
        self.rows.take_back(row.number(), row.row_bytes as u64);
        self.changed.note(&row.segment);
    }

    /// The row is not written: nothing will ever be in it.
    pub fn note_given_dropped(&self, row: &GivenRow) {
        self.rows.take_back(row.number(), 0);
        self.changed.note(&row.segment);
    }
}
