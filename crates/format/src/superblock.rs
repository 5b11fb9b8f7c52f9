//! The superblock: who a device is, what lies where on it, and where the newest checkpoint is. It names the physical
//! chunks of the segments the checkpoint lies in, so that the checkpoint is found without the segment table.

use crate::error::DecodeError;
use crate::journal::JournalPosition;
use crate::layout::DeviceLayout;
use crate::segment::SegmentChunks;
use crate::wire::{Reader, Writer, seal, sealed};
use crate::{Address, DeviceId, DeviceIndex, FORMAT_MAJOR, FORMAT_MINOR, PoolId, Scheme};

/// From this journal sequence on, records carry this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    pub first_sequence: u64,
    pub epoch: u32,
}

/// One part of the checkpoint record, with all it takes to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointPart {
    pub address: Address,
    pub crc32c: u32,
    pub place: SegmentChunks,
}

/// The superblock of one device, one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub format_minor: u16,
    pub pool: PoolId,
    pub device: DeviceId,
    pub device_index: DeviceIndex,
    pub generation: u64,
    pub layout: DeviceLayout,
    pub journal_start: JournalPosition,
    /// Bytes of every journal region that are used as the circle: what the smallest mirror has.
    pub journal_bytes: u64,
    /// The devices that mirror the journal, at most 8.
    pub journal_devices: Vec<DeviceIndex>,
    /// The journal and the roots lie in a shared log, not on devices: what this superblock tells of them is a copy that may be older.
    pub is_log_shared: bool,
    /// At most 16, ascending.
    pub epochs: Vec<Epoch>,
    /// Nothing is in the journal behind the checkpoint: the pool was closed in order.
    pub clean: bool,
    /// Texts of at most 63 bytes.
    pub pool_name: String,
    pub host: String,
    pub shelf: String,
    /// At most 64; parts of one segment must tell of the same chunks.
    pub checkpoint: Vec<CheckpointPart>,
}

const CLEAN: u32 = 1;
const LOG_SHARED: u32 = 2;
const PART_BYTES: usize = 1 + 12 + 4;

impl Superblock {
    pub const SIZE: usize = 4096;
    pub const MAGIC: [u8; 8] = *b"stere\0\r\n";
    pub const JOURNAL_DEVICES_MAX: usize = 8;
    pub const EPOCHS_MAX: usize = 16;
    pub const PARTS_MAX: usize = 64;
    pub const TEXT_FIELD_BYTES: usize = 64;
    /// Everything before the checkpoint's segments and parts.
    pub const FIXED_BYTES: usize = 528;
    const STRUCTURE: &'static str = "superblock";

    /// The first one of a device whose pool is being made: nothing is in the journal, and no checkpoint is there yet. The journal
    /// is this device's alone until the caller says otherwise, and names are empty.
    pub fn first(pool: PoolId, device: DeviceId, device_index: DeviceIndex, layout: DeviceLayout) -> Self {
        Self {
            format_minor: FORMAT_MINOR,
            pool,
            device,
            device_index,
            generation: 0,
            layout,
            journal_start: JournalPosition { position: 0, sequence: 1 },
            journal_bytes: layout.journal_bytes,
            journal_devices: vec![device_index],
            is_log_shared: false,
            epochs: vec![Epoch { first_sequence: 1, epoch: 1 }],
            clean: true,
            pool_name: String::new(),
            host: String::new(),
            shelf: String::new(),
            checkpoint: Vec::new(),
        }
    }

    /// Fails only if the checkpoint lies in so many segments of so many chunks that a block cannot tell of them, or if epochs
    /// do not rise.
    pub fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let segments = self.segments();
        let need = Self::FIXED_BYTES + self.checkpoint.len() * PART_BYTES;
        let need = need + segments.iter().map(|part| segment_bytes(&part.place)).sum::<usize>();
        let room = Self::SIZE - 4;
        let counts_fit = self.checkpoint.len() <= Self::PARTS_MAX
            && self.epochs.len() <= Self::EPOCHS_MAX
            && self.journal_devices.len() <= Self::JOURNAL_DEVICES_MAX;
        if need > room || !counts_fit {
            return Err(DecodeError::DoesNotFit { structure: Self::STRUCTURE, need, room });
        }
        // What could not be read back would cost the pool: better not written.
        if let Some(pair) = self.epochs.windows(2).find(|pair| !is_rising(&pair[0], &pair[1])) {
            let (structure, field, value) = (Self::STRUCTURE, "epoch", u64::from(pair[1].epoch));
            return Err(DecodeError::OutOfRange { structure, field, value });
        }
        check_pool_name(&self.pool_name)?;
        let mut out = Vec::with_capacity(Self::SIZE);
        self.write_fixed(&mut out, segments.len() as u8);
        assert_eq!(out.len(), Self::FIXED_BYTES);
        for part in &segments {
            out.put_u64(part.address.segment);
            out.extend_from_slice(&[part.place.scheme.data, part.place.scheme.parity]);
            out.put_u32(part.place.missing);
            part.place.write_places(&mut out);
        }
        for part in &self.checkpoint {
            let index = segments.iter().position(|first| first.address.segment == part.address.segment);
            out.put_u8(index.expect("every part's segment was collected") as u8);
            out.extend_from_slice(&part.address.encode()[8..]);
            out.put_u32(part.crc32c);
        }
        seal(&mut out, 0, Self::SIZE);
        Ok(out)
    }

    /// The first part in each segment.
    fn segments(&self) -> Vec<&CheckpointPart> {
        let mut segments: Vec<&CheckpointPart> = Vec::new();
        for part in &self.checkpoint {
            if !segments.iter().any(|known| known.address.segment == part.address.segment) {
                segments.push(part);
            }
        }
        segments
    }

    fn write_fixed(&self, out: &mut Vec<u8>, segment_count: u8) {
        out.extend_from_slice(&Self::MAGIC);
        out.put_u16(FORMAT_MAJOR);
        out.put_u16(self.format_minor);
        let clean = if self.clean { CLEAN } else { 0 };
        out.put_u32(clean | if self.is_log_shared { LOG_SHARED } else { 0 });
        out.extend_from_slice(&self.pool.0);
        out.extend_from_slice(&self.device.0);
        out.put_u64(self.generation);
        self.layout.encode_to(out);
        self.journal_start.encode_to(out);
        out.put_u64(self.journal_bytes);
        out.put_u16(self.device_index);
        let counts = [self.epochs.len(), self.journal_devices.len(), self.checkpoint.len()];
        out.extend_from_slice(&counts.map(|count| count as u8));
        out.extend_from_slice(&[segment_count, 0, 0]);
        for slot in 0..Self::JOURNAL_DEVICES_MAX {
            out.put_u16(self.journal_devices.get(slot).copied().unwrap_or(0));
        }
        for slot in 0..Self::EPOCHS_MAX {
            let epoch = self.epochs.get(slot).copied().unwrap_or(Epoch { first_sequence: 0, epoch: 0 });
            out.put_u64(epoch.first_sequence);
            out.put_u32(epoch.epoch);
        }
        for text in [&self.pool_name, &self.host, &self.shelf] {
            out.put_text_field(Self::TEXT_FIELD_BYTES, text);
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.magic(&Self::MAGIC)?;
        let mut reader = Reader::new(Self::STRUCTURE, sealed(Self::STRUCTURE, bytes, Self::SIZE)?);
        reader.magic(&Self::MAGIC)?;
        let (major, format_minor, flags) = (reader.u16()?, reader.u16()?, reader.u32()?);
        if major != FORMAT_MAJOR {
            let (found, supported) = (major, FORMAT_MAJOR);
            return Err(DecodeError::UnsupportedVersion { structure: Self::STRUCTURE, found, supported });
        }
        reader.check(flags & !(CLEAN | LOG_SHARED) == 0, "flags", u64::from(flags))?;
        let (pool, device) = (PoolId(reader.array()?), DeviceId(reader.array()?));
        let generation = reader.u64()?;
        let layout = DeviceLayout::read(&mut reader)?;
        let journal_start = JournalPosition::read(&mut reader)?;
        let journal_bytes = reader.u64()?;
        let journal_possible =
            (crate::layout::JOURNAL_BYTES_MIN..=crate::layout::JOURNAL_BYTES_MAX).contains(&journal_bytes);
        reader.check(journal_possible && journal_bytes % 4096 == 0, "journal size", journal_bytes)?;
        let device_index = reader.u16()?;
        let [epoch_count, journal_count, part_count, segment_count] = reader.array()?;
        reader.zeros(2)?;
        let journal_devices = read_journal_devices(&mut reader, journal_count)?;
        let epochs = read_epochs(&mut reader, epoch_count)?;
        let pool_name = reader.text_field(Self::TEXT_FIELD_BYTES, "pool name")?;
        check_pool_name(&pool_name)?;
        let host = reader.text_field(Self::TEXT_FIELD_BYTES, "host")?;
        let shelf = reader.text_field(Self::TEXT_FIELD_BYTES, "shelf")?;
        let checkpoint = read_checkpoint(&mut reader, segment_count, part_count)?;
        reader.zeros(reader.rest().len())?;
        let (clean, is_log_shared) = (flags & CLEAN != 0, flags & LOG_SHARED != 0);
        Ok(Self {
            is_log_shared,
            format_minor,
            pool,
            device,
            device_index,
            generation,
            layout,
            journal_start,
            journal_bytes,
            journal_devices,
            epochs,
            clean,
            pool_name,
            host,
            shelf,
            checkpoint,
        })
    }

    /// Whether this program may write to a pool of this format, or only read it.
    #[expect(clippy::absurd_extreme_comparisons, reason = "the minor version will rise")]
    pub fn is_writable(&self) -> bool {
        self.format_minor <= FORMAT_MINOR
    }
}

/// Whether a pool can have this name, which becomes a part of paths: at most 63 letters, digits, dots, dashes and underscores, beginning with a letter or
/// digit.
pub fn is_pool_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let starts_well = name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    starts_well && name.len() < Superblock::TEXT_FIELD_BYTES && name.chars().all(is_plain)
}

/// A pool without a name, as tests make them, has none that could lead anywhere.
fn check_pool_name(name: &str) -> Result<(), DecodeError> {
    match name.is_empty() || is_pool_name(name) {
        true => Ok(()),
        false => Err(DecodeError::NotPlain { structure: Superblock::STRUCTURE, field: "pool name" }),
    }
}

fn is_rising(before: &Epoch, after: &Epoch) -> bool {
    before.epoch < after.epoch && before.first_sequence <= after.first_sequence
}

fn segment_bytes(place: &SegmentChunks) -> usize {
    8 + 2 + 4 + 6 * place.chunks.len()
}

fn read_journal_devices(reader: &mut Reader<'_>, count: u8) -> Result<Vec<DeviceIndex>, DecodeError> {
    let max = Superblock::JOURNAL_DEVICES_MAX;
    reader.check(usize::from(count) <= max, "count of journal devices", u64::from(count))?;
    let devices = (0..count).map(|_| reader.u16()).collect::<Result<Vec<_>, _>>()?;
    reader.zeros((max - devices.len()) * 2)?;
    Ok(devices)
}

fn read_epochs(reader: &mut Reader<'_>, count: u8) -> Result<Vec<Epoch>, DecodeError> {
    let max = Superblock::EPOCHS_MAX;
    reader.check(usize::from(count) <= max, "count of epochs", u64::from(count))?;
    let mut epochs: Vec<Epoch> = Vec::with_capacity(max);
    for _ in 0..count {
        let epoch = Epoch { first_sequence: reader.u64()?, epoch: reader.u32()? };
        reader.check(epochs.last().is_none_or(|last| is_rising(last, &epoch)), "epoch", u64::from(epoch.epoch))?;
        epochs.push(epoch);
    }
    reader.zeros((max - epochs.len()) * 12)?;
    Ok(epochs)
}

fn read_checkpoint(reader: &mut Reader<'_>, segments: u8, parts: u8) -> Result<Vec<CheckpointPart>, DecodeError> {
    reader.check(usize::from(parts) <= Superblock::PARTS_MAX, "count of checkpoint parts", u64::from(parts))?;
    reader.check(segments <= parts, "count of checkpoint segments", u64::from(segments))?;
    let mut places = Vec::with_capacity(usize::from(segments));
    for _ in 0..segments {
        let segment = reader.u64()?;
        let [data, parity] = reader.array()?;
        let scheme = Scheme::from_parts(Superblock::STRUCTURE, data, parity)?;
        let missing = reader.u32()?;
        places.push((segment, SegmentChunks::read_places(reader, scheme, missing)?));
    }
    let mut checkpoint = Vec::with_capacity(usize::from(parts));
    for _ in 0..parts {
        let index = reader.u8()?;
        let Some((segment, place)) = places.get(usize::from(index)) else {
            return Err(reader.out_of_range("segment of a checkpoint part", u64::from(index)));
        };
        let address = Address::read_in_segment(reader, *segment)?;
        checkpoint.push(CheckpointPart { address, crc32c: reader.u32()?, place: place.clone() });
    }
    Ok(checkpoint)
}

#[cfg(test)]
mod tests;
