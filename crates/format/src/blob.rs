//! The blob map's value: where a blob's bytes are, how they are encoded, which of its 4 KiB blocks are still needed and
//! which are stored, a checksum for each stored block, and perhaps a digest of all. It is the parent of the data: nothing is believed that does
//! not match it.
//!
//! A plain blob is stored as its present blocks, one after another. An encoded blob (compressed, encrypted) is stored
//! as one piece, so all its blocks are present. Invariants: live is a subset of present; present is not empty;
//! `address.length` is exactly what present and `logical_bytes` say for plain blobs; one checksum per 4 KiB stored.

use crate::bitmap::BlockBitmap;
use crate::digest::{ChecksumKind, Checksums};
use crate::error::DecodeError;
use crate::wire::{Reader, Writer};
use crate::{Address, BLOB_LOGICAL_BYTES_MAX, BLOCK_BYTES};
use std::ops::Range;

const BLOCK: u32 = BLOCK_BYTES as u32;
const LIVE_ALL: u8 = 1;
const PRESENT_ALL: u8 = 2;

/// Properties of a blob, a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct BlobFlags(pub u8);

impl BlobFlags {
    pub const NONE: Self = Self(0);
    /// More than one extent refers, or once referred, to it.
    pub const SHARED: Self = Self(1);
    /// It is stored plain because LZ4 was tried and saved too little.
    pub const GAVE_UP_LZ4: Self = Self(2);
    /// The same with Zstandard.
    pub const GAVE_UP_ZSTD: Self = Self(4);
    const KNOWN: u8 = 7;

    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// What was done to the content before it was stored: the low three bits say how it was compressed, the next whether users' plugins
/// had it before that, the high four how it was encrypted after that. Codes that are not named here are kept and moved, but not read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct BlobEncoding(pub u8);

impl BlobEncoding {
    pub const PLAIN: Self = Self(0);
    /// One LZ4 block, without a frame.
    pub const LZ4: Self = Self(1);
    /// One Zstandard frame.
    pub const ZSTD: Self = Self(2);

    /// AES-256-GCM with an extended nonce, in the high four bits.
    pub const XAES: Self = Self(0x10);
    /// A stack of users' plugins had the content first.
    pub const PLUGGED: Self = Self(8);
    const COMPRESSIONS: u8 = 7;
    const ENCRYPTIONS: u8 = 0xf0;

    /// Whether this version can read it.
    pub const fn is_known(self) -> bool {
        self.compression().0 <= Self::ZSTD.0 && matches!(self.encryption().0, 0 | 0x10)
    }

    /// What was done before it was encrypted, and after plugins had it.
    pub const fn compression(self) -> Self {
        Self(self.0 & Self::COMPRESSIONS)
    }

    /// What was done last.
    pub const fn encryption(self) -> Self {
        Self(self.0 & Self::ENCRYPTIONS)
    }

    /// Whether users' plugins had it first.
    pub const fn is_plugged(self) -> bool {
        self.0 & Self::PLUGGED.0 != 0
    }

    /// The same, with users' plugins before it.
    pub const fn plugged(self) -> Self {
        Self(self.0 | Self::PLUGGED.0)
    }

    pub const fn is_encrypted(self) -> bool {
        self.encryption().0 != 0
    }

    /// The same, encrypted.
    pub const fn encrypted(self) -> Self {
        Self(self.0 & !Self::ENCRYPTIONS | Self::XAES.0)
    }
}

/// The value of [`crate::Key::blob`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobValue {
    pub address: Address,
    pub logical_bytes: u32,
    pub references: u32,
    pub flags: BlobFlags,
    pub encoding: BlobEncoding,
    /// Number of the key it is encrypted with; 0 if it is not.
    pub key: u16,
    /// Number of the stack of users' plugins that had it first; 0 if none had.
    pub stack: u16,
    /// Logical blocks still referenced by a file.
    pub live: BlockBitmap,
    /// Logical blocks that are stored.
    pub present: BlockBitmap,
    /// CRC32C of each stored 4 KiB, the last one of the bytes that are there, and a digest of all of them, if it has one.
    pub checksums: Checksums,
}

impl BlobValue {
    pub const VERSION: u8 = 1;
    const STRUCTURE: &'static str = "blob map entry";

    /// A blob just stored whole and plain, with one reference.
    pub fn plain(address: Address, checksums: Checksums) -> Self {
        let blocks = address.length.div_ceil(BLOCK);
        let all = BlockBitmap::full(blocks);
        Self {
            address,
            logical_bytes: address.length,
            references: 1,
            flags: BlobFlags::NONE,
            encoding: BlobEncoding::PLAIN,
            key: 0,
            stack: 0,
            live: all,
            present: all,
            checksums,
        }
    }

    /// A blob just stored whole in some encoding, with one reference.
    pub fn encoded(address: Address, checksums: Checksums, encoding: BlobEncoding, logical_bytes: u32) -> Self {
        let all = BlockBitmap::full(logical_bytes.div_ceil(BLOCK));
        let flags = BlobFlags::NONE;
        Self {
            address,
            logical_bytes,
            references: 1,
            flags,
            encoding,
            key: 0,
            stack: 0,
            live: all,
            present: all,
            checksums,
        }
    }

    /// Number of 4 KiB blocks of the content.
    #[inline]
    pub fn blocks(&self) -> u32 {
        self.logical_bytes.div_ceil(BLOCK)
    }

    #[inline]
    pub fn is_live(&self, block: u32) -> bool {
        self.live.contains(block)
    }

    /// Marks blocks dead; answers how many were live.
    pub fn kill(&mut self, blocks: Range<u32>) -> u32 {
        self.live.remove(blocks)
    }

    #[inline]
    pub fn live_blocks(&self) -> u32 {
        self.live.count()
    }

    /// Content bytes of a block: 4096 except in the last.
    pub fn block_bytes(&self, block: u32) -> u32 {
        self.logical_bytes.saturating_sub(block.saturating_mul(BLOCK)).min(BLOCK)
    }

    /// Where among the stored blocks a block of a plain blob is; also the index of its checksum.
    #[inline]
    pub fn stored_index_of_block(&self, block: u32) -> Option<u32> {
        self.present.contains(block).then(|| self.present.rank(block))
    }

    /// Where in the stored record a block of a plain blob starts.
    #[inline]
    pub fn stored_offset_of_block(&self, block: u32) -> Option<u32> {
        self.stored_index_of_block(block).map(|index| index * BLOCK)
    }

    #[inline]
    pub fn stored_bytes(&self) -> u32 {
        self.address.length
    }

    /// Bytes that the present blocks of a plain blob take.
    pub fn plain_bytes_of(&self, blocks: &BlockBitmap) -> u32 {
        let Some(last) = self.blocks().checked_sub(1) else {
            return 0;
        };
        let missing_in_last = BLOCK - self.block_bytes(last);
        blocks.count() * BLOCK - if blocks.contains(last) { missing_in_last } else { 0 }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(36 + 64 + 4 * self.checksums.len() + 32);
        self.encode_to(&mut out);
        out
    }

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        assert!((1..=BLOB_LOGICAL_BYTES_MAX).contains(&self.logical_bytes), "a blob has content, and not too much");
        assert!(self.references >= 1, "a blob that nobody refers to is deleted");
        assert!(self.live.is_subset_of(&self.present), "what is live is stored");
        let blocks = self.blocks();
        let all = BlockBitmap::full(blocks);
        let (live_all, present_all) = (self.live == all, self.present == all);
        let bitmaps = if live_all { LIVE_ALL } else { 0 } | if present_all { PRESENT_ALL } else { 0 };
        let flags = self.flags.with(self.checksums.kind().flags());
        out.extend_from_slice(&[Self::VERSION, flags.0, self.encoding.0, bitmaps]);
        self.address.encode_to(out);
        out.put_u32(self.logical_bytes);
        out.put_u32(self.references);
        if self.encoding.is_encrypted() {
            out.put_u16(self.key);
            out.put_u16(0);
        }
        if self.encoding.is_plugged() {
            out.put_u16(self.stack);
            out.put_u16(0);
        }
        if !live_all {
            self.live.encode_to(blocks, out);
        }
        if !present_all {
            self.present.encode_to(blocks, out);
        }
        self.checksums.encode_to(out);
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [flags, encoding, bitmaps] = reader.array()?;
        let kind = ChecksumKind::of_flags(flags);
        reader.check(flags & !(BlobFlags::KNOWN | ChecksumKind::FLAGS) == 0, "flags", u64::from(flags))?;
        let flags = flags & BlobFlags::KNOWN;
        reader.check(bitmaps & !(LIVE_ALL | PRESENT_ALL) == 0, "bitmap forms", u64::from(bitmaps))?;
        let address = Address::read(&mut reader)?;
        let logical_bytes = reader.u32()?;
        let possible = (1..=BLOB_LOGICAL_BYTES_MAX).contains(&logical_bytes);
        reader.check(possible, "logical length", u64::from(logical_bytes))?;
        let references = reader.u32()?;
        reader.check(references >= 1, "reference count", u64::from(references))?;
        let encoding = BlobEncoding(encoding);
        let mut key = 0;
        if encoding.is_encrypted() {
            key = reader.u16()?;
            reader.zeros(2)?;
            reader.check(key >= 1 || !encoding.is_known(), "key", u64::from(key))?;
        }
        let mut stack = 0;
        if encoding.is_plugged() {
            stack = reader.u16()?;
            reader.zeros(2)?;
            reader.check(stack >= 1 || !encoding.is_known(), "stack", u64::from(stack))?;
        }
        let blocks = logical_bytes.div_ceil(BLOCK);
        let live = read_bitmap(&mut reader, blocks, bitmaps & LIVE_ALL != 0)?;
        let present = read_bitmap(&mut reader, blocks, bitmaps & PRESENT_ALL != 0)?;
        let stored_blocks = address.length.div_ceil(BLOCK) as usize;
        let checksums = Checksums::read(&mut reader, stored_blocks, kind)?;
        let value = Self {
            address,
            logical_bytes,
            references,
            flags: BlobFlags(flags),
            encoding,
            key,
            stack,
            live,
            present,
            checksums,
        };
        value.check_bitmaps(&reader)?;
        reader.finish()?;
        Ok(value)
    }

    fn check_bitmaps(&self, reader: &Reader<'_>) -> Result<(), DecodeError> {
        let (live, present) = (u64::from(self.live.count()), u64::from(self.present.count()));
        reader.check(present >= 1, "count of present blocks", present)?;
        reader.check(self.live.is_subset_of(&self.present), "count of live blocks", live)?;
        if self.encoding == BlobEncoding::PLAIN {
            let fits = self.plain_bytes_of(&self.present) == self.address.length;
            return reader.check(fits, "stored length", u64::from(self.address.length));
        }
        reader.check(self.present.count() == self.blocks(), "count of present blocks", present)
    }
}

fn read_bitmap(reader: &mut Reader<'_>, blocks: u32, all: bool) -> Result<BlockBitmap, DecodeError> {
    let full = BlockBitmap::full(blocks);
    if all {
        return Ok(full);
    }
    let bitmap = BlockBitmap::from_bytes(reader.take(blocks.div_ceil(8) as usize)?);
    reader.check(bitmap.is_subset_of(&full), "bitmap", u64::from(bitmap.count()))?;
    // One value, one encoding: a full bitmap is always written in the short form.
    reader.check(bitmap != full, "bitmap form", u64::from(blocks))?;
    Ok(bitmap)
}

#[cfg(test)]
mod tests;
