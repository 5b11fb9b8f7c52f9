//! Digests of contents: begun, stored if the content is the same still, and read. Read next: `digests.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stere_format::{ContentDigests, FileKind, Key};
use stere_store::{Io, Store};

use crate::context::Context;
use crate::digests::{DigestKind, Digests, EXTENTS_PER_VIEW};
use crate::error::Error;
use crate::facts::stored_extents;
use crate::keys;
use crate::policies::Policies;
use crate::save::Writeback;
use crate::table::FileTable;

/// Digests of contents, by file.
pub struct DigestStore {
    pub(crate) store: Arc<Store>,
    pub(crate) table: Arc<FileTable>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) writeback: Arc<Writeback>,
    pub(crate) digests: Arc<Digests>,
}

impl DigestStore {
    pub(crate) fn new(writeback: &Arc<Writeback>, digests: Arc<Digests>) -> DigestStore {
        let Writeback { store, table, policies, .. } = &**writeback;
        let (store, table, policies) = (store.clone(), table.clone(), policies.clone());
        DigestStore { store, table, policies, writeback: writeback.clone(), digests }
    }

    /// The digests of a file's content as it is; none while something of it waits in memory.
    pub fn get(&self, io: Io<'_>, inode: u64) -> Result<Option<ContentDigests>, Error> {
        if !self.digests.is_on.load(Ordering::Acquire) {
            return Ok(None);
        }
        let held = self.table.find(inode);
        let state = held.as_ref().map(|held| held.read(io)).transpose()?;
        if state.as_ref().is_some_and(|state| state.is_dirty()) {
            return Ok(None);
        }
        self.store.view(io, |view| {
            let Some(bytes) = view.get(&Key::content_digest(inode))? else { return Ok(None) };
            Ok(Some(ContentDigests::decode(&bytes).map_err(|error| keys::bad_value(inode, &error))?))
        })
    }

    /// For one who is about to read all of a file to make a digest: a token that is good until the content changes.
    pub fn begin(&self, context: &Context<'_>, inode: u64) -> Result<u64, Error> {
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        let value = self.store.view(context.io, |view| keys::inode(view, inode))?;
        if value.kind() != Some(FileKind::File) {
            return Err(Error::NotAFile(inode));
        }
        if let Some(content) = &mut state.content
            && content.is_dirty()
        {
            self.writeback.save_all(context, inode, content)?;
        }
        self.check_not_encrypted(context, inode)?;
        // Before the token is there: what takes effect in between finds none, and takes nothing away.
        self.digests.is_on.store(true, Ordering::Release);
        Ok(self.digests.tokens.lock().take(inode))
    }

    /// Stores a digest if the content is what it was when the token was taken; tells whether it is.
    pub fn put(
        &self,
        context: &Context<'_>,
        inode: u64,
        token: u64,
        kind: DigestKind,
        digest: [u8; 32],
    ) -> Result<bool, Error> {
        let held = self.table.hold(inode);
        let state = held.write(context.io)?;
        if state.is_dirty() {
            return Ok(false);
        }
        self.check_not_encrypted(context, inode)?;
        self.store.update(context.io, |transaction| {
            // Under the store's lock: nothing takes effect between this look and the digest.
            if self.digests.tokens.lock().by_inode.get(&inode) != Some(&token) {
                return Ok(false);
            }
            let value = keys::inode_if_any(transaction, inode)?;
            if value.is_none_or(|value| value.nlink == 0) {
                return Ok(false);
            }
            let known = transaction.get(&Key::content_digest(inode))?;
            let mut digests = known.and_then(|bytes| ContentDigests::decode(&bytes).ok()).unwrap_or_default();
            kind.put(&mut digests, digest);
            transaction.put(Key::content_digest(inode), &digests.encode());
            transaction.put(Key::content_digests(), &[1]);
            Ok(true)
        })
    }

    /// What is encrypted, in whole or in part, or is to be, has no digest.
    fn check_not_encrypted(&self, context: &Context<'_>, inode: u64) -> Result<(), Error> {
        const REFUSED: Error = Error::Invalid(
            "the file is encrypted, and a digest would tell whoever has the devices which file it is; read it through the mount and keep the digest elsewhere",
        );
        let effective = self.store.view(context.io, |view| {
            let value = keys::inode(view, inode)?;
            self.policies.effective(view, inode, &value)
        })?;
        if effective.wish.encryption.is_on() {
            return Err(REFUSED);
        }
        if !self.policies.keyring.has_keys() {
            return Ok(());
        }
        let mut from = Some(0);
        while let Some(at) = from {
            let (extents, next) = stored_extents(&self.store, context.io, inode, at, EXTENTS_PER_VIEW)?;
            if extents.iter().any(|extent| extent.blob.value.key != 0) {
                return Err(REFUSED);
            }
            from = next;
        }
        Ok(())
    }
}
