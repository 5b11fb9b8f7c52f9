//! How archived segments were used: noted by readers, kept in the pool in a bounded table, and what is chosen by.
//!
//! Each segment has one number in memory (the log's `heat.rs`). Now and then, and at the end of a mount, what changed of them is put
//! into pages of the pool; it is durable with whatever is made durable next. Losing all of it is harmless: segments of which nobody knows are
//! looked up by their files once. Invariants: only readers of files note, never what moves, verifies or copies data; the clock is
//! theirs. Read next: `orders.rs`, the naming crate's `room.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_faults::{Bug, is_planted};
use stere_format::{BlobValue, HeatPage, Key, RecordSubject, SegmentHeat, TierPolicy};
use stere_log::{Io, Segment};

use super::media::Media;
use super::orders::Candidate;
use super::stage::is_releasable;
use super::upload::entries_of_segment;
use stere_engine::{Engine, Error, Piece};

/// Segments of which the pool knows how they were used; beyond that those are left out that were used longest ago.
const KNOWN_MAX: usize = 65_536;
/// Blobs that are looked up in one view.
const BLOBS_PER_VIEW: usize = 1024;
/// Pages that are put in one transaction.
const PAGES_AT_ONCE: usize = 64;

/// What of one file is alive in a segment, as its rows tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// Its blobs there.
    pub blobs: BTreeSet<u64>,
    /// Where in the file they begin and end.
    pub from: u64,
    pub to: u64,
}

/// What is alive in a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// By the inode that stored it.
    pub inodes: BTreeMap<u64, Member>,
    /// Some of it is referred to more than once.
    pub is_shared: bool,
}

/// Pages as the pool has them.
pub(super) type Pages = BTreeMap<u64, Vec<u8>>;

fn pages_of(mut known: Vec<(u64, SegmentHeat)>) -> Pages {
    if known.len() > KNOWN_MAX {
        known.sort_unstable_by_key(|(segment, heat)| (std::cmp::Reverse(heat.used_seconds), *segment));
        known.truncate(KNOWN_MAX);
    }
    known.sort_unstable_by_key(|(segment, _)| *segment);
    assert!(known.is_sorted_by(|(one, _), (other, _)| one < other), "a segment has one heat");
    let mut pages: BTreeMap<u64, HeatPage> = BTreeMap::new();
    for (segment, heat) in known {
        pages.entry(segment / HeatPage::SEGMENTS).or_default().entries.push((segment, heat));
    }
    pages.into_iter().map(|(page, value)| (page, value.encode())).collect()
}

/// How archived segments are used.
pub struct Heat {
    engine: Arc<Engine>,
    media: Arc<Media>,
    /// As the pool has it.
    pages: Mutex<Pages>,
}

impl Heat {
    pub(super) fn new(engine: &Arc<Engine>, media: &Arc<Media>) -> Heat {
        Heat { engine: engine.clone(), media: media.clone(), pages: Mutex::default() }
    }

    /// Somebody read these pieces, at that time of his clock.
    #[inline]
    pub fn note_use(&self, pieces: &[Piece], now_seconds: i64) {
        pieces.iter().for_each(|piece| piece.blob.segment.note_use(now_seconds));
    }

    /// What lies in this segment was used then, unless it is known that it was later.
    pub fn inherit_use(&self, segment: u64, used_seconds: i64) {
        if let Some(segment) = self.engine.log().segments.get(segment) {
            segment.heat.inherit(u64::try_from(used_seconds).unwrap_or(0).max(1));
        }
    }

    /// How a segment was used.
    pub fn heat_of(&self, segment: u64) -> SegmentHeat {
        self.engine.log().segments.get(segment).map(|segment| segment.heat.get()).unwrap_or_default()
    }

    /// Reads what the pool knows. Who opens a store needs none of it, so what cannot be read is as if it were not there.
    pub(super) fn load(&self) -> Result<(), Error> {
        let pages = self.engine.view(Io::BLOCKING, |view| {
            let mut pages = Pages::new();
            view.scan(Key::heat(0), Key::heat(u64::MAX), |key, bytes| {
                pages.insert(key.position, bytes.to_vec());
                ControlFlow::Continue(())
            })?;
            Ok::<_, Error>(pages)
        })?;
        for (page, bytes) in &pages {
            match HeatPage::decode(*page, bytes) {
                Ok(page) => {
                    for (id, heat) in page.entries {
                        let segment =
                            self.engine.log().segments.get(id).filter(|segment| !segment.tertiary().is_none());
                        segment.iter().for_each(|segment| segment.heat.set(heat));
                    }
                }
                Err(error) => tracing::warn!(page, %error, "how segments were used is not known"),
            }
        }
        *self.pages.lock() = pages;
        Ok(())
    }

    /// Puts into the pool what changed since it was put there last; how many pages. It is durable with the next commit.
    pub fn keep_heat(&self) -> Result<usize, Error> {
        self.engine.check_writable()?;
        if is_planted(Bug::HeatForgotten) {
            return Ok(0);
        }
        let mut kept = self.pages.lock();
        let is_known = |segment: &Arc<Segment>| {
            let heat = segment.heat.get();
            let is_used = heat.used_seconds > 0 && !segment.tertiary().is_none() && segment.live_bytes() > 0;
            is_used.then_some((segment.id, heat))
        };
        let pages = pages_of(self.engine.log().segments.everywhere().iter().filter_map(is_known).collect());
        let gone = kept.keys().filter(|page| !pages.contains_key(*page)).map(|page| (*page, None));
        let is_new = |(page, bytes): &(&u64, &Vec<u8>)| kept.get(*page) != Some(*bytes);
        let changed = pages.iter().filter(is_new).map(|(page, bytes)| (*page, Some(bytes)));
        let changes: Vec<_> = gone.chain(changed).collect();
        for some in changes.chunks(PAGES_AT_ONCE) {
            self.engine.update(Io::BLOCKING, |transaction| {
                for (page, bytes) in some {
                    match bytes {
                        Some(bytes) => transaction.put(Key::heat(*page), bytes),
                        None => transaction.delete(Key::heat(*page)),
                    }
                }
                Ok::<_, Error>(())
            })?;
        }
        let count = changes.len();
        *kept = pages;
        Ok(count)
    }

    /// What may be released, with what is known of its use.
    pub fn release_candidates(&self) -> Vec<Candidate> {
        if !self.media.has_volumes() {
            return Vec::new();
        }
        let segments = self.engine.log().segments.all().into_iter().filter(|segment| is_releasable(segment));
        segments.map(|segment| Candidate::new(segment.id, on_devices(&segment), segment.heat.get())).collect()
    }

    /// Bytes that are on volumes and came back to devices.
    pub fn bytes_back(&self) -> u64 {
        let back = self.engine.log().segments.all().into_iter().filter(|segment| segment.heat.get().is_back);
        back.filter(|segment| is_releasable(segment)).map(|segment| on_devices(&segment)).sum()
    }

    /// The inodes that the rows of a segment on devices say they belong to. What cannot be read names none.
    pub fn inodes_of_segment(&self, segment: u64) -> BTreeSet<u64> {
        let Some(segment) = self.engine.log().segments.get(segment).filter(|segment| !segment.is_released()) else {
            return BTreeSet::new();
        };
        let rows = entries_of_segment(self.engine.log(), &segment);
        let subjects = rows.into_iter().flat_map(|(_, entries)| entries).map(|entry| entry.subject);
        subjects
            .filter_map(|subject| match subject {
                RecordSubject::Blob { inode, .. } => Some(inode),
                _ => None,
            })
            .collect()
    }

    /// What is alive in a segment that is on devices, from what lies on them.
    pub fn members_of_segment(&self, segment: u64) -> Result<Members, Error> {
        let mut members = Members::default();
        let Some(segment) = self.engine.log().segments.get(segment).filter(|segment| !segment.is_released()) else {
            return Ok(members);
        };
        let rows = entries_of_segment(self.engine.log(), &segment);
        for some in rows.into_iter().flat_map(|(_, entries)| entries).collect::<Vec<_>>().chunks(BLOBS_PER_VIEW) {
            let found = self.engine.view(Io::BLOCKING, |view| {
                let mut found = Vec::new();
                for entry in some {
                    let RecordSubject::Blob { blob, inode, file_offset, logical_bytes, .. } = entry.subject else {
                        continue;
                    };
                    let Some(bytes) = view.get(&Key::blob(blob))? else { continue };
                    let value = BlobValue::decode(&bytes);
                    // One that is not understood is nobody's that could be asked.
                    let is_shared = value.as_ref().map_or(true, |value| value.references > 1);
                    if value.map_or(true, |value| value.address.segment == segment.id) {
                        found.push((inode, blob, file_offset, file_offset + u64::from(logical_bytes), is_shared));
                    }
                }
                Ok::<_, Error>(found)
            })?;
            for (inode, blob, from, to, is_shared) in found {
                members.is_shared |= is_shared;
                let fresh = || Member { from, to, ..Member::default() };
                let member = members.inodes.entry(inode).or_insert_with(fresh);
                (member.from, member.to) = (member.from.min(from), member.to.max(to));
                member.blobs.insert(blob);
            }
        }
        Ok(members)
    }

    /// In which order segments are released; what nobody said is as usual.
    pub fn tier_policy(&self, io: Io<'_>) -> Result<TierPolicy, Error> {
        let value = self.engine.view(io, |view| view.get(&Key::tier_policy()))?;
        Ok(value.and_then(|bytes| TierPolicy::decode(&bytes).ok()).unwrap_or_default())
    }

    pub fn set_tier_policy(&self, policy: TierPolicy) -> Result<(), Error> {
        self.engine.update(Io::BLOCKING, |transaction| {
            transaction.put(Key::tier_policy(), &policy.encode());
            Ok::<_, Error>(())
        })?;
        self.engine.commit(Io::BLOCKING)
    }
}

/// What the live bytes of a segment take on devices.
fn on_devices(segment: &Segment) -> u64 {
    segment.live_bytes() * segment.scheme.width() as u64 / u64::from(segment.scheme.data.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P-137: the table is bounded, and keeps what was used last.
    #[test]
    fn the_table_is_bounded() {
        let heat = |used_seconds| SegmentHeat { used_seconds, references: 1, is_back: false };
        // Every third number; the older they are the greater.
        let known: Vec<_> = (0..70_000u64).map(|number| (number * 3, heat(100_000 - number))).collect();
        let pages = pages_of(known);
        let decoded = pages.iter().map(|(page, bytes)| HeatPage::decode(*page, bytes).unwrap());
        let entries: Vec<_> = decoded.flat_map(|page| page.entries).collect();
        assert_eq!(entries.len(), KNOWN_MAX);
        assert_eq!(entries.first(), Some(&(0, heat(100_000))));
        assert_eq!(entries.last().unwrap().0, (KNOWN_MAX as u64 - 1) * 3);
        assert!(pages.values().map(Vec::len).max() <= Some(HeatPage::FIXED_BYTES + 128 * HeatPage::ENTRY_BYTES));
    }
}
