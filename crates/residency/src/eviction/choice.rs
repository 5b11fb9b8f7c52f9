//! Which archived segments go next, where rules and classes say what stays: they are asked of what lies in a segment, when its turn comes.
//!
//! Nobody walks over names to find out what rules pin. A segment that is about to go tells from its rows which files stored what is alive in it,
//! and these are asked. Who stored something need not be who has it: content is shared, a version keeps what a file no longer has. Where that
//! may be so, files below those whose rules pin are walked over, once for all that go together. A segment that stays is not asked again for a
//! while, unless a policy changes or something in it dies. A unit that rules make is met by its first segment that would go, and makes all of
//! its segments younger then. Invariants: the order is as if all had been asked before; nothing goes that was not asked. Read next: `../room.rs`,
//! `../residency_policy.rs`.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use stere_faults::{Bug, is_planted};
use stere_namespace::call::{Caller, ROOT};
use stere_namespace::error::Error;
use stere_store::{Candidate, Member, Members, TierPolicy};

use crate::eviction::Eviction;
use crate::residency_policy::{Count, Ruled};
use crate::units::UnitsOf;

/// How long a segment that stays is not asked again, in seconds: files may be moved meanwhile, or grow old.
const STAYS_SECONDS: i64 = 60;
/// Segments that are remembered to stay.
const REMEMBERED_MAX: usize = 1 << 16;
/// Extents looked at in one view.
const EXTENTS: usize = 1024;

/// What was alive in a segment when it was asked, when that was, and at which count of changes.
type Asked = (u64, i64, Count);

/// Segments that stayed when they were asked, by number.
#[derive(Default)]
pub struct Staying(parking_lot::Mutex<FxHashMap<u64, Asked>>);

impl Staying {
    fn has(&self, segment: u64, live_bytes: u64, now: i64, count: Count) -> bool {
        let known = self.0.lock().get(&segment).copied();
        known.is_some_and(|(live, asked, at)| live == live_bytes && at == count && is_recent(asked, now))
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub fn forget(&self) {
        self.0.lock().clear();
    }

    pub fn note(&self, segment: u64, live_bytes: u64, now: i64, count: Count) {
        let mut known = self.0.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(segment, (live_bytes, now, count));
        assert!(known.len() <= REMEMBERED_MAX, "segments that are remembered are bounded");
    }
}

/// Whether what stayed when it was asked is not asked again.
pub fn is_recent(asked_seconds: i64, now_seconds: i64) -> bool {
    (asked_seconds..asked_seconds.saturating_add(STAYS_SECONDS)).contains(&now_seconds)
}

/// Asks what rules and classes say of segments.
struct Asking<'a> {
    eviction: &'a Eviction,
    caller: &'a Caller<'a>,
    ruled: Ruled,
    /// Segments of all that rules pin, where somebody had to know.
    walked: Option<BTreeSet<u64>>,
}

impl<'a> Asking<'a> {
    fn new(eviction: &'a Eviction, caller: &'a Caller<'a>) -> Result<Asking<'a>, Error> {
        let ruled = eviction.residency.ruled(caller.io)?;
        Ok(Asking { eviction, caller, ruled, walked: None })
    }

    /// Whether something in a segment is pinned by rules or classes.
    fn stays(&mut self, segment: u64, members: Option<&Members>) -> Result<bool, Error> {
        if !self.ruled.pin || is_planted(Bug::PinnedReleased) {
            return Ok(false);
        }
        let (eviction, now) = (self.eviction, self.caller.now.seconds);
        let live_bytes = eviction.core.store.segments().get(segment).map_or(0, |segment| segment.live_bytes());
        let count = eviction.residency.policy_count();
        let staying = &eviction.staying;
        if staying.has(segment, live_bytes, now, count) {
            return Ok(true);
        }
        let stays = match members {
            Some(members) => self.has_pinned(segment, members)?,
            None => self.has_pinned(segment, &eviction.core.store.tier.heat.members_of_segment(segment)?)?,
        };
        if stays {
            staying.note(segment, live_bytes, now, count);
        }
        Ok(stays)
    }

    fn has_pinned(&mut self, segment: u64, members: &Members) -> Result<bool, Error> {
        let mut is_certain = !members.is_shared;
        for (inode, member) in &members.inodes {
            if self.eviction.residency.is_pinned(self.caller, *inode)? {
                return Ok(true);
            }
            is_certain = is_certain && self.has_all(*inode, member)?;
        }
        if is_certain {
            return Ok(false);
        }
        let walked = match self.walked.take() {
            Some(walked) => walked,
            None => self.eviction.segments_that_rules_pin(self.caller)?,
        };
        Ok(self.walked.insert(walked).contains(&segment))
    }

    /// Whether a file has all that it stored there, so that nobody else can have it who has no second reference.
    fn has_all(&self, inode: u64, member: &Member) -> Result<bool, Error> {
        let (mut missing, mut from) = (member.blobs.clone(), Some(member.from));
        while let Some(at) = from.filter(|at| *at < member.to && !missing.is_empty()) {
            let (extents, next) =
                stere_file::stored_extents(&self.eviction.core.store, self.caller.io, inode, at, EXTENTS)?;
            for extent in &extents {
                missing.remove(&extent.blob.id);
            }
            from = next;
        }
        Ok(missing.is_empty())
    }
}

/// What may go, in the order in which it goes.
pub struct Choice<'a> {
    asking: Asking<'a>,
    policy: &'a TierPolicy,
    candidates: Vec<Candidate>,
    next: usize,
    used: BTreeMap<u64, u64>,
    /// Units whose age is known.
    units: BTreeSet<u64>,
    units_of: UnitsOf,
}

impl<'a> Choice<'a> {
    pub fn new(
        eviction: &'a Eviction,
        caller: &'a Caller<'a>,
        policy: &'a TierPolicy,
        mut candidates: Vec<Candidate>,
    ) -> Result<Choice<'a>, Error> {
        let asking = Asking::new(eviction, caller)?;
        let is_ruled = asking.ruled.unit && !candidates.is_empty();
        let used = match is_ruled {
            true => candidates.iter().map(|one| (one.segment, one.heat.used_seconds)).collect(),
            false => BTreeMap::new(),
        };
        assert!(!is_ruled || used.len() == candidates.len(), "a segment is a candidate once");
        // Those that directories say were asked before.
        let units =
            if is_ruled { eviction.units.flagged_units(caller.io)?.into_iter().collect() } else { BTreeSet::new() };
        stere_store::put_in_order(&mut candidates, policy, caller.now.seconds);
        Ok(Choice { asking, policy, candidates, next: 0, used, units, units_of: UnitsOf::default() })
    }

    /// The next that goes.
    pub fn next(&mut self) -> Result<Option<Candidate>, Error> {
        while let Some(one) = self.candidates.get(self.next).copied() {
            let members = match self.asking.ruled.unit {
                true => Some(self.asking.eviction.core.store.tier.heat.members_of_segment(one.segment)?),
                false => None,
            };
            if let Some(members) = &members
                && self.meets_units(members)?
            {
                continue;
            }
            self.next += 1;
            if !self.asking.stays(one.segment, members.as_ref())? {
                return Ok(Some(one));
            }
        }
        Ok(None)
    }

    /// At most so many.
    pub fn next_few(&mut self, count: usize) -> Result<Vec<Candidate>, Error> {
        let mut few = Vec::new();
        while few.len() < count
            && let Some(one) = self.next()?
        {
            few.push(one);
        }
        Ok(few)
    }

    /// Whether some that are still to go are younger than was known, so that others go first.
    fn meets_units(&mut self, members: &Members) -> Result<bool, Error> {
        let (eviction, caller) = (self.asking.eviction, self.asking.caller);
        let mut ages = BTreeMap::new();
        for inode in members.inodes.keys() {
            if let Some(unit) = eviction.units.unit_among(caller.io, *inode, &mut self.units_of)?
                && self.units.insert(unit)
            {
                eviction.units.add_age_of_unit(caller, unit, &self.used, &mut self.units_of, &mut ages)?;
            }
        }
        assert!(self.next < self.candidates.len(), "units are met by a segment that would go");
        let left = &mut self.candidates[self.next..];
        let mut is_other = false;
        for one in left.iter_mut() {
            let age = ages.get(&one.segment).copied().unwrap_or(0);
            is_other |= age > one.heat.used_seconds;
            one.heat.used_seconds = one.heat.used_seconds.max(age);
        }
        if is_other {
            stere_store::put_in_order(left, self.policy, caller.now.seconds);
        }
        Ok(is_other)
    }
}

impl Eviction {
    /// Of these segments those that hold something which stays on devices, whoever says so.
    pub fn pinned_among(&self, caller: &Caller<'_>, segments: &BTreeSet<u64>) -> Result<BTreeSet<u64>, Error> {
        let mut pinned: BTreeSet<u64> = self.pinned_segments(caller)?.intersection(segments).copied().collect();
        let mut asking = Asking::new(self, caller)?;
        for segment in segments {
            if !pinned.contains(segment) && asking.stays(*segment, None)? {
                pinned.insert(*segment);
            }
        }
        assert!(pinned.is_subset(segments), "what is pinned is among those that were asked for");
        Ok(pinned)
    }

    /// By walking over files: those below all whose rules, or classes, may pin anything.
    fn segments_that_rules_pin(&self, caller: &Caller<'_>) -> Result<BTreeSet<u64>, Error> {
        let roots = match self.residency.ruled(caller.io)?.may_be_anywhere {
            true => vec![ROOT],
            false => self.residency.directories_with_such_rules(caller.io)?,
        };
        self.segments_below(caller, roots, &|inode| self.residency.is_pinned(caller, inode))
    }
}
