//! What lies where on a device: two superblock copies in front, two behind, the journal region, and slots for chunks.

use crate::error::DecodeError;
use crate::heartbeat::Heartbeat;
use crate::wire::{Reader, Writer};
use crate::{BLOCK_BYTES, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};

pub const DEVICE_BYTES_MIN: u64 = 64 << 20;
pub const JOURNAL_BYTES_MIN: u64 = 2 << 20;
pub const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// The superblock copies in front, and what is kept free behind them.
const FRONT_BYTES: u64 = 256 << 10;
const BACK_BYTES: u64 = 128 << 10;
const SUPERBLOCK_SPACING: u64 = 64 << 10;
/// Behind the superblock copies in front.
const HEARTBEAT_OFFSET: u64 = 2 * SUPERBLOCK_SPACING;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// The regions of one device. Invariants: regions follow one another without overlap and end within the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLayout {
    /// A multiple of 4096.
    pub size_bytes: u64,
    pub chunk_bytes: u32,
    pub slot_count: u32,
    pub slots_offset: u64,
    pub journal_offset: u64,
    pub journal_bytes: u64,
}

impl DeviceLayout {
    pub const SIZE: usize = 40;

    /// The layout of a new device.
    pub fn for_size(size_bytes: u64, chunk_bytes: u32) -> Result<Self, DecodeError> {
        if !chunk_is_possible(chunk_bytes) {
            return Err(DecodeError::ChunkSize { chunk_bytes });
        }
        if size_bytes < DEVICE_BYTES_MIN {
            return Err(DecodeError::DeviceTooSmall { size_bytes, size_bytes_min: DEVICE_BYTES_MIN });
        }
        let size_bytes = size_bytes / BLOCK * BLOCK;
        let journal_bytes = (size_bytes / 32).clamp(JOURNAL_BYTES_MIN, JOURNAL_BYTES_MAX) / BLOCK * BLOCK;
        let slots_offset = FRONT_BYTES + journal_bytes;
        let slots = (size_bytes - BACK_BYTES - slots_offset) / u64::from(chunk_bytes);
        let slot_count = u32::try_from(slots).unwrap_or(u32::MAX);
        let layout =
            Self { size_bytes, chunk_bytes, slot_count, slots_offset, journal_offset: FRONT_BYTES, journal_bytes };
        assert!(layout.is_possible(), "the regions of a device fit one behind the other");
        Ok(layout)
    }

    /// The layout of the same device after it has grown; none if it has not, by a slot at least. Journal and slots stay where
    /// they are, so the superblock copies behind move, and new slots lie where the old ones were.
    pub fn grown(&self, size_bytes: u64) -> Option<Self> {
        let size_bytes = size_bytes / BLOCK * BLOCK;
        let slots = size_bytes.checked_sub(BACK_BYTES + self.slots_offset)? / u64::from(self.chunk_bytes);
        let slot_count = u32::try_from(slots).unwrap_or(u32::MAX);
        (size_bytes > self.size_bytes && slot_count > self.slot_count).then_some(Self {
            size_bytes,
            slot_count,
            ..*self
        })
    }

    /// The layout of the same device if less of it is used; none if that is not less by a slot at least, or too little. Journal and
    /// slots stay where they are.
    pub fn shrunk(&self, size_bytes: u64) -> Option<Self> {
        let size_bytes = size_bytes / BLOCK * BLOCK;
        let slots = size_bytes.checked_sub(BACK_BYTES + self.slots_offset)? / u64::from(self.chunk_bytes);
        let slot_count = u32::try_from(slots).unwrap_or(u32::MAX);
        let layout = Self { size_bytes, slot_count, ..*self };
        (slot_count > 0 && slot_count < self.slot_count && layout.is_possible()).then_some(layout)
    }

    fn is_possible(&self) -> bool {
        let aligned = [self.size_bytes, self.slots_offset, self.journal_offset, self.journal_bytes];
        let journal_end = self.journal_offset.checked_add(self.journal_bytes);
        let slots_end = self.slots_offset.checked_add(u64::from(self.slot_count) * u64::from(self.chunk_bytes));
        chunk_is_possible(self.chunk_bytes)
            && aligned.iter().all(|bytes| bytes % BLOCK == 0)
            && self.size_bytes >= DEVICE_BYTES_MIN
            && self.journal_offset >= 2 * SUPERBLOCK_SPACING
            && (JOURNAL_BYTES_MIN..=JOURNAL_BYTES_MAX).contains(&self.journal_bytes)
            && journal_end.is_some_and(|end| end <= self.slots_offset)
            && slots_end.is_some_and(|end| end <= self.size_bytes - BACK_BYTES)
    }

    /// All places of the superblock: A, B, A', B'.
    pub fn superblock_offsets(&self) -> [u64; 4] {
        Self::superblock_offsets_for_size(self.size_bytes)
    }

    /// The same, for a device not yet known; superblocks are read from here when a device is opened.
    pub fn superblock_offsets_for_size(size_bytes: u64) -> [u64; 4] {
        let size_bytes = (size_bytes / BLOCK * BLOCK).max(4 * SUPERBLOCK_SPACING);
        [0, SUPERBLOCK_SPACING, size_bytes - 2 * SUPERBLOCK_SPACING, size_bytes - SUPERBLOCK_SPACING]
    }

    /// The two places that generation `generation` writes; the other two keep the one before.
    pub fn superblock_offsets_of_generation(&self, generation: u64) -> [u64; 2] {
        let [a, b, a_end, b_end] = self.superblock_offsets();
        if generation % 2 == 0 { [a, a_end] } else { [b, b_end] }
    }

    /// Where the heartbeat lies; none where the journal begins too early to leave room for it.
    pub fn heartbeat_offset(&self) -> Option<u64> {
        (HEARTBEAT_OFFSET + Heartbeat::SIZE as u64 <= self.journal_offset).then_some(HEARTBEAT_OFFSET)
    }

    /// Where a slot starts; none if there is no such slot.
    pub fn slot_offset(&self, slot: u32) -> Option<u64> {
        (slot < self.slot_count).then(|| self.slots_offset + u64::from(slot) * u64::from(self.chunk_bytes))
    }

    /// The slot in which this byte of the device lies; none where it lies in no slot.
    pub fn slot_at(&self, offset: u64) -> Option<u32> {
        let slot = offset.checked_sub(self.slots_offset)? / u64::from(self.chunk_bytes);
        u32::try_from(slot).ok().filter(|slot| *slot < self.slot_count)
    }

    pub fn chunk_blocks(&self) -> u32 {
        self.chunk_bytes / BLOCK_BYTES as u32
    }

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        assert!(self.is_possible(), "journal and slots lie on the device, apart");
        out.put_u64(self.size_bytes);
        out.put_u32(self.chunk_bytes);
        out.put_u32(self.slot_count);
        out.put_u64(self.slots_offset);
        out.put_u64(self.journal_offset);
        out.put_u64(self.journal_bytes);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let layout = Self {
            size_bytes: reader.u64()?,
            chunk_bytes: reader.u32()?,
            slot_count: reader.u32()?,
            slots_offset: reader.u64()?,
            journal_offset: reader.u64()?,
            journal_bytes: reader.u64()?,
        };
        reader.check(layout.is_possible(), "layout of the device", layout.size_bytes)?;
        Ok(layout)
    }
}

fn chunk_is_possible(chunk_bytes: u32) -> bool {
    chunk_bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes)
}

#[cfg(test)]
mod tests;
