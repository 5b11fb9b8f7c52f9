//! Making room for somebody who finds none: passes of the cleaner, and moves that even devices out, for as long as that helps.
//!
//! Invariants: one call moves at most as much as the pool holds. A series that moved W bytes and made no room is remembered, and for what
//! may be refused it is not repeated before W/16 have died, or more slots are free (P-230); room that is there is always found, for the
//! memory is asked only after that. What was accepted is never refused because of it. Read next: the crate `cleaner`, `clean.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::MutexGuard;
use stere_format::{DeviceIndex, SegmentKind};
use stere_log::{Segment, StreamKey};

use crate::clean::{Cleaning, Victims};
use crate::engine::Engine;
use crate::error::Error;
use crate::space::Space;
use stere_cleaner::{Cleaner, FRUITLESS_PASSES_MAX, Fill};

/// Segments moved at most to even devices out for one who waits for room.
const EVENED_MAX: u32 = 64;
/// How often others may take what was made free for one who waits for room.
const ROUNDS_MAX: u32 = 16;

/// Whose room is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What was accepted: it has its room.
    Accepted,
    /// What may be told that there is none.
    Refusable,
}

/// Which segments are moved to even devices out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evening {
    /// Those that go to a device with more room.
    Gaining,
    /// Others too, where there is nothing else to be done.
    Any,
}

/// Whether moving a segment away from a device with so few slots free brings it to one with more. Where all but one are full, one with
/// a chunk on that already only goes from one full device to another; where it needs the overfull one too, nothing leaves that.
fn evens_out(segment: &Segment, roomiest: &[(DeviceIndex, u32)], (overfull, free): (DeviceIndex, u32)) -> bool {
    assert!(roomiest.is_sorted_by_key(|(_, free)| std::cmp::Reverse(*free)), "the roomiest device comes first");
    let place = segment.placed();
    let has_chunk = |index: DeviceIndex| place.chunks.iter().any(|chunk| chunk.device == index);
    let targets = || roomiest.iter().take(segment.scheme.width());
    let leaves = targets().all(|(index, _)| *index != overfull);
    leaves && targets().any(|(index, most)| *most >= free + 2 && !has_chunk(*index))
}

/// What is free while room is made: slots, and the segments of the kind looked for that these can hold. Where all slots are on one
/// device, more of them are no more segments; where a device is lost, fewer of them may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Free {
    slots: u64,
    segments: u64,
}

impl Free {
    fn is_more_than(self, most: Free) -> bool {
        self.slots > most.slots || self.segments > most.segments
    }

    fn max(self, most: Free) -> Free {
        Free { slots: self.slots.max(most.slots), segments: self.segments.max(most.segments) }
    }
}

fn fill_of(engine: &Engine) -> Fill {
    let generation = engine.inner.read().generation;
    Fill { died_bytes: engine.space.died_bytes(), slots_free: engine.cleaning().slots_free(), generation }
}

/// One search for room: it moves as much as the pool holds, and no more.
#[derive(Clone, Copy)]
struct Series {
    moved_before: u64,
    moved_max: u64,
}

impl Series {
    fn begin(store: &Engine) -> Series {
        Series { moved_before: store.space.moved_bytes(), moved_max: store.space().raw_bytes() }
    }

    fn moved_bytes(&self, space: &Space) -> u64 {
        let moved_bytes = space.moved_bytes();
        assert!(moved_bytes >= self.moved_before, "what was moved is counted since the pool was opened");
        moved_bytes - self.moved_before
    }

    fn is_over(&self, space: &Space) -> bool {
        self.moved_bytes(space) >= self.moved_max
    }
}

impl Cleaning<'_> {
    /// Called where an append found no free segment: cleans until one is free, or says that the pool is full.
    pub(crate) fn make_room(&self, key: &StreamKey, purpose: Purpose) -> Result<(), Error> {
        assert_eq!(key.kind, SegmentKind::Data, "metadata has a search of its own");
        let mut cleaner = self.engine.cleaner.lock();
        if self.engine.log.room.can_begin(key) {
            return Ok(());
        }
        if purpose == Purpose::Refusable && self.is_still_futile(&mut cleaner, key)? {
            return if self.engine.log.room.can_begin(key) { Ok(()) } else { Err(Error::NoSpace) };
        }
        let series = Series::begin(self.engine);
        for _ in 0..ROUNDS_MAX {
            let begun = self.engine.log.counters.begun_by_users();
            if self.clean_until_free(&mut cleaner, key, series)? {
                return Ok(());
            }
            // Others may have taken all that became free; if none of them began a segment, there is none. The cleaner begins some itself.
            if self.engine.log.counters.begun_by_users() == begun || series.is_over(&self.engine.space) {
                break;
            }
        }
        let fill = fill_of(self.engine);
        cleaner.futile.note(key, series.moved_bytes(&self.engine.space), fill);
        Err(Error::NoSpace)
    }

    /// Whether the last series was futile and the next would be. What was emptied since counts as free first.
    fn is_still_futile(&self, cleaner: &mut MutexGuard<'_, Cleaner>, key: &StreamKey) -> Result<bool, Error> {
        let before = fill_of(self.engine);
        if !cleaner.futile.rests(key, before) {
            return Ok(false);
        }
        let has_emptied = {
            let inner = self.engine.inner.read();
            !inner.freed.is_empty() || !inner.left.is_empty()
        };
        if has_emptied && !self.engine.release_by_proof()? {
            self.engine.checkpoint()?;
        }
        let now = fill_of(self.engine);
        Ok(cleaner.futile.rests(key, now))
    }

    /// Cleans for as long as that empties something; whether a stream of this kind could begin a segment then.
    fn clean_until_free(
        &self,
        cleaner: &mut MutexGuard<'_, Cleaner>,
        key: &StreamKey,
        series: Series,
    ) -> Result<bool, Error> {
        let (mut fruitless, mut evened, mut most_free) = (0, 0, Free::default());
        let mut first = Victims::Gaining;
        // Where hardly a segment is free, a pass empties one or two at a time.
        while fruitless < FRUITLESS_PASSES_MAX && !series.is_over(&self.engine.space) {
            if self.engine.log.room.can_begin(key) {
                return Ok(true);
            }
            // A checkpoint gives back more, and costs more.
            if fruitless > 0 || !self.engine.release_by_proof()? {
                self.engine.checkpoint()?;
            }
            if self.engine.log.room.can_begin(key) {
                return Ok(true);
            }
            // What was moved together counts, not what was moved: nearly full segments empty others that fill as fast.
            let free = self.free_for(key);
            fruitless = if free.is_more_than(most_free) { 0 } else { fruitless + 1 };
            // What seems to gain most may gain nothing: large blobs leave room at the end of every segment.
            first = if fruitless > 0 { first.other() } else { first };
            most_free = free.max(most_free);
            // Passes that only fill segments anew gain nothing for as long as the slots that are free are all on one device.
            if fruitless > 0 && evened < EVENED_MAX && self.even_out(cleaner, Evening::Gaining)? {
                (evened, fruitless) = (evened + 1, 0);
                continue;
            }
            let emptied = self.clean_pass(cleaner, 98, first)?;
            if emptied.is_none_or(|emptied| emptied == 0) {
                if evened < EVENED_MAX && self.even_out(cleaner, Evening::Any)? {
                    (evened, fruitless) = (evened + 1, 0);
                } else if emptied.is_none() {
                    break;
                }
            }
        }
        // What was emptied and then held by a reader for a moment is free after one more.
        for _ in 0..2 {
            self.engine.checkpoint()?;
            if self.engine.log.room.can_begin(key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves a segment away from the device with the fewest free slots, where others have more: what needs several devices
    /// at once has no use for slots that are all on one. False where that is no help.
    fn even_out(&self, cleaner: &mut MutexGuard<'_, Cleaner>, evening: Evening) -> Result<bool, Error> {
        let Some(overfull) = self.engine.log.stripe.slots.overfull() else { return Ok(false) };
        let devices = self.engine.log.stripe.devices.all().len();
        let generation = self.engine.inner.read().generation;
        let movable: Vec<Arc<Segment>> = self
            .engine
            .log
            .segments
            .all()
            .into_iter()
            .filter(|segment| {
                segment.kind == SegmentKind::Data
                    && segment.is_sealed()
                    && segment.tertiary().there == 0
                    && segment.scheme.width() < devices
                    && segment.chunks().iter().any(|place| place.device == overfull)
                    && !cleaner.is_stuck(segment, generation)
            })
            .collect();
        let (roomiest, free) = (self.roomiest(&movable), self.slots_free_on(overfull));
        let is_vain = |segment: &Segment| !evens_out(segment, &roomiest[&segment.site.only], (overfull, free));
        let of_all = movable.into_iter().map(|segment| (is_vain(&segment), segment));
        let victim = of_all
            .min_by_key(|(is_vain, segment)| (*is_vain, segment.scheme.width(), segment.live_bytes(), segment.id));
        let Some((is_vain, victim)) = victim else { return Ok(false) };
        if is_vain && evening == Evening::Gaining {
            return Ok(false);
        }
        let mut key = self.engine.moving().cold_stream(&victim);
        if key.home.is_some() {
            // Room comes before isolation.
            let open = self.engine.log.stripe.slots.open_devices_of(key.site.only);
            key.home = open.into_iter().max_by_key(|index| self.slots_free_on(*index));
        }
        match self.clean_segment_to(&victim, &key) {
            Ok(true) => Ok(true),
            Ok(false) => {
                cleaner.note_stuck(&victim, generation);
                Ok(true)
            }
            // No segment can be begun to move it to: a chunk of one moves as it is.
            Err(Error::NoSpace) => self.engine.chunk_writer().move_chunk_from(overfull),
            Err(error) => Err(error),
        }
    }

    /// Open devices of each place that these segments are bound to, with their free slots, those with most first.
    fn roomiest(&self, segments: &[Arc<Segment>]) -> BTreeMap<u8, Vec<(DeviceIndex, u32)>> {
        let places: BTreeSet<u8> = segments.iter().map(|segment| segment.site.only).collect();
        let of_place = |only: u8| {
            let open = self.engine.log.stripe.slots.open_devices_of(only);
            let mut open: Vec<_> = open.into_iter().map(|index| (index, self.slots_free_on(index))).collect();
            open.sort_by_key(|(_, free)| std::cmp::Reverse(*free));
            (only, open)
        };
        places.into_iter().map(of_place).collect()
    }

    fn free_for(&self, key: &StreamKey) -> Free {
        let segments = self.engine.log.stripe.slots.capacity(key.scheme).segments_free;
        Free { slots: self.slots_free(), segments }
    }

    fn slots_free_on(&self, index: DeviceIndex) -> u32 {
        self.engine.log.stripe.slots.usage(index).map_or(0, |usage| usage.free)
    }

    /// Called where metadata must not grow: gathers live data and live nodes so that segments become free, for as long as
    /// that helps and is needed.
    pub(crate) fn make_room_for_metadata(&self) -> Result<(), Error> {
        let mut cleaner = self.engine.cleaner.lock();
        let key = self.engine.places().meta_stream();
        if cleaner.fruitless_at == Some(self.engine.inner.read().change) || self.is_still_futile(&mut cleaner, &key)? {
            return Ok(());
        }
        let series = Series::begin(self.engine);
        let (mut fruitless, mut most_free) = (0, 0);
        self.engine.checkpoint()?;
        while self.engine.space().lacks_meta_segments()
            && fruitless < FRUITLESS_PASSES_MAX
            && !series.is_over(&self.engine.space)
        {
            self.clean_pass(&mut cleaner, 98, Victims::Gaining)?;
            self.engine.checkpoint()?;
            let free = self.engine.space().meta_segments_free();
            (fruitless, most_free) = if free > most_free { (0, free) } else { (fruitless + 1, most_free) };
        }
        let (is_scarce, change) = {
            let inner = self.engine.inner.read();
            (self.engine.space().is_scarce(&inner), inner.change)
        };
        cleaner.fruitless_at = is_scarce.then_some(change);
        if is_scarce {
            let fill = fill_of(self.engine);
            cleaner.futile.note(&key, series.moved_bytes(&self.engine.space), fill);
        }
        Ok(())
    }
}
