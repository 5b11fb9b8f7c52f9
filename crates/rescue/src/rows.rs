//! What segments say of themselves: the rows of a segment and their summaries, without any table.
//!
//! Where a row's header cannot be read the next one is looked for block by block; what an earlier user of the slot left behind
//! names another segment and does not count. Read next: `nodes.rs`, `lost.rs`.

use std::collections::BTreeSet;

use stere_format::{Address, BLOCK_BYTES, RowHeader, SegmentChunks, Summary, SummaryEntry};

use crate::media::Media;

/// How much of a chunk is looked at in one read.
const SEARCH_BYTES: usize = 1 << 20;

/// A row whose header and summary are right.
pub(crate) struct Row {
    pub header: RowHeader,
    pub entries: Vec<SummaryEntry>,
}

impl Row {
    /// Where a record of this row lies, if its entry can be true.
    pub fn address(&self, entry: &SummaryEntry) -> Option<Address> {
        let address = Address {
            segment: self.header.segment,
            row_block: self.header.row_block,
            offset: entry.offset,
            length: entry.length,
        };
        // What an address may be is checked where addresses are decoded.
        Address::decode(&address.encode()).ok()
    }
}

impl Media {
    /// The header of the row that begins at this block.
    pub fn row_header(&self, segment: u64, place: &SegmentChunks, row_block: u32) -> Option<RowHeader> {
        let address = Address { segment, row_block, offset: 0, length: RowHeader::SIZE as u32 };
        let pool = self.members.pool;
        let belongs = |bytes: &[u8]| {
            RowHeader::decode(bytes)
                .is_ok_and(|header| header.pool == pool && header.segment == segment && header.row_block == row_block)
        };
        RowHeader::decode(&self.record_at(&address, place, &belongs)?).ok()
    }

    fn row(&self, segment: u64, place: &SegmentChunks, header: RowHeader) -> Option<Row> {
        let address = Address {
            segment,
            row_block: header.row_block,
            offset: header.summary_offset,
            length: header.summary_length.max(1),
        };
        let is_summary = |bytes: &[u8]| stere_format::crc32c(bytes) == header.summary_crc32c;
        let bytes = self.record_at(&address, place, &is_summary)?;
        let entries = Summary::decode(&header, &bytes).ok()?;
        Some(Row { header, entries })
    }

    /// Visits all rows of a segment that can be read in this way. Returns how many have a header but no summary.
    pub fn rows(&self, segment: u64, place: &SegmentChunks, mut visit: impl FnMut(&Row)) -> u64 {
        let blocks = self.stripe().chunk_bytes() / BLOCK_BYTES as u32;
        let mut lost = 0;
        let mut row_block = 1;
        let mut searched: Option<BTreeSet<u32>> = None;
        while row_block < blocks {
            let Some(header) = self.row_header(segment, place, row_block) else {
                let headers = searched.get_or_insert_with(|| self.search_headers(segment, place, row_block));
                match headers.range(row_block + 1..).next() {
                    Some(next) => row_block = *next,
                    None => return lost,
                }
                continue;
            };
            let height = header.row_height;
            match self.row(segment, place, header) {
                Some(row) => visit(&row),
                None => lost += 1,
            }
            row_block = row_block.saturating_add(height.max(1));
        }
        lost
    }

    /// Blocks behind `from` that hold a header of this segment's rows, on any chunk where row headers lie.
    fn search_headers(&self, segment: u64, place: &SegmentChunks, from: u32) -> BTreeSet<u32> {
        let mut headers = BTreeSet::new();
        let copies = if place.scheme.data == 1 { place.scheme.width() } else { 1 };
        for chunk in 0..copies {
            let mut offset = u64::from(from) * BLOCK_BYTES as u64;
            while offset < u64::from(self.stripe().chunk_bytes()) {
                let length = (u64::from(self.stripe().chunk_bytes()) - offset).min(SEARCH_BYTES as u64) as usize;
                let first = (offset / BLOCK_BYTES as u64) as u32;
                let bytes = self.read_chunk(segment, place, chunk, first, length);
                for (block, content) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                    let header = RowHeader::decode(&content[..RowHeader::SIZE]);
                    if header.is_ok_and(|header| header.segment == segment && header.row_block == block) {
                        headers.insert(block);
                    }
                }
                offset += length as u64;
            }
        }
        headers
    }

    /// Raw bytes of a chunk, or what the other chunks say they are; nothing where neither can be read.
    fn read_chunk(&self, segment: u64, place: &SegmentChunks, chunk: usize, first: u32, length: usize) -> Vec<u8> {
        if !place.is_missing(chunk)
            && let Some(at) = place.chunks.get(chunk)
            && let Some(member) = self.members.members.iter().find(|it| it.handle == at.device)
            && let Some(start) = member.layout.slot_offset(at.slot)
        {
            let mut bytes = vec![0; length];
            let offset = start + u64::from(first) * BLOCK_BYTES as u64;
            if member.device.read(offset, &mut bytes).is_ok() {
                return bytes;
            }
        }
        let blocks = first..first + (length / BLOCK_BYTES) as u32;
        match self.stripe().rebuild_chunk(segment, place, chunk, blocks, 0) {
            Ok(buffer) => buffer.to_vec(),
            Err(_) => Vec::new(),
        }
    }
}
