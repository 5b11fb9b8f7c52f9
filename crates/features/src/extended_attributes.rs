//! Extended attributes that are stored as they are: user, trusted and security attributes, and POSIX ACLs.
//!
//! Attributes of policy have their own meaning and never come here. Read next: `xattr` (on media), `acl`, `editor` (policy).

use std::sync::Arc;

use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::xattr::{
    HAS_ATTRIBUTES, LIST_BYTES_MAX, SetMode, VALUE_BYTES_MAX, check_attribute_name, check_mode,
};
use stere_namespace::{acl, xattr};
use stere_residency::eviction::Eviction;
use stere_residency::offload::Offload;

use crate::plugin_events::Notes;
use crate::versions::Versions;

/// Whose the attributes with notes of plugins are.
const NOTES: &str = "user.plugin.";

/// Sets and removes plain attributes.
pub struct ExtendedAttributes {
    pub core: Arc<Core>,
    pub versions: Arc<Versions>,
    pub offload: Arc<Offload>,
    pub eviction: Arc<Eviction>,
}

impl ExtendedAttributes {
    /// Sets a plain attribute of what is in use now, with room made for it. `acl_kill_sgid`: the caller may not keep
    /// set-group-id when an ACL changes the mode.
    pub fn set(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        (name, value): (&[u8], &[u8]),
        mode: SetMode,
        acl_kill_sgid: bool,
    ) -> Result<(), Error> {
        self.offload.note_use(caller, inode);
        self.eviction.with_room(caller, || self.put_attribute(caller, inode, (name, value), mode, acl_kill_sgid))
    }

    /// Notes with a file what plugins said.
    pub fn put_notes(&self, caller: &Caller<'_>, inode: u64, notes: Notes) -> Result<(), Error> {
        for (plugin, note) in notes.0 {
            let name = format!("{NOTES}{plugin}");
            match self.set(caller, inode, (name.as_bytes(), &note), SetMode::Any, false) {
                // Links and the like have no such attributes.
                Err(Error::NotPermitted(_) | Error::Retained(_) | Error::Unsupported(_)) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Sets a plain attribute in one transaction.
    pub fn put_attribute(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        (name, value): (&[u8], &[u8]),
        mode: SetMode,
        acl_kill_sgid: bool,
    ) -> Result<(), Error> {
        assert!(stere_policy::parse_name(name).is_none(), "attributes of policy are no plain ones");
        self.versions.check_writable(caller.io, inode)?;
        check_attribute_name(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::AttributeTooBig);
        }
        self.core.changing_attribute(caller, inode, |transaction, inode_value| {
            stere_file::check_changeable(inode_value, caller.now)?;
            if acl::is_acl(name) {
                return acl::set(transaction, inode, inode_value, name, value, acl_kill_sgid);
            }
            let exists = xattr::get(transaction, inode, name)?.is_some();
            check_mode(mode, exists)?;
            if !exists {
                let listed: usize = xattr::names(transaction, inode)?.iter().map(|name| name.len() + 1).sum();
                if listed + name.len() + 1 > LIST_BYTES_MAX {
                    return Err(Error::TooMany("extended attributes of this file"));
                }
            }
            xattr::put(transaction, inode, name, value)?;
            inode_value.flags |= HAS_ATTRIBUTES;
            Ok(())
        })
    }

    /// Removes a plain attribute in one transaction.
    pub fn remove(&self, caller: &Caller<'_>, inode: u64, name: &[u8]) -> Result<(), Error> {
        assert!(stere_policy::parse_name(name).is_none(), "attributes of policy are no plain ones");
        self.versions.check_writable(caller.io, inode)?;
        check_attribute_name(name)?;
        self.core.changing_attribute(caller, inode, |transaction, inode_value| {
            stere_file::check_changeable(inode_value, caller.now)?;
            acl::forget_flag(inode_value, name);
            if xattr::remove(transaction, inode, name)? { Ok(()) } else { Err(Error::NoAttribute) }
        })
    }
}
