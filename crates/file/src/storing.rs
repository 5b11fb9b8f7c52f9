//! How the data of a file is stored: what its policy asks for, with keys and plugins found.
//!
//! Read next: `encoding.rs`, `encode.rs`.

use stere_policy::Effective;
use stere_store::Io;

use crate::block::BLOCK;
use crate::context::Context;
use crate::encoding::{AskedEncoding, Storing, kind_of};
use crate::error::Error;
use crate::keys;
use crate::policies::Policies;
use crate::policy::check_changeable;
use crate::record::RECORD_BYTES;

impl Policies {
    /// How new data of a file is stored.
    pub(crate) fn storing(&self, io: Io<'_>, inode: u64) -> Result<Storing, Error> {
        let effective = self.store.view(io, |view| {
            let value = keys::inode(view, inode)?;
            self.effective(view, inode, &value)
        })?;
        self.storing_of(&effective)
    }

    /// The same for data that somebody writes now: not if the file is retained.
    pub(crate) fn storing_change(&self, context: &Context<'_>, inode: u64) -> Result<Storing, Error> {
        let effective = self.store.view(context.io, |view| {
            let value = keys::inode(view, inode)?;
            check_changeable(&value, context.now)?;
            self.effective(view, inode, &value)
        })?;
        self.storing_of(&effective)
    }

    /// Refuses to change a file that is retained; asked with the file locked, so that this holds until it is changed.
    pub(crate) fn check_not_retained(&self, context: &Context<'_>, inode: u64) -> Result<(), Error> {
        self.store.view(context.io, |view| check_changeable(&keys::inode(view, inode)?, context.now))
    }

    /// What a policy asks for.
    pub(crate) fn storing_of(&self, effective: &Effective) -> Result<Storing, Error> {
        let (placement, compression) = (self.placement_of(effective), effective.wish.compression);
        let stack = match self.plugins.codecs(effective.plugins) {
            0 => None,
            number => Some((number, self.plugins.stack(number).map_err(Error::Plugin)?)),
        };
        let sealing = self.sealing(effective.wish.encryption)?;
        let record_bytes = effective.wish.record.bytes().min(RECORD_BYTES).min(self.store.blob_bytes_max() as u64);
        assert!(record_bytes >= BLOCK, "a record of {record_bytes} bytes holds no block");
        let checksum = kind_of(effective.wish.checksum);
        Ok(Storing { placement, compression, sealing, stack, record_bytes, checksum })
    }

    /// The encoding that a policy asks for, whether or not its key can be used now.
    pub(crate) fn asked(&self, effective: &Effective) -> AskedEncoding {
        let key = self.keyring.meant(effective.wish.encryption).ok().flatten().unwrap_or(0);
        let (compression, checksum) = (effective.wish.compression, kind_of(effective.wish.checksum));
        AskedEncoding { compression, key, stack: self.plugins.codecs(effective.plugins), checksum }
    }
}
