//! One bit for each 4 KiB block of a blob: at most 256, inline.

use std::ops::Range;

/// A set of block numbers below 256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockBitmap([u64; 4]);

impl BlockBitmap {
    pub const BLOCKS_MAX: u32 = 256;
    pub const EMPTY: Self = Self([0; 4]);

    /// The blocks below `blocks`.
    pub fn full(blocks: u32) -> Self {
        let mut bitmap = Self::EMPTY;
        bitmap.insert(0..blocks);
        bitmap
    }

    #[inline]
    pub fn contains(&self, block: u32) -> bool {
        block < Self::BLOCKS_MAX && self.0[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// The bits of `range` that fall in word `word`.
    #[inline]
    fn mask(range: &Range<u32>, word: usize) -> u64 {
        let base = word as u32 * 64;
        let start = range.start.clamp(base, base + 64) - base;
        let end = range.end.clamp(base, base + 64) - base;
        if start >= end {
            return 0;
        }
        (u64::MAX >> (64 - (end - start))) << start
    }

    pub fn insert(&mut self, range: Range<u32>) {
        for (word, bits) in self.0.iter_mut().enumerate() {
            *bits |= Self::mask(&range, word);
        }
    }

    /// Removes a range; answers how many blocks of it were there.
    pub fn remove(&mut self, range: Range<u32>) -> u32 {
        let mut removed = 0;
        for (word, bits) in self.0.iter_mut().enumerate() {
            let mask = Self::mask(&range, word);
            removed += (*bits & mask).count_ones();
            *bits &= !mask;
        }
        removed
    }

    #[inline]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|bits| bits.count_ones()).sum()
    }

    /// How many blocks below `block` are in the set.
    #[inline]
    pub fn rank(&self, block: u32) -> u32 {
        let range = 0..block;
        self.0.iter().enumerate().map(|(word, bits)| (bits & Self::mask(&range, word)).count_ones()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(own, others)| own & !others == 0)
    }

    /// The blocks in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..Self::BLOCKS_MAX).filter(|block| self.contains(*block))
    }

    /// The first bytes, enough for `blocks` blocks.
    pub(crate) fn encode_to(&self, blocks: u32, out: &mut Vec<u8>) {
        let mut bytes = [0; 32];
        for (word, bits) in self.0.iter().enumerate() {
            bytes[word * 8..word * 8 + 8].copy_from_slice(&bits.to_le_bytes());
        }
        out.extend_from_slice(&bytes[..blocks.div_ceil(8) as usize]);
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut bitmap = Self::EMPTY;
        for (at, byte) in bytes.iter().enumerate().take(32) {
            bitmap.0[at / 8] |= u64::from(*byte) << (at % 8 * 8);
        }
        bitmap
    }
}

impl std::fmt::Debug for BlockBitmap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
