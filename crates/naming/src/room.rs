//! Room on devices: archived segments are released by themselves, when the marks say so and when a writer finds none.
//!
//! Those go first whose files were not used for longest, times what they take. Invariants: what is pinned stays, and what is not on all
//! its volumes; no volume is asked for any of this, so a writer waits for local work only. A call fails for lack of room only when
//! nothing is left that may go. Read next: `tier.rs`, the store's `tertiary/stage.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use parking_lot::Mutex;
use stere_device::planted::{Bug, is_planted};
use stere_store::Wait;

use crate::error::Error;
use crate::units::UnitsOf;
use crate::{Caller, FileSystem, ROOT};

/// Segments released before it is looked again how full devices are.
const RELEASED_AT_ONCE: usize = 16;
/// Inodes that are remembered for who asks what became of them.
const REMEMBERED_MAX: usize = 100_000;

#[derive(Default)]
pub(crate) struct Room {
    /// One makes room at a time; others wait for it.
    making: Mutex<()>,
    /// Segments that could not be released when somebody found no room, with what was live in them: as long as that is so they are not
    /// looked at again for the next one.
    hopeless: Mutex<BTreeMap<u64, u64>>,
    changed: Mutex<BTreeSet<u64>>,
}

impl Room {
    fn note_changed<'a>(&self, inodes: impl Iterator<Item = &'a u64>) {
        let mut changed = self.changed.lock();
        let left = REMEMBERED_MAX.saturating_sub(changed.len());
        changed.extend(inodes.take(left));
    }
}

/// A segment that might be released.
#[derive(Default)]
struct Candidate {
    /// When a file in it was used last.
    used_seconds: i64,
    bytes: u64,
    inodes: Vec<u64>,
}

impl FileSystem {
    /// Releases archived segments while devices are fuller than the high mark, down to the low one. Tells how many, if they were.
    pub fn keep_room(&self, caller: &Caller<'_>) -> Result<Option<u64>, Error> {
        let marks = self.store.tier_marks(caller.wait)?;
        if self.store.used_percent() < marks.high {
            return Ok(None);
        }
        let _alone = self.room.making.lock();
        let released = self.release_until(caller, marks.low, 0)?;
        if released > 0 {
            let used_percent = self.store.used_percent();
            tracing::info!(released, used_percent, "archived segments were released to make room");
        }
        Ok(Some(released))
    }

    /// Inodes of which segments were released since this was asked last: their blocks on devices are fewer.
    pub fn take_released_inodes(&self) -> Vec<u64> {
        std::mem::take(&mut *self.room.changed.lock()).into_iter().collect()
    }

    /// Does what a caller asks for; where there is no room, archived segments are released for it as long as there are any. What is
    /// asked for may be done in part, and is done again.
    pub(crate) fn with_room<T>(
        &self,
        caller: &Caller<'_>,
        mut call: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut least = RELEASED_AT_ONCE;
        loop {
            let outcome = call();
            if !matches!(outcome, Err(Error::NoSpace)) || !self.may_make_room() {
                return outcome;
            }
            if caller.wait == Wait::Never {
                return Err(Error::WouldBlock);
            }
            match self.make_room_for_writer(caller, least) {
                Ok(true) => least *= 4,
                Ok(false) => return outcome,
                Err(error) => {
                    tracing::warn!(%error, "archived files could not be released for a writer");
                    return outcome;
                }
            }
        }
    }

    /// Looks anew at what could not be released.
    pub(crate) fn forget_hopeless(&self) {
        self.room.hopeless.lock().clear();
    }

    fn may_make_room(&self) -> bool {
        if is_planted(Bug::WriterNotServed) {
            return false;
        }
        let releasable = self.with_live_bytes(self.store.releasable_segments());
        let hopeless = self.room.hopeless.lock();
        releasable.into_iter().any(|(segment, live_bytes)| hopeless.get(&segment) != Some(&live_bytes))
    }

    fn with_live_bytes(&self, segments: BTreeSet<u64>) -> BTreeMap<u64, u64> {
        let table = self.store.segments();
        segments.into_iter().filter_map(|id| Some((id, table.get(id)?.live_bytes()))).collect()
    }

    /// True if there is more room than before.
    fn make_room_for_writer(&self, caller: &Caller<'_>, least: usize) -> Result<bool, Error> {
        let before = self.store.releasable_segments();
        let _alone = self.room.making.lock();
        let now = self.store.releasable_segments();
        if !before.is_subset(&now) {
            // Somebody else made some meanwhile.
            return Ok(true);
        }
        let marks = self.store.tier_marks(caller.wait)?;
        let released = self.release_until(caller, marks.low, least)?;
        if released == 0 {
            *self.room.hopeless.lock() = self.with_live_bytes(now);
            return Ok(false);
        }
        // What was released is free with the one after.
        self.store.checkpoint()?;
        Ok(true)
    }

    /// Releases segments, at least so many, until devices are not fuller than so many percent.
    fn release_until(&self, caller: &Caller<'_>, low: u8, least: usize) -> Result<u64, Error> {
        let candidates = self.release_candidates(caller)?;
        let now = caller.now.seconds;
        let worth = |candidate: &Candidate| {
            let age_seconds = now.saturating_sub(candidate.used_seconds).max(1) as u128;
            age_seconds * u128::from(candidate.bytes)
        };
        let mut order: Vec<(u128, u64)> = candidates.iter().map(|(segment, one)| (worth(one), *segment)).collect();
        order.sort_unstable_by(|one, other| other.cmp(one));
        let mut released = 0;
        for few in order.chunks(RELEASED_AT_ONCE) {
            let segments: Vec<u64> = few.iter().map(|(_, segment)| *segment).collect();
            released += self.release_segments(caller, &segments)?.segments;
            let inodes = segments.iter().filter_map(|segment| candidates.get(segment)).flat_map(|one| &one.inodes);
            self.room.note_changed(inodes);
            self.store.checkpoint()?;
            if self.store.used_percent() <= low && released >= least as u64 {
                break;
            }
        }
        Ok(released)
    }

    /// What may be released, with what is known of the files in it. What no name leads to (versions, removed files that are open)
    /// goes last.
    fn release_candidates(&self, caller: &Caller<'_>) -> Result<BTreeMap<u64, Candidate>, Error> {
        let mut candidates: BTreeMap<u64, Candidate> =
            self.store.releasable_segments().into_iter().map(|segment| (segment, Candidate::default())).collect();
        if candidates.is_empty() {
            return Ok(candidates);
        }
        let (has_units, mut known, mut youngest) = (self.has_units(caller.wait)?, UnitsOf::default(), BTreeMap::new());
        let mut of_units: BTreeSet<(u64, u64)> = BTreeSet::new();
        self.tier_walk(caller, ROOT, &mut |met| {
            let unit = has_units.then(|| self.unit_among(caller.wait, met.inode, &mut known).ok().flatten()).flatten();
            if let Some(unit) = unit {
                let used_seconds = youngest.entry(unit).or_insert(met.used_seconds);
                *used_seconds = met.used_seconds.max(*used_seconds);
                of_units.extend(met.segments.iter().map(|segment| (*segment, unit)));
            }
            let share = met.file.local_bytes / met.segments.len().max(1) as u64;
            for segment in &met.segments {
                let Some(candidate) = candidates.get_mut(segment) else { continue };
                candidate.used_seconds = candidate.used_seconds.max(met.used_seconds);
                candidate.bytes += share;
                candidate.inodes.push(met.inode);
            }
            ControlFlow::Continue(())
        })?;
        for (segment, unit) in of_units {
            let Some((candidate, used_seconds)) = candidates.get_mut(&segment).zip(youngest.get(&unit)) else {
                continue;
            };
            candidate.used_seconds = candidate.used_seconds.max(*used_seconds);
        }
        if !is_planted(Bug::PinnedReleased) {
            for segment in self.pinned_segments(caller)? {
                candidates.remove(&segment);
            }
        }
        Ok(candidates)
    }
}
