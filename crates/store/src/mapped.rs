//! Telling another machine where pieces of blobs lie. Read next: the format's `content_map.rs`, the file's `mapped.rs`.

use stere_engine::Piece;
use stere_format::{ContentMap, MappedPiece, SegmentChunks};

/// The map of these pieces of a range of `length` bytes; none where a segment has no place by now.
pub fn map_of(length: usize, pieces: &[Piece]) -> Option<ContentMap> {
    let (mut numbers, mut segments): (Vec<u64>, Vec<SegmentChunks>) = (Vec::new(), Vec::new());
    let mut mapped = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let number = piece.blob.segment_id();
        let segment = match numbers.iter().position(|known| *known == number) {
            Some(known) => known,
            None => {
                let place = piece.blob.segment.placed();
                // Released in this moment.
                if place.chunks.is_empty() {
                    return None;
                }
                numbers.push(number);
                segments.push(SegmentChunks::clone(&place));
                numbers.len() - 1
            }
        };
        mapped.push(MappedPiece {
            at: piece.at as u32,
            offset: piece.offset,
            length: piece.length,
            segment: segment as u16,
            value: (*piece.blob.value).clone(),
        });
    }
    Some(ContentMap { length: length as u32, segments, pieces: mapped })
}
