//! Extended attributes: buckets by the hash of the name; policy names and ACLs have their own meaning.
//!
//! Invariants: an inode with attributes in buckets has `HAS_ATTRIBUTES` set (it may be set without any left); an ACL that
//! says no more than the mode is not stored.

use std::hash::Hasher;
use std::ops::ControlFlow;

use siphasher::sip::SipHasher13;
use stere_file::{Keys, inode_if_any};
use stere_format::{FileKind, InodeValue, Key, XattrBucket};
use stere_policy::{Class, Keep, List, Name, Own, PolicyError, Setting, parse_name};
use stere_store::Transaction;

use crate::error::Error;
use crate::names::damaged;
use crate::{Caller, FileSystem, acl, classes, keeping, plugins, retention, rules, versions};

/// Longest value.
pub const VALUE_BYTES_MAX: usize = 65_536;
/// Longest name.
const ATTRIBUTE_NAME_BYTES_MAX: usize = 255;
/// Bytes that all names of one inode may have together, so that a list fits in the kernel's buffer.
const LIST_BYTES_MAX: usize = 65_536;

pub(crate) use stere_file::HAS_ATTRIBUTES;
/// Flags that tell of attributes of a file.
pub(crate) const FLAGS: u32 = HAS_ATTRIBUTES | acl::HAS_ACCESS;

/// What setting an attribute expects of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetMode {
    /// Nothing.
    Any,
    /// It does not exist yet.
    Create,
    /// It exists.
    Replace,
}

fn key(inode: u64, name: &[u8]) -> Key {
    // Not secret: a user who makes names collide makes only the bucket of an own file larger.
    let mut hasher = SipHasher13::new();
    hasher.write(name);
    Key::xattr(inode, hasher.finish() & (u64::MAX >> 1))
}

fn bucket(keys: &impl Keys, inode: u64, key: &Key) -> Result<XattrBucket, Error> {
    match keys.value(key)? {
        Some(bytes) => XattrBucket::decode(&bytes).map_err(|error| damaged(inode, &error)),
        None => Ok(XattrBucket::default()),
    }
}

/// The value of a stored attribute.
pub(crate) fn get(keys: &impl Keys, inode: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let Some(bytes) = keys.value(&key(inode, name))? else { return Ok(None) };
    let value = XattrBucket::find(&bytes, name).map_err(|error| damaged(inode, &error))?;
    Ok(value.map(<[u8]>::to_vec))
}

/// Stores an attribute. The caller sets `HAS_ATTRIBUTES`.
pub(crate) fn put(transaction: &mut Transaction<'_>, inode: u64, name: &[u8], value: &[u8]) -> Result<(), Error> {
    let key = key(inode, name);
    let mut bucket = bucket(transaction, inode, &key)?;
    bucket.set(name, value);
    // A bucket is one value of the tree; names that collide share it.
    let bytes: usize = bucket.entries.iter().map(|(name, value)| name.len() + value.len() + 5).sum();
    if bytes > stere_format::VALUE_BYTES_MAX - 64 || bucket.entries.len() > 255 {
        return Err(Error::TooMany("extended attributes of this file with names like that"));
    }
    transaction.put(key, &bucket.encode());
    Ok(())
}

/// Removes a stored attribute; answers whether it was there.
pub(crate) fn remove(transaction: &mut Transaction<'_>, inode: u64, name: &[u8]) -> Result<bool, Error> {
    let key = key(inode, name);
    let mut bucket = bucket(transaction, inode, &key)?;
    if !bucket.remove(name) {
        return Ok(false);
    }
    if bucket.entries.is_empty() {
        transaction.delete(key);
    } else {
        transaction.put(key, &bucket.encode());
    }
    Ok(true)
}

/// Gives an inode without attributes those of another one. The caller sets the flags.
pub(crate) fn copy(transaction: &mut Transaction<'_>, from: u64, to: u64) -> Result<(), Error> {
    let mut buckets = Vec::new();
    transaction.scan(Key::xattr(from, 0), Key::xattr(from, u64::MAX), |key, bytes| {
        buckets.push((key.position, bytes.to_vec()));
        ControlFlow::Continue(())
    })?;
    for (hash, bytes) in buckets {
        transaction.put(Key::xattr(to, hash), &bytes);
    }
    Ok(())
}

/// The stored attributes' names.
fn names(keys: &impl Keys, inode: u64) -> Result<Vec<Vec<u8>>, Error> {
    let mut names = Vec::new();
    let mut failure = None;
    keys.visit(Key::xattr(inode, 0), Key::xattr(inode, u64::MAX), &mut |_, bytes| match XattrBucket::for_each(
        bytes,
        |name, _| names.push(name.to_vec()),
    ) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failure = Some(damaged(inode, &error));
            ControlFlow::Break(())
        }
    })?;
    failure.map_or(Ok(names), Err)
}

fn check_attribute_name(name: &[u8]) -> Result<(), Error> {
    if name.is_empty() || name.len() > ATTRIBUTE_NAME_BYTES_MAX {
        return Err(Error::OutOfRange);
    }
    let known = [&b"user."[..], b"trusted.", b"security."];
    if known.contains(&name) {
        return Err(Error::Invalid("an attribute's name goes on behind its prefix"));
    }
    if known.iter().any(|prefix| name.starts_with(prefix)) || acl::is_acl(name) {
        return Ok(());
    }
    Err(Error::Unsupported("attributes are user.*, trusted.*, security.* and the POSIX ACLs"))
}

pub(crate) fn check_mode(mode: SetMode, exists: bool) -> Result<(), Error> {
    match mode {
        SetMode::Create if exists => Err(Error::Exists),
        SetMode::Replace if !exists => Err(Error::NoAttribute),
        _ => Ok(()),
    }
}

impl FileSystem {
    /// The value of an attribute.
    pub fn getxattr(&self, caller: &Caller<'_>, inode: u64, name: &[u8]) -> Result<Vec<u8>, Error> {
        if let Some(parsed) = parse_name(name) {
            return match parsed {
                Ok(Name::Setting(setting)) => self.own_setting(caller, inode, setting, Say::Own),
                Ok(Name::Lock(setting)) => self.own_setting(caller, inode, setting, Say::Lock),
                Ok(Name::ListLock(List::Plugins)) => self.own_plugins(caller, inode, Say::Lock),
                Ok(Name::ListLock(List::Versions)) => self.own_versions_text(caller, inode, Say::Lock),
                Ok(Name::Plugins) => self.own_plugins(caller, inode, Say::Own),
                Ok(Name::Retain) => self.own_retain_text(caller, inode),
                Ok(Name::RetainLock) => self.stored_attribute(caller, inode, retention::LOCK),
                Ok(Name::Versions) => self.own_versions_text(caller, inode, Say::Own),
                Ok(Name::Keep(keep)) => self.own_keep(caller, inode, keep),
                Ok(Name::Rules) => self.stored_attribute(caller, inode, rules::ATTRIBUTE),
                Ok(Name::Computed(computed)) => self.computed(caller, inode, computed),
                Err(_) => Err(Error::NoAttribute),
            };
        }
        check_attribute_name(name)?;
        self.stored_attribute(caller, inode, name)
    }

    fn stored_attribute(&self, caller: &Caller<'_>, inode: u64, name: &[u8]) -> Result<Vec<u8>, Error> {
        self.store.view(caller.wait, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            if value.flags & HAS_ATTRIBUTES == 0 {
                return Err(Error::NoAttribute);
            }
            get(view, inode, name)?.ok_or(Error::NoAttribute)
        })
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
        self.note_use(caller, inode);
        self.with_room(caller, || self.set_attribute(caller, inode, name, value, mode, acl_kill_sgid))
    }

    fn set_attribute(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        name: &[u8],
        value: &[u8],
        mode: SetMode,
        acl_kill_sgid: bool,
    ) -> Result<(), Error> {
        self.check_writable(caller.wait, inode)?;
        if let Some(parsed) = parse_name(name) {
            return self.set_policy(caller, inode, parsed?, Some(value), mode);
        }
        check_attribute_name(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::AttributeTooBig);
        }
        self.changing_attribute(caller, inode, |transaction, inode_value| {
            stere_file::check_changeable(inode_value, caller.now)?;
            if acl::is_acl(name) {
                return acl::set(transaction, inode, inode_value, name, value, acl_kill_sgid);
            }
            let exists = get(transaction, inode, name)?.is_some();
            check_mode(mode, exists)?;
            if !exists {
                let listed: usize = names(transaction, inode)?.iter().map(|name| name.len() + 1).sum();
                if listed + name.len() + 1 > LIST_BYTES_MAX {
                    return Err(Error::TooMany("extended attributes of this file"));
                }
            }
            put(transaction, inode, name, value)?;
            inode_value.flags |= HAS_ATTRIBUTES;
            Ok(())
        })
    }

    /// Removes an attribute.
    pub fn removexattr(&self, caller: &Caller<'_>, inode: u64, name: &[u8]) -> Result<(), Error> {
        self.note_use(caller, inode);
        self.with_room(caller, || self.remove_attribute(caller, inode, name))
    }

    fn remove_attribute(&self, caller: &Caller<'_>, inode: u64, name: &[u8]) -> Result<(), Error> {
        self.check_writable(caller.wait, inode)?;
        if let Some(parsed) = parse_name(name) {
            let parsed = parsed.map_err(|_| Error::NoAttribute)?;
            return self.set_policy(caller, inode, parsed, None, SetMode::Replace);
        }
        check_attribute_name(name)?;
        self.changing_attribute(caller, inode, |transaction, inode_value| {
            stere_file::check_changeable(inode_value, caller.now)?;
            acl::forget_flag(inode_value, name);
            if remove(transaction, inode, name)? { Ok(()) } else { Err(Error::NoAttribute) }
        })
    }

    /// The names of all attributes, sorted; `trusted.*` only for the superuser.
    pub fn listxattr(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<Vec<u8>>, Error> {
        let mut list = self.store.view(caller.wait, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            let (own, locked) = (stere_file::own_policy(&value), stere_file::own_locks(&value));
            let mut list = if value.flags & HAS_ATTRIBUTES == 0 { Vec::new() } else { names(view, inode)? };
            for setting in Setting::ALL {
                if own.get(setting).is_some() {
                    list.push(setting.attribute().as_bytes().to_vec());
                }
                if locked.get(setting).is_some() {
                    list.push(setting.lock_attribute().into_bytes());
                }
            }
            list.extend(
                List::ALL.into_iter().filter(|key| key.is_said(&locked)).map(|key| key.lock_attribute().into_bytes()),
            );
            if stere_file::own_stack(&value).is_some() {
                list.push(plugins::ATTRIBUTE.to_vec());
            }
            if stere_file::own_retain(&value).is_some() {
                list.push(retention::ATTRIBUTE.to_vec());
            }
            if stere_file::own_versions(&value).is_some() {
                list.push(versions::ATTRIBUTE.to_vec());
            }
            let keeping = keeping::own(view, inode)?;
            let said = Keep::ALL.into_iter().filter(|keep| keeping.says(*keep));
            list.extend(said.map(|keep| keep.attribute().as_bytes().to_vec()));
            Ok::<_, Error>(list)
        })?;
        list.retain(|name| caller.uid == 0 || !name.starts_with(b"trusted."));
        list.sort_unstable();
        Ok(list)
    }

    /// Changes what belongs to an inode in one transaction, with the time of the change.
    pub(crate) fn changing_attribute(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        change: impl Fn(&mut Transaction<'_>, &mut InodeValue) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.changing(caller, inode, None, |transaction, value| {
            value.ctime = caller.now;
            change(transaction, value)
        })?;
        Ok(())
    }

    fn own_setting(&self, caller: &Caller<'_>, inode: u64, setting: Setting, say: Say) -> Result<Vec<u8>, Error> {
        let value = self.store.view(caller.wait, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        let text = say.of(&value).get(setting).ok_or(Error::NoAttribute)?;
        Ok(self.with_name(setting, text).into_bytes())
    }

    fn set_policy(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        name: Name,
        value: Option<&[u8]>,
        mode: SetMode,
    ) -> Result<(), Error> {
        self.check_may_say_policy(caller, inode)?;
        let (setting, say) = match name {
            Name::Setting(setting) => (setting, Say::Own),
            Name::Lock(setting) => (setting, Say::Lock),
            Name::Rules => {
                let exists = self.stored_attribute(caller, inode, rules::ATTRIBUTE).is_ok();
                check_mode(mode, exists)?;
                return self.set_rules(caller, inode, value);
            }
            Name::ListLock(List::Plugins) => return self.set_plugins(caller, inode, value, mode, Say::Lock),
            Name::ListLock(List::Versions) => return self.set_versions(caller, inode, value, mode, Say::Lock),
            Name::Plugins => return self.set_plugins(caller, inode, value, mode, Say::Own),
            Name::Retain => return self.set_retain(caller, inode, value, mode),
            Name::RetainLock => return self.lock_retain(caller, inode, value, mode),
            Name::Versions => return self.set_versions(caller, inode, value, mode, Say::Own),
            Name::Keep(keep) => return self.set_keep(caller, inode, keep, value, mode),
            Name::Computed(computed) => return Err(PolicyError::Computed(computed.word()).into()),
        };
        let numbered = value.map(|value| self.with_number(setting, value)).transpose()?;
        let mut asked = Own::default();
        asked.set(setting, numbered.as_deref().unwrap_or_default())?;
        let _until_it_holds = self.changing_policy();
        self.changing_attribute(caller, inode, |transaction, inode_value| {
            if !matches!(inode_value.kind(), Some(FileKind::File | FileKind::Directory)) {
                return Err(Error::NotPermitted("policy can be set on files and directories"));
            }
            let mut own = say.of(inode_value);
            check_mode(mode, own.get(setting).is_some())?;
            if say == Say::Own && !asked.is_empty() {
                self.check_locks(transaction, inode, inode_value, &[(setting, asked)])?;
            }
            let class_before = own.class();
            own.set(setting, numbered.as_deref().unwrap_or_default())?;
            let named_before = classes::Named::of(inode_value);
            match say {
                Say::Own => stere_file::set_own_policy(inode_value, own),
                Say::Lock => stere_file::set_own_locks(inode_value, own),
            }
            self.note_watched(transaction, own.switches)?;
            self.note_tiered(transaction, inode, [Say::Own, Say::Lock].map(|say| say.of(inode_value)))?;
            classes::index_member(transaction, inode, named_before, classes::Named::of(inode_value));
            if setting == Setting::Class {
                let classes: [Option<Class>; 2] = [class_before, own.class()];
                self.note_class_of_names(transaction, caller, (inode, inode_value), classes);
            }
            if matches!(setting, Setting::Encrypt | Setting::Class) {
                // What is in memory of its files could not be saved under a locked key.
                self.name_key(transaction, inode, inode_value)?;
            }
            // What is stored already is brought in line in the background; the note makes that survive a crash.
            self.note_reconcile(transaction, inode)
        })?;
        self.begin_to_watch(asked.switches);
        self.files.resolver().invalidate();
        self.rules.note_change();
        if setting == Setting::Class {
            self.keeping_changed();
        }
        Ok(())
    }

    /// Policy is said by the owner and root: others who may write a file, or in a directory, may not make weaker how that is kept.
    fn check_may_say_policy(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        if caller.uid == 0 {
            return Ok(());
        }
        let value = self.store.view(caller.wait, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        match value.uid == caller.uid {
            true => Ok(()),
            false => Err(Error::NotPermitted("what policy a file or directory has, its owner and root say")),
        }
    }

    /// Refuses settings that a lock of the administrator contradicts, here or above.
    pub(crate) fn check_locks(
        &self,
        keys: &impl Keys,
        inode: u64,
        value: &InodeValue,
        asked: &[(Setting, Own)],
    ) -> Result<(), Error> {
        let effective = self.files.effective(keys, inode, value)?;
        let classes = self.files.resolver().classes();
        match asked.iter().any(|(setting, own)| effective.refuses(*setting, own, &classes)) {
            true => Err(contradicts_a_lock()),
            false => Ok(()),
        }
    }

    /// The same of the lists that these say something of.
    pub(crate) fn check_list_locks(
        &self,
        keys: &impl Keys,
        inode: u64,
        value: &InodeValue,
        asked: &[Own],
    ) -> Result<(), Error> {
        if !asked.iter().any(|own| List::ALL.into_iter().any(|list| list.is_said(own))) {
            return Ok(());
        }
        let effective = self.files.effective(keys, inode, value)?;
        match asked.iter().any(|own| List::ALL.into_iter().any(|list| effective.refuses_list(list, own))) {
            true => Err(contradicts_a_lock()),
            false => Ok(()),
        }
    }
}

pub(crate) fn contradicts_a_lock() -> Error {
    Error::NotPermitted("the administrator locked this to another value, here or above")
}

/// Which of the two that an inode can say about its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Say {
    /// What anybody may set who may write.
    Own,
    /// What only the administrator may.
    Lock,
}

impl Say {
    pub(crate) fn of(self, value: &InodeValue) -> Own {
        match self {
            Say::Own => stere_file::own_policy(value),
            Say::Lock => stere_file::own_locks(value),
        }
    }
}
