//! Renaming: one transaction, whatever it replaces or exchanges.

use std::sync::Arc;

use stere_faults::{Bug, is_planted};
use stere_file::{Gone, Keys, Unlink, inode_if_any, requests};
use stere_format::FileKind;
use stere_namespace::call::{Caller, ROOT};
use stere_namespace::error::Error;
use stere_namespace::inode;
use stere_namespace::inode::{directory, living_directory, put_changed_directory};
use stere_namespace::junctions;
use stere_namespace::names::{Found, check_name};
use stere_namespace::rules::Scopes;
use stere_store::{Io, Transaction};

use crate::name_changes::NameChanges;
use crate::pipeline::Renaming;
use crate::remove::{Attempt, Removed, victim as found_victim};

/// Fail when the new name exists.
pub const RENAME_NOREPLACE: u32 = 1;
/// Swap the two names.
pub const RENAME_EXCHANGE: u32 = 2;
/// Leave a whiteout; not supported.
pub const RENAME_WHITEOUT: u32 = 4;

/// Directories above one another that are followed before the metadata is taken to be damaged.
const DEPTH_MAX: usize = 65_536;

/// A rename, with what its names mean now.
pub(crate) struct Rename<'a> {
    parent: u64,
    name: &'a [u8],
    new_parent: u64,
    new_name: &'a [u8],
    flags: u32,
    /// The rules where the names are, and where they will be.
    scopes: [Arc<Scopes>; 2],
}

impl Rename<'_> {
    /// Whether a name decides anything.
    fn has_rules(&self) -> bool {
        self.scopes.iter().any(|scopes| !scopes.is_empty())
    }
}

fn note_done(transaction: &mut Transaction<'_>, caller: &Caller<'_>, attempt: &Attempt<bool>) {
    if matches!(attempt, Attempt::Done(_)) {
        requests::note(transaction, caller.request.as_ref(), 0);
    }
}

impl NameChanges {
    /// Begins a rename: what is asked for must be one that there is. The rules of both directories are looked up once.
    pub fn begin_rename<'a>(&self, caller: &Caller<'_>, asked: &Renaming<'a>) -> Result<Rename<'a>, Error> {
        let Renaming { parent, name, new_parent, new_name, flags, .. } = *asked;
        let known = RENAME_NOREPLACE | RENAME_EXCHANGE;
        if flags & !known != 0 || flags == known {
            return Err(Error::Invalid("rename knows NOREPLACE or EXCHANGE, one at a time"));
        }
        for name in [name, new_name] {
            check_name(name)?;
            if matches!(name, b"." | b"..") {
                return Err(Error::Invalid("\".\" and \"..\" cannot be renamed"));
            }
        }
        let scopes = [self.rules.scopes(caller.io, parent)?, self.rules.scopes(caller.io, new_parent)?];
        Ok(Rename { parent, name, new_parent, new_name, flags, scopes })
    }

    /// What the two names mean now.
    pub fn meant_by(&self, io: Io<'_>, rename: &Rename<'_>) -> Result<[Option<Found>; 2], Error> {
        self.core.store.view(io, |view| {
            let source = self.core.names.find(view, rename.parent, rename.name)?;
            Ok([source, self.core.names.find(view, rename.new_parent, rename.new_name)?])
        })
    }

    /// Renames, if the new name still means `target`.
    pub fn rename(
        &self,
        caller: &Caller<'_>,
        rename: &Rename<'_>,
        target: Option<Found>,
        may_keep: &mut bool,
    ) -> Result<Attempt<()>, Error> {
        let attempt = match target {
            Some(target) if rename.flags == 0 => {
                let over = |may_keep: bool| {
                    self.core.files.orphans.removing(&caller.context(), target.inode, |transaction, unlink| {
                        let renamed = self.rename_over(transaction, unlink, caller, rename, &target, may_keep)?;
                        note_done(transaction, caller, &renamed.0);
                        Ok(renamed)
                    })
                };
                let mut attempt = over(*may_keep);
                if *may_keep && matches!(attempt, Err(Error::NoSpace)) {
                    // Full is never stuck: then what is replaced goes for good.
                    self.versions.note_full();
                    *may_keep = false;
                    attempt = over(false);
                }
                self.access_times.remove(target.inode);
                attempt?
            }
            _ => self.core.store.update(caller.io, |transaction| {
                let attempt = self.rename_plain(transaction, caller, rename)?;
                note_done(transaction, caller, &attempt);
                Ok::<_, Error>(attempt)
            })?,
        };
        Ok(match attempt {
            Attempt::Done(directory_moved) => {
                if directory_moved {
                    self.core.files.resolver().invalidate();
                    self.core.policy.note_change();
                }
                Attempt::Done(())
            }
            Attempt::Moved => Attempt::Moved,
        })
    }

    /// Renames where the new name is free, or both are exchanged. Tells whether a directory changed its parent, or its
    /// name where names decide something.
    pub(crate) fn rename_plain(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        rename: &Rename<'_>,
    ) -> Result<Attempt<bool>, Error> {
        let is_known = [0, RENAME_NOREPLACE, RENAME_EXCHANGE].contains(&rename.flags);
        assert!(is_known, "a rename with flags {} was begun", rename.flags);
        let source = self.source(transaction, rename)?;
        living_directory(transaction, rename.new_parent)?;
        let target = self.core.names.find(transaction, rename.new_parent, rename.new_name)?;
        match target {
            Some(_) if rename.flags == RENAME_NOREPLACE => Err(Error::Exists),
            Some(target) if rename.flags == RENAME_EXCHANGE => {
                self.exchange(transaction, caller, rename, &source, &target).map(Attempt::Done)
            }
            Some(_) => Ok(Attempt::Moved),
            None if rename.flags == RENAME_EXCHANGE => Err(Error::NotFound),
            None => {
                check_not_below(transaction, &source, rename.new_parent)?;
                self.move_name(transaction, caller, rename, &source, None).map(Attempt::Done)
            }
        }
    }

    fn source(&self, transaction: &mut Transaction<'_>, rename: &Rename<'_>) -> Result<Found, Error> {
        directory(transaction, rename.parent)?;
        let source = self.core.names.find(transaction, rename.parent, rename.name)?.ok_or(Error::NotFound)?;
        for inode in [rename.parent, source.inode] {
            self.versions.check_no_version_in(transaction, inode)?;
        }
        if source.inode == ROOT {
            return Err(Error::Busy);
        }
        Ok(source)
    }

    /// Renames over an existing name, whose inode loses a link.
    pub(crate) fn rename_over(
        &self,
        transaction: &mut Transaction<'_>,
        unlink: &Unlink,
        caller: &Caller<'_>,
        rename: &Rename<'_>,
        expected: &Found,
        may_keep: bool,
    ) -> Result<Removed<bool>, Error> {
        assert_eq!(rename.flags, 0, "what is there is replaced where nothing else is asked for");
        let source = self.source(transaction, rename)?;
        if self.core.names.find(transaction, rename.new_parent, rename.new_name)? != Some(*expected) {
            return Ok((Attempt::Moved, Gone::Stays));
        }
        // Two names of one file: nothing happens.
        if source.inode == expected.inode {
            return Ok((Attempt::Done(false), Gone::Stays));
        }
        check_not_below(transaction, &source, rename.new_parent)?;
        let mut victim = found_victim(transaction, expected)?;
        junctions::check_none(&victim)?;
        match (source.kind == FileKind::Directory, expected.kind == FileKind::Directory) {
            (true, false) => return Err(Error::NotADirectory),
            (false, true) => return Err(Error::IsADirectory),
            (true, true) if !self.versions.is_empty_of_names(transaction, expected.inode)? => {
                return Err(Error::NotEmpty);
            }
            _ => {}
        }
        for inode in [rename.new_parent, source.inode, expected.inode] {
            self.versions.check_no_version_in(transaction, inode)?;
        }
        if !is_planted(Bug::RetainedReplaced) {
            stere_file::check_changeable(&victim, caller.now)?;
        }
        self.rules.forget_rules(transaction, expected.inode, &victim)?;
        self.quotas.close_volume_at(transaction, expected.inode, &victim)?;
        let place = (rename.new_parent, rename.new_name);
        let is_directory = expected.kind == FileKind::Directory;
        let is_shelved = is_directory && self.versions.shelve_directory(transaction, caller, place, expected.inode)?;
        if is_shelved {
            victim = found_victim(transaction, expected)?;
        }
        let is_kept = may_keep && self.versions.keep_removed(transaction, unlink, caller, place, expected, &victim)?;
        assert!(!(is_kept && is_directory), "directory {} does not become a version", expected.inode);
        let moved = self.move_name(transaction, caller, rename, &source, Some(expected))?;
        if is_kept {
            return Ok((Attempt::Done(moved), Gone::Stays));
        }
        let gone = self.drop_name(transaction, unlink, caller, rename.new_parent, expected, victim)?;
        Ok((Attempt::Done(moved || is_shelved), gone))
    }

    /// Moves the source's name; `over` is the entry it takes the place of.
    fn move_name(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        rename: &Rename<'_>,
        source: &Found,
        over: Option<&Found>,
    ) -> Result<bool, Error> {
        assert!(over.is_none_or(|over| over.inode != source.inode), "inode {} does not replace itself", source.inode);
        assert_ne!(rename.flags, RENAME_EXCHANGE, "no name moves alone where two are exchanged");
        assert!(over.is_none() || rename.flags == 0, "nothing is replaced where that was ruled out");
        let same_parent = rename.parent == rename.new_parent;
        let is_directory = source.kind == FileKind::Directory;
        let mut from = directory(transaction, rename.parent)?;
        // Not out of a directory whose names nobody can read.
        self.encryption.name_key(transaction, rename.parent, &from)?;
        self.core.names.remove(transaction, rename.parent, &mut from, source)?;
        if is_directory && !same_parent {
            from.nlink = from.nlink.saturating_sub(1);
        }
        put_changed_directory(transaction, rename.parent, &mut from, caller.now);
        // Read again: it may be the same directory.
        let mut to = directory(transaction, rename.new_parent)?;
        let key = self.encryption.name_key(transaction, rename.new_parent, &to)?;
        let sequence = match over {
            Some(over) => {
                self.core.names.replace(transaction, rename.new_parent, over, source.inode, source.kind)?;
                if over.kind == FileKind::Directory {
                    to.nlink = to.nlink.saturating_sub(1);
                }
                over.sequence
            }
            None => self.core.names.insert(
                transaction,
                rename.new_parent,
                &mut to,
                rename.new_name,
                key.as_deref(),
                source.inode,
                source.kind,
            )?,
        };
        if is_directory && !same_parent {
            to.nlink = to.nlink.checked_add(1).ok_or(Error::TooManyLinks)?;
        }
        put_changed_directory(transaction, rename.new_parent, &mut to, caller.now);
        self.rehome(transaction, caller, source, rename, true, sequence)?;
        Ok(is_directory && (!same_parent || rename.has_rules()))
    }

    fn exchange(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        rename: &Rename<'_>,
        source: &Found,
        target: &Found,
    ) -> Result<bool, Error> {
        assert_eq!(rename.flags, RENAME_EXCHANGE, "names are exchanged where that is asked for");
        if source.inode == target.inode {
            return Ok(false);
        }
        check_not_below(transaction, source, rename.new_parent)?;
        check_not_below(transaction, target, rename.parent)?;
        self.versions.check_no_version_in(transaction, target.inode)?;
        for parent in [rename.parent, rename.new_parent] {
            let value = directory(transaction, parent)?;
            self.encryption.name_key(transaction, parent, &value)?;
        }
        self.core.names.replace(transaction, rename.parent, source, target.inode, target.kind)?;
        self.core.names.replace(transaction, rename.new_parent, target, source.inode, source.kind)?;
        let source_is_directory = source.kind == FileKind::Directory;
        let target_is_directory = target.kind == FileKind::Directory;
        let mut from = directory(transaction, rename.parent)?;
        if rename.parent != rename.new_parent && source_is_directory != target_is_directory {
            from.nlink = adjusted(from.nlink, target_is_directory)?;
        }
        put_changed_directory(transaction, rename.parent, &mut from, caller.now);
        let mut to = directory(transaction, rename.new_parent)?;
        if rename.parent != rename.new_parent && source_is_directory != target_is_directory {
            to.nlink = adjusted(to.nlink, source_is_directory)?;
        }
        put_changed_directory(transaction, rename.new_parent, &mut to, caller.now);
        self.rehome(transaction, caller, source, rename, true, target.sequence)?;
        self.rehome(transaction, caller, target, rename, false, source.sequence)?;
        let is_far = rename.parent != rename.new_parent || rename.has_rules();
        Ok((source_is_directory || target_is_directory) && is_far)
    }

    /// Notes an inode's new directory, what rules say to its new name, and the time of the change. `goes`: from the old place to
    /// the new, or the other way when they are exchanged.
    fn rehome(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        found: &Found,
        rename: &Rename<'_>,
        goes: bool,
        sequence: u64,
    ) -> Result<(), Error> {
        let (here, there) = ((rename.parent, rename.name), (rename.new_parent, rename.new_name));
        let ((old_directory, _), (parent, name)) = if goes { (here, there) } else { (there, here) };
        let before = found_victim(transaction, found)?;
        let mut value = before.clone();
        stere_file::check_changeable(&value, caller.now)?;
        junctions::check_none(&value)?;
        let held = self.core.files.policies.effective(transaction, found.inode, &value)?;
        let old_parent = std::mem::replace(&mut value.parent, parent);
        let scopes = &rename.scopes[usize::from(goes)];
        if found.kind == FileKind::File && value.nlink == 1 {
            self.rules.apply_rules(scopes, name, &mut value, caller.now);
        }
        let (from, to) = ((old_directory, found.sequence), (parent, sequence));
        assert_ne!(from, to, "a name of inode {} goes to another place", found.inode);
        self.multiple_names.names_change(transaction, found.inode, &before, &mut value, Some(from), Some(to))?;
        if value.parent == parent {
            inode::note_name(&mut value, sequence);
        }
        // Paths change below a directory, and other names of a file count too: that is found out in the background.
        let is_open = found.kind == FileKind::Directory || value.nlink > 1 || !self.rules.is_current(scopes);
        if is_open && rename.has_rules() {
            self.core.reconcile.note(transaction, found.inode)?;
        }
        // What is inherited changes with the directory.
        let may_differ = old_parent != parent || !scopes.is_empty();
        if may_differ && matches!(found.kind, FileKind::File | FileKind::Directory | FileKind::Symlink) {
            let after = self.core.files.policies.effective(transaction, found.inode, &value)?;
            if after.wish != held.wish {
                self.core.reconcile.note(transaction, found.inode)?;
            }
        }
        if found.kind == FileKind::Directory && (old_parent != parent || rename.has_rules()) {
            self.offload.note_moved(transaction, caller, found.inode)?;
        }
        match found.kind {
            FileKind::Directory if old_parent != parent && self.retention.retains(transaction, parent)? => {
                self.core.reconcile.note(transaction, found.inode)?;
            }
            _ => self.retention.await_retention(transaction, found.inode, &value)?,
        }
        self.quotas.count_where_it_lies(transaction, found.inode, &mut value)?;
        value.ctime = caller.now;
        stere_file::put_inode(transaction, found.inode, &value);
        Ok(())
    }
}

fn adjusted(nlink: u32, gains: bool) -> Result<u32, Error> {
    if gains { nlink.checked_add(1).ok_or(Error::TooManyLinks) } else { Ok(nlink.saturating_sub(1)) }
}

/// Refuses to move a directory into itself or below.
fn check_not_below(keys: &impl Keys, moved: &Found, new_parent: u64) -> Result<(), Error> {
    if moved.kind != FileKind::Directory {
        return Ok(());
    }
    let mut at = new_parent;
    for _ in 0..DEPTH_MAX {
        if at == moved.inode {
            return Err(Error::Invalid("a directory cannot be moved into itself"));
        }
        if at == ROOT {
            return Ok(());
        }
        match inode_if_any(keys, at)? {
            Some(value) if value.parent != at => at = value.parent,
            _ => return Ok(()),
        }
    }
    Err(Error::Damaged(format!("directory {new_parent} lies in a loop; run `stere check`")))
}
