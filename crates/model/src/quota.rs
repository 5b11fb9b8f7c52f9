//! Quotas of users: what an inode counts, and what more there may be.

use std::collections::BTreeMap;

use crate::{Kind, Model, Result, errno};

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

impl Model {
    /// Sets what a user may have; what is there already stays.
    pub fn set_limit(&mut self, uid: u32, limit: Limit) {
        self.limits.insert(uid, limit);
    }

    /// What a user has: bytes and inodes, those without a name that are open among them.
    pub fn used(&self, uid: u32) -> (u64, u64) {
        let own = self.inodes.values().filter(|inode| inode.uid == uid);
        own.fold((0, 0), |(bytes, inodes), inode| (bytes + inode.kind.counted_bytes(), inodes + 1))
    }

    /// Whether a user may have so much more.
    pub(crate) fn check_room(&self, uid: u32, bytes: u64, inodes: u64) -> Result<()> {
        let Some(limit) = self.limits.get(&uid) else { return Ok(()) };
        let used = self.used(uid);
        let exceeds = |more: u64, used: u64, most: Option<u64>| more > 0 && most.is_some_and(|most| used + more > most);
        if exceeds(bytes, used.0, limit.bytes) || exceeds(inodes, used.1, limit.inodes) {
            return Err(errno::EDQUOT);
        }
        Ok(())
    }

    /// Whether a file may have this size.
    pub(crate) fn check_growth(&self, inode: u64, size: u64) -> Result<()> {
        let found = self.inode(inode)?;
        let more = size.next_multiple_of(BLOCK).saturating_sub(found.kind.counted_bytes());
        self.check_room(found.uid, more, 0)
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
