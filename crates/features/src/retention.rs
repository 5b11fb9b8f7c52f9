//! Retention: files that nobody may change or remove until a moment, neither their owner nor root.
//!
//! The moment is in the inode; whatever changes a file asks there, in the transaction that changes it or with the file locked. It can
//! be made later, never earlier, until it is over. What a directory says reaches a file when that has been closed and left alone for a
//! while: files that this waits for are on a list, put there by the transaction that brought them below the directory.
//! Time is the caller's. Invariant: a file that has a moment is on the list no more, so one that was over does not begin again.
//! Read next: `stere_policy::Retain`, `docs/design/retention.md`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use stere_faults::{Bug, is_planted};
use stere_file::named_in::directories_of;
use stere_file::{Keys, OF_VERSIONS, check_changeable, inode_if_any, own_retain, set_own_retain};
use stere_format::{FileKind, InodeValue, Key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::{Core, nearest};
use stere_namespace::xattr;
use stere_namespace::xattr::SetMode;
use stere_policy::{Retain, Retention};
use stere_store::{Io, Transaction};

/// The attribute that says how long.
pub const ATTRIBUTE: &[u8] = b"user.stere.retain";
/// The attribute that says that only root says so, here and below.
pub const LOCK: &[u8] = b"trusted.stere.retain";
/// All that it can say.
const LOCKED: &[u8] = b"none";
/// Files of the list that are looked at in one step.
const FILES_PER_STEP: usize = 1024;
/// How often the list is looked at, in seconds.
const LOOK_SECONDS: i64 = 10;

/// Retention of files, and the list of those that wait for it.
pub struct Retentions {
    core: Arc<Core>,
    /// Whether anything in the pool ever was to be retained.
    is_used: AtomicBool,
    next_look: AtomicI64,
    /// Where in the list the next look begins.
    next_inode: AtomicU64,
}

impl Retentions {
    /// Reads whether the pool has any.
    pub fn load(core: Arc<Core>) -> Result<Retentions, Error> {
        let marker = core.store.view(Io::BLOCKING, |view| Ok::<_, Error>(view.get(&Key::retention(0))?.is_some()))?;
        Ok(Retentions {
            core,
            is_used: AtomicBool::new(marker),
            next_look: AtomicI64::new(0),
            next_inode: AtomicU64::new(0),
        })
    }

    /// Whether anything in the pool ever was to be retained.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }
}

/// What the nearest directory says from this one upward, and which it is.
fn said_above(keys: &impl Keys, directory: u64) -> Result<Option<(u64, Retain)>, Error> {
    let said = nearest(keys, directory, |_, value| Ok(own_retain(value)))?;
    Ok(said.filter(|(_, retain)| retain.retention != Retention::Nothing))
}

/// The same for a file by all of its names: what keeps it longest from `now` on.
pub fn said_of_file(
    keys: &impl Keys,
    inode: u64,
    value: &InodeValue,
    now: i64,
) -> Result<Option<(u64, Retain)>, Error> {
    let mut longest: Option<(u64, Retain)> = None;
    for directory in directories_of(keys, inode, value)? {
        let said = said_above(keys, directory)?;
        if said.is_some_and(|(_, retain)| longest.is_none_or(|(_, so_far)| retain.begins(now) > so_far.begins(now))) {
            longest = said;
        }
    }
    Ok(longest)
}

/// Whether only root says here how long files are retained.
fn is_locked(keys: &impl Keys, inode: u64) -> Result<bool, Error> {
    let lock = |at, value: &InodeValue| match value.flags & xattr::HAS_ATTRIBUTES {
        0 => Ok(None),
        _ => xattr::get(keys, at, LOCK),
    };
    Ok(nearest(keys, inode, lock)?.is_some())
}

impl Retentions {
    /// From now on only root says here and below how long files are retained; without a value whoever owns them does again.
    pub fn lock_retain(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        value: Option<&[u8]>,
        mode: SetMode,
    ) -> Result<(), Error> {
        if value.is_some_and(|value| value != LOCKED) {
            return Err(Error::Invalid(
                "retain can be locked to none only: then nobody but root retains anything there",
            ));
        }
        self.core.changing_attribute(caller, inode, |transaction, inode_value| {
            if inode_value.kind() != Some(FileKind::Directory) {
                return Err(Error::NotPermitted("retention is locked for what is in a directory"));
            }
            xattr::check_mode(mode, xattr::get(transaction, inode, LOCK)?.is_some())?;
            match value {
                Some(value) => {
                    inode_value.flags |= xattr::HAS_ATTRIBUTES;
                    xattr::put(transaction, inode, LOCK, value)
                }
                None => xattr::remove(transaction, inode, LOCK).map(drop),
            }
        })
    }

    /// Sets until when a file is retained, or what a directory says of files; without a value nothing is said here any more.
    pub fn set_retain(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        value: Option<&[u8]>,
        mode: SetMode,
    ) -> Result<(), Error> {
        let text = value.filter(|text| !text.is_empty());
        let now = caller.now.seconds;
        // Before the note can be seen that files are to be looked at.
        self.is_used.store(true, Ordering::Release);
        self.core.changing(caller, inode, None, |transaction, value| {
            let is_file = match value.kind() {
                Some(FileKind::File) => true,
                Some(FileKind::Directory) => false,
                _ => return Err(Error::NotPermitted("policy can be set on files and directories")),
            };
            if caller.uid != 0 && caller.uid != value.uid {
                return Err(Error::NotPermitted("how long a file is retained, its owner and root say"));
            }
            if caller.uid != 0 && text.is_some() && is_locked(transaction, inode)? {
                return Err(Error::NotPermitted("the administrator locked retention here or above"));
            }
            xattr::check_mode(mode, own_retain(value).is_some())?;
            let parse = if is_file { Retain::of_file } else { Retain::of_directory };
            let retain = text.map(|text| parse(text, now)).transpose()?;
            let is_longer = own_retain(value).zip(retain).is_some_and(|(old, new)| new.begins(now) >= old.begins(now));
            if !is_longer && !is_planted(Bug::MomentShortened) {
                check_changeable(value, caller.now)?;
            }
            set_own_retain(value, retain);
            value.ctime = caller.now;
            transaction.put(Key::retention(0), &[1]);
            if is_file {
                transaction.delete(Key::retention(inode));
                return Ok(());
            }
            self.core.reconcile.note(transaction, inode)
        })?;
        Ok(())
    }

    /// A file comes to lie in a directory, or is met there: if it is to be retained, it goes on the list.
    pub fn await_retention(
        &self,
        transaction: &mut Transaction<'_>,
        inode: u64,
        value: &InodeValue,
    ) -> Result<(), Error> {
        let is_open = self.is_used() && value.kind() == Some(FileKind::File) && own_retain(value).is_none();
        if is_open && said_of_file(transaction, inode, value, 0)?.is_some() {
            transaction.put(Key::retention(inode), &[1]);
        }
        Ok(())
    }

    /// Whether files that come to lie in a directory are to be retained.
    pub fn retains(&self, keys: &impl Keys, directory: u64) -> Result<bool, Error> {
        Ok(self.is_used() && said_above(keys, directory)?.is_some())
    }

    /// As `await_retention`, for a file that a walk met.
    pub fn await_retention_of_met(&self, caller: &Caller<'_>, inode: u64, parent: u64) -> Result<(), Error> {
        if !self.core.store.view(caller.io, |view| self.retains(view, parent))? {
            return Ok(());
        }
        self.core.store.update(caller.io, |transaction| match inode_if_any(transaction, inode)? {
            Some(value) => self.await_retention(transaction, inode, &value),
            None => Ok(()),
        })
    }

    /// Begins the retention of files that have been left alone long enough, some of them. Tells whether there are more to look at.
    pub fn begin_retentions(&self, caller: &Caller<'_>) -> Result<bool, Error> {
        let (now, due) = (caller.now.seconds, self.next_look.load(Ordering::Acquire));
        // A clock that was set back makes nothing wait for long.
        if !self.is_used() || (now < due && due - now <= LOOK_SECONDS) {
            return Ok(false);
        }
        let from = self.next_inode.load(Ordering::Acquire).max(1);
        let waiting = self.core.store.view(caller.io, |view| {
            let mut waiting = Vec::new();
            view.scan(Key::retention(from), Key::retention(u64::MAX), |key, _| {
                waiting.push(key.position);
                if waiting.len() < FILES_PER_STEP { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            Ok::<_, Error>(waiting)
        })?;
        assert!(waiting.len() <= FILES_PER_STEP, "one step looks at a bounded number of files");
        assert!(waiting.first().is_none_or(|first| *first >= from), "the list is gone through in order");
        let mut outcome = Ok(());
        for inode in &waiting {
            // One that cannot be read must not keep the others from it.
            outcome = outcome.and(self.begin_retention(caller, *inode));
        }
        let next = waiting.last().filter(|_| waiting.len() == FILES_PER_STEP).map(|last| last + 1);
        assert!(next.is_none_or(|next| next > from), "the list is gone through in order, from {from} to {next:?}");
        self.next_inode.store(next.unwrap_or(0), Ordering::Release);
        if next.is_none() {
            self.next_look.store(now + LOOK_SECONDS, Ordering::Release);
        }
        outcome.map(|()| next.is_some())
    }

    fn begin_retention(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        if self.core.files.table.contains(inode) {
            // It is open, or not all of it is saved.
            return Ok(());
        }
        let now = caller.now.seconds;
        let known = self.core.store.view(caller.io, |view| {
            let value = inode_if_any(view, inode)?.filter(|value| value.nlink > 0 && own_retain(value).is_none());
            let value = value.filter(|value| value.flags & OF_VERSIONS == 0);
            let said = |value| said_of_file(view, inode, value, now);
            let above = value.as_ref().map(said).transpose()?.flatten();
            Ok::<_, Error>(value.zip(above))
        })?;
        let Some((value, (_, retain))) = known else {
            return self.core.store.update(caller.io, |transaction| {
                transaction.delete(Key::retention(inode));
                Ok(())
            });
        };
        let is_due = |value: &InodeValue| value.ctime.seconds.saturating_add(retain.after.into()) <= now;
        if !is_due(&value) {
            return Ok(());
        }
        self.core.changing(caller, inode, None, |transaction, value| {
            if is_due(value) && own_retain(value).is_none() {
                let until = retain.begins(now).map(Retention::Until);
                assert!(until.is_some(), "a directory that says nothing retains nothing");
                set_own_retain(value, until.map(|retention| Retain { retention, after: 0 }));
                transaction.delete(Key::retention(inode));
            }
            Ok(())
        })?;
        Ok(())
    }
}
