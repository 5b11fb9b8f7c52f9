//! Offloaded keys that come back into the tree, or are read where they are.
//!
//! Invariants: keys come back in the same update in which their range ends; on a pool that cannot be written to, in memory
//! only. Read next: `fold.rs`, `access.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use stere_faults::{Bug, is_planted};
use stere_format::{Bundle, FileKind, FoldValue, InodeValue, Key, NamesUse, key};
use stere_log::Io;

use crate::engine::Engine;
use crate::error::Error;
use crate::folds::decode;
use crate::transaction::Transaction;

/// Bundles that one pass over keys keeps in memory.
const BUNDLES_KNOWN_MAX: usize = 64;

impl Engine {
    /// Brings the keys of a fold back into the tree.
    pub(crate) fn reload(&self, io: Io<'_>, number: u64) -> Result<(), Error> {
        let Some((fold, bundle, length)) = self.read_fold(io, number)? else { return Ok(()) };
        let is_writable = self.check_writable().is_ok();
        let encoded = fold.encode();
        self.update_unrefused(io, true, |transaction| {
            // Somebody else was faster.
            if transaction.get(&Key::fold(number))?.is_none_or(|bytes| *bytes != *encoded) {
                return Ok(());
            }
            // The last one, not the first, so that there is an inode without it.
            let forgotten = usize::from(is_planted(Bug::UnfoldedInPart) && bundle.entries.len() > 1);
            let entries = &bundle.entries[..bundle.entries.len() - forgotten];
            entries.iter().for_each(|(key, value)| transaction.put(*key, value));
            transaction.delete(Key::fold(number));
            if !is_writable {
                return Ok(());
            }
            if self.unfolded.is_noted.load(Ordering::Acquire) {
                note_directories(transaction, number, &bundle)?;
            }
            transaction.release_blob(fold.blob, 0..length)
        })?;
        self.unfolded.count.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// A fold, what it holds, and how long that is; none if it has ended.
    pub fn read_fold(&self, io: Io<'_>, number: u64) -> Result<Option<(FoldValue, Bundle, u32)>, Error> {
        let found = self.view_through(io, |view| {
            let Some(bytes) = view.get(&Key::fold(number))? else { return Ok(None) };
            let fold = decode(&bytes)?;
            let blob = view.blob(fold.blob)?;
            Ok::<_, Error>(Some((fold, blob)))
        })?;
        let Some((fold, blob)) = found else { return Ok(None) };
        let mut stored = vec![0; blob.value.address.length as usize];
        self.read_stored(io, vec![(&blob, &mut stored)])?;
        let bad = |detail: String| Error::BadValue { what: "a bundle of names", detail };
        if blob.value.logical_bytes as usize > self.blob_bytes_max() {
            return Err(bad(format!("blob {} is longer than any bundle", fold.blob)));
        }
        let mut plain = vec![0; blob.value.logical_bytes as usize];
        stere_plugin::decode(blob.value.encoding, &stored, &mut plain).map_err(|error| bad(error.to_string()))?;
        let bundle = Bundle::decode(&plain).map_err(|error| bad(error.to_string()))?;
        if bundle.entries.len() != fold.keys as usize || !bundle.entries.iter().all(|(key, _)| fold.covers(key)) {
            return Err(bad(format!("blob {} holds other keys than fold {number} says", fold.blob)));
        }
        Ok(Some((fold, bundle, blob.value.logical_bytes)))
    }

    /// Calls `visit` for all keys of a range, also those that are put away: their bundles are read, from volumes if need be, and stay
    /// where they are.
    pub fn for_each_key(&self, from: Key, to: Key, mut visit: impl FnMut(&Key, &[u8])) -> Result<(), Error> {
        let mut known: BTreeMap<u64, Bundle> = BTreeMap::new();
        let mut at = from;
        while at < to {
            let piece = self.inner.read().folds.within(&at, &to);
            let Some((start, end, number)) = piece else { return self.for_each_resident_key(at, to, visit) };
            assert!(at <= start && start < end && end <= to, "a piece of a fold lies between the keys asked for");
            self.for_each_resident_key(at, start, &mut visit)?;
            at = start;
            if !known.contains_key(&number) {
                // If it has ended meanwhile, its keys are in the tree.
                let Some((_, bundle, _)) = self.read_fold(Io::BLOCKING, number)? else { continue };
                if known.len() >= BUNDLES_KNOWN_MAX {
                    known.clear();
                }
                known.insert(number, bundle);
            }
            let entries = known.get(&number).map_or(&[][..], |bundle| &bundle.entries[..]);
            let first = entries.partition_point(|(key, _)| *key < start);
            entries[first..].iter().take_while(|(key, _)| *key < end).for_each(|(key, value)| visit(key, value));
            at = end;
        }
        Ok(())
    }
}

/// Of each directory that has something among these keys, that it is to be looked at, and of files whose directory is away with
/// another fold themselves. When they were used says who knows the time.
fn note_directories(transaction: &mut Transaction<'_>, number: u64, bundle: &Bundle) -> Result<(), Error> {
    let mut noted = BTreeSet::new();
    for (key, value) in &bundle.entries {
        let of_directory = matches!(key.kind, key::kind::DIRENT | key::kind::DIRENT_HASH);
        let value = if key.kind == key::kind::INODE { InodeValue::decode(value).ok() } else { None };
        if of_directory || value.as_ref().is_some_and(|value| value.kind() == Some(FileKind::Directory)) {
            noted.insert(key.object);
        } else if let Some(value) = value {
            let of_parent = transaction.view.inner.folds.at(&Key::dirent_hash(value.parent, 0));
            let is_alone = of_parent.is_some_and(|of_parent| of_parent != number);
            noted.insert(if is_alone { key.object } else { value.parent });
        }
    }
    for inode in noted {
        if transaction.get(&Key::names_use(inode))?.is_none() {
            transaction.put(Key::names_use(inode), &NamesUse::default().encode());
        }
    }
    Ok(())
}
