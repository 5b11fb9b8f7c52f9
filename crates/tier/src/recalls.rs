//! What readers ask of volumes, and what is fetched for them before anybody asks.
//!
//! The state is that of the volumes (the crate `recall`), for reads go through them without the tier; here it is given to
//! those who drive it: threads that are lent, the order in which segments come back, what belongs together.
//! Read next: `stage.rs`; `fetch.rs` and `clusters.rs` of the crate `recall`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use stere_faults::{Bug, is_planted};
use stere_format::{Key, Successors, key};
use stere_log::Io;

use stere_engine::Engine;
use stere_engine::Error;
use stere_recall::BlobHandle;
use stere_recall::CLUSTERED_MAX;
use stere_recall::Part;
use stere_recall::{Parts, Prefetch, RecallMode, TertiaryCounts, Volumes};

/// The segments that were recalled after one, and how often.
type Followers = Vec<(u64, u8)>;

/// Recalls, as those see them who read, wait and look ahead.
pub struct Recalls {
    engine: Arc<Engine>,
    volumes: Arc<Volumes>,
}

impl Recalls {
    pub(super) fn new(engine: &Arc<Engine>) -> Recalls {
        let (engine, volumes) = (engine.clone(), engine.volumes().clone());
        Recalls { engine, volumes }
    }

    /// Whether anybody lends a thread to readers of what is on volumes only.
    pub fn lends_threads(&self) -> bool {
        self.volumes.lends_threads()
    }

    /// Whether anything may be on media only.
    #[inline]
    pub fn may_be_released(&self) -> bool {
        self.volumes.may_be_released.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Asks for segments to be brought back; `Tier::step` does it.
    pub fn want_back(&self, segments: &[u64]) {
        let is_released = |id: &&u64| self.engine.log().segments.get(**id).is_some_and(|segment| segment.is_released());
        segments.iter().filter(is_released).for_each(|id| self.volumes.want(*id));
    }

    /// Whether a segment is asked for, and not back yet.
    pub fn is_wanted_back(&self, segment: u64) -> bool {
        self.volumes.wanted.lock().contains(segment)
    }

    /// Asks no more for segments to be brought back; how many had been asked for. One that is on its way comes.
    pub fn want_back_no_more(&self, segments: &[u64]) -> u64 {
        let mut wanted = self.volumes.wanted.lock();
        let given_up = segments.iter().filter(|id| wanted.contains(**id)).count() as u64;
        segments.iter().for_each(|id| wanted.forget(*id));
        given_up
    }

    /// While readers read what is on volumes only, what they read comes back to devices later, unless too much of it is in memory.
    pub fn defer_staging(&self, is_deferred: bool) {
        self.volumes.is_staging_deferred.store(is_deferred, std::sync::atomic::Ordering::Release);
    }

    /// Segments that are asked for and not back yet.
    pub fn wanted_back(&self) -> u64 {
        let wanted = self.volumes.wanted.lock();
        (wanted.asked_for.len() + wanted.read_again.len()) as u64
    }

    /// The same, without those that come back only because they were read again.
    pub fn asked_back(&self) -> u64 {
        self.volumes.wanted.lock().asked_for.len() as u64
    }

    /// What happens to who reads something that is released.
    pub fn set_recall_mode(&self, mode: RecallMode) {
        self.volumes.set_mode(mode);
    }

    pub fn recall_mode(&self) -> RecallMode {
        self.volumes.mode()
    }

    /// What was asked of volumes since the store was opened.
    pub fn tertiary_counts(&self) -> TertiaryCounts {
        self.volumes.counts()
    }

    /// The object that a released segment has to be read from, and the volumes that have it, as a set.
    pub fn object_of_released(&self, segment: u64) -> Option<(String, u16)> {
        let segment = self.engine.log().segments.get(segment).filter(|segment| segment.is_released())?;
        Some((stere_recall::object_of(&segment), segment.tertiary().there))
    }

    /// What is fetched before anybody asked for it, from now on.
    pub fn set_prefetch(&self, prefetch: Prefetch) {
        self.volumes.clusters.set_prefetch(prefetch);
        self.volumes.fetch_nothing_ahead();
    }

    /// Tells how late it is, by any clock that goes forward: what is recalled long after something else does not belong to it.
    pub fn note_time(&self, seconds: u64) {
        self.volumes.clusters.note_time(seconds);
    }

    /// As `want_back`, in the order in which the segments lie on volumes; how many were not asked for before.
    pub fn want_back_in_order(&self, segments: &[u64]) -> u64 {
        let mut placed: Vec<_> = segments
            .iter()
            .filter_map(|id| self.engine.log().segments.get(*id).filter(|segment| segment.is_released()))
            .map(|segment| (self.volumes.place_of(&segment), segment.id))
            .collect();
        placed.sort_unstable();
        let before = self.wanted_back();
        placed.into_iter().for_each(|(_, id)| self.volumes.want(id));
        self.wanted_back().saturating_sub(before)
    }

    /// Segments that were recalled after this one before, the most frequent first.
    pub fn recalled_after(&self, segment: u64) -> Vec<u64> {
        self.volumes.clusters.table.lock().followers(segment)
    }

    /// Reads the table. What is not understood is not known.
    pub(super) fn load_successors(&self) -> Result<(), Error> {
        let known = self.engine.view(Io::BLOCKING, |view| {
            let mut known = BTreeMap::new();
            let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
            view.scan(from, to, |key, bytes| {
                if key.kind == key::kind::SUCCESSORS && known.len() < CLUSTERED_MAX {
                    let followers = Successors::decode(bytes).map(|successors| successors.0).unwrap_or_default();
                    known.insert(key.object, followers);
                }
                ControlFlow::Continue(())
            })?;
            Ok::<_, Error>(known)
        })?;
        let (known, gone): (BTreeMap<u64, Followers>, BTreeMap<u64, Followers>) =
            known.into_iter().partition(|(id, _)| self.engine.log().segments.get(*id).is_some());
        self.volumes.clusters.table.lock().adopt(known, gone.into_keys().collect());
        Ok(())
    }

    /// Keeps what changed in the table; what is said of segments that are gone goes.
    pub(super) fn keep_successors(&self) -> Result<(), Error> {
        let is_gone = |id: &u64| self.engine.log().segments.get(*id).is_none();
        let changed = self.volumes.clusters.table.lock().take_changed(&is_gone);
        if changed.is_empty() || is_planted(Bug::FollowersForgotten) {
            return Ok(());
        }
        let kept = self.engine.update(Io::BLOCKING, |transaction| {
            for (segment, value) in &changed {
                match value {
                    Some(value) => transaction.put(Key::successors(*segment), value),
                    None => transaction.delete(Key::successors(*segment)),
                }
            }
            Ok::<_, Error>(())
        });
        match kept {
            // It is only a hint.
            Err(Error::NoSpace) => Ok(()),
            kept => kept,
        }
    }

    /// Tells what a reader who begins at the front of a file will want, in the order of the file: all that is asked for on the way is his
    /// part of each segment, by one request. Asks for nothing yet.
    pub fn expect(&self, io: Io<'_>, blobs: &[BlobHandle]) {
        if self.volumes.mode() == RecallMode::Block && !io.is_recall_refused() {
            self.volumes.expect(blobs);
        }
    }

    /// Asks for what belongs together: whole segments back to devices, or its parts of them where it lies scattered. How many segments,
    /// and of how many a part, were not asked for before.
    pub fn want_together(&self, parts: Parts) -> (u64, u64) {
        let is_waited_for = self.volumes.lends_threads() && self.volumes.mode() == RecallMode::Block;
        let by_parts = is_waited_for && parts.is_scattered();
        let Parts { of, mut whole, .. } = parts;
        let is_alone =
            |part: &Part| by_parts && part.is_small() && !self.volumes.is_on_media(part.segment.tertiary().there);
        let (alone, with_others): (Vec<Part>, Vec<Part>) = of.into_values().partition(is_alone);
        whole.extend(with_others.iter().map(|part| part.segment.id));
        let mut alone: Vec<_> = alone.into_iter().map(|part| (self.volumes.place_of(&part.segment), part)).collect();
        alone.sort_by(|(place, part), (other, other_part)| {
            place.cmp(other).then(part.segment.id.cmp(&other_part.segment.id))
        });
        let alone: Vec<Part> = alone.into_iter().map(|(_, part)| part).collect();
        (self.want_back_in_order(&whole), self.volumes.fetch_parts(&alone))
    }

    /// Lends this thread to readers of what is on volumes only, until `end_fetching`.
    pub fn fetch_for_readers(&self) {
        self.volumes.fetch_for_readers();
    }

    /// As if a thread were lent for what nobody asked for yet, or no more; what it would do, `fetch_one_ahead` does.
    pub fn fetch_ahead_in_steps(&self, is_lent: bool) {
        self.volumes.fetch_ahead_in_steps(is_lent);
    }

    /// Fetches one of the segments that nobody asked for yet, if any is to be fetched; tells which.
    pub fn fetch_one_ahead(&self) -> Option<u64> {
        self.volumes.fetch_one_ahead()
    }

    /// Whether whole objects are being fetched now.
    pub fn is_fetching(&self) -> bool {
        self.volumes.is_fetching()
    }

    /// Sends the threads home that were lent.
    pub fn end_fetching(&self) {
        self.volumes.end_fetching();
    }
}
