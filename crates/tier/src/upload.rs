//! Copying sealed segments out to their volumes, and one step of all tertiary work.
//!
//! Order, which makes a crash at any point harmless: the segment is durable on devices, the object is stored, read back and compared,
//! and only then the segment table says that the volume has it. Before that the object is one that nobody knows: it is found
//! identical and taken over by the next try, or swept away.
//!
//! Several threads may copy out at once (`Tier::upload_step`): one reads an object back while another stores the next, and volumes
//! take theirs side by side. Invariants: a segment is in the hands of one of them at most; none of them works while objects are
//! swept, repacked or a volume is removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stere_device::{Buffer, MediumWait, Volume, VolumeError};
use stere_faults::{Bug, is_planted};
use stere_format::{
    BLOCK_BYTES, ChunkHeader, ChunkPlace, ObjectRows, RecordSubject, RowHeader, SegmentChunks, SegmentKind, Summary,
    SummaryEntry, Tertiary, VolumeEntry, catalogue_name, object_bytes,
};
use stere_log::{Io, Log, Segment};

use super::lanes::Lanes;
use stere_engine::{BLOBS_PER_UPDATE, Engine, Error};
use stere_recall::{RecallError, Volumes, is_object_of, object_of};
use stere_stripe::Whole;

/// What one step did, and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TertiaryProgress {
    /// Something was done, and there may be more.
    pub is_busy: bool,
    pub segments_uploaded: u64,
    pub segments_staged: u64,
    pub objects_deleted: u64,
    /// Why something cannot be done now.
    pub waits_for: Option<String>,
}

/// Says in writing what is known of inodes.
pub type Describe<'a> = dyn Fn(&BTreeSet<u64>) -> Vec<u8> + 'a;

/// The rows of an object: their headers, decoded, and the bytes of header and summary.
fn rows(object: &[u8]) -> Vec<(RowHeader, [&[u8]; 2])> {
    let mut told = Vec::new();
    for (header, row) in ObjectRows::of_object(object).into_iter().flatten() {
        let start = header.summary_offset as usize;
        let summary = row.get(start..start + header.summary_length as usize).unwrap_or_default();
        told.push((header, [row.get(..RowHeader::SIZE).unwrap_or_default(), summary]));
    }
    told
}

/// What the rows of an object tell of their records.
pub(super) fn entries_of(object: &[u8]) -> Vec<(u32, Vec<SummaryEntry>)> {
    // What cannot be read names nothing.
    let entries = |(header, [_, bytes]): (RowHeader, [&[u8]; 2])| {
        (header.row_block, Summary::decode(&header, bytes).unwrap_or_default())
    };
    rows(object).into_iter().map(entries).collect()
}

/// What the rows of a segment tell of their records; those that cannot be read are left out.
pub(super) fn entries_of_segment(log: &Log, segment: &Arc<Segment>) -> Vec<(u32, Vec<SummaryEntry>)> {
    let (mut rows, mut row_block) = (Vec::new(), 1);
    while row_block < segment.written_blocks() {
        match log.read_row_contents(segment, row_block).ok().flatten() {
            Some(contents) => {
                rows.push((row_block, contents.entries));
                row_block += contents.header.row_height.max(1);
            }
            None => row_block += 1,
        }
    }
    rows
}

/// The inodes that the rows of an object say they belong to.
fn owners_of(object: &[u8]) -> BTreeSet<u64> {
    entries_of(object)
        .into_iter()
        .flat_map(|(_, entries)| entries)
        .filter_map(|entry| match entry.subject {
            RecordSubject::Blob { inode, .. } => Some(inode),
            _ => None,
        })
        .collect()
}

/// Puts the rows of a segment one behind the other, each with all of its bytes in order; false if they do not follow each other.
fn put_rows_on_end(segment: &Segment, whole: &Whole, into: &mut [u8]) -> bool {
    let bytes_a_block = usize::from(segment.scheme.data) * BLOCK_BYTES;
    assert_eq!(into.len(), whole.blocks() as usize * bytes_a_block, "segment {} has so many rows", segment.id);
    let (mut row_block, mut scratch) = (1, Vec::new());
    while row_block <= whole.blocks() {
        let first = whole.first_block_of_row(row_block).and_then(|block| block.get(..RowHeader::SIZE));
        let Some(header) = first.and_then(|bytes| RowHeader::decode(bytes).ok()) else { return false };
        let start = (row_block - 1) as usize * bytes_a_block;
        let Some(row) = whole.row(row_block, header.row_height, &mut scratch) else { return false };
        let Some(place) = into.get_mut(start..start + row.len()) else { return false };
        place.copy_from_slice(row);
        // A row of no height would never end.
        row_block += header.row_height.max(1);
    }
    true
}

/// Whether two objects that prove themselves tell of the same records, with the same checksums: then they differ only where nothing is
/// stored.
fn tell_the_same(one: &[u8], other: &[u8]) -> bool {
    let told = |object| rows(object).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    told(one) == told(other)
}

/// Why a segment did not get to a volume.
enum Failure {
    /// This volume, as a set, failed.
    Volume(u16, VolumeError),
    /// Another segment is there under its name.
    Taken(String),
    /// What is to be copied is on volumes only, and cannot be read now.
    Elsewhere(String),
    /// The same, for ever.
    Damaged(String),
}

/// Copies sealed segments out to their volumes.
pub struct Uploader {
    engine: Arc<Engine>,
    volumes: Arc<Volumes>,
    lanes: Lanes,
    /// Nothing more is copied out for now.
    are_held: AtomicBool,
    /// Segments of which it is durable that they are sealed, of those that wait.
    sealed: Mutex<BTreeSet<u64>>,
}

impl Uploader {
    pub(super) fn new(engine: &Arc<Engine>) -> Uploader {
        let (engine, volumes) = (engine.clone(), engine.volumes().clone());
        let (are_held, sealed) = (AtomicBool::new(false), Mutex::default());
        Uploader { engine, volumes, lanes: Lanes::default(), are_held, sealed }
    }

    /// Segments that are not on all their volumes yet, the oldest first.
    pub(crate) fn segments_to_upload(&self) -> Vec<Arc<Segment>> {
        let in_memory = self.engine.log().segments_in_memory();
        let is_ready = |segment: &Arc<Segment>| {
            let Tertiary { wanted, there } = segment.tertiary();
            wanted != there && segment.kind == SegmentKind::Data && segment.is_sealed() && segment.live_bytes() > 0
        };
        let mut segments = self.engine.log().segments.everywhere();
        segments.retain(|segment| is_ready(segment) && !in_memory.contains(&segment.id));
        segments
    }

    /// Copies no more of these segments out than is there; how many were waiting for that. An object that is on its way is taken back.
    pub fn upload_no_more(&self, segments: &[u64]) -> Result<u64, Error> {
        self.engine.check_writable()?;
        let ids: BTreeSet<u64> = segments.iter().copied().collect();
        let is_waiting = |segment: &Segment| {
            let Tertiary { wanted, there } = segment.tertiary();
            ids.contains(&segment.id) && wanted != there && !segment.is_released()
        };
        self.engine.log().end_segments(&is_waiting);
        let mut given_up = 0;
        {
            let mut change = self.engine.change_segments();
            for segment in
                ids.iter().filter_map(|id| self.engine.log().segments.get(*id)).filter(|segment| is_waiting(segment))
            {
                let there = segment.tertiary().there;
                segment.set_tertiary(Tertiary { wanted: there, there });
                change.enter(&segment);
                given_up += 1;
            }
            change.take_effect();
        }
        self.engine.commit(Io::BLOCKING)?;
        Ok(given_up)
    }

    /// Whether copying out makes a pause: what is under way goes on, and everything else of the work for volumes.
    pub fn hold_uploads(&self, are_held: bool) {
        self.are_held.store(are_held, Ordering::Release);
    }

    pub fn are_uploads_held(&self) -> bool {
        self.are_held.load(Ordering::Acquire)
    }

    /// How many segments wait to be copied out.
    pub fn waiting_uploads(&self) -> usize {
        self.segments_to_upload().len()
    }

    /// Copies one segment out; false if there is none that could be.
    pub(crate) fn upload_one(&self, progress: &mut TertiaryProgress, describe: &Describe<'_>) -> Result<bool, Error> {
        if self.are_uploads_held() && !is_planted(Bug::HeldAnyway) {
            return Ok(false);
        }
        // Volumes that failed just now: what others are to get does not wait for them.
        let mut failed = 0;
        for segment in self.segments_to_upload() {
            if self.volumes.stuck.lock().contains_key(&segment.id) {
                continue;
            }
            let Some(_in_hand) = self.lanes.take_in_hand(&segment) else { continue };
            let Tertiary { wanted, there } = segment.tertiary();
            let (volumes, away) = self.volumes.reachable(wanted & !there & !failed);
            progress.waits_for = progress.waits_for.take().or_else(|| away.first().cloned());
            if !self.lanes.has_place(&volumes) {
                continue;
            }
            match self.upload(&segment, &volumes, describe) {
                Ok(true) => {
                    progress.segments_uploaded += 1;
                    progress.is_busy = true;
                    return Ok(true);
                }
                Ok(false) => {}
                Err(Failure::Volume(bit, error)) => {
                    let text = error.to_string();
                    if !error.is_passing() {
                        self.volumes.stuck.lock().insert(segment.id, text.clone());
                    }
                    progress.waits_for = Some(text);
                    failed |= bit;
                }
                Err(Failure::Taken(text) | Failure::Damaged(text)) => {
                    tracing::error!(segment = segment.id, "{text}");
                    self.volumes.stuck.lock().insert(segment.id, text);
                }
                Err(Failure::Elsewhere(why)) => progress.waits_for = Some(why),
            }
        }
        Ok(false)
    }

    /// As `upload`, for a segment that somebody made; else why not.
    pub(super) fn upload_made(
        &self,
        segment: &Arc<Segment>,
        volumes: &[(VolumeEntry, Arc<dyn Volume>)],
        describe: &Describe<'_>,
    ) -> Result<(), String> {
        match self.upload_whole(segment, volumes, describe) {
            Ok(_) => Ok(()),
            Err(Failure::Volume(_, error)) => Err(error.to_string()),
            Err(Failure::Taken(text) | Failure::Elsewhere(text) | Failure::Damaged(text)) => Err(text),
        }
    }

    /// Puts a segment on these volumes; false if that cannot be done with it as it is.
    fn upload(
        &self,
        segment: &Arc<Segment>,
        volumes: &[(VolumeEntry, Arc<dyn Volume>)],
        describe: &Describe<'_>,
    ) -> Result<bool, Failure> {
        match self.upload_whole(segment, volumes, describe) {
            Ok(None) => Ok(self.pack_anew(segment)),
            Ok(Some(is_done)) => Ok(is_done),
            Err(failure) => Err(failure),
        }
    }

    /// The same; none if the segment is not whole.
    fn upload_whole(
        &self,
        segment: &Arc<Segment>,
        volumes: &[(VolumeEntry, Arc<dyn Volume>)],
        describe: &Describe<'_>,
    ) -> Result<Option<bool>, Failure> {
        let bytes = match self.object_of(segment) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(Error::Elsewhere { why, .. }) => return Err(Failure::Elsewhere(why)),
            Err(Error::Pool(why)) if segment.is_released() => return Err(Failure::Damaged(why)),
            Err(error) => {
                tracing::warn!(segment = segment.id, %error, "a segment cannot be copied out now");
                return Ok(Some(false));
            }
        };
        let described = describe(&owners_of(&bytes));
        let catalogue = catalogue_name(segment.id, segment.sequence);
        let (mut left, mut is_put, mut failure) = (volumes.iter().collect::<Vec<_>>(), false, None);
        while let Some((at, _under_way)) = self.lanes.least_busy(&left) {
            let (entry, volume) = left.swap_remove(at);
            let outcome = match described.is_empty() {
                true => Ok(()),
                false => volume.put(&catalogue, &described),
            };
            let outcome = outcome.and_then(|()| self.put_proven(segment, &**volume, &bytes));
            self.volumes.note(entry.number, outcome.as_ref().err());
            match outcome {
                Ok(None) => is_put = true,
                Ok(Some(text)) => return Err(Failure::Taken(text)),
                // The others are to get it all the same.
                Err(error) => {
                    failure = failure.or(Some(Failure::Volume(entry.bit(), error)));
                    continue;
                }
            }
            if !self.enter_object(segment, entry.bit()) {
                self.volumes.discard_object(segment, entry.bit());
                break;
            }
            self.volumes.counters.bytes_uploaded.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        self.volumes.counters.segments_uploaded.fetch_add(u64::from(left.is_empty()), Ordering::Relaxed);
        Ok(Some(is_put))
    }

    /// The segment as an object: its chunk, read and proven. None if it is not whole.
    fn object_of(&self, segment: &Arc<Segment>) -> Result<Option<Buffer>, Error> {
        if segment.is_released() {
            // On one volume, and wanted on another.
            return self.object_on_a_volume(segment).map(Some);
        }
        self.record_sealed(segment)?;
        match self.proven_object(segment, segment.written_blocks()) {
            Ok(None) | Err(_) if segment.tertiary().there != 0 => match self.object_on_a_volume(segment) {
                // What is whole nowhere moves as far as it can be read.
                Err(Error::Pool(_)) => Ok(None),
                outcome => outcome.map(Some),
            },
            outcome => outcome,
        }
    }

    fn object_on_a_volume(&self, segment: &Arc<Segment>) -> Result<Buffer, Error> {
        let chunk = self.volumes.whole(segment);
        self.volumes.forget_fetched(segment.id);
        match chunk {
            Ok(chunk) => {
                let mut object = self.engine.log().stripe.buffers().take(chunk.len());
                object.copy_from_slice(&chunk);
                Ok(object)
            }
            Err(RecallError::Damaged(why)) => Err(Error::Pool(format!(
                "segment {} cannot be copied to another medium ({why}); remove the files in it, or restore the object",
                segment.id
            ))),
            Err(RecallError::Refused(refusal, why)) => Err(Error::Elsewhere { why, refusal }),
        }
    }

    /// So many blocks of a segment as an object; none if they are not whole.
    pub(super) fn proven_object(&self, segment: &Arc<Segment>, blocks: u32) -> Result<Option<Buffer>, Error> {
        let stripe = &self.engine.log().stripe;
        let failed = |error: stere_stripe::StripeError| Error::Log(error.into());
        let placed = segment.placed();
        let mut whole = stripe.read_whole(segment.id, &placed, blocks, 0).map_err(failed)?;
        let verified = self.engine.log().verify_whole(segment, &mut whole, &|row| self.engine.rows().needed_of(row));
        if verified.damaged_records > 0 || verified.is_cut {
            return Ok(None);
        }
        let mut bytes = stripe.buffers().take_zeroed(object_bytes(segment.scheme.data, blocks) as usize);
        let (header, behind) = bytes.split_at_mut(ChunkHeader::SIZE);
        header.copy_from_slice(&self.object_header(segment).encode());
        if !put_rows_on_end(segment, &whole, behind) {
            return Ok(None);
        }
        // What goes where nobody looks for years is looked at once more.
        let is_right = is_object_of(self.engine.log().pool_id(), segment.id, segment.sequence, &bytes);
        Ok(is_right.then_some(bytes))
    }

    /// Makes durable that the segment is sealed: after a crash nothing may be appended to what is an object already. One commit does
    /// it for all that wait.
    fn record_sealed(&self, segment: &Arc<Segment>) -> Result<(), Error> {
        assert!(segment.is_sealed(), "segment {} is copied out while it is written", segment.id);
        if self.sealed.lock().contains(&segment.id) {
            return Ok(());
        }
        let mut waiting = self.segments_to_upload();
        waiting.push(segment.clone());
        {
            let mut change = self.engine.change_segments();
            for segment in &waiting {
                if change.has(segment) {
                    change.enter(segment);
                }
            }
            change.take_effect();
        }
        self.engine.commit(Io::BLOCKING)?;
        // Only those that wait matter: the others are forgotten.
        *self.sealed.lock() = waiting.iter().map(|segment| segment.id).collect();
        Ok(())
    }

    /// The same for every try: where a segment's chunks are now is not its object's business.
    fn object_header(&self, segment: &Segment) -> ChunkHeader {
        let place = |chunk: usize| ChunkPlace { device: u16::MAX - chunk as u16, slot: u32::MAX };
        let chunks = (0..segment.scheme.width()).map(place).collect();
        ChunkHeader {
            pool: self.engine.log().pool_id(),
            segment: segment.id,
            sequence: segment.sequence,
            kind: segment.kind,
            class: segment.class,
            chunk: 0,
            place: SegmentChunks { scheme: segment.scheme, missing: 0, chunks },
        }
    }

    /// A segment in which a crash left something that is no row is no object: what lives in it moves on to one that is. True if it did.
    fn pack_anew(&self, segment: &Arc<Segment>) -> bool {
        let outcome = self.move_all_out(segment);
        if matches!(outcome, Ok(())) && segment.live_bytes() == 0 {
            return true;
        }
        let why = format!("a part of segment {} cannot be read ({outcome:?})", segment.id);
        tracing::warn!("{why}");
        self.volumes.stuck.lock().insert(segment.id, why);
        false
    }

    fn move_all_out(&self, segment: &Arc<Segment>) -> Result<(), Error> {
        let key = self.engine.moving().cold_stream(segment);
        for (row_block, entries) in entries_of_segment(self.engine.log(), segment) {
            for entries in entries.chunks(BLOBS_PER_UPDATE) {
                // What is damaged stays, and the segment with it.
                self.engine.cleaning().move_blobs(segment, row_block, entries, &key)?;
            }
        }
        self.engine.commit(Io::BLOCKING)
    }

    /// Stores the object, unless it is there, and reads it back. Tells, if another segment is there under its name.
    fn put_proven(&self, segment: &Segment, volume: &dyn Volume, bytes: &[u8]) -> Result<Option<String>, VolumeError> {
        let name = object_of(segment);
        if let Some(length) = volume.length(&name)? {
            let blocks_max = self.engine.log().chunk_bytes() / BLOCK_BYTES as u32;
            let length = length.min(object_bytes(segment.scheme.data, blocks_max)) as usize;
            // Of zeros: what was there before may be what is looked for.
            let mut found = self.engine.log().stripe.buffers().take_zeroed(length);
            match volume.get(&name, 0, &mut found, &MediumWait::NONE) {
                // What cannot be read is nobody's, and is written over.
                Err(error) if !error.is_passing() => found.fill(0),
                outcome => outcome?,
            }
            if *found == *bytes {
                return Ok(None);
            }
            // Half of an earlier try is written over, and one with a bad byte between records; what else is right in itself is somebody's.
            let is_right = is_object_of(self.engine.log().pool_id(), segment.id, segment.sequence, &found);
            if is_right && !tell_the_same(&found, bytes) {
                return Ok(Some(format!(
                    "{} has another object {name}, of a part of this pool that went on by itself; use an empty directory or prefix",
                    volume.describe()
                )));
            }
        }
        self.put_and_compare(volume, &name, bytes).map(|()| None)
    }

    /// Stores an object and reads it back.
    pub(super) fn put_and_compare(&self, volume: &dyn Volume, name: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        volume.put(name, bytes)?;
        if is_planted(Bug::VolumeBelieved) {
            return Ok(());
        }
        let mut found = self.engine.log().stripe.buffers().take_zeroed(bytes.len());
        volume.get(name, 0, &mut found, &MediumWait::NONE)?;
        if *found == *bytes {
            return Ok(());
        }
        self.volumes.counters.bad_objects.fetch_add(1, Ordering::Relaxed);
        let why = format!("it gave other bytes for {name} than it was given");
        Err(VolumeError::Away { volume: volume.describe(), why })
    }

    /// Says in the segment table that a volume has the segment; false if nobody needs the segment any more.
    fn enter_object(&self, segment: &Arc<Segment>, there: u16) -> bool {
        let mut change = self.engine.change_segments();
        if !change.has(segment) || segment.tertiary().wanted & there == 0 {
            return false;
        }
        segment.note_tertiary(there);
        assert_eq!(segment.tertiary().there & there, there, "the table names the volume that has the object");
        self.volumes.note_good(segment.id, there);
        change.enter(segment);
        change.take_effect();
        true
    }
}
