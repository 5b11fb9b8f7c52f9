//! Files on tertiary volumes: what of them is where, by walking over names; and the names of volumes in policy.
//!
//! The store moves segments and knows no files; here it is found out which segments a file or a directory stands for. Nothing is
//! fetched by any of this: only extents and the segment table are looked at. Read next: `walk.rs`, the store's `tertiary.rs`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use stere_format::{FileKind, InodeValue, Key};
use stere_policy::{Class, Encryption, Own, PolicyError, Setting};
use stere_store::{Released, TierFile, Transaction, View, Wait};

use crate::error::Error;
use crate::names::Form;
use crate::walk::{Walk, path_and_form};
use crate::{Caller, FileSystem, keeping};

/// Deeper than any path.
const DEPTH_MAX: usize = 4096;
/// Extents looked at in one view.
pub(crate) const EXTENTS: usize = 1024;
const BLOCK: u64 = stere_format::BLOCK_BYTES as u64;

/// A file that a walk met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierMet {
    /// Its number.
    pub inode: u64,
    /// Its path from the root of the pool.
    pub path: Vec<u8>,
    /// Where what is stored of it is.
    pub file: TierFile,
    /// The segments it lies in, those that have to do with tertiary volumes.
    pub segments: BTreeSet<u64>,
    /// When it was read last, and changed last, in seconds.
    pub used_seconds: i64,
    /// Whether its policy sends it down.
    pub is_tiered: bool,
}

/// The inodes of which the pool has a key of this kind, among all keys of its own.
fn system_keys(view: &View<'_>, kind: u8) -> Result<Vec<u64>, Error> {
    use stere_format::key::tree::SYSTEM;
    let mut inodes = Vec::new();
    view.scan(Key::new(SYSTEM, 0, 0, 0), Key::new(SYSTEM + 1, 0, 0, 0), |key, _| {
        inodes.extend((key.kind == kind).then_some(key.object));
        ControlFlow::Continue(())
    })?;
    Ok(inodes)
}

impl FileSystem {
    /// `#SET` in what policy says, as names of volumes.
    pub(crate) fn tier_names(&self, text: String) -> String {
        match text.strip_prefix('#').and_then(|set| set.parse().ok()) {
            Some(set) => self.store.tier_names(set),
            None if text == "usual" => self.store.tier_names(self.store.usual_tier()),
            None => text,
        }
    }

    /// Names of volumes as policy keeps them.
    pub(crate) fn tier_numbers(&self, value: &[u8]) -> Result<Vec<u8>, Error> {
        let text = std::str::from_utf8(value).ok();
        match text {
            Some("" | "none") => Ok(value.to_vec()),
            _ => {
                let set = text.and_then(|text| self.store.tiers_of(text)).ok_or_else(|| PolicyError::BadValue {
                    key: Setting::Tier.word(),
                    value: String::from_utf8_lossy(value).into_owned(),
                    expected: Setting::Tier.expected(),
                })?;
                Ok(format!("#{set}").into_bytes())
            }
        }
    }

    /// Keeps the list of inodes whose owners sent something down, with the change that says so.
    pub(crate) fn note_tiered(
        &self,
        transaction: &mut Transaction<'_>,
        inode: u64,
        says: [Own; 2],
    ) -> Result<(), Error> {
        let is_tiered = says.iter().any(|own| own.tiers != 0 || own.class().and_then(Class::tier).is_some());
        let key = Key::tiered(inode);
        match (is_tiered, transaction.get(&key)?.is_some()) {
            (true, false) => transaction.put(key, &[1]),
            (false, true) => transaction.delete(key),
            _ => {}
        }
        Ok(())
    }

    /// The inodes below which files are sent down.
    pub fn tiered_roots(&self, wait: Wait) -> Result<BTreeSet<u64>, Error> {
        // Deleted classes may have become one that sends files down.
        let of_classes = self.files.resolver().classes().all_of(Class::Archive);
        self.store.view(wait, |view| {
            let mut roots: BTreeSet<u64> = system_keys(view, stere_format::key::kind::TIERED)?.into_iter().collect();
            for class in &of_classes {
                let (from, to) = (Key::class_member(class.code(), 0), Key::class_member(class.code(), u64::MAX));
                view.scan(from, to, |key, _| {
                    roots.insert(key.position);
                    ControlFlow::Continue(())
                })?;
            }
            Ok::<_, Error>(roots)
        })
    }

    /// Says that what is below an inode stays on devices, or that it need not any more.
    pub fn set_pinned(&self, wait: Wait, inode: u64, is_pinned: bool) -> Result<(), Error> {
        self.forget_hopeless();
        let changed = self.store.update(wait, |transaction| {
            stere_file::inode_if_any(transaction, inode)?.ok_or(Error::Stale)?;
            match is_pinned {
                true => transaction.put(Key::pinned(inode), &[1]),
                false => transaction.delete(Key::pinned(inode)),
            }
            Ok(())
        });
        self.saying.note_change();
        changed
    }

    /// The inodes of which somebody said that what is below them stays on devices; those that were removed since are forgotten.
    pub fn pinned_roots(&self, wait: Wait) -> Result<Vec<u64>, Error> {
        let saying = self.all_that_say(wait, stere_format::key::kind::PINNED, Key::pinned)?;
        self.store.view(wait, |view| {
            let mut pinned = Vec::new();
            for inode in &saying {
                pinned.extend((keeping::own(view, *inode)?.pin == Some(true)).then_some(*inode));
            }
            Ok(pinned)
        })
    }

    /// Whether something below what is pinned need not be, because somebody said so nearer.
    fn has_exceptions_of_pins(&self, wait: Wait, roots: usize) -> Result<bool, Error> {
        let saying = self.all_that_say(wait, stere_format::key::kind::PINNED, Key::pinned)?;
        Ok(saying.len() > roots || self.ruled(wait)?.pin)
    }

    /// The inodes of which the pool has a key of this kind; keys of those that were removed since are forgotten.
    pub(crate) fn all_that_say(&self, wait: Wait, kind: u8, key_of: impl Fn(u64) -> Key) -> Result<Vec<u64>, Error> {
        let known = self.saying.of(kind, || self.store.view(wait, |view| system_keys(view, kind)))?;
        let (there, gone): (Vec<u64>, Vec<u64>) = self.store.view(wait, |view| {
            let (mut there, mut gone) = (Vec::new(), Vec::new());
            for inode in known.iter().copied() {
                let is_there = stere_file::inode_if_any(view, inode)?.is_some();
                if is_there { there.push(inode) } else { gone.push(inode) }
            }
            Ok::<_, Error>((there, gone))
        })?;
        if !gone.is_empty() {
            self.store.update(wait, |transaction| {
                gone.iter().for_each(|inode| transaction.delete(key_of(*inode)));
                Ok::<_, Error>(())
            })?;
            self.saying.note_change();
        }
        Ok(there)
    }

    /// Segments that hold something which stays on devices because somebody said so of it, or of what is above it.
    pub fn pinned_segments(&self, caller: &Caller<'_>) -> Result<BTreeSet<u64>, Error> {
        let roots = self.pinned_roots(caller.wait)?;
        let asks = self.has_exceptions_of_pins(caller.wait, roots.len())?;
        self.segments_below(caller, roots, &|inode| if asks { self.is_pinned(caller, inode) } else { Ok(true) })
    }

    /// Segments of all files below these that are asked for.
    pub(crate) fn segments_below(
        &self,
        caller: &Caller<'_>,
        roots: Vec<u64>,
        is_asked_for: &dyn Fn(u64) -> Result<bool, Error>,
    ) -> Result<BTreeSet<u64>, Error> {
        let (mut segments, mut outcome) = (BTreeSet::new(), Ok(()));
        for root in roots {
            let walked = self.tier_walk(caller, root, &mut |met| match is_asked_for(met.inode) {
                Ok(true) => {
                    segments.extend(met.segments);
                    ControlFlow::Continue(())
                }
                Ok(false) => ControlFlow::Continue(()),
                Err(error) => {
                    outcome = Err(error);
                    ControlFlow::Break(())
                }
            });
            match walked {
                // It was removed meanwhile.
                Err(Error::Stale) => {}
                walked => walked?,
            }
        }
        outcome.map(|()| segments)
    }

    /// Gives up the chunks of these segments on devices, as far as all their volumes have them. Nothing that is dirty needs them then.
    pub fn release_segments(&self, caller: &Caller<'_>, segments: &[u64]) -> Result<Released, Error> {
        self.files.complete_dirty_blocks(&caller.context())?;
        Ok(self.store.release(segments)?)
    }

    /// Asks for these segments to come back to devices, and for the files in them to lie there where their policy says: what it came to say
    /// while they were on volumes only was of no matter until now.
    pub fn bring_back(&self, caller: &Caller<'_>, segments: &[u64], inodes: &[u64]) -> Result<(), Error> {
        self.store.want_back(segments);
        for inode in inodes {
            match self.lies_as_asked(caller, *inode) {
                Ok(true) => {}
                Ok(false) => self.reconcile(caller, *inode)?,
                // It was removed meanwhile.
                Err(Error::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether all segments of a file note the place that its policy names.
    fn lies_as_asked(&self, caller: &Caller<'_>, inode: u64) -> Result<bool, Error> {
        let site = self.files.site_of(&self.effective(caller, inode)?);
        let mut from = Some(0);
        while let Some(at) = from {
            let (extents, next) = stere_file::stored_extents(&self.store, caller.wait, inode, at, EXTENTS)?;
            if extents.iter().any(|extent| extent.blob.site() != site) {
                return Ok(false);
            }
            from = next;
        }
        Ok(true)
    }

    /// Where what is stored of a file is.
    pub fn tier_file(&self, caller: &Caller<'_>, inode: u64) -> Result<TierFile, Error> {
        Ok(self.tier_facts(caller.wait, inode)?.0)
    }

    /// The same, with the segments that have to do with tertiary volumes.
    fn tier_facts(&self, wait: Wait, inode: u64) -> Result<(TierFile, BTreeSet<u64>), Error> {
        let (mut file, mut segments) = (TierFile::default(), BTreeSet::new());
        let mut from = Some(0);
        while let Some(at) = from {
            let (extents, next) = stere_file::stored_extents(&self.store, wait, inode, at, EXTENTS)?;
            for extent in &extents {
                file.add(&self.store, &extent.blob, extent.stored_bytes());
                if extent.blob.tertiary_wanted() != 0 {
                    segments.insert(extent.blob.segment_id());
                }
            }
            from = next;
        }
        Ok((file, segments))
    }

    /// Allocated bytes of a file that are on tertiary volumes only.
    pub(crate) fn released_bytes(&self, wait: Wait, inode: u64) -> Result<u64, Error> {
        let mut bytes = 0;
        let mut from = Some(0);
        while let Some(at) = from {
            let (extents, next) = stere_file::stored_extents(&self.store, wait, inode, at, EXTENTS)?;
            let released = extents.iter().filter(|extent| extent.blob.is_released());
            bytes += released.map(|extent| u64::from(extent.length).next_multiple_of(BLOCK)).sum::<u64>();
            from = next;
        }
        Ok(bytes)
    }

    /// Goes over all files below an inode; names that were put away stay away, and are met as if they were one file of their directory.
    pub fn tier_walk(
        &self,
        caller: &Caller<'_>,
        root: u64,
        visit: &mut dyn FnMut(TierMet) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let value = self.inode_value(caller.wait, root)?.ok_or(Error::Stale)?;
        let found = path_and_form(&self.store, &self.names, caller.wait, root)?;
        let (path, form) = found.filter(|(path, _)| path != b"/").unwrap_or((Vec::new(), Form::Plain));
        let mut walk = Walk::new(root, value.kind().unwrap_or(FileKind::Symlink), path, form).passing_over();
        while let Some(met) = walk.next(&self.store, &self.names, caller.wait)? {
            if met.kind != FileKind::File {
                continue;
            }
            let Some(value) = self.inode_value(caller.wait, met.inode)? else { continue };
            let (file, segments) = self.tier_facts(caller.wait, met.inode)?;
            let effective =
                self.store.view(caller.wait, |view| Ok::<_, Error>(self.files.effective(view, met.inode, &value)?))?;
            let is_tiered = self.files.tertiary(effective.wish.tier).is_some_and(|set| set != 0);
            let used_seconds = value.atime.seconds.max(value.mtime.seconds);
            let path = walk.path().to_vec();
            let met = TierMet { inode: met.inode, path, file, segments, used_seconds, is_tiered };
            if visit(met).is_break() {
                return Ok(());
            }
        }
        for names in self.names_put_away(caller.wait, root)? {
            if visit(names).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// An inode and its path, for those who write down what a volume holds. None where a name on the way, or the content, is encrypted:
    /// that is written down nowhere in the clear.
    pub fn named_inode(&self, wait: Wait, inode: u64) -> Result<Option<(Vec<u8>, InodeValue)>, Error> {
        let Some(value) = self.inode_value(wait, inode)? else { return Ok(None) };
        if self.is_secret(wait, inode, &value)? {
            return Ok(None);
        }
        let found = path_and_form(&self.store, &self.names, wait, inode)?;
        Ok(found.filter(|(_, form)| *form == Form::Plain).map(|(path, _)| (path, value)))
    }

    /// Whether the policy of an inode or of a directory above it asks for encryption.
    pub(crate) fn is_secret(&self, wait: Wait, inode: u64, value: &InodeValue) -> Result<bool, Error> {
        let (mut inode, mut value) = (inode, value.clone());
        for _ in 0..DEPTH_MAX {
            let effective = self.store.view(wait, |view| Ok::<_, Error>(self.files.effective(view, inode, &value)?))?;
            if effective.wish.encryption != Encryption::NO {
                return Ok(true);
            }
            if value.parent == inode {
                return Ok(false);
            }
            inode = value.parent;
            let Some(above) = self.inode_value(wait, inode)? else { return Ok(true) };
            value = above;
        }
        Ok(true)
    }

    fn inode_value(&self, wait: Wait, inode: u64) -> Result<Option<InodeValue>, Error> {
        self.store.view(wait, |view| Ok(stere_file::inode_if_any(view, inode)?))
    }
}
