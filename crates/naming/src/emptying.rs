//! Emptying deleted volumes in the background: their names go one after the other, through the calls that remove names.
//!
//! What is to be emptied is noted in the pool (`EMPTYING` in the list of orphans), so it goes on after a crash.
//! Read next: `accounting` (the notes), `calls/names` (removal).

use std::collections::VecDeque;
use std::ops::ControlFlow;

use parking_lot::Mutex;
use stere_features::accounting::EMPTYING;
use stere_file::accounts::{volume_place, volumes_of};
use stere_file::{OF_VERSIONS, OrphanKind, inode_if_any};
use stere_format::dirent::DirentView;
use stere_format::{FileKind, Key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::names::{damaged, is_empty};
use stere_store::Io;

use crate::filesystem::FileSystem;

/// Names removed in one step.
const NAMES_PER_STEP: usize = 256;

/// A directory on the way down in a deleted volume.
struct Level {
    directory: u64,
    /// Its name in the level above.
    name: Vec<u8>,
    next_sequence: u64,
}

/// Sequence, inode, kind, and the name as it is shown.
type NextName = (u64, u64, FileKind, Vec<u8>);

#[derive(Default)]
struct State {
    pending: VecDeque<u64>,
    levels: Vec<Level>,
}

/// What of it is in hand.
#[derive(Default)]
pub(crate) struct Emptying(Mutex<State>);

impl FileSystem {
    /// A piece of the work that accounts need. Tells whether there is more to do.
    pub(crate) fn step_accounting(&self, caller: &Caller<'_>) -> Result<bool, Error> {
        let counted = self.features.quotas.step_accounting(caller);
        let (is_counting, emptying) = match &counted {
            Ok(step) => (step.is_counting, step.emptying.clone()),
            Err(_) => (false, None),
        };
        if is_counting {
            return Ok(true);
        }
        let Some(mut state) = self.emptying.0.try_lock() else { return Ok(false) };
        if let Some(emptying) = emptying {
            state.pending = emptying;
        }
        let empties = self.empty_some(caller, &mut state);
        if empties.is_err() {
            // From the beginning: what was in hand is not known any more.
            state.levels = Vec::new();
            self.features.quotas.note_accounting_work();
        }
        Ok(counted?.has_more | empties?)
    }

    /// Removes some of the names in deleted volumes. What cannot be removed is passed over until the next mount.
    fn empty_some(&self, caller: &Caller<'_>, state: &mut State) -> Result<bool, Error> {
        for _ in 0..NAMES_PER_STEP {
            if state.levels.is_empty() {
                let Some(directory) = state.pending.pop_front() else { return Ok(false) };
                state.levels.push(Level { directory, name: Vec::new(), next_sequence: 0 });
            }
            let Some(level) = state.levels.last_mut() else { return Ok(false) };
            let (directory, from) = (level.directory, level.next_sequence);
            let Some((sequence, inode, kind, name)) = self.next_name(caller.io, directory, from)? else {
                let Some(done) = state.levels.pop() else { return Ok(false) };
                match state.levels.last() {
                    Some(above) => self.try_remove(caller, above.directory, &done.name, true)?,
                    None => {
                        assert!(done.name.is_empty(), "the last that goes is what was deleted, not a directory in it");
                        self.finish_emptying(caller, directory)?;
                    }
                }
                continue;
            };
            assert!(sequence >= from, "names of directory {directory} are met in order, not {sequence} after {from}");
            level.next_sequence = sequence + 1;
            if kind == FileKind::Directory {
                state.levels.push(Level { directory: inode, name, next_sequence: 0 });
                continue;
            }
            let top = state.levels.first().map_or(directory, |level| level.directory);
            self.leave_deleted_volume(caller, top, inode)?;
            if self.is_of_versions(caller.io, inode)? {
                self.features.versions.remove_version(caller, inode)?;
            } else {
                self.try_remove(caller, directory, &name, false)?;
            }
        }
        Ok(true)
    }

    fn is_of_versions(&self, io: Io<'_>, inode: u64) -> Result<bool, Error> {
        let value = self.namespace.core.store.view(io, |view| inode_if_any(view, inode))?;
        Ok(value.is_some_and(|value| value.flags & OF_VERSIONS != 0))
    }

    fn next_name(&self, io: Io<'_>, directory: u64, from: u64) -> Result<Option<NextName>, Error> {
        self.namespace.core.store.view(io, |view| {
            let (mut found, mut failure) = (None, None);
            view.scan(Key::dirent(directory, from), Key::dirent(directory, u64::MAX), |key, bytes| {
                match DirentView::decode(bytes) {
                    Ok(entry) => {
                        let name = self.namespace.core.names.shown(directory, key.position, &entry).0.into_owned();
                        found = Some((key.position, entry.inode, entry.kind, name));
                    }
                    Err(error) => failure = Some(damaged(directory, &error)),
                }
                ControlFlow::Break(())
            })?;
            failure.map_or(Ok(found), Err)
        })
    }

    fn try_remove(&self, caller: &Caller<'_>, directory: u64, name: &[u8], as_directory: bool) -> Result<(), Error> {
        match self.remove(caller, directory, name, as_directory, false) {
            Err(error @ (Error::WouldBlock | Error::ReadOnly(_))) => Err(error),
            // Directories of versions go with the last version.
            Err(Error::NotFound | Error::OfVersions) => Ok(()),
            Err(error) => {
                let name = String::from_utf8_lossy(name);
                tracing::warn!(%name, %error, "a name in a deleted volume stays for now");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// A file that has names elsewhere counts in what the deleted volume lay in, whose directory is `top`.
    fn leave_deleted_volume(&self, caller: &Caller<'_>, top: u64, inode: u64) -> Result<(), Error> {
        let value = self.namespace.core.store.view(caller.io, |view| inode_if_any(view, inode))?;
        if value.is_none_or(|value| value.nlink < 2) {
            return Ok(());
        }
        self.namespace.core.changing(caller, inode, None, |transaction, value| {
            let deleted = inode_if_any(transaction, top)?.map_or(0, |directory| directory.volume);
            if volumes_of(transaction, value.volume)?.contains(&deleted) {
                value.volume = deleted;
            }
            let mut place = volume_place(transaction, value.volume)?;
            while let Some(deleted) = place.filter(|place| place.is_deleted) {
                value.volume = deleted.parent;
                place = volume_place(transaction, deleted.parent)?;
            }
            transaction.set_charge_pending();
            Ok(())
        })?;
        Ok(())
    }

    /// The directory itself goes, if nothing is left in it.
    fn finish_emptying(&self, caller: &Caller<'_>, directory: u64) -> Result<(), Error> {
        let is_done = self.namespace.core.store.update(caller.io, |transaction| {
            let is_listed = transaction.get(&Key::orphan(directory))?.is_some_and(|kind| *kind == EMPTYING);
            let is_done = is_listed && is_empty(transaction, directory)?;
            if is_done {
                stere_file::list_nameless(transaction, directory);
            }
            Ok::<_, Error>(is_done)
        })?;
        if is_done {
            self.namespace.core.files.orphans.note_forgotten(directory, OrphanKind::Removed);
        }
        Ok(())
    }
}
