//! Everything that can go wrong between a segment and its devices.

use stere_device::DeviceError;
use stere_format::{ChunkPlace, DecodeError, DeviceIndex, Scheme};

#[derive(Debug, Clone, thiserror::Error)]
pub enum StripeError {
    #[error(
        "no room for another {scheme} segment: {segments_free} could still be placed, {segments_kept} of them are kept \
         back; delete something, wait for the cleaner, or add a device"
    )]
    NoSpace { scheme: Scheme, segments_free: u64, segments_kept: u64 },

    #[error("a {scheme} segment needs {} devices, {present} are there; bring the others back or add one", scheme.width())]
    TooFewDevices { scheme: Scheme, present: usize },

    #[error("device {index} is not there; bring it back or let the pool repair without it")]
    Absent { index: DeviceIndex },

    #[error("slot {} of device {} is used by two segments; run `stere check`", place.slot, place.device)]
    SlotUsedTwice { place: ChunkPlace },

    #[error("slot {} lies beyond the {slot_count} slots of device {}; run `stere check`", place.slot, place.device)]
    SlotOutOfRange { place: ChunkPlace, slot_count: u32 },

    #[error("device {index} has chunks of {found} bytes, the pool has {expected}; this device belongs to another pool")]
    ChunkBytes { index: DeviceIndex, found: u32, expected: u32 },

    #[error("segment {segment}: the place of its chunks is impossible ({reason}); run `stere check`")]
    ImpossibleSegment { segment: u64, reason: &'static str },

    #[error(
        "segment {segment}: bytes {offset}..{end} of a chunk lie beyond its {chunk_bytes} bytes; run `stere check`"
    )]
    OutsideChunk { segment: u64, offset: u64, end: u64, chunk_bytes: u32 },

    #[error(
        "segment {segment}: {readable} of its chunks can be read here, {needed} are needed; bring the missing devices \
         back (chunks that failed: {failed:?})"
    )]
    TooFewChunks { segment: u64, readable: usize, needed: usize, failed: Vec<BadChunk> },

    #[error(
        "segment {segment}: the bytes do not match their checksum and no other copy or parity gives better ones; restore \
         them from a backup"
    )]
    Damaged { segment: u64, bad: Vec<BadChunk> },

    #[error("parity of a {scheme} row could not be computed: {reason}; this is a bug, please report it")]
    Parity { scheme: Scheme, reason: String },

    #[error(transparent)]
    Device(#[from] DeviceError),

    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Why a part of a chunk was not used.
#[derive(Debug, Clone)]
pub enum BadCause {
    /// The device could not read it.
    Device(DeviceError),
    /// It was read, and what it gave did not match the checksum.
    Checksum,
}

/// A part of a chunk that is bad on its device: to be counted, and repaired from what was read instead.
#[derive(Debug, Clone)]
pub struct BadChunk {
    /// Which chunk of the segment.
    pub chunk: usize,
    pub place: ChunkPlace,
    /// From the start of the chunk.
    pub chunk_offset: u64,
    pub length: usize,
    pub cause: BadCause,
}
