//! Room on devices: archived segments are released by themselves, when the marks say so, when a writer finds none, and when nobody used
//! them for as long as `release=` says (`eviction/unused.rs`).
//!
//! Which go first is chosen by how segments were used and by the order that the pool has for it; what rules keep here is asked of segments
//! (`eviction/choice.rs`). Names are walked over only below what is pinned or a unit, once where nobody knows how segments were used, and
//! where files share content (`eviction/others.rs`). Invariants: what is pinned stays, what others need, and what is not on all its media;
//! no medium is asked for any of this, so a writer waits for local work only. A call fails for lack of room only when nothing is left
//! that may go. Read next: the crate namespace's `tiers.rs`, the crate tier's `orders.rs`, `heat.rs` and `stage.rs`.

mod choice;
mod others;
mod unused;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use stere_faults::{Bug, is_planted};
use stere_format::Key;
use stere_namespace::call::{Caller, ROOT};
use stere_namespace::error::Error;
use stere_namespace::flagged::FlaggedInodes;
use stere_namespace::inode::Core;
use stere_namespace::tiers::Tiers;
use stere_store::{Candidate, Io, TierPolicy};

use crate::residency_policy;
use crate::residency_policy::{Count, ResidencyPolicy};
use crate::units::Units;
use choice::Choice;

pub use choice::StayingSegments;

/// Segments released before it is looked again how full devices are.
const RELEASED_AT_ONCE: usize = 16;
/// Inodes that are remembered for who asks what became of them.
const REMEMBERED_MAX: usize = 100_000;

/// Makes room on devices by releasing what is archived.
pub struct Eviction {
    core: Arc<Core>,
    flagged: Arc<FlaggedInodes>,
    residency: Arc<ResidencyPolicy>,
    tiers: Arc<Tiers>,
    units: Arc<Units>,
    /// One makes room at a time; others wait for it.
    making: Mutex<()>,
    /// Segments that could not be released when somebody found no room, with what was live in them: as long as that is so they are not
    /// looked at again for the next one.
    hopeless: Mutex<Hopeless>,
    changed: Mutex<BTreeSet<u64>>,
    /// What came back and could not be released although it is more than may be there: no more is looked for until there is more.
    stuck_back_bytes: AtomicU64,
    /// Segments that rules, or others, keep here.
    staying: choice::Staying,
    /// When it is looked next for what nobody used for long, in seconds.
    release_due_seconds: AtomicI64,
}

#[derive(Default)]
struct Hopeless {
    live_bytes: BTreeMap<u64, u64>,
    /// How often files had given up what they share: one that was pinned may be gone, with as many live bytes as before.
    shared_left: u64,
    policy_count: Count,
    asked_seconds: i64,
}

impl Eviction {
    pub fn new(
        core: Arc<Core>,
        flagged: Arc<FlaggedInodes>,
        residency: Arc<ResidencyPolicy>,
        tiers: Arc<Tiers>,
        units: Arc<Units>,
    ) -> Eviction {
        let (making, hopeless, changed, stuck_back_bytes, staying) = Default::default();
        let release_due_seconds = AtomicI64::new(i64::MIN);
        Eviction {
            core,
            flagged,
            residency,
            tiers,
            units,
            making,
            hopeless,
            changed,
            stuck_back_bytes,
            staying,
            release_due_seconds,
        }
    }

    fn note_changed<'a>(&self, inodes: impl Iterator<Item = &'a u64>) {
        let mut changed = self.changed.lock();
        let left = REMEMBERED_MAX.saturating_sub(changed.len());
        changed.extend(inodes.take(left));
        assert!(changed.len() <= REMEMBERED_MAX, "inodes that are remembered are bounded");
    }
}

impl Eviction {
    /// Releases archived segments while devices are fuller than the high mark, down to the low one, and what came back beyond what may have.
    /// Tells how many, if either was so.
    pub fn keep_room(&self, caller: &Caller<'_>) -> Result<Option<u64>, Error> {
        let (marks, policy) =
            (self.core.store.tier.media.tier_marks(caller.io)?, self.core.store.tier.heat.tier_policy(caller.io)?);
        let is_full = self.core.store.space().used_percent() >= marks.high;
        let is_beyond = policy.cache_bytes > 0 && {
            let stuck_bytes = self.stuck_back_bytes.load(Ordering::Relaxed);
            self.core.store.tier.heat.bytes_back() > policy.cache_bytes.max(stuck_bytes)
        };
        let shortest = self.due_release(caller)?;
        if !is_full && !is_beyond && shortest.is_none() {
            return Ok(None);
        }
        let _alone = self.making.lock();
        let mut released = match shortest {
            Some(shortest_seconds) => self.release_unused(caller, &policy, shortest_seconds)?,
            None => 0,
        };
        if is_beyond {
            released += self.release_back(caller, &policy)?;
            let left_bytes = self.core.store.tier.heat.bytes_back();
            let is_stuck = left_bytes > policy.cache_bytes;
            self.stuck_back_bytes.store(if is_stuck { left_bytes } else { 0 }, Ordering::Relaxed);
        }
        if is_full {
            released += self.release_until(caller, &policy, marks.low, 0)?;
        }
        if released > 0 {
            let used_percent = self.core.store.space().used_percent();
            tracing::info!(released, used_percent, "archived segments were released to make room");
        }
        Ok((is_full || released > 0).then_some(released))
    }

    /// Inodes of which segments were released since this was asked last: their blocks on devices are fewer.
    pub fn take_released_inodes(&self) -> Vec<u64> {
        std::mem::take(&mut *self.changed.lock()).into_iter().collect()
    }

    /// Does what a caller asks for; where there is no room, archived segments are released for it as long as there are any. What is
    /// asked for may be done in part, and is done again.
    pub fn with_room<T>(&self, caller: &Caller<'_>, mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let mut least = RELEASED_AT_ONCE;
        loop {
            let outcome = call();
            if !matches!(outcome, Err(Error::NoSpace)) || !self.may_make_room(caller.now.seconds) {
                return outcome;
            }
            if !caller.io.may_block() {
                return Err(Error::WouldBlock);
            }
            match self.make_room_for_writer(caller, least) {
                Ok(true) => {
                    assert!(least < usize::MAX / 4, "room that is made ends");
                    least *= 4;
                }
                Ok(false) => return outcome,
                Err(error) => {
                    tracing::warn!(%error, "archived files could not be released for a writer");
                    return outcome;
                }
            }
        }
    }

    /// Looks anew at what could not be released.
    pub fn forget_hopeless(&self) {
        *self.hopeless.lock() = Hopeless::default();
        self.staying.forget();
        self.release_due_seconds.store(i64::MIN, Ordering::Relaxed);
        self.stuck_back_bytes.store(0, Ordering::Relaxed);
    }

    /// A name in this directory went, or means something else: what stayed because of the directory need not any more.
    pub fn note_name_gone(&self, caller: &Caller<'_>, directory: u64) {
        if self.hopeless.lock().live_bytes.is_empty() && self.staying.is_empty() {
            return;
        }
        // Who cannot tell now whether it is pinned may not wait: then it counts as pinned.
        let statements = self.residency.statements(caller.io, directory);
        if statements.map_or(true, |statements| statements.kept(|residency| residency.pin).is_some_and(|(pin, _)| pin))
        {
            self.forget_hopeless();
        }
    }

    fn may_make_room(&self, now_seconds: i64) -> bool {
        if is_planted(Bug::WriterNotServed) {
            return false;
        }
        let releasable = self.with_live_bytes(self.core.store.tier.stager.releasable_segments());
        let hopeless = self.hopeless.lock();
        let is_as_before = hopeless.shared_left == self.core.store.space().shared_left()
            && hopeless.policy_count == self.residency.policy_count()
            && choice::is_recent(hopeless.asked_seconds, now_seconds);
        let is_hopeless = |segment, live_bytes| is_as_before && hopeless.live_bytes.get(&segment) == Some(&live_bytes);
        releasable.into_iter().any(|(segment, live_bytes)| !is_hopeless(segment, live_bytes))
    }

    fn with_live_bytes(&self, segments: BTreeSet<u64>) -> BTreeMap<u64, u64> {
        let table = self.core.store.segments();
        segments.into_iter().filter_map(|id| Some((id, table.get(id)?.live_bytes()))).collect()
    }

    /// True if there is more room than before.
    fn make_room_for_writer(&self, caller: &Caller<'_>, least: usize) -> Result<bool, Error> {
        let (before, shared_left, policy_count) = (
            self.core.store.tier.stager.releasable_segments(),
            self.core.store.space().shared_left(),
            self.residency.policy_count(),
        );
        let _alone = self.making.lock();
        let now = self.core.store.tier.stager.releasable_segments();
        if !before.is_subset(&now) {
            // Somebody else made some meanwhile.
            return Ok(true);
        }
        let (marks, policy) =
            (self.core.store.tier.media.tier_marks(caller.io)?, self.core.store.tier.heat.tier_policy(caller.io)?);
        let released = self.release_until(caller, &policy, marks.low, least)?;
        if released == 0 {
            let live_bytes = self.with_live_bytes(now);
            *self.hopeless.lock() =
                Hopeless { live_bytes, shared_left, policy_count, asked_seconds: caller.now.seconds };
            return Ok(false);
        }
        // What was released is free with the one after.
        self.core.store.checkpoint()?;
        Ok(true)
    }

    /// Releases segments, at least so many, until devices are not fuller than so many percent.
    fn release_until(&self, caller: &Caller<'_>, policy: &TierPolicy, low: u8, least: usize) -> Result<u64, Error> {
        let mut choice = Choice::new(self, caller, policy, self.release_candidates(caller)?)?;
        let mut released = 0;
        loop {
            let few = choice.next_few(RELEASED_AT_ONCE)?;
            if few.is_empty() {
                break;
            }
            released += self.release_few(caller, choice.change(), &few)?;
            if self.core.store.space().used_percent() <= low && released >= least as u64 {
                break;
            }
        }
        Ok(released)
    }

    /// Releases segments that came back, until they take no more than they may.
    fn release_back(&self, caller: &Caller<'_>, policy: &TierPolicy) -> Result<u64, Error> {
        let mut candidates = self.release_candidates(caller)?;
        candidates.retain(|one| one.heat.is_back);
        let mut choice = Choice::new(self, caller, policy, candidates)?;
        let (mut left_bytes, mut going) = (self.core.store.tier.heat.bytes_back(), Vec::new());
        while left_bytes > policy.cache_bytes
            && let Some(one) = choice.next()?
        {
            left_bytes = left_bytes.saturating_sub(one.bytes);
            going.push(one);
        }
        going
            .chunks(RELEASED_AT_ONCE)
            .try_fold(0, |released, few| Ok(released + self.release_few(caller, choice.change(), few)?))
    }

    /// Releases these, and makes their slots free.
    fn release_few(&self, caller: &Caller<'_>, change: u64, few: &[Candidate]) -> Result<u64, Error> {
        let segments: Vec<u64> = few.iter().map(|one| one.segment).collect();
        assert!((1..=RELEASED_AT_ONCE).contains(&segments.len()), "few are released before it is looked again");
        // From what lies on devices still.
        let inodes: BTreeSet<u64> =
            segments.iter().flat_map(|segment| self.core.store.tier.heat.inodes_of_segment(*segment)).collect();
        let released = self.tiers.release_as_looked_at(caller, &segments, change)?.segments;
        assert!(released <= segments.len() as u64, "{released} segments are released of {}", segments.len());
        self.note_changed(inodes.iter());
        self.core.store.checkpoint()?;
        Ok(released)
    }

    /// What may be released.
    fn release_candidates(&self, caller: &Caller<'_>) -> Result<Vec<Candidate>, Error> {
        let mut candidates = self.core.store.tier.heat.release_candidates();
        if candidates.iter().any(|one| one.heat.used_seconds == 0) {
            self.find_out_use(caller, &candidates)?;
            candidates = self.core.store.tier.heat.release_candidates();
        }
        if !is_planted(Bug::PinnedReleased) && !candidates.is_empty() {
            let pinned = self.pinned_segments(caller)?;
            candidates.retain(|one| !pinned.contains(&one.segment));
        }
        // A unit is as old as the youngest of it.
        let used = candidates.iter().map(|one| (one.segment, one.heat.used_seconds)).collect();
        let ages = self.units.ages_of_units(caller, &used)?;
        assert_eq!(used.len(), candidates.len(), "a segment is a candidate once");
        for one in &mut candidates {
            let age = ages.get(&one.segment).copied().unwrap_or(0);
            one.heat.used_seconds = one.heat.used_seconds.max(age);
        }
        Ok(candidates)
    }

    /// Of segments of which nobody knows how they were used it is found out from their files, once. What no name leads to (versions,
    /// removed files that are open) counts as used now.
    fn find_out_use(&self, caller: &Caller<'_>, candidates: &[Candidate]) -> Result<(), Error> {
        let unknown = candidates.iter().filter(|one| one.heat.used_seconds == 0).map(|one| one.segment);
        let unknown: BTreeSet<u64> = unknown.collect();
        assert!(!unknown.is_empty(), "all names are walked over only where the use of some segment is not known");
        tracing::info!(segments = unknown.len(), "how archived segments were used is found out from their files");
        let mut used: BTreeMap<u64, i64> = BTreeMap::new();
        self.tiers.tier_walk(caller, ROOT, &mut |met| {
            for segment in met.segments.intersection(&unknown) {
                let known = used.entry(*segment).or_insert(1);
                *known = met.used_seconds.max(*known);
            }
            ControlFlow::Continue(())
        })?;
        for segment in unknown {
            self.core.store.tier.heat.inherit_use(segment, used.get(&segment).copied().unwrap_or(caller.now.seconds));
        }
        Ok(())
    }
}

impl Eviction {
    /// Says that what is below an inode stays on devices, or that it need not any more.
    pub fn set_pinned(&self, io: Io<'_>, inode: u64, is_pinned: bool) -> Result<(), Error> {
        self.forget_hopeless();
        let changed = self.core.store.update(io, |transaction| {
            stere_file::inode_if_any(transaction, inode)?.ok_or(Error::Stale)?;
            match is_pinned {
                true => transaction.put(Key::pinned(inode), &[1]),
                false => transaction.delete(Key::pinned(inode)),
            }
            Ok(())
        });
        self.flagged.note_change();
        changed
    }

    /// The inodes of which somebody said that what is below them stays on devices; those that were removed since are forgotten.
    pub fn pinned_roots(&self, io: Io<'_>) -> Result<Vec<u64>, Error> {
        let flagged_by = self.flagged.inodes_with(io, stere_format::key::kind::PINNED, Key::pinned)?;
        self.core.store.view(io, |view| {
            let mut pinned = Vec::new();
            for inode in &flagged_by {
                pinned.extend((residency_policy::own(view, *inode)?.pin == Some(true)).then_some(*inode));
            }
            Ok(pinned)
        })
    }

    /// Whether something below what is pinned need not be, because somebody said so nearer.
    fn has_exceptions_of_pins(&self, io: Io<'_>, roots: usize) -> Result<bool, Error> {
        let flagged_by = self.flagged.inodes_with(io, stere_format::key::kind::PINNED, Key::pinned)?;
        Ok(flagged_by.len() > roots || self.residency.ruled(io)?.pin)
    }

    /// Segments that hold something which stays on devices because somebody said so of it, or of what is above it.
    pub fn pinned_segments(&self, caller: &Caller<'_>) -> Result<BTreeSet<u64>, Error> {
        let roots = self.pinned_roots(caller.io)?;
        let asks = self.has_exceptions_of_pins(caller.io, roots.len())?;
        self.segments_below(caller, roots, &|inode| {
            if asks { self.residency.is_pinned(caller, inode) } else { Ok(true) }
        })
    }

    /// Segments of all files below these that are asked for.
    pub fn segments_below(
        &self,
        caller: &Caller<'_>,
        roots: Vec<u64>,
        is_asked_for: &dyn Fn(u64) -> Result<bool, Error>,
    ) -> Result<BTreeSet<u64>, Error> {
        let (mut segments, mut outcome) = (BTreeSet::new(), Ok(()));
        for root in roots {
            let walked = self.tiers.tier_walk(caller, root, &mut |met| match is_asked_for(met.inode) {
                Ok(true) => {
                    segments.extend(met.segments);
                    ControlFlow::Continue(())
                }
                Ok(false) => ControlFlow::Continue(()),
                Err(error) => {
                    outcome = Err(error);
                    ControlFlow::Break(())
                }
            });
            match walked {
                // It was removed meanwhile.
                Err(Error::Stale) => {}
                walked => walked?,
            }
        }
        outcome.map(|()| segments)
    }
}
