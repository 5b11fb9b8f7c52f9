//! Deterministic, incompressible file content in blocks of 4 KiB that name themselves.
//!
//! A block is a stretch of a random pool, stamped with seed, file, index and generation: two blocks are never equal, and a
//! block at the wrong place or of an older generation is told from the right one. Filling costs one memcpy, so that the
//! generator does not show in the figures.

#[cfg(test)]
mod tests;

pub const BLOCK_SIZE: usize = 4096;
const POOL_BLOCKS: u64 = 2048;
const STAMP_SIZE: usize = 32;

/// Splitmix64: small, good enough for data and orders, and the same on every machine.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed ^ 0x5742_4A91_0C33_D6E7)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "below() needs a bound of at least 1");
        self.next() % bound
    }

    /// A random order of 0..count.
    pub fn permutation(&mut self, count: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..count).collect();
        for index in (1..order.len()).rev() {
            let other = self.below(index as u64 + 1) as usize;
            order.swap(index, other);
        }
        order
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

pub struct Pattern {
    seed: u64,
    pool: Vec<u8>,
}

impl Pattern {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut pool = Vec::with_capacity(POOL_BLOCKS as usize * BLOCK_SIZE);
        while pool.len() < POOL_BLOCKS as usize * BLOCK_SIZE {
            pool.extend_from_slice(&random.next().to_le_bytes());
        }
        Pattern { seed, pool }
    }

    /// Fills `out`, a whole number of blocks, with the content of `file` from block `first_block` on.
    pub fn fill(&self, file: u64, first_block: u64, generation: u64, out: &mut [u8]) {
        assert_eq!(out.len() % BLOCK_SIZE, 0, "content is made in whole blocks");
        for (index, block) in out.chunks_exact_mut(BLOCK_SIZE).enumerate() {
            let number = first_block + index as u64;
            block.copy_from_slice(self.body(file, number));
            block[..STAMP_SIZE].copy_from_slice(&self.stamp(file, number, generation));
        }
    }

    /// Compares the stamps only: cheap enough for a timed loop.
    pub fn check_stamps(&self, file: u64, first_block: u64, generation: u64, data: &[u8]) -> Result<(), String> {
        for (index, block) in data.chunks_exact(BLOCK_SIZE).enumerate() {
            let number = first_block + index as u64;
            if block[..STAMP_SIZE] != self.stamp(file, number, generation) {
                return Err(format!(
                    "block {number} of file {file} does not carry its stamp of generation {generation}"
                ));
            }
        }
        Ok(())
    }

    /// Compares every byte.
    pub fn check_all(&self, file: u64, first_block: u64, generation: u64, data: &[u8]) -> Result<(), String> {
        self.check_stamps(file, first_block, generation, data)?;
        for (index, block) in data.chunks_exact(BLOCK_SIZE).enumerate() {
            let number = first_block + index as u64;
            if block[STAMP_SIZE..] != self.body(file, number)[STAMP_SIZE..] {
                return Err(format!("block {number} of file {file} has the right stamp and other bytes"));
            }
        }
        Ok(())
    }

    fn body(&self, file: u64, block: u64) -> &[u8] {
        let start = (mix(file.rotate_left(32) ^ block) % POOL_BLOCKS) as usize * BLOCK_SIZE;
        &self.pool[start..start + BLOCK_SIZE]
    }

    fn stamp(&self, file: u64, block: u64, generation: u64) -> [u8; STAMP_SIZE] {
        let mut stamp = [0; STAMP_SIZE];
        for (slot, value) in stamp.chunks_exact_mut(8).zip([mix(self.seed), file, block, generation]) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        stamp
    }
}
