//! Digests of whole contents: told as attributes to whoever may read the file, made by whoever reads all of it with a token.
//!
//! Read next: `digests.rs` of stere-file, which keeps them only while they are so.

use std::sync::Arc;

use stere_file::DigestKind;
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_residency::eviction::Eviction;

/// Digests of whole contents.
pub struct Digests {
    pub core: Arc<Core>,
    pub eviction: Arc<Eviction>,
}

impl Digests {
    /// A digest of a file's content as it is, in hexadecimal digits.
    pub fn digest_text(&self, caller: &Caller<'_>, inode: u64, kind: DigestKind) -> Result<Vec<u8>, Error> {
        let digests = self.core.files.digests.get(caller.io, inode)?;
        let digest = digests.and_then(|digests| kind.of(&digests)).ok_or(Error::NoAttribute)?;
        Ok(digest.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect())
    }

    /// For one who is about to read all of a file: a token that is good until its content changes.
    pub fn begin_digest(&self, caller: &Caller<'_>, inode: u64) -> Result<u64, Error> {
        Ok(self.core.files.digests.begin(&caller.context(), inode)?)
    }

    /// Stores the digest of what was read since the token was given; tells whether it still is the content, and so is stored.
    pub fn store_digest(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        token: u64,
        kind: DigestKind,
        digest: [u8; 32],
    ) -> Result<bool, Error> {
        self.eviction
            .with_room(caller, || Ok(self.core.files.digests.put(&caller.context(), inode, token, kind, digest)?))
    }
}
