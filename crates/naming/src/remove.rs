//! Removing names, and with the last name the inode, unless somebody has it open.

use stere_features::accounting::EMPTYING;
use stere_file::{Gone, Keys, Unlink, inode_if_any, requests};
use stere_format::{FileKind, InodeValue, Key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode;
use stere_namespace::inode::{directory, put_changed_directory};
use stere_namespace::junctions;
use stere_namespace::names::Found;
use stere_store::{Io, Transaction};

use crate::name_changes::NameChanges;

/// What a transaction on a name found.
pub(crate) enum Attempt<T> {
    /// It took effect.
    Done(T),
    /// The name means another inode than the one that was locked: look again.
    Moved,
}

/// What a transaction that removes a name did, and what became of the name's inode.
pub(crate) type Removed<T> = (Attempt<T>, Gone);

impl NameChanges {
    /// What a name means that is to be removed.
    pub fn to_remove(&self, io: Io<'_>, parent: u64, name: &[u8], as_directory: bool) -> Result<Found, Error> {
        let found = self.core.store.view(io, |view| {
            let found = self.core.names.find(view, parent, name)?;
            if found.is_none() {
                directory(view, parent)?;
            }
            Ok::<_, Error>(found)
        })?;
        let found = found.ok_or(Error::NotFound)?;
        match (as_directory, found.kind == FileKind::Directory) {
            (true, false) => Err(Error::NotADirectory),
            (false, true) => Err(Error::IsADirectory),
            _ => Ok(found),
        }
    }

    /// Removes a name, if it still means what was found. `by_kernel`: the caller knows the inode, and says when it has forgotten it.
    pub fn remove(
        &self,
        caller: &Caller<'_>,
        place: (u64, &[u8]),
        found: &Found,
        by_kernel: bool,
        may_keep: &mut bool,
    ) -> Result<Attempt<()>, Error> {
        let attempt_to = |may_keep: bool| {
            let change = |transaction: &mut Transaction<'_>, unlink: &Unlink| {
                let removed = self.remove_found(transaction, unlink, caller, place, found, may_keep)?;
                if matches!(removed.0, Attempt::Done(())) {
                    requests::note(transaction, caller.request.as_ref(), 0);
                }
                Ok(removed)
            };
            match by_kernel {
                true => self.core.files.orphans.removing(&caller.context(), found.inode, change),
                false => self.core.files.orphans.removing_unheld(&caller.context(), found.inode, change),
            }
        };
        let mut attempt = attempt_to(*may_keep);
        if *may_keep && matches!(attempt, Err(Error::NoSpace)) {
            // Full is never stuck: then it goes for good.
            self.versions.note_full();
            *may_keep = false;
            attempt = attempt_to(false);
        }
        let attempt = attempt?;
        if let Attempt::Done(()) = attempt {
            if found.kind == FileKind::Directory && self.versions.is_used() {
                // Those of its versions may lie elsewhere now.
                self.core.files.resolver().invalidate();
            }
            self.access_times.remove(found.inode);
        }
        Ok(attempt)
    }

    pub(crate) fn remove_found(
        &self,
        transaction: &mut Transaction<'_>,
        unlink: &Unlink,
        caller: &Caller<'_>,
        (parent, name): (u64, &[u8]),
        expected: &Found,
        may_keep: bool,
    ) -> Result<Removed<()>, Error> {
        if self.core.names.find(transaction, parent, name)? != Some(*expected) {
            return Ok((Attempt::Moved, Gone::Stays));
        }
        inode::check_not_of_versions(&directory(transaction, parent)?)?;
        let mut value = victim(transaction, expected)?;
        inode::check_not_of_versions(&value)?;
        stere_file::check_changeable(&value, caller.now)?;
        junctions::check_none(&value)?;
        let place = (parent, name);
        let is_directory = expected.kind == FileKind::Directory;
        if is_directory {
            if self.quotas.is_condemned(caller, expected.inode) {
                return self.remove_condemned(transaction, caller, parent, expected, value);
            }
            if !self.versions.is_empty_of_names(transaction, expected.inode)? {
                return Err(Error::NotEmpty);
            }
            self.quotas.close_volume_at(transaction, expected.inode, &value)?;
            if self.versions.shelve_directory(transaction, caller, place, expected.inode)? {
                value = victim(transaction, expected)?;
            }
        }
        self.rules.forget_rules(transaction, expected.inode, &value)?;
        let is_kept = may_keep && self.versions.keep_removed(transaction, unlink, caller, place, expected, &value)?;
        assert!(!(is_kept && is_directory), "directory {} does not become a version", expected.inode);
        let mut above = directory(transaction, parent)?;
        above.nlink = above.nlink.saturating_sub(u32::from(is_directory));
        self.core.names.remove(transaction, parent, &mut above, expected)?;
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
        assert_eq!(expected.kind, FileKind::Directory, "a volume that is deleted is a directory");
        self.quotas.close_volume_at(transaction, expected.inode, &value)?;
        self.rules.forget_rules(transaction, expected.inode, &value)?;
        let mut above = directory(transaction, parent)?;
        above.nlink = above.nlink.saturating_sub(1);
        self.core.names.remove(transaction, parent, &mut above, expected)?;
        put_changed_directory(transaction, parent, &mut above, caller.now);
        stere_file::put_inode(transaction, expected.inode, &InodeValue { nlink: 0, ctime: caller.now, ..value });
        transaction.put(Key::orphan(expected.inode), &EMPTYING);
        self.quotas.note_accounting_work();
        Ok((Attempt::Done(()), Gone::Stays))
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
        self.multiple_names.lose_name(transaction, found.inode, &before, &mut value, (directory, found.sequence))?;
        Ok(unlink.apply(transaction, found.inode, value, nlink == 0)?)
    }
}

/// The inode behind a name that is to go.
pub(crate) fn victim(keys: &impl Keys, found: &Found) -> Result<InodeValue, Error> {
    inode_if_any(keys, found.inode)?.ok_or_else(|| {
        Error::Damaged(format!("inode {} has a name but does not exist; run `stere check`", found.inode))
    })
}
