//! Room that is given back or made when somebody asks for it: slots of what was emptied, and what lies below the devices.
//!
//! Read next: `space.rs`, `make_room.rs`.

use std::sync::atomic::Ordering;

use stere_log::Io;

use crate::error::Error;
use crate::space::Capacity;

/// Of all there is, such a part that was emptied is worth a flush to somebody who asks how much is free.
const EMPTIED_DIVISOR: u64 = 128;

impl Capacity<'_> {
    /// Gives what is free back to what lies below the devices (TRIM, holes), at most so many slots of each; how many that were.
    pub fn discard_freed(&self, slots_max: usize) -> Result<usize, Error> {
        self.engine.check_writable()?;
        let change = {
            let inner = self.engine.inner.read();
            (!inner.freed.is_empty() || !inner.left.is_empty()).then_some(inner.change)
        };
        // What was emptied is free once that is proven: nobody else may ask for it before the next checkpoint. Once for each state.
        if let Some(change) = change
            && self.engine.discard_change.swap(change, Ordering::AcqRel) != change
            && !self.engine.release_by_proof()?
        {
            self.engine.checkpoint()?;
        }
        Ok(self.engine.log.stripe.slots.discard_freed(slots_max))
    }

    /// Gives everything that is free back to what lies below the devices, also what was free before this mount. Returns how many
    /// bytes that were. Ends after one pass: what is freed meanwhile is not waited for.
    pub fn trim(&self) -> Result<u64, Error> {
        /// So few that writers hardly miss them while they are discarded.
        const SLOTS_AT_ONCE: usize = 64;
        self.engine.check_writable()?;
        let mut left = self.engine.log.stripe.slots.discard_again();
        let mut slots = 0;
        while left > 0 {
            let discarded = self.discard_freed(SLOTS_AT_ONCE)?;
            if discarded == 0 {
                break;
            }
            slots += discarded as u64;
            left = left.saturating_sub(discarded);
        }
        Ok(slots * u64::from(self.engine.log.chunk_bytes()))
    }

    /// Gives back the slots of what was emptied since that was done last, without waiting for the next commit, so that it counts as
    /// free: where much was, or where somebody found no room.
    pub fn release_emptied(&self, io: Io<'_>, is_scarce: bool) -> Result<(), Error> {
        let live = self.engine.space.live_raw_bytes();
        let emptied = self.engine.space.live_peak_raw_bytes.load(Ordering::Acquire) - live;
        let much = i64::try_from(self.raw_bytes() / EMPTIED_DIVISOR).unwrap_or(i64::MAX);
        let least = if is_scarce { 1 } else { much.max(1) };
        if emptied < least || self.engine.check_writable().is_err() {
            return Ok(());
        }
        if !io.may_block() {
            return Err(Error::WouldBlock);
        }
        self.engine.space.live_peak_raw_bytes.store(live, Ordering::Release);
        if !self.engine.release_by_proof()? {
            self.engine.checkpoint()?;
        }
        Ok(())
    }

    /// Whether data may still be replaced by as much other data although nothing is free: it cuts extents in pieces, so its
    /// metadata grows.
    pub fn may_replace(&self, io: Io<'_>) -> Result<bool, Error> {
        let has_room = || self.meta_segments_free() >= self.engine.log.room.meta_room().needed;
        if has_room() {
            return Ok(true);
        }
        if !io.may_block() {
            return Err(Error::WouldBlock);
        }
        self.engine.cleaning().make_room_for_metadata()?;
        Ok(has_room())
    }
}
