//! A row is what a stream flushes at once: header, records, summary. The header is its first sector; the summary tells
//! of every record in it, so that `rescue` and the cleaner can go from media to names without the tree.

use crate::bitmap::BlockBitmap;
use crate::blob::BlobEncoding;
use crate::error::DecodeError;
use crate::wire::{Reader, Writer, seal, sealed};
use crate::{
    BLOB_LOGICAL_BYTES_MAX, BLOCK_BYTES, CHUNK_BLOCKS_MAX, Key, PoolId, RECORD_BYTES_MAX, SECTOR_BYTES, WIDTH_MAX,
};

/// First sector of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowHeader {
    pub pool: PoolId,
    pub segment: u64,
    /// Counts all rows of the pool, so that of two versions of a record the later is known.
    pub sequence: u64,
    pub row_block: u32,
    pub row_height: u32,
    pub record_count: u32,
    /// Bytes from the start of the row, a multiple of 512.
    pub summary_offset: u32,
    pub summary_length: u32,
    pub summary_crc32c: u32,
}

impl RowHeader {
    pub const SIZE: usize = SECTOR_BYTES;
    pub const MAGIC: [u8; 8] = *b"stereROW";
    pub const VERSION: u8 = 1;
    const STRUCTURE: &'static str = "row header";

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        assert!(self.row_block >= 1 && self.row_height >= 1, "a row lies behind the header of its chunks");
        let sector = SECTOR_BYTES as u32;
        assert!(self.summary_offset >= sector && self.summary_offset % sector == 0, "a summary begins at a sector");
        let start = out.len();
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&[Self::VERSION, 0, 0, 0]);
        out.put_u32(self.record_count);
        out.extend_from_slice(&self.pool.0);
        out.put_u64(self.segment);
        out.put_u64(self.sequence);
        out.put_u32(self.row_block);
        out.put_u32(self.row_height);
        out.put_u32(self.summary_offset);
        out.put_u32(self.summary_length);
        out.put_u32(self.summary_crc32c);
        seal(out, start, Self::SIZE);
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        self.encode_to(&mut out);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.magic(&Self::MAGIC)?;
        let mut reader = Reader::new(Self::STRUCTURE, sealed(Self::STRUCTURE, bytes, Self::SIZE)?);
        reader.magic(&Self::MAGIC)?;
        reader.version(Self::VERSION)?;
        reader.zeros(3)?;
        let record_count = reader.u32()?;
        let header = Self {
            record_count,
            pool: PoolId(reader.array()?),
            segment: reader.u64()?,
            sequence: reader.u64()?,
            row_block: reader.u32()?,
            row_height: reader.u32()?,
            summary_offset: reader.u32()?,
            summary_length: reader.u32()?,
            summary_crc32c: reader.u32()?,
        };
        reader.zeros(reader.rest().len())?;
        header.check(&reader)?;
        Ok(header)
    }

    fn check(&self, reader: &Reader<'_>) -> Result<(), DecodeError> {
        let row_end = u64::from(self.row_block) + u64::from(self.row_height);
        let row = self.row_block >= 1 && self.row_height >= 1 && row_end <= u64::from(CHUNK_BLOCKS_MAX);
        reader.check(row, "row", u64::from(self.row_block))?;
        let sector = SECTOR_BYTES as u32;
        let aligned = self.summary_offset >= sector && self.summary_offset % sector == 0;
        reader.check(aligned, "summary offset", u64::from(self.summary_offset))?;
        let row_bytes = u64::from(self.row_height) * (BLOCK_BYTES * WIDTH_MAX) as u64;
        let summary_end = u64::from(self.summary_offset) + u64::from(self.summary_length);
        reader.check(summary_end <= row_bytes, "summary length", u64::from(self.summary_length))?;
        let entries_max = self.summary_length / SummaryEntry::SIZE_MIN as u32;
        reader.check(self.record_count <= entries_max, "record count", u64::from(self.record_count))
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSubject {
    Blob {
        blob: u64,
        inode: u64,
        file_offset: u64,
        logical_bytes: u32,
        encoding: BlobEncoding,
        /// Blocks stored; all of them except after a trimming relocation.
        present: BlockBitmap,
    },
    Node {
        level: u8,
        first_key: Key,
    },
    Checkpoint {
        generation: u64,
        part: u32,
        parts: u32,
    },
}

impl RecordSubject {
    /// A blob stored whole and plain.
    pub fn plain_blob(blob: u64, inode: u64, file_offset: u64, logical_bytes: u32) -> Self {
        let present = BlockBitmap::full(logical_bytes.div_ceil(BLOCK_BYTES as u32));
        let encoding = BlobEncoding::PLAIN;
        Self::Blob { blob, inode, file_offset, logical_bytes, encoding, present }
    }

    /// The same blob stored in some encoding; nothing else has one.
    pub fn in_encoding(mut self, to: BlobEncoding) -> Self {
        if let Self::Blob { encoding, .. } = &mut self {
            *encoding = to;
        }
        self
    }
}

const KIND_BLOB: u8 = 1;
const KIND_NODE: u8 = 2;
const KIND_CHECKPOINT: u8 = 3;
const FLAG_TRIMMED: u8 = 1;

/// One record in a row's summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryEntry {
    /// Bytes from the start of the row, a multiple of 512.
    pub offset: u32,
    pub length: u32,
    /// Of the stored record.
    pub crc32c: u32,
    pub subject: RecordSubject,
    /// A piece of the path, for `rescue`; at most 255 bytes, longer ones are cut.
    pub hint: Vec<u8>,
}

impl SummaryEntry {
    /// kind, level or encoding, flags, hint length, offset, length, crc, logical length, tag.
    pub const SIZE_MIN: usize = 44;
    const STRUCTURE: &'static str = "row summary";

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let sector = SECTOR_BYTES as u32;
        assert!(self.offset >= sector && self.offset % sector == 0, "a record begins at a sector behind the header");
        assert!((1..=RECORD_BYTES_MAX).contains(&self.length), "a record has bytes, and not too many");
        let hint = &self.hint[..self.hint.len().min(255)];
        let (kind, detail, logical_bytes) = match self.subject {
            RecordSubject::Blob { encoding, logical_bytes, .. } => (KIND_BLOB, encoding.0, logical_bytes),
            RecordSubject::Node { level, .. } => (KIND_NODE, level, self.length),
            RecordSubject::Checkpoint { .. } => (KIND_CHECKPOINT, 0, self.length),
        };
        let trimmed = self.trimmed_blocks();
        out.extend_from_slice(&[kind, detail, u8::from(trimmed.is_some()), hint.len() as u8]);
        for field in [self.offset, self.length, self.crc32c, logical_bytes] {
            out.put_u32(field);
        }
        match self.subject {
            RecordSubject::Blob { blob, inode, file_offset, .. } => {
                out.put_u64(blob);
                out.put_u64(inode);
                out.put_u64(file_offset);
            }
            RecordSubject::Node { first_key, .. } => {
                first_key.encode_to(out);
                out.put_zeros(24 - Key::SIZE);
            }
            RecordSubject::Checkpoint { generation, part, parts } => {
                assert!(part < parts, "a part of the record");
                out.put_u64(generation);
                out.put_u32(part);
                out.put_u32(parts);
                out.put_zeros(8);
            }
        }
        if let Some((present, blocks)) = trimmed {
            present.encode_to(blocks, out);
        }
        out.extend_from_slice(hint);
    }

    fn trimmed_blocks(&self) -> Option<(BlockBitmap, u32)> {
        let RecordSubject::Blob { present, logical_bytes, .. } = self.subject else {
            return None;
        };
        let blocks = logical_bytes.div_ceil(BLOCK_BYTES as u32);
        (present != BlockBitmap::full(blocks)).then_some((present, blocks))
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [kind, detail, flags, hint_length] = reader.array()?;
        reader.check(flags & !FLAG_TRIMMED == 0, "flags", u64::from(flags))?;
        let (offset, length, crc32c, logical_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let sector = SECTOR_BYTES as u32;
        reader.check(offset >= sector && offset % sector == 0, "record offset", u64::from(offset))?;
        reader.check((1..=RECORD_BYTES_MAX).contains(&length), "record length", u64::from(length))?;
        let subject = match kind {
            KIND_BLOB => Self::read_blob(reader, detail, logical_bytes, flags)?,
            KIND_NODE => {
                reader.check(detail <= crate::NodeReference::LEVEL_MAX, "level", u64::from(detail))?;
                let first_key = Key::decode(&reader.array()?);
                reader.zeros(24 - Key::SIZE)?;
                RecordSubject::Node { level: detail, first_key }
            }
            KIND_CHECKPOINT => {
                reader.check(detail == 0, "detail", u64::from(detail))?;
                let (generation, part, parts) = (reader.u64()?, reader.u32()?, reader.u32()?);
                reader.check(part < parts, "checkpoint part", u64::from(part))?;
                reader.zeros(8)?;
                RecordSubject::Checkpoint { generation, part, parts }
            }
            other => return Err(reader.out_of_range("record kind", u64::from(other))),
        };
        let is_blob = kind == KIND_BLOB;
        reader.check(is_blob || (flags == 0 && logical_bytes == length), "logical length", u64::from(logical_bytes))?;
        let hint = reader.take(usize::from(hint_length))?.to_vec();
        Ok(Self { offset, length, crc32c, subject, hint })
    }

    fn read_blob(
        reader: &mut Reader<'_>,
        encoding: u8,
        logical_bytes: u32,
        flags: u8,
    ) -> Result<RecordSubject, DecodeError> {
        let possible = (1..=BLOB_LOGICAL_BYTES_MAX).contains(&logical_bytes);
        reader.check(possible, "logical length", u64::from(logical_bytes))?;
        let (blob, inode, file_offset) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let blocks = logical_bytes.div_ceil(BLOCK_BYTES as u32);
        let full = BlockBitmap::full(blocks);
        let mut present = full;
        if flags & FLAG_TRIMMED != 0 {
            present = BlockBitmap::from_bytes(reader.take(blocks.div_ceil(8) as usize)?);
            let possible = present.is_subset_of(&full) && present != full && !present.is_empty();
            reader.check(possible, "present blocks", u64::from(present.count()))?;
        }
        let encoding = BlobEncoding(encoding);
        Ok(RecordSubject::Blob { blob, inode, file_offset, logical_bytes, encoding, present })
    }
}

/// A whole summary: encoded at the end of a row, told of by the row header.
pub struct Summary;

impl Summary {
    pub fn encode_to(entries: &[SummaryEntry], out: &mut Vec<u8>) {
        for entry in entries {
            entry.encode_to(out);
        }
    }

    /// Checks the summary against its header and decodes it; `bytes` are exactly the summary's.
    pub fn decode(header: &RowHeader, bytes: &[u8]) -> Result<Vec<SummaryEntry>, DecodeError> {
        let structure = SummaryEntry::STRUCTURE;
        let need = header.summary_length as usize;
        let Some(bytes) = bytes.get(..need) else {
            return Err(DecodeError::Truncated { structure, need, have: bytes.len() });
        };
        let computed = crate::crc32c(bytes);
        if computed != header.summary_crc32c {
            return Err(DecodeError::Checksum { structure, stored: header.summary_crc32c, computed });
        }
        Self::decode_entries(header, bytes)
    }

    fn decode_entries(header: &RowHeader, bytes: &[u8]) -> Result<Vec<SummaryEntry>, DecodeError> {
        let mut reader = Reader::new(SummaryEntry::STRUCTURE, bytes);
        let capacity_max = bytes.len() / SummaryEntry::SIZE_MIN;
        let mut entries = Vec::with_capacity((header.record_count as usize).min(capacity_max));
        let mut free_from = SECTOR_BYTES as u32;
        for _ in 0..header.record_count {
            let entry = SummaryEntry::read(&mut reader)?;
            let end = u64::from(entry.offset) + u64::from(entry.length);
            let apart = entry.offset >= free_from && end <= u64::from(header.summary_offset);
            reader.check(apart, "record offset", u64::from(entry.offset))?;
            free_from = entry.offset + entry.length;
            entries.push(entry);
        }
        reader.finish()?;
        Ok(entries)
    }
}
