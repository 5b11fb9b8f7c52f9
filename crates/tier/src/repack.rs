//! Repacking: what is alive in mostly dead objects is put into new ones, so that the old ones can be deleted.
//!
//! An object leaves its volumes when nothing in its segment is alive; one that is nine tenths dead would stay for ever. Order, which
//! makes a crash at any point harmless and never leaves fewer copies than there were: the live blobs are appended to a new segment that
//! nothing names yet; it is sealed, durable, copied out to every volume that shall have it, read back and compared; only then the blob
//! map says that they lie there, all of it durable; and only after the next checkpoint the old objects are deleted. Before that the
//! new objects are ones that nobody knows, and go with their segment. Invariant: the batch holds all segments that it touches, so none
//! of them is freed in between.
//!
//! Those come first of which most is gained for what it costs to read and write: (stored - live) / (stored + live), as in Rosenblum &
//! Ousterhout 1991. What was recalled together follows at once, if it is as dead as was asked for: so it lies in one place from then
//! on. What belongs to one unit (`Belonging`) is emptied in one step and appended one behind the other, before what lies among it.
//!
//! A volume of many media, a tape library, gets room back by whole media. There the objects on the medium with the least alive bytes come
//! first, and one step empties many of them: all are read to devices, then all is written, so one drive is enough and is not made to
//! change its medium for each. What is left on that medium the library copies by itself when it needs one (`docs/design/robot.md`).
//! Read next: `clusters.rs`, `upload.rs`, the engine's `clean.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use stere_faults::{Bug, is_planted};
use stere_format::{BlobValue, SegmentKind, Tertiary};
use stere_log::{Io, Segment};

use super::TertiaryProgress;
use super::media::{Media, VolumeStatus};
use super::remnants::Sweeper;
use super::stage::Stager;
use super::upload::{Describe, Uploader, entries_of, entries_of_segment};
use stere_engine::{BLOBS_PER_UPDATE, Engine, Error};
use stere_recall::{BlobHandle, CLASS_MEDIA, RecallError, Volumes, object_bytes, object_of};

/// Objects that one step empties at most.
const VICTIMS_MAX: usize = 16;
/// The same on one of many media; and what is alive in them, which devices hold meanwhile.
const VICTIMS_OF_MEDIUM_MAX: usize = 64;
const MEDIUM_BYTES_MAX: u64 = 1 << 30;
/// Where a unit is brought together, all of them are in memory.
const UNIT_BYTES_MAX: u64 = 48 << 20;

/// What belongs together, and shall lie so.
#[derive(Clone, Copy)]
pub struct Belonging<'a> {
    /// The segments that each unit has a part of.
    pub units: &'a [BTreeSet<u64>],
    /// Which unit an inode is in.
    pub unit_of: &'a dyn Fn(u64) -> Option<u64>,
}

impl Belonging<'_> {
    /// Nothing does.
    pub const NONE: Belonging<'static> = Belonging { units: &[], unit_of: &|_| None };
}

/// What one step did, and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repacked {
    /// Objects that were emptied, and bytes of them.
    pub segments_emptied: u64,
    pub bytes_emptied: u64,
    /// Objects that were made of them, and their bytes, those on one volume.
    pub segments_made: u64,
    pub bytes_made: u64,
    /// Objects that are as dead as was asked for still.
    pub segments_left: u64,
    /// Why it cannot go on now.
    pub waits_for: Option<String>,
}

/// On which of many media segments lie: all that is alive there, and its name.
type MediaOf = BTreeMap<u64, (u64, String)>;

type MovedBlob = (BlobHandle, BlobValue, Arc<Segment>);

/// What is alive in one of the segments of a batch.
struct LiveBlob {
    victim: usize,
    handle: BlobHandle,
    inode: u64,
    file_offset: u64,
}

/// What is emptied in one step: each alone, or all of them into the same new segments.
struct Batch {
    victims: Vec<Arc<Segment>>,
    is_unit: bool,
}

fn bytes_of<'a>(segments: impl IntoIterator<Item = &'a Arc<Segment>>) -> u64 {
    segments.into_iter().map(|segment| object_bytes(segment)).sum()
}

fn dead_bytes(status: &VolumeStatus) -> u64 {
    status.stored_bytes.saturating_sub(status.live_bytes)
}

/// Puts what is alive in mostly dead objects into new ones.
pub struct Repacker {
    engine: Arc<Engine>,
    volumes: Arc<Volumes>,
    media: Arc<Media>,
    stager: Arc<Stager>,
    uploader: Arc<Uploader>,
    sweeper: Arc<Sweeper>,
    /// Segments that could not be repacked, with their live bytes then.
    unpackable: Mutex<BTreeMap<u64, u64>>,
}

impl Repacker {
    pub(super) fn new(
        engine: &Arc<Engine>,
        media: &Arc<Media>,
        stager: &Arc<Stager>,
        uploader: &Arc<Uploader>,
        sweeper: &Arc<Sweeper>,
    ) -> Repacker {
        let (engine, volumes) = (engine.clone(), engine.volumes().clone());
        let (media, stager) = (media.clone(), stager.clone());
        let (uploader, sweeper) = (uploader.clone(), sweeper.clone());
        Repacker { engine, volumes, media, stager, uploader, sweeper, unpackable: Mutex::default() }
    }

    /// Where segments lie that are on volumes of many media, of these volumes.
    fn media_of(&self, volumes: u16) -> MediaOf {
        let (there, _) = self.volumes.reachable(volumes);
        let mut found = MediaOf::new();
        for (entry, volume) in there.into_iter().filter(|(_, volume)| !volume.media().is_empty()) {
            let (mut live_bytes, mut names) = (BTreeMap::<String, u64>::new(), Vec::new());
            for segment in self.engine.log().segments.everywhere() {
                if segment.tertiary().there & entry.bit() != 0
                    && let Some((medium, _)) = volume.estimate(&object_of(&segment))
                {
                    *live_bytes.entry(medium.clone()).or_default() += segment.live_bytes();
                    names.push((segment.id, medium));
                }
            }
            let with_bytes =
                |(id, medium): (u64, String)| (id, (live_bytes.get(&medium).copied().unwrap_or(0), medium));
            found.extend(names.into_iter().map(with_bytes));
        }
        found
    }

    /// Objects of these volumes, a set, of which at most so many percent are alive; where most is gained first, or medium by medium.
    fn victims(&self, volumes: u16, live_percent_max: u64, media: &MediaOf) -> Vec<Arc<Segment>> {
        let wanted_back = self.volumes.wanted.lock();
        let unpackable = self.unpackable.lock().clone();
        let in_memory = self.engine.log().segments_in_memory();
        let mut victims = self.engine.log().segments.everywhere();
        victims.retain(|segment| {
            let live_bytes = segment.live_bytes();
            let is_candidate = segment.tertiary().there & volumes != 0
                && segment.kind == SegmentKind::Data
                && segment.is_sealed()
                && live_bytes > 0
                && live_bytes * 100 <= object_bytes(segment) * live_percent_max;
            let is_busy = wanted_back.contains(segment.id) || in_memory.contains(&segment.id);
            // Such as was looked at in vain is left until something is different.
            is_candidate && !is_busy && unpackable.get(&segment.id) != Some(&live_bytes)
        });
        let worth = |segment: &Segment| {
            let (stored, live) = (object_bytes(segment) as f64, segment.live_bytes() as f64);
            (stored - live) / (stored + live)
        };
        victims.sort_by(|one, other| {
            let by_medium = media.get(&one.id).cmp(&media.get(&other.id));
            by_medium.then(worth(other).total_cmp(&worth(one))).then(one.id.cmp(&other.id))
        });
        victims
    }

    /// The emptiest volume of which at least so many percent are dead, as a set, if something can be gained there: it answers, and what it
    /// deletes it gives back, be it by whole media.
    pub fn volume_to_repack(&self, dead_percent_min: u64) -> Option<u16> {
        let dead_permille = |status: &VolumeStatus| dead_bytes(status) * 1000 / status.stored_bytes.max(1);
        let statuses = self.media.volume_statuses();
        let worth_it = statuses.iter().filter(|status| self.is_worth_it(status, dead_percent_min));
        let emptiest = worth_it.max_by_key(|status| match is_planted(Bug::FullestRepacked) {
            true => 1000 - dead_permille(status).min(1000),
            false => dead_permille(status),
        });
        emptiest.map(|status| status.entry.bit())
    }

    fn is_worth_it(&self, status: &VolumeStatus, dead_percent_min: u64) -> bool {
        let is_there = status.is_attached && !status.entry.is_offline && status.complaint.is_none();
        is_there
            && (status.entry.class != CLASS_MEDIA || self.has_many_media(status.entry.bit()))
            && status.entry.succession.heir().is_none()
            && dead_bytes(status) > 0
            && dead_bytes(status) * 100 >= status.stored_bytes * dead_percent_min
            && !self.victims(status.entry.bit(), 100 - dead_percent_min.min(99), &MediaOf::new()).is_empty()
    }

    fn has_many_media(&self, volumes: u16) -> bool {
        self.volumes.reachable(volumes).0.iter().any(|(_, volume)| !volume.media().is_empty())
    }

    /// Whether something can be gained on a volume, a set of one, of which at least so many percent are dead.
    pub fn is_worth_repacking(&self, volume: u16, dead_percent_min: u64) -> bool {
        let statuses = self.media.volume_statuses();
        statuses.iter().any(|status| status.entry.bit() == volume && self.is_worth_it(status, dead_percent_min))
    }

    /// Empties some of the objects on these volumes, a set, that are mostly dead; about a new object's worth of what is alive in them, or
    /// all of a unit's if it is of that.
    pub fn repack_step(
        &self,
        volumes: u16,
        live_percent_max: u64,
        belonging: &Belonging<'_>,
        describe: &Describe<'_>,
    ) -> Result<Repacked, Error> {
        self.engine.check_writable()?;
        let _alone = (self.volumes.work.lock(), self.volumes.uploads.write());
        let mut done = Repacked::default();
        let media = self.media_of(volumes);
        let mut victims = self.victims(volumes, live_percent_max, &media);
        if media.is_empty() {
            victims = self.volumes.together(victims);
        }
        let batch = self.batch_of(&victims, &media, belonging);
        done.segments_left = (victims.len() - batch.victims.len()) as u64;
        drop(victims);
        if !batch.victims.is_empty() {
            self.repack(&batch, describe, belonging, &mut done)?;
        }
        drop(batch);
        if done.segments_emptied > 0 {
            // Nothing durable names the old objects after this.
            self.engine.commit(Io::BLOCKING)?;
            self.engine.checkpoint()?;
            self.engine.checkpoint()?;
        }
        self.sweeper.delete_garbage(&mut TertiaryProgress::default());
        Ok(done)
    }

    /// The first of these, and those that go with it.
    fn batch_of(&self, victims: &[Arc<Segment>], media: &MediaOf, belonging: &Belonging<'_>) -> Batch {
        let Some(first) = victims.first() else { return Batch { victims: Vec::new(), is_unit: false } };
        let is_in_unit = |unit: &&BTreeSet<u64>| {
            unit.contains(&first.id) && victims[1..].iter().any(|victim| unit.contains(&victim.id))
        };
        let unit = belonging.units.iter().find(is_in_unit);
        let medium = media.get(&first.id).filter(|_| unit.is_none());
        let content_max = u64::from(self.engine.log().chunk_bytes()) * u64::from(first.scheme.data);
        let (count_max, bytes_max) = match (unit, medium) {
            (Some(_), _) => (VICTIMS_MAX, UNIT_BYTES_MAX),
            (None, Some(_)) => (VICTIMS_OF_MEDIUM_MAX, MEDIUM_BYTES_MAX.max(content_max)),
            (None, None) => (VICTIMS_MAX, content_max),
        };
        let goes_along = |victim: &&Arc<Segment>| {
            unit.is_none_or(|unit| unit.contains(&victim.id))
                && medium.is_none_or(|medium| media.get(&victim.id) == Some(medium))
        };
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for victim in victims.iter().filter(goes_along).take(count_max) {
            let more = if unit.is_some() { object_bytes(victim) } else { victim.live_bytes() };
            if !batch.is_empty() && bytes + more > bytes_max {
                break;
            }
            bytes += more;
            batch.push(victim.clone());
        }
        assert!(batch.first().is_some_and(|one| one.id == first.id), "a batch begins with what gains most");
        Batch { victims: batch, is_unit: unit.is_some() }
    }

    fn repack(
        &self,
        batch: &Batch,
        describe: &Describe<'_>,
        belonging: &Belonging<'_>,
        done: &mut Repacked,
    ) -> Result<(), Error> {
        let (mut moved, mut emptied): (Vec<MovedBlob>, Vec<Arc<Segment>>) = (Vec::new(), Vec::new());
        let at_once = if batch.is_unit { batch.victims.len() } else { 1 };
        for victims in batch.victims.chunks(at_once) {
            let is_over = self.copy_live(victims, belonging, &mut moved, &mut emptied, done)?;
            victims.iter().for_each(|victim| self.volumes.forget_fetched(victim.id));
            if is_over {
                break;
            }
        }
        let made: BTreeMap<u64, Arc<Segment>> = moved.iter().map(|(_, _, to)| (to.id, to.clone())).collect();
        self.engine.log().end_segments(&|segment| made.contains_key(&segment.id));
        self.engine.commit(Io::BLOCKING)?;
        // Headers take room too: what is gained may be nothing.
        let (old_bytes, new_bytes) = (bytes_of(&emptied), bytes_of(made.values()));
        if new_bytes >= old_bytes {
            let mut unpackable = self.unpackable.lock();
            unpackable.extend(emptied.iter().map(|victim| (victim.id, victim.live_bytes())));
            return Ok(());
        }
        if !self.copy_out_made(&made, describe, done)? {
            // What was appended is named by nothing, and goes with its segments.
            return Ok(());
        }
        // The table says where the new objects are before anything says that blobs are in them.
        self.engine.commit(Io::BLOCKING)?;
        for some in moved.chunks(BLOBS_PER_UPDATE) {
            assert!(some.iter().all(|(_, _, to)| to.tertiary().there != 0), "blobs move only to what was copied out");
            self.engine.moving().enter_moved(some)?;
        }
        self.engine.commit(Io::BLOCKING)?;
        done.segments_emptied = emptied.iter().filter(|victim| victim.live_bytes() == 0).count() as u64;
        (done.bytes_emptied, done.bytes_made) = (old_bytes, new_bytes);
        done.segments_made = made.len() as u64;
        // What was on volumes only shall be there only.
        if emptied.iter().all(|victim| victim.is_released()) {
            let ids: Vec<u64> = made.keys().copied().collect();
            drop((moved, made));
            self.stager.release(&ids)?;
        }
        Ok(())
    }

    /// Appends what is alive of segments elsewhere, without entering it, unit by unit; of those of which all could be read. Whether there is
    /// no room for more.
    fn copy_live(
        &self,
        victims: &[Arc<Segment>],
        belonging: &Belonging<'_>,
        moved: &mut Vec<MovedBlob>,
        emptied: &mut Vec<Arc<Segment>>,
        done: &mut Repacked,
    ) -> Result<bool, Error> {
        let (mut live, mut left) = (Vec::new(), BTreeSet::new());
        for (victim, segment) in victims.iter().enumerate() {
            match self.live_of(victim, segment) {
                Ok(Some(blobs)) => live.extend(blobs),
                Ok(None) => self.leave(segment, victim, &mut left),
                Err(Error::Elsewhere { why, .. }) => {
                    done.waits_for = Some(why);
                    left.insert(victim);
                }
                Err(error) => return Err(error),
            }
        }
        if victims.len() > 1 {
            // What is of no unit comes last.
            live.sort_by_cached_key(|blob| (belonging.unit_of)(blob.inode).unwrap_or(u64::MAX));
        }
        let (mut copied, mut is_over) = (Vec::new(), false);
        for blob in live {
            let LiveBlob { victim, handle, inode, file_offset } = blob;
            if is_over || left.contains(&victim) {
                left.insert(victim);
                continue;
            }
            match self.engine.moving().append_copy(
                &handle,
                inode,
                file_offset,
                &self.engine.moving().cold_stream(&victims[victim]),
            ) {
                Ok((value, to)) => copied.push((victim, (handle, value, to))),
                Err(Error::Damaged { .. }) => self.leave(&victims[victim], victim, &mut left),
                Err(Error::Elsewhere { why, .. }) => {
                    done.waits_for = Some(why);
                    left.insert(victim);
                }
                Err(Error::NoSpace) => {
                    done.waits_for = Some("devices have no room for what is repacked; release something".into());
                    left.insert(victim);
                    is_over = true;
                }
                Err(error) => return Err(error),
            }
        }
        moved.extend(copied.into_iter().filter(|(victim, _)| !left.contains(victim)).map(|(_, blob)| blob));
        let whole = victims.iter().enumerate().filter(|(victim, _)| !left.contains(victim));
        let emptied_before = emptied.len();
        emptied.extend(whole.map(|(_, segment)| segment.clone()));
        let emptied_here = emptied.len() - emptied_before;
        assert_eq!(emptied_here + left.len(), victims.len(), "each segment is emptied, or left as it is");
        Ok(is_over)
    }

    /// What is alive of a segment, in the order in which it lies. None if not all of it can be read.
    fn live_of(&self, victim: usize, segment: &Arc<Segment>) -> Result<Option<Vec<LiveBlob>>, Error> {
        let rows = match segment.is_released() {
            false => entries_of_segment(self.engine.log(), segment),
            true => match self.volumes.whole(segment) {
                // Reads of its blobs are answered from this chunk.
                Ok(object) => entries_of(&object),
                Err(RecallError::Damaged(_)) => return Ok(None),
                Err(RecallError::Refused(refusal, why)) => return Err(Error::Elsewhere { why, refusal }),
            },
        };
        let mut live = Vec::new();
        for (row_block, entries) in rows {
            let blobs = self.engine.moving().live_blobs(segment, row_block, &entries)?.into_iter();
            live.extend(blobs.map(|(handle, inode, file_offset)| LiveBlob { victim, handle, inode, file_offset }));
        }
        Ok(Some(live))
    }

    /// Copies new segments out to all their volumes; false, and why, if that cannot be done now.
    fn copy_out_made(
        &self,
        made: &BTreeMap<u64, Arc<Segment>>,
        describe: &Describe<'_>,
        done: &mut Repacked,
    ) -> Result<bool, Error> {
        for segment in made.values() {
            let Tertiary { wanted, there } = segment.tertiary();
            if is_planted(Bug::RepackedUnwritten) {
                segment.note_tertiary(wanted);
                continue;
            }
            let (volumes, away) = self.volumes.reachable(wanted & !there);
            if let Some(why) = away.into_iter().next() {
                done.waits_for = Some(why);
                return Ok(false);
            }
            if let Err(why) = self.uploader.upload_made(segment, &volumes, describe) {
                done.waits_for = Some(why);
                return Ok(false);
            }
            if segment.tertiary().there != wanted {
                done.waits_for = Some(format!("segment {} cannot be copied out whole", segment.id));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Not all of it can be read: it stays, and is not looked at again as it is.
    fn leave(&self, segment: &Segment, victim: usize, left: &mut BTreeSet<usize>) {
        self.unpackable.lock().insert(segment.id, segment.live_bytes());
        left.insert(victim);
    }

    /// What could not be repacked is tried again.
    pub(super) fn forget_unpackable(&self) {
        self.unpackable.lock().clear();
    }
}
