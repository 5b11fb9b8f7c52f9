//! What histories do with marks and with writers that find no room: archived segments go by themselves, pinned ones never.
//!
//! The oracle: below the high mark nothing is released; above it devices come down to the low one, or nothing is left that may go. A
//! write fails for lack of room only when nothing is left that may go. Read next: `tertiary.rs`.

use std::collections::BTreeSet;

use stere_naming::Error;
use stere_store::TierMarks;

use crate::history::{History, Stop};
use crate::model::Node;
use crate::pool::caller;
use crate::tertiary::PIN_ATTRIBUTE;

impl History {
    /// Segments that may be released: on all their volumes, and nothing in them is pinned.
    fn may_go_down(&mut self) -> Result<BTreeSet<u64>, Stop> {
        let releasable = self.mounted().store.tier.stager.releasable_segments();
        let pinned = self.pinned()?;
        Ok(releasable.difference(&pinned).copied().collect())
    }

    fn pinned(&mut self) -> Result<BTreeSet<u64>, Stop> {
        let pinned = self.mounted().files.eviction().pinned_segments(&caller(&self.machine));
        self.must("looking for what is pinned", pinned)
    }

    /// As a mount does now and then.
    pub(crate) fn keep_room(&mut self, under: u8, by: u8) -> Result<(), Stop> {
        let high = self.mounted().store.space().used_percent().saturating_sub(under).max(2);
        let low = high.saturating_sub(by).max(1);
        let Some(marks) = TierMarks::new(high, low) else { return Ok(()) };
        let set = self.mounted().store.tier.media.set_tier_marks(marks);
        if matches!(set, Err(stere_store::Error::NoSpace)) && self.plan.may_fill {
            return Ok(());
        }
        self.must("setting marks", set.map_err(Error::from))?;
        self.note_commit();
        let releasable = self.mounted().store.tier.stager.releasable_segments();
        let pinned = self.pinned()?;
        let before = self.mounted().store.space().used_percent();
        let kept = self.mounted().files.eviction().keep_room(&caller(&self.machine));
        if matches!(kept, Err(Error::NoSpace)) && self.plan.may_fill {
            return Ok(());
        }
        let released = self.must("making room", kept)?;
        let left = self.may_go_down()?;
        let store = &self.mounted().store;
        let (after, segments) = (store.space().used_percent(), store.segments());
        let is_gone = |id: &&u64| segments.get(**id).is_some_and(|segment| segment.is_released());
        if let Some(segment) = releasable.intersection(&pinned).find(is_gone) {
            return Err(Stop::Failure(format!("segment {segment} is pinned, and was released by itself")));
        }
        let text = match released {
            None if before >= high => format!("{before} % are in use, the mark is {high}, and nothing is done"),
            Some(_) if before < high => format!("{before} % are in use, the mark is {high}, and room is made"),
            Some(_) if after > low && !left.is_empty() => {
                format!("{after} % are in use, {low} is low, and segments {left:?} are still there")
            }
            _ => String::new(),
        };
        if !text.is_empty() {
            return Err(Stop::Failure(text));
        }
        if let Some(count) = released.filter(|count| *count > 0) {
            self.summary.tier.segments_evicted += count;
            self.note_commit();
        }
        Ok(())
    }

    /// A write found no room.
    pub(crate) fn must_have_no_room(&mut self) -> Result<(), Stop> {
        if !self.mounted().store.tier.media.has_volumes() || self.machine.is_off() || !self.is_calm() {
            return Ok(());
        }
        let left = self.may_go_down()?;
        // What a pinned file held, and only versions hold since it was cut, the background looks at again, not every writer.
        let is_pinned = |node: &Node| node.attributes.contains_key(PIN_ATTRIBUTE);
        let were_pinned = self.plan.pool.keeps_versions && self.model.nodes.values().any(is_pinned);
        match left.is_empty() || were_pinned {
            true => Ok(()),
            false => Err(Stop::Failure(format!("a write finds no room, and segments {left:?} may be released"))),
        }
    }
}
