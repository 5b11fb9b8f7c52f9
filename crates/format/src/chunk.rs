//! The block at the start of every slot in use: which chunk of which segment this is, and where its siblings are. With
//! it a segment can be put together again from the devices alone.

use crate::error::DecodeError;
use crate::segment::{SegmentChunks, SegmentKind};
use crate::wire::{Reader, Writer, seal, sealed};
use crate::{BLOCK_BYTES, PoolId, Scheme};

/// Header of a chunk, one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    pub pool: PoolId,
    pub segment: u64,
    pub sequence: u64,
    pub kind: SegmentKind,
    pub class: u8,
    /// Which of the segment's chunks this one is.
    pub chunk: u8,
    pub place: SegmentChunks,
}

impl ChunkHeader {
    pub const SIZE: usize = BLOCK_BYTES;
    pub const MAGIC: [u8; 8] = *b"stereCHK";
    pub const VERSION: u8 = 1;
    const STRUCTURE: &'static str = "chunk header";

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let width = self.place.scheme.width();
        assert!(usize::from(self.chunk) < width && self.place.chunks.len() == width, "a chunk of its segment");
        let start = out.len();
        out.extend_from_slice(&Self::MAGIC);
        let scheme = self.place.scheme;
        let fields = [Self::VERSION, scheme.data, scheme.parity, self.chunk, self.kind as u8, self.class, 0, 0];
        out.extend_from_slice(&fields);
        out.extend_from_slice(&self.pool.0);
        out.put_u64(self.segment);
        out.put_u64(self.sequence);
        out.put_u32(self.place.missing);
        self.place.write_places(out);
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
        let [data, parity, chunk] = reader.array()?;
        let scheme = Scheme::from_parts(Self::STRUCTURE, data, parity)?;
        reader.check(usize::from(chunk) < scheme.width(), "chunk number", u64::from(chunk))?;
        let kind = SegmentKind::read(&mut reader)?;
        let class = reader.u8()?;
        reader.zeros(2)?;
        let pool = PoolId(reader.array()?);
        let segment = reader.u64()?;
        let sequence = reader.u64()?;
        let missing = reader.u32()?;
        let place = SegmentChunks::read_places(&mut reader, scheme, missing)?;
        reader.zeros(reader.rest().len())?;
        Ok(Self { pool, segment, sequence, kind, class, chunk, place })
    }
}
