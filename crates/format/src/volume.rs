//! Tertiary volumes: the table's entries, the label on each volume, and the names of the objects that hold segments.

use std::fmt;

use crate::PoolId;
use crate::checksum::crc32c;
use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

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

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hexadecimal(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
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
        let mut out = vec![Self::VERSION, self.class, u8::from(self.is_offline), 0, 0, 0, 0, 0];
        out.extend_from_slice(&self.id.0);
        out.put_text(&self.name, 255);
        out.put_text(&self.place, 255);
        out
    }

    pub fn decode(number: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [class, state] = reader.array()?;
        reader.check(state <= 1, "state", u64::from(state))?;
        reader.check(number < TERTIARY_MAX as u64, "number", number)?;
        reader.zeros(5)?;
        let id = VolumeId(reader.array()?);
        let (name, place) = (reader.text("volume name")?, reader.text("place")?);
        reader.finish()?;
        Ok(Self { number: number as u8, id, class, is_offline: state == 1, name, place })
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

    pub fn encode(&self) -> Vec<u8> {
        let line = |text: &str| text.replace(['\n', '\r'], " ");
        let mut text = format!(
            "stere-volume 1\npool {}\npool-name {}\nvolume {}\nname {}\n",
            hexadecimal(&self.pool.0),
            line(&self.pool_name),
            self.volume,
            line(&self.name)
        );
        let sum = crc32c(text.as_bytes());
        text.push_str(&format!("crc32c {sum:08x}\n"));
        text.into_bytes()
    }

    /// `None` for what is no label, or a damaged one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= Self::BYTES_MAX)?;
        let (body, sum) = text.trim_end().rsplit_once('\n')?;
        let sum = u32::from_str_radix(sum.strip_prefix("crc32c ")?, 16).ok()?;
        if crc32c(format!("{body}\n").as_bytes()) != sum {
            return None;
        }
        let mut lines = body.lines();
        if lines.next() != Some("stere-volume 1") {
            return None;
        }
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned);
        Some(Self {
            pool: PoolId(from_hexadecimal(&value("pool")?)?),
            pool_name: value("pool-name")?,
            volume: VolumeId(from_hexadecimal(&value("volume")?)?),
            name: value("name")?,
        })
    }
}

/// The object that holds a segment.
pub fn object_name(segment: u64, sequence: u64) -> String {
    format!("segments/{segment:016x}-{sequence:016x}")
}

/// The object that tells names of what is in a segment.
pub fn catalogue_name(segment: u64, sequence: u64) -> String {
    format!("catalogue/{segment:016x}-{sequence:016x}")
}

/// The segment and sequence that an object of this name holds.
pub fn segment_of_object(name: &str) -> Option<(u64, u64)> {
    let (segment, sequence) = name.strip_prefix("segments/")?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
    Some((number(segment)?, number(sequence)?))
}

#[cfg(test)]
mod tests;
