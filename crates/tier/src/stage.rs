//! Releasing and staging: giving up a segment's chunks on devices, and writing them again from an object.
//!
//! *Release*: the segment table says that there are no chunks; the slots are free once that is in a durable checkpoint and nobody
//! reads there. *Stage*: the object is fetched whole and proven, its chunks are written and flushed, and only then the table says so.
//! So at a crash either state names a place where the bytes are.

use std::collections::BTreeSet;
use std::sync::Arc;

use stere_device::{Completion, SharedBuffer};
use stere_faults::{Bug, is_planted};
use stere_format::{ChunkHeader, ObjectRows, SegmentChunks, SegmentKind};
use stere_log::{Segment, StreamKey};

use super::TertiaryProgress;
use super::media::Media;
use stere_engine::{Engine, Error};
use stere_recall::{BlobHandle, RecallError, Volumes, object_bytes};
use stere_stripe::{Whole, row_capacity};

/// What came of releasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    pub segments: u64,
    /// Bytes on devices that are given back.
    pub bytes: u64,
    /// Segments that are not on all their volumes yet, so they stay.
    pub waiting: u64,
    /// Segments of which a file came to share something since it was looked who has them, so they stay.
    pub newly_shared: u64,
}

/// Where what is stored of a file is, in stored bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierFile {
    /// On devices.
    pub local_bytes: u64,
    /// On devices, and to be copied out.
    pub waiting_bytes: u64,
    /// On media, whether on devices too or not.
    pub tertiary_bytes: u64,
    /// On media only.
    pub released_bytes: u64,
    /// Of those, on volumes that cannot be asked now.
    pub unreachable_bytes: u64,
    /// The volumes, a set.
    pub volumes: u16,
}

impl TierFile {
    /// Counts in so many bytes of a blob.
    pub fn add(&mut self, media: &Media, blob: &BlobHandle, bytes: u64) {
        let segment = &blob.segment;
        let tertiary = segment.tertiary();
        self.volumes |= tertiary.there;
        self.tertiary_bytes += if tertiary.there != 0 { bytes } else { 0 };
        if !segment.is_released() {
            self.local_bytes += bytes;
            self.waiting_bytes += if tertiary.wanted != tertiary.there { bytes } else { 0 };
            return;
        }
        self.released_bytes += bytes;
        self.unreachable_bytes += if media.can_reach(tertiary.there) { 0 } else { bytes };
        assert!(self.unreachable_bytes <= self.released_bytes, "only what is on volumes alone is out of reach");
    }

    /// Stored bytes that a volume would have to be given: all of them where it has nothing of the file.
    pub fn bytes_not_on(&self, number: u8) -> u64 {
        let all = self.local_bytes + self.released_bytes;
        let is_there = self.volumes >> number & 1 == 1;
        if is_there { all.saturating_sub(self.tertiary_bytes) } else { all }
    }

    /// In the words of `user.stere.residency`.
    pub fn residency(&self) -> &'static str {
        match (self.released_bytes, self.local_bytes, self.unreachable_bytes) {
            (0, _, _) => "online",
            (_, _, unreachable) if unreachable > 0 => "offline",
            (_, 0, _) => "nearline",
            _ => "partial",
        }
    }
}

/// What came of bringing a segment back.
enum Staged {
    Back,
    /// Its volume is away.
    Waits,
    /// Nobody needs it any more, or it cannot be had.
    Not,
}

pub(super) fn is_releasable(segment: &Segment) -> bool {
    let tertiary = segment.tertiary();
    let is_there = !tertiary.is_none() && tertiary.wanted == tertiary.there && segment.is_sealed();
    is_there && segment.kind == SegmentKind::Data && !segment.is_released() && segment.live_bytes() > 0
}

/// Gives up and writes again the chunks on devices of what volumes have.
pub struct Stager {
    engine: Arc<Engine>,
    volumes: Arc<Volumes>,
    media: Arc<Media>,
}

impl Stager {
    pub(super) fn new(engine: &Arc<Engine>, media: &Arc<Media>) -> Stager {
        let (engine, volumes) = (engine.clone(), engine.volumes().clone());
        Stager { engine, volumes, media: media.clone() }
    }

    /// Segments that are on devices and on all their volumes: their chunks may be given up.
    pub fn releasable_segments(&self) -> BTreeSet<u64> {
        if !self.media.has_volumes() {
            return BTreeSet::new();
        }
        let segments = self.engine.log().segments.all().into_iter();
        segments.filter(|segment| is_releasable(segment)).map(|segment| segment.id).collect()
    }

    /// The change of the store that was last. Who looks at what may go asks for it before.
    pub fn last_change(&self) -> u64 {
        self.engine.change_segments().last_change()
    }

    /// Gives up the chunks of these segments, as far as all their volumes have them.
    pub fn release(&self, segments: &[u64]) -> Result<Released, Error> {
        self.release_as_looked_at(segments, u64::MAX)
    }

    /// The same, but for those of which a file came to share something after a change.
    pub fn release_as_looked_at(&self, segments: &[u64], change: u64) -> Result<Released, Error> {
        self.engine.check_writable()?;
        let mut released = Released::default();
        // Nobody is writing chunks of them.
        let _held = self.engine.hold_chunks()?;
        for id in segments {
            let Some(segment) = self.engine.log().segments.get(*id) else { continue };
            let tertiary = segment.tertiary();
            if tertiary.is_none() || segment.is_released() {
                continue;
            }
            let is_there = tertiary.wanted == tertiary.there && segment.is_sealed();
            match is_there && self.release_segment(&segment, change) {
                true => {
                    released.segments += 1;
                    let chunks = segment.scheme.width() as u64;
                    released.bytes += chunks * u64::from(self.engine.log().chunk_bytes());
                }
                false if segment.last_shared() > change => released.newly_shared += 1,
                false => released.waiting += 1,
            }
        }
        let looked_at = released.segments + released.waiting + released.newly_shared;
        assert!(
            looked_at <= segments.len() as u64,
            "each of {} segments goes or waits, not {looked_at}",
            segments.len()
        );
        Ok(released)
    }

    /// The caller holds the chunks, and knows who shared what is in it up to this change.
    fn release_segment(&self, segment: &Arc<Segment>, looked_at: u64) -> bool {
        let mut change = self.engine.change_segments();
        if segment.last_shared() > looked_at {
            return false;
        }
        if !change.has(segment)
            || segment.kind != SegmentKind::Data
            || segment.is_released()
            || segment.live_bytes() == 0
        {
            return false;
        }
        // Its last medium may have been taken away since the caller looked.
        if segment.tertiary().there == 0 {
            return false;
        }
        self.volumes.note_released();
        change.enter_released(segment);
        self.volumes.forget_fetched(segment.id);
        change.take_effect();
        true
    }

    /// Segments that devices have lost, and a volume has: they are read from there from now on.
    pub(crate) fn release_unreadable(&self) -> Result<(), Error> {
        let is_lost = |segment: &Arc<Segment>| {
            let needed = usize::from(segment.scheme.data);
            let on_devices_gone = || {
                let entries = self.engine.device_entries();
                let is_listed = |index| entries.iter().any(|entry| entry.index == index);
                let place = segment.placed();
                let chunks = place.chunks.iter().enumerate();
                chunks.filter(|(chunk, at)| !place.is_missing(*chunk) && is_listed(at.device)).count() < needed
            };
            self.engine.is_readable_from_volumes_only(segment) && on_devices_gone()
        };
        let lost: Vec<Arc<Segment>> = self.engine.log().segments.all().into_iter().filter(is_lost).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let _held = self.engine.hold_chunks()?;
        for segment in lost {
            tracing::warn!(segment = segment.id, "devices have lost this segment; it is read from its media");
            self.release_segment(&segment, u64::MAX);
        }
        Ok(())
    }

    /// Segments that cannot be copied out, and why.
    pub fn stuck_uploads(&self) -> Vec<String> {
        self.volumes.stuck.lock().values().cloned().collect()
    }

    /// Brings one wanted segment back; false if none is wanted, or none can be brought back now.
    pub(super) fn stage_wanted(&self, progress: &mut TertiaryProgress) -> Result<bool, Error> {
        loop {
            // It counts as wanted until it is back: who waits for it is not told too early.
            let Some(id) = self.volumes.wanted_first() else { return Ok(false) };
            let outcome = self.stage_one(id, progress);
            if !matches!(outcome, Ok(Staged::Waits)) {
                self.volumes.wanted.lock().forget(id);
            }
            match outcome? {
                Staged::Back => return Ok(true),
                Staged::Waits => return Ok(false),
                Staged::Not => {}
            }
        }
    }

    fn stage_one(&self, id: u64, progress: &mut TertiaryProgress) -> Result<Staged, Error> {
        let released = self.engine.log().segments.get(id).filter(|segment| segment.is_released());
        let Some(segment) = released.filter(|segment| segment.live_bytes() > 0) else { return Ok(Staged::Not) };
        let chunk = match self.volumes.whole(&segment) {
            Ok(chunk) => chunk,
            Err(RecallError::Refused(_, why)) => {
                // It is wanted until the volume is back.
                progress.waits_for = Some(why);
                return Ok(Staged::Waits);
            }
            Err(RecallError::Damaged(why)) => {
                tracing::error!(segment = id, why, "a segment cannot be brought back");
                return Ok(Staged::Not);
            }
        };
        tracing::debug!(segment = id, "a segment comes back to devices");
        match self.bring_back(&segment, &chunk) {
            Ok(is_done) => {
                progress.segments_staged += u64::from(is_done);
                progress.is_busy = true;
                self.volumes.forget_fetched(id);
                Ok(Staged::Back)
            }
            Err(Error::NoSpace) => {
                progress.waits_for = Some("devices have no room for what shall come back; release something".into());
                Ok(Staged::Not)
            }
            // Another device may do, or this one when it is back.
            Err(Error::Pool(why)) => {
                progress.waits_for = Some(why);
                Ok(Staged::Waits)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes a segment's chunks to devices again; false if that was not needed any more.
    fn bring_back(&self, segment: &Arc<Segment>, object: &[u8]) -> Result<bool, Error> {
        assert_eq!(object.len() as u64, object_bytes(segment), "segment {} comes back whole", segment.id);
        let stripe = &self.engine.log().stripe;
        let key = StreamKey { home: None, ..segment.stream_key() };
        let no_room = |error: stere_stripe::StripeError| match error {
            stere_stripe::StripeError::NoSpace { .. } | stere_stripe::StripeError::TooFewDevices { .. } => {
                Error::NoSpace
            }
            error => Error::Log(error.into()),
        };
        let place = stripe
            .slots
            .allocate_keeping(segment.site, segment.scheme, &self.engine.log().room.kept_for_others(&key))
            .map_err(no_room)?;
        if let Err(error) = self.write_restored(segment, &place, object) {
            stripe.slots.free_now(&place.chunks);
            return Err(error);
        }
        let mut change = self.engine.change_segments();
        if !change.has(segment) || !segment.is_released() {
            stripe.slots.free_now(&place.chunks);
            return Ok(false);
        }
        change.enter_restored(segment, place);
        change.take_effect();
        Ok(true)
    }

    /// What the chunks of a segment hold behind their headers, from its object: each row is dealt over the data chunks, and parity is
    /// computed anew.
    fn chunks_of_object(&self, segment: &Segment, object: &[u8], wanted: &[usize]) -> Result<Vec<SharedBuffer>, Error> {
        let (scheme, content) = (segment.scheme, &object[ChunkHeader::SIZE..]);
        if scheme.data == 1 {
            let content = stere_device::Buffer::copy_of(content).share();
            return Ok(wanted.iter().map(|_| content.clone()).collect());
        }
        let mut whole = Whole::empty(scheme, segment.written_blocks());
        let mut rows = ObjectRows::new(scheme.data, content);
        let refused = || {
            let why = format!("the rows of the object of segment {} do not follow each other", segment.id);
            Err(Error::Pool(why))
        };
        while let Some((header, row)) = rows.next() {
            if !rows.is_whole(&header, row) {
                return refused();
            }
            whole.put_row(header.row_block, &row[..row_capacity(scheme, header.row_height)]);
        }
        if !rows.is_at_end() {
            return refused();
        }
        let chunks = self.engine.log().stripe.chunks_of(whole, wanted);
        chunks.map_err(|error| Error::Log(error.into()))
    }

    fn write_restored(&self, segment: &Segment, place: &SegmentChunks, object: &[u8]) -> Result<(), Error> {
        let stripe = &self.engine.log().stripe;
        let wanted: Vec<usize> = (0..place.chunks.len()).filter(|chunk| !place.is_missing(*chunk)).collect();
        let contents = self.chunks_of_object(segment, object, &wanted)?;
        assert_eq!(contents.len(), wanted.len(), "each chunk of segment {} that has a place is written", segment.id);
        let completion = Completion::new();
        let mut outcome = Ok(());
        for (chunk, content) in wanted.into_iter().zip(&contents) {
            let at = place.chunks[chunk];
            let header = ChunkHeader {
                pool: self.engine.log().pool_id(),
                segment: segment.id,
                sequence: segment.sequence,
                kind: segment.kind,
                class: segment.class,
                chunk: chunk as u8,
                place: place.clone(),
            };
            if is_planted(Bug::StagedUnwritten) {
                continue;
            }
            let ticket = completion.ticket(u64::from(at.device));
            outcome = outcome.and(stripe.write_chunk(at, &header, content, ticket));
        }
        // Nothing may be under way to slots that are given back.
        let mut failed = completion.wait();
        failed.iter().for_each(|(device, error)| self.engine.log().note_write_error(*device as u16, error));
        outcome.map_err(|error| Error::Log(error.into()))?;
        let unflushed = self.engine.log().flush()?;
        let is_hit = place.chunks.iter().any(|at| unflushed.contains(&at.device));
        match failed.pop() {
            Some((_, error)) => Err(Error::Pool(format!("a segment could not be brought back: {error}"))),
            None if is_hit => Err(Error::Pool("a segment could not be brought back: a device failed to flush".into())),
            None => Ok(()),
        }
    }
}
