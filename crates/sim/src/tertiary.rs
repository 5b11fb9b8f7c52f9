//! What histories do with media: files go down to them, are released, read, brought back; volumes fail and lose objects.
//!
//! The oracle: a read may fail only where a segment is released and each volume that should have it is away, lied in this very step,
//! or had that object harmed; what such a read gives besides is right, and with the harm undone everything is there. Nothing else
//! ever fails because of a volume: no sync, no crash, no step of the background work. Read next: `volume.rs`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stere_device::Volume;
use stere_format::{Succession, VolumeEntry, VolumeId};
use stere_naming::Error;
use stere_store::{Io, LabelledVolume};

use crate::content::Content;
use crate::device::Machine;
use crate::fault::FaultKind;
use crate::history::{History, Stop};
use crate::observe::{self, Trouble};
use crate::operation::{Path, Releasing};
use crate::pool::{Mounted, PoolUnderTest, caller, superuser};
use crate::volume::{Harm, VolumeTrouble, name_of, number_of};
use crate::{execute::names, medium_faults, watermark_eviction};

/// Volumes of a history at most.
pub const VOLUMES_MAX: usize = 3;
/// Rounds in which all that is to go down must have gone.
const ROUNDS_MAX: usize = 400;
/// What is read where not everything can be.
const PIECE_BYTES: u64 = 4096;
pub(crate) const TIER: &[u8] = b"user.stere.tier";
/// What says that something stays on devices.
pub(crate) const PIN_ATTRIBUTE: &[u8] = b"user.stere.pin";

/// How a volume of the table is reached.
fn reach(machine: &Arc<Machine>, entry: &VolumeEntry) -> Option<Arc<dyn Volume>> {
    let volume = machine.volume(number_of(&entry.name)?);
    Some(match machine.are_labels_read.load(Ordering::Relaxed) {
        true => Arc::new(LabelledVolume::new(volume, entry.id, &entry.name)),
        false => volume,
    })
}

/// Tells the store of a pool how to reach its volumes, as a mount does: whether they are there shows when they are used.
pub(crate) fn attach_volumes(mounted: &Mounted, machine: &Arc<Machine>) {
    for entry in mounted.store.tier.media.volumes() {
        let Some(volume) = reach(machine, &entry) else { continue };
        let attach = || mounted.store.tier.media.attach_volume(entry.number, volume.clone(), None, entry.is_offline);
        // The power may go off in it: then the next mount does it.
        drop(machine.with_honest_volumes(attach));
    }
}

impl PoolUnderTest {
    /// The table's entry of a volume of the machine.
    fn volume_entry(&self, volume: u8) -> Option<VolumeEntry> {
        let name = name_of(usize::from(volume));
        self.mounted().store.tier.media.volumes().into_iter().find(|entry| entry.name == name)
    }

    /// Whether some reads may fail now: of a segment on media, of which none has a right copy that it gives.
    pub(crate) fn may_lack_content(&self) -> bool {
        let store = &self.mounted().store;
        let entries = store.tier.media.volumes();
        let is_failing = |entry: &VolumeEntry, object: &str| {
            let volume = number_of(&entry.name).unwrap_or(usize::MAX);
            let is_asked = !entry.is_offline && volume < self.machine.volume_count();
            !is_asked || self.machine.has_failed(volume, object)
        };
        store.segments().everywhere().iter().any(|segment| {
            let there = segment.tertiary().there;
            let object = stere_store::object_of(segment);
            let mut having = entries.iter().filter(|entry| entry.bit() & there != 0);
            // What devices have lost, and some faults let them, is read from volumes too, though nothing was ever released.
            there != 0 && segment.live_bytes() > 0 && having.all(|entry| is_failing(entry, &object))
        })
    }

    /// Whether an error is what volumes may give.
    pub(crate) fn is_of_volumes(&self, error: &Error) -> bool {
        error.errno() == libc::EIO && !self.machine.is_off() && self.may_lack_content()
    }

    /// Segments that lack a volume, but for those of which nothing right is left anywhere.
    pub(crate) fn waiting_segments(&self) -> Vec<u64> {
        let store = &self.mounted().store;
        let entries = store.tier.media.volumes();
        let lacking = store.segments().everywhere().into_iter().filter(|segment| {
            let (tertiary, object) = (segment.tertiary(), stere_store::object_of(segment));
            let is_harmed = |entry: &VolumeEntry| {
                number_of(&entry.name).is_some_and(|volume| self.machine.is_harmed(volume, &object))
            };
            let mut having = entries.iter().filter(|entry| entry.bit() & tertiary.there != 0);
            let is_lost = segment.is_released() && having.all(is_harmed);
            // What is meant for a volume that was removed goes nowhere.
            let known = entries.iter().fold(0, |set, entry| set | entry.bit());
            tertiary.wanted & !tertiary.there & known != 0 && segment.live_bytes() > 0 && !is_lost
        });
        lacking.map(|segment| segment.id).collect()
    }

    pub(crate) fn end_troubles(&self) {
        (0..self.machine.volume_count()).for_each(|volume| self.machine.set_trouble(volume, None));
        self.machine.put_libraries_right();
        self.mounted().store.tier.retry_uploads();
    }

    /// P-111: the volume of which most is dead is the one that is repacked by itself, and none where too little is.
    fn emptiest(&self, percent: u8) -> Result<Option<u16>, Stop> {
        let store = &self.mounted().store;
        let statuses = store.tier.media.volume_statuses();
        let dead_percent = |set: u16| {
            let status = statuses.iter().find(|status| status.entry.bit() == set)?;
            Some((status.stored_bytes - status.live_bytes.min(status.stored_bytes)) * 1000 / status.stored_bytes.max(1))
        };
        let Some(chosen) = store.tier.repacker.volume_to_repack(u64::from(percent)) else { return Ok(None) };
        let dead = dead_percent(chosen);
        // One that is deader may have nothing that can be had back, but never has it without being asked for.
        let is_deader = |status: &stere_store::VolumeStatus| {
            let alone = dead_percent(status.entry.bit()) > dead;
            alone && store.tier.repacker.is_worth_repacking(status.entry.bit(), u64::from(percent))
        };
        if dead.is_none_or(|dead| dead < u64::from(percent) * 10) || statuses.iter().any(is_deader) {
            return Err(Stop::Failure(format!("set {chosen:#b} is repacked by itself at {percent} %: {statuses:?}")));
        }
        Ok(Some(chosen))
    }
}

impl History {
    /// Reads a file from start to end. What volumes cannot give now is had by undoing what is wrong with them; what they do give is
    /// right already.
    pub(crate) fn read_file(&self, inode: u64) -> Result<Content, Trouble> {
        let (files, user) = (&self.mounted().files, caller(&self.machine));
        let outcome = observe::read_file(files, &user, inode);
        if !matches!(&outcome, Err(Trouble::Call { errno: libc::EIO, .. })) || self.machine.is_off() {
            return outcome;
        }
        if !self.pool.may_lack_content() {
            return outcome;
        }
        self.reads_refused.set(self.reads_refused.get() + 1);
        medium_faults::must_be_told(self)?;
        let size = files.getattr(&user, inode).map(|attributes| attributes.size).unwrap_or(0);
        let mut piece = vec![0; PIECE_BYTES as usize];
        let mut given = Vec::new();
        for at in (0..size).step_by(PIECE_BYTES as usize) {
            if let Ok(length) = files.read(&user, inode, at, &mut piece) {
                given.push((at, piece[..length].to_vec()));
            }
        }
        attach_volumes(self.mounted(), &self.machine);
        let whole = self.machine.with_honest_volumes(|| observe::read_file(files, &user, inode))?;
        match given.into_iter().find(|(at, bytes)| whole.read(*at, bytes.len() as u64) != *bytes) {
            Some((at, _)) => {
                Err(Trouble::Contradiction(format!("inode {inode}: volumes that fail gave wrong bytes at {at}")))
            }
            None => Ok(whole),
        }
    }

    /// As `must`, where volumes may be the reason to fail.
    pub(crate) fn must_but_for_volumes<T>(&mut self, what: &str, real: Result<T, Error>) -> Result<Option<T>, Stop> {
        match real {
            Err(error) if self.pool.is_of_volumes(&error) => Ok(None),
            real => self.must(what, real).map(Some),
        }
    }

    /// As `must`, for what is asked of one volume, which may be away, or have no room.
    fn must_of_volume<T>(
        &mut self,
        what: &str,
        volume: usize,
        real: Result<T, stere_store::Error>,
    ) -> Result<Option<T>, Stop> {
        match real {
            Err(stere_store::Error::Pool(_)) if self.machine.trouble(volume).is_some() => Ok(None),
            real => self.must(what, real.map_err(Error::from)).map(Some),
        }
    }
}

/// A volume joins the pool: a new one, or one that a crash kept from it.
pub(crate) fn add_volume(history: &mut History, is_slow: bool) -> Result<(), Stop> {
    add_volume_of(history, is_slow, false)
}

/// The same; a new one may be a tape library.
pub(crate) fn add_volume_of(history: &mut History, is_slow: bool, is_library: bool) -> Result<(), Stop> {
    let count = history.machine.volume_count();
    let lacking = (0..count).find(|volume| history.pool.volume_entry(*volume as u8).is_none());
    if lacking.is_none() && count >= VOLUMES_MAX {
        return Ok(());
    }
    let chunk_bytes = u64::from(history.plan.pool.chunk_bytes);
    let volume = lacking.unwrap_or_else(|| match is_library {
        true => history.machine.add_library(chunk_bytes),
        false => history.machine.add_volume(),
    });
    let (class, name, id) = (if is_slow { 4 } else { 3 }, name_of(volume), VolumeId([volume as u8 + 1; 16]));
    let place = format!("simulated:{name}");
    let entry = VolumeEntry {
        number: 0,
        id,
        class,
        is_offline: false,
        takes_metadata: true,
        succession: Succession::Stays,
        name,
        place,
    };
    let store = &history.mounted().store;
    let asked_for = store.tier.media.numbers_in_policies().map_err(Error::from);
    let asked_for = history.must("looking for numbers in policies", asked_for)?;
    let store = &history.mounted().store;
    let added = store.tier.media.add_volume(entry, history.machine.volume(volume), "simulated", true);
    if let Ok(number) = &added {
        let now = store.tier.media.numbers_in_policies().map_err(Error::from);
        let (number, now) = (*number, history.must("looking for numbers in policies", now)?);
        if asked_for.contains_key(&number) || now != asked_for {
            let text = format!("volume {number} is new, and policies that asked for {asked_for:?} ask for {now:?}");
            return Err(Stop::Failure(text));
        }
    }
    // Every number may have been a volume's that somebody asks for still.
    let is_out_of_numbers = |text: &String| text.contains("every number");
    if matches!(&added, Err(stere_store::Error::Pool(text)) if is_out_of_numbers(text)) {
        return Ok(());
    }
    if matches!(added, Err(stere_store::Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    if history.must_of_volume("adding a volume", volume, added)?.is_some() {
        history.note_commit();
        let entry = history.pool.volume_entry(volume as u8);
        let reached = entry.and_then(|entry| Some((entry.number, reach(&history.machine, &entry)?)));
        if let Some((number, volume)) = reached {
            let attached = history.mounted().store.tier.media.attach_volume(number, volume, None, false);
            history.must("attaching a volume", attached.map_err(Error::from))?;
        }
    }
    Ok(())
}

/// Files go down to these volumes from now on, as far as the pool has them; to none, if it has none of them.
pub(crate) fn archive(history: &mut History, path: Path, volumes: u8) -> Result<(), Stop> {
    let Some(inode) = names::plain_inode(history, path)? else { return Ok(()) };
    let entries = history.mounted().store.tier.media.volumes();
    let is_meant = |entry: &&VolumeEntry| number_of(&entry.name).is_some_and(|volume| volumes >> volume & 1 == 1);
    let names: Vec<&str> = entries.iter().filter(is_meant).map(|entry| entry.name.as_str()).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join("+") };
    names::put_policy(history, inode, TIER, names.as_bytes())
}

/// All that is on one volume goes to another, in later steps; refused where that would be fewer copies, or cannot be now.
pub(crate) fn retire_volume(history: &mut History, volume: u8, heir: u8) -> Result<(), Stop> {
    let (Some(old), Some(new)) = (history.pool.volume_entry(volume), history.pool.volume_entry(heir)) else {
        return Ok(());
    };
    // It was said before and is known for good: nothing is committed for it.
    let is_known = old.succession.heir() == Some(new.number);
    match history.mounted().store.tier.media.retire_volume(old.number, new.number) {
        Err(stere_store::Error::Pool(_)) => Ok(()),
        Ok(()) if is_known => Ok(()),
        Err(stere_store::Error::NoSpace) if history.plan.may_fill => Ok(()),
        retired => {
            history.must("retiring a volume", retired.map_err(Error::from))?;
            history.note_commit();
            Ok(())
        }
    }
}

pub(crate) fn remove_volume(history: &mut History, volume: u8) -> Result<(), Stop> {
    let Some(entry) = history.pool.volume_entry(volume) else { return Ok(()) };
    match history.mounted().store.tier.media.remove_volume(entry.number) {
        Err(stere_store::Error::Pool(_)) => Ok(()),
        Err(stere_store::Error::NoSpace) if history.plan.may_fill => Ok(()),
        removed => {
            history.must("removing a volume", removed.map_err(Error::from))?;
            history.note_commit();
            Ok(())
        }
    }
}

pub(crate) fn step_of_volumes(history: &mut History, ends: bool) -> Result<stere_store::TertiaryProgress, Stop> {
    let describe = |inodes: &std::collections::BTreeSet<u64>| format!("{inodes:?}").into_bytes();
    let before = history.mounted().store.tier.media.volumes().len();
    let progress = history.mounted().store.tier.step(ends, &describe);
    if matches!(progress, Err(stere_store::Error::NoSpace)) && history.plan.may_fill {
        return Ok(stere_store::TertiaryProgress::default());
    }
    let progress = history.must("a step of the work for volumes", progress.map_err(Error::from))?;
    note_progress(history, before, &progress)?;
    Ok(progress)
}

/// What a step of the work for volumes did, where there were so many volumes before it.
pub(crate) fn note_progress(
    history: &mut History,
    before: usize,
    progress: &stere_store::TertiaryProgress,
) -> Result<(), Stop> {
    history.summary.tier.volumes_retired += (before - history.mounted().store.tier.media.volumes().len()) as u64;
    if history.mounted().store.tier.uploader.are_uploads_held() && progress.segments_uploaded > 0 {
        return Err(Stop::Failure("segments were copied out that were held back".into()));
    }
    history.summary.tier.segments_uploaded += progress.segments_uploaded;
    history.summary.tier.segments_staged += progress.segments_staged;
    Ok(())
}

/// Some of the work for volumes.
pub(crate) fn tertiary_steps(history: &mut History, count: u8, ends: bool) -> Result<(), Stop> {
    for _ in 0..count {
        if !step_of_volumes(history, ends)?.is_busy {
            break;
        }
    }
    history.pool.emptiest(1).map(drop)
}

/// What policies ask for is done, and everything goes where it belongs, with nothing wrong with volumes.
pub(crate) fn settle_volumes(history: &mut History) -> Result<(), Stop> {
    history.pool.end_troubles();
    if !history.mounted().store.tier.media.has_volumes() {
        return Ok(());
    }
    // Who kept them back lets go.
    history.mounted().store.tier.uploader.hold_uploads(false);
    attach_volumes(history.mounted(), &history.machine);
    history.mounted().store.tier.retry_uploads();
    for _ in 0..ROUNDS_MAX {
        let more = history.mounted().files.reconciler().reconcile_step(&caller(&history.machine), 8 << 20);
        let is_reconciling = match history.must_but_for_volumes("storing files as their policy says", more) {
            Ok(more) => more.unwrap_or(true),
            Err(stop) => return Err(stop),
        };
        let progress = step_of_volumes(history, true)?;
        if is_reconciling || progress.is_busy {
            continue;
        }
        let is_local = history.pool.is_calm()
            && history.pool.away().is_none()
            && !history.pool.has_lost_member()
            && !history.plan.may_fill;
        let waiting = history.pool.waiting_segments();
        // What shall come back may lack room, or devices; what shall go down lacks nothing.
        let is_short = progress.waits_for.as_ref().is_some_and(|why| !why.contains("no room"));
        if is_local && (is_short || !waiting.is_empty()) {
            let stuck = history.mounted().store.tier.stager.stuck_uploads();
            let text = format!("segments {waiting:?} do not go down: {:?}, {stuck:?}", progress.waits_for);
            return Err(Stop::Failure(text));
        }
        let is_any_lost =
            history.pool.may_lack_content() || !history.mounted().store.tier.stager.stuck_uploads().is_empty();
        let volumes = history.mounted().store.tier.media.volumes();
        if let Some(entry) = volumes.iter().find(|entry| is_local && !is_any_lost && entry.succession.heir().is_some())
        {
            let left = history.mounted().store.tier.media.left_to_retire(entry.number);
            return Err(Stop::Failure(format!("volume {} is not retired in the end: {left:?} are left", entry.name)));
        }
        history.summary.tier.settled += u64::from(is_local);
        return Ok(());
    }
    Err(Stop::Failure("the work for volumes does not end".into()))
}

/// The segments of what is below a path that have to do with volumes.
fn segments_below(history: &mut History, path: Path) -> Result<Vec<u64>, Stop> {
    let Some(inode) = names::plain_inode(history, path)? else { return Ok(Vec::new()) };
    let mut segments = std::collections::BTreeSet::new();
    let walked = history.mounted().files.tiers().tier_walk(&caller(&history.machine), inode, &mut |met| {
        segments.extend(met.segments);
        ControlFlow::Continue(())
    });
    history.must("looking for segments", walked)?;
    Ok(segments.into_iter().collect())
}

/// What is on all its volumes is given up on devices, but for what is pinned or of others.
pub(crate) fn release_below(history: &mut History, path: Path, releasing: Releasing) -> Result<(), Stop> {
    let Some(inode) = names::plain_inode(history, path)? else { return Ok(()) };
    let mut segments = segments_below(history, path)?;
    let may_go = watermark_eviction::may_go_down(history, Some(inode))?;
    segments.retain(|segment| may_go.contains(segment));
    let others = watermark_eviction::of_others(history, Some(inode))?;
    let released = history.mounted().files.tiers().release_segments(&caller(&history.machine), &segments);
    history.summary.tier.segments_released += history.must("releasing", released)?.segments;
    watermark_eviction::must_have_kept(history, &others)?;
    let store = &history.mounted().store;
    let done = match releasing {
        Releasing::Only => return Ok(()),
        Releasing::Commit => store.commit(Io::BLOCKING),
        Releasing::Checkpoints => store.checkpoint().and_then(|()| store.checkpoint()),
    };
    if matches!(done, Err(stere_store::Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    history.must("making a release durable", done.map_err(Error::from))?;
    history.note_commit();
    Ok(())
}

/// What is below a path is asked for; later steps bring it.
pub(crate) fn stage_below(history: &mut History, path: Path) -> Result<(), Stop> {
    let segments = segments_below(history, path)?;
    history.mounted().store.tier.recalls.want_back(&segments);
    Ok(())
}

pub(crate) fn pin(history: &mut History, path: Path, is_pinned: bool) -> Result<(), Stop> {
    let Some(inode) = names::plain_inode(history, path)? else { return Ok(()) };
    let (files, who) = (&history.mounted().files, caller(&history.machine));
    let pinned = files.command(&who, || files.eviction().set_pinned(who.io, inode, is_pinned));
    let after = history.model.changed_node(inode, |node| {
        match is_pinned {
            true => node.attributes.insert(PIN_ATTRIBUTE.to_vec(), b"yes".to_vec()),
            false => node.attributes.remove(PIN_ATTRIBUTE),
        };
    });
    history.expect_names("pinning", pinned, Ok(after)).map(drop)
}

pub(crate) fn begin_trouble(history: &mut History, volume: u8, trouble: VolumeTrouble) {
    if usize::from(volume) < history.machine.volume_count() {
        history.machine.set_trouble(usize::from(volume), Some(trouble));
        history.summary.tier.troubles += 1;
    }
}

pub(crate) fn harm(history: &mut History, volume: u8, pick: u64, harm: Harm) {
    // An object that nothing names yet is proven before anything counts on it, but not again in the moment between.
    let volume = usize::from(volume);
    if volume < history.machine.volume_count() {
        history.summary.tier.harms += u64::from(history.machine.harm(volume, "segments/", pick, harm));
    }
}

/// A person takes a volume away; the next mount, or who needs it, brings it back.
pub(crate) fn take_volume_away(history: &mut History, volume: u8) -> Result<(), Stop> {
    let Some(entry) = history.pool.volume_entry(volume).filter(|entry| !entry.is_offline) else { return Ok(()) };
    let taken = history.mounted().store.tier.media.take_volume_away(entry.number);
    if matches!(taken, Err(stere_store::Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    history.must("taking a volume away", taken.map_err(Error::from))?;
    history.note_commit();
    Ok(())
}

/// A volume is compared with the pool: what lacks or is damaged was harmed, and what was harmed is found.
pub(crate) fn verify_volume(history: &mut History, volume: u8, reads: bool) -> Result<(), Stop> {
    let Some(entry) = history.pool.volume_entry(volume).filter(|entry| !entry.is_offline) else { return Ok(()) };
    let volume = usize::from(volume);
    let named = |history: &History| -> Vec<(u64, String)> {
        let segments = history.mounted().store.segments().everywhere().into_iter();
        let here = segments.filter(|segment| segment.tertiary().there & entry.bit() != 0 && segment.live_bytes() > 0);
        here.map(|segment| (segment.id, stere_store::object_of(&segment))).collect()
    };
    let before = named(history);
    let harmed: Vec<u64> = before
        .iter()
        .filter(|(_, object)| history.machine.is_harmed(volume, object))
        .map(|(segment, _)| *segment)
        .collect();
    let swept = history.mounted().store.tier.sweeper.sweep_volume(entry.number, reads);
    let Some(swept) = history.must_of_volume("comparing a volume with the pool", volume, swept)? else {
        return Ok(());
    };
    if history.machine.trouble(volume).is_some() {
        return Ok(());
    }
    let found: Vec<u64> = swept.lacking.iter().chain(&swept.damaged).copied().collect();
    // An old image of the only device knows of objects that were deleted after it was taken.
    let went_back = history.pool.has_struck(|fault| fault == FaultKind::StaleDevice);
    let is_deleted = |segment: &u64| {
        let named = before.iter().find(|(id, _)| id == segment);
        went_back && named.is_some_and(|(_, object)| history.machine.is_deleted(volume, object))
    };
    let accused = found.iter().find(|segment| !harmed.contains(segment) && !is_deleted(segment));
    // One byte may lie where nothing is stored, between two records.
    let is_plain = |segment: &u64| {
        let named = before.iter().find(|(id, _)| id == segment);
        let harm = named.and_then(|(_, object)| history.machine.harm_of(volume, object));
        harm.is_some_and(|harm| harm != Harm::Flipped)
    };
    let missed = harmed.iter().find(|segment| reads && is_plain(segment) && !found.contains(segment));
    match (accused, missed) {
        (None, None) => Ok(()),
        found => Err(Stop::Failure(format!("verifying {}: accused, missed {found:?}; {swept:?}", entry.name))),
    }
}

/// Objects that are dead in part are emptied into others, which take less.
pub(crate) fn repack(history: &mut History, percent: u8, steps: u8) -> Result<(), Stop> {
    let store = &history.mounted().store;
    let all = store.tier.media.volumes().iter().fold(0, |set, entry| set | entry.bit());
    for _ in 0..if all == 0 { 0 } else { steps } {
        let describe = |inodes: &std::collections::BTreeSet<u64>| format!("{inodes:?}").into_bytes();
        let root = superuser(&history.machine);
        let repacked = history.mounted().files.units().repack_step(&root, all, u64::from(percent), &describe);
        if matches!(repacked, Err(Error::NoSpace)) && history.plan.may_fill {
            return Ok(());
        }
        let repacked = history.must("repacking", repacked)?;
        if repacked.segments_emptied == 0 {
            continue;
        }
        history.note_commit();
        history.summary.tier.segments_repacked += repacked.segments_emptied;
        // On each volume; one that lacked a copy may have one now.
        if repacked.bytes_made >= repacked.bytes_emptied {
            return Err(Stop::Failure(format!("repacking gained nothing: {repacked:?}")));
        }
    }
    Ok(())
}

pub(crate) fn repack_emptiest(history: &mut History, percent: u8) -> Result<(), Stop> {
    let Some(chosen) = history.pool.emptiest(percent)? else { return Ok(()) };
    let describe = |inodes: &std::collections::BTreeSet<u64>| format!("{inodes:?}").into_bytes();
    let live_percent_max = 100 - u64::from(percent).min(99);
    let root = superuser(&history.machine);
    let repacked = history.mounted().files.units().repack_step(&root, chosen, live_percent_max, &describe);
    if matches!(repacked, Err(Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    let repacked = history.must("repacking", repacked)?;
    history.summary.tier.segments_repacked += repacked.segments_emptied;
    if repacked.segments_emptied > 0 {
        history.note_commit();
    }
    Ok(())
}

/// Metadata goes to volumes: a state is begun, and so many objects of it are copied.
pub(crate) fn copy_metadata(history: &mut History, steps: u8) -> Result<(), Stop> {
    let begun = history.mounted().store.tier.copier.begin_metadata_copy(true);
    if matches!(begun, Err(stere_store::Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    if !history.must("beginning to copy metadata", begun.map_err(Error::from))? {
        return Ok(());
    }
    history.note_commit();
    for _ in 0..steps {
        let copied = history.mounted().store.tier.copier.copy_metadata_step();
        if !history.must("copying metadata", copied.map_err(Error::from))? {
            break;
        }
    }
    Ok(())
}
