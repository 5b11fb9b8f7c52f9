//! Copies of all metadata on volumes, so that names, attributes and the map of contents outlive the devices.
//!
//! A checkpoint's tree lies in segments that are copied as those of data are, whole ones once and the one that is still filled as far as
//! it was. When all of them are on a volume the checkpoint record is put beside them (a *state*), and what only older states needed
//! is deleted. Everything is read back and compared. So a volume has one whole state at any moment after the first, and costs a few
//! requests for each further one. Invariant: the segments of a state that is being copied are held, so their slots are nobody else's.
//!
//! Nothing waits for it, and a volume that is away is left out until the next state. Read next: `docs/format/volume.md`, the rescue
//! crate's `volumes.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use stere_device::{MediumWait, Volume, VolumeError};
use stere_faults::{Bug, is_planted};
use stere_format::{
    BLOCK_BYTES, CheckpointRecord, PoolId, VolumeEntry, metadata_name, metadata_of_object, state_name, state_of_object,
};
use stere_log::Segment;

use super::TertiaryProgress;
use super::upload::Uploader;
use stere_engine::{Engine, Error};
use stere_recall::{Known as KnownVolume, Reachable, Volumes};

/// Objects deleted in one step.
const DELETED_MAX: usize = 16;

/// What is to be on volumes.
struct State {
    generation: u64,
    /// The checkpoint record.
    record: Vec<u8>,
    /// The segments that its tree lies in, and how many blocks of each count.
    parts: Vec<(Arc<Segment>, u32)>,
}

/// What a volume has.
#[derive(Default)]
struct OnVolume {
    /// Objects that are there.
    names: BTreeSet<String>,
    /// Those of them that are known to be right.
    proven: BTreeSet<String>,
    /// The newest state of them.
    generation: Option<u64>,
}

/// What is being copied, and what is where.
#[derive(Default)]
struct Known {
    state: Option<Arc<State>>,
    on: BTreeMap<u8, OnVolume>,
    /// Volumes that cannot take this state.
    left_out: BTreeSet<u8>,
}

/// Why a state is not copied to a volume.
enum CopyFailure {
    Volume(VolumeError),
    /// The volume has no part in it.
    Devices(String),
}

impl CopyFailure {
    fn unread(segment: u64, why: &str) -> CopyFailure {
        let what = "names and attributes cannot be copied out";
        CopyFailure::Devices(format!("{what}: segment {segment} cannot be read whole from devices ({why})"))
    }
}

impl From<VolumeError> for CopyFailure {
    fn from(error: VolumeError) -> CopyFailure {
        CopyFailure::Volume(error)
    }
}

impl State {
    fn names(&self) -> BTreeSet<String> {
        let parts = self.parts.iter().map(|(segment, blocks)| metadata_name(segment.id, segment.sequence, *blocks));
        parts.chain([state_name(self.generation)]).collect()
    }
}

impl OnVolume {
    /// What is there. What the newest good state names was proven before that state was written.
    fn of(volume: &dyn Volume, pool: PoolId) -> Result<OnVolume, VolumeError> {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for prefix in ["metadata/", "states/"] {
            found.extend(volume.list(prefix)?);
        }
        let mut on = OnVolume::default();
        let states = found.iter().rev().filter_map(|(name, length)| Some((name, length, state_of_object(name)?)));
        for (name, length, generation) in states {
            let mut bytes = vec![0; (*length).min(CheckpointRecord::RECORD_BYTES_MAX as u64) as usize];
            volume.get(name, 0, &mut bytes, &MediumWait::NONE)?;
            let record = CheckpointRecord::decode(&bytes);
            let Some(record) = record.ok().filter(|record| record.pool == pool && record.generation == generation)
            else {
                continue;
            };
            let needed = record.meta_segments.iter().map(|(id, value)| {
                let blocks = value.written_blocks;
                (metadata_name(*id, value.sequence, blocks), u64::from(blocks) * BLOCK_BYTES as u64)
            });
            let is_there = |(name, length): &(String, u64)| found.get(name) == Some(length);
            on.proven = needed.filter(is_there).map(|(name, _)| name).collect();
            if on.proven.len() == record.meta_segments.len() {
                on.proven.insert(name.clone());
                on.generation = Some(generation);
            }
            break;
        }
        let is_ours = |name: &String| metadata_of_object(name).is_some() || state_of_object(name).is_some();
        on.names = found.into_keys().filter(is_ours).collect();
        Ok(on)
    }
}

/// The same, for all who ask.
#[derive(Default)]
pub struct Copies {
    known: Mutex<Known>,
}

impl Copies {
    pub(super) fn generation_on(&self, number: u8) -> Option<u64> {
        self.known.lock().on.get(&number).and_then(|on| on.generation)
    }

    /// Another volume may have this number now, or something else may be on it.
    pub(super) fn forget(&self, number: u8) {
        self.known.lock().on.remove(&number);
    }

    fn note_proven(&self, number: u8, name: String, generation: Option<u64>) {
        if let Some(on) = self.known.lock().on.get_mut(&number) {
            on.names.insert(name.clone());
            on.proven.insert(name);
            on.generation = generation.or(on.generation);
        }
    }

    /// Deletes what this state, which is there, does not need.
    fn delete_older(&self, state: &State, number: u8, volume: &dyn Volume) -> Result<bool, VolumeError> {
        let needed = state.names();
        let obsolete: Vec<String> = {
            let copies = self.known.lock();
            let Some(on) = copies.on.get(&number) else { return Ok(true) };
            let is_there = on.generation == Some(state.generation) || is_planted(Bug::OlderStateDeleted);
            assert!(is_there, "older states go when state {} is whole", state.generation);
            on.names.difference(&needed).take(DELETED_MAX).cloned().collect()
        };
        for name in &obsolete {
            volume.delete(name)?;
            if let Some(on) = self.known.lock().on.get_mut(&number) {
                on.names.remove(name);
                on.proven.remove(name);
            }
        }
        Ok(obsolete.is_empty())
    }
}

/// Copies the metadata of checkpoints to volumes.
pub struct MetadataCopier {
    engine: Arc<Engine>,
    volumes: Arc<Volumes>,
    uploader: Arc<Uploader>,
    copies: Arc<Copies>,
}

impl MetadataCopier {
    pub(super) fn new(engine: &Arc<Engine>, uploader: &Arc<Uploader>, copies: &Arc<Copies>) -> MetadataCopier {
        let (engine, volumes) = (engine.clone(), engine.volumes().clone());
        MetadataCopier { engine, volumes, uploader: uploader.clone(), copies: copies.clone() }
    }

    /// Makes a checkpoint if anything has changed, and has its metadata copied to all volumes that take it, in the steps that follow.
    /// False if there is nothing to copy. Who is not patient leaves out volumes that did not answer last.
    pub fn begin_metadata_copy(&self, is_patient: bool) -> Result<bool, Error> {
        self.engine.check_writable()?;
        let volumes = self.for_metadata();
        if volumes.is_empty() {
            return Ok(false);
        }
        let complains = |number: &u8| !self.volumes.is_answering(1 << number);
        let complained: BTreeSet<u8> = volumes.iter().map(|(entry, _)| entry.number).filter(complains).collect();
        // What is on volumes tells all names until those that were put away are there too.
        if self
            .engine
            .offload()
            .folds(stere_log::Io::BLOCKING)?
            .iter()
            .any(|fold| fold.blob.segment.tertiary().there == 0)
        {
            return Ok(false);
        }
        if self.engine.is_changed() || self.engine.hold_checkpoints().record().is_empty() {
            self.engine.checkpoint()?;
        }
        // No checkpoint is made meanwhile, so the segments of the last one are all there.
        let held = self.engine.hold_checkpoints();
        let bad = |detail: String| Error::BadValue { what: "the checkpoint record", detail };
        let record = CheckpointRecord::decode(held.record()).map_err(|error| bad(error.to_string()))?;
        let part = |(id, value): &(u64, stere_format::SegmentValue)| {
            let segment = self.engine.log().segments.get(*id).ok_or_else(|| bad(format!("segment {id} is missing")))?;
            Ok((segment, value.written_blocks))
        };
        let parts = record.meta_segments.iter().map(part).collect::<Result<_, Error>>()?;
        let state = State { generation: record.generation, record: held.record().to_vec(), parts };
        drop(held);
        let mut copies = self.copies.known.lock();
        let has_it = |(entry, _): &Reachable| {
            copies.on.get(&entry.number).is_some_and(|on| on.generation == Some(state.generation))
        };
        if volumes.iter().all(has_it) {
            return Ok(false);
        }
        copies.left_out = if is_patient { BTreeSet::new() } else { complained };
        copies.state = Some(Arc::new(state));
        Ok(true)
    }

    /// Whether a state is being copied.
    pub fn is_copying_metadata(&self) -> bool {
        self.copies.known.lock().state.is_some()
    }

    /// One more object to each volume that lacks some; false when none does. `Tier::step` does it too.
    pub fn copy_metadata_step(&self) -> Result<bool, Error> {
        self.engine.check_writable()?;
        let _alone = self.volumes.work.lock();
        let mut progress = TertiaryProgress::default();
        self.copy_metadata(&mut progress);
        Ok(progress.is_busy)
    }

    /// One more object to each volume that lacks some.
    pub(super) fn copy_metadata(&self, progress: &mut TertiaryProgress) {
        let Some(state) = self.copies.known.lock().state.clone() else { return };
        let mut is_done = true;
        for (entry, volume) in self.for_metadata() {
            if self.copies.known.lock().left_out.contains(&entry.number) {
                continue;
            }
            match self.copy_one(&state, entry.number, &*volume) {
                Ok(is_all) => {
                    is_done &= is_all;
                    self.volumes.note(entry.number, None);
                }
                Err(failure) => {
                    match &failure {
                        CopyFailure::Volume(error) => self.volumes.note(entry.number, Some(error)),
                        CopyFailure::Devices(why) => progress.waits_for = Some(why.clone()),
                    }
                    let mut copies = self.copies.known.lock();
                    copies.left_out.insert(entry.number);
                    // What it has is looked at anew when it is back.
                    copies.on.remove(&entry.number);
                }
            }
        }
        progress.is_busy |= !is_done;
        let mut copies = self.copies.known.lock();
        if is_done && copies.state.as_ref().is_some_and(|current| Arc::ptr_eq(current, &state)) {
            copies.state = None;
        }
    }

    /// True if everything is there and nothing else.
    fn copy_one(&self, state: &State, number: u8, volume: &dyn Volume) -> Result<bool, CopyFailure> {
        if !self.copies.known.lock().on.contains_key(&number) {
            let on = OnVolume::of(volume, self.engine.log().pool_id())?;
            self.copies.known.lock().on.insert(number, on);
        }
        let lacks = |name: &String| {
            let copies = self.copies.known.lock();
            copies.on.get(&number).is_some_and(|on| !on.proven.contains(name))
        };
        if is_planted(Bug::OlderStateDeleted) && !self.copies.delete_older(state, number, volume)? {
            return Ok(false);
        }
        for (segment, blocks) in &state.parts {
            let name = metadata_name(segment.id, segment.sequence, *blocks);
            if !lacks(&name) {
                continue;
            }
            let object = self.uploader.proven_object(segment, *blocks);
            let object = match object {
                Ok(Some(object)) => object,
                Ok(None) => return Err(CopyFailure::unread(segment.id, "some of it is damaged; scrub the pool")),
                Err(error) => return Err(CopyFailure::unread(segment.id, &error.to_string())),
            };
            self.uploader.put_and_compare(volume, &name, &object)?;
            self.copies.note_proven(number, name, None);
            return Ok(false);
        }
        let name = state_name(state.generation);
        if lacks(&name) {
            self.uploader.put_and_compare(volume, &name, &state.record)?;
            self.copies.note_proven(number, name, Some(state.generation));
            return Ok(false);
        }
        Ok(self.copies.delete_older(state, number, volume)?)
    }

    /// Volumes that take metadata and can be asked.
    fn for_metadata(&self) -> Vec<Reachable> {
        let takes = |entry: &VolumeEntry| entry.takes_metadata && !entry.is_offline;
        let bit = |known: &KnownVolume| if takes(&known.entry) { known.entry.bit() } else { 0 };
        let set = self.volumes.table.read().values().fold(0, |set, known| set | bit(known));
        self.volumes.reachable(set).0
    }
}
