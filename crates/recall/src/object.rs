//! A segment's object: its name, its size, and whether bytes are one. Read next: `docs/format/volume.md`.

use stere_format::{ChunkHeader, PoolId, object_name};
use stere_log::{Segment, proves_rows};

/// The name of a segment's object.
pub fn object_of(segment: &Segment) -> String {
    object_name(segment.id, segment.sequence, segment.scheme.data)
}

/// Bytes of a segment's object.
pub fn object_bytes(segment: &Segment) -> u64 {
    stere_format::object_bytes(segment.scheme.data, segment.written_blocks())
}

/// Whether these bytes are a whole and right copy of this segment.
pub fn is_object_of(pool: PoolId, segment: u64, sequence: u64, bytes: &[u8]) -> bool {
    let Some((header, content)) = bytes.split_at_checked(ChunkHeader::SIZE) else { return false };
    let is_its = |header: &ChunkHeader| (header.pool, header.segment, header.sequence) == (pool, segment, sequence);
    let header = ChunkHeader::decode(header).ok().filter(is_its);
    header.is_some_and(|header| proves_rows(pool, segment, header.place.scheme.data, content))
}
