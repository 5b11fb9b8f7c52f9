//! What accounts need in the background: counting what exists, following directories that were moved, emptying deleted volumes.
//!
//! Everything goes on in steps after a crash: how far counting is stands in the pool, and so do directories below which inodes may
//! still count elsewhere, and directories whose names are to go. One who walks to set right in which volume something counts sets it to that of
//! the directory that it met it in, not to that of the beginning: so walks that overlap, and moves meanwhile, come to the same.
//! Read next: `volumes.rs`, `walk.rs`.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stere_file::accounts::{Sums, accounting, add_inode, put_account, volume_place};
use stere_file::inode_if_any;
use stere_file::metadata::attributes_of;
use stere_format::{AccountingValue, FileKind, Holder, InodeValue, Key, VolumePlace, key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::names::Form;
use stere_namespace::walk::{Met, Walk};
use stere_store::{Io, Transaction};

use crate::retention::Retentions;
use crate::volumes::read_accounts;

/// Inodes that one transaction counts.
const INODES_PER_STEP: usize = 128;
/// Names looked at, or removed, in one step.
const NAMES_PER_STEP: usize = 256;
/// What stands in the list of orphans of a directory whose names are to go.
pub const EMPTYING: [u8; 1] = [3];

/// A walk below a directory that was moved, or made a volume.
struct Recount {
    directory: u64,
    /// Of the note when it began.
    number: u64,
    walk: Walk,
}

#[derive(Default)]
struct State {
    recounts: VecDeque<u64>,
    recount: Option<Recount>,
}

/// Volumes, limits and accounts, and the background work that they need.
pub struct Quotas {
    pub core: Arc<Core>,
    pub retention: Arc<Retentions>,
    /// The volume that the next removal of its directory deletes, and since when.
    pub condemned: Mutex<Option<(u64, i64)>>,
    has_new_notes: AtomicBool,
    state: Mutex<State>,
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// What one step of the accounts came to.
#[derive(Default)]
pub struct AccountingStep {
    /// Deleted volumes that are still to be emptied, where they were looked for.
    pub emptying: Option<VecDeque<u64>>,
    /// Counting goes on first.
    pub is_counting: bool,
    /// There is more to do.
    pub has_more: bool,
}

impl Quotas {
    pub fn new(core: Arc<Core>, retention: Arc<Retentions>) -> Quotas {
        // What an earlier mount left is looked for.
        let has_new_notes = AtomicBool::new(true);
        Quotas { core, retention, condemned: Mutex::default(), has_new_notes, state: Mutex::default() }
    }

    /// Notes that what is below a directory may count elsewhere than the directory.
    pub fn note_recount(&self, transaction: &mut Transaction<'_>, directory: u64) -> Result<(), Error> {
        let key = Key::recount(directory);
        let number = transaction.get(&key)?.map_or(0, |bytes| number_of(&bytes));
        transaction.put(key, &(number + 1).to_le_bytes());
        self.note_accounting_work();
        Ok(())
    }

    /// Looked for under the store's lock, which the transaction that notes the work holds.
    pub fn note_accounting_work(&self) {
        self.has_new_notes.store(true, Ordering::Release);
    }

    /// Whether inodes may count elsewhere than where they lie.
    pub fn has_recounts(&self, io: Io<'_>) -> Result<bool, Error> {
        Ok(!self.read_notes(io)?.0.is_empty())
    }

    /// Directories with a note, and directories that are to be emptied.
    fn read_notes(&self, io: Io<'_>) -> Result<(VecDeque<u64>, VecDeque<u64>), Error> {
        self.core.store.view(io, |view| {
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

    /// A piece of the work.
    pub fn step_accounting(&self, caller: &Caller<'_>) -> Result<AccountingStep, Error> {
        let (mut step, accounts) = (AccountingStep::default(), self.core.files.accounts());
        if !accounts.is_on() {
            return Ok(step);
        }
        accounts.note_time(caller.now);
        let Some(mut state) = self.state.try_lock() else { return Ok(step) };
        if self.count_some(caller)?
            || self.core.files.charging.count_metadata_some(caller.io)?
            || (accounts.keeps_stored() && self.core.files.charging.charge_some(caller.io)?)
        {
            (step.is_counting, step.has_more) = (true, true);
            return Ok(step);
        }
        if self.has_new_notes.swap(false, Ordering::AcqRel) {
            match self.read_notes(caller.io) {
                Ok((recounts, emptying)) => (state.recounts, step.emptying) = (recounts, Some(emptying)),
                Err(error) => {
                    self.note_accounting_work();
                    return Err(error);
                }
            }
        }
        let recounts = self.recount_some(caller, &mut state);
        if recounts.is_err() {
            // From the beginning: what was in hand is not known any more.
            state.recount = None;
            self.note_accounting_work();
        }
        step.has_more = recounts? || self.has_new_notes.load(Ordering::Acquire);
        Ok(step)
    }

    /// Counts some of the inodes that are not counted yet.
    pub fn count_some(&self, caller: &Caller<'_>) -> Result<bool, Error> {
        let counted = self.core.store.view(caller.io, |view| accounting(view))?.map(|accounting| accounting.counted);
        if counted.is_none_or(|counted| counted == AccountingValue::ALL) {
            return Ok(false);
        }
        self.core.store.update(caller.io, |transaction| {
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
                assert!(inode >= at, "inodes are counted in their order");
                at = inode + 1;
            }
            transaction.put(Key::accounting(), &AccountingValue { counted: at, ..accounting }.encode());
            transaction.set_charge_pending();
            self.core.files.accounts().enter(transaction, sums)?;
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
                let note = self.core.store.view(caller.io, |view| view.get(&Key::recount(directory)))?;
                let Some(note) = note else { return Ok(!state.recounts.is_empty()) };
                let walk = Walk::new(directory, FileKind::Directory, Vec::new(), Form::Plain);
                Recount { directory, number: number_of(&note), walk }
            }
        };
        for _ in 0..NAMES_PER_STEP {
            let Some(met) = recount.walk.next(&self.core.store, &self.core.names, caller.io)? else {
                self.finish_recount(caller, &recount)?;
                return Ok(!state.recounts.is_empty());
            };
            let Some(directory) = recount.walk.directory(&met) else { continue };
            if self.recount_met(caller, directory, &met)? && met.kind == FileKind::Directory {
                recount.walk.skip();
            }
        }
        assert!(state.recount.is_none(), "one directory is counted at a time");
        state.recount = Some(recount);
        Ok(true)
    }

    /// What was met in a directory counts where that does. Tells whether it is a volume of its own.
    fn recount_met(&self, caller: &Caller<'_>, directory: u64, met: &Met) -> Result<bool, Error> {
        let inode = met.inode;
        let (is_right, is_volume) = self.core.store.view(caller.io, |view| {
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
        self.core
            .changing(caller, inode, None, |transaction, value| {
                let home = inode_if_any(transaction, directory)?.map(|directory| directory.volume);
                if let Some(home) = home.filter(|_| value.parent == directory) {
                    value.volume = home;
                }
                transaction.set_charge_pending();
                Ok(())
            })
            .map(|_| false)
            // It was removed.
            .or_else(|error| if matches!(error, Error::Stale) { Ok(false) } else { Err(error) })
    }

    /// A volume that was met in a directory lies in the volume of that.
    fn recount_volume(&self, caller: &Caller<'_>, directory: u64, inode: u64) -> Result<(), Error> {
        self.core.store.update(caller.io, |transaction| {
            let Some(mut value) = inode_if_any(transaction, inode)?.filter(|value| value.parent == directory) else {
                return Ok(());
            };
            transaction.set_charge_pending();
            self.count_where_it_lies(transaction, inode, &mut value)?;
            stere_file::put_inode(transaction, inode, &value);
            Ok(())
        })
    }

    /// Takes the note away, unless the directory was moved again meanwhile.
    fn finish_recount(&self, caller: &Caller<'_>, recount: &Recount) -> Result<(), Error> {
        let key = Key::recount(recount.directory);
        let is_done = self.core.store.update(caller.io, |transaction| {
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

    /// Whether deleted volumes are still being emptied.
    pub fn is_emptying(&self, io: Io<'_>) -> Result<bool, Error> {
        Ok(!self.read_notes(io)?.1.is_empty())
    }
}
