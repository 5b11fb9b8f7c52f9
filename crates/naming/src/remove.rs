//! Removing names, and with the last name the inode, unless somebody has it open.

use stere_file::{Gone, Unlink, inode_if_any};
use stere_format::{FileKind, InodeValue, Key};
use stere_plugin::EventKind;
use stere_store::Transaction;

use crate::accounting::EMPTYING;
use crate::error::Error;
use crate::names::{Found, check_name, is_empty};
use crate::plugins::Doing;
use crate::{Caller, FileSystem, directory, put_changed_directory};

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
        self.remove(caller, parent, name, false, true)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) -> Result<(), Error> {
        check_name(name)?;
        match name {
            b"." => return Err(Error::Invalid("\".\" cannot be removed; name the directory")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        self.remove(caller, parent, name, true, true)
    }

    /// `by_kernel`: whoever removes the name knows the inode, and says when it has forgotten it.
    pub(crate) fn remove(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        as_directory: bool,
        by_kernel: bool,
    ) -> Result<(), Error> {
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
            let attempt = self.files.removing(&caller.context(), found.inode, by_kernel, |transaction, unlink| {
                self.remove_found(transaction, unlink, caller, parent, name, &found)
            })?;
            if let Attempt::Done(()) = attempt {
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
        parent: u64,
        name: &[u8],
        expected: &Found,
    ) -> Result<Removed<()>, Error> {
        if self.names.find(transaction, parent, name)? != Some(*expected) {
            return Ok((Attempt::Moved, Gone::Stays));
        }
        let mut directory = directory(transaction, parent)?;
        let mut is_emptied_later = false;
        let value = self.victim(transaction, expected)?;
        stere_file::check_changeable(&value, caller.now)?;
        if expected.kind == FileKind::Directory {
            if !is_empty(transaction, expected.inode)? {
                is_emptied_later = self.is_condemned(caller, expected.inode);
                if !is_emptied_later {
                    return Err(Error::NotEmpty);
                }
            }
            self.close_volume_at(transaction, expected.inode, &value)?;
            directory.nlink = directory.nlink.saturating_sub(1);
        }
        self.forget_rules(transaction, expected.inode, &value)?;
        self.names.remove(transaction, parent, &mut directory, expected)?;
        put_changed_directory(transaction, parent, &mut directory, caller.now);
        if is_emptied_later {
            stere_file::put_inode(transaction, expected.inode, &InodeValue { nlink: 0, ctime: caller.now, ..value });
            transaction.put(Key::orphan(expected.inode), &EMPTYING);
            self.note_accounting_work();
            return Ok((Attempt::Done(()), Gone::Stays));
        }
        let gone = drop_name(transaction, unlink, caller, expected, value)?;
        Ok((Attempt::Done(()), gone))
    }

    /// The inode behind a name that is to go.
    pub(crate) fn victim(&self, transaction: &mut Transaction<'_>, found: &Found) -> Result<InodeValue, Error> {
        inode_if_any(transaction, found.inode)?.ok_or_else(|| {
            Error::Damaged(format!("inode {} has a name but does not exist; run `stere check`", found.inode))
        })
    }
}

/// Takes the link of a removed name from its inode; gives what became of it.
pub(crate) fn drop_name(
    transaction: &mut Transaction<'_>,
    unlink: &Unlink,
    caller: &Caller<'_>,
    found: &Found,
    mut value: InodeValue,
) -> Result<Gone, Error> {
    value.ctime = caller.now;
    value.nlink = if found.kind == FileKind::Directory { 0 } else { value.nlink.saturating_sub(1) };
    let is_last = value.nlink == 0;
    Ok(unlink.apply(transaction, found.inode, value, is_last)?)
}
