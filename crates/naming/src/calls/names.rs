//! Making, linking, renaming and removing: calls on names.
//!
//! Read next: `../pipeline` (what goes around each call), `../name_changes` (the cores).

use std::ops::{ControlFlow, Range};

use stere_format::FileKind;
use stere_namespace::attributes::Attributes;
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::handles::{Handle, OpenFlags};
use stere_namespace::inode::directory;
use stere_namespace::names::{SEQUENCE_FIRST, check_name, check_new_name};
use stere_store::{Io, Transaction};

use crate::filesystem::FileSystem;
use crate::listing::DirectoryEntry;
use crate::name_changes::{New, TARGET_BYTES_MAX, number_for, opened};
use crate::pipeline::{Done, Kind, Op, Renaming};
use crate::remove::Attempt;

/// What was made.
fn done_of(attributes: &Attributes) -> Done<'_> {
    Done { made: attributes.kind().map(|kind| (attributes.inode, kind)), ..Done::default() }
}

fn opened_of((attributes, handle): &(Attributes, Handle)) -> Done<'_> {
    Done { handle: Some(*handle), ..done_of(attributes) }
}

impl FileSystem {
    /// Makes a file, device node, FIFO or socket.
    pub fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attributes, Error> {
        // A mode without a type means a regular file, as for mknod(2).
        let typed = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
        let kind = FileKind::from_mode(typed & 0xffff).ok_or(Error::Invalid("the mode names no type of file"))?;
        if kind == FileKind::Directory || kind == FileKind::Symlink {
            return Err(Error::Invalid("directories and links have calls of their own"));
        }
        let rdev = if matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice) { rdev } else { 0 };
        self.make(caller, parent, name, &New { kind, permissions: mode, rdev, target: b"" })
    }

    /// Makes a directory.
    pub fn mkdir(&self, caller: &Caller<'_>, parent: u64, name: &[u8], mode: u32) -> Result<Attributes, Error> {
        self.make(caller, parent, name, &New { kind: FileKind::Directory, permissions: mode, rdev: 0, target: b"" })
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, caller: &Caller<'_>, parent: u64, name: &[u8], target: &[u8]) -> Result<Attributes, Error> {
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        self.make(caller, parent, name, &New { kind: FileKind::Symlink, permissions: 0o777, rdev: 0, target })
    }

    fn make(&self, caller: &Caller<'_>, parent: u64, name: &[u8], new: &New<'_>) -> Result<Attributes, Error> {
        check_new_name(name)?;
        let op = Op::new(caller, parent, Kind::Create { name, opened: None });
        let make = || self.changes.make(caller, parent, name, new, |transaction| number_for(transaction, caller));
        self.pipeline.run(&op, make, done_of)
    }

    /// Makes a file and opens it. A file that is there already is opened, unless `flags` say it must not be.
    pub fn create(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Attributes, Handle), Error> {
        check_new_name(name)?;
        let new = New { kind: FileKind::File, permissions: mode, rdev: 0, target: b"" };
        let op = Op::new(caller, parent, Kind::Create { name, opened: Some(flags) });
        let mut first = self.namespace.core.files.table.first_handle();
        let make = || {
            let number = |transaction: &mut Transaction<'_>| opened(transaction, &mut first);
            Ok((self.changes.make(caller, parent, name, &new, number)?, self.new_handle()))
        };
        match self.pipeline.run(&op, make, opened_of) {
            Ok((mut attributes, handle)) => {
                first.keep(attributes.inode);
                attributes.is_fleeting |= self.features.audit.is_in_session(attributes.inode);
                Ok((attributes, handle))
            }
            Err(Error::Exists) if !flags.exclusive => {
                let existing = self.lookup(caller, parent, name)?;
                let handle = self.open(caller, existing.inode, flags)?;
                Ok((self.getattr(caller, existing.inode)?, handle))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a file without a name in `parent`'s file system and opens it; `link` may give it a name.
    pub fn tmpfile(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Attributes, Handle), Error> {
        let new = New { kind: FileKind::File, permissions: mode, rdev: 0, target: b"" };
        let op = Op::new(caller, parent, Kind::CreateNameless { opened: flags });
        let mut first = self.namespace.core.files.table.first_handle();
        let make = || {
            let number = |transaction: &mut Transaction<'_>| opened(transaction, &mut first);
            let (inode, value) = self.changes.make_nameless(caller, parent, &new, number)?;
            Ok((Attributes::of(inode, &value), self.new_handle()))
        };
        let (attributes, handle) = self.pipeline.run(&op, make, opened_of)?;
        first.keep(attributes.inode);
        Ok((attributes, handle))
    }

    /// Gives an inode one more name.
    pub fn link(&self, caller: &Caller<'_>, inode: u64, new_parent: u64, new_name: &[u8]) -> Result<Attributes, Error> {
        check_new_name(new_name)?;
        let op = Op::new(caller, inode, Kind::Link { parent: new_parent, name: new_name });
        self.pipeline.run(&op, || self.changes.link(caller, inode, new_parent, new_name), |()| Done::default())?;
        self.getattr(caller, inode)
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) -> Result<(), Error> {
        remove_name(self, caller, (parent, name), false).map(drop)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) -> Result<(), Error> {
        remove_name(self, caller, (parent, name), true).map(drop)
    }

    /// `by_kernel`: the caller knows the inode, and says when it has forgotten it. Else nothing of it is kept as a version.
    pub(crate) fn remove(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        as_directory: bool,
        by_kernel: bool,
    ) -> Result<u64, Error> {
        let mut may_keep = by_kernel && self.features.versions.may_keep_removed();
        loop {
            let found = self.changes.to_remove(caller.io, parent, name, as_directory)?;
            let op = Op::new(caller, found.inode, Kind::Remove { parent, name });
            let remove = || self.changes.remove(caller, (parent, name), &found, by_kernel, &mut may_keep);
            if let Attempt::Done(()) = self.pipeline.perform(&op, remove, |_| Done::default())? {
                return Ok(found.inode);
            }
        }
    }

    /// Renames.
    pub fn rename(
        &self,
        caller: &Caller<'_>,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<(), Error> {
        move_name(self, caller, (parent, name), (new_parent, new_name), flags).map(drop)
    }

    /// Lists the names behind `cookie` (0: from the start) until `visit` breaks. With `plus`, with attributes.
    pub fn readdir(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        cookie: u64,
        plus: bool,
        visit: &mut dyn FnMut(&DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.readdir_before(caller, inode, cookie..u64::MAX, plus, visit)
    }

    /// As `readdir`, without the names whose cookies are at or behind the end of `cookies`.
    pub fn readdir_before(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        cookies: Range<u64>,
        plus: bool,
        visit: &mut dyn FnMut(&DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let op = Op::new(caller, inode, Kind::List);
        let list = || self.listing.list(caller, inode, cookies.clone(), plus, visit);
        self.pipeline.run(&op, list, |()| Done::default())
    }

    /// The cookie that the next name made in a directory will have. A listing that ends before it ends, whatever is made or renamed
    /// meanwhile.
    pub fn directory_end(&self, io: Io<'_>, inode: u64) -> Result<u64, Error> {
        let value = self.namespace.core.store.view(io, |view| directory(view, inode))?;
        Ok(value.next_dirent_sequence.max(SEQUENCE_FIRST))
    }
}

/// Removes a name, of an empty directory or of anything else. Gives the inode whose name it was.
pub fn remove_name(
    files: &FileSystem,
    caller: &Caller<'_>,
    (parent, name): (u64, &[u8]),
    as_directory: bool,
) -> Result<u64, Error> {
    check_name(name)?;
    match (name, as_directory) {
        (b"." | b"..", false) => return Err(Error::IsADirectory),
        (b".", true) => return Err(Error::Invalid("\".\" cannot be removed; name the directory")),
        (b"..", true) => return Err(Error::NotEmpty),
        _ => {}
    }
    let op = Op::new(caller, parent, Kind::Remove { parent, name });
    files.pipeline.observe(&op, || files.remove(caller, parent, name, as_directory, true), |_| Done::default())
}

/// Renames. Gives the inode that had the name, and the one whose name it has taken or changed with it.
pub fn move_name(
    files: &FileSystem,
    caller: &Caller<'_>,
    (parent, name): (u64, &[u8]),
    (new_parent, new_name): (u64, &[u8]),
    flags: u32,
) -> Result<[Option<u64>; 2], Error> {
    let asked = Renaming { parent, name, new_parent, new_name, flags, source: None, target: None };
    let rename = || {
        let rename = files.changes.begin_rename(caller, &asked)?;
        let _until_it_holds = files.namespace.core.reconcile.changing_policy();
        let mut may_keep = files.features.versions.may_keep_removed();
        loop {
            let [source, target] = files.changes.meant_by(caller.io, &rename)?;
            let kind = Kind::Rename(Renaming { source, target, ..asked });
            let op = Op::new(caller, source.map_or(parent, |source| source.inode), kind);
            let attempt = || files.changes.rename(caller, &rename, target, &mut may_keep);
            if let Attempt::Done(()) = files.pipeline.perform(&op, attempt, |_| Done::default())? {
                return Ok([source, target].map(|one| one.map(|found| found.inode)));
            }
        }
    };
    let op = Op::new(caller, parent, Kind::Rename(asked));
    files.pipeline.observe(&op, rename, |_| Done::default())
}
