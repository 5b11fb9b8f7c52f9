//! Directories whose subtrees are units (`user.stere.unit`): what belongs together goes down together, comes back together, and is as
//! old as the youngest of it (HighLight, 4.3).
//!
//! The nearest directory above a file that says `yes` or `no` decides: `yes` makes what is below it one unit, without what is below
//! another directory that says something itself. It is a key of the pool for each such directory; nothing else is kept, so after a
//! crash the next recall asks for the rest anew. Read next: `tier.rs`, `reconcile.rs` (going down), `room.rs` (age).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use parking_lot::Mutex;
use stere_format::{FileKind, Key, key};
use stere_policy::Source;
use stere_store::{View, Wait};

use crate::error::Error;
use crate::policy::nearest;
use crate::{Caller, FileSystem, SetMode, xattr};

/// The attribute that makes one.
pub(crate) const ATTRIBUTE: &[u8] = b"user.stere.unit";
const EXPECTED: &str = "yes or no, on a directory";

fn said(view: &View<'_>, inode: u64) -> Result<Option<bool>, Error> {
    Ok(view.get(&Key::unit(inode))?.map(|bytes| bytes.first() == Some(&1)))
}

/// Units that were asked for since something was recalled of them, and are on their way.
#[derive(Default)]
pub(crate) struct Coming(Mutex<BTreeSet<u64>>);

/// In which unit the files of directories are, as far as it was asked.
#[derive(Default)]
pub(crate) struct UnitsOf(BTreeMap<u64, Option<u64>>);

/// Directories that are remembered at a time.
const REMEMBERED_MAX: usize = 1 << 16;

impl FileSystem {
    /// Makes a directory a unit, or none, or leaves it to those above.
    pub(crate) fn set_unit(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        value: Option<&[u8]>,
        mode: SetMode,
    ) -> Result<(), Error> {
        let is_unit = xattr::yes_or_no("unit", value, EXPECTED)?;
        let changed = self.changing_attribute(caller, inode, |transaction, inode_value| {
            if inode_value.kind() != Some(FileKind::Directory) {
                return Err(Error::NotPermitted("a unit is all that is below a directory; set it on one"));
            }
            xattr::check_mode(mode, transaction.get(&Key::unit(inode))?.is_some())?;
            match is_unit {
                Some(is_unit) => transaction.put(Key::unit(inode), &[if is_unit { 1 } else { 2 }]),
                None => transaction.delete(Key::unit(inode)),
            }
            Ok(())
        });
        self.saying.note_change();
        changed
    }

    pub(crate) fn own_unit(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        match self.store.view(caller.wait, |view| said(view, inode))? {
            Some(is_unit) => Ok(if is_unit { b"yes".to_vec() } else { b"no".to_vec() }),
            None => Err(Error::NoAttribute),
        }
    }

    /// Whether an inode is part of a unit, and which directory says so.
    pub(crate) fn effective_unit(&self, caller: &Caller<'_>, inode: u64) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let (at, is_unit) = self.nearest_unit(caller.wait, inode)?.ok_or(Error::NoAttribute)?;
        let text = if is_unit { b"yes".to_vec() } else { b"no".to_vec() };
        Ok((text, self.source_text(caller, inode, Source::Inode(at), &[])?))
    }

    /// The nearest that says something, from the inode itself upwards.
    fn nearest_unit(&self, wait: Wait, inode: u64) -> Result<Option<(u64, bool)>, Error> {
        self.store.view(wait, |view| nearest(view, inode, |at, _| said(view, at)))
    }

    /// The directory whose subtree is the unit that an inode is in.
    pub fn unit_of(&self, wait: Wait, inode: u64) -> Result<Option<u64>, Error> {
        Ok(self.nearest_unit(wait, inode)?.filter(|(_, is_unit)| *is_unit).map(|(at, _)| at))
    }

    /// The same for many files one after the other.
    pub(crate) fn unit_among(&self, wait: Wait, inode: u64, known: &mut UnitsOf) -> Result<Option<u64>, Error> {
        let value = self.store.view(wait, |view| stere_file::inode_if_any(view, inode))?;
        let Some(directory) = value.map(|value| value.parent) else { return Ok(None) };
        if let Some(unit) = known.0.get(&directory) {
            return Ok(*unit);
        }
        if known.0.len() >= REMEMBERED_MAX {
            known.0.clear();
        }
        let unit = self.unit_of(wait, directory)?;
        known.0.insert(directory, unit);
        Ok(unit)
    }

    /// Whether any directory says something of units.
    pub(crate) fn has_units(&self, wait: Wait) -> Result<bool, Error> {
        Ok(!self.saying_units(wait)?.is_empty())
    }

    /// When the youngest member of each unit was used, for the segments that the unit lies in. `used` tells it of segments.
    pub(crate) fn ages_of_units(
        &self,
        caller: &Caller<'_>,
        used: &BTreeMap<u64, u64>,
    ) -> Result<BTreeMap<u64, u64>, Error> {
        let (mut ages, mut known) = (BTreeMap::new(), UnitsOf::default());
        for unit in self.saying_units(caller.wait)? {
            let (mut segments, mut youngest) = (BTreeSet::new(), 0);
            let walked = self.tier_walk(caller, unit, &mut |met| {
                if self.unit_among(caller.wait, met.inode, &mut known).is_ok_and(|of| of == Some(unit)) {
                    youngest = youngest.max(u64::try_from(met.used_seconds).unwrap_or(0));
                    segments.extend(met.segments);
                }
                ControlFlow::Continue(())
            });
            match walked {
                // It was removed meanwhile.
                Err(Error::Stale) => continue,
                walked => walked?,
            }
            let of_segments = segments.iter().filter_map(|segment| used.get(segment)).copied();
            let youngest = of_segments.fold(youngest, u64::max);
            for segment in segments {
                let age = ages.entry(segment).or_insert(youngest);
                *age = youngest.max(*age);
            }
        }
        Ok(ages)
    }

    /// The directories that say something of units; what removed ones said is forgotten.
    fn saying_units(&self, wait: Wait) -> Result<Vec<u64>, Error> {
        self.all_that_say(wait, key::kind::UNIT, Key::unit)
    }

    /// Asks for all of the units back of which something was recalled since this was last called: those segments that are on volumes
    /// only, in the order in which they lie there. How many were asked for.
    pub fn stage_units(&self, caller: &Caller<'_>) -> Result<u64, Error> {
        let recalled = self.files.take_recalled();
        if self.store.wanted_back() == 0 {
            self.coming.0.lock().clear();
        }
        if recalled.is_empty() || !self.has_units(caller.wait)? {
            return Ok(0);
        }
        let (mut known, mut units) = (UnitsOf::default(), BTreeSet::new());
        for inode in recalled {
            units.extend(self.unit_among(caller.wait, inode, &mut known)?);
        }
        let mut asked_for = 0;
        for unit in units {
            if !self.coming.0.lock().insert(unit) {
                continue;
            }
            let mut segments = BTreeSet::new();
            let walked = self.tier_walk(caller, unit, &mut |met| {
                // Names below are units of their own where a directory says so.
                if met.file.released_bytes > 0
                    && self.unit_among(caller.wait, met.inode, &mut known).is_ok_and(|of| of == Some(unit))
                {
                    segments.extend(met.segments);
                }
                ControlFlow::Continue(())
            });
            match walked {
                Ok(()) | Err(Error::Stale) => {}
                Err(error) => return Err(error),
            }
            asked_for += self.store.want_back_in_order(&segments.into_iter().collect::<Vec<_>>());
        }
        Ok(asked_for)
    }
}
