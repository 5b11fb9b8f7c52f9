//! Blocks of files: their size, and where the last may end.

use stere_format::BLOCK_BYTES;

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// Behind every extent.
pub(crate) const END: u64 = 1 << 62;
