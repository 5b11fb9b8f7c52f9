//! Tertiary volumes as people name them: `dir:/path`, `s3://bucket`, `dav://host/folder`, `sftp://host/path`, `robot:changer`, opened, checked
//! against their labels, and waited for.
//!
//! A volume may be away when the pool is mounted and come later, or be exchanged for another while nobody looks: the store's
//! `LabelledVolume` reads its label whenever that may be so. Readers may wait for it; background work never does.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stere_device::{Cancellation, DirectoryVolume, Medium, MediumWait, Take, Volume, VolumeError};
use stere_format::{Succession, VolumeEntry, VolumeId, VolumeLabel};
use stere_pool::Assembly;
use stere_store::{LabelledVolume, Store};

use crate::error::{Error, Result, refused};
use crate::registry::Registry;
use crate::running::{Running, agreement};
use crate::spec::DeviceSpec;

/// A tape library that there is not, in a directory.
const SIMULATED: &str = "robot:simulated:";

const PLACE_BYTES_MAX: usize = 255;

const POLL: Duration = Duration::from_millis(250);
/// So soon after a read waited in vain it is taken for the same reader who asks for it once more; of so many reads.
const ASKED_AGAIN: Duration = Duration::from_secs(2);
const WAITED_MAX: usize = 64;
/// So long who asks how volumes are waits for those that are looked for.
const LOOKED_FOR: Duration = Duration::from_secs(1);

/// How long readers wait for volumes, and whether they may wait at all any more.
#[derive(Default)]
pub struct Gate {
    timeout_ms: AtomicU64,
    is_closed: AtomicBool,
    /// Requests to all volumes since the pool was opened.
    requests: AtomicU64,
    /// Volumes by their numbers, as they were opened last.
    opened: Mutex<BTreeMap<u8, Arc<Labelled>>>,
}

impl Gate {
    fn opened(&self) -> BTreeMap<u8, Arc<Labelled>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The media of a volume that has many.
    pub fn media(&self, number: u8) -> Vec<Medium> {
        self.opened().get(&number).map(|volume| volume.media()).unwrap_or_default()
    }

    /// Why a volume could not do what it was asked for last: that changes while readers wait for it.
    pub fn complaint(&self, number: u8) -> Option<String> {
        self.opened().get(&number)?.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads that wait for a volume now.
    pub fn waiting_reads(&self, number: u8) -> u64 {
        self.opened().get(&number).map_or(0, |volume| volume.waiting.load(Ordering::Relaxed))
    }

    /// On which medium of a volume an object is, and how long it takes to get there.
    pub fn estimate(&self, number: u8, object: &str) -> Option<(String, Duration)> {
        self.opened().get(&number)?.estimate(object)
    }

    /// The mount has ended: media are put away.
    pub fn close_media(&self) {
        let opened = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        opened.values().for_each(|volume| volume.close());
    }

    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(timeout.as_millis() as u64, Ordering::Release);
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Nobody waits any more: the mount ends.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    fn has_time_since(&self, start: Instant) -> bool {
        let timeout = Duration::from_millis(self.timeout_ms.load(Ordering::Acquire));
        !self.is_closed.load(Ordering::Acquire) && start.elapsed() < timeout
    }
}

/// A volume that is known to be the right one whenever it is used, and waited for by readers.
struct Labelled {
    inner: LabelledVolume,
    name: String,
    /// What it said last, where that may pass.
    complaint: Mutex<Option<String>>,
    /// Reads that wait for it.
    waiting: AtomicU64,
    /// Reads that waited as long as they may, and when that was over: the kernel asks once more, page by page, for what it read ahead.
    waited: Mutex<VecDeque<(String, Range<u64>, Instant)>>,
    /// Somebody looks whether it is there.
    is_looked_for: AtomicBool,
    gate: Arc<Gate>,
}

/// A read that waits; ends with it.
struct WaitingRead<'a>(&'a AtomicU64);

impl<'a> WaitingRead<'a> {
    fn begin(waiting: &'a AtomicU64) -> WaitingRead<'a> {
        waiting.fetch_add(1, Ordering::Relaxed);
        WaitingRead(waiting)
    }
}

impl Drop for WaitingRead<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Labelled {
    fn new(inner: LabelledVolume, name: String, gate: Arc<Gate>) -> Labelled {
        let (complaint, waited) = Default::default();
        let (waiting, is_looked_for) = Default::default();
        Labelled { inner, name, complaint, waiting, waited, is_looked_for, gate }
    }

    /// Whether somebody waited for this in vain just now.
    fn was_waited_for(&self, object: &str, offset: u64) -> bool {
        let mut waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        waited.retain(|(_, _, over)| over.elapsed() < ASKED_AGAIN);
        waited.iter().any(|(known, range, _)| known == object && range.contains(&offset))
    }

    fn note_waited(&self, object: &str, range: Range<u64>) {
        let mut waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        if waited.len() == WAITED_MAX {
            waited.pop_front();
        }
        waited.push_back((object.to_owned(), range, Instant::now()));
    }

    fn note(&self, error: Option<&VolumeError>) {
        let text = error.filter(|error| error.is_passing()).map(ToString::to_string);
        let mut complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        if *complaint != text {
            if let Some(text) = &text {
                tracing::warn!(volume = self.name, "{text}");
            }
            *complaint = text;
        }
    }

    fn use_it<T>(
        &self,
        act: impl FnOnce(&dyn Volume) -> std::result::Result<T, VolumeError>,
    ) -> std::result::Result<T, VolumeError> {
        self.gate.requests.fetch_add(1, Ordering::Relaxed);
        let outcome = act(&self.inner);
        self.note(outcome.as_ref().err());
        outcome
    }
}

impl Volume for Labelled {
    fn put(&self, object: &str, bytes: &[u8]) -> std::result::Result<(), VolumeError> {
        self.use_it(|volume| volume.put(object, bytes))
    }

    fn get(
        &self,
        object: &str,
        offset: u64,
        into: &mut [u8],
        wait: &MediumWait,
    ) -> std::result::Result<(), VolumeError> {
        let start = Instant::now();
        let is_again = wait.for_away && self.was_waited_for(object, offset);
        let mut waits = None;
        loop {
            let outcome = self.use_it(|volume| volume.get(object, offset, into, wait));
            let is_away = outcome.as_ref().is_err_and(VolumeError::is_passing);
            let is_over = || is_again || !self.gate.has_time_since(start) || wait.cancellation.is_cancelled();
            if !is_away || !wait.for_away || is_over() {
                if waits.is_some() && is_away {
                    self.note_waited(object, offset..offset + into.len() as u64);
                }
                return outcome;
            }
            waits.get_or_insert_with(|| WaitingRead::begin(&self.waiting));
            std::thread::sleep(POLL);
        }
    }

    fn stream(
        &self,
        object: &str,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> std::result::Result<(), VolumeError> {
        self.use_it(|volume| volume.stream(object, length, take, cancellation))
    }

    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> std::result::Result<(), VolumeError> {
        self.use_it(|volume| volume.stream_part(object, offset, length, take, cancellation))
    }

    fn length(&self, object: &str) -> std::result::Result<Option<u64>, VolumeError> {
        self.use_it(|volume| volume.length(object))
    }

    fn length_for(&self, object: &str, cancellation: &Cancellation) -> std::result::Result<Option<u64>, VolumeError> {
        self.use_it(|volume| volume.length_for(object, cancellation))
    }

    fn delete(&self, object: &str) -> std::result::Result<(), VolumeError> {
        self.use_it(|volume| volume.delete(object))
    }

    fn list(&self, prefix: &str) -> std::result::Result<Vec<(String, u64)>, VolumeError> {
        self.use_it(|volume| volume.list(prefix))
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn begins_at(&self, object: &str, offset: u64) -> Option<u64> {
        self.inner.begins_at(object, offset)
    }

    fn media(&self) -> Vec<Medium> {
        self.inner.media()
    }

    fn is_proven_by_its_media(&self) -> bool {
        self.inner.is_proven_by_its_media()
    }

    fn may_be_exchanged(&self) -> bool {
        self.inner.may_be_exchanged()
    }

    fn estimate(&self, object: &str) -> Option<(String, Duration)> {
        self.inner.estimate(object)
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// Whether this names a volume, not a device.
pub fn is_place(text: &str) -> bool {
    text.starts_with("dir:") || stere_tertiary::is_place(text) || stere_robot::is_place(text)
}

/// How to reach what is named; the volume itself may be away.
pub fn open_place(place: &str) -> Result<Arc<dyn Volume>> {
    match place.strip_prefix("dir:") {
        Some(path) if Path::new(path).is_absolute() => Ok(Arc::new(DirectoryVolume::new(Path::new(path)))),
        Some(path) => refused(format!("'{path}' does not begin at the root; name the whole path of the directory")),
        None if stere_tertiary::is_place(place) => stere_tertiary::open(place).map_err(Error::Refused),
        None if stere_robot::is_place(place) => open_library(place),
        None => refused(format!(
            "'{place}' is no place of a volume; there are dir:/path, s3://bucket/prefix, dav://host/folder, \
             sftp://user@host/path and robot:CHANGER,drive=DRIVE"
        )),
    }
}

/// A tape library. What is on which cartridge is remembered on this machine, so that not all have to be looked at.
fn open_library(place: &str) -> Result<Arc<dyn Volume>> {
    let library: stere_robot::Place =
        place.parse().map_err(|error: stere_robot::PlaceError| Error::Refused(error.to_string()))?;
    let name = format!("{:08x}-{}", stere_format::crc32c(place.as_bytes()), library.set);
    let catalogue = Registry::open().state().join("robots").join(name);
    match library.open(place, Some(catalogue), false) {
        Ok(library) => Ok(Arc::new(library)),
        Err(why) => refused(why),
    }
}

/// The place with a whole path, as it is remembered.
pub fn whole_place(place: &str) -> Result<String> {
    if let Some(path) = place.strip_prefix(SIMULATED) {
        let (path, keys) =
            path.split_once(',').map_or((path, String::new()), |(path, keys)| (path, format!(",{keys}")));
        let path = std::path::absolute(PathBuf::from(path)).map_err(Error::System)?;
        return Ok(format!("{SIMULATED}{}{keys}", path.display()));
    }
    let Some(path) = place.strip_prefix("dir:") else { return Ok(place.to_owned()) };
    let path = std::path::absolute(PathBuf::from(path)).map_err(Error::System)?;
    let place = format!("dir:{}", path.display());
    match place.len() > PLACE_BYTES_MAX {
        true => refused("the path of a volume has at most 250 bytes; mount it at a shorter one"),
        false => Ok(place),
    }
}

/// Refuses a directory that is in the pool itself: what was put there would be put there again, and nobody could reach it when the pool is lost.
/// A path without `dir:` is one, too, if it is a directory's.
pub fn refuse_own(registry: &Registry, pool: &str, place: &str) -> Result<()> {
    let path = match place.strip_prefix("dir:") {
        Some(path) => path,
        None if Path::new(place).is_dir() => place,
        None => return Ok(()),
    };
    let path = std::path::absolute(path).map_err(Error::System)?;
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(&path);
    let daemons = crate::control::daemons(registry);
    match crate::locate::mount_of(&daemons, there) {
        Ok(about) if about.pool == pool => refused(format!(
            "{} is in the pool '{pool}' itself, which would keep its copies in itself; name a directory on another disk",
            path.display()
        )),
        _ => Ok(()),
    }
}

/// A place is kept in the pool, in a text of so many bytes at most.
fn refuse_long(place: &str) -> Result<()> {
    match place.len() > PLACE_BYTES_MAX {
        true => refused(format!(
            "the place of a volume has at most {PLACE_BYTES_MAX} bytes with its keys, and this one has {}; keep its files at shorter paths",
            place.len()
        )),
        false => Ok(()),
    }
}

/// For a store that is not mounted: tells it how to reach its volumes if names lie there that were put away.
pub fn open_for_names(store: &Store, registry: &Registry, assembly: &Assembly) {
    if !store.has_folds() {
        return;
    }
    let (pool, id) = (&assembly.newest.pool_name, assembly.newest.pool.to_string());
    let record = agreement::record_of(registry, pool, &id);
    for entry in store.tier.media.volumes().into_iter().filter(|entry| !entry.is_offline) {
        if !agreement::is_agreed(record.as_ref(), &entry) {
            eprintln!("stere: volume {}: {}", entry.name, agreement::why_withheld(pool, &entry));
            continue;
        }
        let attached = open_place(&entry.place)
            .and_then(|volume| Ok(store.tier.media.attach_volume(entry.number, volume, None, false)?));
        if let Err(error) = attached {
            tracing::warn!(volume = entry.name, %error, "a tertiary volume cannot be opened");
        }
    }
}

impl Running {
    fn labelled(&self, entry: &VolumeEntry, inner: Arc<dyn Volume>) -> Arc<dyn Volume> {
        let (inner, gate) = (LabelledVolume::new(inner, entry.id, &entry.name), self.gate.clone());
        let volume = Arc::new(Labelled::new(inner, entry.name.clone(), gate));
        self.gate.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.number, volume.clone());
        volume
    }

    /// Tells the store how to reach the volumes of its table; whether they are there shows when they are used.
    pub fn open_volumes(&self) {
        for entry in self.store.tier.media.volumes().into_iter().filter(|entry| !entry.is_offline) {
            let opened = self.agreed_place(&entry).and_then(|volume| {
                let volume = self.labelled(&entry, volume);
                Ok(self.store.tier.media.attach_volume(entry.number, volume, None, false)?)
            });
            if let Err(error) = opened {
                tracing::warn!(volume = entry.name, %error, "a tertiary volume cannot be opened");
            }
        }
    }

    /// Looks which directories are there, so that what is told of them is so: people take disks away and say nothing. What does not
    /// answer in a moment is told as it was.
    pub fn look_for_volumes(&self) {
        let (told, answers) = std::sync::mpsc::channel();
        let mut asked = 0;
        for (number, volume) in self.gate.opened().into_iter().filter(|(_, volume)| volume.may_be_exchanged()) {
            if volume.is_looked_for.swap(true, Ordering::AcqRel) {
                continue;
            }
            let (told, store, looked_for) = (told.clone(), self.store.clone(), volume.clone());
            let look = move || {
                let found = looked_for.length(VolumeLabel::OBJECT);
                store.tier.media.note_looked_for(number, found.err().as_ref());
                looked_for.is_looked_for.store(false, Ordering::Release);
                // Nobody may wait any more.
                let _whether_heard = told.send(());
            };
            match std::thread::Builder::new().name("look".into()).spawn(look) {
                Ok(_) => asked += 1,
                Err(_) => volume.is_looked_for.store(false, Ordering::Release),
            }
        }
        let until = Instant::now() + LOOKED_FOR;
        for _ in 0..asked {
            if answers.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
                return;
            }
        }
    }

    /// The volume that a person means.
    pub fn find_volume(&self, word: &str) -> Option<VolumeEntry> {
        self.store.tier.media.volumes().into_iter().find(|entry| entry.name == word || entry.place == word)
    }

    /// Makes these volumes part of the pool.
    pub fn add_volumes(&self, specs: &[&DeviceSpec], force: bool) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for spec in specs {
            let place = spec.path.display().to_string();
            refuse_long(&place)?;
            let inner = open_place(&place)?;
            let mut id = [0; 16];
            getrandom::fill(&mut id).expect("the operating system gives random bytes");
            let is_library = stere_robot::is_place(&place);
            // Positioning costs more than bytes there.
            let usual = if is_library { stere_pool::DeviceClass::Media } else { stere_pool::DeviceClass::Object };
            let class = spec.class.unwrap_or(usual);
            let short = || match place.parse::<stere_robot::Place>() {
                Ok(library) => Some(library.set),
                Err(_) => Path::new(&place).file_name().map(|name| name.to_string_lossy().into_owned()),
            };
            let name = if spec.name.is_empty() { short().unwrap_or_default() } else { spec.name.clone() };
            if self.store.device_entries().iter().any(|entry| entry.name == name) {
                return refused(format!(
                    "the pool '{}' has a device named '{name}' already; give another name",
                    self.pool
                ));
            }
            let id = VolumeId(id);
            let (class, takes_metadata) = (class.code(), spec.takes_metadata);
            let entry = VolumeEntry {
                number: 0,
                id,
                class,
                is_offline: false,
                takes_metadata,
                succession: Succession::Stays,
                name: name.clone(),
                place: place.clone(),
            };
            let number = self.store.tier.media.add_volume(entry.clone(), inner.clone(), &self.pool, force)?;
            let volume = self.labelled(&VolumeEntry { number, ..entry }, inner);
            self.store.tier.media.attach_volume(number, volume, None, true)?;
            self.agree(id, &place);
            // What a removed volume with this number cost is no matter.
            let prices = spec.prices.of(stere_store::VolumePrices::default());
            if self.store.tier.media.volume_prices(number)? != prices {
                self.store.tier.media.set_volume_prices(number, prices)?;
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Uses a volume again, perhaps from another place.
    pub fn volume_online(&self, entry: &VolumeEntry, path: Option<&Path>) -> Result<String> {
        let place = match path.map(|path| path.display().to_string()) {
            None => entry.place.clone(),
            Some(text) if is_place(&text) => text,
            Some(text) => format!("dir:{text}"),
        };
        refuse_long(&place)?;
        let volume = self.labelled(entry, open_place(&place)?);
        self.store.tier.media.attach_volume(entry.number, volume, Some(&place), true)?;
        self.agree(entry.id, &place);
        Ok(format!("volume {} is in use", entry.name))
    }
}

#[cfg(test)]
mod tests;
