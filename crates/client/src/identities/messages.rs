//! Where users and groups are named in the kernel's requests and in their answers.
//!
//! Invariants: no request is sent of which it is not known where it names ids (`places`); lengths are checked before anything is looked
//! at, and what is no message is passed on as it is, for the owner to refuse. Read next: `docs/design/machines.md`.

use std::mem::offset_of;

use fuse_wire::abi::structs::{
    FileAttr, GetxattrIn, InHeader, SetattrIn, SetxattrIn, SetxattrInCompat, Statx, StatxOut,
};
use fuse_wire::abi::{fattr, opcode};
use fuse_wire::raw;

use super::{Identities, Map};

/// Attributes whose values are ACLs.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
const ACL_VERSION: u32 = 2;
const ACL_HEAD_BYTES: usize = 4;
/// Tag, permissions, id.
const ACL_ENTRY_BYTES: usize = 8;
const ACL_USER: u16 = 0x02;
const ACL_GROUP: u16 = 0x08;

/// Where ids are beyond the header, which has those of who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Places {
    /// Nowhere.
    Header,
    /// Who asks will own what is made; the answer has its attributes.
    Makes,
    /// The answer begins with an entry.
    Entry,
    /// The answer is attributes.
    Attributes,
    /// So it is, and the request may name an owner.
    SetsOwner,
    /// The answer is attributes of statx.
    Statx,
    /// The answer is entries.
    Entries,
    /// The request may hold an ACL.
    SetsAcl,
    /// The answer may be an ACL.
    Acl,
}

/// Where an operation names ids; none if that is not known.
pub(super) fn places(operation: u32) -> Option<Places> {
    Some(match operation {
        opcode::LOOKUP | opcode::LINK => Places::Entry,
        opcode::SYMLINK | opcode::MKNOD | opcode::MKDIR | opcode::CREATE | opcode::TMPFILE => Places::Makes,
        opcode::GETATTR => Places::Attributes,
        opcode::SETATTR => Places::SetsOwner,
        opcode::STATX => Places::Statx,
        opcode::READDIRPLUS => Places::Entries,
        opcode::SETXATTR => Places::SetsAcl,
        opcode::GETXATTR => Places::Acl,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::READLINK | opcode::UNLINK | opcode::RMDIR => Places::Header,
        opcode::RENAME | opcode::RENAME2 | opcode::OPEN | opcode::READ | opcode::WRITE => Places::Header,
        opcode::STATFS | opcode::RELEASE | opcode::FSYNC | opcode::LISTXATTR | opcode::REMOVEXATTR => Places::Header,
        opcode::FLUSH | opcode::INIT | opcode::OPENDIR | opcode::READDIR | opcode::RELEASEDIR => Places::Header,
        opcode::FSYNCDIR | opcode::GETLK | opcode::SETLK | opcode::SETLKW | opcode::ACCESS => Places::Header,
        opcode::INTERRUPT | opcode::BMAP | opcode::DESTROY | opcode::IOCTL | opcode::POLL => Places::Header,
        opcode::NOTIFY_REPLY | opcode::FALLOCATE | opcode::LSEEK | opcode::COPY_FILE_RANGE => Places::Header,
        opcode::COPY_FILE_RANGE_64 | opcode::SETUPMAPPING | opcode::REMOVEMAPPING | opcode::SYNCFS => Places::Header,
        opcode::OFFER_WRITE | opcode::ENTER_WRITE => Places::Header,
        _ => return None,
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn set_number(bytes: &mut [u8], at: usize, number: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
}

/// A name behind a structure, and where what follows it begins.
fn name_at(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let name = bytes.get(at..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    assert!(at + end < bytes.len(), "its end is in the message");
    Some((&name[..end], at + end + 1))
}

impl Identities {
    /// Makes a request of this machine's kernel one of the pool's ids. `is_extended`: as SETXATTR was agreed on.
    ///
    /// # Errors
    /// The errno of what cannot be said in the pool's ids.
    pub fn translate_request(&self, message: &mut [u8], is_extended: bool) -> Result<(), i32> {
        if self.is_same() {
            return Ok(());
        }
        let Some(header) = raw::header(message) else { return Ok(()) };
        let Some(places) = places(header.opcode) else { return Err(libc::ENOSYS) };
        // Groups and labels of other callers, which nobody agreed on.
        if header.total_extlen != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let user = self.users.as_ref().map_or(Some(header.uid), |map| map.to_pool(header.uid));
        let group = self.groups.as_ref().map_or(Some(header.gid), |map| map.to_pool(header.gid));
        if places == Places::Makes && (user.is_none() || group.is_none()) {
            return Err(libc::EOVERFLOW);
        }
        match places {
            Places::SetsOwner => self.translate_owner(message)?,
            Places::SetsAcl => self.translate_set_acl(message, is_extended)?,
            _ => {}
        }
        set_number(message, offset_of!(InHeader, uid), self.user(header.uid));
        set_number(message, offset_of!(InHeader, gid), self.group(header.gid));
        Ok(())
    }

    fn translate_owner(&self, message: &mut [u8]) -> Result<(), i32> {
        let Some(valid) = number(message, raw::HEADER_BYTES + offset_of!(SetattrIn, valid)) else { return Ok(()) };
        let named = [
            (fattr::UID, &self.users, offset_of!(SetattrIn, uid)),
            (fattr::GID, &self.groups, offset_of!(SetattrIn, gid)),
        ];
        for (flag, map, place) in named {
            let at = raw::HEADER_BYTES + place;
            if let (true, Some(map), Some(id)) = (valid & flag != 0, map, number(message, at)) {
                set_number(message, at, map.stated_to_pool(id).ok_or(libc::EINVAL)?);
            }
        }
        Ok(())
    }

    fn translate_set_acl(&self, message: &mut [u8], is_extended: bool) -> Result<(), i32> {
        let head = if is_extended { size_of::<SetxattrIn>() } else { size_of::<SetxattrInCompat>() };
        let Some((name, value)) = name_at(message, raw::HEADER_BYTES + head) else { return Ok(()) };
        if !ACLS.contains(&name) {
            return Ok(());
        }
        each_id(&mut message[value..], |is_group, id| {
            self.map(is_group).map_or(Some(id), |map| map.stated_to_pool(id)).ok_or(libc::EINVAL)
        })
    }

    fn map(&self, is_group: bool) -> Option<&Map> {
        if is_group { self.groups.as_ref() } else { self.users.as_ref() }
    }

    /// Makes the answer to a request one of this machine's ids. `message` is the request, as its kernel sent it.
    pub fn translate_answer(&self, message: &[u8], answer: &mut [u8]) {
        let Some(header) = raw::header(message).filter(|_| !self.is_same()) else { return };
        let attributes = raw::attribute_places(header.opcode, answer);
        attributes.into_iter().for_each(|place| self.show_owner(answer, place));
        match places(header.opcode) {
            Some(Places::Statx) => {
                let at = offset_of!(StatxOut, stat);
                self.show(answer, (at + offset_of!(Statx, uid), at + offset_of!(Statx, gid)));
            }
            Some(Places::Acl) => self.show_acl(message, answer),
            _ => {}
        }
    }

    fn show_owner(&self, answer: &mut [u8], attributes: usize) {
        self.show(answer, (attributes + offset_of!(FileAttr, uid), attributes + offset_of!(FileAttr, gid)));
    }

    fn show(&self, answer: &mut [u8], (user, group): (usize, usize)) {
        for (is_group, at) in [(false, user), (true, group)] {
            if let (Some(map), Some(id)) = (self.map(is_group), number(answer, at)) {
                set_number(answer, at, map.to_here(id));
            }
        }
    }

    fn show_acl(&self, message: &[u8], answer: &mut [u8]) {
        let at = raw::HEADER_BYTES + offset_of!(GetxattrIn, size);
        // An answer of the size alone has no ids.
        let is_value = number(message, at).is_some_and(|size| size != 0);
        let name = name_at(message, raw::HEADER_BYTES + size_of::<GetxattrIn>());
        if is_value && name.is_some_and(|(name, _)| ACLS.contains(&name)) {
            let shown = each_id(answer, |is_group, id| Ok(self.map(is_group).map_or(id, |map| map.to_here(id))));
            assert!(shown.is_ok(), "there is always something to show");
        }
    }
}

/// Replaces each id of an ACL. What is no ACL of the version that we know stays as it is.
fn each_id(acl: &mut [u8], mut replace: impl FnMut(bool, u32) -> Result<u32, i32>) -> Result<(), i32> {
    // ACLs are little-endian everywhere.
    let version = acl.first_chunk::<ACL_HEAD_BYTES>().map(|bytes| u32::from_le_bytes(*bytes));
    if version != Some(ACL_VERSION) {
        return Ok(());
    }
    for entry in acl[ACL_HEAD_BYTES..].chunks_exact_mut(ACL_ENTRY_BYTES) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        if tag == ACL_USER || tag == ACL_GROUP {
            entry[4..].copy_from_slice(&replace(tag == ACL_GROUP, id)?.to_le_bytes());
        }
    }
    Ok(())
}
