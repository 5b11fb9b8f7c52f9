//! What the pool knows of backups: destinations, and files to be copied there. Copying is done by whoever has the pool mounted.
//!
//! Invariant: what is encrypted in the pool leaves it only as its owner reads it, never through a backup.
//! Read next: `crates/backup` (what lies at a destination), `docs/design/backup.md`.

use std::sync::Arc;

use stere_faults::{Bug, is_planted};
use stere_file::inode_if_any;
use stere_format::{BackupValue, Key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::tiers::Tiers;
use stere_store::Io;

/// Destinations that a pool may have.
pub const BACKUPS_MAX: u64 = 16;

/// What the pool knows of backups.
pub struct Backups {
    pub core: Arc<Core>,
    pub tiers: Arc<Tiers>,
}

impl Backups {
    /// The destinations of backups with their numbers.
    pub fn list(&self, io: Io<'_>) -> Result<Vec<(u64, BackupValue)>, Error> {
        self.core.store.view(io, |view| {
            let mut found = Vec::new();
            for number in 1..=BACKUPS_MAX {
                let Some(bytes) = view.get(&Key::backup(number))? else { continue };
                match BackupValue::decode(&bytes) {
                    Ok(value) => found.push((number, value)),
                    Err(error) => tracing::error!(number, %error, "a destination of backups is not understood"),
                }
            }
            Ok(found)
        })
    }

    /// Notes a destination: a new one without a number.
    pub fn put_backup(&self, caller: &Caller<'_>, number: Option<u64>, value: &BackupValue) -> Result<(), Error> {
        assert!(number.is_none_or(|number| (1..=BACKUPS_MAX).contains(&number)), "there is no destination {number:?}");
        self.core.store.update(caller.io, |transaction| {
            let mut free = None;
            for one in (1..=BACKUPS_MAX).filter(|_| number.is_none()) {
                if transaction.get(&Key::backup(one))?.is_none() {
                    free = Some(one);
                    break;
                }
            }
            let full = "a pool has at most 16 destinations of backups; remove one";
            let number = number.or(free).ok_or(Error::Invalid(full))?;
            transaction.put(Key::backup(number), &value.encode());
            Ok(())
        })
    }

    /// Forgets a destination; what lies there stays.
    pub fn remove_backup(&self, caller: &Caller<'_>, number: u64) -> Result<(), Error> {
        self.core.store.update(caller.io, |transaction| {
            transaction.delete(Key::backup(number));
            Ok(())
        })
    }

    /// Whether a file, or a name on its path, is encrypted.
    pub fn is_encrypted(&self, caller: &Caller<'_>, inode: u64) -> Result<bool, Error> {
        if !self.core.files.keyring().has_keys() || is_planted(Bug::CopiedInTheClear) {
            return Ok(false);
        }
        let value = self.core.store.view(caller.io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        self.tiers.is_secret(caller.io, inode, &value)
    }

    /// Reads as `read` does, without anybody being asked or told, and without a time of access.
    pub fn read_for_backup(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        Ok(self.core.files.reader.read_unnoted(&caller.context(), inode, offset, out)?.length)
    }
}
