//! Digests of whole contents that somebody made by reading: kept while the content is what they were made of, and no longer.
//!
//! Nobody who changes a file has to think of them: every transaction is looked at before it takes effect, as for accounts, and what changes
//! an extent or a size takes the digests of that file away in the same transaction. Moving bytes changes no extent, so it takes nothing away.
//! Who makes a digest takes a token first, which the same look takes away; with the token the digest is stored, in a transaction that finds it
//! still good. Tokens are in memory only: after a crash they are simply not there. Invariants: a digest that is told is of the content as it
//! is, what waits in memory included; nothing encrypted has one, since a digest tells whoever has the same file that this is it.
//! A pool in which nobody ever made one pays one look at a flag for each transaction. Read next: `docs/design/files.md#digests`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use stere_format::{ContentDigests, ExtentValue, FileKind, InodeValue, Key, key};
use stere_store::{Error as StoreError, Io, Store, Transaction};

use crate::error::Error;
use crate::facts::stored_extents;
use crate::{Context, Files, keys};

/// Files whose digests can be under way at a time; the oldest has to be begun anew when there are more.
const TOKENS_MAX: usize = 1024;
/// Extents looked at in one view.
const EXTENTS_PER_VIEW: usize = 1024;

/// How a digest is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestKind {
    Sha256,
    Blake3,
}

impl DigestKind {
    /// The digest of this kind.
    pub fn of(self, digests: &ContentDigests) -> Option<[u8; 32]> {
        match self {
            DigestKind::Sha256 => digests.sha256,
            DigestKind::Blake3 => digests.blake3,
        }
    }

    fn put(self, digests: &mut ContentDigests, digest: [u8; 32]) {
        match self {
            DigestKind::Sha256 => digests.sha256 = Some(digest),
            DigestKind::Blake3 => digests.blake3 = Some(digest),
        }
    }
}

/// What of digests is in memory.
pub(crate) struct Digests {
    /// There may be digests, or tokens.
    is_on: AtomicBool,
    tokens: std::sync::Arc<Mutex<Tokens>>,
}

#[derive(Default)]
struct Tokens {
    by_inode: FxHashMap<u64, u64>,
    by_age: BTreeMap<u64, u64>,
    last: u64,
}

impl Tokens {
    fn take(&mut self, inode: u64) -> u64 {
        if let Some(token) = self.by_inode.get(&inode) {
            return *token;
        }
        if self.by_age.len() >= TOKENS_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_inode.remove(&oldest);
        }
        self.last += 1;
        self.by_inode.insert(inode, self.last);
        self.by_age.insert(self.last, inode);
        self.last
    }

    fn void(&mut self, inode: u64) {
        if let Some(token) = self.by_inode.remove(&inode) {
            self.by_age.remove(&token);
        }
    }
}

/// What of an extent decides about content: not what it counts.
fn content_of(bytes: Option<&[u8]>) -> Option<(u64, u32, u32, bool)> {
    let value = ExtentValue::decode(bytes?).ok()?;
    Some((value.blob, value.blob_offset, value.length, value.flags == stere_format::ExtentFlags::Plain))
}

fn size_of(bytes: Option<&[u8]>) -> Option<u64> {
    InodeValue::decode(bytes?).ok().map(|value| value.size)
}

impl Digests {
    pub(crate) fn load(store: &Store) -> Result<Digests, StoreError> {
        let is_on =
            store.view(Io::BLOCKING, |view| Ok::<_, StoreError>(view.get(&Key::content_digests())?.is_some()))?;
        Ok(Digests { is_on: is_on.into(), tokens: Default::default() })
    }

    /// Takes away the digests and tokens of files whose content a transaction changes.
    pub(crate) fn settle(&self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        if !self.is_on.load(Ordering::Acquire) || transaction.keeps_content() {
            return Ok(());
        }
        let mut touched = Vec::new();
        for key in transaction.written(key::tree::NAMES) {
            if matches!(key.kind, key::kind::INODE | key::kind::EXTENT) && touched.last() != Some(&key.object) {
                touched.push(key.object);
            }
        }
        let mut concerned = Vec::new();
        for inode in touched {
            let has_token = self.tokens.lock().by_inode.contains_key(&inode);
            if has_token || transaction.get(&Key::content_digest(inode))?.is_some() {
                concerned.push(inode);
            }
        }
        if concerned.is_empty() {
            return Ok(());
        }
        let mut changed = std::collections::BTreeSet::new();
        let mut note = |inode: u64, is_other: bool| {
            if is_other && concerned.binary_search(&inode).is_ok() {
                changed.insert(inode);
            }
        };
        transaction.changed(key::tree::NAMES, key::kind::EXTENT, |key, before, after| {
            note(key.object, content_of(before) != content_of(after));
            Ok(())
        })?;
        transaction.changed(key::tree::NAMES, key::kind::INODE, |key, before, after| {
            note(key.object, size_of(before) != size_of(after));
            Ok(())
        })?;
        for inode in &changed {
            transaction.delete(Key::content_digest(*inode));
        }
        let tokens = self.tokens.clone();
        transaction.on_effect(move || {
            let mut tokens = tokens.lock();
            changed.into_iter().for_each(|inode| tokens.void(inode));
        });
        Ok(())
    }
}

impl Files {
    /// The digests of a file's content as it is; none while something of it waits in memory.
    pub fn content_digests(&self, io: Io<'_>, inode: u64) -> Result<Option<ContentDigests>, Error> {
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
    pub fn begin_digest(&self, context: &Context<'_>, inode: u64) -> Result<u64, Error> {
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        let value = self.store.view(context.io, |view| keys::inode(view, inode))?;
        if value.kind() != Some(FileKind::File) {
            return Err(Error::NotAFile(inode));
        }
        if let Some(content) = &mut state.content
            && content.is_dirty()
        {
            self.save_all(context, inode, content)?;
        }
        self.check_not_encrypted(context, inode)?;
        // Before the token is there: what takes effect in between finds none, and takes nothing away.
        self.digests.is_on.store(true, Ordering::Release);
        Ok(self.digests.tokens.lock().take(inode))
    }

    /// Stores a digest if the content is what it was when the token was taken; tells whether it is.
    pub fn store_digest(
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
            self.effective(view, inode, &value)
        })?;
        if effective.wish.encryption.is_on() {
            return Err(REFUSED);
        }
        if !self.keyring.has_keys() {
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
