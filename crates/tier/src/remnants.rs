//! Objects that nobody needs: deleted when their segment is gone for good, and swept where a crash forgot them.
//!
//! Invariant: an object is deleted only when no durable checkpoint, journal record or segment in memory names its segment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stere_device::{MediumWait, Volume, VolumeError};
use stere_faults::{Bug, is_planted};
use stere_format::{BLOCK_BYTES, BlobEncoding, BlobValue, Key, VolumeEntry, key, range_in_object, segment_of_object};
use stere_log::Segment;

use super::TertiaryProgress;
use stere_engine::Engine;
use stere_engine::Error;
use stere_recall::{Volumes, is_object_of, object_bytes, object_of};

/// Objects deleted in one step.
const DELETED_MAX: usize = 64;

/// What is on a volume, and what was wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub objects: u64,
    pub bytes: u64,
    /// Objects that nothing named; they are gone now.
    pub deleted: u64,
    /// Segments that should be there, and are not.
    pub lacking: Vec<u64>,
    /// Segments whose object is not what it should be.
    pub damaged: Vec<u64>,
}

/// A blob, and where its record lies in its segment's object.
type Stored = (u64, BlobValue);

/// Looks through what is on volumes, and deletes what nobody needs.
pub struct Sweeper {
    engine: Arc<Engine>,
    volumes: Arc<Volumes>,
}

impl Sweeper {
    pub(super) fn new(engine: &Arc<Engine>) -> Sweeper {
        let (engine, volumes) = (engine.clone(), engine.volumes().clone());
        Sweeper { engine, volumes }
    }

    pub(super) fn delete_garbage(&self, progress: &mut TertiaryProgress) {
        let garbage: Vec<(String, u16)> = {
            let mut all = self.volumes.garbage.lock();
            let count = all.len().min(DELETED_MAX);
            all.drain(..count).collect()
        };
        let mut left = Vec::new();
        for (name, set) in garbage {
            let (volumes, away) = self.volumes.reachable(set);
            let mut rest = 0;
            for (entry, volume) in volumes {
                match volume.delete(&name) {
                    Ok(()) => progress.objects_deleted += 1,
                    Err(error) => {
                        progress.waits_for = Some(error.to_string());
                        rest |= entry.bit();
                    }
                }
            }
            if rest != 0 || !away.is_empty() {
                left.push((name, rest | if away.is_empty() { 0 } else { set }));
            }
        }
        progress.is_busy |= progress.objects_deleted > 0;
        self.volumes.garbage.lock().extend(left);
    }

    /// Compares a volume with the segment table: deletes what nothing names, tells what lacks; with `reads` every object is read and
    /// proven. What lacks or is damaged, and is on devices or on another volume, is copied out again.
    pub fn sweep_volume(&self, number: u8, reads: bool) -> Result<Swept, Error> {
        let (entry, volume) = self.volume_by_number(number)?;
        let failed = |error: VolumeError| Error::Pool(error.to_string());
        let _alone = (self.volumes.work.lock(), self.volumes.uploads.write());
        let found = volume.list("segments/").map_err(failed)?;
        let mut swept = Swept::default();
        let mut there: BTreeSet<(u64, u64)> = BTreeSet::new();
        for (name, bytes) in found {
            let Some(object) = segment_of_object(&name) else { continue };
            if self.is_named(object.0) || self.engine.is_read_only() {
                (swept.objects, swept.bytes) = (swept.objects + 1, swept.bytes + bytes);
                there.insert(object);
            } else if volume.delete(&name).is_ok() {
                drop(volume.delete(&stere_format::catalogue_name(object.0, object.1)));
                swept.deleted += 1;
            }
        }
        let mut right = Vec::new();
        for segment in self.engine.log().segments.everywhere() {
            if segment.tertiary().there & entry.bit() == 0 || segment.live_bytes() == 0 {
                continue;
            }
            if !there.contains(&(segment.id, segment.sequence)) {
                swept.lacking.push(segment.id);
            } else if reads {
                let is_right = self.is_object_right(&segment, &*volume).map_err(failed)?;
                if is_right { &mut right } else { &mut swept.damaged }.push(segment.id);
            }
        }
        self.note_swept(&*volume, entry.bit(), &swept.lacking, &swept.damaged, &right)?;
        let bad: Vec<u64> = swept.lacking.iter().chain(&swept.damaged).copied().collect();
        self.give_objects_up(&bad, entry.bit());
        Ok(swept)
    }

    /// Whether anything names a segment of this number, or may after a crash.
    fn is_named(&self, id: u64) -> bool {
        self.engine.is_freed(id)
            || self.engine.log().segments.get(id).is_some()
            || id >= self.engine.log().counters.get().0
    }

    fn is_object_right(&self, segment: &Segment, volume: &dyn Volume) -> Result<bool, VolumeError> {
        let name = object_of(segment);
        let mut bytes = vec![0; object_bytes(segment) as usize];
        if is_planted(Bug::ProvenIsUsed) {
            segment.note_use(segment.heat.get().used_seconds as i64 + 1);
        }
        match volume.get(&name, 0, &mut bytes, &MediumWait::NONE) {
            Ok(()) => Ok(is_object_of(self.engine.log().pool_id(), segment.id, segment.sequence, &bytes)),
            Err(error) if error.is_passing() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// A volume does not have these any more: where the bytes are elsewhere too, they are copied out again.
    fn give_objects_up(&self, segments: &[u64], bit: u16) {
        if self.engine.is_read_only() {
            return;
        }
        for id in segments {
            let Some(segment) = self.engine.log().segments.get(*id) else { continue };
            let mut change = self.engine.change_segments();
            let mut tertiary = segment.tertiary();
            tertiary.there &= !bit;
            // The only copy is asked for as long as there is hope.
            if tertiary.there == 0 && segment.is_released() {
                continue;
            }
            segment.set_tertiary(tertiary);
            change.enter(&segment);
            change.take_effect();
            self.volumes.stuck.lock().remove(id);
        }
    }

    /// A volume was looked through: notes which of its objects are bad and which are right, and what is lost by that.
    pub(super) fn note_swept(
        &self,
        volume: &dyn Volume,
        bit: u16,
        lacking: &[u64],
        damaged: &[u64],
        right: &[u64],
    ) -> Result<(), Error> {
        for id in right {
            self.volumes.note_good(*id, bit);
            self.engine.damage().forget_on_volumes(*id);
        }
        lacking.iter().chain(damaged).for_each(|id| self.volumes.note_bad(*id, bit));
        let is_lost = |id: &&u64| {
            self.engine.log().segments.get(**id).is_some_and(|segment| self.volumes.is_nowhere_right(&segment))
        };
        let lost: BTreeSet<u64> = lacking.iter().chain(damaged).filter(is_lost).copied().collect();
        if lost.is_empty() {
            return Ok(());
        }
        for (id, blobs) in self.stored_in(&lost)? {
            let Some(segment) = self.engine.log().segments.get(id) else { continue };
            let object = if lacking.contains(&id) { None } else { object_as_it_is(&segment, volume) };
            for (blob, value) in blobs {
                if let Some(range) = harmed(&value, segment.scheme.data, object.as_deref()) {
                    self.engine.damage().note_damaged(blob, id, range);
                }
            }
        }
        Ok(())
    }

    /// What lies in these segments, by one pass over the blob map.
    fn stored_in(&self, segments: &BTreeSet<u64>) -> Result<BTreeMap<u64, Vec<Stored>>, Error> {
        let mut stored: BTreeMap<u64, Vec<Stored>> = BTreeMap::new();
        self.engine.for_each_key(Key::blob(0), Key::new(key::tree::SEGMENTS, 0, 0, 0), |key, bytes| {
            if let Ok(value) = BlobValue::decode(bytes)
                && segments.contains(&value.address.segment)
            {
                stored.entry(value.address.segment).or_default().push((key.object, value));
            }
        })?;
        Ok(stored)
    }

    fn volume_by_number(&self, number: u8) -> Result<(VolumeEntry, Arc<dyn Volume>), Error> {
        let (volumes, away) = self.volumes.reachable(1 << number);
        let none = || Error::Pool(away.first().cloned().unwrap_or_else(|| "the pool has no such medium".into()));
        volumes.into_iter().next().ok_or_else(none)
    }
}

/// The object of a segment, right or not; none if it cannot be read.
fn object_as_it_is(segment: &Segment, volume: &dyn Volume) -> Option<Vec<u8>> {
    let name = object_of(segment);
    let mut bytes = vec![0; object_bytes(segment) as usize];
    volume.get(&name, 0, &mut bytes, &MediumWait::NONE).ok().map(|()| bytes)
}

/// The bytes of a blob, from the first to the last, that this object does not give.
fn harmed(value: &BlobValue, data_chunks: u8, object: Option<&[u8]>) -> Option<std::ops::Range<u32>> {
    let all = 0..value.logical_bytes;
    let place = range_in_object(data_chunks, &value.address);
    let Some(record) = object.and_then(|object| object.get(place)) else {
        return Some(all);
    };
    if stere_log::are_of(&value.checksums, record) {
        return None;
    }
    if value.encoding != BlobEncoding::PLAIN {
        return Some(all);
    }
    let is_wrong = |block: &u32| match value.stored_index_of_block(*block) {
        Some(index) => {
            let at = index as usize * BLOCK_BYTES;
            let bytes = &record[at.min(record.len())..(at + BLOCK_BYTES).min(record.len())];
            value.checksums[index as usize..].first().is_none_or(|checksum| stere_format::crc32c(bytes) != *checksum)
        }
        None => false,
    };
    let wrong: Vec<u32> = (0..value.blocks()).filter(is_wrong).collect();
    let (Some(first), Some(last)) = (wrong.first(), wrong.last()) else { return Some(all) };
    let block = BLOCK_BYTES as u32;
    Some(first * block..((last + 1) * block).min(value.logical_bytes))
}
