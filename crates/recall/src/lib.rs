//! Recall: reads of archived segments from media, which are slow and may be away for as long as they like.
//!
//! A segment of a tertiary stream is written to devices as any other, at the redundancy that its files had. Sealed and durable, it is
//! copied out as one object to each of its volumes, read back and compared. From then on its chunks on devices are a cache:
//! *released* they are given up, *staged* they are written again from the object. The segment table says all of it, so every
//! state that a crash leaves names a place where the bytes are.
//!
//! `Volumes` knows the media of a pool and how to reach them, and reads from them for the engine above. What is copied out, released
//! and staged, the tier decides, which keeps its notes about volumes here too. Invariants: bytes are given only when they match the
//! checksums that the caller has; one fetch serves all readers who wait for the same segment; nothing here calls the engine.
//! Read next: `recall.rs`, `fetch.rs`, the log's `read.rs`, `docs/design/tiering.md`.

mod bad;
mod beginning;
mod blob;
mod clusters;
mod error;
mod fetch;
mod labelled;
mod object;
mod parts;
mod recall;
mod sequence;
mod succession;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use stere_device::{MediumWait, Volume, VolumeError};
use stere_faults::{Bug, is_planted};
use stere_format::{PoolId, VolumeEntry, catalogue_name};
use stere_log::{Io, Segment, SegmentTable};

use beginning::{Begun, Pace};
pub use blob::BlobHandle;
pub use clusters::{Prefetch, SEGMENTS_MAX as CLUSTERED_MAX};
pub use error::{ReadError, RecallError, Refusal};
pub use labelled::{LabelledVolume, read_label, stranger};
pub use object::{is_object_of, object_bytes, object_of};
pub use parts::{Part, Parts};
use sequence::Referred;

/// What happens to who reads something that is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RecallMode {
    /// It waits for the bytes, also while the volume is away.
    #[default]
    Block,
    /// It is told to come back; the bytes are fetched meanwhile.
    NoWait,
    /// It is refused, and nothing is fetched.
    Deny,
}

impl RecallMode {
    fn from_code(code: u8) -> RecallMode {
        [RecallMode::Block, RecallMode::NoWait, RecallMode::Deny][usize::from(code.min(2))]
    }
}

/// From so many reads on a segment is fetched whole.
const REFERENCES_WHOLE: u32 = 2;
/// The class of media that are slow to position: whatever is read of them is read whole.
pub const CLASS_MEDIA: u8 = 4;

/// What was asked of volumes, since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TertiaryCounts {
    /// Stored bytes that began their way to volumes: appended to a stream whose segments go there.
    pub bytes_archived: u64,
    pub segments_uploaded: u64,
    pub bytes_uploaded: u64,
    /// Reads of objects for readers and for staging, and their bytes.
    pub fetches: u64,
    pub bytes_fetched: u64,
    /// Objects that were not what they should be.
    pub bad_objects: u64,
}

#[derive(Default)]
pub struct Counters {
    bytes_archived: AtomicU64,
    pub segments_uploaded: AtomicU64,
    pub bytes_uploaded: AtomicU64,
    fetches: AtomicU64,
    bytes_fetched: AtomicU64,
    pub bad_objects: AtomicU64,
}

/// A volume that can be asked.
pub type Reachable = (VolumeEntry, Arc<dyn Volume>);

/// A volume of the table, and how to reach it if anybody knows.
#[derive(Clone)]
pub struct Known {
    pub entry: VolumeEntry,
    pub volume: Option<Arc<dyn Volume>>,
    /// What it said last, where that was bad.
    pub complaint: Option<String>,
    /// That is that it is full.
    pub is_full: bool,
}

/// Segments to be brought back, in the order in which they were asked for.
#[derive(Default)]
pub struct Wanted {
    pub asked_for: VecDeque<u64>,
    /// Such as were read more than once: they can wait until nobody reads, as long as they are in memory.
    pub read_again: VecDeque<u64>,
}

impl Wanted {
    pub fn contains(&self, segment: u64) -> bool {
        self.asked_for.contains(&segment) || self.read_again.contains(&segment)
    }

    pub fn forget(&mut self, segment: u64) {
        self.asked_for.retain(|wanted| *wanted != segment);
        self.read_again.retain(|wanted| *wanted != segment);
    }
}

/// The volumes of a pool, and what readers want of them.
pub struct Volumes {
    pool: PoolId,
    pub table: RwLock<BTreeMap<u8, Known>>,
    /// Those that were retired, whose numbers stand for their heirs'.
    pub retired: RwLock<BTreeMap<u8, VolumeEntry>>,
    mode: AtomicU8,
    pub fetches: fetch::Fetches,
    beginnings: beginning::Beginnings,
    pub clusters: clusters::Clusters,
    references: Mutex<BTreeMap<u64, sequence::Reference>>,
    pub wanted: Mutex<Wanted>,
    pub is_staging_deferred: AtomicBool,
    /// Objects that nobody needs any more, with the volumes they are on.
    pub garbage: Mutex<Vec<(String, u16)>>,
    /// Segments that volumes do not give, with those volumes as a set.
    bad: Mutex<BTreeMap<u64, u16>>,
    /// Segments that could not be uploaded, and why.
    pub stuck: Mutex<BTreeMap<u64, String>>,
    /// Whether anything may be released; stays set until the store is opened anew.
    pub may_be_released: AtomicBool,
    /// One step at a time.
    pub work: Mutex<()>,
    /// Held for reading by whoever copies out, for writing by whoever deletes objects by their names. After `work`.
    pub uploads: RwLock<()>,
    pub counters: Counters,
}

impl Volumes {
    pub fn new(pool: PoolId) -> Volumes {
        Volumes {
            pool,
            table: RwLock::default(),
            retired: RwLock::default(),
            mode: AtomicU8::new(0),
            fetches: fetch::Fetches::default(),
            beginnings: beginning::Beginnings::default(),
            clusters: clusters::Clusters::default(),
            references: Mutex::default(),
            wanted: Mutex::default(),
            is_staging_deferred: AtomicBool::new(false),
            garbage: Mutex::default(),
            bad: Mutex::default(),
            stuck: Mutex::default(),
            may_be_released: AtomicBool::new(false),
            work: Mutex::new(()),
            uploads: RwLock::new(()),
            counters: Counters::default(),
        }
    }

    pub fn note_released(&self) {
        self.may_be_released.store(true, Ordering::Release);
    }

    pub fn set_mode(&self, mode: RecallMode) {
        self.mode.store(mode as u8, Ordering::Release);
    }

    pub fn mode(&self) -> RecallMode {
        RecallMode::from_code(self.mode.load(Ordering::Acquire))
    }

    /// Counts what goes to a stream of theirs.
    pub fn note_archived(&self, bytes: u64) {
        self.counters.bytes_archived.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn counts(&self) -> TertiaryCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TertiaryCounts {
            bytes_archived: load(&self.counters.bytes_archived),
            segments_uploaded: load(&self.counters.segments_uploaded),
            bytes_uploaded: load(&self.counters.bytes_uploaded),
            fetches: load(&self.counters.fetches),
            bytes_fetched: load(&self.counters.bytes_fetched),
            bad_objects: load(&self.counters.bad_objects),
        }
    }

    /// The volumes of a set that can be asked, and why the others cannot.
    pub fn reachable(&self, set: u16) -> (Vec<Reachable>, Vec<String>) {
        let (mut there, mut away) = (Vec::new(), Vec::new());
        for known in self.table.read().values().filter(|known| known.entry.bit() & set != 0) {
            match &known.volume {
                Some(volume) if !known.entry.is_offline => there.push((known.entry.clone(), volume.clone())),
                _ => away.push(format!(
                    "medium {} is not there (it was last at {}); bring it and use `stere device online`",
                    known.entry.name, known.entry.place
                )),
            }
        }
        (there, away)
    }

    /// Notes what a volume answered, for those who ask how it does.
    pub fn note(&self, number: u8, error: Option<&VolumeError>) {
        let complaint = error.map(ToString::to_string);
        let is_news = self.table.read().get(&number).is_some_and(|known| known.complaint != complaint);
        if !is_news {
            return;
        }
        if let Some(known) = self.table.write().get_mut(&number) {
            match &complaint {
                Some(text) => tracing::warn!(volume = known.entry.name, "{text}"),
                None => tracing::info!(volume = known.entry.name, "the medium answers again"),
            }
            known.complaint = complaint;
            known.is_full = matches!(error, Some(VolumeError::Full { .. }));
        }
    }

    /// The same of one that was only looked for: that it is there does not say that it has room.
    pub fn note_looked_for(&self, number: u8, error: Option<&VolumeError>) {
        let is_full = self.table.read().get(&number).is_some_and(|known| known.is_full);
        if error.is_some() || !is_full {
            self.note(number, error);
        }
    }

    /// Asks the volumes that have the segment, one after the other, until one gives what is right. `get` tells whether that is so.
    fn ask(
        &self,
        segment: &Segment,
        bytes: usize,
        get: &mut dyn FnMut(&dyn Volume, &str) -> Result<bool, VolumeError>,
    ) -> Result<(), RecallError> {
        let set = segment.tertiary().there;
        if set == 0 {
            return Err(RecallError::Damaged(format!("segment {} is on no medium", segment.id)));
        }
        let (there, mut away) = self.reachable(set);
        let name = object_of(segment);
        let mut wrong = Vec::new();
        let asked = if is_planted(Bug::FirstVolumeOnly) { 1 } else { there.len() };
        for (entry, volume) in there.into_iter().take(asked) {
            self.counters.fetches.fetch_add(1, Ordering::Relaxed);
            match get(&*volume, &name) {
                Ok(true) => {
                    self.counters.bytes_fetched.fetch_add(bytes as u64, Ordering::Relaxed);
                    self.note(entry.number, None);
                    return Ok(());
                }
                Ok(false) => {
                    self.note_bad(segment.id, entry.bit());
                    wrong.push(format!("object {name} on medium {} has wrong bytes", entry.name));
                }
                // It says nothing of the volume, and no other one is asked.
                Err(error @ VolumeError::GivenUp { .. }) => {
                    return Err(RecallError::Refused(Refusal::Later, error.to_string()));
                }
                Err(error) => {
                    self.note(entry.number, Some(&error));
                    match error.is_passing() {
                        true => away.push(format!("medium {}: {error}", entry.name)),
                        false => {
                            self.note_bad(segment.id, entry.bit());
                            wrong.push(format!("medium {}: {error}", entry.name));
                        }
                    }
                }
            }
        }
        self.counters.bad_objects.fetch_add(wrong.len() as u64, Ordering::Relaxed);
        wrong.iter().for_each(|text| tracing::error!(segment = segment.id, "{text}"));
        match away.is_empty() {
            true => Err(RecallError::Damaged(wrong.join("; "))),
            // Another copy may be right.
            false => Err(RecallError::Refused(Refusal::Away, away.join("; "))),
        }
    }

    /// A part of the segment's chunk.
    fn fetch(
        &self,
        io: Io<'_>,
        segment: &Segment,
        offset: u64,
        into: &mut [u8],
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(), RecallError> {
        let wait = MediumWait::of_reader(io.cancellation());
        self.ask(segment, into.len(), &mut |volume, name| {
            volume.get(name, offset, into, &wait).map(|()| is_right(into))
        })
    }

    pub fn forget_fetched(&self, segment: u64) {
        self.fetches.forget(segment);
        self.expect_no_more(segment);
        self.references.lock().remove(&segment);
    }

    /// Asks for a segment to be brought back.
    pub fn want(&self, segment: u64) {
        let mut wanted = self.wanted.lock();
        if !wanted.asked_for.contains(&segment) {
            wanted.asked_for.push_back(segment);
        }
    }

    /// The segment to bring back next, if one is to come back now.
    pub fn wanted_first(&self) -> Option<u64> {
        let is_deferred = self.is_staging_deferred.load(Ordering::Acquire) && !self.fetches.are_many_kept();
        let wanted = self.wanted.lock();
        let read_again = wanted.read_again.front().filter(|_| !is_deferred);
        wanted.asked_for.front().or(read_again).copied()
    }

    /// A segment that is read again and again comes back to the devices, in time.
    fn want_again(&self, segment: u64) {
        let mut wanted = self.wanted.lock();
        if !wanted.contains(segment) {
            wanted.read_again.push_back(segment);
        }
    }

    /// Nothing names this segment any more, not even an old checkpoint.
    pub fn discard(&self, segment: &Segment) {
        let there = segment.tertiary().there;
        if there != 0 {
            self.discard_object(segment, there);
        }
    }

    pub fn discard_object(&self, segment: &Segment, volumes: u16) {
        let names = [object_of(segment), catalogue_name(segment.id, segment.sequence)];
        self.garbage.lock().extend(names.map(|name| (name, volumes)));
    }

    /// Whether all volumes of a set may have names on them.
    pub fn all_take_metadata(&self, set: u16) -> bool {
        self.table.read().values().all(|known| set & known.entry.bit() == 0 || known.entry.takes_metadata)
    }

    pub fn is_answering(&self, set: u16) -> bool {
        let is_good = |known: &Known| {
            let is_used = known.volume.is_some() && !known.entry.is_offline && known.complaint.is_none();
            known.entry.bit() & set != 0 && is_used
        };
        self.table.read().values().any(is_good)
    }

    pub fn is_on_media(&self, set: u16) -> bool {
        self.table.read().values().any(|known| known.entry.bit() & set != 0 && known.entry.class == CLASS_MEDIA)
    }
}

impl Volumes {
    /// Fills `into` with what the segment's chunk holds from `offset` on, so that `is_right` accepts it. `segments` are those of which
    /// one may be wanted next.
    fn read(
        &self,
        io: Io<'_>,
        segment: &Arc<Segment>,
        offset: u64,
        into: &mut [u8],
        is_right: &dyn Fn(&[u8]) -> bool,
        segments: &SegmentTable,
    ) -> Result<(), RecallError> {
        // Somebody in particular may be refused what others get.
        let is_refused = io.is_recall_refused() && !is_planted(Bug::RecallAnyway);
        let mode = if is_refused { RecallMode::Deny } else { self.mode() };
        let refused = |refusal, text: &str| Err(RecallError::Refused(refusal, text.to_owned()));
        let begun = self.is_expected(segment.id, offset, into.len());
        let Referred { count, is_first, is_on_to_next } = match is_refused {
            true => Referred::default(),
            false => self.refer(segment, offset, into.len(), begun != Begun::Not),
        };
        if is_first && mode != RecallMode::Deny {
            self.note_recalled(segment, segments);
        }
        if mode == RecallMode::Block {
            self.look_ahead(segment, offset..offset + into.len() as u64, is_on_to_next, segments);
        }
        if self.fetches.kept(segment.id).is_some_and(|chunk| fetch::give_part(&chunk, offset, into, is_right)) {
            if count >= REFERENCES_WHOLE && mode == RecallMode::Block {
                self.want_again(segment.id);
            }
            return Ok(());
        }
        match mode {
            RecallMode::Deny if is_refused => {
                return refused(Refusal::Denied, "recalls by this program are refused on this mount (recall_deny=)");
            }
            RecallMode::Deny if is_planted(Bug::RecallAnyway) => {}
            RecallMode::Deny => return refused(Refusal::Denied, "recalls are refused on this mount (recall=deny)"),
            RecallMode::NoWait => {
                if !is_planted(Bug::LaterForgotten) {
                    self.want(segment.id);
                }
                let text = "the bytes are on a medium and are being fetched (recall=nowait); come back later";
                return refused(Refusal::Later, text);
            }
            RecallMode::Block => {}
        }
        let is_on_media = self.is_on_media(segment.tertiary().there);
        let is_used = count >= REFERENCES_WHOLE || self.fetches.is_under_way(segment.id);
        if let Begun::InRange(pace) = begun {
            if !is_used && self.give_expected(io, segment, offset, into, pace, is_right) {
                return Ok(());
            }
        }
        let is_worth_it = is_used || is_on_media || matches!(begun, Begun::InWhole(_));
        let is_patient = is_on_media || begun == Begun::InWhole(Pace::OnEnd);
        // Where the whole cannot be had, a part of it may be all the same.
        if is_worth_it && self.give_from_whole(io, segment, offset, into, is_patient, is_right) {
            self.want_again(segment.id);
            return Ok(());
        }
        self.fetch(io, segment, offset, into, is_right)
    }
}
