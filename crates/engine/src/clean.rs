//! Cleaning: live blobs of half-empty segments move to a cold stream, so that whole segments become free.
//!
//! A victim's own row summaries tell which blobs were put there; the blob map tells which of them still are; those are
//! moved (`moving.rs`). Metadata segments are emptied by the next checkpoint, which rewrites the nodes that lie in them
//! (`condemn.rs`). Source: Rosenblum & Ousterhout 1991, section 3.5 (cost-benefit).

use std::sync::Arc;

use parking_lot::MutexGuard;
use rustc_hash::FxHashMap;
use stere_faults::{Bug, is_planted};
use stere_format::{CleanerChoice, CleanerPolicy, Key, SegmentKind, SummaryEntry};
use stere_log::{Io, Segment, StreamKey};

use crate::condemn::segment_bytes;
use crate::engine::Engine;
use crate::error::Error;
use crate::space::{OVERHEAD_PERCENT, SEGMENT_END_BYTES};
use stere_cleaner::{Cleaner, CleaningFigures, Look, in_order, score};

/// Blobs moved per update.
pub const BLOBS_PER_UPDATE: usize = 64;
/// Segments cleaned per pass at most.
const VICTIMS_MAX: usize = 32;

struct Candidate {
    segment: Arc<Segment>,
    live_bytes: u64,
    /// Content that fits into what it gives: its slots on devices that take new chunks are of use to somebody who looks for room.
    gives_bytes: u64,
    policy: CleanerPolicy,
    score: f64,
    /// It gives more than it takes where it goes to.
    gains: bool,
}

/// Which victims come first; the rest come when these are not worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victims {
    Gaining,
    /// What lies in part on devices that take nothing: it gives less than it takes where it goes to.
    Others,
}

impl Victims {
    pub(crate) fn other(self) -> Victims {
        match self {
            Victims::Gaining => Victims::Others,
            Victims::Others => Victims::Gaining,
        }
    }
}

/// Moves data so that room becomes free, and to where policy wants it.
#[derive(Clone, Copy)]
pub struct Cleaning<'a> {
    pub(crate) engine: &'a Engine,
}

impl Engine {
    pub fn cleaning(&self) -> Cleaning<'_> {
        Cleaning::of(self)
    }
}

impl<'a> Cleaning<'a> {
    pub(crate) fn of(engine: &'a Engine) -> Cleaning<'a> {
        Cleaning { engine }
    }
}

impl Cleaning<'_> {
    /// Takes over what the pool holds of how segments are chosen.
    pub(crate) fn load_choice(&self) -> Result<(), Error> {
        let Some(bytes) = self.engine.view(Io::BLOCKING, |view| view.get(&Key::cleaner()))? else { return Ok(()) };
        match CleanerChoice::decode(&bytes) {
            Ok(choice) => *self.engine.cleaner_choice.lock() = choice,
            Err(error) => {
                tracing::error!(%error, "how segments are chosen for cleaning is damaged and counts as not said")
            }
        }
        Ok(())
    }

    pub fn choice(&self) -> CleanerChoice {
        *self.engine.cleaner_choice.lock()
    }

    /// The policy for segments on devices of this class.
    pub fn policy_of(&self, class: u8) -> CleanerPolicy {
        self.choice().of(class).unwrap_or(self.engine.options.cleaner)
    }

    /// Says how segments are chosen from now on. Durable when it returns.
    pub fn set_choice(&self, choice: CleanerChoice) -> Result<(), Error> {
        self.engine.update(Io::BLOCKING, |transaction| {
            match choice.is_said() {
                true => transaction.put(Key::cleaner(), &choice.encode()),
                false => transaction.delete(Key::cleaner()),
            }
            Ok::<_, Error>(())
        })?;
        *self.engine.cleaner_choice.lock() = choice;
        self.engine.commit(Io::BLOCKING)
    }

    pub fn figures(&self) -> CleaningFigures {
        let mut figures = CleaningFigures::of(&self.engine.cleaning_tally);
        let is_counted = |segment: &&Arc<Segment>| segment.kind == SegmentKind::Data && segment.is_sealed();
        for segment in self.engine.log.segments.all().iter().filter(is_counted) {
            figures.add(segment.live_bytes(), segment_bytes(self.engine, segment), segment.temperature);
        }
        figures
    }

    /// Slots that new chunks can have: those of devices that take none do not count.
    pub(crate) fn slots_free(&self) -> u64 {
        let devices = self.engine.log.stripe.slots.open_devices();
        devices
            .into_iter()
            .filter_map(|index| self.engine.log.stripe.slots.usage(index))
            .map(|u| u64::from(u.free))
            .sum()
    }

    /// Cleans while few segments are free, or, when nobody works, what is mostly dead. True when something was done.
    pub(crate) fn clean_in_background(&self, idle: bool) -> Result<bool, Error> {
        let Some(mut cleaner) = self.engine.cleaner.try_lock() else { return Ok(false) };
        let capacity =
            self.engine.log.stripe.slots.capacity(self.engine.fit(stere_format::Scheme { data: 1, parity: 0 }));
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
        let done = self.clean_pass(&mut cleaner, percent, Victims::Gaining)?.is_some();
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
        first: Victims,
    ) -> Result<Option<usize>, Error> {
        assert!(percent <= 100, "segments that are live to {percent} percent");
        let percent = if is_planted(Bug::CleanedForNothing) { 100 } else { percent };
        let candidates = self.candidates(cleaner, percent);
        let candidates = in_order(candidates, |one| (one.policy, one.score, one.segment.id));
        let (gaining, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|candidate| candidate.gains);
        let (first, then) = match first {
            Victims::Gaining => (gaining, others),
            Victims::Others => (others, gaining),
        };
        match self.clean_few(cleaner, first)? {
            None => self.clean_few(cleaner, then),
            done => Ok(done),
        }
    }

    /// Empties the first few of these, if that is worth it.
    fn clean_few(
        &self,
        cleaner: &mut MutexGuard<'_, Cleaner>,
        candidates: Vec<Candidate>,
    ) -> Result<Option<usize>, Error> {
        let gain_goal = candidates.first().map_or(0, |best| 2 * segment_bytes(self.engine, &best.segment));
        let mut gain = 0;
        let mut victims = Vec::new();
        for candidate in candidates.into_iter().take(VICTIMS_MAX) {
            gain += candidate.gives_bytes - candidate.live_bytes.min(candidate.gives_bytes);
            victims.push(candidate.segment);
            if gain >= gain_goal {
                break;
            }
        }
        // Moving less than a segment's worth of holes together frees nothing; what the segment that they go to still takes is one.
        let worth = |first: &Arc<Segment>| gain + self.room_left_for(first) >= segment_bytes(self.engine, first);
        if !victims.first().is_some_and(|first| worth(first) || is_planted(Bug::CleanedForNothing)) {
            return Ok(None);
        }
        let mut emptied = 0;
        let generation = self.engine.inner.read().generation;
        for victim in victims {
            match self.clean_segment(&victim) {
                Ok(true) => {
                    emptied += 1;
                    self.engine.cleaning_tally.note_emptied();
                }
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
        let left = self.engine.log.room_in_open_segment(&self.engine.moving().cold_stream(victim)) as u64;
        left.saturating_sub(SEGMENT_END_BYTES) / 100 * (100 - OVERHEAD_PERCENT)
    }

    fn candidates(&self, cleaner: &Cleaner, percent: u64) -> Vec<Candidate> {
        let now = self.engine.log.counters.get().1;
        let (choice, usual) = (self.choice(), self.engine.options.cleaner);
        let class_of: FxHashMap<u16, u8> =
            self.engine.devices.lock().iter().map(|entry| (entry.index, entry.class)).collect();
        let generation = self.engine.inner.read().generation;
        let open = self.engine.log.stripe.slots.open_devices();
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
                let size = segment_bytes(self.engine, &segment);
                if live_bytes == 0 || live_bytes * 100 > size * percent {
                    return None;
                }
                let chunks = segment.chunks();
                let given = chunks.iter().filter(|place| open.contains(&place.device)).count() as u64;
                let gives_bytes = size * given / chunks.len().max(1) as u64;
                let gains = live_bytes * 100 <= gives_bytes * percent;
                // Of what gains nothing it is counted what all of it has, as before: it comes last.
                let gives_bytes = if gains { gives_bytes } else { size };
                let utilisation = live_bytes as f64 / gives_bytes as f64;
                let age = now.saturating_sub(segment.sequence) as f64 + 1.0;
                let class = chunks.first().and_then(|place| class_of.get(&place.device)).copied().unwrap_or(0);
                let policy = choice.of(class).unwrap_or(usual);
                let score = score(policy, Look { utilisation, age });
                Some(Candidate { segment, live_bytes, gives_bytes, policy, score, gains })
            })
            .collect()
    }

    /// Moves all live blobs out of a segment; false if some could not be read.
    pub fn clean_segment(&self, segment: &Arc<Segment>) -> Result<bool, Error> {
        self.clean_segment_to(segment, &self.engine.moving().cold_stream(segment))
    }

    pub(crate) fn clean_segment_to(&self, segment: &Arc<Segment>, key: &StreamKey) -> Result<bool, Error> {
        assert!(segment.is_sealed(), "segment {} is cleaned while it is written", segment.id);
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

    /// Moves those blobs of the entries that still lie there.
    pub fn move_blobs(
        &self,
        segment: &Segment,
        row_block: u32,
        entries: &[SummaryEntry],
        key: &StreamKey,
    ) -> Result<bool, Error> {
        assert!(entries.len() <= BLOBS_PER_UPDATE, "one update moves {} blobs", entries.len());
        let mut moved = Vec::new();
        let mut is_full = false;
        for (handle, inode, file_offset) in self.engine.moving().live_blobs(segment, row_block, entries)? {
            match self.engine.moving().append_copy(&handle, inode, file_offset, key) {
                Ok((value, to)) => {
                    self.engine.cleaning_tally.note_moved(value.address.length as usize);
                    moved.push((handle, value, to));
                }
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
        self.engine.moving().enter_moved(&moved)?;
        if is_full { Err(Error::NoSpace) } else { Ok(true) }
    }
}
