//! Attributes of inodes as users see them: what the inode says, and what several features add.

use std::sync::Arc;

use stere_format::{FileKind, InodeValue};
use stere_namespace::access_times::LazyTimes;
use stere_namespace::attributes::Attributes;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::tiers::Tiers;
use stere_store::Io;

use crate::audit::Audit;
use crate::versions::Versions;

/// Shows attributes.
pub struct Stat {
    pub core: Arc<Core>,
    pub tiers: Arc<Tiers>,
    pub access_times: Arc<LazyTimes>,
    pub audit: Arc<Audit>,
    pub versions: Arc<Versions>,
}

impl Stat {
    /// Attributes as users see them: with times of access that are not saved yet.
    pub fn show_attributes(&self, io: Io<'_>, inode: u64, value: InodeValue) -> Result<Attributes, Error> {
        let mut attributes = Attributes::of(inode, &value);
        if self.core.store.tier.recalls.may_be_released()
            && value.blocks_bytes > 0
            && value.kind() == Some(FileKind::File)
        {
            // What is on media only takes no room here.
            let released = self.tiers.released_bytes(io, inode)?;
            let local = value.blocks_bytes.saturating_sub(released).div_ceil(512);
            // Programs that copy sparse files (tar -S) store zeros for a file of no blocks, without reading it.
            attributes.blocks_512 = local.max(1);
        }
        if let Some(atime) = self.access_times.get(inode) {
            attributes.atime = atime;
        }
        attributes.is_fleeting |= self.audit.must_know_names_used(io, inode, &value)?;
        if self.versions.is_removed_in_use(&value, inode) {
            // Who has it open removed it, and may rely on seeing that (so do lock files).
            attributes.nlink = 0;
        }
        Ok(attributes)
    }
}
