//! A file's bytes in the model, and what a crash may make of them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

const BLOCK: usize = 4096;

/// The bytes of a file: blocks that are not there are zeros. Cloning shares blocks.
#[derive(Debug, Clone, Default)]
pub struct Content {
    size: u64,
    blocks: BTreeMap<u64, Rc<[u8; BLOCK]>>,
}

const ZEROS: [u8; BLOCK] = [0; BLOCK];

impl Content {
    /// A file of these bytes.
    pub fn of(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        content.write(0, bytes);
        content
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    fn block(&self, number: u64) -> &[u8; BLOCK] {
        self.blocks.get(&number).map_or(&ZEROS, |block| &**block)
    }

    /// Shows each block that is not all holes, whole ones of the file only.
    pub fn each_block(&self, visit: &mut dyn FnMut(&[u8])) {
        let whole = self.size / BLOCK as u64;
        self.blocks.range(..whole).for_each(|(_, block)| visit(&block[..]));
    }

    /// A number that other bytes are unlikely to have.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.size.hash(&mut hasher);
        for (number, block) in self.blocks.iter().filter(|(_, block)| block.iter().any(|byte| *byte != 0)) {
            (number, &block[..]).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Writes, growing the file as needed.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.put(offset, bytes);
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = (at % BLOCK as u64) as usize;
            let take = (BLOCK - within).min(rest.len());
            let (from, tail) = rest.split_at(take);
            let block = self.blocks.entry(at / BLOCK as u64).or_insert_with(|| Rc::new(ZEROS));
            Rc::make_mut(block)[within..within + take].copy_from_slice(from);
            (at, rest) = (at + take as u64, tail);
        }
    }

    /// Bytes from `offset` on, at most `length`, fewer at the end of the file.
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = offset.saturating_add(length).min(self.size);
        let mut out = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let within = (at % BLOCK as u64) as usize;
            let take = ((BLOCK - within) as u64).min(end - at) as usize;
            out.extend_from_slice(&self.block(at / BLOCK as u64)[within..within + take]);
            at += take as u64;
        }
        out
    }

    /// Zeros in a range, which need not lie within the file; the size stays.
    pub fn zero(&mut self, start: u64, end: u64) {
        let whole = start.div_ceil(BLOCK as u64)..end / BLOCK as u64;
        if whole.start < whole.end {
            let gone: Vec<u64> = self.blocks.range(whole.clone()).map(|(number, _)| *number).collect();
            gone.iter().for_each(|number| drop(self.blocks.remove(number)));
        }
        for (number, block) in self.blocks.range_mut(start / BLOCK as u64..end.div_ceil(BLOCK as u64)) {
            let block_start = number * BLOCK as u64;
            let from = start.max(block_start) - block_start;
            let to = end.min(block_start + BLOCK as u64) - block_start;
            if from < to {
                Rc::make_mut(block)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Sets the size; bytes that appear are zeros.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size.next_multiple_of(BLOCK as u64));
        }
        self.size = size;
    }

    /// Grows to at least this size.
    pub fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Takes a range out.
    pub fn collapse(&mut self, offset: u64, length: u64) {
        let tail = self.read(offset + length, u64::MAX);
        self.truncate(offset);
        self.write(offset, &tail);
    }

    /// Puts zeros in between.
    pub fn insert(&mut self, offset: u64, length: u64) {
        let tail = self.read(offset, u64::MAX);
        self.truncate(offset);
        self.grow(offset + length);
        self.write(offset + length, &tail);
    }

    fn block_numbers<'a>(these: impl Iterator<Item = &'a Content>) -> Vec<u64> {
        let mut numbers: Vec<u64> = these.flat_map(|content| content.blocks.keys().copied()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The first byte in which two contents differ.
    pub fn difference(&self, other: &Content) -> Option<String> {
        if self.size != other.size {
            return Some(format!("the size is {} instead of {}", other.size, self.size));
        }
        for number in Content::block_numbers([self, other].into_iter()) {
            let (mine, theirs) = (self.block(number), other.block(number));
            if mine == theirs {
                continue;
            }
            let start = number * BLOCK as u64;
            let within = (0..BLOCK).find(|index| mine[*index] != theirs[*index] && start + (*index as u64) < self.size);
            if let Some(within) = within {
                let at = start + within as u64;
                return Some(format!("byte {at} is {:#04x} instead of {:#04x}", theirs[within], mine[within]));
            }
        }
        None
    }

    /// Whether this may be what a crash left, when the file had the states `held` since it was last made durable: each byte is
    /// one that the file held there; zeros only where some state had a zero or ended before.
    pub fn may_remain_of(&self, held: &[Rc<Content>]) -> Result<(), String> {
        let size_min = held.iter().map(|content| content.size).min().unwrap_or(0);
        let size_max = held.iter().map(|content| content.size).max().unwrap_or(0);
        if self.size < size_min || self.size > size_max {
            return Err(format!("the size is {}, but was between {size_min} and {size_max}", self.size));
        }
        let all = held.iter().map(|content| &**content).chain([self]);
        for number in Content::block_numbers(all) {
            let start = number * BLOCK as u64;
            if start >= self.size {
                break;
            }
            let mine = self.block(number);
            if held.iter().any(|content| content.block(number) == mine) {
                continue;
            }
            for (within, byte) in mine.iter().enumerate().take((self.size - start).min(BLOCK as u64) as usize) {
                // Behind the end of a state its block holds zeros, so a zero is found there too.
                if !held.iter().any(|content| content.block(number)[within] == *byte) {
                    let at = start + within as u64;
                    let had: Vec<u8> = held.iter().map(|content| content.block(number)[within]).collect();
                    return Err(format!("byte {at} is {byte:#04x}, but the file held only {had:02x?} there"));
                }
            }
        }
        Ok(())
    }

    /// Where the next byte that is not zero is.
    pub fn next_nonzero(&self, offset: u64) -> Option<u64> {
        for (number, block) in self.blocks.range(offset / BLOCK as u64..) {
            let start = number * BLOCK as u64;
            let found = (0..BLOCK).find(|index| start + *index as u64 >= offset && block[*index] != 0);
            if let Some(within) = found {
                return Some(start + within as u64);
            }
        }
        None
    }
}

/// Bytes that tell where they come from: no zero among them, and hardly two writes alike. Of every other seed each word comes four
/// times, so that it becomes smaller where it is compressed.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = crate::random::Random::new(seed.wrapping_mul(0x0001_0001));
    let mut bytes = Vec::with_capacity(length + 32);
    while bytes.len() < length {
        let word = random.next_u64().to_le_bytes().map(|byte| byte | 1);
        let times = if seed & 1 == 0 { 4 } else { 1 };
        (0..times).for_each(|_| bytes.extend_from_slice(&word));
    }
    bytes.truncate(length);
    bytes
}

#[cfg(test)]
mod tests;
