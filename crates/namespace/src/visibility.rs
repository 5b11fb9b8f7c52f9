//! Whom it is told where other names of a file lie: who may search the directories above them.
//!
//! The kernel lets anybody ask for the attributes of a file who reaches it by one of its names. What they tell of how it is stored comes from all of its
//! names, and must not give away paths of directories that the asker cannot enter. Permissions are looked at as `find.rs` does; what is not known of his
//! groups speaks against him. Of a file with one name everything is told: he came by it. Read next: `walk.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use stere_file::inode_if_any;
use stere_file::named_in::{directories_of, has_several_names};
use stere_policy::Source;

use crate::acl;
use crate::call::Caller;
use crate::error::Error;
use crate::inode::{Core, nearest};

/// Directories above one another beyond which metadata is damaged.
const DEPTH_MAX: usize = 4096;

/// Who decided, where that must not be told.
pub const NOT_SHOWN: &[u8] = b"by another name (not shown: you cannot reach it)";

/// Which paths an asker may be told.
pub struct PathVisibility {
    pub core: Arc<Core>,
}

impl PathVisibility {
    /// The directories with names of a file that whoever asks can reach; none if there is nothing to hide from him.
    pub fn reachable(&self, asker: &Caller<'_>, inode: u64) -> Result<Option<BTreeSet<u64>>, Error> {
        if asker.uid == 0 {
            return Ok(None);
        }
        let found = self.core.store.view(asker.io, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            let several = has_several_names(&value).then(|| directories_of(view, inode, &value)).transpose()?;
            Ok::<_, Error>(several)
        })?;
        let Some(directories) = found else { return Ok(None) };
        let mut reachable = BTreeSet::new();
        for directory in directories {
            if self.may_search_all_above(asker, directory)? {
                reachable.insert(directory);
            }
        }
        Ok(Some(reachable))
    }

    fn may_search_all_above(&self, asker: &Caller<'_>, directory: u64) -> Result<bool, Error> {
        self.core.store.view(asker.io, |view| {
            let mut at = directory;
            for _ in 0..DEPTH_MAX {
                let Some(value) = inode_if_any(view, at)? else { return Ok(false) };
                if !acl::surely_permits(view, at, &value, asker, acl::MAY_SEARCH)? {
                    return Ok(false);
                }
                if value.parent == at {
                    return Ok(true);
                }
                at = value.parent;
            }
            Ok(false)
        })
    }

    /// Whether the path of a directory may be told to who asks about a file: it lies above a name that he can reach.
    pub fn may_be_told(&self, asker: &Caller<'_>, inode: u64, directory: u64) -> Result<bool, Error> {
        let Some(reachable) = self.reachable(asker, inode)? else { return Ok(true) };
        self.core.store.view(asker.io, |view| {
            for name in &reachable {
                if nearest(view, *name, |at, _| Ok((at == directory).then_some(())))?.is_some() {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// What is told instead of who decided, where that must not be told.
    pub fn instead_of(&self, asker: &Caller<'_>, inode: u64, source: Source) -> Result<Option<Vec<u8>>, Error> {
        let (what, number): (&[u8], u64) = match source {
            Source::Inode(number) => (b"inherited ", number),
            Source::Lock(number) => (b"locked by the administrator ", number),
            Source::Rule | Source::Pool => return Ok(None),
        };
        let is_told = number == inode || self.may_be_told(asker, inode, number)?;
        Ok((!is_told).then(|| [what, NOT_SHOWN].concat()))
    }
}
