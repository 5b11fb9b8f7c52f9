//! The journal: a circular region of records, each a header of 128 bytes and a payload of key-value changes, padded to
//! whole blocks. A record is one or more whole transactions; it is replayed entirely or not at all.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer, seal, sealed};
use crate::{BLOCK_BYTES, Key, PoolId, VALUE_BYTES_MAX};

/// Numbers handed out so far; the next of each is unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    pub next_inode: u64,
    pub next_blob: u64,
    pub next_segment: u64,
    pub next_sequence: u64,
}

impl Counters {
    pub const SIZE: usize = 32;

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        for counter in [self.next_inode, self.next_blob, self.next_segment, self.next_sequence] {
            out.put_u64(counter);
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            next_inode: reader.u64()?,
            next_blob: reader.u64()?,
            next_segment: reader.u64()?,
            next_sequence: reader.u64()?,
        })
    }
}

/// Where in the journal a record lies. `position` counts bytes since the pool was made, a multiple of 4096; modulo the
/// region's length it is the place on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct JournalPosition {
    pub position: u64,
    pub sequence: u64,
}

impl JournalPosition {
    pub const SIZE: usize = 16;

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        assert!(self.position % BLOCK_BYTES as u64 == 0, "records begin at whole blocks");
        out.put_u64(self.position);
        out.put_u64(self.sequence);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let position = reader.u64()?;
        reader.check(position % BLOCK_BYTES as u64 == 0, "journal position", position)?;
        Ok(Self { position, sequence: reader.u64()? })
    }
}

/// Header of a journal record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    pub pool: PoolId,
    /// Rises with every mount, so that records of an abandoned future are known.
    pub epoch: u32,
    pub at: JournalPosition,
    /// Every record up to this one, and the data it names, was durable when this record was written.
    pub durable_sequence: u64,
    pub checkpoint_generation: u64,
    pub counters: Counters,
    /// The last record of a group; a group counts only as a whole.
    pub group_end: bool,
    pub payload_length: u32,
    pub payload_crc32c: u32,
}

impl JournalHeader {
    pub const SIZE: usize = 128;
    pub const MAGIC: [u8; 8] = *b"stereJRN";
    pub const VERSION: u8 = 1;
    /// No payload is larger than the largest journal.
    pub const PAYLOAD_BYTES_MAX: u32 = crate::layout::JOURNAL_BYTES_MAX as u32 - Self::SIZE as u32;
    const STRUCTURE: &'static str = "journal record";

    /// Bytes the record takes in the journal, padding counted.
    pub fn record_bytes(&self) -> usize {
        Self::record_bytes_for(self.payload_length as usize)
    }

    pub const fn record_bytes_for(payload_length: usize) -> usize {
        (Self::SIZE + payload_length).next_multiple_of(BLOCK_BYTES)
    }

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        assert!(self.payload_length <= Self::PAYLOAD_BYTES_MAX, "a payload fits in a journal");
        let is_later = self.durable_sequence < self.at.sequence || self.at.sequence == 0;
        assert!(is_later, "a record proves only those before it");
        let start = out.len();
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&[Self::VERSION, u8::from(self.group_end), 0, 0]);
        out.put_u32(self.epoch);
        out.extend_from_slice(&self.pool.0);
        self.at.encode_to(out);
        out.put_u64(self.durable_sequence);
        out.put_u64(self.checkpoint_generation);
        self.counters.encode_to(out);
        out.put_u32(self.payload_length);
        out.put_u32(self.payload_crc32c);
        seal(out, start, Self::SIZE);
    }

    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut out = Vec::with_capacity(Self::SIZE);
        self.encode_to(&mut out);
        let mut bytes = [0; Self::SIZE];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// Decodes the header at the start of `bytes`; what follows it is not looked at.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.magic(&Self::MAGIC)?;
        let mut reader = Reader::new(Self::STRUCTURE, sealed(Self::STRUCTURE, bytes, Self::SIZE)?);
        reader.magic(&Self::MAGIC)?;
        reader.version(Self::VERSION)?;
        let flags = reader.u8()?;
        reader.check(flags <= 1, "flags", u64::from(flags))?;
        reader.zeros(2)?;
        let header = Self {
            group_end: flags == 1,
            epoch: reader.u32()?,
            pool: PoolId(reader.array()?),
            at: JournalPosition::read(&mut reader)?,
            durable_sequence: reader.u64()?,
            checkpoint_generation: reader.u64()?,
            counters: Counters::read(&mut reader)?,
            payload_length: reader.u32()?,
            payload_crc32c: reader.u32()?,
        };
        reader.zeros(reader.rest().len())?;
        let length = header.payload_length;
        reader.check(length <= Self::PAYLOAD_BYTES_MAX, "payload length", u64::from(length))?;
        let proven = header.durable_sequence < header.at.sequence || header.at.sequence == 0;
        reader.check(proven, "durable sequence", header.durable_sequence)?;
        Ok(header)
    }

    /// The payload of the record whose header this is, if it is there and whole; `record` starts with the header.
    pub fn payload<'a>(&self, record: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let need = Self::SIZE + self.payload_length as usize;
        let structure = Self::STRUCTURE;
        let Some(payload) = record.get(Self::SIZE..need) else {
            return Err(DecodeError::Truncated { structure, need, have: record.len() });
        };
        let computed = crate::crc32c(payload);
        if computed != self.payload_crc32c {
            return Err(DecodeError::Checksum { structure, stored: self.payload_crc32c, computed });
        }
        Ok(payload)
    }
}

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// Bytes [`append_change`] adds.
pub const fn change_bytes(value: Option<&[u8]>) -> usize {
    1 + Key::SIZE + if let Some(value) = value { 4 + value.len() } else { 0 }
}

/// Adds one change to a payload: a value to put, or none to delete.
#[inline]
pub fn append_change(payload: &mut Vec<u8>, key: &Key, value: Option<&[u8]>) {
    match value {
        Some(value) => {
            assert!(value.len() <= VALUE_BYTES_MAX, "the value of {key} is larger than a value may be");
            payload.reserve(1 + Key::SIZE + 4 + value.len());
            payload.push(PUT);
            payload.extend_from_slice(&key.encode());
            payload.put_u32(value.len() as u32);
            payload.extend_from_slice(value);
        }
        None => {
            payload.push(DELETE);
            payload.extend_from_slice(&key.encode());
        }
    }
}

/// The changes of a payload, in order. After an error it ends.
pub struct JournalChanges<'a> {
    reader: Reader<'a>,
}

impl<'a> JournalChanges<'a> {
    pub fn new(payload: &'a [u8]) -> Self {
        Self { reader: Reader::new("journal payload", payload) }
    }

    fn read(&mut self) -> Result<(Key, Option<&'a [u8]>), DecodeError> {
        let operation = self.reader.u8()?;
        let key = Key::decode(&self.reader.array()?);
        match operation {
            PUT => {
                let length = self.reader.u32()? as usize;
                self.reader.check(length <= VALUE_BYTES_MAX, "value length", length as u64)?;
                Ok((key, Some(self.reader.take(length)?)))
            }
            DELETE => Ok((key, None)),
            other => Err(self.reader.out_of_range("operation", u64::from(other))),
        }
    }
}

impl<'a> Iterator for JournalChanges<'a> {
    type Item = Result<(Key, Option<&'a [u8]>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.rest().is_empty() {
            return None;
        }
        let change = self.read();
        if change.is_err() {
            self.reader = Reader::new("journal payload", &[]);
        }
        Some(change)
    }
}

#[cfg(test)]
mod tests;
