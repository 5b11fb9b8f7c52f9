//! P-145: what is below a directory that says so comes back and goes down as one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Interrupted, Lying, UNIT};
use crate::content::pattern;
use crate::history::{History, Stop};
use crate::model::ROOT;
use crate::operation::CrashManner;
use crate::pool::caller;
use crate::random::Random;

/// Files that are sent down by turns.
const BY_TURNS: u64 = 5;

impl History {
    pub(super) fn say_unit(&mut self, directory: u8, says: u8) -> Result<(), Stop> {
        let Some(inode) = self.directory_inode(directory) else { return Ok(()) };
        match says {
            1 => self.put_policy(inode, UNIT, b"yes"),
            2 => self.put_policy(inode, UNIT, b"no"),
            _ if !self.model.nodes[&inode].attributes.contains_key(UNIT) => Ok(()),
            _ => {
                let real = self.mounted().files.removexattr(&caller(&self.machine), inode, UNIT);
                let after = self.changed_node(inode, |node| drop(node.attributes.remove(UNIT)));
                self.expect_names("removexattr", real, Ok(after)).map(drop)
            }
        }
    }

    /// The unit that a file is in: the nearest directory above that says something, if it says yes.
    fn unit_of_file(&self, parents: &BTreeMap<u64, u64>, inode: u64) -> Option<u64> {
        let mut at = *parents.get(&inode)?;
        loop {
            match self.model.nodes.get(&at)?.attributes.get(UNIT).map(Vec::as_slice) {
                Some(b"yes") => return Some(at),
                Some(_) => return None,
                None if at == ROOT => return None,
                None => at = *parents.get(&at)?,
            }
        }
    }

    /// The segments of each unit.
    pub(super) fn units_of(&self, lying: &Lying) -> BTreeMap<u64, BTreeSet<u64>> {
        let parents = self.parents();
        let mut units: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for (inode, segments) in &lying.files {
            if let Some(unit) = self.unit_of_file(&parents, *inode) {
                units.entry(unit).or_default().extend(segments);
            }
        }
        units
    }

    /// The first recall of any of a unit brings all of it, and nothing else; after a crash or where it was taken back the next one does.
    pub(super) fn prove_unit(&mut self, pick: usize, interrupted: Interrupted) -> Result<(), Stop> {
        self.release_all()?;
        let lying = self.lying()?;
        let before = self.released();
        let parents = self.parents();
        let whole: Vec<u64> =
            lying.files.iter().filter(|(_, segments)| segments.is_subset(&before)).map(|(inode, _)| *inode).collect();
        let in_units: Vec<u64> =
            whole.iter().copied().filter(|inode| self.unit_of_file(&parents, *inode).is_some()).collect();
        let choices = if in_units.is_empty() { whole } else { in_units };
        let Some(inode) = choices.get(pick % choices.len().max(1)).copied() else { return Ok(()) };
        let unit = self.unit_of_file(&parents, inode);
        self.recall(inode)?;
        let mut may_come = BTreeSet::new();
        match interrupted {
            Interrupted::Not => {}
            Interrupted::Crash => {
                self.machine.power_off();
                self.recover(CrashManner::Everything, None)?;
                crate::tertiary::attach_volumes(self.mounted(), &self.machine.clone());
                // Everything was read to be compared.
                self.release_all()?;
                self.recall(inode)?;
            }
            Interrupted::Cancel => {
                may_come = self.take_back(unit.and_then(|unit| self.units_of(&lying).remove(&unit)).as_ref());
                self.recall(inode)?;
            }
        }
        let is_back = self.bring_back()?;
        let is_member = |history: &History, one: &u64| {
            *one == inode || unit.is_some() && history.unit_of_file(&parents, *one) == unit
        };
        let members = lying.files.iter().filter(|(one, _)| is_member(self, one));
        let theirs: BTreeSet<u64> = members.flat_map(|(_, segments)| segments.iter().copied()).collect();
        let path = self.model.path_of(inode);
        let is_asked = unit.is_some() && is_back;
        if let Some(segment) = theirs.intersection(&before).find(|segment| is_asked && self.is_released(**segment)) {
            return Err(Stop::Failure(format!("segment {segment} of the unit of {path} does not come with it")));
        }
        self.summary.tier.units_proven += u64::from(is_asked);
        let table = self.mounted().store.segments();
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
    fn recall(&mut self, inode: u64) -> Result<(), Stop> {
        self.read_right(inode)?;
        let asked = self.mounted().files.units().stage_units(&caller(&self.machine));
        self.must("asking for units", asked).map(drop)
    }

    /// What is to come is taken back, as `tier cancel` does below the root, and something else is asked for. Which.
    fn take_back(&mut self, unit: Option<&BTreeSet<u64>>) -> BTreeSet<u64> {
        let store = self.mounted().store.clone();
        self.mounted().files.units().forget_coming_units();
        let all: Vec<u64> = store.segments().everywhere().iter().map(|segment| segment.id).collect();
        store.tier.recalls.want_back_no_more(&all);
        let other = self.released().into_iter().find(|one| unit.is_none_or(|theirs| !theirs.contains(one)));
        store.tier.recalls.want_back(&other.into_iter().collect::<Vec<_>>());
        other.into_iter().collect()
    }

    /// What is sent down of a unit in any order lies in consecutive segments.
    pub(super) fn prove_down(&mut self, directory: u8, seed: u64) -> Result<(), Stop> {
        let Some(inside) = self.directory_inode(directory).filter(|inode| *inode != ROOT) else { return Ok(()) };
        // As a file in it would be.
        let mut as_file = self.parents();
        as_file.insert(u64::MAX, inside);
        let is_in_none = self.unit_of_file(&BTreeMap::from([(u64::MAX, ROOT)]), u64::MAX).is_none();
        if self.unit_of_file(&as_file, u64::MAX).is_none() || !is_in_none {
            return Ok(());
        }
        let length = Random::new(seed).between(1, 2) as usize * self.plan.pool.chunk_bytes as usize / 3;
        let mut made = Vec::new();
        for number in 0..BY_TURNS {
            let directory = if number % 2 == 0 { inside } else { ROOT };
            let name = format!("unit{number}").into_bytes();
            made.push(self.make_tiered(directory, &name, &pattern(seed ^ number, length))?);
        }
        self.sync_all()?;
        for inode in &made {
            self.archive_to_all(*inode)?;
        }
        self.sync_all()?;
        self.settle_volumes()?;
        let lying = self.lying()?;
        let of = |inode: &u64| lying.files.get(inode).cloned().unwrap_or_default();
        let inner: BTreeSet<u64> = made.iter().step_by(2).flat_map(of).collect();
        let outer: BTreeSet<u64> = made.iter().skip(1).step_by(2).flat_map(of).collect();
        let kinds = |segments: &BTreeSet<u64>| -> BTreeSet<(u8, u8, u8)> {
            let table = self.mounted().store.segments();
            let found = segments.iter().filter_map(|id| table.get(*id));
            found.map(|one| (one.class, one.scheme.data, one.scheme.parity)).collect()
        };
        let is_alike = kinds(&inner).len() == 1 && kinds(&outer).len() <= 1;
        let (Some(first), Some(last)) = (inner.first().filter(|_| is_alike), inner.last()) else { return Ok(()) };
        self.summary.tier.units_down += 1;
        match outer.iter().find(|segment| (first + 1..*last).contains(segment) && !inner.contains(segment)) {
            Some(segment) => {
                Err(Stop::Failure(format!("segment {segment} of others lies between those of a unit, {inner:?}")))
            }
            None => Ok(()),
        }
    }
}
