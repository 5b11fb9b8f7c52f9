//! Junctions: directories at which another pool, of an owner of its own, is mounted on every machine.
//!
//! Invariants: the directory of a junction is empty, and nothing is made in it; it is not removed, replaced or renamed. So whoever
//! uses a machine on which the other pool is not mounted gets an error, and never an empty directory. Read next: `inode` (`directory`,
//! through which all calls on names go), the daemon's `junctions.rs` (which mounts them), `docs/design/cluster.md`.

use std::sync::Arc;

use stere_file::{Keys, inode_if_any};
use stere_format::{InodeValue, JunctionValue, Key, key};
use stere_store::Io;

use crate::call::{Caller, ROOT};
use crate::error::Error;
use crate::flagged::FlaggedInodes;
use crate::inode::{Core, living_directory};
use crate::names::is_empty;

/// Flag of directories at which another pool is mounted.
pub const IS_JUNCTION: u32 = 1 << 10;
/// All of a pool are told in one answer, and each is a process of every machine.
pub const JUNCTIONS_MAX: usize = 64;

/// A junction, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Junction {
    pub directory: u64,
    /// From the root of the pool.
    pub path: Vec<u8>,
    pub value: JunctionValue,
}

/// Makes, ends and lists junctions.
pub struct Junctions {
    pub core: Arc<Core>,
    pub flagged: Arc<FlaggedInodes>,
}

/// Refuses to go below a junction: what is there is in the other pool.
pub fn check_not_inside(value: &InodeValue) -> Result<(), Error> {
    if value.flags & IS_JUNCTION == 0 { Ok(()) } else { Err(Error::InsideJunction) }
}

/// Refuses to remove, replace or rename a junction.
pub fn check_none(value: &InodeValue) -> Result<(), Error> {
    if value.flags & IS_JUNCTION == 0 { Ok(()) } else { Err(Error::IsJunction) }
}

fn read(keys: &impl Keys, directory: u64) -> Result<Option<JunctionValue>, Error> {
    let Some(bytes) = keys.value(&Key::junction(directory))? else { return Ok(None) };
    let decoded = JunctionValue::decode(&bytes);
    decoded.map(Some).map_err(|error| Error::Damaged(format!("the junction at inode {directory} is damaged: {error}")))
}

impl Junctions {
    /// Makes an empty directory a junction.
    pub fn attach(&self, caller: &Caller<'_>, directory: u64, junction: &JunctionValue) -> Result<(), Error> {
        let known = self.list(caller.io)?;
        if known.len() >= JUNCTIONS_MAX {
            return Err(Error::TooMany("pools mounted in this one (64 can be)"));
        }
        if known.iter().any(|known| known.value.pool == junction.pool) {
            return Err(Error::Invalid(
                "this pool is mounted in the other one already; `stere volume list` tells where",
            ));
        }
        self.core.store.update(caller.io, |transaction| {
            let mut value = living_directory(transaction, directory)?;
            if directory == ROOT {
                return Err(Error::Invalid("no pool can take the place of another one's root"));
            }
            if !is_empty(transaction, directory)? {
                return Err(Error::NotEmpty);
            }
            assert_eq!(value.flags & IS_JUNCTION, 0, "what leads to a pool is no directory to names");
            value.flags |= IS_JUNCTION;
            value.ctime = caller.now;
            stere_file::put_inode(transaction, directory, &value);
            transaction.put(Key::junction(directory), &junction.encode());
            Ok::<_, Error>(())
        })?;
        self.flagged.note_change();
        Ok(())
    }

    /// Makes a junction an ordinary empty directory again. The other pool stays as it is.
    pub fn detach(&self, caller: &Caller<'_>, directory: u64) -> Result<(), Error> {
        self.core.store.update(caller.io, |transaction| {
            let mut value = inode_if_any(transaction, directory)?.ok_or(Error::Stale)?;
            if value.flags & IS_JUNCTION == 0 {
                return Err(Error::Invalid("no other pool is mounted at this directory"));
            }
            value.flags &= !IS_JUNCTION;
            value.ctime = caller.now;
            stere_file::put_inode(transaction, directory, &value);
            transaction.delete(Key::junction(directory));
            Ok::<_, Error>(())
        })?;
        self.flagged.note_change();
        Ok(())
    }

    /// All junctions of the pool.
    pub fn list(&self, io: Io<'_>) -> Result<Vec<Junction>, Error> {
        let directories = self.flagged.inodes_with(io, key::kind::JUNCTION, Key::junction)?;
        let mut junctions = Vec::with_capacity(directories.len());
        for directory in directories {
            let value = self.core.store.view(io, |view| read(view, directory))?;
            let Some(value) = value else { continue };
            junctions.push(Junction { directory, path: self.core.path_of(io, directory)?, value });
        }
        assert!(junctions.len() <= JUNCTIONS_MAX, "{} pools are mounted in this one", junctions.len());
        Ok(junctions)
    }
}
