//! POSIX ACLs as the kernel hands them over: parsing, holding them and the mode in step, inheriting defaults.
//!
//! Invariants: a stored access ACL says what the mode says about owner, mask (or group) and others; one that says no more
//! than the mode is not stored.

use stere_file::Keys;
use stere_format::{FileKind, InodeValue};
use stere_store::Transaction;

use crate::call::Caller;
use crate::error::Error;
use crate::xattr;
use crate::xattr::HAS_ATTRIBUTES;

pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Flag of directories that have a default ACL.
const HAS_DEFAULT: u32 = 2;
/// Flag of inodes that have an access ACL.
pub const HAS_ACCESS: u32 = 4;

const VERSION: u32 = 2;
const USER_OBJECT: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJECT: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const ID_NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Acl(Vec<Entry>);

/// The access ACL of an inode, if it has one.
pub fn stored_access(keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<Option<Vec<u8>>, Error> {
    if value.flags & HAS_ACCESS == 0 { Ok(None) } else { xattr::get(keys, inode, ACCESS) }
}

pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

impl Acl {
    fn decode(bytes: &[u8]) -> Result<Acl, Error> {
        const WRONG: Error = Error::Invalid("not a valid POSIX ACL of version 2");
        let (version, entries) = bytes.split_first_chunk::<4>().ok_or(WRONG)?;
        if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
            return Err(WRONG);
        }
        let entries = entries.chunks_exact(8).map(|entry| Entry {
            tag: u16::from_le_bytes([entry[0], entry[1]]),
            permissions: u16::from_le_bytes([entry[2], entry[3]]),
            id: u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]),
        });
        let acl = Acl(entries.collect());
        if acl.is_valid() { Ok(acl) } else { Err(WRONG) }
    }

    /// As the kernel wants it: in order of tags, each of the three objects once, a mask when anybody is named.
    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let known = [USER_OBJECT, USER, GROUP_OBJECT, GROUP, MASK, OTHER];
        let named = count(USER) + count(GROUP) > 0;
        self.0.iter().all(|entry| known.contains(&entry.tag) && entry.permissions <= 7)
            && self.0.windows(2).all(|pair| pair[0].tag <= pair[1].tag)
            && [USER_OBJECT, GROUP_OBJECT, OTHER].iter().all(|tag| count(*tag) == 1)
            && count(MASK) <= 1
            && (!named || count(MASK) == 1)
    }

    fn encode(&self) -> Vec<u8> {
        assert!(self.is_valid(), "only what the kernel takes is stored");
        let mut bytes = Vec::with_capacity(4 + 8 * self.0.len());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.0 {
            let id = if matches!(entry.tag, USER | GROUP) { entry.id } else { ID_NONE };
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Whether the mode says all there is.
    fn is_mode_only(&self) -> bool {
        self.0.len() == 3
    }

    fn entry(&mut self, tag: u16) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.tag == tag)
    }

    /// The entry whose permissions are the mode's group bits.
    fn group_class(&mut self) -> Option<&mut Entry> {
        if self.0.iter().any(|entry| entry.tag == MASK) { self.entry(MASK) } else { self.entry(GROUP_OBJECT) }
    }

    /// The nine permission bits this ACL means.
    fn mode_bits(&mut self) -> u32 {
        let owner = self.entry(USER_OBJECT).map_or(0, |entry| u32::from(entry.permissions));
        assert!(self.is_valid(), "a mode is made of a whole list");
        let group = self.group_class().map_or(0, |entry| u32::from(entry.permissions));
        let other = self.entry(OTHER).map_or(0, |entry| u32::from(entry.permissions));
        owner << 6 | group << 3 | other
    }

    /// Makes the entries that the mode stands for say `change` of their old permissions and the mode's.
    fn adjust(&mut self, mode: u32, change: impl Fn(u16, u16) -> u16) {
        let bits = |shift: u32| (mode >> shift & 7) as u16;
        if let Some(entry) = self.entry(USER_OBJECT) {
            entry.permissions = change(entry.permissions, bits(6));
        }
        if let Some(entry) = self.group_class() {
            entry.permissions = change(entry.permissions, bits(3));
        }
        if let Some(entry) = self.entry(OTHER) {
            entry.permissions = change(entry.permissions, bits(0));
        }
    }
}

/// What a caller may want of an inode: read, write, search, as in each three bits of a mode.
pub const MAY_READ: u32 = 4;
pub const MAY_SEARCH: u32 = 1;

/// Whether a caller may, as the kernel would say before it lets anybody read or search.
pub fn permits(
    keys: &impl Keys,
    inode: u64,
    value: &InodeValue,
    caller: &Caller<'_>,
    wanted: u32,
) -> Result<bool, Error> {
    assert!((1..=7).contains(&wanted), "somebody wants some of a mode's three bits, not {wanted:o}");
    if caller.uid == 0 {
        return Ok(true);
    }
    let is_in = |group: u32| caller.gid == group || caller.groups.contains(&group);
    let grants = |bits: u32| bits & wanted == wanted;
    if let Some(bytes) = stored_access(keys, inode, value)? {
        return Ok(Acl::decode(&bytes)?.permits(value, caller.uid, &is_in, &grants));
    }
    let shift = if caller.uid == value.uid { 6 } else { 3 * u32::from(is_in(value.gid)) };
    Ok(grants(value.mode >> shift & 7))
}

/// The same of somebody of whose groups nothing may be known: only what he may in whatever groups he is.
pub fn surely_permits(
    keys: &impl Keys,
    inode: u64,
    value: &InodeValue,
    caller: &Caller<'_>,
    wanted: u32,
) -> Result<bool, Error> {
    if !permits(keys, inode, value, caller, wanted)? {
        return Ok(false);
    }
    if [0, value.uid].contains(&caller.uid) || !caller.groups.is_empty() {
        return Ok(true);
    }
    let mut groups = vec![value.gid];
    if let Some(bytes) = stored_access(keys, inode, value)? {
        groups.extend(Acl::decode(&bytes)?.0.iter().filter(|entry| entry.tag == GROUP).map(|entry| entry.id));
    }
    for gid in groups {
        if !permits(keys, inode, value, &Caller { gid, ..*caller }, wanted)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Acl {
    /// The first of owner, named user and groups that the caller is decides; of groups any that grants it.
    fn permits(&self, value: &InodeValue, uid: u32, is_in: &dyn Fn(u32) -> bool, grants: &dyn Fn(u32) -> bool) -> bool {
        let of = |tag: u16| self.0.iter().filter(move |entry| entry.tag == tag);
        let mask = of(MASK).next().map_or(7, |entry| u32::from(entry.permissions));
        let masked = |entry: &Entry| grants(u32::from(entry.permissions) & mask);
        if uid == value.uid {
            return of(USER_OBJECT).any(|entry| grants(u32::from(entry.permissions)));
        }
        if let Some(entry) = of(USER).find(|entry| entry.id == uid) {
            return masked(entry);
        }
        let own = of(GROUP_OBJECT).filter(|_| is_in(value.gid));
        let groups: Vec<&Entry> = own.chain(of(GROUP).filter(|entry| is_in(entry.id))).collect();
        match groups.is_empty() {
            false => groups.into_iter().any(masked),
            true => of(OTHER).any(|entry| grants(u32::from(entry.permissions))),
        }
    }
}

/// Sets or (with an empty value, or one that says no more than the mode) removes an ACL.
pub fn set(
    transaction: &mut Transaction<'_>,
    inode: u64,
    value: &mut InodeValue,
    name: &[u8],
    bytes: &[u8],
    kill_sgid: bool,
) -> Result<(), Error> {
    if value.kind() == Some(FileKind::Symlink) {
        return Err(Error::Unsupported("symbolic links have no ACL"));
    }
    let flag = if name == DEFAULT { HAS_DEFAULT } else { HAS_ACCESS };
    if name == DEFAULT && value.kind() != Some(FileKind::Directory) {
        return if bytes.is_empty() { Ok(()) } else { Err(Error::NotPermitted("only directories have a default ACL")) };
    }
    if bytes.len() <= 4 {
        value.flags &= !flag;
        xattr::remove(transaction, inode, name)?;
        return Ok(());
    }
    let mut acl = Acl::decode(bytes)?;
    if name == ACCESS {
        value.mode = (value.mode & !0o777) | acl.mode_bits();
        if kill_sgid {
            value.mode &= !libc::S_ISGID;
        }
        if acl.is_mode_only() {
            value.flags &= !flag;
            xattr::remove(transaction, inode, name)?;
            return Ok(());
        }
    }
    value.flags |= flag | HAS_ATTRIBUTES;
    xattr::put(transaction, inode, name, &acl.encode())
}

/// Brings the access ACL in line with a mode that was just set.
pub fn follow_mode(transaction: &mut Transaction<'_>, inode: u64, value: &InodeValue) -> Result<(), Error> {
    if value.flags & HAS_ACCESS == 0 {
        return Ok(());
    }
    let Some(bytes) = xattr::get(transaction, inode, ACCESS)? else { return Ok(()) };
    let mut acl = Acl::decode(&bytes)?;
    acl.adjust(value.mode, |_, mode| mode);
    assert_eq!(acl.mode_bits(), value.mode & 0o777, "the list of inode {inode} says what its mode says");
    xattr::put(transaction, inode, ACCESS, &acl.encode())
}

/// Gives a new inode what its directory's default ACL says. Answers whether there is one; if so, no umask applies.
pub fn inherit(
    transaction: &mut Transaction<'_>,
    parent: u64,
    directory: &InodeValue,
    inode: u64,
    value: &mut InodeValue,
) -> Result<bool, Error> {
    assert_ne!(parent, inode, "what is made inherits of the directory above it");
    if directory.flags & HAS_DEFAULT == 0 {
        return Ok(false);
    }
    let Some(bytes) = xattr::get(transaction, parent, DEFAULT)? else { return Ok(false) };
    let mut acl = Acl::decode(&bytes)?;
    acl.adjust(value.mode, |default, mode| default & mode);
    value.mode = (value.mode & !0o777) | acl.mode_bits();
    if !acl.is_mode_only() {
        xattr::put(transaction, inode, ACCESS, &acl.encode())?;
        value.flags |= HAS_ACCESS | HAS_ATTRIBUTES;
    }
    if value.kind() == Some(FileKind::Directory) {
        xattr::put(transaction, inode, DEFAULT, &bytes)?;
        value.flags |= HAS_DEFAULT | HAS_ATTRIBUTES;
    }
    Ok(true)
}

/// A removed ACL leaves the mode as it is; its flag goes.
pub fn forget_flag(value: &mut InodeValue, name: &[u8]) {
    if name == DEFAULT {
        value.flags &= !HAS_DEFAULT;
    }
    if name == ACCESS {
        value.flags &= !HAS_ACCESS;
    }
}
