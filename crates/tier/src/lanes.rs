//! Who copies which segment out, and to which volume now: so that several do it at once and no volume keeps all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_device::Volume;
use stere_format::VolumeEntry;
use stere_log::Segment;
use stere_recall::object_bytes;

/// So many put objects to one volume at the same time at most: with more of them than that, others are left for other volumes.
const PER_VOLUME_MAX: usize = 3;
/// Objects that are copied out are in memory, once more as they are read back: so many bytes of them at most, but for a single one.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Default)]
pub(super) struct Lanes {
    /// Segments that somebody copies out, and how large their objects are.
    segments: Mutex<BTreeMap<u64, u64>>,
    /// How many put to each volume.
    volumes: Mutex<BTreeMap<u8, usize>>,
}

/// A segment is this one's to copy out.
pub(super) struct InHand<'a> {
    lanes: &'a Lanes,
    pub(crate) segment: u64,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let was_in_hand = self.lanes.segments.lock().remove(&self.segment);
        assert!(was_in_hand.is_some(), "segment {} was in nobody's hands", self.segment);
    }
}

/// Somebody puts to a volume.
pub(super) struct UnderWay<'a> {
    lanes: &'a Lanes,
    pub(crate) volume: u8,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.lanes.volumes.lock().get_mut(&self.volume) {
            assert!(*count > 0, "more puts to volume {} end than began", self.volume);
            *count -= 1;
        }
    }
}

impl Lanes {
    /// Makes a segment the caller's to copy out; none if it is somebody's, or if there is too much in hand.
    pub(super) fn take_in_hand(&self, segment: &Segment) -> Option<InHand<'_>> {
        {
            let (mut segments, bytes) = (self.segments.lock(), object_bytes(segment));
            let all_bytes = segments.values().sum::<u64>() + bytes;
            if segments.contains_key(&segment.id) || (!segments.is_empty() && all_bytes > BYTES_MAX) {
                return None;
            }
            segments.insert(segment.id, bytes);
        }
        let in_hand = InHand { lanes: self, segment: segment.id };
        // Whoever had it may be done with it since the caller looked.
        let tertiary = segment.tertiary();
        (tertiary.wanted != tertiary.there).then_some(in_hand)
    }

    /// Whether some of these volumes could take one more object now; soon it may be different.
    pub(super) fn has_place(&self, volumes: &[(VolumeEntry, Arc<dyn Volume>)]) -> bool {
        let counts = self.volumes.lock();
        volumes.iter().any(|(entry, _)| counts.get(&entry.number).is_none_or(|count| *count < PER_VOLUME_MAX))
    }

    /// Which of these volumes the fewest put to, with a place there; none if all have enough to do.
    pub(super) fn least_busy(&self, volumes: &[&(VolumeEntry, Arc<dyn Volume>)]) -> Option<(usize, UnderWay<'_>)> {
        let mut counts = self.volumes.lock();
        let busy = |number: u8| counts.get(&number).copied().unwrap_or(0);
        let numbers = volumes.iter().map(|(entry, _)| entry.number).enumerate();
        let (at, number) = numbers.min_by_key(|(_, number)| busy(*number))?;
        if busy(number) >= PER_VOLUME_MAX {
            return None;
        }
        *counts.entry(number).or_insert(0) += 1;
        Some((at, UnderWay { lanes: self, volume: number }))
    }
}
