//! Quotas of users: what an inode counts, and what more there may be.

use std::collections::BTreeMap;

use crate::{Inode, Kind, Model, Result, errno};

const BLOCK: u64 = 4096;

/// What a user may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limit {
    /// Most bytes, each file counted in whole blocks.
    pub bytes: Option<u64>,
    /// Most inodes.
    pub inodes: Option<u64>,
}

/// Limits by user.
pub(crate) type Limits = BTreeMap<u32, Limit>;

impl Kind {
    pub(crate) fn counted_bytes(&self) -> u64 {
        match self {
            Kind::File(content) => content.size().next_multiple_of(BLOCK),
            _ => 0,
        }
    }
}

/// What so many bytes of metadata count: a little is free.
fn counted_metadata(bytes: usize) -> u64 {
    if bytes <= 512 { 0 } else { (bytes as u64).next_multiple_of(BLOCK) }
}

impl Inode {
    /// Content, names or target, and attributes.
    fn counted_bytes(&self) -> u64 {
        let names = match &self.kind {
            Kind::Directory(names) => names.iter().map(|(name, _)| 24 + name.len()).sum(),
            Kind::Symlink(target) => target.len(),
            Kind::File(_) | Kind::Special => 0,
        };
        let attributes = self.xattrs.iter().map(|(name, value)| 24 + name.len() + value.len()).sum();
        self.kind.counted_bytes() + counted_metadata(names) + counted_metadata(attributes)
    }
}

impl Model {
    /// Sets what a user may have; what is there already stays.
    pub fn set_limit(&mut self, uid: u32, limit: Limit) {
        self.limits.insert(uid, limit);
    }

    /// What a user has: bytes and inodes, those without a name that are open among them.
    pub fn used(&self, uid: u32) -> (u64, u64) {
        let own = self.inodes.values().filter(|inode| inode.uid == uid);
        own.fold((0, 0), |(bytes, inodes), inode| (bytes + inode.counted_bytes(), inodes + 1))
    }

    /// Makes a change, unless a user would then have more than before and more than allowed.
    pub(crate) fn within_limits<T>(&mut self, change: impl FnOnce(&mut Model) -> Result<T>) -> Result<T> {
        if self.limits.is_empty() {
            return change(self);
        }
        let before = self.clone();
        let changed = change(self)?;
        let exceeds = |is: u64, was: u64, most: Option<u64>| is > was && most.is_some_and(|most| is > most);
        let is_over = self.limits.iter().any(|(uid, limit)| {
            let (is, was) = (self.used(*uid), before.used(*uid));
            exceeds(is.0, was.0, limit.bytes) || exceeds(is.1, was.1, limit.inodes)
        });
        if is_over {
            *self = before;
            return Err(errno::EDQUOT);
        }
        Ok(changed)
    }

    /// Whether a user may have so many bytes more.
    fn check_room(&self, uid: u32, bytes: u64) -> Result<()> {
        let most = self.limits.get(&uid).and_then(|limit| limit.bytes);
        match bytes > 0 && most.is_some_and(|most| self.used(uid).0 + bytes > most) {
            true => Err(errno::EDQUOT),
            false => Ok(()),
        }
    }

    /// Whether a file may have this size.
    pub(crate) fn check_growth(&self, inode: u64, size: u64) -> Result<()> {
        let found = self.inode(inode)?;
        let more = size.next_multiple_of(BLOCK).saturating_sub(found.kind.counted_bytes());
        self.check_room(found.uid, more)
    }

    /// How much of a write its owner may still have: whole blocks.
    pub(crate) fn granted(&self, inode: u64, offset: u64, length: usize) -> Result<usize> {
        let (found, end) = (self.inode(inode)?, offset + length as u64);
        let Kind::File(content) = &found.kind else { return Ok(length) };
        let Some(most) = self.limits.get(&found.uid).and_then(|limit| limit.bytes) else { return Ok(length) };
        if self.check_growth(inode, end).is_ok() {
            return Ok(length);
        }
        let size = (found.kind.counted_bytes() + most.saturating_sub(self.used(found.uid).0)) / BLOCK * BLOCK;
        match size.max(content.size()).min(end).saturating_sub(offset) {
            0 => Err(errno::EDQUOT),
            granted => Ok(granted as usize),
        }
    }
}
