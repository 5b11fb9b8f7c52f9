//! Keys of names that were put away: a *fold* is a key of the pool that says for some ranges of keys in which blob they are.
//!
//! The blob is data like any other: it is archived, released, staged, retired and proven by the same means, and where it lies is no
//! concern of the tree. So the tree lies on devices whole, always, and no commit, checkpoint or mount ever needs a volume. Who looks
//! up a key of a fold misses as for a node that is not in memory: the enclosing call brings the keys of that fold back into the tree,
//! in an update of their own, and runs the closure again. So a change finds its keys in the tree, or is not taken yet.
//!
//! Invariants: no key of the pool lies in a range of a fold; the ranges of folds are apart; keys leave the tree, and come back, in the
//! same update in which the fold begins and ends. What a fold holds is what the tree held: nobody is shown these updates (no settler).
//! On a pool that cannot be written to, keys come back in memory only. Read next: `folds.rs`, `reload.rs`,
//! `docs/design/folding.md`.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use stere_format::{Bundle, FoldValue, Key, KeyRange, Site, key};
use stere_log::{Io, Segment, StreamKey};
use stere_plugin::Encoded;
use stere_policy::Compression;

use crate::content::{Content, NewBlob, Owner, Placement};
use crate::engine::Engine;
use crate::error::Error;
use crate::folds::{decode, is_fold};
use crate::relocate::Move;
use crate::space::Reservation;
use crate::view::View;
use stere_recall::BlobHandle;

/// A fold, as those see it who look at where things lie.
#[derive(Clone, Debug)]
pub struct FoldInfo {
    pub number: u64,
    /// The directory that it was said of.
    pub directory: u64,
    pub keys: u32,
    pub blob: BlobHandle,
}

/// Keys to be put away together.
#[derive(Clone, Copy, Debug)]
pub struct ToFold<'a> {
    /// The directory that it is said of.
    pub directory: u64,
    /// Rising and apart.
    pub ranges: &'a [KeyRange],
    /// The volumes that the bundle goes to.
    pub tertiary: u16,
}

/// A bundle that no fold names yet.
pub struct Gathered {
    bundle: Bundle,
    new: NewBlob,
    _room_until_entered: Reservation,
}

/// Offloads metadata of unused directories to media, and reloads it.
#[derive(Clone, Copy)]
pub struct Offload<'a> {
    pub(crate) engine: &'a Engine,
}

impl Engine {
    pub fn offload(&self) -> Offload<'_> {
        Offload::of(self)
    }
}

impl<'a> Offload<'a> {
    pub(crate) fn of(engine: &'a Engine) -> Offload<'a> {
        Offload { engine }
    }
}

impl Offload<'_> {
    /// Whether any keys are put away.
    pub fn has_folds(&self) -> bool {
        !self.engine.inner.read().folds.is_empty()
    }

    /// Whether this key is put away, or would be if it existed.
    pub fn is_folded(&self, key: &Key) -> bool {
        self.engine.inner.read().folds.at(key).is_some()
    }

    /// What of a range of keys is not put away.
    pub fn ranges_here(&self, range: KeyRange) -> Vec<KeyRange> {
        let (mut from, to) = range;
        let (inner, mut here) = (self.engine.inner.read(), Vec::new());
        while let Some((start, end, _)) = inner.folds.within(&from, &to) {
            if from < start {
                here.push((from, start));
            }
            from = end;
        }
        if from < to {
            here.push((from, to));
        }
        here
    }

    /// Of which directory a key was put away with others; none if it was not.
    pub fn put_away_of(&self, key: &Key) -> Option<u64> {
        let inner = self.engine.inner.read();
        let number = inner.folds.at(key)?;
        inner.folds.values.get(&number).map(|value| value.directory)
    }

    /// All folds.
    pub fn folds(&self, io: Io<'_>) -> Result<Vec<FoldInfo>, Error> {
        self.engine.view(io, |view| {
            let info = |(number, value): (u64, &FoldValue)| {
                let blob = view.blob(value.blob)?;
                Ok(FoldInfo { number, directory: value.directory, keys: value.keys, blob })
            };
            view.inner.folds.values().map(info).collect()
        })
    }

    /// Whether all volumes of a set may have names on them.
    pub fn may_have_names(&self, tertiary: u16) -> bool {
        let set = self.engine.volumes.with_heirs(tertiary);
        self.engine.volumes.all_take_metadata(set)
    }

    pub(crate) fn load_folds(&self) -> Result<(), Error> {
        let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
        let found = self.engine.view(Io::BLOCKING, |view| {
            let mut found = Vec::new();
            view.scan(from, to, |key, bytes| {
                if is_fold(key) {
                    found.push((key.object, decode(bytes)));
                }
                ControlFlow::Continue(())
            })?;
            Ok::<_, Error>(found)
        })?;
        let mut inner = self.engine.inner.write();
        for (number, value) in found {
            inner.folds.insert(number, value?);
        }
        Ok(())
    }

    /// Puts the keys of these ranges away, if nothing of them changes meanwhile. `is_free` is asked under the lock under which they go.
    /// How many they were; none if they stay. Durable with the next commit.
    pub fn fold(&self, what: &ToFold<'_>, is_free: &dyn Fn() -> bool) -> Result<Option<u32>, Error> {
        match self.gather_fold(what, Compression::ZSTD)? {
            Some(gathered) => self.enter_fold(what, &gathered, is_free),
            None => Ok(None),
        }
    }

    /// Writes the keys into a bundle, as they are now; none if there is nothing to put away.
    pub fn gather_fold(&self, what: &ToFold<'_>, compression: Compression) -> Result<Option<Gathered>, Error> {
        assert!(what.tertiary != 0, "what is put away goes to volumes");
        assert!(what.ranges.iter().all(|(from, to)| from < to), "a range of keys has a key");
        assert!(what.ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "ranges of keys rise and are apart");
        self.engine.check_writable()?;
        let Some(entries) = self.engine.view_through(Io::BLOCKING, |view| entries_of(view, what.ranges))? else {
            return Ok(None);
        };
        let bundle = Bundle { entries };
        let plain = bundle.encode();
        if bundle.entries.is_empty() || plain.len() > self.engine.blob_bytes_max() {
            return Ok(None);
        }
        // What policy says of files says nothing of their names: these are like each other, and read rarely.
        let encoded = stere_plugin::encode(compression, &plain);
        let usual = Content::plain(&plain);
        let content = match &encoded {
            Encoded::Stored { encoding, bytes } => Content { stored: bytes, encoding: *encoding, ..usual },
            Encoded::Plain { .. } => usual,
        };
        let length = content.stored.len() as u64;
        self.engine.bound_unproven(Io::BLOCKING)?;
        self.engine.volumes.note_archived(length);
        // As safe as metadata is, as long as it is on devices.
        let usual = Placement { scheme: self.engine.places().meta_scheme(), class: 0, site: Site::ANYWHERE };
        let (placement, tertiary) = (usual, self.engine.volumes.with_heirs(what.tertiary));
        let room_until_entered = self.engine.space().reserve(Io::BLOCKING, placement, length)?;
        let stream = StreamKey { tertiary, ..self.engine.stream_for(placement, 0, None) };
        let number = self.engine.next_blob.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        let owner = Owner { inode: what.directory, offset: 0 };
        let new = self.engine.append_making_room(Io::BLOCKING, stream, number, owner, &content)?;
        Ok(Some(Gathered { bundle, new, _room_until_entered: room_until_entered }))
    }

    /// Takes the keys out of the tree, if they are still what was gathered.
    pub fn enter_fold(
        &self,
        what: &ToFold<'_>,
        gathered: &Gathered,
        is_free: &dyn Fn() -> bool,
    ) -> Result<Option<u32>, Error> {
        let Gathered { bundle, new, .. } = gathered;
        let (number, keys) = (new.id, bundle.entries.len() as u32);
        let value = FoldValue { directory: what.directory, blob: number, keys, ranges: what.ranges.to_vec() };
        assert!(bundle.entries.iter().all(|(key, _)| value.covers(key)), "a bundle holds keys of its ranges only");
        let is_done = self.engine.update_making_room(Io::BLOCKING, true, |transaction| {
            let now = entries_of(&transaction.view, what.ranges)?;
            if now.as_ref() != Some(&bundle.entries) || !is_free() {
                return Ok(false);
            }
            bundle.entries.iter().for_each(|(key, _)| transaction.delete(*key));
            transaction.insert_blob(new);
            transaction.put(Key::fold(number), &value.encode());
            Ok::<_, Error>(true)
        })?;
        Ok(is_done.then_some(keys))
    }

    /// Stores bundles again that were gathered when there were fewer devices and that no volume has yet, in as many copies as metadata
    /// has now. True if one was.
    pub(crate) fn strengthen_folds(&self) -> Result<bool, Error> {
        let usual = Placement { scheme: self.engine.places().meta_scheme(), class: 0, site: Site::ANYWHERE };
        let parity = self.engine.places().fit_for(usual).parity;
        let is_weak = |segment: &Segment| {
            let tertiary = segment.tertiary();
            tertiary.wanted != 0 && tertiary.there == 0 && segment.scheme.parity < parity && segment.live_bytes() > 0
        };
        // The table is in memory, where each bundle lies is not.
        if !self.has_folds() || !self.engine.log.segments.all().iter().any(|segment| is_weak(segment)) {
            return Ok(false);
        }
        let mut is_any_moved = false;
        for fold in self.folds(Io::BLOCKING)?.into_iter().filter(|fold| is_weak(&fold.blob.segment)) {
            let (owner, tertiary) = (Owner { inode: fold.directory, offset: 0 }, fold.blob.tertiary_wanted());
            match self.engine.cleaning().archive(&[Move { blob: fold.blob, owner, recoded: None }], usual, tertiary) {
                Ok(moved) => is_any_moved |= moved.bytes > 0,
                Err(Error::NoSpace) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(is_any_moved)
    }

    /// Brings the keys of a fold back into the tree.
    pub fn unfold(&self, io: Io<'_>, number: u64) -> Result<(), Error> {
        self.engine.reload(io, number)
    }

    /// From now on the directories that names come back to are noted with them ([`Key::names_use`]), or are not any more.
    pub fn note_unfolded(&self, is_noted: bool) {
        self.engine.unfolded.is_noted.store(is_noted, Ordering::Release);
    }

    /// How often names came back in this mount.
    pub fn unfolded(&self) -> u64 {
        self.engine.unfolded.count.load(Ordering::Acquire)
    }
}

type Entries = Vec<(Key, Vec<u8>)>;

/// All keys of these ranges; none if something of them is put away already.
fn entries_of(view: &View<'_>, ranges: &[KeyRange]) -> Result<Option<Entries>, Error> {
    let mut entries = Vec::new();
    for (from, to) in ranges {
        if view.inner.folds.within(from, to).is_some() {
            return Ok(None);
        }
        view.scan(*from, *to, |key, value| {
            entries.push((*key, value.to_vec()));
            ControlFlow::Continue(())
        })?;
    }
    Ok(Some(entries))
}
