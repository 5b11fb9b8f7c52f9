//! Content that tells what it is: in each block of 4 KiB the file, the block's index in it, the number of the write and its writer, and a
//! body that follows from these. Read next: `order.rs`.

pub const BLOCK: usize = 4096;
const MAGIC: u64 = 0x5354_4552_4543_4F48;
const HEAD: usize = 40;

/// Memory for reads and writes past the page cache, which wants it aligned.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    pub fn new(length: usize) -> Buffer {
        let bytes = vec![0; length + BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Buffer { bytes, start, length }
    }

    pub fn bytes(&mut self, length: usize) -> &mut [u8] {
        assert!(length <= self.length, "a buffer is as long as the longest read");
        &mut self.bytes[self.start..self.start + length]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub file: u64,
    pub index: u64,
    pub write: u64,
    pub writer: u64,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Empty,
    Stamped(Stamp),
    /// Stamped at its beginning, and of something else behind this many bytes.
    Torn(Stamp, usize),
    Unknown,
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl Stamp {
    fn head(&self) -> [u64; HEAD / 8] {
        [MAGIC, self.file, self.index, self.write, self.writer]
    }

    /// The word at this place of the body.
    fn word(seed: u64, place: usize) -> [u8; 8] {
        seed.wrapping_add(place as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
    }

    fn seed(&self) -> u64 {
        self.head().iter().fold(0, |seed, word| mix(seed ^ word))
    }

    pub fn fill(&self, block: &mut [u8]) {
        let seed = self.seed();
        for (slot, word) in block.chunks_exact_mut(8).zip(self.head()) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        for (place, slot) in block[HEAD..].chunks_exact_mut(8).enumerate() {
            slot.copy_from_slice(&Stamp::word(seed, place));
        }
    }
}

impl Content {
    pub fn of(block: &[u8]) -> Content {
        let word =
            |number: usize| block[number * 8..][..8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        if word(0) != MAGIC {
            let is_empty = block.iter().all(|byte| *byte == 0);
            return if is_empty { Content::Empty } else { Content::Unknown };
        }
        let stamp = Stamp { file: word(1), index: word(2), write: word(3), writer: word(4) };
        let seed = stamp.seed();
        let mut body = block[HEAD..].chunks_exact(8).enumerate();
        match body.position(|(place, slot)| slot != Stamp::word(seed, place)) {
            None => Content::Stamped(stamp),
            Some(place) => Content::Torn(stamp, HEAD + place * 8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { file: 1, index: 2, write: 3, writer: 4 };

    #[test]
    fn a_block_tells_what_it_is_and_where_it_is_torn() {
        let (mut block, mut other) = ([0; BLOCK], [0; BLOCK]);
        assert_eq!(Content::of(&block), Content::Empty);
        STAMP.fill(&mut block);
        assert_eq!(Content::of(&block), Content::Stamped(STAMP));
        Stamp { write: 5, ..STAMP }.fill(&mut other);
        block[1024..].copy_from_slice(&other[1024..]);
        assert_eq!(Content::of(&block), Content::Torn(STAMP, 1024));
        block[..8].fill(0);
        assert_eq!(Content::of(&block), Content::Unknown);
    }

    #[test]
    fn a_buffer_is_aligned() {
        let mut buffer = Buffer::new(3 * BLOCK);
        assert_eq!(buffer.bytes(2 * BLOCK).as_ptr() as usize % BLOCK, 0);
        assert_eq!(buffer.bytes(3 * BLOCK).len(), 3 * BLOCK);
    }
}
