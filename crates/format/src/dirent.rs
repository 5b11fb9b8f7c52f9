//! Names in directories. A name is found by its hash (a bucket of sequences, nearly always one), listed by its
//! sequence (the entry itself, with the name).

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};
use smallvec::SmallVec;

/// What an inode is; the numbers are those of `d_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    Fifo = 1,
    CharacterDevice = 2,
    Directory = 4,
    BlockDevice = 6,
    File = 8,
    Symlink = 10,
    Socket = 12,
}

impl FileKind {
    /// What people call it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::CharacterDevice => "character",
            Self::Directory => "directory",
            Self::BlockDevice => "block",
            Self::File => "file",
            Self::Symlink => "symlink",
            Self::Socket => "socket",
        }
    }

    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Fifo,
            2 => Self::CharacterDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::File,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }

    /// From `st_mode`, whose upper four of sixteen bits are the code.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        if mode >> 16 != 0 {
            return None;
        }
        Self::from_code((mode >> 12) as u8)
    }

    /// The bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// The value of [`crate::Key::dirent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirentValue {
    pub inode: u64,
    pub kind: FileKind,
    /// Number of the key that the name is encrypted with; 0 if it is not.
    pub key: u16,
    pub name: Vec<u8>,
}

/// The same, not copied out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirentView<'a> {
    pub inode: u64,
    pub kind: FileKind,
    /// Number of the key that the name is encrypted with; 0 if it is not.
    pub key: u16,
    pub name: &'a [u8],
}

impl DirentValue {
    pub const VERSION: u8 = 1;
    /// Of an encrypted name.
    pub const VERSION_ENCRYPTED: u8 = 2;
    pub const NAME_BYTES_MAX: usize = 255;
    /// What an encrypted name has more than the name.
    pub const ENCRYPTED_EXTRA_BYTES: usize = 16;
    const STRUCTURE: &'static str = "directory entry";

    pub fn encode(&self) -> Vec<u8> {
        DirentView { inode: self.inode, kind: self.kind, key: self.key, name: &self.name }.encode()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let view = DirentView::decode(bytes)?;
        Ok(Self { inode: view.inode, kind: view.kind, key: view.key, name: view.name.to_vec() })
    }
}

impl<'a> DirentView<'a> {
    #[inline]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12 + self.name.len());
        self.encode_to(&mut out);
        out
    }

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        assert!(self.name_is_possible(), "a name has 1 to 255 bytes, none of them a slash or zero");
        let version = if self.key == 0 { DirentValue::VERSION } else { DirentValue::VERSION_ENCRYPTED };
        out.extend_from_slice(&[version, self.kind as u8]);
        out.put_u16(self.name.len() as u16);
        out.put_u64(self.inode);
        if self.key != 0 {
            out.put_u16(self.key);
        }
        out.extend_from_slice(self.name);
    }

    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(DirentValue::STRUCTURE, bytes);
        let is_encrypted = bytes.first() == Some(&DirentValue::VERSION_ENCRYPTED);
        reader.version(if is_encrypted { DirentValue::VERSION_ENCRYPTED } else { DirentValue::VERSION })?;
        let code = reader.u8()?;
        let Some(kind) = FileKind::from_code(code) else {
            return Err(reader.out_of_range("type", u64::from(code)));
        };
        let length = usize::from(reader.u16()?);
        let inode = reader.u64()?;
        let key = if is_encrypted { reader.u16()? } else { 0 };
        reader.check(!is_encrypted || key >= 1, "key", u64::from(key))?;
        let name = reader.take(length)?;
        let view = Self { inode, kind, key, name };
        reader.check(view.name_is_possible(), "name", length as u64)?;
        reader.finish()?;
        Ok(view)
    }

    fn name_is_possible(&self) -> bool {
        let length = self.name.len();
        if self.key != 0 {
            let extra = DirentValue::ENCRYPTED_EXTRA_BYTES;
            return (extra + 1..=extra + DirentValue::NAME_BYTES_MAX).contains(&length);
        }
        (1..=DirentValue::NAME_BYTES_MAX).contains(&length) && !self.name.iter().any(|byte| matches!(byte, 0 | b'/'))
    }
}

/// The value of [`crate::Key::dirent_hash`]: the sequences of all names with this hash, ascending.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DirentBucket {
    pub sequences: SmallVec<[u64; 2]>,
}

impl DirentBucket {
    pub const VERSION: u8 = 1;
    pub const SEQUENCES_MAX: usize = 1024;
    const STRUCTURE: &'static str = "directory hash bucket";

    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=Self::SEQUENCES_MAX).contains(&self.sequences.len()), "a bucket has 1 to 1024 names");
        let mut out = Vec::with_capacity(4 + 8 * self.sequences.len());
        out.extend_from_slice(&[Self::VERSION, 0]);
        out.put_u16(self.sequences.len() as u16);
        for sequence in &self.sequences {
            out.put_u64(*sequence);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(1)?;
        let count = usize::from(reader.u16()?);
        reader.check((1..=Self::SEQUENCES_MAX).contains(&count), "count of names", count as u64)?;
        let mut sequences: SmallVec<[u64; 2]> = SmallVec::new();
        for _ in 0..count {
            let sequence = reader.u64()?;
            let rising = sequences.last().is_none_or(|last| *last < sequence);
            reader.check(rising, "order of sequences", sequence)?;
            sequences.push(sequence);
        }
        reader.finish()?;
        Ok(Self { sequences })
    }

    /// Adds a sequence; one that is there already stays once.
    pub fn insert(&mut self, sequence: u64) {
        if let Err(at) = self.sequences.binary_search(&sequence) {
            self.sequences.insert(at, sequence);
        }
    }

    /// Removes a sequence; tells whether it was there. An empty bucket's key is to be deleted.
    pub fn remove(&mut self, sequence: u64) -> bool {
        let found = self.sequences.binary_search(&sequence);
        found.map(|at| self.sequences.remove(at)).is_ok()
    }
}
