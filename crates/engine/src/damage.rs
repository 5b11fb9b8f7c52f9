//! Known damage: content and metadata that could not be read rightly from any copy, kept until it is gone or right again.
//!
//! Reads, scrubbing and mending report here; `status`, `state` and searches ask. What is known of blobs stands in the pool too
//! (`Key::damage`), so that it is known after the next mount; a damaged metadata node is only remembered, and found again when it
//! is read. Invariant: an entry says that a read failed, never that one will: before anything is told for long it is read again
//! (`review_damage`). Read next: `loss.rs`, which joins this with what lies on devices that are away.

mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use stere_format::{DamageValue, DeviceIndex, Key, SegmentKind};
use stere_log::{Io, Segment};

use crate::engine::Engine;
use crate::error::Error;
use crate::harm::note_harm;
use crate::rows::Damage;
pub(crate) use known::{BLOBS_MAX, Harm, KnownDamage};
use stere_recall::BlobHandle;

/// Blobs moved per update.
const MOVED_PER_UPDATE: usize = 256;

/// What is known to be damaged: noted, kept in the pool, and looked at again.
#[derive(Clone, Copy)]
pub struct DamageLog<'a> {
    pub(crate) engine: &'a Engine,
}

impl Engine {
    pub fn damage(&self) -> DamageLog<'_> {
        DamageLog::of(self)
    }
}

impl<'a> DamageLog<'a> {
    pub(crate) fn of(engine: &'a Engine) -> DamageLog<'a> {
        DamageLog { engine }
    }
}

impl DamageLog<'_> {
    /// Ranges of blobs that cannot be read.
    pub fn ranges(&self) -> BTreeMap<u64, Range<u32>> {
        self.engine.damage.ranges()
    }

    pub fn range_of(&self, blob: u64) -> Option<Range<u32>> {
        self.engine.damage.range_of(blob)
    }

    /// Segments with damage that is on media.
    pub fn segments_on_volumes(&self) -> BTreeSet<u64> {
        self.engine.damage.segments_on_volumes()
    }

    /// A segment on media is right again.
    pub fn forget_on_volumes(&self, segment: u64) {
        self.engine.damage.forget_on_volumes(segment);
    }

    /// Whether anything is known to be damaged.
    pub fn has_damage(&self) -> bool {
        let state = self.engine.damage.state.lock();
        !state.blobs.is_empty() || !state.metadata.is_empty()
    }

    /// Whether metadata is known that no copy gives.
    pub fn is_metadata_damaged(&self) -> bool {
        !self.engine.damage.state.lock().metadata.is_empty()
    }

    /// Whether this blob is known to have bytes that cannot be read.
    pub fn is_damaged(&self, blob: u64) -> bool {
        self.engine.damage.state.lock().blobs.contains_key(&blob)
    }

    /// How many blobs are known to be damaged, and how many of their bytes.
    pub fn damaged_blobs(&self) -> (u64, u64) {
        let state = self.engine.damage.state.lock();
        let bytes = state.blobs.values().map(|harm| u64::from(harm.range.end - harm.range.start)).sum();
        (state.blobs.len() as u64, bytes)
    }

    /// Damaged blobs that this device gave no right bytes of.
    pub fn unrepairable_on(&self, index: DeviceIndex) -> u64 {
        let state = self.engine.damage.state.lock();
        state.blobs.values().filter(|harm| harm.devices.contains(&index)).count() as u64
    }

    /// Content of a blob could be read from no copy: known from now on, in the pool with the next step.
    pub fn note_damaged(&self, blob: u64, segment: u64, range: Range<u32>) {
        note_harm(self.engine, blob, segment, range, true);
    }

    /// Takes what a part of a scrub could not repair into what is known.
    pub fn note_unrepairable(&self, damages: &[Damage]) {
        for damage in damages {
            match damage.blob {
                Some(blob) => {
                    let (start, end) = (damage.offset, damage.offset + damage.length.max(1));
                    let bound = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
                    self.note_damaged(blob, damage.segment, bound(start)..bound(end));
                }
                None => self.engine.damage.note_metadata(damage.segment),
            }
        }
    }

    /// A pass of scrubbing is over: metadata that it did not find damaged is right. Everything else is read again.
    pub fn end_pass_of_damage(&self) -> Result<(), Error> {
        {
            let mut state = self.engine.damage.state.lock();
            state.metadata = std::mem::take(&mut state.metadata_of_pass);
        }
        self.review_damage(BLOBS_MAX).map(drop)
    }

    /// Reads what the pool knows of damage; once, when it is opened.
    pub(crate) fn load_damage(&self) -> Result<(), Error> {
        let (from, to) = (Key::damage(0), Key::damage(u64::MAX));
        let mut found = Vec::new();
        self.engine.for_each_key(from, to, |key, bytes| {
            if let Ok(value) = DamageValue::decode(bytes) {
                found.push((key.position, value));
            }
        })?;
        for (blob, value) in found {
            // It may have been a volume's damage, and the segment be on devices again: these are blamed when it is read.
            let segment = self.engine.log.segments.get(value.segment);
            let is_devices = segment.is_some_and(|segment| segment.tertiary().there == 0);
            note_harm(self.engine, blob, value.segment, value.start..value.end, is_devices);
        }
        self.engine.damage.state.lock().changed.clear();
        Ok(())
    }

    /// Writes to the pool what changed of this; durable with the next commit.
    pub fn save_damage(&self) -> Result<(), Error> {
        let changes: Vec<(u64, Option<DamageValue>)> = {
            let mut state = self.engine.damage.state.lock();
            let changed = std::mem::take(&mut state.changed);
            let value =
                |harm: &Harm| DamageValue { segment: harm.segment, start: harm.range.start, end: harm.range.end };
            changed.into_iter().map(|blob| (blob, state.blobs.get(&blob).map(value))).collect()
        };
        if changes.is_empty() {
            return Ok(());
        }
        let saved = self.engine.update_unrefused(Io::BLOCKING, false, |transaction| {
            for (blob, value) in &changes {
                match value {
                    Some(value) => transaction.put(Key::damage(*blob), &value.encode()),
                    None => transaction.delete(Key::damage(*blob)),
                }
            }
            Ok::<_, Error>(())
        });
        if saved.is_err() {
            self.engine.damage.state.lock().changed.extend(changes.iter().map(|(blob, _)| *blob));
        }
        saved
    }

    /// Looks at the next so many damaged blobs again: those that are gone, or read right, are damaged no more. Also gives chunks that
    /// could not be read another chance. Whether anything was forgotten.
    pub fn review_damage(&self, blobs_max: usize) -> Result<bool, Error> {
        let mut forgotten = self.engine.mender.lock().try_unreadable_again();
        let known: Vec<u64> = {
            let mut state = self.engine.damage.state.lock();
            let start = state.reviewed;
            let behind = state.blobs.range(start + 1..).chain(state.blobs.range(..=start));
            let known: Vec<u64> = behind.map(|(blob, _)| *blob).take(blobs_max).collect();
            state.reviewed = known.last().copied().unwrap_or(0);
            known
        };
        for blob in known {
            let is_right = match self.engine.view(Io::BLOCKING, |view| view.blob(blob)) {
                Err(Error::UnknownBlob { .. }) => true,
                // Nothing is fetched for this; reads and verifying tell.
                Ok(handle) if handle.is_released() => !self.engine.damage.is_on_volumes(blob),
                Ok(handle) => {
                    self.engine.log.has_blocks(&handle.segment, &handle.value.address, &handle.value.checksums)
                }
                Err(_) => false,
            };
            if is_right {
                self.engine.damage.forget(blob);
                forgotten = true;
            }
        }
        if self.engine.check_writable().is_ok() {
            self.save_damage()?;
        }
        Ok(forgotten)
    }

    /// Forgets damaged blobs that no file has any more; reads no content.
    pub fn forget_freed_damage(&self) {
        let known: Vec<u64> = self.engine.damage.state.lock().blobs.keys().copied().collect();
        for blob in known {
            if matches!(self.engine.view(Io::BLOCKING, |view| view.blob(blob)), Err(Error::UnknownBlob { .. })) {
                self.engine.damage.forget(blob);
            }
        }
    }

    /// Moves all blobs of a segment that can be read elsewhere, and notes those that cannot: for one whose chunks cannot be
    /// read whole, so that no more stays with them than must.
    pub(crate) fn save_readable(&self, segment: &Arc<Segment>) -> Result<(), Error> {
        if segment.kind != SegmentKind::Data {
            self.engine.damage.note_metadata(segment.id);
            return Ok(());
        }
        let key = stere_log::StreamKey { home: None, ..self.engine.moving().cold_stream(segment) };
        let mut moved = Vec::new();
        // Rows that cannot be read tell of nothing, so the blob map is asked.
        for blob in self.blobs_in(segment.id)? {
            let handle = match self.engine.view(Io::BLOCKING, |view| view.blob(blob)) {
                Ok(handle) if handle.value.address.segment == segment.id => handle,
                Ok(_) | Err(Error::UnknownBlob { .. }) => continue,
                Err(error) => return Err(error),
            };
            let inode = self.owner_of(segment, &handle)?;
            match self.engine.moving().append_copy(&handle, inode, 0, &key) {
                Ok((value, to)) => moved.push((handle, value, to)),
                Err(Error::Damaged { offset, length, .. }) => {
                    self.note_damaged(blob, segment.id, offset..offset + length);
                }
                Err(Error::NoSpace) => break,
                Err(error) => return Err(error),
            }
            if moved.len() >= MOVED_PER_UPDATE {
                self.engine.moving().enter_moved(&moved)?;
                moved.clear();
            }
        }
        self.engine.moving().enter_moved(&moved).map(drop)
    }

    /// The file that a row's summary names for a blob; 0 where no row can be read.
    fn owner_of(&self, segment: &Arc<Segment>, handle: &BlobHandle) -> Result<u64, Error> {
        let Ok(Some(contents)) = self.engine.log.read_row_contents(segment, handle.value.address.row_block) else {
            return Ok(0);
        };
        let owner = contents.entries.iter().find_map(|entry| match entry.subject {
            stere_format::RecordSubject::Blob { blob, inode, .. } if blob == handle.id => Some(inode),
            _ => None,
        });
        Ok(owner.unwrap_or(0))
    }

    /// Blobs that say they lie in a segment.
    pub fn blobs_in(&self, segment: u64) -> Result<Vec<u64>, Error> {
        let (from, to) = (Key::blob(0), Key::new(stere_format::key::tree::SEGMENTS, 0, 0, 0));
        let mut blobs = Vec::new();
        self.engine.for_each_key(from, to, |key, bytes| {
            if stere_format::BlobValue::decode(bytes).is_ok_and(|value| value.address.segment == segment) {
                blobs.push(key.object);
            }
        })?;
        Ok(blobs)
    }
}
