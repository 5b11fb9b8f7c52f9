//! The segment table's value: where a segment's chunks are, what the segment is for, how full and how alive it is.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};
use crate::{CHUNK_BLOCKS_MAX, CHUNK_BYTES_MAX, DeviceIndex, Scheme, Site, WIDTH_MAX};
use smallvec::SmallVec;

/// Room for one chunk on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkPlace {
    pub device: DeviceIndex,
    pub slot: u32,
}

impl ChunkPlace {
    pub const SIZE: usize = 6;
}

/// Places of all chunks of a segment, data chunks first; up to four need no heap.
pub type ChunkPlaces = SmallVec<[ChunkPlace; 4]>;

/// What the stripe layer needs to read or write a segment. Invariants: one place per chunk of the scheme, on different
/// devices; `missing` has no bits beyond the width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentChunks {
    pub scheme: Scheme,
    /// Bit i: chunk i was not (wholly) written and must not be read.
    pub missing: u32,
    pub chunks: ChunkPlaces,
}

impl SegmentChunks {
    pub fn is_missing(&self, chunk: usize) -> bool {
        chunk < WIDTH_MAX && self.missing >> chunk & 1 == 1
    }

    pub(crate) fn write_places(&self, out: &mut Vec<u8>) {
        assert_eq!(self.chunks.len(), self.scheme.width(), "one place per chunk");
        for chunk in &self.chunks {
            out.put_u16(chunk.device);
            out.put_u32(chunk.slot);
        }
    }

    pub(crate) fn read_places(reader: &mut Reader<'_>, scheme: Scheme, missing: u32) -> Result<Self, DecodeError> {
        let width = scheme.width();
        reader.check(u64::from(missing) >> width == 0, "set of missing chunks", u64::from(missing))?;
        let mut chunks = ChunkPlaces::with_capacity(width);
        for _ in 0..width {
            let place = ChunkPlace { device: reader.u16()?, slot: reader.u32()? };
            let new = !chunks.iter().any(|other| other.device == place.device);
            reader.check(new, "device of a chunk", u64::from(place.device))?;
            chunks.push(place);
        }
        Ok(Self { scheme, missing, chunks })
    }
}

/// What kind of records a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SegmentKind {
    Data = 1,
    Meta = 2,
}

impl SegmentKind {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            1 => Ok(Self::Data),
            2 => Ok(Self::Meta),
            other => Err(reader.out_of_range("segment kind", u64::from(other))),
        }
    }
}

/// Whether rows may still be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SegmentState {
    Open = 1,
    Sealed = 2,
    /// Sealed, and on tertiary volumes only: it has no place on devices.
    Released = 3,
}

impl SegmentState {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            1 => Ok(Self::Open),
            2 => Ok(Self::Sealed),
            3 => Ok(Self::Released),
            other => Err(reader.out_of_range("segment state", u64::from(other))),
        }
    }
}

/// On which tertiary volumes a segment shall have a copy, and has one; bit i is volume i. Invariant: nothing is there that is not
/// wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Tertiary {
    pub wanted: u16,
    /// Written, and read back right.
    pub there: u16,
}

impl Tertiary {
    const FLAG: u8 = 1;

    /// Whether the segment has to do with tertiary volumes at all.
    pub fn is_none(self) -> bool {
        self.wanted == 0
    }
}

/// The value of [`crate::Key::segment`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentValue {
    pub place: SegmentChunks,
    pub class: u8,
    pub kind: SegmentKind,
    pub state: SegmentState,
    pub temperature: u8,
    /// Blocks of each chunk that are used, the header counted.
    pub written_blocks: u32,
    /// Sum of the 512-aligned stored lengths of live records.
    pub live_bytes: u64,
    /// Age: segments opened later have larger numbers.
    pub sequence: u64,
    pub tertiary: Tertiary,
    /// Where what is in it shall lie.
    pub site: Site,
}

impl SegmentValue {
    pub const VERSION: u8 = 1;
    const SITE_FLAG: u8 = 2;
    const NODE_FLAG: u8 = 4;
    const STRUCTURE: &'static str = "segment table entry";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + ChunkPlace::SIZE * self.place.chunks.len());
        self.encode_to(&mut out);
        out
    }

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let scheme = self.place.scheme;
        let (kind, state) = (self.kind as u8, self.state as u8);
        let mut flags = if self.tertiary.is_none() { 0 } else { Tertiary::FLAG };
        flags |= if self.site.is_anywhere() { 0 } else { Self::SITE_FLAG };
        flags |= if self.site.node == 0 { 0 } else { Self::NODE_FLAG };
        out.extend_from_slice(&[
            Self::VERSION,
            scheme.data,
            scheme.parity,
            self.class,
            kind,
            state,
            self.temperature,
            flags,
        ]);
        out.put_u32(self.written_blocks);
        out.put_u32(self.place.missing);
        out.put_u64(self.live_bytes);
        out.put_u64(self.sequence);
        if !self.tertiary.is_none() {
            out.put_u16(self.tertiary.wanted);
            out.put_u16(self.tertiary.there);
        }
        if !self.site.is_anywhere() {
            self.site.encode_to(out);
        }
        if self.site.node != 0 {
            out.put_u8(self.site.node);
        }
        match self.state {
            SegmentState::Released => assert!(self.place.chunks.is_empty(), "what was released has no place"),
            SegmentState::Open | SegmentState::Sealed => self.place.write_places(out),
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        let value = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.version(Self::VERSION)?;
        let [data, parity, class] = reader.array()?;
        let scheme = Scheme::from_parts(Self::STRUCTURE, data, parity)?;
        let kind = SegmentKind::read(reader)?;
        let state = SegmentState::read(reader)?;
        let temperature = reader.u8()?;
        let flags = reader.u8()?;
        reader.check(flags & !(Tertiary::FLAG | Self::SITE_FLAG | Self::NODE_FLAG) == 0, "flags", u64::from(flags))?;
        let written_blocks = reader.u32()?;
        reader.check(written_blocks <= CHUNK_BLOCKS_MAX, "count of written blocks", u64::from(written_blocks))?;
        let missing = reader.u32()?;
        let live_bytes = reader.u64()?;
        let room = u64::from(CHUNK_BYTES_MAX) * u64::from(scheme.data);
        reader.check(live_bytes <= room, "count of live bytes", live_bytes)?;
        let sequence = reader.u64()?;
        let mut tertiary = Tertiary::default();
        if flags & Tertiary::FLAG != 0 {
            tertiary = Tertiary { wanted: reader.u16()?, there: reader.u16()? };
            let is_right = tertiary.wanted != 0 && tertiary.there & !tertiary.wanted == 0;
            reader.check(is_right, "set of tertiary volumes", u64::from(tertiary.there))?;
        }
        let mut site = Site::ANYWHERE;
        if flags & Self::SITE_FLAG != 0 {
            site = Site::read(reader)?;
            reader.check(!site.is_anywhere(), "site", 0)?;
        }
        if flags & Self::NODE_FLAG != 0 {
            site.node = reader.u8()?;
            reader.check(site.node != 0, "what nodes are told", 0)?;
        }
        let place = match state {
            SegmentState::Released => {
                reader.check(tertiary.there != 0, "set of tertiary volumes of a released segment", 0)?;
                reader.check(missing == 0, "set of missing chunks", u64::from(missing))?;
                SegmentChunks { scheme, missing, chunks: ChunkPlaces::new() }
            }
            SegmentState::Open | SegmentState::Sealed => SegmentChunks::read_places(reader, scheme, missing)?,
        };
        Ok(Self { place, class, kind, state, temperature, written_blocks, live_bytes, sequence, tertiary, site })
    }
}
