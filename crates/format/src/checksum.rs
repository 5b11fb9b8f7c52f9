//! CRC32C (Castagnoli), the checksum of every structure and of every 4 KiB block of plain data, and how the checksum
//! of a whole record follows from the checksums of its blocks without reading the data again.

use crate::{BLOCK_BYTES, ChecksumKind, Checksums};

/// CRC32C of these bytes. In the build for benches that shows what checksums cost it is 0 of anything, and an ordinary build
/// refuses what such a one wrote.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if cfg!(feature = "unchecked") { 0 } else { crc_fast::crc32_iscsi(bytes) }
}

/// One checksum for each 4 KiB; the last covers only the bytes that are there.
pub fn block_checksums(data: &[u8]) -> Checksums {
    Checksums::of(ChecksumKind::Crc32c, data)
}

/// The checksum of a whole record of `length` bytes from those of its blocks.
pub fn record_checksum(checksums: &[u32], length: usize) -> u32 {
    assert_eq!(checksums.len(), length.div_ceil(BLOCK_BYTES), "one checksum per block");
    let full = length / BLOCK_BYTES;
    let mut whole = 0;
    for checksum in &checksums[..full] {
        whole = shift_block(whole) ^ checksum;
    }
    if full < checksums.len() {
        whole = shift(whole, length % BLOCK_BYTES) ^ checksums[full];
    }
    whole
}

/// The checksum as if fewer than 4096 zero bytes followed, without making an operator for each length: that is what a
/// general combination spends most of its time on.
fn shift(checksum: u32, zero_bytes: usize) -> u32 {
    assert!(zero_bytes < BLOCK_BYTES, "only the last block is short");
    let needed = (0..POWERS.len()).filter(|power| zero_bytes >> power & 1 == 1);
    needed.fold(checksum, |shifted, power| apply(&POWERS[power], shifted))
}

/// The checksum as if 4096 zero bytes followed (without the final complement): linear, so four look-ups.
fn shift_block(checksum: u32) -> u32 {
    let bytes = checksum.to_le_bytes();
    SHIFT[0][bytes[0] as usize]
        ^ SHIFT[1][bytes[1] as usize]
        ^ SHIFT[2][bytes[2] as usize]
        ^ SHIFT[3][bytes[3] as usize]
}

static SHIFT: [[u32; 256]; 4] = shift_tables();

/// Where each single bit ends up after 1, 2, 4 and so on up to 2048 zero bytes.
static POWERS: [[u32; 32]; BLOCK_BYTES.ilog2() as usize] = powers();

const fn powers() -> [[u32; 32]; BLOCK_BYTES.ilog2() as usize] {
    let one_zero_byte = square(&square(&square(&one_zero_bit())));
    let mut powers = [one_zero_byte; BLOCK_BYTES.ilog2() as usize];
    let mut power = 1;
    while power < powers.len() {
        powers[power] = square(&powers[power - 1]);
        power += 1;
    }
    powers
}

/// Where each single bit ends up after 4096 zero bytes, then the sums of them for every byte value.
const fn shift_tables() -> [[u32; 256]; 4] {
    let mut operator = one_zero_bit();
    let mut squarings = 0;
    while squarings < (BLOCK_BYTES * 8).ilog2() {
        operator = square(&operator);
        squarings += 1;
    }
    let mut tables = [[0; 256]; 4];
    let mut index = 0;
    while index < 4 * 256 {
        let (byte, value) = (index / 256, index % 256);
        tables[byte][value] = apply(&operator, (value as u32) << (8 * byte));
        index += 1;
    }
    tables
}

const fn one_zero_bit() -> [u32; 32] {
    const POLYNOMIAL_REFLECTED: u32 = 0x82f6_3b78;
    let mut operator = [0; 32];
    operator[0] = POLYNOMIAL_REFLECTED;
    let mut bit = 1;
    while bit < 32 {
        operator[bit] = 1 << (bit - 1);
        bit += 1;
    }
    operator
}

const fn apply(operator: &[u32; 32], vector: u32) -> u32 {
    let mut sum = 0;
    let mut bit = 0;
    while bit < 32 {
        if vector >> bit & 1 == 1 {
            sum ^= operator[bit];
        }
        bit += 1;
    }
    sum
}

const fn square(operator: &[u32; 32]) -> [u32; 32] {
    let mut squared = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        squared[bit] = apply(operator, operator[bit]);
        bit += 1;
    }
    squared
}

#[cfg(test)]
mod tests;
