//! On how many devices metadata shall lie, where somebody said so: kept in the pool, honoured by every mount.
//!
//! Without a wish the number is what the mount was told (`StoreOptions`), or what is usual for the devices that the pool has by now
//! if that is more: a pool that grows from one disk to two shall not lose its names with the first. What the devices that are there
//! cannot give is fitted, as for data; it follows when they come back. Read next: `placement.rs`, the engine's `places.rs`.

use stere_format::WIDTH_MAX;

/// On how many devices metadata shall lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataWish {
    All,
    Copies(u8),
}

/// Copies of metadata unless somebody says otherwise.
const METADATA_COPIES_USUAL: usize = 3;

/// Of what two copies lie on, a third is worth having only on a device of at least this part of the pool: metadata that finds
/// no room on one of its devices stops the whole pool.
const THIRD_COPY_DIVISOR: u64 = 64;

/// How many copies of metadata are usual on devices of these sizes.
pub fn usual_metadata_copies(sizes_bytes: &[u64]) -> usize {
    let needed = sizes_bytes.iter().sum::<u64>() / THIRD_COPY_DIVISOR;
    let large = sizes_bytes.iter().filter(|size| **size >= needed).count();
    large.clamp(2, METADATA_COPIES_USUAL).min(sizes_bytes.len())
}

/// How `All` is written.
const ALL: u8 = u8::MAX;

impl MetadataWish {
    /// The byte that is kept.
    pub fn code(self) -> u8 {
        match self {
            MetadataWish::All => ALL,
            MetadataWish::Copies(copies) => copies,
        }
    }

    /// Whatever is no wish is none: a later version may know more.
    pub fn from_code(code: u8) -> Option<MetadataWish> {
        match code {
            ALL => Some(MetadataWish::All),
            copies if (1..=WIDTH_MAX as u8).contains(&copies) => Some(MetadataWish::Copies(copies)),
            _ => None,
        }
    }
}
