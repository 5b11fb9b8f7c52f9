//! A destination that chosen files are copied to: the value of [`crate::Key::backup`].

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// Where backups go, how often, and when one was complete last.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BackupValue {
    /// How people call it.
    pub name: String,
    /// What its marker says: another directory in its place is not taken for it.
    pub id: [u8; 16],
    /// How many earlier states are kept there.
    pub keep: u16,
    /// How often, in seconds; 0: only when somebody asks.
    pub every_seconds: u32,
    /// When the last complete run began, in seconds since 1970; 0: there was none.
    pub done_seconds: i64,
    /// The directory, as the machine calls it that has the pool mounted.
    pub path: Vec<u8>,
    /// Of the chosen files those for which this holds, as a search says it; empty: all of them.
    pub only: String,
}

impl BackupValue {
    pub const VERSION: u8 = 1;
    /// Before the texts.
    pub const FIXED_BYTES: usize = 40;
    pub const NAME_BYTES_MAX: usize = 64;
    pub const PATH_BYTES_MAX: usize = 4096;
    pub const ONLY_BYTES_MAX: usize = 4096;
    const STRUCTURE: &'static str = "destination of backups";

    pub fn encode(&self) -> Vec<u8> {
        let lengths = [self.name.len(), self.path.len(), self.only.len()];
        let most = [Self::NAME_BYTES_MAX, Self::PATH_BYTES_MAX, Self::ONLY_BYTES_MAX];
        assert!(lengths.iter().zip(most).all(|(length, most)| *length <= most), "refused before it gets here");
        let mut out = Vec::with_capacity(Self::FIXED_BYTES + lengths.iter().sum::<usize>());
        out.extend_from_slice(&[Self::VERSION, self.name.len() as u8]);
        out.put_u16(self.keep);
        out.put_u32(self.every_seconds);
        out.extend_from_slice(&self.id);
        out.put_u64(self.done_seconds as u64);
        out.put_u16(self.path.len() as u16);
        out.put_u16(self.only.len() as u16);
        out.put_zeros(4);
        assert_eq!(out.len(), Self::FIXED_BYTES, "the name begins where the page says");
        for text in [self.name.as_bytes(), &self.path, self.only.as_bytes()] {
            out.extend_from_slice(text);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [name_bytes]: [u8; 1] = reader.array()?;
        let name_bytes = usize::from(name_bytes);
        reader.check((1..=Self::NAME_BYTES_MAX).contains(&name_bytes), "length of the name", name_bytes as u64)?;
        let (keep, every_seconds, id) = (reader.u16()?, reader.u32()?, reader.array()?);
        let done_seconds = reader.u64()? as i64;
        let (path_bytes, only_bytes) = (usize::from(reader.u16()?), usize::from(reader.u16()?));
        reader.check((1..=Self::PATH_BYTES_MAX).contains(&path_bytes), "length of the path", path_bytes as u64)?;
        reader.check(only_bytes <= Self::ONLY_BYTES_MAX, "length of the search", only_bytes as u64)?;
        reader.zeros(4)?;
        let name = reader.name(name_bytes, "name")?;
        let path = reader.take(path_bytes)?.to_vec();
        let only = reader.utf8(only_bytes, "search")?;
        reader.finish()?;
        Ok(Self { name, id, keep, every_seconds, done_seconds, path, only })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_come_back_as_they_were_and_what_is_impossible_is_refused() {
        let value = BackupValue {
            name: "vault".into(),
            id: [7; 16],
            keep: 10,
            every_seconds: 86_400,
            done_seconds: -3,
            path: b"/mnt/\xff".to_vec(),
            only: "size<1G".into(),
        };
        let bytes = value.encode();
        assert_eq!(BackupValue::decode(&bytes).unwrap(), value);
        assert!(BackupValue::decode(&[&bytes[..], b"x"].concat()).is_err());
        for (at, wrong) in [(0, 2), (1, 0), (1, 65), (32, 0), (33, 0x20), (35, 0x20), (36, 1), (40, 0xff)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(BackupValue::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
