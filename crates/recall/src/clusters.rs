//! Segments that are recalled one after the other belong together, whoever wrote them: then they come together the next time, and
//! repacking writes what is alive in them side by side.
//!
//! A table tells of a segment which others were recalled soon after it, and how often. It is a hint: bounded, kept as keys of the
//! pool with the next step of the work, and losing it harms nothing. Time is what the caller says it is. Invariants: what nobody asked
//! for is fetched when nobody who asked waits, a few segments at a time, into memory that nothing else needs; it comes to devices only
//! when it was read. Read next: `fetch.rs`, `sequence.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use stere_faults::{Bug, is_planted};
use stere_format::Successors;
use stere_log::{Segment, SegmentTable};

use super::Volumes;
use crate::object::object_of;

/// What is fetched before anybody asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Prefetch {
    Nothing,
    /// Where the file goes on that is read, else what was written next.
    #[default]
    Sequence,
    /// That, and what was recalled after this segment before.
    Cluster,
}

impl Prefetch {
    fn from_code(code: u8) -> Prefetch {
        [Prefetch::Nothing, Prefetch::Sequence, Prefetch::Cluster][usize::from(code.min(2))]
    }
}

/// Segments of which it is known what follows.
pub const SEGMENTS_MAX: usize = 1024;
/// What was recalled later than this after another one has nothing to do with it.
const TOGETHER_SECONDS: u64 = 60;
/// So many segments are fetched ahead for one that is recalled.
const AHEAD_MAX: usize = 6;

#[derive(Debug, Default)]
pub struct Known {
    followers: Vec<(u64, u8)>,
    /// The number of the recall that was the last one to use it.
    used: u64,
}

#[derive(Debug, Default)]
pub struct Table {
    known: BTreeMap<u64, Known>,
    recalls: u64,
    /// The segment that was recalled last, and when.
    last: Option<(u64, u64)>,
    /// What is not in the pool's keys as it is here.
    changed: BTreeSet<u64>,
}

/// The table, and what is done with it.
pub struct Clusters {
    pub table: Mutex<Table>,
    now_seconds: AtomicU64,
    prefetch: AtomicU8,
}

impl Default for Clusters {
    fn default() -> Clusters {
        let prefetch = AtomicU8::new(Prefetch::default() as u8);
        Clusters { table: Mutex::default(), now_seconds: AtomicU64::new(0), prefetch }
    }
}

impl Table {
    fn note(&mut self, segment: u64, now_seconds: u64) {
        self.recalls += 1;
        let before = self.last.replace((segment, now_seconds));
        let Some((before, then)) = before.filter(|(before, _)| *before != segment) else { return };
        if now_seconds.saturating_sub(then) > TOGETHER_SECONDS {
            return;
        }
        if self.known.len() >= SEGMENTS_MAX && !self.known.contains_key(&before) {
            let oldest = self.known.iter().min_by_key(|(id, known)| (known.used, **id)).map(|(id, _)| *id);
            oldest.into_iter().for_each(|id| self.forget(id));
        }
        let known = self.known.entry(before).or_default();
        known.used = self.recalls;
        match known.followers.iter().position(|(follower, _)| *follower == segment) {
            Some(at) => known.followers[at].1 = known.followers[at].1.saturating_add(1),
            None if known.followers.len() < Successors::COUNT_MAX => known.followers.push((segment, 1)),
            // What was often so stays until it was often otherwise.
            None => {
                let weakest = known.followers.iter_mut().min_by_key(|(follower, weight)| (*weight, *follower));
                if let Some(weakest) = weakest {
                    *weakest = if weakest.1 > 1 { (weakest.0, weakest.1 - 1) } else { (segment, 1) };
                }
            }
        }
        assert!(known.followers.len() <= Successors::COUNT_MAX, "a value has no room for so many followers");
        self.changed.insert(before);
        assert!(self.known.len() <= SEGMENTS_MAX, "followers of {} segments are known", self.known.len());
    }

    fn forget(&mut self, segment: u64) {
        if self.known.remove(&segment).is_some() {
            self.changed.insert(segment);
        }
    }

    /// Those that were recalled after a segment, the most frequent first.
    pub fn followers(&self, segment: u64) -> Vec<u64> {
        let mut followers = self.known.get(&segment).map(|known| known.followers.clone()).unwrap_or_default();
        followers.sort_by_key(|(follower, weight)| (u8::MAX - weight, *follower));
        followers.into_iter().map(|(follower, _)| follower).collect()
    }

    /// Those that may be wanted after a segment, what comes soonest first.
    fn ahead_of(&self, segment: u64) -> Vec<u64> {
        let (mut ahead, mut ways) = (Vec::new(), VecDeque::from([segment]));
        while let Some(from) = ways.pop_front() {
            for follower in self.followers(from) {
                if ahead.len() == AHEAD_MAX && !is_planted(Bug::AheadUnbounded) {
                    return ahead;
                }
                if follower != segment && !ahead.contains(&follower) {
                    ahead.push(follower);
                    ways.push_back(follower);
                }
            }
        }
        ahead
    }

    /// Takes over what the pool knows; what is `gone` shall be forgotten there.
    pub fn adopt(&mut self, known: BTreeMap<u64, Vec<(u64, u8)>>, gone: BTreeSet<u64>) {
        assert!(known.len() <= SEGMENTS_MAX, "followers of {} segments are taken over", known.len());
        assert!(gone.iter().all(|id| !known.contains_key(id)), "what is known of a segment is kept or goes");
        self.changed = gone;
        self.known = known.into_iter().map(|(id, followers)| (id, Known { followers, used: 0 })).collect();
    }

    /// What changed since this was asked last, as values for the pool; what is said of segments that are gone goes.
    pub fn take_changed(&mut self, is_gone: &dyn Fn(&u64) -> bool) -> Vec<(u64, Option<Vec<u8>>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.iter().filter(|id| is_gone(id)).for_each(|id| drop(self.known.remove(id)));
        let value = |id: u64| {
            let followers = self.known.get(&id).map(|known| known.followers.clone()).unwrap_or_default();
            (!followers.is_empty()).then(|| Successors(followers).encode())
        };
        changed.into_iter().map(|id| (id, value(id))).collect()
    }
}

impl Volumes {
    pub fn prefetch(&self) -> Prefetch {
        Prefetch::from_code(self.clusters.prefetch.load(Ordering::Acquire))
    }

    /// Notes that a released segment is read for the first time since it was released, and begins to fetch what may be wanted next.
    pub(super) fn note_recalled(&self, segment: &Segment, segments: &SegmentTable) {
        let ahead = {
            let mut table = self.clusters.table.lock();
            table.note(segment.id, self.clusters.now_seconds.load(Ordering::Acquire));
            match self.prefetch() {
                Prefetch::Cluster => table.ahead_of(segment.id),
                Prefetch::Nothing | Prefetch::Sequence => Vec::new(),
            }
        };
        for id in ahead {
            // Bringing another medium would be in the way of those who ask.
            let next = segments.get(id).filter(|next| next.is_released() && !self.is_on_media(next.tertiary().there));
            if let Some(next) = next {
                self.fetch_ahead(&next);
            }
        }
    }

    /// On which volume a segment is, and on which medium of it; on each medium, what was written first comes first.
    pub fn place_of(&self, segment: &Segment) -> (u8, String) {
        let there = segment.tertiary().there;
        let number = there.trailing_zeros() as u8;
        let volume = self.table.read().get(&number).and_then(|known| known.volume.clone());
        let medium = volume.and_then(|volume| volume.estimate(&object_of(segment)));
        (number, medium.map(|(medium, _)| medium).unwrap_or_default())
    }

    /// These segments in this order, but those that were recalled one after the other stand one behind the other, in the place of the
    /// first of them.
    pub fn together(&self, segments: Vec<Arc<Segment>>) -> Vec<Arc<Segment>> {
        let table = self.clusters.table.lock();
        let mut places: BTreeMap<u64, usize> = segments.iter().enumerate().map(|(at, one)| (one.id, at)).collect();
        let mut before = BTreeMap::new();
        for segment in &segments {
            let next = table.followers(segment.id).into_iter().find(|next| places.contains_key(next));
            if let Some(next) = next {
                before.entry(next).or_insert(segment.id);
            }
        }
        let mut ordered = Vec::with_capacity(segments.len());
        for segment in &segments {
            if !places.contains_key(&segment.id) {
                continue;
            }
            let (mut first, mut passed) = (segment.id, BTreeSet::from([segment.id]));
            while let Some(earlier) = before.get(&first).filter(|one| places.contains_key(*one) && passed.insert(**one))
            {
                first = *earlier;
            }
            let mut next = places.remove(&first);
            while let Some(at) = next {
                ordered.push(segments[at].clone());
                next = table.followers(segments[at].id).iter().find_map(|follower| places.remove(follower));
            }
            // It may have been passed over for another follower.
            ordered.extend(places.remove(&segment.id).map(|at| segments[at].clone()));
        }
        assert_eq!(ordered.len(), segments.len(), "each segment has its place in the order, once");
        ordered
    }
}

impl Clusters {
    /// What is fetched before anybody asked for it, from now on.
    pub fn set_prefetch(&self, prefetch: Prefetch) {
        self.prefetch.store(prefetch as u8, Ordering::Release);
    }

    pub fn note_time(&self, seconds: u64) {
        self.now_seconds.store(seconds, Ordering::Release);
    }
}
