//! Objects that volumes lack, or have wrong: which volumes are to blame, and what is lost by that.
//!
//! Verifying and reading find them. What another volume or the devices have is copied out again; what nothing else has is known damage,
//! kept in the pool until it is gone or read rightly (`damage.rs`).

use std::collections::{BTreeMap, BTreeSet};

use stere_device::{MediumWait, Volume};
use stere_format::{BLOCK_BYTES, BlobEncoding, BlobValue, Key, key};
use stere_log::Segment;

use super::Volumes;
use crate::Store;
use crate::error::Error;

/// A blob, and where its record lies in its segment's object.
type Stored = (u64, BlobValue);

impl Volumes {
    /// These volumes do not give the segment.
    pub(super) fn note_bad(&self, segment: u64, set: u16) {
        *self.bad.lock().entry(segment).or_default() |= set;
    }

    /// They do.
    pub(super) fn note_good(&self, segment: u64, set: u16) {
        let mut bad = self.bad.lock();
        if let Some(known) = bad.get_mut(&segment) {
            *known &= !set;
            if *known == 0 {
                bad.remove(&segment);
            }
        }
    }

    /// Whether these do not give the segment, as far as is known.
    pub(super) fn is_bad(&self, segment: &Segment, bit: u16) -> bool {
        let set = segment.tertiary().there & bit;
        set != 0 && self.bad.lock().get(&segment.id).is_some_and(|bad| bad & set == set)
    }

    /// Neither devices nor any volume give it.
    fn is_nowhere_right(&self, segment: &Segment) -> bool {
        segment.is_released() && segment.live_bytes() > 0 && self.is_bad(segment, u16::MAX)
    }
}

impl Store {
    /// The volumes that have known damage on them, as a set.
    pub fn damaged_volumes(&self) -> u16 {
        let segments = self.damage.segments_on_volumes();
        segments
            .iter()
            .filter_map(|id| self.log.segments.get(*id))
            .fold(0, |set, segment| set | segment.tertiary().there)
    }

    /// What the pool knows of damage on volumes says which are to blame.
    pub(crate) fn load_bad_objects(&self) {
        for id in self.damage.segments_on_volumes() {
            if let Some(segment) = self.log.segments.get(id) {
                self.volumes.note_bad(id, segment.tertiary().there);
            }
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
            self.damage.forget_on_volumes(*id);
        }
        lacking.iter().chain(damaged).for_each(|id| self.volumes.note_bad(*id, bit));
        let is_lost =
            |id: &&u64| self.log.segments.get(**id).is_some_and(|segment| self.volumes.is_nowhere_right(&segment));
        let lost: BTreeSet<u64> = lacking.iter().chain(damaged).filter(is_lost).copied().collect();
        if lost.is_empty() {
            return Ok(());
        }
        for (id, blobs) in self.stored_in(&lost)? {
            let Some(segment) = self.log.segments.get(id) else { continue };
            let object = if lacking.contains(&id) { None } else { object_as_it_is(&segment, volume) };
            for (blob, value) in blobs {
                if let Some(range) = harmed(&value, object.as_deref()) {
                    self.note_damaged(blob, id, range);
                }
            }
        }
        Ok(())
    }

    /// What lies in these segments, by one pass over the blob map.
    fn stored_in(&self, segments: &BTreeSet<u64>) -> Result<BTreeMap<u64, Vec<Stored>>, Error> {
        let mut stored: BTreeMap<u64, Vec<Stored>> = BTreeMap::new();
        self.for_each_key(Key::blob(0), Key::new(key::tree::SEGMENTS, 0, 0, 0), |key, bytes| {
            if let Ok(value) = BlobValue::decode(bytes)
                && segments.contains(&value.address.segment)
            {
                stored.entry(value.address.segment).or_default().push((key.object, value));
            }
        })?;
        Ok(stored)
    }
}

/// The object of a segment, right or not; none if it cannot be read.
fn object_as_it_is(segment: &Segment, volume: &dyn Volume) -> Option<Vec<u8>> {
    let name = stere_format::object_name(segment.id, segment.sequence);
    let mut bytes = vec![0; segment.written_blocks() as usize * BLOCK_BYTES];
    volume.get(&name, 0, &mut bytes, &MediumWait::NONE).ok().map(|()| bytes)
}

/// The bytes of a blob, from the first to the last, that this object does not give.
fn harmed(value: &BlobValue, object: Option<&[u8]>) -> Option<std::ops::Range<u32>> {
    let all = 0..value.logical_bytes;
    let start = value.address.row_block as usize * BLOCK_BYTES + value.address.offset as usize;
    let Some(record) = object.and_then(|object| object.get(start..start + value.address.length as usize)) else {
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
