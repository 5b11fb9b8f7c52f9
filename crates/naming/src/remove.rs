//! Removing names, and with the last name the inode, unless somebody has it open.

use stere_file::{Gone, Unlink, inode_if_any};
use stere_format::{FileKind, InodeValue};
use stere_store::Transaction;

use crate::error::Error;
use crate::names::{Found, check_name, is_empty};
use crate::{Caller, FileSystem, directory, put_changed_directory};

/// What a transaction on a name found.
pub(crate) enum Attempt<T> {
    /// It took effect.
    Done(T),
    /// The name means another inode than the one that was locked: look again.
    Moved,
}

/// What a transaction that removes a name did.
pub(crate) struct Removed<T> {
    pub attempt: Attempt<T>,
    pub gone: Gone,
    /// The inode as it was last, if it lost a name.
    pub last: Option<InodeValue>,
}

impl<T> Removed<T> {
    /// Nothing was removed.
    pub fn nothing(attempt: Attempt<T>) -> Removed<T> {
        Removed { attempt, gone: Gone::Stays, last: None }
    }
}

impl FileSystem {
    /// Removes a name of anything but a directory.
    pub fn unlink(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) -> Result<(), Error> {
        check_name(name)?;
        if matches!(name, b"." | b"..") {
            return Err(Error::IsADirectory);
        }
        self.remove(caller, parent, name, false)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) -> Result<(), Error> {
        check_name(name)?;
        match name {
            b"." => return Err(Error::Invalid("\".\" cannot be removed; name the directory")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        self.remove(caller, parent, name, true)
    }

    fn remove(&self, caller: &Caller<'_>, parent: u64, name: &[u8], as_directory: bool) -> Result<(), Error> {
        loop {
            let found = self.store.view(caller.wait, |view| {
                let found = self.hasher.find(view, parent, name)?;
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
            let attempt = self.removing(caller, found.inode, |transaction, unlink| {
                self.remove_found(transaction, unlink, caller, parent, name, &found)
            })?;
            if let Attempt::Done(()) = attempt {
                self.lazy_times.remove(found.inode);
                return Ok(());
            }
        }
    }

    /// As the file layer's `removing`, with this layer's errors.
    pub(crate) fn removing<T>(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        mut change: impl FnMut(&mut Transaction<'_>, &Unlink) -> Result<Removed<T>, Error>,
    ) -> Result<Attempt<T>, Error> {
        let mut last = None;
        let (attempt, gone) = self.files.removing(&caller.context(), inode, |transaction, unlink| {
            let removed = change(transaction, unlink)?;
            last = removed.last;
            Ok::<_, Error>(((removed.attempt, removed.gone), removed.gone))
        })?;
        if let Some(value) = last.filter(|_| gone == Gone::Freed) {
            self.ghosts.add(inode, value);
        }
        Ok(attempt)
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
        if self.hasher.find(transaction, parent, name)? != Some(*expected) {
            return Ok(Removed::nothing(Attempt::Moved));
        }
        let mut directory = directory(transaction, parent)?;
        let value = self.victim(transaction, expected)?;
        if expected.kind == FileKind::Directory {
            if !is_empty(transaction, expected.inode)? {
                return Err(Error::NotEmpty);
            }
            directory.nlink = directory.nlink.saturating_sub(1);
        }
        self.hasher.remove(transaction, parent, &mut directory, name, expected)?;
        put_changed_directory(transaction, parent, &mut directory, caller.now);
        let (gone, last) = drop_name(transaction, unlink, caller, expected, value)?;
        Ok(Removed { attempt: Attempt::Done(()), gone, last: Some(last) })
    }

    /// The inode behind a name that is to go.
    pub(crate) fn victim(&self, transaction: &mut Transaction<'_>, found: &Found) -> Result<InodeValue, Error> {
        inode_if_any(transaction, found.inode)?.ok_or_else(|| {
            Error::Damaged(format!("inode {} has a name but does not exist; run `stere check`", found.inode))
        })
    }
}

/// Takes the link of a removed name from its inode; gives what became of it and how it was last.
pub(crate) fn drop_name(
    transaction: &mut Transaction<'_>,
    unlink: &Unlink,
    caller: &Caller<'_>,
    found: &Found,
    mut value: InodeValue,
) -> Result<(Gone, InodeValue), Error> {
    value.ctime = caller.now;
    value.nlink = if found.kind == FileKind::Directory { 0 } else { value.nlink.saturating_sub(1) };
    let last = value.clone();
    let gone = unlink.apply(transaction, found.inode, value, last.nlink == 0)?;
    Ok((gone, last))
}
