//! Removing names, and with the last name the inode, unless somebody has it open.

use stere_file::{Gone, Unlink, inode_if_any};
use stere_format::{FileKind, InodeValue, Key};
use stere_plugin::EventKind;
use stere_store::Transaction;

use crate::accounting::EMPTYING;
use crate::error::Error;
use crate::names::{Found, check_name};
use crate::plugins::Doing;
use crate::{Caller, FileSystem, directory, put_changed_directory, versions};

/// What a transaction on a name found.
pub(crate) enum Attempt<T> {
    /// It took effect.
    Done(T),
    /// The name means another inode than the one that was locked: look again.
    Moved,
}

/// What a transaction that removes a name did, and what became of the name's inode.
pub(crate) type Removed<T> = (Attempt<T>, Gone);

impl FileSystem {
    /// Removes a name of anything but a directory.
    pub fn unlink(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) -> Result<(), Error> {
        check_name(name)?;
        if matches!(name, b"." | b"..") {
            return Err(Error::IsADirectory);
        }
        self.note_use(caller, parent);
        let watched = self.watched_name(caller, parent, name)?;
        let outcome = self.remove(caller, parent, name, false, true);
        self.saw_removed(caller, watched, &outcome);
        outcome
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) -> Result<(), Error> {
        check_name(name)?;
        match name {
            b"." => return Err(Error::Invalid("\".\" cannot be removed; name the directory")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        self.note_use(caller, parent);
        let watched = self.watched_name(caller, parent, name)?;
        let outcome = self.remove(caller, parent, name, true, true);
        self.saw_removed(caller, watched, &outcome);
        outcome
    }

    /// `by_kernel`: whoever removes the name knows the inode, and says when it has forgotten it. Else nothing of it is kept as a version.
    pub(crate) fn remove(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        as_directory: bool,
        by_kernel: bool,
    ) -> Result<(), Error> {
        let mut may_keep = by_kernel && self.may_keep_removed();
        loop {
            let found = self.store.view(caller.wait, |view| {
                let found = self.names.find(view, parent, name)?;
                if found.is_none() {
                    directory(view, parent)?;
                }
                Ok::<_, Error>(found)
            })?;
            let found = found.ok_or(Error::NotFound)?;
            match (as_directory, found.kind == FileKind::Directory) {
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                _ => {}
            }
            self.judge(caller, EventKind::Delete, found.inode, Doing { name, ..Doing::default() })?;
            let change = |transaction: &mut Transaction<'_>, unlink: &Unlink| {
                self.remove_found(transaction, unlink, caller, (parent, name), &found, may_keep)
            };
            let attempt = match by_kernel {
                true => self.files.removing(&caller.context(), found.inode, change),
                false => self.files.removing_unheld(&caller.context(), found.inode, change),
            };
            let attempt = match attempt {
                Err(Error::NoSpace) if may_keep => {
                    // Full is never stuck: then it goes for good.
                    self.note_full();
                    may_keep = false;
                    continue;
                }
                attempt => attempt?,
            };
            if let Attempt::Done(()) = attempt {
                if found.kind == FileKind::Directory && self.versions.is_used() {
                    // Those of its versions may lie elsewhere now.
                    self.files.resolver().invalidate();
                }
                self.lazy_times.remove(found.inode);
                return Ok(());
            }
        }
    }

    fn remove_found(
        &self,
        transaction: &mut Transaction<'_>,
        unlink: &Unlink,
        caller: &Caller<'_>,
        (parent, name): (u64, &[u8]),
        expected: &Found,
        may_keep: bool,
    ) -> Result<Removed<()>, Error> {
        if self.names.find(transaction, parent, name)? != Some(*expected) {
            return Ok((Attempt::Moved, Gone::Stays));
        }
        versions::check_not_of_versions(&directory(transaction, parent)?)?;
        let mut value = self.victim(transaction, expected)?;
        versions::check_not_of_versions(&value)?;
        stere_file::check_changeable(&value, caller.now)?;
        let place = (parent, name);
        let is_directory = expected.kind == FileKind::Directory;
        if is_directory {
            if self.is_condemned(caller, expected.inode) {
                return self.remove_condemned(transaction, caller, parent, expected, value);
            }
            if !self.is_empty_of_names(transaction, expected.inode)? {
                return Err(Error::NotEmpty);
            }
            self.close_volume_at(transaction, expected.inode, &value)?;
            if self.shelve_directory(transaction, caller, place, expected.inode)? {
                value = self.victim(transaction, expected)?;
            }
        }
        self.forget_rules(transaction, expected.inode, &value)?;
        let is_kept = may_keep && self.keep_removed(transaction, unlink, caller, place, expected, &value)?;
        let mut above = directory(transaction, parent)?;
        above.nlink = above.nlink.saturating_sub(u32::from(is_directory));
        self.names.remove(transaction, parent, &mut above, expected)?;
        put_changed_directory(transaction, parent, &mut above, caller.now);
        if is_kept {
            return Ok((Attempt::Done(()), Gone::Stays));
        }
        let gone = self.drop_name(transaction, unlink, caller, parent, expected, value)?;
        Ok((Attempt::Done(()), gone))
    }

    /// The name of a volume that is deleted goes; what is in it follows in the background.
    fn remove_condemned(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        parent: u64,
        expected: &Found,
        value: InodeValue,
    ) -> Result<Removed<()>, Error> {
        self.close_volume_at(transaction, expected.inode, &value)?;
        self.forget_rules(transaction, expected.inode, &value)?;
        let mut above = directory(transaction, parent)?;
        above.nlink = above.nlink.saturating_sub(1);
        self.names.remove(transaction, parent, &mut above, expected)?;
        put_changed_directory(transaction, parent, &mut above, caller.now);
        stere_file::put_inode(transaction, expected.inode, &InodeValue { nlink: 0, ctime: caller.now, ..value });
        transaction.put(Key::orphan(expected.inode), &EMPTYING);
        self.note_accounting_work();
        Ok((Attempt::Done(()), Gone::Stays))
    }

    /// The inode behind a name that is to go.
    pub(crate) fn victim(&self, transaction: &mut Transaction<'_>, found: &Found) -> Result<InodeValue, Error> {
        inode_if_any(transaction, found.inode)?.ok_or_else(|| {
            Error::Damaged(format!("inode {} has a name but does not exist; run `stere check`", found.inode))
        })
    }

    /// Takes the link of a name that was removed from a directory from its inode; gives what became of it.
    pub(crate) fn drop_name(
        &self,
        transaction: &mut Transaction<'_>,
        unlink: &Unlink,
        caller: &Caller<'_>,
        directory: u64,
        found: &Found,
        before: InodeValue,
    ) -> Result<Gone, Error> {
        let nlink = if found.kind == FileKind::Directory { 0 } else { before.nlink.saturating_sub(1) };
        let mut value = InodeValue { nlink, ctime: caller.now, ..before.clone() };
        self.lose_name(transaction, found.inode, &before, &mut value, (directory, found.sequence))?;
        Ok(unlink.apply(transaction, found.inode, value, nlink == 0)?)
    }
}
