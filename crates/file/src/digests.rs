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
use stere_format::{ContentDigests, ExtentValue, InodeValue, Key, key};
use stere_store::{Error as StoreError, Io, Store, Transaction};

/// Files whose digests can be under way at a time; the oldest has to be begun anew when there are more.
const TOKENS_MAX: usize = 1024;
/// Extents looked at in one view.
pub(crate) const EXTENTS_PER_VIEW: usize = 1024;

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

    pub(crate) fn put(self, digests: &mut ContentDigests, digest: [u8; 32]) {
        match self {
            DigestKind::Sha256 => digests.sha256 = Some(digest),
            DigestKind::Blake3 => digests.blake3 = Some(digest),
        }
    }
}

/// What of digests is in memory.
pub(crate) struct Digests {
    /// There may be digests, or tokens.
    pub(crate) is_on: AtomicBool,
    pub(crate) tokens: std::sync::Arc<Mutex<Tokens>>,
}

#[derive(Default)]
pub(crate) struct Tokens {
    pub(crate) by_inode: FxHashMap<u64, u64>,
    by_age: BTreeMap<u64, u64>,
    last: u64,
}

impl Tokens {
    pub(crate) fn take(&mut self, inode: u64) -> u64 {
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
        self.assert_invariants();
        self.last
    }

    fn assert_invariants(&self) {
        assert_eq!(self.by_inode.len(), self.by_age.len(), "tokens are known by inode and by age");
        assert!(self.by_age.len() <= TOKENS_MAX, "{} tokens are under way", self.by_age.len());
    }

    fn void(&mut self, inode: u64) {
        if let Some(token) = self.by_inode.remove(&inode) {
            self.by_age.remove(&token);
        }
        self.assert_invariants();
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
        assert!(concerned.windows(2).all(|pair| pair[0] < pair[1]), "keys that were written are in order");
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
