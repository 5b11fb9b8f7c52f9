//! Calls on attributes: looking up, reading and setting them, plain ones and those of policy.
//!
//! Read next: `../pipeline`, `../stat` (what is shown), `../extended` (plain attributes), `../editor` (policy).

use stere_format::FileKind;
use stere_namespace::attributes::{Attributes, SetAttributes};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::names::check_name;
use stere_namespace::xattr::SetMode;
use stere_policy::{node_key, parse_name};

use crate::filesystem::FileSystem;
use crate::pipeline::{Done, Kind, Op};

impl FileSystem {
    /// Finds a name. "." and ".." work for every inode, as NFS needs.
    pub fn lookup(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) -> Result<Attributes, Error> {
        if name == b"." {
            return self.existing(caller, parent);
        }
        if name == b".." {
            return self.existing(caller, self.namespace.core.parent(caller, parent)?);
        }
        check_name(name)?;
        let op = Op::new(caller, parent, Kind::Lookup);
        self.pipeline.run(&op, || self.find_name(caller, parent, name), |_| Done::default())
    }

    fn find_name(&self, caller: &Caller<'_>, parent: u64, name: &[u8]) -> Result<Attributes, Error> {
        let removals = self.namespace.core.files.table.removals();
        let (inode, value) = self.namespace.core.store.view(caller.io, |view| {
            let Some(found) = self.namespace.core.names.find(view, parent, name)? else {
                // The name's directory decides which error it is.
                let value = stere_namespace::inode::directory(view, parent)?;
                self.namespace.encryption.name_key(view, parent, &value)?;
                return Err(Error::NotFound);
            };
            self.namespace.encryption.note_encrypted(parent, found.key);
            let value = stere_file::inode_if_any(view, found.inode)?;
            let value = value.ok_or_else(|| {
                Error::Damaged(format!("inode {} has a name but does not exist; run `stere check`", found.inode))
            })?;
            if found.kind == FileKind::File && (self.features.versions.is_used() || self.features.audit.is_used()) {
                // Its name is at hand when it changes, and told with what is noted of it.
                self.namespace.core.names_used.note(found.inode, parent, found.sequence);
            }
            self.features.versions.note_looked_up(found.inode, &value);
            Ok((found.inode, value))
        })?;
        let value = self.namespace.core.files.refresh(caller.io, inode, value, removals)?.ok_or(Error::NotFound)?;
        self.features.stat.show_attributes(caller.io, inode, value)
    }

    /// Attributes of an inode.
    pub fn getattr(&self, caller: &Caller<'_>, inode: u64) -> Result<Attributes, Error> {
        let value = self.namespace.core.files.attributes(caller.io, inode)?.ok_or(Error::Stale)?;
        self.features.stat.show_attributes(caller.io, inode, value)
    }

    /// As `getattr`, for inodes that are looked for by their number: what was removed is not found.
    fn existing(&self, caller: &Caller<'_>, inode: u64) -> Result<Attributes, Error> {
        let value = self.namespace.core.files.attributes(caller.io, inode)?.filter(|value| value.nlink > 0);
        self.features.stat.show_attributes(caller.io, inode, value.ok_or(Error::Stale)?)
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        let read = || {
            let value = self.namespace.core.inode_value(caller.io, inode)?.ok_or(Error::Stale)?;
            if value.kind() != Some(FileKind::Symlink) {
                return Err(Error::Invalid("not a symbolic link"));
            }
            Ok((self.namespace.encryption.target(inode, &value)?, value))
        };
        let op = Op::new(caller, inode, Kind::ReadLink);
        let (target, _) = self.pipeline.run(&op, read, |(_, value)| Done { value: Some(value), ..Done::default() })?;
        Ok(target)
    }

    /// Sets attributes, all in one step.
    pub fn setattr(&self, caller: &Caller<'_>, inode: u64, set: &SetAttributes) -> Result<Attributes, Error> {
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
        let op = Op::new(caller, inode, Kind::SetAttributes(set));
        let change = || self.contents.set_attributes(caller, inode, set);
        let value = self.pipeline.run(&op, change, |value| Done { value: Some(value), ..Done::default() })?;
        match self.features.stat.show_attributes(caller.io, inode, value.clone()) {
            // It is done, and must not be done again.
            Err(Error::WouldBlock) => Ok(Attributes::of(inode, &value)),
            outcome => outcome,
        }
    }

    /// The value of an attribute.
    pub fn getxattr(&self, caller: &Caller<'_>, inode: u64, name: &[u8]) -> Result<Vec<u8>, Error> {
        self.features.provenance.attribute(caller, inode, name)
    }

    /// Sets an attribute. `acl_kill_sgid`: the caller may not keep set-group-id when the ACL changes the mode.
    pub fn setxattr(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        name: &[u8],
        value: &[u8],
        mode: SetMode,
        acl_kill_sgid: bool,
    ) -> Result<(), Error> {
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
        let op = Op::new(caller, inode, Kind::SetExtended);
        let editor = &self.features.editor;
        let set = || match (node_key(name), parse_name(name)) {
            (Some(key), _) => editor.set_node_value(caller, inode, key, Some(value), mode),
            (None, Some(parsed)) => editor.set_policy(caller, inode, parsed?, Some(value), mode),
            (None, None) => self.features.attributes.put_attribute(caller, inode, (name, value), mode, acl_kill_sgid),
        };
        self.pipeline.run(&op, set, |()| Done::default())
    }

    /// Removes an attribute.
    pub fn removexattr(&self, caller: &Caller<'_>, inode: u64, name: &[u8]) -> Result<(), Error> {
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
        let op = Op::new(caller, inode, Kind::RemoveExtended);
        let editor = &self.features.editor;
        let remove = || match (node_key(name), parse_name(name)) {
            (Some(key), _) => editor.set_node_value(caller, inode, key, None, SetMode::Replace),
            (None, Some(parsed)) => {
                let parsed = parsed.map_err(|_| Error::NoAttribute)?;
                editor.set_policy(caller, inode, parsed, None, SetMode::Replace)
            }
            (None, None) => self.features.attributes.remove(caller, inode, name),
        };
        self.pipeline.run(&op, remove, |()| Done::default())
    }

    /// The names of all attributes, sorted; `trusted.*` only for the superuser.
    pub fn listxattr(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<Vec<u8>>, Error> {
        self.features.provenance.attribute_names(caller, inode)
    }
}
