//! What accounts need in the background: counting what exists, following directories that were moved, emptying deleted volumes.
//!
//! Everything goes on in steps after a crash: how far counting is stands in the pool, and so do directories below which inodes may
//! still count elsewhere, and directories whose names are to go. One who walks to set right in which volume something counts sets it to that of
//! the directory that it met it in, not to that of the beginning: so walks that overlap, and moves meanwhile, come to the same.
//! Read next: `volumes.rs`, `walk.rs`.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stere_file::accounts::{Sums, accounting, add_inode, put_account, volume_place, volumes_of};
use stere_file::metadata::attributes_of;
use stere_file::{OF_VERSIONS, OrphanKind, inode_if_any};
use stere_format::dirent::DirentView;
use stere_format::{AccountingValue, FileKind, Holder, InodeValue, Key, VolumePlace, key};
use stere_store::{Transaction, Wait};

use crate::error::Error;
use crate::names::{Form, damaged, is_empty};
use crate::volumes::read_accounts;
use crate::walk::{Met, Walk};
use crate::{Caller, FileSystem};

/// Inodes that one transaction counts.
const INODES_PER_STEP: usize = 128;
/// Names looked at, or removed, in one step.
const NAMES_PER_STEP: usize = 256;
/// What stands in the list of orphans of a directory whose names are to go.
pub(crate) const EMPTYING: [u8; 1] = [3];

/// A walk below a directory that was moved, or made a volume.
struct Recount {
    directory: u64,
    /// Of the note when it began.
    number: u64,
    walk: Walk,
}

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
    recounts: VecDeque<u64>,
    recount: Option<Recount>,
    emptying: VecDeque<u64>,
    levels: Vec<Level>,
}

/// The work of a file system.
pub(crate) struct Accounting {
    /// The volume that the next removal of its directory deletes, and since when.
    pub condemned: Mutex<Option<(u64, i64)>>,
    has_new_notes: AtomicBool,
    state: Mutex<State>,
}

impl Default for Accounting {
    fn default() -> Accounting {
        // What an earlier mount left.
        let has_new_notes = AtomicBool::new(true);
        Accounting { condemned: Mutex::default(), has_new_notes, state: Mutex::default() }
    }
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

impl FileSystem {
    /// Notes that what is below a directory may count elsewhere than the directory.
    pub(crate) fn note_recount(&self, transaction: &mut Transaction<'_>, directory: u64) -> Result<(), Error> {
        let key = Key::recount(directory);
        let number = transaction.get(&key)?.map_or(0, |bytes| number_of(&bytes));
        transaction.put(key, &(number + 1).to_le_bytes());
        self.note_accounting_work();
        Ok(())
    }

    /// Looked for under the store's lock, which the transaction that notes the work holds.
    pub(crate) fn note_accounting_work(&self) {
        self.accounting.has_new_notes.store(true, Ordering::Release);
    }

    /// Whether inodes may count elsewhere than where they lie.
    pub(crate) fn has_recounts(&self, wait: Wait) -> Result<bool, Error> {
        Ok(!self.read_notes(wait)?.0.is_empty())
    }

    /// Directories with a note, and directories that are to be emptied.
    fn read_notes(&self, wait: Wait) -> Result<(VecDeque<u64>, VecDeque<u64>), Error> {
        self.store.view(wait, |view| {
            let (mut recounts, mut emptying) = (VecDeque::new(), VecDeque::new());
            let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
            view.scan(from, to, |key, bytes| {
                match key.kind {
                    key::kind::RECOUNT => recounts.push_back(key.object),
                    key::kind::ORPHAN if *bytes == EMPTYING => emptying.push_back(key.object),
                    _ => {}
                }
                ControlFlow::Continue(())
            })?;
            Ok((recounts, emptying))
        })
    }

    /// A piece of the work. Tells whether there is more to do.
    pub(crate) fn step_accounting(&self, caller: &Caller<'_>) -> Result<bool, Error> {
        if !self.files.accounts().is_on() {
            return Ok(false);
        }
        self.files.accounts().note_time(caller.now);
        let Some(mut state) = self.accounting.state.try_lock() else { return Ok(false) };
        if self.count_some(caller)?
            || self.files.count_metadata_some(caller.wait)?
            || (self.files.accounts().keeps_stored() && self.files.charge_some(caller.wait)?)
        {
            return Ok(true);
        }
        if self.accounting.has_new_notes.swap(false, Ordering::AcqRel) {
            match self.read_notes(caller.wait) {
                Ok((recounts, emptying)) => (state.recounts, state.emptying) = (recounts, emptying),
                Err(error) => {
                    self.note_accounting_work();
                    return Err(error);
                }
            }
        }
        let recounts = self.recount_some(caller, &mut state);
        let empties = self.empty_some(caller, &mut state);
        if recounts.is_err() || empties.is_err() {
            // From the beginning: what was in hand is not known any more.
            (state.recount, state.levels) = (None, Vec::new());
            self.note_accounting_work();
        }
        let has_new_notes = self.accounting.has_new_notes.load(Ordering::Acquire);
        Ok(recounts? | empties? | has_new_notes)
    }

    /// Counts some of the inodes that are not counted yet.
    pub(crate) fn count_some(&self, caller: &Caller<'_>) -> Result<bool, Error> {
        let counted = self.store.view(caller.wait, |view| accounting(view))?.map(|accounting| accounting.counted);
        if counted.is_none_or(|counted| counted == AccountingValue::ALL) {
            return Ok(false);
        }
        self.store.update(caller.wait, |transaction| {
            let Some(accounting) = accounting(transaction)? else { return Ok(false) };
            let (mut at, mut sums) = (accounting.counted, Sums::new());
            for _ in 0..INODES_PER_STEP {
                let mut found = None;
                let end = Key::new(key::tree::NAMES + 1, 0, 0, 0);
                transaction.scan(Key::inode(at), end, |key, bytes| {
                    let value = (key.kind == key::kind::INODE).then(|| InodeValue::decode(bytes).ok());
                    found = Some((key.object, value.flatten()));
                    ControlFlow::Break(())
                })?;
                let Some((inode, value)) = found else {
                    at = AccountingValue::ALL;
                    break;
                };
                if let Some(value) = value {
                    let counts_metadata = inode < accounting.metadata;
                    let attributes = counts_metadata.then(|| attributes_of(transaction, inode, &value)).transpose()?;
                    add_inode(&mut sums, &value, attributes);
                }
                at = inode + 1;
            }
            transaction.put(Key::accounting(), &AccountingValue { counted: at, ..accounting }.encode());
            transaction.set_owed();
            self.files.accounts().enter(transaction, sums)?;
            if at == AccountingValue::ALL {
                // Of deleted volumes it is known now whether anything counts in them.
                for (whose, value) in read_accounts(transaction, Holder::Volume)? {
                    put_account(transaction, whose, &value)?;
                }
            }
            Ok::<_, Error>(at != AccountingValue::ALL)
        })
    }

    /// Looks at some names below a directory that was moved.
    fn recount_some(&self, caller: &Caller<'_>, state: &mut State) -> Result<bool, Error> {
        let mut recount = match state.recount.take() {
            Some(recount) => recount,
            None => {
                let Some(directory) = state.recounts.pop_front() else { return Ok(false) };
                let note = self.store.view(caller.wait, |view| view.get(&Key::recount(directory)))?;
                let Some(note) = note else { return Ok(!state.recounts.is_empty()) };
                let walk = Walk::new(directory, FileKind::Directory, Vec::new(), Form::Plain);
                Recount { directory, number: number_of(&note), walk }
            }
        };
        for _ in 0..NAMES_PER_STEP {
            let Some(met) = recount.walk.next(&self.store, &self.names, caller.wait)? else {
                self.finish_recount(caller, &recount)?;
                return Ok(!state.recounts.is_empty());
            };
            let Some(directory) = recount.walk.directory(&met) else { continue };
            if self.recount_met(caller, directory, &met)? {
                recount.walk.skip();
            }
        }
        state.recount = Some(recount);
        Ok(true)
    }

    /// What was met in a directory counts where that does. Tells whether it is a volume of its own.
    fn recount_met(&self, caller: &Caller<'_>, directory: u64, met: &Met) -> Result<bool, Error> {
        let inode = met.inode;
        let (is_right, is_volume) = self.store.view(caller.wait, |view| {
            let Some(value) = inode_if_any(view, inode)? else { return Ok((true, false)) };
            let home = inode_if_any(view, directory)?.map_or(value.volume, |directory| directory.volume);
            let place = volume_place(view, value.volume)?;
            let is_volume = |place: &VolumePlace| place.directory == inode && !place.is_deleted;
            Ok::<_, Error>(match place.filter(is_volume) {
                Some(place) => (place.parent == home, true),
                None => (value.volume == home, false),
            })
        })?;
        if is_right {
            return Ok(is_volume);
        }
        if is_volume {
            self.recount_volume(caller, directory, inode)?;
            return Ok(true);
        }
        // With what is in memory of it locked: what is not saved yet was promised to the volume before.
        self.changing(caller, inode, None, |transaction, value| {
            let home = inode_if_any(transaction, directory)?.map(|directory| directory.volume);
            if let Some(home) = home.filter(|_| value.parent == directory) {
                value.volume = home;
            }
            transaction.set_owed();
            Ok(())
        })
        .map(|_| false)
        // It was removed.
        .or_else(|error| if matches!(error, Error::Stale) { Ok(false) } else { Err(error) })
    }

    /// A volume that was met in a directory lies in the volume of that.
    fn recount_volume(&self, caller: &Caller<'_>, directory: u64, inode: u64) -> Result<(), Error> {
        self.store.update(caller.wait, |transaction| {
            let Some(mut value) = inode_if_any(transaction, inode)?.filter(|value| value.parent == directory) else {
                return Ok(());
            };
            transaction.set_owed();
            self.count_where_it_lies(transaction, inode, &mut value)?;
            stere_file::put_inode(transaction, inode, &value);
            Ok(())
        })
    }

    /// Takes the note away, unless the directory was moved again meanwhile.
    fn finish_recount(&self, caller: &Caller<'_>, recount: &Recount) -> Result<(), Error> {
        let key = Key::recount(recount.directory);
        let is_done = self.store.update(caller.wait, |transaction| {
            let number = transaction.get(&key)?.map(|bytes| number_of(&bytes));
            let is_done = number.is_none_or(|number| number == recount.number);
            if is_done {
                transaction.delete(key);
            }
            Ok::<_, Error>(is_done)
        })?;
        if !is_done {
            self.note_accounting_work();
        }
        Ok(())
    }

    /// Removes some of the names in deleted volumes. What cannot be removed is passed over until the next mount.
    fn empty_some(&self, caller: &Caller<'_>, state: &mut State) -> Result<bool, Error> {
        for _ in 0..NAMES_PER_STEP {
            if state.levels.is_empty() {
                let Some(directory) = state.emptying.pop_front() else { return Ok(false) };
                state.levels.push(Level { directory, name: Vec::new(), next_sequence: 0 });
            }
            let Some(level) = state.levels.last_mut() else { return Ok(false) };
            let (directory, from) = (level.directory, level.next_sequence);
            let Some((sequence, inode, kind, name)) = self.next_name(caller.wait, directory, from)? else {
                let Some(done) = state.levels.pop() else { return Ok(false) };
                match state.levels.last() {
                    Some(above) => self.try_remove(caller, above.directory, &done.name, true)?,
                    None => self.finish_emptying(caller, directory)?,
                }
                continue;
            };
            level.next_sequence = sequence + 1;
            if kind == FileKind::Directory {
                state.levels.push(Level { directory: inode, name, next_sequence: 0 });
                continue;
            }
            let top = state.levels.first().map_or(directory, |level| level.directory);
            self.leave_deleted_volume(caller, top, inode)?;
            if self.is_of_versions(caller.wait, inode)? {
                self.remove_version(caller, inode)?;
            } else {
                self.try_remove(caller, directory, &name, false)?;
            }
        }
        Ok(true)
    }

    fn is_of_versions(&self, wait: Wait, inode: u64) -> Result<bool, Error> {
        let value = self.store.view(wait, |view| inode_if_any(view, inode))?;
        Ok(value.is_some_and(|value| value.flags & OF_VERSIONS != 0))
    }

    fn next_name(&self, wait: Wait, directory: u64, from: u64) -> Result<Option<NextName>, Error> {
        self.store.view(wait, |view| {
            let (mut found, mut failure) = (None, None);
            view.scan(Key::dirent(directory, from), Key::dirent(directory, u64::MAX), |key, bytes| {
                match DirentView::decode(bytes) {
                    Ok(entry) => {
                        let name = self.names.shown(directory, key.position, &entry).0.into_owned();
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
            Ok(()) => Ok(()),
        }
    }

    /// A file that has names elsewhere counts in what the deleted volume lay in, whose directory is `top`.
    fn leave_deleted_volume(&self, caller: &Caller<'_>, top: u64, inode: u64) -> Result<(), Error> {
        let value = self.store.view(caller.wait, |view| inode_if_any(view, inode))?;
        if value.is_none_or(|value| value.nlink < 2) {
            return Ok(());
        }
        self.changing(caller, inode, None, |transaction, value| {
            let deleted = inode_if_any(transaction, top)?.map_or(0, |directory| directory.volume);
            if volumes_of(transaction, value.volume)?.contains(&deleted) {
                value.volume = deleted;
            }
            let mut place = volume_place(transaction, value.volume)?;
            while let Some(deleted) = place.filter(|place| place.is_deleted) {
                value.volume = deleted.parent;
                place = volume_place(transaction, deleted.parent)?;
            }
            transaction.set_owed();
            Ok(())
        })?;
        Ok(())
    }

    /// The directory itself goes, if nothing is left in it.
    fn finish_emptying(&self, caller: &Caller<'_>, directory: u64) -> Result<(), Error> {
        let is_done = self.store.update(caller.wait, |transaction| {
            let is_listed = transaction.get(&Key::orphan(directory))?.is_some_and(|kind| *kind == EMPTYING);
            let is_done = is_listed && is_empty(transaction, directory)?;
            if is_done {
                stere_file::list_nameless(transaction, directory);
            }
            Ok::<_, Error>(is_done)
        })?;
        if is_done {
            self.files.note_orphan_forgotten(directory, OrphanKind::Removed);
        }
        Ok(())
    }

    /// Whether deleted volumes are still being emptied.
    pub fn is_emptying(&self, wait: Wait) -> Result<bool, Error> {
        Ok(!self.read_notes(wait)?.1.is_empty())
    }
}
