//! P-145: what is below a directory that says so comes back and goes down as one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Interrupted, Lying, UNIT};
use crate::content::pattern;
use crate::history::{History, Stop};
use crate::model::{Model, ROOT};
use crate::operation::CrashManner;
use crate::pool::{PoolUnderTest, caller};
use crate::random::Random;
use crate::{execute::names, recovery, tertiary, tiers};

/// Files that are sent down by turns.
const BY_TURNS: u64 = 5;

impl PoolUnderTest {
    /// What is to come is taken back, as `tier cancel` does below the root, and something else is asked for. Which.
    fn take_back(&self, unit: Option<&BTreeSet<u64>>) -> BTreeSet<u64> {
        let store = self.mounted().store.clone();
        self.mounted().files.units().forget_coming_units();
        let all: Vec<u64> = store.segments().everywhere().iter().map(|segment| segment.id).collect();
        store.tier.recalls.want_back_no_more(&all);
        let other = self.released().into_iter().find(|one| unit.is_none_or(|theirs| !theirs.contains(one)));
        store.tier.recalls.want_back(&other.into_iter().collect::<Vec<_>>());
        other.into_iter().collect()
    }
}

pub(crate) fn say_unit(history: &mut History, directory: u8, says: u8) -> Result<(), Stop> {
    let Some(inode) = tiers::directory_inode(&history.model, directory) else { return Ok(()) };
    match says {
        1 => names::put_policy(history, inode, UNIT, b"yes"),
        2 => names::put_policy(history, inode, UNIT, b"no"),
        _ if !history.model.nodes[&inode].attributes.contains_key(UNIT) => Ok(()),
        _ => {
            let real = history.mounted().files.removexattr(&caller(&history.machine), inode, UNIT);
            let after = history.model.changed_node(inode, |node| drop(node.attributes.remove(UNIT)));
            history.expect_names("removexattr", real, Ok(after)).map(drop)
        }
    }
}

/// The unit that a file is in: the nearest directory above that says something, if it says yes.
fn unit_of_file(model: &Model, parents: &BTreeMap<u64, u64>, inode: u64) -> Option<u64> {
    let mut at = *parents.get(&inode)?;
    loop {
        match model.nodes.get(&at)?.attributes.get(UNIT).map(Vec::as_slice) {
            Some(b"yes") => return Some(at),
            Some(_) => return None,
            None if at == ROOT => return None,
            None => at = *parents.get(&at)?,
        }
    }
}

/// The segments of each unit.
pub(crate) fn units_of(model: &Model, lying: &Lying) -> BTreeMap<u64, BTreeSet<u64>> {
    let parents = tiers::parents(model);
    let mut units: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (inode, segments) in &lying.files {
        if let Some(unit) = unit_of_file(model, &parents, *inode) {
            units.entry(unit).or_default().extend(segments);
        }
    }
    units
}

/// The first recall of any of a unit brings all of it, and nothing else; after a crash or where it was taken back the next one does.
pub(crate) fn prove_unit(history: &mut History, pick: usize, interrupted: Interrupted) -> Result<(), Stop> {
    tiers::release_all(history)?;
    let lying = tiers::lying(history)?;
    let before = history.pool.released();
    let parents = tiers::parents(&history.model);
    let whole: Vec<u64> =
        lying.files.iter().filter(|(_, segments)| segments.is_subset(&before)).map(|(inode, _)| *inode).collect();
    let in_units: Vec<u64> =
        whole.iter().copied().filter(|inode| unit_of_file(&history.model, &parents, *inode).is_some()).collect();
    let choices = if in_units.is_empty() { whole } else { in_units };
    let Some(inode) = choices.get(pick % choices.len().max(1)).copied() else { return Ok(()) };
    let unit = unit_of_file(&history.model, &parents, inode);
    recall(history, inode)?;
    let mut may_come = BTreeSet::new();
    match interrupted {
        Interrupted::Not => {}
        Interrupted::Crash => {
            history.machine.power_off();
            recovery::recover(history, CrashManner::Everything, None)?;
            crate::tertiary::attach_volumes(history.mounted(), &history.machine.clone());
            // Everything was read to be compared.
            tiers::release_all(history)?;
            recall(history, inode)?;
        }
        Interrupted::Cancel => {
            may_come =
                history.pool.take_back(unit.and_then(|unit| units_of(&history.model, &lying).remove(&unit)).as_ref());
            recall(history, inode)?;
        }
    }
    let is_back = tiers::bring_back(history)?;
    let is_member = |history: &History, one: &u64| {
        *one == inode || unit.is_some() && unit_of_file(&history.model, &parents, *one) == unit
    };
    let members = lying.files.iter().filter(|(one, _)| is_member(history, one));
    let theirs: BTreeSet<u64> = members.flat_map(|(_, segments)| segments.iter().copied()).collect();
    let path = history.model.path_of(inode);
    let is_asked = unit.is_some() && is_back;
    if let Some(segment) = theirs.intersection(&before).find(|segment| is_asked && history.pool.is_released(**segment))
    {
        return Err(Stop::Failure(format!("segment {segment} of the unit of {path} does not come with it")));
    }
    history.summary.tier.units_proven += u64::from(is_asked);
    let table = history.mounted().store.segments();
    // One of which nothing is alive any more is nowhere; and what no name leads to belongs to whom it belonged.
    let is_back = |segment: &u64| table.get(*segment).is_some_and(|one| !one.is_released() && one.live_bytes() > 0);
    let is_others = |segment: &&u64| !theirs.contains(segment) && !lying.nameless.contains(segment);
    let rest = before.iter().filter(is_others).find(|one| !may_come.contains(*one) && is_back(one));
    match rest {
        Some(segment) => Err(Stop::Failure(format!("segment {segment} comes with {path}, and is not of its unit"))),
        None => Ok(()),
    }
}

/// A file is read, and it is looked for what is to come with it.
fn recall(history: &mut History, inode: u64) -> Result<(), Stop> {
    tiers::read_right(history, inode)?;
    let asked = history.mounted().files.units().stage_units(&caller(&history.machine));
    history.must("asking for units", asked).map(drop)
}

/// What is sent down of a unit in any order lies in consecutive segments.
pub(crate) fn prove_down(history: &mut History, directory: u8, seed: u64) -> Result<(), Stop> {
    let Some(inside) = tiers::directory_inode(&history.model, directory).filter(|inode| *inode != ROOT) else {
        return Ok(());
    };
    // As a file in it would be.
    let mut as_file = tiers::parents(&history.model);
    as_file.insert(u64::MAX, inside);
    let is_in_none = unit_of_file(&history.model, &BTreeMap::from([(u64::MAX, ROOT)]), u64::MAX).is_none();
    if unit_of_file(&history.model, &as_file, u64::MAX).is_none() || !is_in_none {
        return Ok(());
    }
    let length = Random::new(seed).between(1, 2) as usize * history.plan.pool.chunk_bytes as usize / 3;
    let mut made = Vec::new();
    for number in 0..BY_TURNS {
        let directory = if number % 2 == 0 { inside } else { ROOT };
        let name = format!("unit{number}").into_bytes();
        made.push(tiers::make_tiered(history, directory, &name, &pattern(seed ^ number, length))?);
    }
    history.sync_all()?;
    for inode in &made {
        tiers::archive_to_all(history, *inode)?;
    }
    history.sync_all()?;
    tertiary::settle_volumes(history)?;
    let lying = tiers::lying(history)?;
    let of = |inode: &u64| lying.files.get(inode).cloned().unwrap_or_default();
    let inner: BTreeSet<u64> = made.iter().step_by(2).flat_map(of).collect();
    let outer: BTreeSet<u64> = made.iter().skip(1).step_by(2).flat_map(of).collect();
    let kinds = |segments: &BTreeSet<u64>| -> BTreeSet<(u8, u8, u8)> {
        let table = history.mounted().store.segments();
        let found = segments.iter().filter_map(|id| table.get(*id));
        found.map(|one| (one.class, one.scheme.data, one.scheme.parity)).collect()
    };
    let is_alike = kinds(&inner).len() == 1 && kinds(&outer).len() <= 1;
    let (Some(first), Some(last)) = (inner.first().filter(|_| is_alike), inner.last()) else { return Ok(()) };
    history.summary.tier.units_down += 1;
    match outer.iter().find(|segment| (first + 1..*last).contains(segment) && !inner.contains(segment)) {
        Some(segment) => {
            Err(Stop::Failure(format!("segment {segment} of others lies between those of a unit, {inner:?}")))
        }
        None => Ok(()),
    }
}
