//! Units that are being written are left alone until they are quiet, so that files of one unit that come minutes apart go down
//! together (HighLight, 4.3: a tree is taken as if it were one file).
//!
//! It is for files that are found by looking for new ones now and then, not for those that somebody sends down by a word. A unit
//! is quiet when nothing in it was changed for some minutes; one that never is goes down all the same, after an hour. Who waits since when is in
//! memory only: after a mount waiting begins anew, so nothing waits for ever. Read next: `reconcile.rs`, `units.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_format::FileKind;
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::{Core, nearest};
use stere_namespace::names::Form;
use stere_namespace::walk::{Walk, path_and_form};
use stere_store::Io;

use crate::units::{Units, UnitsOf};

/// Without a change for so long a unit is quiet.
pub const UNIT_QUIET_SECONDS: i64 = 120;
/// For longer none is waited for.
pub const UNIT_WAIT_SECONDS_MAX: i64 = 3600;

/// Units that are waited for until nobody writes in them.
pub struct Quiescence {
    core: Arc<Core>,
    units: Arc<Units>,
    /// Since when.
    since: Mutex<BTreeMap<u64, i64>>,
}

/// What one walk has found out of units; none for a walk that waits for nobody.
#[derive(Default)]
pub struct Found {
    known: UnitsOf,
    waits: BTreeMap<u64, bool>,
}

impl Quiescence {
    pub fn new(core: Arc<Core>, units: Arc<Units>) -> Quiescence {
        Quiescence { core, units, since: Mutex::default() }
    }

    /// Everything below a directory was sent down: who is waited for there is waited for from now on.
    pub fn wait_anew_below(&self, io: Io<'_>, root: u64) -> Result<(), Error> {
        let waiting: Vec<u64> = self.since.lock().keys().copied().collect();
        for unit in waiting {
            let is_below =
                self.core.store.view(io, |view| nearest(view, unit, |at, _| Ok((at == root).then_some(()))))?.is_some();
            if is_below {
                self.since.lock().remove(&unit);
            }
        }
        Ok(())
    }

    /// Whether a file is left where it is for now.
    pub fn waits_for_unit(&self, caller: &Caller<'_>, inode: u64, found: &mut Found) -> Result<bool, Error> {
        let Some(unit) = self.units.unit_among(caller.io, inode, &mut found.known)? else { return Ok(false) };
        if let Some(waits) = found.waits.get(&unit) {
            return Ok(*waits);
        }
        let now = caller.now.seconds;
        let is_quiet = now.saturating_sub(self.changed_last(caller.io, unit)?) >= UNIT_QUIET_SECONDS;
        let mut since = self.since.lock();
        let waits = !is_quiet && now - *since.entry(unit).or_insert(now) < UNIT_WAIT_SECONDS_MAX;
        if !waits {
            since.remove(&unit);
        }
        let known = found.waits.insert(unit, waits);
        assert!(known.is_none(), "a unit is asked once a walk");
        if waits {
            self.core.files.written.note(unit);
        }
        Ok(waits)
    }

    /// When anything below a directory was changed last, in seconds.
    fn changed_last(&self, io: Io<'_>, directory: u64) -> Result<i64, Error> {
        let found = path_and_form(&self.core.store, &self.core.names, io, directory)?;
        let (path, form) = found.filter(|(path, _)| path != b"/").unwrap_or((Vec::new(), Form::Plain));
        let mut walk = Walk::new(directory, FileKind::Directory, path, form).passing_over();
        let mut last = i64::MIN;
        while let Some(met) = walk.next(&self.core.store, &self.core.names, io)? {
            let value = self.core.store.view(io, |view| stere_file::inode_if_any(view, met.inode))?;
            last = value.map_or(last, |value| last.max(value.ctime.seconds));
        }
        Ok(last)
    }
}
