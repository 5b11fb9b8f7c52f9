//! A write past the owner: the records that a machine offers, and the row that the owner gives it for them.
//!
//! Wire structures and none of media, here because they are made of those. Invariants: an offer has records of content, as
//! plugins, compression and encryption leave them, each whole; a grant has a place for each record, in order, behind the header and before the
//! summary, and all within the row. Byte table: `docs/format/machine-frames.md`. Read next: `row.rs`, `content_map.rs`.

use crate::address::Address;
use crate::blob::BlobValue;
use crate::digest::ChecksumKind;
use crate::error::DecodeError;
use crate::row::RowHeader;
use crate::scheme::Scheme;
use crate::segment::SegmentChunks;
use crate::wire::{Reader, Writer};
use crate::{BLOCK_BYTES, SECTOR_BYTES};

/// The most content of one offer.
pub const OFFERED_BYTES_MAX: u64 = 1 << 20;
/// Records of one offer at most: one for each block.
pub const OFFERED_RECORDS_MAX: usize = OFFERED_BYTES_MAX as usize / BLOCK_BYTES;
/// A row's header and summary take no more than this beside its records.
const ROW_BYTES_MAX: u32 = 4 << 20;

/// Records to be written, one behind the other from the offset of the write on. Of their addresses only the lengths count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOffer {
    pub records: Vec<BlobValue>,
}

impl WriteOffer {
    pub const VERSION: u8 = 1;
    const STRUCTURE: &'static str = "write offer";

    /// The address of a record that has no place yet.
    #[must_use]
    pub fn unplaced(length: u32) -> Address {
        Address { segment: 0, row_block: 1, offset: SECTOR_BYTES as u32, length }
    }

    /// Bytes of content of all records.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.records.iter().map(|record| u64::from(record.logical_bytes)).sum()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(1)?;
        let count = reader.u16()?;
        let is_possible = (1..=OFFERED_RECORDS_MAX).contains(&usize::from(count));
        reader.check(is_possible, "count of records", u64::from(count))?;
        let mut records = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let length = usize::from(reader.u16()?);
            let value = BlobValue::decode(reader.take(length)?)?;
            let is_one = value.references == 1;
            let is_whole = value.live_blocks() == value.blocks();
            reader.check(is_one && is_whole, "offered record", u64::from(value.logical_bytes))?;
            let is_unplaced = value.address == Self::unplaced(value.address.length);
            reader.check(is_unplaced, "address of an offered record", value.address.segment)?;
            records.push(value);
        }
        reader.finish()?;
        let offer = WriteOffer { records };
        let content_bytes = offer.content_bytes();
        Reader::new(Self::STRUCTURE, &[]).check(content_bytes <= OFFERED_BYTES_MAX, "offered bytes", content_bytes)?;
        Ok(offer)
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=OFFERED_RECORDS_MAX).contains(&self.records.len()), "an offer has records, and not too many");
        assert!(self.content_bytes() <= OFFERED_BYTES_MAX, "an offer of {} bytes", self.content_bytes());
        let mut out = vec![Self::VERSION, 0];
        out.put_u16(self.records.len() as u16);
        for record in &self.records {
            let value = record.encode();
            out.put_u16(u16::try_from(value.len()).expect("an entry of the blob map is far below 64 KiB"));
            out.extend_from_slice(&value);
        }
        out
    }
}

/// A row that somebody else than the owner writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowGrant {
    /// By which it is entered.
    pub number: u64,
    /// Of the owner: nodes that keep epochs are told it before they are written to.
    pub epoch: u64,
    pub segment: u64,
    pub place: SegmentChunks,
    pub row_block: u32,
    /// Whole blocks.
    pub row_bytes: u32,
    /// Where each record begins in the row.
    pub offsets: Vec<u32>,
    pub header: [u8; RowHeader::SIZE],
    /// Where the summary begins in the row.
    pub summary_offset: u32,
    pub summary: Vec<u8>,
}

/// What the owner says to an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfferAnswer {
    Granted(Box<RowGrant>),
    /// The file's policy wants it encoded otherwise: the policy's code of the compression, checksums, the key and the stack of users'
    /// plugins (0: none), and the most content of a record.
    Encode {
        compression: u8,
        checksum: ChecksumKind,
        key: u16,
        stack: u16,
        record_bytes: u32,
    },
    /// The owner takes the bytes themselves.
    Bytes,
}

const GRANTED: u8 = 1;
const ENCODE: u8 = 2;
const BYTES: u8 = 3;
/// Like `ENCODE`, with plugins.
const ENCODE_PLUGGED: u8 = 4;

impl OfferAnswer {
    pub const VERSION: u8 = 1;
    const STRUCTURE: &'static str = "answer to a write offer";

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let kind = reader.u8()?;
        reader.zeros(2)?;
        let answer = match kind {
            GRANTED => OfferAnswer::Granted(Box::new(Self::decode_grant(&mut reader)?)),
            ENCODE | ENCODE_PLUGGED => {
                let [compression, checksum] = reader.array()?;
                let key = reader.u16()?;
                reader.check(checksum & !ChecksumKind::FLAGS == 0, "checksums", u64::from(checksum))?;
                let checksum = ChecksumKind::of_flags(checksum);
                let record_bytes = reader.u32()?;
                let stack = if kind == ENCODE { 0 } else { reader.u16()? };
                reader.check((stack == 0) == (kind == ENCODE), "stack", u64::from(stack))?;
                let is_possible = (BLOCK_BYTES as u32..=crate::BLOB_LOGICAL_BYTES_MAX).contains(&record_bytes);
                reader.check(is_possible, "content of a record", u64::from(record_bytes))?;
                OfferAnswer::Encode { compression, checksum, key, stack, record_bytes }
            }
            BYTES => OfferAnswer::Bytes,
            other => return Err(reader.out_of_range("kind of an answer", u64::from(other))),
        };
        reader.finish()?;
        Ok(answer)
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        let mut head = |kind| out.extend_from_slice(&[Self::VERSION, kind, 0, 0]);
        match self {
            OfferAnswer::Granted(grant) => {
                head(GRANTED);
                Self::encode_grant(grant, &mut out);
            }
            OfferAnswer::Encode { compression, checksum, key, stack, record_bytes } => {
                head(if *stack == 0 { ENCODE } else { ENCODE_PLUGGED });
                out.extend_from_slice(&[*compression, checksum.flags().0]);
                out.put_u16(*key);
                out.put_u32(*record_bytes);
                if *stack != 0 {
                    out.put_u16(*stack);
                }
            }
            OfferAnswer::Bytes => head(BYTES),
        }
        out
    }

    fn encode_grant(grant: &RowGrant, out: &mut Vec<u8>) {
        assert_eq!(grant.row_bytes as usize % BLOCK_BYTES, 0, "a row is whole blocks");
        out.put_u64(grant.number);
        out.put_u64(grant.epoch);
        out.put_u64(grant.segment);
        out.extend_from_slice(&[grant.place.scheme.data, grant.place.scheme.parity, 0, 0]);
        out.put_u32(grant.place.missing);
        grant.place.write_places(out);
        out.put_u32(grant.row_block);
        out.put_u32(grant.row_bytes);
        out.put_u32(grant.summary_offset);
        out.put_u32(u32::try_from(grant.summary.len()).expect("a row is far below 4 GiB"));
        out.put_u32(u32::try_from(grant.offsets.len()).expect("a row has few records"));
        grant.offsets.iter().for_each(|offset| out.put_u32(*offset));
        out.extend_from_slice(&grant.header);
        out.extend_from_slice(&grant.summary);
    }

    fn decode_grant(reader: &mut Reader<'_>) -> Result<RowGrant, DecodeError> {
        let (number, epoch, segment) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let [data, parity] = reader.array()?;
        reader.zeros(2)?;
        let scheme = Scheme::from_parts(Self::STRUCTURE, data, parity)?;
        let missing = reader.u32()?;
        let place = SegmentChunks::read_places(reader, scheme, missing)?;
        let (row_block, row_bytes) = (reader.u32()?, reader.u32()?);
        let is_row = row_block >= 1 && row_bytes <= ROW_BYTES_MAX && (row_bytes as usize).is_multiple_of(BLOCK_BYTES);
        reader.check(is_row, "bytes of a row", u64::from(row_bytes))?;
        let (summary_offset, summary_length, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let ends_within = summary_offset.checked_add(summary_length).is_some_and(|end| end <= row_bytes);
        reader.check(ends_within, "summary of a row", u64::from(summary_offset))?;
        reader.check((1..=OFFERED_RECORDS_MAX as u32).contains(&count), "count of records", u64::from(count))?;
        let (mut offsets, mut end) = (Vec::with_capacity(count as usize), RowHeader::SIZE as u32);
        for _ in 0..count {
            let offset = reader.u32()?;
            let is_place = offset >= end && (offset as usize).is_multiple_of(SECTOR_BYTES) && offset < summary_offset;
            reader.check(is_place, "offset of a record", u64::from(offset))?;
            offsets.push(offset);
            end = offset + SECTOR_BYTES as u32;
        }
        let header = reader.array()?;
        let summary = reader.take(summary_length as usize)?.to_vec();
        Ok(RowGrant { number, epoch, segment, place, row_block, row_bytes, offsets, header, summary_offset, summary })
    }
}

#[cfg(test)]
mod tests;
