//! Directories whose subtrees are units (`unit=yes`): what belongs together goes down together, comes back together, and is as
//! old as the youngest of it (HighLight, 4.3).
//!
//! The nearest directory above a file that says `yes` or `no` decides: `yes` makes what is below it one unit, without what is below
//! another directory that says something itself. Rules and classes may say it of directories (`residency_policy.rs`). Nothing else is kept, so after a
//! crash the next recall asks for the rest anew. Read next: `tier.rs`, `reconcile.rs` (going down), `room.rs` (age).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_faults::{Bug, is_planted};
use stere_format::{Key, key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::flagged::FlaggedInodes;
use stere_namespace::inode::Core;
use stere_namespace::tiers::{EXTENTS, TierMet, Tiers};
use stere_store::{Belonging, Describe, Io, Parts, Repacked};

use crate::residency_policy::ResidencyPolicy;

/// Units that were asked for since something was recalled of them, and are on their way; when, in seconds, of those of which parts come,
/// which nobody tells when they are there.
#[derive(Default)]
struct Coming(Mutex<BTreeMap<u64, Option<i64>>>);

/// So long a unit of which parts were asked for is not asked for again: its readers take them meanwhile.
const COMING_SECONDS: i64 = 60;

/// In which unit the files of directories are, as far as it was asked.
#[derive(Default)]
pub struct UnitsOf(BTreeMap<u64, Option<u64>>);

/// Directories that are remembered at a time.
const REMEMBERED_MAX: usize = 1 << 16;

/// Directories whose subtrees are units.
pub struct Units {
    core: Arc<Core>,
    flagged: Arc<FlaggedInodes>,
    residency: Arc<ResidencyPolicy>,
    tiers: Arc<Tiers>,
    coming: Coming,
}

impl Units {
    pub fn new(
        core: Arc<Core>,
        flagged: Arc<FlaggedInodes>,
        residency: Arc<ResidencyPolicy>,
        tiers: Arc<Tiers>,
    ) -> Units {
        Units { core, flagged, residency, tiers, coming: Coming::default() }
    }

    /// The directory whose subtree is the unit that an inode is in.
    pub fn unit_of(&self, io: Io<'_>, inode: u64) -> Result<Option<u64>, Error> {
        let is_heard = |is_unit: &bool| *is_unit || !is_planted(Bug::UnitNoIgnored);
        let found = self.residency.kept_in(io, inode, |residency| residency.unit.filter(is_heard))?;
        Ok(found.filter(|(is_unit, ..)| *is_unit).map(|(_, _, begins_at)| begins_at))
    }

    /// The same for many files one after the other.
    pub fn unit_among(&self, io: Io<'_>, inode: u64, known: &mut UnitsOf) -> Result<Option<u64>, Error> {
        let value = self.core.store.view(io, |view| stere_file::inode_if_any(view, inode))?;
        let Some(directory) = value.map(|value| value.parent) else { return Ok(None) };
        if let Some(unit) = known.0.get(&directory) {
            return Ok(*unit);
        }
        if known.0.len() >= REMEMBERED_MAX {
            known.0.clear();
        }
        let unit = self.unit_of(io, directory)?;
        known.0.insert(directory, unit);
        assert!(known.0.len() <= REMEMBERED_MAX, "directories that are remembered are bounded");
        Ok(unit)
    }

    /// Whether any directory says something of units, or rules and classes do.
    pub fn has_units(&self, io: Io<'_>) -> Result<bool, Error> {
        Ok(!self.flagged_units(io)?.is_empty() || self.residency.ruled(io)?.unit)
    }

    /// When the youngest member of each unit that a directory says was used, for the segments that the unit lies in. `used` tells it of
    /// segments.
    pub fn ages_of_units(&self, caller: &Caller<'_>, used: &BTreeMap<u64, u64>) -> Result<BTreeMap<u64, u64>, Error> {
        let (mut ages, mut known) = (BTreeMap::new(), UnitsOf::default());
        if is_planted(Bug::UnitAgesApart) {
            return Ok(ages);
        }
        for unit in self.flagged_units(caller.io)? {
            self.add_age_of_unit(caller, unit, used, &mut known, &mut ages)?;
        }
        Ok(ages)
    }

    /// The same of one unit.
    pub fn add_age_of_unit(
        &self,
        caller: &Caller<'_>,
        unit: u64,
        used: &BTreeMap<u64, u64>,
        known: &mut UnitsOf,
        ages: &mut BTreeMap<u64, u64>,
    ) -> Result<(), Error> {
        let (mut segments, mut youngest) = (BTreeSet::new(), 0);
        self.each_member(caller, unit, known, &mut |met| {
            youngest = youngest.max(u64::try_from(met.used_seconds).unwrap_or(0));
            segments.extend(met.segments);
            Ok(())
        })?;
        let of_segments = segments.iter().filter_map(|segment| used.get(segment)).copied();
        let youngest = of_segments.fold(youngest, u64::max);
        for segment in segments {
            let age = ages.entry(segment).or_insert(youngest);
            *age = youngest.max(*age);
        }
        Ok(())
    }

    /// The directories that say something of units; what removed ones said is forgotten.
    pub fn flagged_units(&self, io: Io<'_>) -> Result<Vec<u64>, Error> {
        self.flagged.inodes_with(io, key::kind::UNIT, Key::unit)
    }

    /// Nothing is on its way any more: the next recall of anything asks for its unit anew.
    pub fn forget_coming_units(&self) {
        self.coming.0.lock().clear();
    }

    /// Who is told at once that something was recalled, where there are units.
    pub fn wake_on_recalls(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.core.files.recalled.set_wake(wake);
    }

    /// Asks for all of the units back of which something was recalled since this was last called: those segments that are on volumes
    /// only, in the order in which they lie there, or of a unit that lies scattered its parts of them. Of how many segments something was asked for.
    pub fn stage_units(&self, caller: &Caller<'_>) -> Result<u64, Error> {
        let recalled = self.core.files.recalled.take();
        let has_units = self.has_units(caller.io)?;
        self.core.files.recalled.set_awaited(has_units);
        // Also while nobody recalls anything: what is recalled next may be wanted back by its reader when this is looked at.
        self.forget_units_that_came(caller.now.seconds);
        if recalled.is_empty() || !has_units {
            return Ok(0);
        }
        let (mut known, mut units) = (UnitsOf::default(), BTreeSet::new());
        for inode in recalled.into_iter().filter(|_| !is_planted(Bug::UnitComesApart)) {
            units.extend(self.unit_among(caller.io, inode, &mut known)?);
        }
        let mut asked_for = 0;
        for unit in units {
            if self.coming.0.lock().contains_key(&unit) {
                continue;
            }
            let parts = self.released_parts(caller, unit, &mut known)?;
            let (segments, parts) = self.core.store.tier.recalls.want_together(parts);
            asked_for += segments + parts;
            self.coming.0.lock().insert(unit, Some(caller.now.seconds).filter(|_| parts > 0));
        }
        Ok(asked_for)
    }

    /// What was asked for a while ago, or is here, may be asked for again.
    fn forget_units_that_came(&self, now_seconds: i64) {
        let is_on_its_way = self.core.store.tier.recalls.asked_back() > 0;
        self.coming.0.lock().retain(|_, since| match since {
            // A clock that goes back keeps nobody from asking.
            Some(since) => (*since..*since + COMING_SECONDS).contains(&now_seconds),
            None => is_on_its_way,
        });
    }

    /// Goes over the files of a unit; of none if it was removed meanwhile.
    fn each_member(
        &self,
        caller: &Caller<'_>,
        unit: u64,
        known: &mut UnitsOf,
        visit: &mut dyn FnMut(TierMet) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut failed = None;
        let walked = self.tiers.tier_walk(caller, unit, &mut |met| {
            // Names below are units of their own where a directory says so.
            let is_in = self.unit_among(caller.io, met.inode, known).is_ok_and(|of| of == Some(unit));
            failed = if is_in { visit(met).err() } else { None };
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match walked {
            Ok(()) | Err(Error::Stale) => failed.map_or(Ok(()), Err),
            Err(error) => Err(error),
        }
    }

    /// Where what is on volumes only of a unit lies.
    fn released_parts(&self, caller: &Caller<'_>, unit: u64, known: &mut UnitsOf) -> Result<Parts, Error> {
        let mut parts = Parts::default();
        self.each_member(caller, unit, known, &mut |met| {
            if met.file.released_bytes > 0 {
                self.add_parts(caller.io, met.inode, &mut parts)?;
                parts.add_segments(met.segments);
            }
            Ok(())
        })?;
        Ok(parts)
    }

    /// Empties some of the objects that are mostly dead (`Store::repack_step`); what is alive of a unit lies together then.
    pub fn repack_step(
        &self,
        caller: &Caller<'_>,
        volumes: u16,
        live_percent_max: u64,
        describe: &Describe<'_>,
    ) -> Result<Repacked, Error> {
        let (mut units, mut known) = (Vec::new(), UnitsOf::default());
        for unit in self.flagged_units(caller.io)? {
            let mut segments = BTreeSet::new();
            self.each_member(caller, unit, &mut known, &mut |met| {
                segments.extend(met.segments);
                Ok(())
            })?;
            units.push(segments);
        }
        let known = RefCell::new(known);
        let unit_of = |inode| self.unit_among(caller.io, inode, &mut known.borrow_mut()).unwrap_or(None);
        let belonging = Belonging { units: &units, unit_of: &unit_of };
        Ok(self.core.store.tier.repacker.repack_step(volumes, live_percent_max, &belonging, describe)?)
    }

    fn add_parts(&self, io: Io<'_>, inode: u64, parts: &mut Parts) -> Result<(), Error> {
        let mut from = Some(0);
        while let Some(at) = from {
            let (extents, next) = stere_file::stored_extents(&self.core.store, io, inode, at, EXTENTS)?;
            extents.iter().for_each(|extent| parts.add(&extent.blob));
            from = next;
        }
        Ok(())
    }
}
