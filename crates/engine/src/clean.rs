//! Cleaning: live blobs of half-empty segments move to a cold stream, so that whole segments become free.
//!
//! A victim's own row summaries tell which blobs were put there; the blob map tells which of them still are. Moving is the one
//! relocation there is: append, then change the entry, if nobody changed it meanwhile. Metadata segments are emptied by the
//! next checkpoint, which rewrites the nodes that lie in them. Source: Rosenblum & Ousterhout 1991, section 3.5 (cost-benefit).

use std::sync::Arc;

use parking_lot::MutexGuard;
use rustc_hash::FxHashMap;
use stere_faults::{Bug, is_planted};
use stere_format::{BLOCK_BYTES, BlobEncoding, BlobValue, Checksums, RecordSubject, SegmentKind, Site, SummaryEntry};
use stere_log::{Io, LogError, Segment, StreamKey};

use stere_tree::Touch;

use crate::checkpoint::Checkpointer;
use crate::engine::Engine;
use crate::error::Error;
use crate::make_room::FutileSeries;
use crate::space::{OVERHEAD_PERCENT, SEGMENT_END_BYTES, raw};
use crate::write::{Owner, Placement};
use stere_recall::BlobHandle;

/// Which segment is cleaned first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanerPolicy {
    /// The one with the fewest live bytes.
    Greedy,
    /// The best ratio of space gained times age to the cost of copying.
    CostBenefit,
}

/// Blobs moved per update.
pub const BLOBS_PER_UPDATE: usize = 64;
/// Metadata segments emptied per checkpoint at most.
const CONDEMNED_MAX: usize = 4;
/// Segments cleaned per pass at most.
const VICTIMS_MAX: usize = 32;

/// Passes one after the other that emptied nothing, before the pool counts as full.
pub(crate) const FRUITLESS_PASSES_MAX: u32 = 3;

/// What the cleaner remembers.
#[derive(Default)]
pub(crate) struct Cleaner {
    /// Segments that could not be emptied because content is damaged.
    stuck: FxHashMap<u64, Stuck>,
    /// The last change before which no room for metadata could be made.
    pub(crate) fruitless_at: Option<u64>,
    pub(crate) futile: FutileSeries,
    background: Background,
}

/// What the passes of the background led to: cleaning that frees nothing comes to rest, whatever the cause is.
#[derive(Default)]
struct Background {
    /// Passes in a row that left no more slots free than there were.
    fruitless: u32,
    slots_free_most: u64,
    /// After the last pass.
    slots_free: u64,
    live_raw_bytes: i64,
}

impl Background {
    /// Whether passes freed nothing and nothing changed since: a segment's worth did not die, and no slot was taken or given back.
    fn rests(&mut self, slots_free: u64, live_raw_bytes: i64, segment_bytes: u64) -> bool {
        let died = self.live_raw_bytes.saturating_sub(live_raw_bytes);
        let is_same = slots_free == self.slots_free && died < i64::try_from(segment_bytes).unwrap_or(i64::MAX);
        if self.fruitless >= FRUITLESS_PASSES_MAX && !is_same {
            self.fruitless = 0;
        }
        self.fruitless >= FRUITLESS_PASSES_MAX && !is_planted(Bug::CleanedForNothing)
    }

    fn note(&mut self, slots_free_before: u64, slots_free: u64, live_raw_bytes: i64) {
        if self.fruitless == 0 {
            self.slots_free_most = slots_free_before;
        }
        self.fruitless = if slots_free > self.slots_free_most { 0 } else { self.fruitless + 1 };
        self.slots_free_most = self.slots_free_most.max(slots_free);
        (self.slots_free, self.live_raw_bytes) = (slots_free, live_raw_bytes);
    }
}

/// How a segment was when it could not be emptied: once it is otherwise, it is tried again.
#[derive(Clone, Copy)]
struct Stuck {
    live_bytes: u64,
    missing: u32,
    generation: u64,
}

/// After so many checkpoints a segment that could not be emptied is tried again although nothing is known to have changed: a
/// device may be back.
const STUCK_GENERATIONS: u64 = 32;

impl Cleaner {
    pub(crate) fn is_stuck(&self, segment: &Segment, generation: u64) -> bool {
        self.stuck.get(&segment.id).is_some_and(|stuck| {
            (stuck.live_bytes, stuck.missing) == (segment.live_bytes(), segment.missing())
                && generation < stuck.generation + STUCK_GENERATIONS
        })
    }

    pub(crate) fn note_stuck(&mut self, segment: &Segment, generation: u64) {
        let stuck = Stuck { live_bytes: segment.live_bytes(), missing: segment.missing(), generation };
        self.stuck.insert(segment.id, stuck);
        self.stuck.retain(|_, stuck| generation < stuck.generation + STUCK_GENERATIONS);
    }
}

struct Candidate {
    segment: Arc<Segment>,
    live_bytes: u64,
    score: f64,
    /// All its slots are of use to somebody who looks for room: they are on devices that take new chunks.
    gives_all: bool,
}

/// Moves data so that room becomes free, and to where policy wants it.
#[derive(Clone, Copy)]
pub struct Cleaning<'a> {
    pub(crate) engine: &'a Engine,
}

impl<'a> Cleaning<'a> {
    pub(crate) fn of(engine: &'a Engine) -> Cleaning<'a> {
        Cleaning { engine }
    }
}

impl Cleaning<'_> {
    /// Capacity of a segment for content, about.
    fn segment_bytes(&self, segment: &Segment) -> u64 {
        u64::from(self.engine.log.chunk_bytes()) * u64::from(segment.scheme.data)
    }

    /// Slots that new chunks can have: those of devices that take none do not count.
    pub(crate) fn slots_free(&self) -> u64 {
        let devices = self.engine.log.stripe.open_devices();
        devices
            .into_iter()
            .filter_map(|index| self.engine.log.stripe.slot_usage(index))
            .map(|u| u64::from(u.free))
            .sum()
    }

    /// Cleans while few segments are free, or, when nobody works, what is mostly dead. True when something was done.
    pub(crate) fn clean_in_background(&self, idle: bool) -> Result<bool, Error> {
        let Some(mut cleaner) = self.engine.cleaner.try_lock() else { return Ok(false) };
        let capacity = self.engine.log.stripe.capacity(self.engine.fit(stere_format::Scheme { data: 1, parity: 0 }));
        let low = capacity.segments_free < (capacity.segments_total / 10).max(12);
        let percent = match (low, idle) {
            (true, _) => 80,
            (false, true) if capacity.segments_free < capacity.segments_total / 2 => 50,
            (false, true) => 10,
            (false, false) => return Ok(false),
        };
        let slots_free_before = self.slots_free();
        let live_raw_bytes = self.engine.space.live_raw_bytes();
        if cleaner.background.rests(slots_free_before, live_raw_bytes, u64::from(self.engine.log.chunk_bytes())) {
            return Ok(false);
        }
        let done = self.clean_pass(&mut cleaner, percent)?.is_some();
        if done && !self.engine.release_by_proof()? {
            self.engine.checkpoint()?;
        }
        if done {
            cleaner.background.note(slots_free_before, self.slots_free(), self.engine.space.live_raw_bytes());
        }
        Ok(done)
    }

    /// Empties a few of the best victims with less than `percent` live, and tells how many;
    /// `None` when there are none worth it.
    pub(crate) fn clean_pass(
        &self,
        cleaner: &mut MutexGuard<'_, Cleaner>,
        percent: u64,
    ) -> Result<Option<usize>, Error> {
        let percent = if is_planted(Bug::CleanedForNothing) { 100 } else { percent };
        let mut candidates = self.candidates(cleaner, percent);
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.segment.id.cmp(&b.segment.id)));
        // What lies in part on devices that take nothing gives less than it takes where it goes to: it comes last, when the rest is not
        // worth it any more.
        let (giving, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|candidate| candidate.gives_all);
        match self.clean_few(cleaner, giving)? {
            None => self.clean_few(cleaner, others),
            done => Ok(done),
        }
    }

    /// Empties the first few of these, if that is worth it.
    fn clean_few(
        &self,
        cleaner: &mut MutexGuard<'_, Cleaner>,
        candidates: Vec<Candidate>,
    ) -> Result<Option<usize>, Error> {
        let gain_goal = candidates.first().map_or(0, |best| 2 * self.segment_bytes(&best.segment));
        let mut gain = 0;
        let mut victims = Vec::new();
        for candidate in candidates.into_iter().take(VICTIMS_MAX) {
            gain += self.segment_bytes(&candidate.segment)
                - candidate.live_bytes.min(self.segment_bytes(&candidate.segment));
            victims.push(candidate.segment);
            if gain >= gain_goal {
                break;
            }
        }
        // Moving less than a segment's worth of holes together frees nothing; what the segment that they go to still takes is one.
        let worth = |first: &Arc<Segment>| gain + self.room_left_for(first) >= self.segment_bytes(first);
        if !victims.first().is_some_and(|first| worth(first) || is_planted(Bug::CleanedForNothing)) {
            return Ok(None);
        }
        let mut emptied = 0;
        let generation = self.engine.inner.read().generation;
        for victim in victims {
            match self.clean_segment(&victim) {
                Ok(true) => emptied += 1,
                Ok(false) => cleaner.note_stuck(&victim, generation),
                // One of another class may still have an open segment to go to.
                Err(Error::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(emptied))
    }

    /// Content that the open segment which takes what is moved out of this one has room for.
    fn room_left_for(&self, victim: &Segment) -> u64 {
        let left = self.engine.log.room_in_open_segment(&self.cold_stream(victim)) as u64;
        left.saturating_sub(SEGMENT_END_BYTES) / 100 * (100 - OVERHEAD_PERCENT)
    }

    fn candidates(&self, cleaner: &Cleaner, percent: u64) -> Vec<Candidate> {
        let now = self.engine.log.counters().1;
        let policy = self.engine.options.cleaner;
        let generation = self.engine.inner.read().generation;
        let open = self.engine.log.stripe.open_devices();
        self.engine
            .log
            .segments
            .all()
            .into_iter()
            .filter(|segment| {
                // What volumes have is not moved here: it would have to be copied out again.
                let is_local = segment.tertiary().there == 0;
                let is_data = segment.kind == SegmentKind::Data && segment.is_sealed();
                is_data && is_local && !cleaner.is_stuck(segment, generation)
            })
            .filter_map(|segment| {
                let live_bytes = segment.live_bytes();
                let size = self.segment_bytes(&segment);
                if live_bytes == 0 || live_bytes * 100 > size * percent {
                    return None;
                }
                let utilisation = live_bytes as f64 / size as f64;
                let age = now.saturating_sub(segment.sequence) as f64 + 1.0;
                let score = match policy {
                    CleanerPolicy::Greedy => 1.0 - utilisation,
                    CleanerPolicy::CostBenefit => (1.0 - utilisation) * age / (1.0 + utilisation),
                };
                let gives_all = segment.chunks().iter().all(|place| open.contains(&place.device));
                Some(Candidate { segment, live_bytes, score, gives_all })
            })
            .collect()
    }

    /// Moves all live blobs out of a segment; false if some could not be read.
    pub fn clean_segment(&self, segment: &Arc<Segment>) -> Result<bool, Error> {
        self.clean_segment_to(segment, &self.cold_stream(segment))
    }

    pub(crate) fn clean_segment_to(&self, segment: &Arc<Segment>, key: &StreamKey) -> Result<bool, Error> {
        let (mut row_block, mut is_whole) = (1, true);
        while row_block < segment.written_blocks() {
            // A crash can tear what tells of a row whose blobs are whole, or dead: the rows around it are moved all the same.
            let Ok(Some(contents)) = self.engine.log.read_row_contents(segment, row_block) else {
                (row_block, is_whole) = (row_block + 1, false);
                continue;
            };
            for entries in contents.entries.chunks(BLOBS_PER_UPDATE) {
                if !self.move_blobs(segment, row_block, entries, key)? {
                    return Ok(false);
                }
            }
            row_block += contents.header.row_height.max(1);
        }
        Ok(is_whole || segment.live_bytes() == 0)
    }

    /// Enters where blobs are now, but for those that were changed meanwhile; how many it entered.
    pub fn enter_moved(
        &self,
        moved: &[(BlobHandle, BlobValue, Arc<Segment>)],
        refusable: bool,
    ) -> Result<usize, Error> {
        self.engine.update_now(Io::BLOCKING, refusable, |transaction| {
            let mut entered = 0;
            for (handle, value, to) in moved {
                entered += usize::from(transaction.move_blob(handle, value, to)?);
            }
            Ok::<_, Error>(entered)
        })
    }

    /// Those blobs of a row's entries that still lie there, with inode and offset in the file.
    pub fn live_blobs(
        &self,
        segment: &Segment,
        row_block: u32,
        entries: &[SummaryEntry],
    ) -> Result<Vec<(BlobHandle, u64, u64)>, Error> {
        self.engine.view(Io::BLOCKING, |view| {
            let mut live: Vec<(BlobHandle, u64, u64)> = Vec::new();
            for entry in entries {
                let RecordSubject::Blob { blob, inode, file_offset, .. } = entry.subject else { continue };
                let handle = match view.blob(blob) {
                    Ok(handle) => handle,
                    Err(Error::UnknownBlob { .. }) => continue,
                    Err(error) => return Err(error),
                };
                let address = &handle.value.address;
                if (address.segment, address.row_block, address.offset) == (segment.id, row_block, entry.offset) {
                    live.push((handle, inode, file_offset));
                }
            }
            Ok::<_, Error>(live)
        })
    }

    /// Moves those blobs of the entries that still lie there.
    pub fn move_blobs(
        &self,
        segment: &Segment,
        row_block: u32,
        entries: &[SummaryEntry],
        key: &StreamKey,
    ) -> Result<bool, Error> {
        let mut moved = Vec::new();
        let mut is_full = false;
        for (handle, inode, file_offset) in self.live_blobs(segment, row_block, entries)? {
            match self.append_copy(&handle, inode, file_offset, key) {
                Ok((value, to)) => moved.push((handle, value, to)),
                Err(Error::Damaged { .. }) => return Ok(false),
                // What was copied is not copied again by the next pass: then passes would write for ever and free nothing.
                Err(Error::NoSpace) if !moved.is_empty() => {
                    is_full = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.engine.check_writable()?;
        self.engine.throttle(Io::BLOCKING)?;
        self.enter_moved(&moved, true)?;
        if is_full { Err(Error::NoSpace) } else { Ok(true) }
    }

    /// Where what survived cleaning goes: unreplicated data stays on its device.
    pub fn cold_stream(&self, segment: &Segment) -> StreamKey {
        let site = if is_planted(Bug::CleanedElsewhere) { Site::ANYWHERE } else { segment.site };
        let placement = Placement { scheme: segment.scheme, class: segment.class, site };
        let key = self.engine.stream_for(placement, 1, segment.home());
        StreamKey { tertiary: self.engine.volumes.with_heirs(segment.tertiary().wanted), ..key }
    }

    /// Moves one blob to the cold stream of its scheme; without an owner where that is not known.
    pub fn relocate_blob(&self, handle: &BlobHandle, owner: Option<Owner>) -> Result<(), Error> {
        let key = self.cold_stream(&handle.segment);
        let owner = owner.unwrap_or(Owner { inode: 0, offset: 0 });
        let (value, to) = self.append_copy(handle, owner.inode, owner.offset, &key)?;
        self.engine.update(Io::BLOCKING, |transaction| transaction.move_blob(handle, &value, &to)).map(drop)
    }

    /// Reads the blob, and appends it without the blocks nobody needs to another stream.
    pub fn append_copy(
        &self,
        handle: &BlobHandle,
        inode: u64,
        file_offset: u64,
        key: &StreamKey,
    ) -> Result<(BlobValue, Arc<Segment>), Error> {
        let stored = self.engine.volumes.read_record_blocks(&self.engine.log, handle)?;
        self.append_live(handle, &stored, inode, file_offset, key)
    }

    /// The same with what is stored of it, read before.
    pub(crate) fn append_live(
        &self,
        handle: &BlobHandle,
        stored: &[u8],
        inode: u64,
        file_offset: u64,
        key: &StreamKey,
    ) -> Result<(BlobValue, Arc<Segment>), Error> {
        let old = &*handle.value;
        let mut value = old.clone();
        if old.encoding == BlobEncoding::PLAIN && old.live != old.present {
            let mut kept = Vec::with_capacity(stored.len());
            for block in old.live.iter() {
                let start = old.stored_offset_of_block(block).expect("a live block is stored") as usize;
                kept.extend_from_slice(&stored[start..stored.len().min(start + BLOCK_BYTES)]);
            }
            value.present = old.live;
            value.checksums = Checksums::of(old.checksums.kind(), &kept);
            return self.append_stored(handle.id, value, &kept, inode, file_offset, key);
        }
        self.append_stored(handle.id, value, stored, inode, file_offset, key)
    }

    /// Appends what is to be stored of a blob from now on; its new entry is still to be entered.
    pub(crate) fn append_stored(
        &self,
        blob: u64,
        mut value: BlobValue,
        data: &[u8],
        inode: u64,
        file_offset: u64,
        key: &StreamKey,
    ) -> Result<(BlobValue, Arc<Segment>), Error> {
        let crc32c = stere_format::record_checksum(&value.checksums, data.len());
        let (logical_bytes, encoding, present) = (value.logical_bytes, value.encoding, value.present);
        let subject = RecordSubject::Blob { blob, inode, file_offset, logical_bytes, encoding, present };
        self.engine.space.note_moved(raw(key.scheme, i64::try_from(data.len()).unwrap_or(i64::MAX)));
        let append = |key: &StreamKey| {
            self.engine.log.append(key, data.len(), Io::BLOCKING, |target| {
                target.copy_from_slice(data);
                SummaryEntry { offset: 0, length: 0, crc32c, subject, hint: Vec::new() }
            })
        };
        let mut appended = append(key);
        if matches!(appended, Err(LogError::NoSpace)) {
            // Full must never mean stuck: room comes before isolation.
            if let Some(other) = self.engine.places().other_home(key, data.len()) {
                appended = append(&other);
            }
        }
        let appended = appended.map_err(|error| match error {
            LogError::NoSpace => Error::NoSpace,
            error => error.into(),
        })?;
        value.address = appended.address;
        Ok((value, appended.segment))
    }

    /// Picks metadata segments that the next merge shall empty.
    pub(crate) fn choose_condemned(&self, state: &mut Checkpointer) -> Result<(), Error> {
        let meta: Vec<_> = self
            .engine
            .log
            .segments
            .all()
            .into_iter()
            .filter(|segment| segment.kind == SegmentKind::Meta && segment.is_sealed())
            .collect();
        // Written when there were fewer devices, or more: now metadata has another number of copies.
        let width = self.engine.checkpoints().meta_stream().scheme.width();
        let misfits = meta.iter().filter(|segment| segment.scheme.width() != width && segment.live_bytes() > 0);
        for victim in misfits.take(CONDEMNED_MAX) {
            self.condemn(state, victim)?;
        }
        let held: u64 = meta.iter().map(|segment| self.segment_bytes(segment)).sum();
        let live: u64 = meta.iter().map(|segment| segment.live_bytes()).sum();
        let is_scarce = self.engine.space().lacks_meta_segments();
        let chunk_bytes = u64::from(self.engine.log.chunk_bytes());
        let held_max = if is_scarce { live + live / 8 + 2 * chunk_bytes } else { 2 * live + 3 * chunk_bytes };
        // Where room is scarce it is made as fast as what is free allows: half of it, the rest is for what changed.
        let (percent_max, mut budget) = match (held >= held_max, is_scarce) {
            (false, _) => (0, 0),
            (true, true) => (90, self.engine.space().meta_segments_free() * chunk_bytes / 2),
            (true, false) => (60, u64::MAX),
        };
        let mut victims: Vec<_> = meta
            .into_iter()
            .filter(|segment| {
                let live = segment.live_bytes();
                live > 0 && live * 100 < self.segment_bytes(segment) * percent_max
            })
            .collect();
        victims.sort_by_key(|segment| (segment.live_bytes(), segment.id));
        let count_max = if is_scarce { usize::MAX } else { CONDEMNED_MAX };
        for victim in victims.into_iter().take(count_max) {
            let Some(left) = budget.checked_sub(victim.live_bytes()) else { break };
            budget = left;
            self.condemn(state, &victim)?;
        }
        state.touches.sort_unstable_by_key(|touch| (touch.first_key, touch.level));
        state.touches.dedup();
        Ok(())
    }

    fn condemn(&self, state: &mut Checkpointer, segment: &Arc<Segment>) -> Result<(), Error> {
        let mut touches: Vec<Touch> = Vec::new();
        let mut row_block = 1;
        while row_block < segment.written_blocks() {
            let contents = match self.engine.log.read_row_contents(segment, row_block) {
                Ok(Some(contents)) => contents,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(segment = segment.id, %error, "a metadata segment cannot be emptied now");
                    return Ok(());
                }
            };
            for entry in &contents.entries {
                if let RecordSubject::Node { level, first_key } = entry.subject {
                    touches.push(Touch { first_key, level });
                }
            }
            row_block += contents.header.row_height;
        }
        state.touches.append(&mut touches);
        state.condemned.insert(segment.id);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
