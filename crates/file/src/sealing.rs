//! Which keys files need: the one that new data is encrypted with, and those of what is stored.
//!
//! Read next: `encrypted.rs`, which stores anew what is encrypted otherwise than asked for.

use std::ops::Range;
use std::sync::Arc;

use stere_crypt::DataKey;
use stere_policy::{Effective, Encryption};
use stere_store::Io;

use crate::encoding::Storing;
use crate::error::Error;
use crate::keys::{self, extents_touching};
use crate::policies::Policies;

impl Policies {
    /// The key that a policy asks for, to finish what was accepted.
    pub(crate) fn sealing(&self, encryption: Encryption) -> Result<Option<Arc<DataKey>>, Error> {
        if !encryption.is_on() {
            return Ok(None);
        }
        let number = self.keyring.meant(encryption).map_err(Error::Key)?;
        number.map(|number| self.keyring.closing_key(number)).transpose().map_err(Error::Key)
    }

    /// Whether the key can be used that a policy asks for.
    pub fn check_key(&self, effective: &Effective) -> Result<(), Error> {
        let Some(number) = self.keyring.meant(effective.wish.encryption).map_err(Error::Key)? else { return Ok(()) };
        self.keyring.open_key(number).map(drop).map_err(Error::Key)
    }

    /// Refuses a write that could not be saved: its key is locked, or that of what it changes.
    pub(crate) fn check_keys(&self, io: Io<'_>, inode: u64, storing: &Storing, range: Range<u64>) -> Result<(), Error> {
        if !self.keyring.has_keys() {
            return Ok(());
        }
        if let Some(key) = &storing.sealing {
            self.keyring.open_key(key.number()).map_err(Error::Key)?;
        }
        if !self.keyring.has_locked() {
            return Ok(());
        }
        for number in self.keys_of(io, inode, range)? {
            self.keyring.open_key(number).map_err(Error::Key)?;
        }
        Ok(())
    }

    /// The keys that a range of a file is encrypted with.
    pub(crate) fn keys_of(&self, io: Io<'_>, inode: u64, range: Range<u64>) -> Result<Vec<u16>, Error> {
        self.store.view(io, |view| {
            let mut numbers = Vec::new();
            for extent in extents_touching(view, inode, range.start, range.end, usize::MAX - 1)? {
                let number = if extent.is_preallocated() { 0 } else { view.blob(extent.value.blob)?.value.key };
                if number != 0 && !numbers.contains(&number) {
                    numbers.push(number);
                }
            }
            Ok(numbers)
        })
    }

    /// Whether any of a range of a file is encrypted, or is to be.
    pub(crate) fn is_encrypted(&self, io: Io<'_>, inode: u64, range: Range<u64>) -> Result<bool, Error> {
        if !self.keyring.has_keys() {
            return Ok(false);
        }
        let effective = self.store.view(io, |view| {
            let value = keys::inode(view, inode)?;
            self.effective(view, inode, &value)
        })?;
        Ok(effective.wish.encryption.is_on() || !self.keys_of(io, inode, range)?.is_empty())
    }
}
