//! Telling where the bytes of a range lie, for a machine that reads them from the devices itself.
//!
//! Nothing holds what is told in place: whoever reads there compares checksums, and asks for the bytes where they differ. So only what
//! has them is told of, and only what is on devices by now. Small reads are answered with their bytes. Read next: `read.rs`, the format's
//! `content_map.rs`, the crate `direct`.

use stere_format::{ChecksumKind, ContentMap, MAPPED_BYTES_MAX, MappedPiece, SegmentChunks};
use stere_store::Piece;

use crate::context::Context;
use crate::error::Error;
use crate::read::{Located, ReadOutcome, Reader};
use crate::record::RECORD_BYTES;
use crate::state::{Content, State};

/// What is shorter costs less as bytes than as a map and two ways.
pub const MAPPED_BYTES_MIN: usize = 64 << 10;

impl Reader {
    /// Reads at `offset`, or tells where the bytes lie.
    pub fn read_or_map(
        &self,
        context: &Context<'_>,
        inode: u64,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(ReadOutcome, Option<ContentMap>), Error> {
        if (MAPPED_BYTES_MIN..=MAPPED_BYTES_MAX as usize).contains(&out.len())
            && let Some((outcome, map)) = self.map(context, inode, offset, out.len())?
        {
            return Ok((outcome, Some(map)));
        }
        Ok((self.read(context, inode, offset, out)?, None))
    }

    /// Where a range lies, if all of it can be read there and it is worth it.
    fn map(
        &self,
        context: &Context<'_>,
        inode: u64,
        offset: u64,
        length_max: usize,
    ) -> Result<Option<(ReadOutcome, ContentMap)>, Error> {
        let range = (inode, offset, length_max);
        match self.table.find(inode) {
            Some(held) => self.map_stored(context, range, Some(&*held.read(context.io)?)),
            None => self.map_stored(context, range, None),
        }
    }

    /// The same, with what is in memory of the file.
    fn map_stored(
        &self,
        context: &Context<'_>,
        (inode, offset, length_max): (u64, u64, usize),
        state: Option<&State>,
    ) -> Result<Option<(ReadOutcome, ContentMap)>, Error> {
        let content = state.and_then(|state| state.content.as_ref());
        if content.is_some_and(|content| is_dirty_in(content, offset, length_max as u64)) {
            return Ok(None);
        }
        let Located { value, length, pieces } = self.locate(context.io, inode, offset, length_max, state)?;
        let bytes: usize = pieces.iter().map(|piece| piece.length as usize).sum();
        if bytes < MAPPED_BYTES_MIN / 2 || !pieces.iter().all(|piece| self.is_mappable(piece)) {
            return Ok(None);
        }
        let Some(map) = map_of(length, &pieces) else { return Ok(None) };
        self.store.tier.heat.note_use(&pieces, context.now.seconds);
        Ok(Some((ReadOutcome { length, value }, map)))
    }

    /// Whether a piece lies on devices, with checksums, and needs no key and nobody's plugin.
    fn is_mappable(&self, piece: &Piece) -> bool {
        let (blob, value) = (&piece.blob, &*piece.blob.value);
        let is_readable = value.encoding.is_known() && !value.encoding.is_encrypted() && !value.encoding.is_plugged();
        let arrived = || self.store.log().rows.arrived_blocks(&blob.segment);
        is_readable
            && value.checksums.kind() != ChecksumKind::None
            && !blob.is_released()
            && value.address.row_block < arrived()
    }
}

/// Whether something of a range is in memory only.
fn is_dirty_in(content: &Content, offset: u64, length: u64) -> bool {
    content.records.range(offset / RECORD_BYTES..=offset.saturating_add(length) / RECORD_BYTES).next().is_some()
}

/// The map of these pieces; none where a segment has no place by now.
fn map_of(length: usize, pieces: &[Piece]) -> Option<ContentMap> {
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
