//! The form of a file that is not stored as it is: two headers that take turns, records, and an index of them.
//!
//! What is written never lies over what the other header names, so a write that is torn leaves the state before. Everything is
//! checked by its parent: the header by itself, the index by the header, records by the index. Byte by byte: `docs/format/stacked.md`.
//! What is read is hostile input; `fuzz_header` and `fuzz_index` are entry points for fuzzers.

use crate::error::Error;
use crate::way::{TEXT_BYTES_MAX, Way};

/// Content of a record; the last one may be shorter.
pub(crate) const RECORD_BYTES: u64 = 128 << 10;
/// Where records begin: behind both headers.
pub(crate) const DATA_START: u64 = 1024;
pub(crate) const HEADER_BYTES: usize = 512;
const MAGIC: [u8; 12] = *b"stere stack\n";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 60;
const ENTRY_BYTES: usize = 24;
/// Largest content; what is larger is damage.
const SIZE_MAX: u64 = 1 << 50;

/// One of both headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// The greater one holds.
    pub sequence: u64,
    /// Random; encrypted records are bound to it.
    pub id: u64,
    /// Bytes of content.
    pub size: u64,
    pub index_offset: u64,
    pub records: u32,
    pub index_crc32c: u32,
    pub way: Way,
}

/// Where a record is; all zero where there is none, which means zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Entry {
    pub offset: u64,
    pub stored_bytes: u32,
    pub crc32c: u32,
    pub content_bytes: u32,
    /// As in the blob map of a pool.
    pub encoding: u8,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let text = self.way.text();
        assert!(text.len() <= TEXT_BYTES_MAX, "longer ways are refused when rules are parsed");
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        for number in [self.sequence, self.id, self.size, self.index_offset] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&self.index_crc32c.to_le_bytes());
        out.extend_from_slice(&(text.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        assert_eq!(out.len(), FIXED_BYTES, "the text begins where the page says");
        out.extend_from_slice(text.as_bytes());
        out.resize(HEADER_BYTES - 4, 0);
        out.extend_from_slice(&stere_format::crc32c(&out).to_le_bytes());
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// Nothing where there is no header at all.
    fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let word = |at: usize| (number(at) & u64::from(u32::MAX)) as u32;
        let is_whole = bytes[..12] == MAGIC && word(12) == VERSION && {
            let (body, crc32c) = bytes.split_at(HEADER_BYTES - 4);
            crc32c == stere_format::crc32c(body).to_le_bytes()
        };
        if !is_whole {
            return None;
        }
        let text_bytes = usize::from(word(56) as u16);
        let text = bytes.get(FIXED_BYTES..FIXED_BYTES + text_bytes).filter(|_| text_bytes <= TEXT_BYTES_MAX)?;
        let text = std::str::from_utf8(text).ok()?;
        let (sequence, id, size, index_offset) = (number(16), number(24), number(32), number(40));
        let (records, index_crc32c) = (word(48), word(52));
        let is_possible = size <= SIZE_MAX && u64::from(records) == size.div_ceil(RECORD_BYTES);
        let reserved = bytes[58..FIXED_BYTES].iter().chain(&bytes[FIXED_BYTES + text_bytes..HEADER_BYTES - 4]);
        let is_possible = is_possible && reserved.copied().all(|byte| byte == 0);
        let way = Way::parse(text).ok().filter(|_| is_possible)?;
        Some(Header { sequence, id, size, index_offset, records, index_crc32c, way })
    }

    /// The headers that are whole among the first bytes of a file, the newest first; none: it is a file like any other.
    pub fn find(start: &[u8]) -> Vec<Header> {
        let slots = start.chunks(HEADER_BYTES).take(2);
        let mut found: Vec<Header> = slots.filter_map(Header::decode).collect();
        found.sort_by_key(|header| std::cmp::Reverse(header.sequence));
        found
    }

    /// Where it is written.
    pub fn place(&self) -> u64 {
        self.sequence % 2 * HEADER_BYTES as u64
    }

    pub fn index_bytes(&self) -> usize {
        self.records as usize * ENTRY_BYTES
    }
}

impl Entry {
    pub fn encode_all(entries: &[Entry]) -> Vec<u8> {
        let mut out = Vec::with_capacity(entries.len() * ENTRY_BYTES);
        for entry in entries {
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&entry.stored_bytes.to_le_bytes());
            out.extend_from_slice(&entry.crc32c.to_le_bytes());
            out.extend_from_slice(&entry.content_bytes.to_le_bytes());
            out.extend_from_slice(&[entry.encoding, 0, 0, 0]);
        }
        out
    }

    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Entry>, Error> {
        let entry = |bytes: &[u8]| {
            let number = |at: usize, length: usize| {
                bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
            };
            let (offset, stored_bytes) = (number(0, 8), number(8, 4) as u32);
            let (crc32c, content_bytes) = (number(12, 4) as u32, number(16, 4) as u32);
            let entry = Entry { offset, stored_bytes, crc32c, content_bytes, encoding: bytes[20] };
            // Nobody makes a record that is more than twice its content.
            let is_possible = entry == Entry::default()
                || (DATA_START..=SIZE_MAX).contains(&offset)
                    && u64::from(content_bytes) <= RECORD_BYTES
                    && u64::from(stored_bytes) <= 2 * RECORD_BYTES;
            (is_possible && bytes[21..] == [0; 3])
                .then_some(entry)
                .ok_or_else(|| Error::Damaged("an entry of its index is impossible".into()))
        };
        bytes.chunks_exact(ENTRY_BYTES).map(entry).collect()
    }
}

/// Any bytes as the first ones of a file, as they are and with both checksums put right: what is found comes back as it was.
pub fn fuzz_header(start: &[u8]) {
    let mut sealed = start.to_vec();
    for header in sealed.chunks_exact_mut(HEADER_BYTES) {
        let (body, crc32c) = header.split_at_mut(HEADER_BYTES - 4);
        crc32c.copy_from_slice(&stere_format::crc32c(body).to_le_bytes());
    }
    for header in Header::find(start).into_iter().chain(Header::find(&sealed)) {
        assert_eq!(Header::decode(&header.encode()), Some(header));
    }
}

/// Any bytes as an index: it is refused, or every entry is possible and they are encoded to the same bytes.
pub fn fuzz_index(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len() / ENTRY_BYTES * ENTRY_BYTES];
    if let Ok(entries) = Entry::decode_all(bytes) {
        assert_eq!(Entry::encode_all(&entries), bytes, "an entry has one encoding only");
        assert!(entries.iter().all(|entry| u64::from(entry.content_bytes) <= RECORD_BYTES));
    }
}

#[cfg(test)]
mod tests;
