//! Leave to store, where stored bytes are limited. Read next: `charge.rs`, `charging.rs`.

use stere_store::Error;

use crate::block::BLOCK;
use crate::charge::on_devices;
use crate::context::Context;
use crate::encoding::Storing;
use crate::grants::over;
use crate::state::Content;
use crate::write::Writer;

/// How much of a write may come, and whether it is to be saved at once.
pub(crate) struct StoredGrant {
    pub length: usize,
    pub at_once: bool,
}

impl Writer {
    /// How much of a write no limit of stored bytes refuses. Near one, what waits in memory is saved first, so that it is known what that
    /// takes; then what may be more than there is room for is cut where it can be said how much it takes, and otherwise
    /// taken as a whole while there is room at all. Not one byte: whose limit it is.
    pub(crate) fn grant_stored(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        storing: &Storing,
        range: std::ops::Range<u64>,
    ) -> Result<StoredGrant, crate::error::Error> {
        assert!(range.start < range.end, "leave is given to write something");
        let length = (range.end - range.start) as usize;
        let all = StoredGrant { length, at_once: false };
        if !self.grants.accounts.keeps_stored() {
            return Ok(all);
        }
        self.grants.accounts.note_time(context.now);
        let cost = |bytes: u64| on_devices(storing.stored_bytes_max(bytes), storing.placement.scheme);
        let Some((room, _)) = self.grants.stored_room(context.io, inode)? else { return Ok(all) };
        let blocks = range.start / BLOCK * BLOCK..range.end.next_multiple_of(BLOCK);
        let wanted = blocks.end - blocks.start;
        if cost(self.table.dirty_bytes() + wanted) <= room {
            return Ok(all);
        }
        if !context.io.may_block() {
            return Err(Error::WouldBlock.into());
        }
        self.writeback.relieve_to(context, inode, content, 0)?;
        let Some((room, holder)) = self.grants.stored_room(context.io, inode)? else { return Ok(all) };
        let is_known = storing.compression.algorithm().is_none() && storing.stack.is_none();
        let at_once = StoredGrant { length, at_once: true };
        if cost(wanted) <= room || (room > 0 && !is_known) || self.is_replacement(context, inode, &range, false)? {
            return Ok(at_once);
        }
        let part = u128::from(room) * u128::from(wanted) / u128::from(cost(wanted));
        let end = (blocks.start + part as u64) / BLOCK * BLOCK;
        match end.saturating_sub(range.start) as usize {
            0 => Err(over(holder)),
            length => Ok(StoredGrant { length, at_once: true }),
        }
    }
}
