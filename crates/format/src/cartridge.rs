//! What lies on a cartridge of a tape library: blocks that each say whose they are and what they hold, and indexes of them.
//!
//! A cartridge is a row of tape files, each ended by a filemark: first the label, then objects and indexes as they came. Every block
//! starts with a [`CartridgeBlock`], so any block that can be read tells cartridge, object and place in it by itself. Nothing is written
//! over, but for a whole cartridge, which is written again from its beginning under a new generation: blocks of another generation than
//! the label's are remains and never count. Of several objects of one name that with the highest ordinal counts. The pages are in
//! `docs/format/cartridge.md`.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer, seal, sealed};

/// What a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CartridgeKind {
    /// The first file of a cartridge: a few lines for people; the block's fields say it for programs.
    Label,
    Object,
    /// Lists the objects before it that count; those that it does not list are dead.
    Index,
}

impl CartridgeKind {
    fn code(self) -> u8 {
        match self {
            Self::Label => 1,
            Self::Object => 2,
            Self::Index => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Label, Self::Object, Self::Index].into_iter().find(|kind| kind.code() == code)
    }
}

/// The first bytes of every block; the payload follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CartridgeBlock {
    pub kind: CartridgeKind,
    pub payload_bytes: u32,
    /// What blocks of this object hold, all but the last.
    pub unit_bytes: u32,
    pub payload_crc32c: u32,
    /// Grows with every object and index that is written to any cartridge of the set; zero for labels.
    pub ordinal: u64,
    pub object_bytes: u64,
    /// Where in the object the payload lies.
    pub offset: u64,
    /// Zero until the cartridge is written again from its beginning, then larger each time; blocks that have another one than the label of
    /// their cartridge are remains of before.
    pub generation: u64,
    /// Cartridges that belong together.
    pub set: String,
    /// What is printed on the cartridge.
    pub barcode: String,
    /// The object's name; empty for labels and indexes.
    pub name: String,
}

impl CartridgeBlock {
    pub const SIZE: usize = 512;
    pub const MAGIC: &'static [u8; 8] = b"STERTAPE";
    /// Of blocks on cartridges that were written again; those of the first generation are of version 1, as before there were others.
    pub const VERSION: u16 = 2;
    const VERSION_FIRST: u16 = 1;
    /// Largest payload of a block.
    pub const UNIT_BYTES_MAX: u32 = (1 << 20) - Self::SIZE as u32;
    pub const UNIT_BYTES_MIN: u32 = 512;
    /// Texts with their length byte.
    const SET_SIZE: usize = 64;
    const BARCODE_SIZE: usize = 64;
    const NAME_SIZE: usize = 256;
    /// Longest texts.
    pub const SET_BYTES_MAX: usize = Self::SET_SIZE - 1;
    pub const BARCODE_BYTES_MAX: usize = Self::BARCODE_SIZE - 1;
    pub const NAME_BYTES_MAX: usize = Self::NAME_SIZE - 1;
    const STRUCTURE: &'static str = "block on a cartridge";

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.is_consistent(), "only blocks that are decoded again are written: {self:?}");
        let mut out = Self::MAGIC.to_vec();
        out.put_u16(if self.generation == 0 { Self::VERSION_FIRST } else { Self::VERSION });
        out.put_u8(self.kind.code());
        out.put_u8(0);
        out.put_u32(self.payload_bytes);
        out.put_u32(self.unit_bytes);
        out.put_u32(self.payload_crc32c);
        out.put_u64(self.ordinal);
        out.put_u64(self.object_bytes);
        out.put_u64(self.offset);
        out.put_u64(self.generation);
        out.put_zeros(8);
        out.put_text_field(Self::SET_SIZE, &self.set);
        out.put_text_field(Self::BARCODE_SIZE, &self.barcode);
        out.put_text_field(Self::NAME_SIZE, &self.name);
        seal(&mut out, 0, Self::SIZE);
        out
    }

    /// Decodes what starts a block; the payload is proven by [`Self::payload_of`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let structure = Self::STRUCTURE;
        if bytes.len() >= Self::MAGIC.len() && !bytes.starts_with(Self::MAGIC) {
            return Err(DecodeError::BadMagic { structure });
        }
        let body = sealed(structure, bytes, Self::SIZE)?;
        let mut reader = Reader::new(structure, body);
        reader.magic(Self::MAGIC)?;
        let found = reader.u16()?;
        if !(Self::VERSION_FIRST..=Self::VERSION).contains(&found) {
            return Err(DecodeError::UnsupportedVersion { structure, found, supported: Self::VERSION });
        }
        let kind = reader.u8()?;
        let kind = CartridgeKind::from_code(kind).ok_or_else(|| reader.out_of_range("kind", u64::from(kind)))?;
        reader.zeros(1)?;
        let (payload_bytes, unit_bytes, payload_crc32c) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (ordinal, object_bytes, offset) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let generation = reader.u64()?;
        let is_likely = (generation > 0) == (found == Self::VERSION) && generation < u64::MAX >> 1;
        reader.check(is_likely, "generation", generation)?;
        reader.zeros(8)?;
        let set = reader.text_field(Self::SET_SIZE, "set")?;
        let barcode = reader.text_field(Self::BARCODE_SIZE, "bar code")?;
        let name = reader.text_field(Self::NAME_SIZE, "name")?;
        reader.zeros(reader.rest().len())?;
        let block = Self {
            kind,
            payload_bytes,
            unit_bytes,
            payload_crc32c,
            ordinal,
            object_bytes,
            offset,
            generation,
            set,
            barcode,
            name,
        };
        match block.is_consistent() {
            true => Ok(block),
            false => Err(DecodeError::OutOfRange { structure, field: "place in its object", value: offset }),
        }
    }

    fn is_consistent(&self) -> bool {
        let is_unit = (Self::UNIT_BYTES_MIN..=Self::UNIT_BYTES_MAX).contains(&self.unit_bytes);
        if !is_unit || self.offset % u64::from(self.unit_bytes) != 0 || self.offset > self.object_bytes {
            return false;
        }
        let payload = (self.object_bytes - self.offset).min(u64::from(self.unit_bytes));
        // Only an empty object has a block without a payload.
        let is_payload = u64::from(self.payload_bytes) == payload && (payload > 0 || self.object_bytes == 0);
        let has_name = self.name.is_empty() != (self.kind == CartridgeKind::Object);
        let has_ordinal = (self.ordinal > 0) == (self.kind != CartridgeKind::Label);
        let is_set = !self.set.is_empty() && self.set.len() <= Self::SET_BYTES_MAX;
        let is_named = self.barcode.len() <= Self::BARCODE_BYTES_MAX && self.name.len() <= Self::NAME_BYTES_MAX;
        is_payload && has_name && has_ordinal && is_set && is_named
    }

    /// How many blocks an object of so many bytes has: at least one.
    pub fn blocks_of(object_bytes: u64, unit_bytes: u32) -> u64 {
        object_bytes.div_ceil(u64::from(unit_bytes)).max(1)
    }

    /// The payload that follows this header in a block, proven.
    pub fn payload_of<'a>(&self, block: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let (structure, need) = (Self::STRUCTURE, Self::SIZE + self.payload_bytes as usize);
        let Some(payload) = block.get(Self::SIZE..need) else {
            return Err(DecodeError::Truncated { structure, need, have: block.len() });
        };
        if block.len() > need {
            return Err(DecodeError::TrailingBytes { structure, extra: block.len() - need });
        }
        let computed = crate::crc32c(payload);
        match computed == self.payload_crc32c {
            true => Ok(payload),
            false => Err(DecodeError::Checksum { structure, stored: self.payload_crc32c, computed }),
        }
    }
}

/// An object that an index lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CartridgeEntry {
    /// Which file of the cartridge it is; the label is file 0.
    pub file: u32,
    pub unit_bytes: u32,
    pub ordinal: u64,
    pub object_bytes: u64,
    pub name: String,
}

/// What an index says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CartridgeIndex {
    /// Files of the cartridge before the index: it is itself the file of this number.
    pub files: u32,
    /// In the order of their files.
    pub entries: Vec<CartridgeEntry>,
}

impl CartridgeIndex {
    pub const VERSION: u8 = 1;
    /// Up to the entries, and an entry without its name.
    pub const FIXED_BYTES: usize = 12;
    pub const ENTRY_FIXED_BYTES: usize = 24;
    const STRUCTURE: &'static str = "index of a cartridge";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![Self::VERSION, 0, 0, 0];
        out.put_u32(self.files);
        out.put_u32(self.entries.len() as u32);
        for entry in &self.entries {
            assert!(!entry.name.is_empty() && entry.name.len() <= CartridgeBlock::NAME_BYTES_MAX);
            out.put_u32(entry.file);
            out.put_u32(entry.unit_bytes);
            out.put_u64(entry.ordinal);
            out.put_u64(entry.object_bytes);
            out.put_text(&entry.name, CartridgeBlock::NAME_BYTES_MAX);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(3)?;
        let (files, count) = (reader.u32()?, reader.u32()?);
        let mut entries = Vec::new();
        // The label is a file, too.
        let mut least = 1;
        for _ in 0..count {
            let (file, unit_bytes) = (reader.u32()?, reader.u32()?);
            let (ordinal, object_bytes) = (reader.u64()?, reader.u64()?);
            let name = reader.text("name")?;
            reader.check((least..files).contains(&file), "file", u64::from(file))?;
            let units = CartridgeBlock::UNIT_BYTES_MIN..=CartridgeBlock::UNIT_BYTES_MAX;
            reader.check(units.contains(&unit_bytes), "unit", u64::from(unit_bytes))?;
            reader.check(ordinal > 0, "ordinal", ordinal)?;
            reader.check(!name.is_empty(), "name", 0)?;
            least = file + 1;
            entries.push(CartridgeEntry { file, unit_bytes, ordinal, object_bytes, name });
        }
        reader.finish()?;
        Ok(Self { files, entries })
    }
}

const _: () = assert!(CartridgeBlock::SIZE == 64 + 64 + 64 + 256 + 60 + 4);
