//! Tertiary volumes: the table's entries, the label on each volume, and the names of the objects that hold segments.

use std::fmt;
use std::ops::Range;

use crate::checksum::crc32c;
use crate::error::DecodeError;
use crate::identity::{from_hexadecimal, hexadecimal};
use crate::wire::{Reader, Writer};
use crate::{Address, BLOCK_BYTES, PoolId};

/// Volumes a pool may have: sets of them are 16 bits, of which one means none.
pub const TERTIARY_MAX: usize = 15;

/// Says which volume it is, wherever it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(pub [u8; 16]);

impl fmt::Display for VolumeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hexadecimal(&self.0))
    }
}

impl fmt::Debug for VolumeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Who has what was meant for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succession {
    /// It has it itself.
    Stays,
    /// All that is on it goes to the volume of this number; what was meant for it goes there already.
    Retiring(u8),
    /// It is no part of the pool any more; its number stands for the other one.
    Retired(u8),
}

impl Succession {
    fn encode(self) -> [u8; 2] {
        match self {
            Succession::Stays => [0, 0],
            Succession::Retiring(heir) => [1, heir],
            Succession::Retired(heir) => [2, heir],
        }
    }

    /// Who has it instead.
    pub fn heir(self) -> Option<u8> {
        match self {
            Succession::Stays => None,
            Succession::Retiring(heir) | Succession::Retired(heir) => Some(heir),
        }
    }
}

/// A volume as the pool knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEntry {
    /// Its place in sets; in the key, not in the value.
    pub number: u8,
    pub id: VolumeId,
    pub class: u8,
    /// Taken away on purpose: nobody looks for it.
    pub is_offline: bool,
    /// Copies of the pool's metadata go there.
    pub takes_metadata: bool,
    pub succession: Succession,
    /// Texts of at most 255 bytes.
    pub name: String,
    /// Where it is, as it was told.
    pub place: String,
}

impl VolumeEntry {
    pub const VERSION: u8 = 1;
    /// Up to the texts.
    pub const FIXED_BYTES: usize = 24;
    const STRUCTURE: &'static str = "tertiary volume";

    /// Its bit in sets.
    pub fn bit(&self) -> u16 {
        assert!(usize::from(self.number) < TERTIARY_MAX, "numbers of volumes are small");
        1 << self.number
    }

    pub fn encode(&self) -> Vec<u8> {
        let (state, without_metadata) = (u8::from(self.is_offline), u8::from(!self.takes_metadata));
        let heir = self.succession.heir();
        assert!(heir.is_none_or(|heir| heir != self.number), "another volume has what was meant for this one");
        let [succession, heir] = self.succession.encode();
        let mut out = vec![Self::VERSION, self.class, state, without_metadata, succession, heir, 0, 0];
        out.extend_from_slice(&self.id.0);
        out.put_text(&self.name, 255);
        out.put_text(&self.place, 255);
        out
    }

    pub fn decode(number: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [class, state, without_metadata] = reader.array()?;
        reader.check(state <= 1, "state", u64::from(state))?;
        reader.check(without_metadata <= 1, "form", u64::from(without_metadata))?;
        reader.check(number < TERTIARY_MAX as u64, "number", number)?;
        let [succession, heir] = reader.array()?;
        reader.check(succession <= 2, "succession", u64::from(succession))?;
        let is_other = heir < TERTIARY_MAX as u8 && u64::from(heir) != number;
        reader.check(if succession == 0 { heir == 0 } else { is_other }, "heir", u64::from(heir))?;
        let succession = match succession {
            0 => Succession::Stays,
            1 => Succession::Retiring(heir),
            _ => Succession::Retired(heir),
        };
        reader.zeros(2)?;
        let id = VolumeId(reader.array()?);
        let (name, place) = (reader.text("volume name")?, reader.text("place")?);
        reader.finish()?;
        let (is_offline, takes_metadata) = (state == 1, without_metadata == 0);
        Ok(Self { number: number as u8, id, class, is_offline, takes_metadata, succession, name, place })
    }
}

/// What a volume says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeLabel {
    pub pool: PoolId,
    pub pool_name: String,
    pub volume: VolumeId,
    pub name: String,
}

impl VolumeLabel {
    /// The object it is.
    pub const OBJECT: &'static str = "stere-volume";
    /// No label is longer.
    pub const BYTES_MAX: usize = 4096;
    const FIRST_LINE: &'static str = "stere-volume 1\n";
    /// The line at the end.
    const CHECKSUM_BYTES: usize = 16;
    const STRUCTURE: &'static str = "label of a tertiary volume";

    pub fn encode(&self) -> Vec<u8> {
        let line = |text: &str| text.replace(char::is_control, " ");
        let mut text = format!(
            "{}pool {}\npool-name {}\nvolume {}\nname {}\n",
            Self::FIRST_LINE,
            hexadecimal(&self.pool.0),
            line(&self.pool_name),
            self.volume,
            line(&self.name)
        );
        let sum = Self::checksum_line(crc32c(text.as_bytes()));
        assert_eq!(sum.len(), Self::CHECKSUM_BYTES, "a reader finds the checksum from the end");
        text.push_str(&sum);
        text.into_bytes()
    }

    fn checksum_line(sum: u32) -> String {
        format!("crc32c {sum:08x}\n")
    }

    /// The same label with the checksum that it should have.
    pub(crate) fn resealed(bytes: &[u8]) -> Vec<u8> {
        let body = &bytes[..bytes.len().saturating_sub(Self::CHECKSUM_BYTES)];
        [body, Self::checksum_line(crc32c(body)).as_bytes()].concat()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (structure, have) = (Self::STRUCTURE, bytes.len());
        let (need, extra) = (Self::FIRST_LINE.len() + Self::CHECKSUM_BYTES, have.saturating_sub(Self::BYTES_MAX));
        if have < need {
            return Err(DecodeError::Truncated { structure, need, have });
        }
        if !bytes.starts_with(Self::FIRST_LINE.as_bytes()) {
            return Err(DecodeError::BadMagic { structure });
        }
        if extra > 0 {
            return Err(DecodeError::TrailingBytes { structure, extra });
        }
        let (body, sum) = bytes.split_at(have - Self::CHECKSUM_BYTES);
        let computed = crc32c(body);
        if sum != Self::checksum_line(computed).as_bytes() {
            let stored = std::str::from_utf8(&sum[7..15]).ok().and_then(|text| u32::from_str_radix(text, 16).ok());
            return Err(DecodeError::Checksum { structure, stored: stored.unwrap_or(0), computed });
        }
        let text = std::str::from_utf8(body).map_err(|_| DecodeError::NotText { structure, field: "line" })?;
        let out_of_range = |field| DecodeError::OutOfRange { structure, field, value: have as u64 };
        let label = Self::from_lines(&text[Self::FIRST_LINE.len()..]).ok_or_else(|| out_of_range("line"))?;
        // Equal labels are equal bytes.
        if label.encode() == bytes { Ok(label) } else { Err(out_of_range("form")) }
    }

    /// Names become lines on terminals and parts of paths.
    fn is_plain(&self) -> bool {
        let is_pool = self.pool_name.is_empty() || crate::superblock::is_pool_name(&self.pool_name);
        is_pool && !self.name.chars().any(char::is_control)
    }

    fn from_lines(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned);
        Some(Self {
            pool: PoolId(from_hexadecimal(&value("pool")?)?),
            pool_name: value("pool-name")?,
            volume: VolumeId(from_hexadecimal(&value("volume")?)?),
            name: value("name")?,
        })
        .filter(|label| label.is_plain())
    }
}

/// The value of [`crate::Key::tier_marks`]: how full devices may get, in percent, before archived files are released, and down to
/// which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierMarks {
    pub high: u8,
    pub low: u8,
}

impl Default for TierMarks {
    fn default() -> TierMarks {
        TierMarks { high: 85, low: 75 }
    }
}

impl TierMarks {
    pub const SIZE: usize = 3;
    pub const VERSION: u8 = 1;
    const STRUCTURE: &'static str = "marks of devices' fullness";

    /// At least one percent lies between them.
    pub fn new(high: u8, low: u8) -> Option<TierMarks> {
        (low >= 1 && low < high && high <= 100).then_some(TierMarks { high, low })
    }

    pub fn encode(self) -> [u8; Self::SIZE] {
        assert!(TierMarks::new(self.high, self.low).is_some(), "the low mark is below the high one");
        [Self::VERSION, self.high, self.low]
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [high, low] = reader.array()?;
        let marks = TierMarks::new(high, low);
        let marks = marks.ok_or_else(|| reader.out_of_range("mark", u64::from(high)))?;
        reader.finish()?;
        Ok(marks)
    }
}

/// The object that holds a segment with so many data chunks.
pub fn object_name(segment: u64, sequence: u64, data_chunks: u8) -> String {
    assert!(data_chunks > 0, "a segment has a data chunk");
    match data_chunks {
        1 => format!("segments/{segment:016x}-{sequence:016x}"),
        _ => format!("segments/{segment:016x}-{sequence:016x}-{data_chunks:02x}"),
    }
}

/// Bytes of the object of a segment whose chunks are written for so many blocks, headers counted: one header, and all data chunks.
pub fn object_bytes(data_chunks: u8, written_blocks: u32) -> u64 {
    let content = u64::from(written_blocks.max(1) - 1) * u64::from(data_chunks);
    (1 + content) * BLOCK_BYTES as u64
}

/// Where a record lies in the object of its segment, in which rows follow each other with all of their bytes in order.
pub fn range_in_object(data_chunks: u8, address: &Address) -> Range<usize> {
    let rows_before = (address.row_block.max(1) as usize - 1) * usize::from(data_chunks);
    let start = (1 + rows_before) * BLOCK_BYTES + address.offset as usize;
    start..start + address.length as usize
}

/// The object that tells names of what is in a segment.
pub fn catalogue_name(segment: u64, sequence: u64) -> String {
    format!("catalogue/{segment:016x}-{sequence:016x}")
}

/// The object that holds the first blocks of a segment of the tree.
pub fn metadata_name(segment: u64, sequence: u64, blocks: u32) -> String {
    format!("metadata/{segment:016x}-{sequence:016x}-{blocks:08x}")
}

/// The object that holds the checkpoint record of a generation whose metadata is all there.
pub fn state_name(generation: u64) -> String {
    format!("states/{generation:016x}")
}

fn number(text: &str, digits: usize) -> Option<u64> {
    let is_plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// The segment and sequence that an object of this name holds.
pub fn segment_of_object(name: &str) -> Option<(u64, u64)> {
    parts_of_object(name).map(|(segment, sequence, _)| (segment, sequence))
}

/// How many data chunks the segment has that an object of this name holds.
pub fn data_chunks_of_object(name: &str) -> Option<u8> {
    parts_of_object(name).map(|(_, _, data_chunks)| data_chunks)
}

fn parts_of_object(name: &str) -> Option<(u64, u64, u8)> {
    let mut parts = name.strip_prefix("segments/")?.split('-');
    let (segment, sequence) = (number(parts.next()?, 16)?, number(parts.next()?, 16)?);
    let data_chunks = match parts.next() {
        None => 1,
        // One is never told, so that a segment has one name.
        Some(text) => number(text, 2).filter(|count| *count > 1)? as u8,
    };
    parts.next().is_none().then_some((segment, sequence, data_chunks))
}

/// The segment of the tree, its sequence and how many blocks of it an object of this name holds.
pub fn metadata_of_object(name: &str) -> Option<(u64, u64, u32)> {
    let mut parts = name.strip_prefix("metadata/")?.split('-');
    let found = (number(parts.next()?, 16)?, number(parts.next()?, 16)?, number(parts.next()?, 8)? as u32);
    parts.next().is_none().then_some(found)
}

/// The generation whose checkpoint record an object of this name holds.
pub fn state_of_object(name: &str) -> Option<u64> {
    number(name.strip_prefix("states/")?, 16)
}

#[cfg(test)]
mod tests;
