//! The checkpoint record: the root of the tree, and what must be known before the tree can be read (the devices, and
//! the segments the tree itself lies in). It is encoded as one piece and stored in parts that the superblock names.

use crate::error::DecodeError;
use crate::journal::{Counters, JournalPosition};
use crate::segment::SegmentValue;
use crate::wire::{Reader, Writer, sealed};
use crate::{DEVICES_MAX, DeviceId, DeviceIndex, DeviceState, NodeReference, PoolId, Superblock};

/// Sums over the pool, kept so that `statfs` needs no walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoolTotals {
    pub inodes: u64,
    pub blobs: u64,
    /// Live stored bytes of blobs, 512-aligned.
    pub blob_bytes: u64,
    /// Live stored bytes of tree nodes, 512-aligned.
    pub node_bytes: u64,
}

/// A device the pool knows, present or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEntry {
    pub id: DeviceId,
    pub index: DeviceIndex,
    pub class: u8,
    /// The code of a [`crate::DeviceState`].
    pub state: u8,
    pub size_bytes: u64,
    pub slot_count: u32,
    /// Texts of at most 255 bytes, at most 255 tags.
    pub name: String,
    pub host: String,
    pub shelf: String,
    pub tags: Vec<String>,
}

impl DeviceEntry {
    const SIZE_MIN: usize = 16 + 2 + 1 + 1 + 8 + 4 + 3 + 1;

    /// A device that takes chunks, as its superblock tells of it; without class and tags.
    pub fn of(superblock: &Superblock, name: String) -> Self {
        Self {
            id: superblock.device,
            index: superblock.device_index,
            class: 0,
            state: DeviceState::Active.code(),
            size_bytes: superblock.layout.size_bytes,
            slot_count: superblock.layout.slot_count,
            name,
            host: superblock.host.clone(),
            shelf: superblock.shelf.clone(),
            tags: Vec::new(),
        }
    }

    /// What the pool means to do with it. A code that a later program wrote counts as `Offline`: neither written nor retired.
    pub fn device_state(&self) -> DeviceState {
        DeviceState::from_code(self.state).unwrap_or(DeviceState::Offline)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.0);
        out.put_u16(self.index);
        out.extend_from_slice(&[self.class, self.state]);
        out.put_u64(self.size_bytes);
        out.put_u32(self.slot_count);
        for text in [&self.name, &self.host, &self.shelf] {
            out.put_text(text, 255);
        }
        let tags = &self.tags[..self.tags.len().min(255)];
        out.put_u8(tags.len() as u8);
        for tag in tags {
            out.put_text(tag, 255);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let id = DeviceId(reader.array()?);
        let index = reader.u16()?;
        let [class, state] = reader.array()?;
        let (size_bytes, slot_count) = (reader.u64()?, reader.u32()?);
        let name = reader.text("device name")?;
        let host = reader.text("host")?;
        let shelf = reader.text("shelf")?;
        let tag_count = reader.u8()?;
        let tags = (0..tag_count).map(|_| reader.text("tag")).collect::<Result<_, _>>()?;
        Ok(Self { id, index, class, state, size_bytes, slot_count, name, host, shelf, tags })
    }
}

/// Everything a mount starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    pub pool: PoolId,
    pub generation: u64,
    pub root: Option<NodeReference>,
    pub counters: Counters,
    pub journal_start: JournalPosition,
    /// Key of the hash of names.
    pub hash_key: [u8; 16],
    pub totals: PoolTotals,
    /// Ascending by index.
    pub devices: Vec<DeviceEntry>,
    /// The segments of kind META, ascending by id; the segment table in the tree tells only of the others.
    pub meta_segments: Vec<(u64, SegmentValue)>,
}

impl CheckpointRecord {
    pub const MAGIC: [u8; 8] = *b"stereCKP";
    pub const VERSION: u8 = 1;
    /// Largest part; the last may be smaller.
    pub const PART_BYTES_MAX: usize = 512 << 10;
    pub const RECORD_BYTES_MAX: usize = Self::PART_BYTES_MAX * crate::Superblock::PARTS_MAX;
    const STRUCTURE: &'static str = "checkpoint record";
    const SEGMENT_BYTES_MIN: usize = 8 + 2 + 32 + 6;

    /// The whole record; store it in [`CheckpointRecord::parts`].
    pub fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let are_rising = self.devices.windows(2).all(|pair| pair[0].index < pair[1].index);
        assert!(are_rising, "devices are listed once, by index");
        let are_rising = self.meta_segments.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(are_rising, "segments are listed once, by number");
        let mut out = Vec::with_capacity(4096 + 128 * (self.devices.len() + self.meta_segments.len()));
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&[Self::VERSION, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&self.pool.0);
        out.put_u64(self.generation);
        self.counters.encode_to(&mut out);
        self.journal_start.encode_to(&mut out);
        out.extend_from_slice(&self.hash_key);
        let totals = &self.totals;
        for total in [totals.inodes, totals.blobs, totals.blob_bytes, totals.node_bytes] {
            out.put_u64(total);
        }
        out.put_u32(self.devices.len() as u32);
        out.put_u32(self.meta_segments.len() as u32);
        NodeReference::write_option(self.root.as_ref(), &mut out);
        for device in &self.devices {
            device.write(&mut out);
        }
        for (segment, value) in &self.meta_segments {
            out.put_u64(*segment);
            let start = out.len();
            out.put_u16(0);
            value.encode_to(&mut out);
            let length = out.len() - start - 2;
            assert!(length <= usize::from(u16::MAX), "the length of a segment's entry fits in its field");
            let length = length as u16;
            out[start..start + 2].copy_from_slice(&length.to_le_bytes());
        }
        let checksum = crate::crc32c(&out);
        out.put_u32(checksum);
        let (need, room) = (out.len(), Self::RECORD_BYTES_MAX);
        if need > room {
            return Err(DecodeError::DoesNotFit { structure: Self::STRUCTURE, need, room });
        }
        Ok(out)
    }

    /// Cuts an encoded record in parts, at most 64.
    pub fn parts(encoded: &[u8]) -> impl ExactSizeIterator<Item = &[u8]> {
        encoded.chunks(Self::PART_BYTES_MAX)
    }

    /// The checksum by which the superblock knows a part: CRC32C of its last four bytes followed by the rest. The record ends with
    /// its own CRC32C, and the CRC32C of anything followed by its own is always the same number, which would tell no record from
    /// another; leaving those bytes out would let their rot pass.
    pub fn part_checksum(part: &[u8]) -> u32 {
        let (body, end) = part.split_at(part.len().saturating_sub(4));
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(end);
        digest.update(body);
        digest.finalize() as u32
    }

    /// Decodes all parts put together again.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.magic(&Self::MAGIC)?;
        reader.check(bytes.len() <= Self::RECORD_BYTES_MAX, "length", bytes.len() as u64)?;
        let mut reader = Reader::new(Self::STRUCTURE, sealed(Self::STRUCTURE, bytes, bytes.len())?);
        reader.magic(&Self::MAGIC)?;
        reader.version(Self::VERSION)?;
        reader.zeros(7)?;
        let pool = PoolId(reader.array()?);
        let generation = reader.u64()?;
        let counters = Counters::read(&mut reader)?;
        let journal_start = JournalPosition::read(&mut reader)?;
        let hash_key = reader.array()?;
        let totals = PoolTotals {
            inodes: reader.u64()?,
            blobs: reader.u64()?,
            blob_bytes: reader.u64()?,
            node_bytes: reader.u64()?,
        };
        let (device_count, segment_count) = (reader.u32()? as usize, reader.u32()? as usize);
        let root = NodeReference::read_option(&mut reader)?;
        let devices = read_devices(&mut reader, device_count)?;
        let meta_segments = Self::read_segments(&mut reader, segment_count)?;
        reader.finish()?;
        Ok(Self { pool, generation, root, counters, journal_start, hash_key, totals, devices, meta_segments })
    }

    fn read_segments(reader: &mut Reader<'_>, count: usize) -> Result<Vec<(u64, SegmentValue)>, DecodeError> {
        let possible = count <= reader.rest().len() / Self::SEGMENT_BYTES_MIN;
        reader.check(possible, "count of segments", count as u64)?;
        let mut segments: Vec<(u64, SegmentValue)> = Vec::with_capacity(count);
        for _ in 0..count {
            let segment = reader.u64()?;
            let rising = segments.last().is_none_or(|(last, _)| *last < segment);
            reader.check(rising, "order of segments", segment)?;
            let length = usize::from(reader.u16()?);
            segments.push((segment, SegmentValue::decode(reader.take(length)?)?));
        }
        Ok(segments)
    }
}

fn read_devices(reader: &mut Reader<'_>, count: usize) -> Result<Vec<DeviceEntry>, DecodeError> {
    let possible = count <= DEVICES_MAX && count <= reader.rest().len() / DeviceEntry::SIZE_MIN;
    reader.check(possible, "count of devices", count as u64)?;
    let mut devices: Vec<DeviceEntry> = Vec::with_capacity(count);
    for _ in 0..count {
        let device = DeviceEntry::read(reader)?;
        let rising = devices.last().is_none_or(|last| last.index < device.index);
        reader.check(rising, "order of devices", u64::from(device.index))?;
        devices.push(device);
    }
    Ok(devices)
}

#[cfg(test)]
mod tests;
