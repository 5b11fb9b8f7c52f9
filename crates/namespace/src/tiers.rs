//! Files on media: what of them is where, by walking over names; and the names of volumes in policy.
//!
//! The store moves segments and knows no files; here it is found out which segments a file or a directory stands for. Nothing is
//! fetched by any of this: only extents and the segment table are looked at. Read next: `walk.rs`, the crate `recall`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use stere_format::{DeviceIndex, FileKind, InodeValue, Key, Scheme, TERTIARY_MAX};
use stere_policy::{Class, Encryption, Own, Rule, TierWish};
use stere_store::{FoldInfo, Io, Released, TierFile, Transaction};

use crate::call::{Caller, ROOT};
use crate::error::Error;
use crate::flagged::system_keys;
use crate::inode::{Core, nearest};
use crate::names::Form;
use crate::rules::PolicyRules;
use crate::walk::{Walk, path_and_form};

/// Deeper than any path.
const DEPTH_MAX: usize = 4096;
/// Extents looked at in one view.
pub const EXTENTS: usize = 1024;
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
    /// The segments it lies in, those that have to do with media.
    pub segments: BTreeSet<u64>,
    /// When it was read last, and changed last, in seconds.
    pub used_seconds: i64,
    /// Whether its policy sends it down.
    pub is_tiered: bool,
    /// Data chunks of the segments that it goes down in.
    pub data_chunks: u8,
}

/// Bytes of a file that lie on the same devices in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutRun {
    /// Where they begin in the file.
    pub start: u64,
    /// Where they end.
    pub end: u64,
    /// How they are stored.
    pub scheme: Scheme,
    /// On which devices, data before parity.
    pub devices: Vec<DeviceIndex>,
    /// On which media too, a set.
    pub volumes: u16,
    /// How many devices and volumes more may be lost before they are.
    pub survives: u8,
    /// The segment they lie in, where that has to be fetched to be read.
    pub released_in: Option<u64>,
}

impl LayoutRun {
    pub fn lies_like(&self, other: &LayoutRun) -> bool {
        let place = |run: &LayoutRun| (run.scheme, run.volumes, run.survives, run.released_in);
        place(self) == place(other) && self.devices == other.devices
    }
}

/// Keeps the list of inodes whose owners sent something down, with the change that says so.
pub fn note_tiered(transaction: &mut Transaction<'_>, inode: u64, says: [Own; 2]) -> Result<(), Error> {
    // Classes have an index of their own.
    let is_tiered = says.iter().any(|own| own.tiers != 0 || own.class() == Some(Class::Archive));
    let key = Key::tiered(inode);
    match (is_tiered, transaction.get(&key)?.is_some()) {
        (true, false) => transaction.put(key, &[1]),
        (false, true) => transaction.delete(key),
        _ => {}
    }
    Ok(())
}

/// Finds where files lie.
pub struct Tiers {
    pub core: Arc<Core>,
    pub rules: Arc<PolicyRules>,
}

impl Tiers {
    /// The inodes below which files are sent down.
    pub fn tiered_roots(&self, io: Io<'_>) -> Result<BTreeSet<u64>, Error> {
        let resolver = self.core.files.resolver();
        let classes = resolver.classes();
        let goes_down = |class: Class| classes.tier(class).is_some_and(|wish| wish != TierWish::Nowhere);
        if goes_down(resolver.default_class()) {
            return Ok(BTreeSet::from([ROOT]));
        }
        // Deleted classes may have become one that sends files down.
        let sending = classes.in_use().map(|(class, _)| class).filter(|class| goes_down(*class));
        let of_classes: Vec<Class> = sending.flat_map(|class| classes.all_of(class)).collect();
        let pool_rules = self.rules.pool_rules();
        let is_by_pool = |rule: &Rule| rule.own.tier_wish().is_some() || rule.own.class().is_some_and(goes_down);
        let of_pool = pool_rules.iter().any(|set| set.rules().iter().any(is_by_pool)).then_some(ROOT);
        self.core.store.view(io, |view| {
            let mut roots: BTreeSet<u64> = system_keys(view, stere_format::key::kind::TIERED)?.into_iter().collect();
            roots.extend(of_pool);
            let ends = |code: u8, of: fn(u8, u64) -> Key| (of(code, 0), of(code, u64::MAX));
            let by_class = of_classes.iter().map(|class| class.code());
            let by_class = by_class.flat_map(|code| [ends(code, Key::class_member), ends(code, Key::class_rules)]);
            let by_medium = (0..TERTIARY_MAX as u8).map(|number| ends(number, Key::media_rules));
            for (from, to) in by_class.chain(by_medium) {
                view.scan(from, to, |key, _| {
                    roots.extend(Some(key.position).filter(|inode| *inode != 0));
                    ControlFlow::Continue(())
                })?;
            }
            Ok::<_, Error>(roots)
        })
    }

    /// Gives up the chunks of these segments on devices, as far as all their volumes have them. Nothing that is dirty needs them then.
    pub fn release_segments(&self, caller: &Caller<'_>, segments: &[u64]) -> Result<Released, Error> {
        self.release_as_looked_at(caller, segments, u64::MAX)
    }

    /// The same, but for what a file came to share after this change of the store, which nobody knew who looked before.
    pub fn release_as_looked_at(&self, caller: &Caller<'_>, segments: &[u64], change: u64) -> Result<Released, Error> {
        self.core.files.writeback.complete_dirty_blocks(&caller.context())?;
        Ok(self.core.store.tier.stager.release_as_looked_at(segments, change)?)
    }

    /// Asks for these segments to come back to devices, and for the files in them to lie there where their policy says: what it came to say
    /// while they were on volumes only was of no matter until now.
    pub fn bring_back(&self, caller: &Caller<'_>, segments: &[u64], inodes: &[u64]) -> Result<(), Error> {
        self.core.store.tier.recalls.want_back(segments);
        for inode in inodes {
            match self.lies_as_asked(caller, *inode) {
                Ok(true) => {}
                Ok(false) => self.core.request_reconcile(caller, *inode)?,
                // It was removed meanwhile.
                Err(Error::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether all segments of a file note the place that its policy names.
    fn lies_as_asked(&self, caller: &Caller<'_>, inode: u64) -> Result<bool, Error> {
        let site = self.core.files.policies.site_of(&self.core.effective(caller, inode)?);
        let mut from = Some(0);
        while let Some(at) = from {
            let (extents, next) = stere_file::stored_extents(&self.core.store, caller.io, inode, at, EXTENTS)?;
            if extents.iter().any(|extent| extent.blob.site() != site) {
                return Ok(false);
            }
            from = next;
        }
        Ok(true)
    }

    /// Where what is stored of a file is.
    pub fn tier_file(&self, caller: &Caller<'_>, inode: u64) -> Result<TierFile, Error> {
        Ok(self.tier_facts(caller.io, inode)?.0)
    }

    /// The same, with the segments that have to do with media.
    fn tier_facts(&self, io: Io<'_>, inode: u64) -> Result<(TierFile, BTreeSet<u64>), Error> {
        let (mut file, mut segments) = (TierFile::default(), BTreeSet::new());
        let mut from = Some(0);
        while let Some(at) = from {
            let (extents, next) = stere_file::stored_extents(&self.core.store, io, inode, at, EXTENTS)?;
            for extent in &extents {
                file.add(&self.core.store.tier.media, &extent.blob, extent.stored_bytes());
                if extent.blob.tertiary_wanted() != 0 {
                    segments.insert(extent.blob.segment_id());
                }
            }
            from = next;
        }
        Ok((file, segments))
    }

    /// Allocated bytes of a file that are on media only.
    pub fn released_bytes(&self, io: Io<'_>, inode: u64) -> Result<u64, Error> {
        let mut bytes = 0;
        let mut from = Some(0);
        while let Some(at) = from {
            let (extents, next) = stere_file::stored_extents(&self.core.store, io, inode, at, EXTENTS)?;
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
        let value = self.core.inode_value(caller.io, root)?.ok_or(Error::Stale)?;
        let found = path_and_form(&self.core.store, &self.core.names, caller.io, root)?;
        let (path, form) = found.filter(|(path, _)| path != b"/").unwrap_or((Vec::new(), Form::Plain));
        let mut walk = Walk::new(root, value.kind().unwrap_or(FileKind::Symlink), path, form).passing_over();
        while let Some(met) = walk.next(&self.core.store, &self.core.names, caller.io)? {
            if met.kind != FileKind::File {
                continue;
            }
            let Some(value) = self.core.inode_value(caller.io, met.inode)? else { continue };
            let (file, segments) = self.tier_facts(caller.io, met.inode)?;
            let effective = self
                .core
                .store
                .view(caller.io, |view| Ok::<_, Error>(self.core.files.policies.effective(view, met.inode, &value)?))?;
            let is_tiered = self.core.files.policies.media_of(effective.wish.tier).is_some_and(|set| set != 0);
            let used_seconds = value.atime.seconds.max(value.mtime.seconds);
            let path = walk.path().to_vec();
            let data_chunks = self.core.files.policies.scheme_now(&effective).data;
            let met = TierMet { inode: met.inode, path, file, segments, used_seconds, is_tiered, data_chunks };
            if visit(met).is_break() {
                return Ok(());
            }
        }
        for names in self.offloaded_names(caller.io, root)? {
            if visit(names).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// An inode and its path, for those who write down what a volume holds. None where a name on the way, or the content, is encrypted:
    /// that is written down nowhere in the clear.
    pub fn named_inode(&self, io: Io<'_>, inode: u64) -> Result<Option<(Vec<u8>, InodeValue)>, Error> {
        let Some(value) = self.core.inode_value(io, inode)? else { return Ok(None) };
        if self.is_secret(io, inode, &value)? {
            return Ok(None);
        }
        let found = path_and_form(&self.core.store, &self.core.names, io, inode)?;
        Ok(found.filter(|(_, form)| *form == Form::Plain).map(|(path, _)| (path, value)))
    }

    /// Whether the policy of an inode or of a directory above it asks for encryption.
    pub fn is_secret(&self, io: Io<'_>, inode: u64, value: &InodeValue) -> Result<bool, Error> {
        let (mut inode, mut value) = (inode, value.clone());
        for _ in 0..DEPTH_MAX {
            let effective = self
                .core
                .store
                .view(io, |view| Ok::<_, Error>(self.core.files.policies.effective(view, inode, &value)?))?;
            if effective.wish.encryption != Encryption::NO {
                return Ok(true);
            }
            if value.parent == inode {
                return Ok(false);
            }
            inode = value.parent;
            let Some(above) = self.core.inode_value(io, inode)? else { return Ok(true) };
            value = above;
        }
        Ok(true)
    }
}

impl Tiers {
    /// The folds below an inode, by the directories that they were said of. What is itself put away counts as below.
    pub fn offloaded_below(&self, io: Io<'_>, root: u64) -> Result<BTreeMap<u64, Vec<FoldInfo>>, Error> {
        let mut below: BTreeMap<u64, Vec<FoldInfo>> = BTreeMap::new();
        let mut known: BTreeMap<u64, bool> = BTreeMap::new();
        for fold in self.core.store.offload().folds(io)? {
            let is_below = match known.get(&fold.directory) {
                Some(is_below) => *is_below,
                None => {
                    let is_below = self.is_below(io, fold.directory, root)?;
                    known.insert(fold.directory, is_below);
                    is_below
                }
            };
            if is_below {
                below.entry(fold.directory).or_default().push(fold);
            }
        }
        Ok(below)
    }

    /// Whether `root` is the inode or above it; what lies below something that was put away counts as below.
    pub fn is_below(&self, io: Io<'_>, inode: u64, root: u64) -> Result<bool, Error> {
        let found = self
            .core
            .store
            .view(io.skipping_offloaded(), |view| nearest(view, inode, |at, _| Ok((at == root).then_some(()))));
        if matches!(found, Err(Error::Elsewhere(..))) { Ok(true) } else { Ok(found?.is_some()) }
    }

    /// Where the names are that were put away below an inode, as if those of each directory it was said of were a file of it.
    pub fn offloaded_names(&self, io: Io<'_>, root: u64) -> Result<Vec<crate::tiers::TierMet>, Error> {
        if !self.core.store.offload().has_folds() {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for (directory, folds) in self.offloaded_below(io, root)? {
            let (mut file, mut segments) = (TierFile::default(), BTreeSet::new());
            for fold in folds {
                file.add(&self.core.store.tier.media, &fold.blob, u64::from(fold.blob.value.address.length));
                segments.insert(fold.blob.segment_id());
            }
            let is_here = !self.core.store.offload().is_folded(&Key::inode(directory));
            let found = if is_here { path_and_form(&self.core.store, &self.core.names, io, directory)? } else { None };
            let path = found.map_or_else(|| b"?".to_vec(), |(path, _)| path);
            all.push(crate::tiers::TierMet {
                inode: directory,
                path,
                file,
                segments,
                used_seconds: 0,
                is_tiered: true,
                // Names are copied.
                data_chunks: 1,
            });
        }
        Ok(all)
    }

    /// Where a file lies from `from` on, run by run, and where to go on; `None` at the end.
    pub fn layout(&self, caller: &Caller<'_>, inode: u64, from: u64) -> Result<(Vec<LayoutRun>, Option<u64>), Error> {
        let (extents, next) = stere_file::stored_extents(&self.core.store, caller.io, inode, from, EXTENTS)?;
        let mut runs: Vec<LayoutRun> = Vec::new();
        for extent in extents {
            let (start, end) = (extent.start, extent.end());
            let (scheme, devices) = (extent.blob.scheme(), extent.blob.devices());
            let (volumes, survives) = (extent.blob.media(), self.core.store.losses_borne(&extent.blob).in_all);
            let released_in = devices.is_empty().then(|| extent.blob.segment_id());
            assert!(runs.last().is_none_or(|last| last.end <= start), "runs are in the order of the file");
            let run = LayoutRun { start, end, scheme, devices, volumes, survives, released_in };
            match runs.last_mut().filter(|last| last.end == start && last.lies_like(&run)) {
                Some(last) => last.end = end,
                None => runs.push(run),
            }
        }
        Ok((runs, next))
    }
}
