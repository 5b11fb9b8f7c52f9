//! Inodes without a name, and files whose end is still to be cut: what is known of them in memory and on media.
//!
//! Read next: `orphan.rs`, which frees them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_format::Key;
use stere_store::{Io, Store};

use crate::error::Error;

/// Why an inode is on the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanKind {
    /// It has no name; it is freed when nobody has it open.
    Removed,
    /// It was cut; extents behind its size are still to be freed.
    Truncating,
}

/// An inode on the list, as it is in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Orphan {
    pub(crate) kind: OrphanKind,
    /// The kernel has not forgotten it yet.
    pub(crate) held: bool,
}

/// What became of an inode that lost a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It has other names.
    Stays,
    /// It was freed.
    Freed,
    /// It is on the list of orphans.
    Orphan,
}

impl OrphanKind {
    pub(crate) fn to_bytes(self) -> [u8; 1] {
        [match self {
            OrphanKind::Removed => 1,
            OrphanKind::Truncating => 2,
        }]
    }

    /// Anything unknown is left alone: it was written by a later version.
    fn decode(bytes: &[u8]) -> Option<OrphanKind> {
        match bytes {
            [1] => Some(OrphanKind::Removed),
            [2] => Some(OrphanKind::Truncating),
            _ => None,
        }
    }
}

/// Reads the list from media.
pub(crate) fn load(store: &Store) -> Result<BTreeMap<u64, Orphan>, Error> {
    store.view(Io::BLOCKING, |view| {
        let mut orphans = BTreeMap::new();
        view.scan(Key::orphan(0), Key::orphan(u64::MAX), |key, bytes| {
            if key.kind == stere_format::key::kind::ORPHAN {
                orphans.extend(OrphanKind::decode(bytes).map(|kind| (key.object, Orphan { kind, held: false })));
            }
            ControlFlow::Continue(())
        })?;
        Ok(orphans)
    })
}
