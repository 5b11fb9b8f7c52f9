//! A trace of calls: a header, then blocks of calls and blocks of names, in the order in which they were recorded.
//!
//! Invariants: every block says its length under a checksum of its own, so that a reader passes over a block whose content is
//! damaged and notices the one that was cut short. A block of calls has records of fixed size; times count from the start of
//! the trace and need not rise. Read next: `docs/format/io-trace.md`, the workload's `trace.rs`.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// What a trace says of itself, once at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoTraceHeader {
    /// Nanoseconds since 1970 at the start of the trace; 0 where nobody told.
    pub started_unix_ns: u64,
    /// Whether names are keyed hashes of names.
    pub is_hashed: bool,
}

const HASHED: u8 = 1;

impl IoTraceHeader {
    pub const MAGIC: [u8; 8] = *b"stere-io";
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 32;
    const STRUCTURE: &'static str = "I/O trace";

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::begin(Self::STRUCTURE, bytes, Self::SIZE, (&Self::MAGIC, Self::VERSION))?;
        let flags = reader.u8()?;
        reader.check(flags & !HASHED == 0, "flags", u64::from(flags))?;
        reader.zeros(2)?;
        let started_unix_ns = reader.u64()?;
        reader.zeros(8)?;
        reader.finish()?;
        Ok(IoTraceHeader { started_unix_ns, is_hashed: flags & HASHED != 0 })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&[Self::VERSION, if self.is_hashed { HASHED } else { 0 }, 0, 0]);
        out.put_u64(self.started_unix_ns);
        out.put_zeros(8);
        crate::wire::seal(&mut out, 0, Self::SIZE);
        out
    }
}

/// One call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTraceRecord {
    /// Since the start of the trace.
    pub at_ns: u64,
    pub file: u64,
    /// The open handle or the client that the call came from.
    pub client: u64,
    pub offset: u64,
    pub length: u64,
    pub latency_ns: u64,
    /// Of the file, where the call removes its last name; else 0.
    pub age_ms: u64,
    /// Calls under way when this one began, itself among them; 0 where nobody counted.
    pub in_flight: u32,
    /// 0, or the error number of Linux.
    pub result: u16,
    /// Number of the kind, as the page lists them.
    pub kind: u8,
}

impl IoTraceRecord {
    pub const SIZE: usize = 64;
    /// Numbers of kinds are less.
    pub const KINDS: u8 = 13;
    /// Error numbers are at most this, as in the kernel.
    pub const RESULT_MAX: u16 = 4095;

    fn put(&self, out: &mut Vec<u8>) {
        assert!(self.kind < Self::KINDS, "kind {} is none", self.kind);
        assert!(self.result <= Self::RESULT_MAX, "error {} is none of Linux", self.result);
        let start = out.len();
        for field in
            [self.at_ns, self.file, self.client, self.offset, self.length, self.latency_ns, self.age_ms].into_iter()
        {
            out.put_u64(field);
        }
        out.put_u32(self.in_flight);
        out.put_u16(self.result);
        out.put_u8(self.kind);
        out.put_zeros(1);
        assert_eq!(out.len() - start, Self::SIZE, "a record is what the page says");
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let record = IoTraceRecord {
            at_ns: reader.u64()?,
            file: reader.u64()?,
            client: reader.u64()?,
            offset: reader.u64()?,
            length: reader.u64()?,
            latency_ns: reader.u64()?,
            age_ms: reader.u64()?,
            in_flight: reader.u32()?,
            result: reader.u16()?,
            kind: reader.u8()?,
        };
        reader.zeros(1)?;
        reader.check(record.kind < Self::KINDS, "kind", u64::from(record.kind))?;
        reader.check(record.result <= Self::RESULT_MAX, "result", u64::from(record.result))?;
        Ok(record)
    }
}

/// What a name is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoTraceNamed {
    File,
    Client,
}

/// The name of a file or client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoTraceName {
    pub of: IoTraceNamed,
    pub id: u64,
    /// At most [`IoTraceName::BYTES_MAX`] bytes; a control character becomes a question mark.
    pub name: String,
}

impl IoTraceName {
    /// Before the name itself.
    pub const FIXED_BYTES: usize = 12;
    /// As long as a path of Linux is at most.
    pub const BYTES_MAX: usize = 4096;

    fn put(&self, out: &mut Vec<u8>) {
        let name = self.name.replace(char::is_control, "?");
        let mut length = name.len().min(Self::BYTES_MAX);
        while !name.is_char_boundary(length) {
            length -= 1;
        }
        out.put_u8(match self.of {
            IoTraceNamed::File => 0,
            IoTraceNamed::Client => 1,
        });
        out.put_zeros(1);
        out.put_u16(length as u16);
        out.put_u64(self.id);
        out.extend_from_slice(&name.as_bytes()[..length]);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let of = match reader.u8()? {
            0 => IoTraceNamed::File,
            1 => IoTraceNamed::Client,
            other => return Err(reader.out_of_range("kind of name", u64::from(other))),
        };
        reader.zeros(1)?;
        let length = usize::from(reader.u16()?);
        reader.check(length <= Self::BYTES_MAX, "length of a name", length as u64)?;
        let id = reader.u64()?;
        Ok(IoTraceName { of, id, name: reader.name(length, "name")? })
    }
}

/// What one block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoTraceBlock {
    Calls(Vec<IoTraceRecord>),
    Names(Vec<IoTraceName>),
}

/// Where the content of a block is, as its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoTraceBlockHeader {
    is_names: bool,
    count: u32,
    /// Of the content, which follows the header.
    pub content_bytes: u32,
    content_crc32c: u32,
}

impl IoTraceBlockHeader {
    pub const SIZE: usize = 24;
    pub const MAGIC: [u8; 4] = *b"sioB";
    /// Content of one block, at most.
    pub const CONTENT_BYTES_MAX: u32 = 4 << 20;
    const STRUCTURE: &'static str = "block of an I/O trace";

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&[u8::from(self.is_names), 0, 0, 0]);
        out.put_u32(self.count);
        out.put_u32(self.content_bytes);
        out.put_u32(self.content_crc32c);
        crate::wire::seal(&mut out, 0, Self::SIZE);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, crate::wire::sealed(Self::STRUCTURE, bytes, Self::SIZE)?);
        if reader.array::<4>()? != Self::MAGIC {
            return Err(DecodeError::BadMagic { structure: Self::STRUCTURE });
        }
        let kind = reader.u8()?;
        reader.check(kind <= 1, "kind of block", u64::from(kind))?;
        reader.zeros(3)?;
        let header = IoTraceBlockHeader {
            is_names: kind == 1,
            count: reader.u32()?,
            content_bytes: reader.u32()?,
            content_crc32c: reader.u32()?,
        };
        let bytes = header.content_bytes;
        reader.check(bytes <= Self::CONTENT_BYTES_MAX, "length of a block", u64::from(bytes))?;
        let least = if header.is_names { IoTraceName::FIXED_BYTES } else { IoTraceRecord::SIZE };
        let need = u64::from(header.count) * least as u64;
        reader.check(need <= u64::from(bytes), "count of a block", u64::from(header.count))?;
        reader.finish()?;
        Ok(header)
    }
}

impl IoTraceBlock {
    /// Calls that one block has room for.
    pub const CALLS_MAX: usize = IoTraceBlockHeader::CONTENT_BYTES_MAX as usize / IoTraceRecord::SIZE;
    /// Names that one block has room for, however long they are.
    pub const NAMES_MAX: usize =
        IoTraceBlockHeader::CONTENT_BYTES_MAX as usize / (IoTraceName::FIXED_BYTES + IoTraceName::BYTES_MAX);

    /// Header and content. The caller puts no more into one block than it has room for.
    pub fn encode(&self) -> Vec<u8> {
        let mut content = Vec::new();
        let (is_names, count) = match self {
            IoTraceBlock::Calls(calls) => {
                assert!(calls.len() <= Self::CALLS_MAX, "{} calls fit in no block", calls.len());
                calls.iter().for_each(|call| call.put(&mut content));
                (false, calls.len())
            }
            IoTraceBlock::Names(names) => {
                assert!(names.len() <= Self::NAMES_MAX, "{} names fit in no block", names.len());
                names.iter().for_each(|name| name.put(&mut content));
                (true, names.len())
            }
        };
        assert!(content.len() <= IoTraceBlockHeader::CONTENT_BYTES_MAX as usize, "a block is read back");
        let (count, content_bytes) = (count as u32, content.len() as u32);
        let header = IoTraceBlockHeader { is_names, count, content_bytes, content_crc32c: crate::crc32c(&content) };
        let mut out = header.encode();
        out.extend_from_slice(&content);
        out
    }

    /// The block at the start of `bytes`, and how long it is.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), DecodeError> {
        let structure = IoTraceBlockHeader::STRUCTURE;
        let header = IoTraceBlockHeader::decode(bytes)?;
        let end = IoTraceBlockHeader::SIZE + header.content_bytes as usize;
        let Some(content) = bytes.get(IoTraceBlockHeader::SIZE..end) else {
            return Err(DecodeError::Truncated { structure, need: end, have: bytes.len() });
        };
        let (stored, computed) = (header.content_crc32c, crate::crc32c(content));
        if stored != computed {
            return Err(DecodeError::Checksum { structure, stored, computed });
        }
        let mut reader = Reader::new(structure, content);
        let block = match header.is_names {
            false => IoTraceBlock::Calls(
                (0..header.count).map(|_| IoTraceRecord::read(&mut reader)).collect::<Result<_, _>>()?,
            ),
            true => IoTraceBlock::Names(
                (0..header.count).map(|_| IoTraceName::read(&mut reader)).collect::<Result<_, _>>()?,
            ),
        };
        reader.finish()?;
        Ok((block, end))
    }
}

#[cfg(test)]
mod tests;
