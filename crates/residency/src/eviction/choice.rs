//! Which archived segments go next, where rules and classes say what stays: they are asked of what lies in a segment, when its turn comes.
//!
//! Nobody walks over names to find out what rules pin. A segment that is about to go tells from its rows which files stored what is alive in it,
//! and these are asked. Who stored something need not be who has it: content is shared, a version keeps what a file no longer has. Where that
//! may be so, files below those whose rules pin are walked over, once for all that go together. A segment that stays is not asked again for a
//! while, unless a policy changes or something in it dies. A unit that rules make is met by its first segment that would go, and makes all of
//! its segments younger then. Invariants: the order is as if all had been asked before; nothing goes that was not asked. Read next: `others.rs`,
//! `../residency_policy.rs`.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use stere_faults::{Bug, is_planted};
use stere_namespace::call::{Caller, ROOT};
use stere_namespace::error::Error;
use stere_store::{Candidate, Members, TierPolicy};

use crate::eviction::Eviction;
use crate::eviction::others::{Concerned, has_all};
use crate::residency_policy::{Count, Ruled};
use crate::units::UnitsOf;

/// How long a segment that stays is not asked again, in seconds: files may be moved meanwhile, or grow old.
const STAYS_SECONDS: i64 = 60;
/// Segments that are remembered to stay.
const REMEMBERED_MAX: usize = 1 << 16;
/// A segment that was asked.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// What was alive in it.
    live_bytes: u64,
    now_seconds: i64,
    policy_count: Count,
    /// How often files had given up what they share: it may be nobody else's now.
    shared_left: u64,
}

/// Segments that stayed when they were asked, by number.
#[derive(Default)]
pub struct Staying(parking_lot::Mutex<FxHashMap<u64, Asked>>);

impl Staying {
    fn has(&self, segment: u64, asked: &Asked) -> bool {
        let known = self.0.lock().get(&segment).copied();
        known.is_some_and(|known| {
            known.live_bytes == asked.live_bytes
                && known.policy_count == asked.policy_count
                && known.shared_left == asked.shared_left
                && is_recent(known.now_seconds, asked.now_seconds)
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub fn forget(&self) {
        self.0.lock().clear();
    }

    fn note(&self, segment: u64, asked: Asked) {
        let mut known = self.0.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(segment, asked);
        assert!(known.len() <= REMEMBERED_MAX, "segments that are remembered are bounded");
    }
}

/// Whether what stayed when it was asked is not asked again.
pub fn is_recent(asked_seconds: i64, now_seconds: i64) -> bool {
    (asked_seconds..asked_seconds.saturating_add(STAYS_SECONDS)).contains(&now_seconds)
}

/// Asks what rules and classes say of segments, and whether others need them.
struct Asking<'a> {
    eviction: &'a Eviction,
    caller: &'a Caller<'a>,
    ruled: Ruled,
    /// Segments of all that rules pin, where somebody had to know.
    walked: Option<BTreeSet<u64>>,
    concerned: Concerned<'a>,
    /// The change of the store that was last when this began.
    change: u64,
}

/// Why a segment stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    Pinned,
    /// Something in it is of files that do not go to media.
    OfOthers,
}

/// Segments that stay on devices, by why.
#[derive(Debug, Default)]
pub struct StayingSegments {
    /// The change of the store up to which it is known who shares what.
    pub change: u64,
    pub pinned: BTreeSet<u64>,
    pub of_others: BTreeSet<u64>,
}

impl StayingSegments {
    pub fn has(&self, segment: u64) -> bool {
        self.pinned.contains(&segment) || self.of_others.contains(&segment)
    }
}

impl<'a> Asking<'a> {
    /// `named` is what is released by its name.
    fn new(eviction: &'a Eviction, caller: &'a Caller<'a>, named: Option<u64>) -> Result<Asking<'a>, Error> {
        let ruled = eviction.residency.ruled(caller.io)?;
        let concerned = Concerned::new(&eviction.core, &eviction.tiers, caller, named);
        let change = eviction.core.store.tier.stager.last_change();
        Ok(Asking { eviction, caller, ruled, walked: None, concerned, change })
    }

    /// Whether a segment stays that may go by itself.
    fn stays(&mut self, segment: u64, members: Option<&Members>) -> Result<bool, Error> {
        let (eviction, store) = (self.eviction, &self.eviction.core.store);
        let asked = Asked {
            live_bytes: store.segments().get(segment).map_or(0, |segment| segment.live_bytes()),
            now_seconds: self.caller.now.seconds,
            policy_count: eviction.residency.policy_count(),
            shared_left: store.space().shared_left(),
        };
        if eviction.staying.has(segment, &asked) {
            return Ok(true);
        }
        let stays = match members {
            Some(members) => self.why_stays(segment, Some(members))?,
            None => self.why_stays(segment, Some(&store.tier.heat.members_of_segment(segment)?))?,
        };
        if stays.is_some() {
            eviction.staying.note(segment, asked);
        }
        Ok(stays.is_some())
    }

    /// `members` are what its rows tell; who released it by its name reads them only where rules pin something.
    fn why_stays(&mut self, segment: u64, members: Option<&Members>) -> Result<Option<Stays>, Error> {
        let asks_rules = self.ruled.pin && !is_planted(Bug::PinnedReleased);
        assert!(members.is_some() || !asks_rules, "rules are asked of what lies in segment {segment}");
        if let Some(members) = members.filter(|_| asks_rules)
            && self.has_pinned(segment, members)?
        {
            return Ok(Some(Stays::Pinned));
        }
        let is_of_others = !is_planted(Bug::OthersReleased) && self.concerned.are_others(segment, members)?;
        Ok(is_of_others.then_some(Stays::OfOthers))
    }

    /// Whether something in a segment is pinned by rules or classes.
    fn has_pinned(&mut self, segment: u64, members: &Members) -> Result<bool, Error> {
        let mut is_certain = !members.is_shared;
        for (inode, member) in &members.inodes {
            if self.eviction.residency.is_pinned(self.caller, *inode)? {
                return Ok(true);
            }
            is_certain = is_certain && has_all(&self.eviction.core, self.caller.io, *inode, member)?;
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
        let asking = Asking::new(eviction, caller, None)?;
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

    /// The change of the store up to which it is known who shares what may go.
    pub fn change(&self) -> u64 {
        self.asking.change
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
    /// Of these segments those that hold something which stays on devices, whoever says so, when what is below `named` is released
    /// by its name, or when they go by themselves.
    pub fn staying_among(
        &self,
        caller: &Caller<'_>,
        segments: &BTreeSet<u64>,
        named: Option<u64>,
    ) -> Result<StayingSegments, Error> {
        let pinned = self.pinned_segments(caller)?.intersection(segments).copied().collect();
        let mut asking = Asking::new(self, caller, named)?;
        let mut staying = StayingSegments { change: asking.change, pinned, of_others: BTreeSet::new() };
        for segment in segments {
            // What is released already does not stay, whoever has it.
            let is_here = self.core.store.segments().get(*segment).is_some_and(|segment| !segment.is_released());
            if !is_here || staying.pinned.contains(segment) {
                continue;
            }
            let read = || self.core.store.tier.heat.members_of_segment(*segment);
            // Without a name, and where rules pin: else what is counted below the name decides.
            let members = (named.is_none() || asking.ruled.pin).then(read).transpose()?;
            match asking.why_stays(*segment, members.as_ref())? {
                Some(Stays::Pinned) => drop(staying.pinned.insert(*segment)),
                Some(Stays::OfOthers) => drop(staying.of_others.insert(*segment)),
                None => {}
            }
        }
        assert!(staying.pinned.is_disjoint(&staying.of_others), "a segment stays for one reason");
        Ok(staying)
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
