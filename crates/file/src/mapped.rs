//! Telling where the bytes of a range lie, for a machine that reads them from the devices itself.
//!
//! Nothing holds what is told in place: whoever reads there compares checksums, and asks for the bytes where they differ. So only what
//! has them is told of, and only what is on devices by now. Small reads are answered with their bytes. Read next: `read.rs`, the format's
//! `content_map.rs`, the crate `direct`.

use stere_format::{ChecksumKind, ContentMap, MAPPED_BYTES_MAX};
use stere_store::{Piece, map_of};

use crate::context::Context;
use crate::error::Error;
use crate::read::{Located, ReadOutcome, Reader};
use crate::record::RECORD_BYTES;
use crate::state::{Content, State};

/// What is shorter costs less as bytes than as a map and two ways.
pub const MAPPED_BYTES_MIN: usize = 64 << 10;

impl Reader {
    /// Reads at `offset`, or tells where the bytes lie; those of encrypted content only to whoever `has_keys`.
    pub fn read_or_map(
        &self,
        context: &Context<'_>,
        inode: u64,
        offset: u64,
        has_keys: bool,
        out: &mut [u8],
    ) -> Result<(ReadOutcome, Option<ContentMap>), Error> {
        if (MAPPED_BYTES_MIN..=MAPPED_BYTES_MAX as usize).contains(&out.len())
            && let Some((outcome, map)) = self.map(context, (inode, offset, out.len()), has_keys)?
        {
            return Ok((outcome, Some(map)));
        }
        Ok((self.read(context, inode, offset, out)?, None))
    }

    /// Where a range lies, if all of it can be read there and it is worth it.
    fn map(
        &self,
        context: &Context<'_>,
        range: (u64, u64, usize),
        has_keys: bool,
    ) -> Result<Option<(ReadOutcome, ContentMap)>, Error> {
        match self.table.find(range.0) {
            Some(held) => self.map_stored(context, range, has_keys, Some(&*held.read(context.io)?)),
            None => self.map_stored(context, range, has_keys, None),
        }
    }

    /// The same, with what is in memory of the file.
    fn map_stored(
        &self,
        context: &Context<'_>,
        (inode, offset, length_max): (u64, u64, usize),
        has_keys: bool,
        state: Option<&State>,
    ) -> Result<Option<(ReadOutcome, ContentMap)>, Error> {
        let content = state.and_then(|state| state.content.as_ref());
        if content.is_some_and(|content| is_dirty_in(content, offset, length_max as u64)) {
            return Ok(None);
        }
        let Located { value, length, pieces } = self.locate(context.io, inode, offset, length_max, state)?;
        let bytes: usize = pieces.iter().map(|piece| piece.length as usize).sum();
        if bytes < MAPPED_BYTES_MIN / 2 || !pieces.iter().all(|piece| self.is_mappable(piece, has_keys)) {
            return Ok(None);
        }
        let Some(map) = map_of(length, &pieces) else { return Ok(None) };
        self.store.tier.heat.note_use(&pieces, context.now.seconds);
        Ok(Some((ReadOutcome { length, value }, map)))
    }

    /// Whether a piece lies on devices, with checksums, and needs no plugin that cannot be run and no key that this machine or the other
    /// may not use.
    fn is_mappable(&self, piece: &Piece, has_keys: bool) -> bool {
        let (blob, value) = (&piece.blob, &*piece.blob.value);
        let is_open = || !value.encoding.is_encrypted() || (has_keys && self.codec.may_open(value.key));
        let is_undone = || !value.encoding.is_plugged() || self.codec.may_undo(value.stack);
        let is_readable = value.encoding.is_known() && is_open() && is_undone();
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
