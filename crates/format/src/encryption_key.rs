//! A key with which content and names are encrypted: never itself, only wrapped by passphrases and key files.
//!
//! What wraps it, and what is bound to it, is told in `docs/design/encryption.md`. Invariants: a record has at least one wrapping
//! unless the key was removed; what a hostile record can ask of Argon2id is bounded; the record ends with its own checksum, so
//! that a rotten one is told apart from a wrong passphrase.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// What opens a wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrapping {
    /// A passphrase, stretched by Argon2id.
    Passphrase { memory_kib: u32, passes: u32, lanes: u8 },
    /// The bytes of a file.
    KeyFile,
}

/// The key under one wrapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    pub wrapping: Wrapping,
    pub salt: [u8; 16],
    pub nonce: [u8; 24],
    /// 32 bytes and a tag of 16.
    pub key: [u8; 48],
}

/// The value of [`crate::Key::encryption_key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionKey {
    pub number: u16,
    /// How people call it.
    pub name: String,
    /// Whether it is the one that `encrypt=yes` means.
    pub is_default: bool,
    pub made_seconds: i64,
    /// None: the key was removed, and its number is not used again.
    pub wrapped: Vec<WrappedKey>,
}

const DEFAULT: u8 = 1;
const PASSPHRASE: u8 = 1;
const KEY_FILE: u8 = 2;

impl WrappedKey {
    pub const SIZE: usize = 100;
    /// What a record may make a reader spend.
    pub const MEMORY_KIB_MAX: u32 = 1 << 20;
    pub const PASSES_MAX: u32 = 64;
    pub const LANES_MAX: u8 = 64;

    fn encode_to(&self, out: &mut Vec<u8>) {
        let (kind, memory_kib, passes, lanes) = match self.wrapping {
            Wrapping::Passphrase { memory_kib, passes, lanes } => (PASSPHRASE, memory_kib, passes, lanes),
            Wrapping::KeyFile => (KEY_FILE, 0, 0, 0),
        };
        assert!(is_possible(kind, memory_kib, passes, lanes), "the cost of a passphrase is bounded");
        out.extend_from_slice(&[kind, lanes, 0, 0]);
        out.put_u32(memory_kib);
        out.put_u32(passes);
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(&self.key);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [kind, lanes] = reader.array()?;
        reader.zeros(2)?;
        let (memory_kib, passes) = (reader.u32()?, reader.u32()?);
        reader.check(matches!(kind, PASSPHRASE | KEY_FILE), "kind of wrapping", u64::from(kind))?;
        reader.check(is_possible(kind, memory_kib, passes, lanes), "cost of a passphrase", u64::from(memory_kib))?;
        let wrapping = match kind {
            PASSPHRASE => Wrapping::Passphrase { memory_kib, passes, lanes },
            _ => Wrapping::KeyFile,
        };
        Ok(Self { wrapping, salt: reader.array()?, nonce: reader.array()?, key: reader.array()? })
    }
}

fn is_possible(kind: u8, memory_kib: u32, passes: u32, lanes: u8) -> bool {
    if kind == KEY_FILE {
        return (memory_kib, passes, lanes) == (0, 0, 0);
    }
    (1..=WrappedKey::LANES_MAX).contains(&lanes)
        && (1..=WrappedKey::PASSES_MAX).contains(&passes)
        && (8 * u32::from(lanes)..=WrappedKey::MEMORY_KIB_MAX).contains(&memory_kib)
}

impl EncryptionKey {
    pub const VERSION: u8 = 1;
    pub const NAME_BYTES_MAX: usize = 64;
    pub const WRAPPINGS_MAX: usize = 16;
    const STRUCTURE: &'static str = "encryption key";

    pub fn is_removed(&self) -> bool {
        self.wrapped.is_empty()
    }

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.wrapped.len() <= Self::WRAPPINGS_MAX, "a key has at most 16 wrappings");
        assert!((1..=Self::NAME_BYTES_MAX).contains(&self.name.len()), "a key's name has 1 to 64 bytes");
        assert!(self.number >= 1, "keys are counted from 1");
        let mut out = Vec::with_capacity(16 + self.name.len() + WrappedKey::SIZE * self.wrapped.len() + 4);
        let flags = if self.is_default { DEFAULT } else { 0 };
        out.extend_from_slice(&[Self::VERSION, flags, self.name.len() as u8, self.wrapped.len() as u8]);
        out.put_u16(self.number);
        out.put_u16(0);
        out.put_u64(self.made_seconds as u64);
        out.extend_from_slice(self.name.as_bytes());
        self.wrapped.iter().for_each(|wrapped| wrapped.encode_to(&mut out));
        let checksum = crate::crc32c(&out);
        out.put_u32(checksum);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let body = crate::wire::sealed(Self::STRUCTURE, bytes, bytes.len().max(4))?;
        let mut reader = Reader::new(Self::STRUCTURE, body);
        reader.version(Self::VERSION)?;
        let [flags, name_length, count] = reader.array()?;
        reader.check(flags & !DEFAULT == 0, "flags", u64::from(flags))?;
        reader.check(usize::from(count) <= Self::WRAPPINGS_MAX, "count of wrappings", u64::from(count))?;
        let name_length = usize::from(name_length);
        reader.check((1..=Self::NAME_BYTES_MAX).contains(&name_length), "name length", name_length as u64)?;
        let number = reader.u16()?;
        reader.check(number >= 1, "number", 0)?;
        reader.zeros(2)?;
        let made_seconds = reader.u64()? as i64;
        let name = reader.name(name_length, "name")?;
        let wrapped = (0..count).map(|_| WrappedKey::read(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        reader.finish()?;
        Ok(Self { number, name, is_default: flags & DEFAULT != 0, made_seconds, wrapped })
    }
}
