//! Tertiary volumes: slow places that hold copies of whole segments, and may be away for as long as they like.
//!
//! A segment of a tertiary stream is written to devices as any other, at the redundancy that its files had. Sealed and durable, it is
//! copied out as one object to each of its volumes, read back and compared (`tertiary/upload.rs`). From then on its chunks on
//! devices are a cache: *released* they are given up, *staged* they are written again from the object (`tertiary/stage.rs`). The
//! segment table says all of it, so every state that a crash leaves names a place where the bytes are.
//!
//! Nothing local ever waits for a volume: not commits, nor checkpoints, nor the cleaner. Who reads what is released waits, if that
//! was chosen; one fetch serves all who wait for the same segment. The work goes on in steps, by whoever calls
//! `Store::tertiary_step`. Read next: the log's `recall.rs`, `docs/design/tiering.md`.

mod metadata;
mod remnants;
mod repack;
mod stage;
mod table;
mod upload;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, RwLock};
use stere_device::planted::{Bug, is_planted};
use stere_device::{Patience, Volume, VolumeError};
use stere_format::{BLOCK_BYTES, ChunkHeader, PoolId, VolumeEntry, catalogue_name, object_name};
use stere_log::{Recall, RecallError, Refusal, Segment, proves_chunk};

pub use remnants::Swept;
pub use repack::Repacked;
pub use stage::{Released, TierFile};
pub use stere_format::TierMarks;
pub use table::VolumeStatus;
pub use upload::{Describe, TertiaryProgress};

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

/// Whole chunks that were fetched lately, kept until they are staged, at most so many bytes of them.
const FETCHED_BYTES_MAX: usize = 32 << 20;
/// From so many reads on a segment is fetched whole.
const REFERENCES_WHOLE: u32 = 2;
/// Segments that are remembered to have been read.
const REFERENCES_MAX: usize = 4096;
/// The class of media that are slow to position: whatever is read of them is read whole.
const CLASS_MEDIA: u8 = 4;

/// What was asked of volumes, since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TertiaryCounts {
    pub segments_uploaded: u64,
    pub bytes_uploaded: u64,
    /// Reads of objects for readers and for staging, and their bytes.
    pub fetches: u64,
    pub bytes_fetched: u64,
    /// Objects that were not what they should be.
    pub bad_objects: u64,
}

#[derive(Default)]
struct Counters {
    segments_uploaded: AtomicU64,
    bytes_uploaded: AtomicU64,
    fetches: AtomicU64,
    bytes_fetched: AtomicU64,
    bad_objects: AtomicU64,
}

/// A volume that can be asked.
type Reachable = (VolumeEntry, Arc<dyn Volume>);

/// A volume of the table, and how to reach it if anybody knows.
#[derive(Clone)]
struct Known {
    entry: VolumeEntry,
    volume: Option<Arc<dyn Volume>>,
    /// What it said last, where that was bad.
    complaint: Option<String>,
}

#[derive(Default)]
struct Fetched {
    chunks: VecDeque<(u64, Arc<Vec<u8>>)>,
    under_way: BTreeSet<u64>,
}

/// The volumes of a pool, and what readers want of them.
pub(crate) struct Volumes {
    pool: PoolId,
    table: RwLock<BTreeMap<u8, Known>>,
    mode: AtomicU8,
    fetched: Mutex<Fetched>,
    arrived: Condvar,
    references: Mutex<BTreeMap<u64, u32>>,
    /// Segments to be brought back, in the order in which they were asked for.
    wanted: Mutex<VecDeque<u64>>,
    /// Objects that nobody needs any more, with the volumes they are on.
    garbage: Mutex<Vec<(String, u16)>>,
    /// Segments that could not be uploaded, and why.
    stuck: Mutex<BTreeMap<u64, String>>,
    /// Segments that could not be repacked, with their live bytes then.
    unpackable: Mutex<BTreeMap<u64, u64>>,
    /// Whether anything may be released; stays set until the store is opened anew.
    may_be_released: AtomicBool,
    /// One step at a time.
    work: Mutex<()>,
    counters: Counters,
    metadata: Mutex<metadata::Copies>,
}

impl Volumes {
    pub fn new(pool: PoolId) -> Volumes {
        Volumes {
            pool,
            table: RwLock::default(),
            mode: AtomicU8::new(0),
            fetched: Mutex::default(),
            arrived: Condvar::new(),
            references: Mutex::default(),
            wanted: Mutex::default(),
            garbage: Mutex::default(),
            stuck: Mutex::default(),
            unpackable: Mutex::default(),
            may_be_released: AtomicBool::new(false),
            work: Mutex::new(()),
            counters: Counters::default(),
            metadata: Mutex::default(),
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

    pub fn counts(&self) -> TertiaryCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TertiaryCounts {
            segments_uploaded: load(&self.counters.segments_uploaded),
            bytes_uploaded: load(&self.counters.bytes_uploaded),
            fetches: load(&self.counters.fetches),
            bytes_fetched: load(&self.counters.bytes_fetched),
            bad_objects: load(&self.counters.bad_objects),
        }
    }

    /// The volumes of a set that can be asked, and why the others cannot.
    fn reachable(&self, set: u16) -> (Vec<Reachable>, Vec<String>) {
        let (mut there, mut away) = (Vec::new(), Vec::new());
        for known in self.table.read().values().filter(|known| known.entry.bit() & set != 0) {
            match &known.volume {
                Some(volume) if !known.entry.is_offline => there.push((known.entry.clone(), volume.clone())),
                _ => away.push(format!(
                    "volume {} is not there (it was last at {}); bring it and use `stere device online`",
                    known.entry.name, known.entry.place
                )),
            }
        }
        (there, away)
    }

    /// Notes what a volume answered, for those who ask how it does.
    fn note(&self, number: u8, error: Option<&VolumeError>) {
        let complaint = error.map(ToString::to_string);
        let is_news = self.table.read().get(&number).is_some_and(|known| known.complaint != complaint);
        if !is_news {
            return;
        }
        if let Some(known) = self.table.write().get_mut(&number) {
            match &complaint {
                Some(text) => tracing::warn!(volume = known.entry.name, "{text}"),
                None => tracing::info!(volume = known.entry.name, "the volume answers again"),
            }
            known.complaint = complaint;
        }
    }

    /// Asks the volumes that have the segment, one after the other, until one gives what is right.
    fn fetch(
        &self,
        segment: &Segment,
        offset: u64,
        into: &mut [u8],
        patience: Patience,
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(), RecallError> {
        let set = segment.tertiary().there;
        if set == 0 {
            return Err(RecallError::Damaged(format!("segment {} is on no volume", segment.id)));
        }
        let (there, mut away) = self.reachable(set);
        let name = object_name(segment.id, segment.sequence);
        let mut wrong = Vec::new();
        let asked = if is_planted(Bug::FirstVolumeOnly) { 1 } else { there.len() };
        for (entry, volume) in there.into_iter().take(asked) {
            self.counters.fetches.fetch_add(1, Ordering::Relaxed);
            match volume.get(&name, offset, into, patience) {
                Ok(()) if is_right(into) => {
                    self.counters.bytes_fetched.fetch_add(into.len() as u64, Ordering::Relaxed);
                    self.note(entry.number, None);
                    return Ok(());
                }
                Ok(()) => wrong.push(format!("object {name} on volume {} has wrong bytes", entry.name)),
                Err(error) => {
                    self.note(entry.number, Some(&error));
                    match error.is_passing() {
                        true => away.push(format!("volume {}: {error}", entry.name)),
                        false => wrong.push(format!("volume {}: {error}", entry.name)),
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

    /// The whole chunk, proven: one fetch for all who want it at the same time.
    fn whole(&self, segment: &Segment, patience: Patience) -> Result<Arc<Vec<u8>>, RecallError> {
        let mut fetched = self.fetched.lock();
        loop {
            if let Some((_, chunk)) = fetched.chunks.iter().find(|(id, _)| *id == segment.id) {
                return Ok(chunk.clone());
            }
            if fetched.under_way.insert(segment.id) {
                break;
            }
            if patience == Patience::Now {
                // Whoever fetches it may wait for a person.
                let text = format!("segment {} is being fetched", segment.id);
                return Err(RecallError::Refused(Refusal::Later, text));
            }
            self.arrived.wait(&mut fetched);
        }
        drop(fetched);
        let mut bytes = vec![0; segment.written_blocks() as usize * BLOCK_BYTES];
        let (pool, id, sequence) = (self.pool, segment.id, segment.sequence);
        let is_right = |bytes: &[u8]| is_object_of(pool, id, sequence, bytes);
        let outcome = self.fetch(segment, 0, &mut bytes, patience, &is_right);
        let mut fetched = self.fetched.lock();
        fetched.under_way.remove(&segment.id);
        self.arrived.notify_all();
        outcome?;
        let chunk = Arc::new(bytes);
        fetched.chunks.push_back((segment.id, chunk.clone()));
        let mut kept: usize = fetched.chunks.iter().map(|(_, chunk)| chunk.len()).sum();
        while kept > FETCHED_BYTES_MAX && fetched.chunks.len() > 1 {
            kept -= fetched.chunks.pop_front().map_or(0, |(_, chunk)| chunk.len());
        }
        Ok(chunk)
    }

    fn fetched(&self, segment: u64) -> Option<Arc<Vec<u8>>> {
        self.fetched.lock().chunks.iter().find(|(id, _)| *id == segment).map(|(_, chunk)| chunk.clone())
    }

    fn forget_fetched(&self, segment: u64) {
        self.fetched.lock().chunks.retain(|(id, _)| *id != segment);
        self.references.lock().remove(&segment);
    }

    /// Counts one more read of a released segment.
    fn refer(&self, segment: u64) -> u32 {
        let mut references = self.references.lock();
        if references.len() >= REFERENCES_MAX {
            references.clear();
        }
        let count = references.entry(segment).or_insert(0);
        *count = count.saturating_add(1);
        *count
    }

    /// Asks for a segment to be brought back.
    pub fn want(&self, segment: u64) {
        let mut wanted = self.wanted.lock();
        if !wanted.contains(&segment) {
            wanted.push_back(segment);
        }
    }

    /// Nothing names this segment any more, not even an old checkpoint.
    pub fn discard(&self, segment: &Segment) {
        let there = segment.tertiary().there;
        if there != 0 {
            self.discard_object(segment, there);
        }
    }

    fn discard_object(&self, segment: &Segment, volumes: u16) {
        let names = [object_name(segment.id, segment.sequence), catalogue_name(segment.id, segment.sequence)];
        self.garbage.lock().extend(names.map(|name| (name, volumes)));
    }

    fn is_answering(&self, set: u16) -> bool {
        let is_good = |known: &Known| {
            let is_used = known.volume.is_some() && !known.entry.is_offline && known.complaint.is_none();
            known.entry.bit() & set != 0 && is_used
        };
        self.table.read().values().any(is_good)
    }

    fn is_on_media(&self, set: u16) -> bool {
        self.table.read().values().any(|known| known.entry.bit() & set != 0 && known.entry.class == CLASS_MEDIA)
    }
}

/// Whether these bytes are a whole and right copy of this segment.
pub(crate) fn is_object_of(pool: PoolId, segment: u64, sequence: u64, bytes: &[u8]) -> bool {
    let Some((header, content)) = bytes.split_at_checked(ChunkHeader::SIZE) else { return false };
    let is_its = ChunkHeader::decode(header)
        .is_ok_and(|header| (header.pool, header.segment, header.sequence) == (pool, segment, sequence));
    is_its && proves_chunk(pool, segment, content)
}

impl Recall for Volumes {
    fn read(
        &self,
        segment: &Arc<Segment>,
        offset: u64,
        into: &mut [u8],
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(), RecallError> {
        let refused = |refusal, text: &str| Err(RecallError::Refused(refusal, text.to_owned()));
        let part_of = |chunk: &[u8], into: &mut [u8]| {
            let start = offset as usize;
            let part = chunk.get(start..start + into.len()).filter(|part| is_right(part));
            part.map(|part| into.copy_from_slice(part)).is_some()
        };
        if self.fetched(segment.id).is_some_and(|chunk| part_of(&chunk, into)) {
            return Ok(());
        }
        match self.mode() {
            RecallMode::Deny => return refused(Refusal::Denied, "recalls are refused on this mount (recall=deny)"),
            RecallMode::NoWait => {
                self.want(segment.id);
                let text = "the bytes are on a tertiary volume and are being fetched (recall=nowait); come back later";
                return refused(Refusal::Later, text);
            }
            RecallMode::Block => {}
        }
        let is_worth_it = self.refer(segment.id) >= REFERENCES_WHOLE || self.is_on_media(segment.tertiary().there);
        if is_worth_it {
            // What is read again and again comes back to the devices.
            match self.whole(segment, Patience::Reader) {
                Ok(chunk) if part_of(&chunk, into) => {
                    self.want(segment.id);
                    return Ok(());
                }
                Err(RecallError::Refused(refusal, why)) => return Err(RecallError::Refused(refusal, why)),
                // A part of it may be right all the same.
                Ok(_) | Err(RecallError::Damaged(_)) => {}
            }
        }
        self.fetch(segment, offset, into, Patience::Reader, is_right)
    }
}

#[cfg(test)]
mod tests;
