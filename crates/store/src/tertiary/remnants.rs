//! Objects that nobody needs: deleted when their segment is gone for good, and swept where a crash forgot them.
//!
//! Invariant: an object is deleted only when no durable checkpoint, journal record or segment in memory names its segment.

use std::collections::BTreeSet;
use std::sync::Arc;

use stere_device::{Volume, VolumeError};
use stere_faults::{Bug, is_planted};
use stere_format::{VolumeEntry, segment_of_object};

use super::{TertiaryProgress, Volumes};
use crate::Store;
use crate::error::Error;

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

impl Volumes {
    fn volume_by_number(&self, number: u8) -> Result<(VolumeEntry, Arc<dyn Volume>), Error> {
        let (volumes, away) = self.reachable(1 << number);
        let none = || Error::Pool(away.first().cloned().unwrap_or_else(|| "the pool has no such volume".into()));
        volumes.into_iter().next().ok_or_else(none)
    }
}

impl Store {
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
        let (entry, volume) = self.volumes.volume_by_number(number)?;
        let failed = |error: VolumeError| Error::Pool(error.to_string());
        let _alone = (self.volumes.work.lock(), self.volumes.uploads.write());
        let found = volume.list("segments/").map_err(failed)?;
        let mut swept = Swept::default();
        let mut there: BTreeSet<(u64, u64)> = BTreeSet::new();
        for (name, bytes) in found {
            let Some(object) = segment_of_object(&name) else { continue };
            if self.is_named(object.0) || self.options.read_only {
                (swept.objects, swept.bytes) = (swept.objects + 1, swept.bytes + bytes);
                there.insert(object);
            } else if volume.delete(&name).is_ok() {
                drop(volume.delete(&stere_format::catalogue_name(object.0, object.1)));
                swept.deleted += 1;
            }
        }
        let mut right = Vec::new();
        for segment in self.log.segments.everywhere() {
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
        let is_freed = self.inner.read().freed.iter().any(|freed| freed.segment.id == id);
        is_freed || self.log.segments.get(id).is_some() || id >= self.log.counters().0
    }

    fn is_object_right(&self, segment: &stere_log::Segment, volume: &dyn Volume) -> Result<bool, VolumeError> {
        let name = stere_format::object_name(segment.id, segment.sequence);
        let length = segment.written_blocks() as usize * stere_format::BLOCK_BYTES;
        let mut bytes = vec![0; length];
        if is_planted(Bug::ProvenIsUsed) {
            segment.note_use(segment.heat.get().used_seconds as i64 + 1);
        }
        match volume.get(&name, 0, &mut bytes, &stere_device::MediumWait::NONE) {
            Ok(()) => Ok(super::is_object_of(self.log.pool_id(), segment.id, segment.sequence, &bytes)),
            Err(error) if error.is_passing() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// A volume does not have these any more: where the bytes are elsewhere too, they are copied out again.
    fn give_objects_up(&self, segments: &[u64], bit: u16) {
        if self.options.read_only {
            return;
        }
        for id in segments {
            let Some(segment) = self.log.segments.get(*id) else { continue };
            let mut inner = self.inner.write();
            let mut tertiary = segment.tertiary();
            tertiary.there &= !bit;
            // The only copy is asked for as long as there is hope.
            if tertiary.there == 0 && segment.is_released() {
                continue;
            }
            segment.set_tertiary(tertiary);
            self.put_segment(&mut inner, &segment);
            inner.change += 1;
            drop(inner);
            self.volumes.stuck.lock().remove(id);
        }
    }
}
