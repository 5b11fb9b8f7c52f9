//! Simulated media: objects in memory that survive power cuts, are away, lie, and lose what they had.
//!
//! A volume shares its machine's power, clock and chance: power can go off in the middle of any put or delete, and what was under
//! way then is there wholly, in part or not at all. *VolumeTrouble* is what a volume does wrong with requests while it lasts: whoever
//! writes must find that out. *Harm* is what happens to an object that was right: then, and only then, a read may fail, and no
//! volume ever makes it give other bytes. What harm took is kept aside, so that the oracle can look at it. Read next:
//! `library.rs` (volumes that are tape libraries), `tertiary.rs` (what histories do with volumes).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stere_device::{MediumWait, Volume, VolumeError};
use stere_format::VolumeLabel;

use crate::device::{Machine, Meanwhile, State};
use crate::library::LibraryVolume;

/// How long a request takes.
const REQUEST_NS: u64 = 40_000_000;
/// How long a server fails that fails for an hour.
const HOUR_NS: u64 = 3600 * 1_000_000_000;
/// Objects of which a list that comes late may not know.
const LATELY_MAX: usize = 64;

/// What a volume does wrong while it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeTrouble {
    /// It does not answer.
    Outage,
    /// Every other request is an error of the server.
    Flaky,
    /// It takes nothing more.
    Full,
    /// Every other put is acknowledged and stores nothing.
    ForgetsPuts,
    /// Every other put stores other bytes.
    GarblesPuts,
    /// Every other put stores a part.
    HalvesPuts,
    /// Every other read gives other bytes.
    LiesOnReads,
    /// The server refuses the credentials.
    Revoked,
    /// It gives, and takes nothing and lets nothing be deleted.
    OnlyReads,
    /// For an hour every request is an error of the server.
    ErrorsForAnHour,
    /// What it lists is, in part, what was there before the last puts and deletes.
    ListsLate,
    /// Another medium is at its place: the next volume's, or one of somebody else's.
    Exchanged,
    /// Its label is another's.
    Mislabelled,
}

impl VolumeTrouble {
    pub const ALL: [VolumeTrouble; 7] = [
        VolumeTrouble::Outage,
        VolumeTrouble::Flaky,
        VolumeTrouble::Full,
        VolumeTrouble::ForgetsPuts,
        VolumeTrouble::GarblesPuts,
        VolumeTrouble::HalvesPuts,
        VolumeTrouble::LiesOnReads,
    ];

    /// Those that only some histories meet.
    pub const RARE: [VolumeTrouble; 6] = [
        VolumeTrouble::Revoked,
        VolumeTrouble::OnlyReads,
        VolumeTrouble::ErrorsForAnHour,
        VolumeTrouble::ListsLate,
        VolumeTrouble::Exchanged,
        VolumeTrouble::Mislabelled,
    ];

    /// The others strike every other time.
    fn is_certain(self) -> bool {
        use VolumeTrouble::{ErrorsForAnHour, Exchanged, Full, Mislabelled, OnlyReads, Outage, Revoked};
        matches!(self, Outage | Full | Revoked | OnlyReads | ErrorsForAnHour | Exchanged | Mislabelled)
    }
}

/// What happens to an object that was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    Missing,
    /// One byte is another.
    Flipped,
    /// Its end is gone.
    Cut,
    /// It is what another object was.
    Old,
    /// A place in it cannot be read.
    Unreadable,
}

impl Harm {
    pub const ALL: [Harm; 4] = [Harm::Missing, Harm::Flipped, Harm::Cut, Harm::Old];
    /// With the one that only some histories meet.
    pub const ANY: [Harm; 5] = [Harm::Missing, Harm::Flipped, Harm::Cut, Harm::Old, Harm::Unreadable];
}

/// An object; what was harmed has what it really was beside it.
#[derive(Debug, Clone, Default)]
struct Object {
    bytes: Option<Arc<Vec<u8>>>,
    unharmed: Option<Arc<Vec<u8>>>,
    harm: Option<Harm>,
    /// The byte that cannot be read.
    unreadable: Option<u64>,
}

/// A volume as its machine keeps it.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeState {
    objects: BTreeMap<String, Object>,
    trouble: Option<VolumeTrouble>,
    trouble_since_ns: u64,
    /// Objects that could not be read, or not rightly, since the step of the history began.
    pub(crate) failed: BTreeSet<String>,
    /// What lists that come late lack, and what they have still.
    put_lately: BTreeSet<String>,
    gone_lately: BTreeMap<String, u64>,
    /// What the pool deleted, and did not put again.
    deleted: BTreeSet<String>,
}

impl VolumeState {
    pub fn begin_step(&mut self) {
        self.failed.clear();
    }

    fn note_put(&mut self, object: &str) {
        self.gone_lately.remove(object);
        self.deleted.remove(object);
        self.put_lately.insert(object.to_owned());
        if self.put_lately.len() > LATELY_MAX {
            self.put_lately.pop_first();
        }
    }

    fn note_gone(&mut self, object: &str, bytes: u64) {
        self.put_lately.remove(object);
        self.deleted.insert(object.to_owned());
        self.gone_lately.insert(object.to_owned(), bytes);
        if self.gone_lately.len() > LATELY_MAX {
            self.gone_lately.pop_first();
        }
    }
}

impl State {
    /// What a volume does wrong now.
    fn trouble(&self, volume: usize) -> Option<VolumeTrouble> {
        let VolumeState { trouble, trouble_since_ns, .. } = &self.volumes[volume];
        let is_over = |trouble: &VolumeTrouble| {
            *trouble == VolumeTrouble::ErrorsForAnHour && self.clock_ns >= trouble_since_ns + HOUR_NS
        };
        trouble.filter(|trouble| !is_over(trouble) && !self.are_volumes_honest)
    }

    fn has_trouble(&mut self, volume: usize, trouble: VolumeTrouble) -> bool {
        self.trouble(volume) == Some(trouble) && (trouble.is_certain() || self.random.chance(1, 2))
    }

    /// Time, power and outages, which all requests share.
    pub(crate) fn ask(&mut self, volume: usize, request: u64, object: &str) -> Result<(), VolumeError> {
        if self.is_off {
            return Err(away(volume, "the power is off"));
        }
        self.count_request();
        self.clock_ns += REQUEST_NS;
        self.note(usize::MAX - volume, request, u64::from(stere_format::crc32c(object.as_bytes())), 0);
        let outages = [
            (VolumeTrouble::Outage, "503"),
            (VolumeTrouble::Flaky, "503"),
            (VolumeTrouble::ErrorsForAnHour, "500"),
            (VolumeTrouble::Revoked, "the server refuses the credentials: 403"),
        ];
        for (trouble, why) in outages {
            if self.has_trouble(volume, trouble) {
                self.volumes[volume].failed.insert(object.to_owned());
                return Err(away(volume, why));
            }
        }
        let is_change = request & 0xff == 1 || request == 4;
        if is_change && self.has_trouble(volume, VolumeTrouble::OnlyReads) {
            return Err(away(volume, "the server refuses the credentials: 403"));
        }
        Ok(())
    }

    /// What is at the volume's place now.
    fn medium(&mut self, volume: usize) -> &mut VolumeState {
        if self.trouble(volume) != Some(VolumeTrouble::Exchanged) {
            return &mut self.volumes[volume];
        }
        match self.volumes.len() {
            1 => &mut self.stranger,
            count => &mut self.volumes[(volume + 1) % count],
        }
    }

    /// What is to be had under this name, and where in it nothing can be read.
    fn object(&mut self, volume: usize, object: &str) -> Option<(Arc<Vec<u8>>, Option<u64>)> {
        if object == VolumeLabel::OBJECT && self.trouble(volume) == Some(VolumeTrouble::Mislabelled) {
            return Some((Arc::new(b"another label".to_vec()), None));
        }
        let is_honest = self.are_volumes_honest;
        let found = self.medium(volume).objects.get(object)?;
        match &found.unharmed {
            Some(bytes) if is_honest => Some((bytes.clone(), None)),
            _ => Some((found.bytes.clone()?, found.unreadable)),
        }
    }

    fn unharmed(&self, volume: usize, object: &str) -> Option<Arc<Vec<u8>>> {
        self.volumes[volume].objects.get(object)?.unharmed.clone()
    }

    fn put(&mut self, volume: usize, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        self.ask(volume, 1 ^ u64::from(stere_format::crc32c(bytes)) << 8, object)?;
        if self.has_trouble(volume, VolumeTrouble::Full) {
            return Err(VolumeError::Full { volume: name_of(volume) });
        }
        let part = |random: &mut crate::random::Random| random.below(bytes.len() as u64 + 1) as usize;
        let store = |state: &mut State, bytes: Vec<u8>| {
            let stored = Object { bytes: Some(Arc::new(bytes)), ..Object::default() };
            let medium = state.medium(volume);
            medium.objects.insert(object.to_owned(), stored);
            medium.note_put(object);
        };
        if self.boundary() {
            match self.random.below(3) {
                0 => {}
                1 => store(self, bytes.to_vec()),
                _ => {
                    let length = part(&mut self.random);
                    store(self, bytes[..length].to_vec());
                }
            }
            return Err(away(volume, "the power went off"));
        }
        if self.has_trouble(volume, VolumeTrouble::ForgetsPuts) {
            return Ok(());
        }
        let mut bytes = bytes.to_vec();
        if self.has_trouble(volume, VolumeTrouble::HalvesPuts) {
            bytes.truncate(part(&mut self.random));
        }
        if self.has_trouble(volume, VolumeTrouble::GarblesPuts) && !bytes.is_empty() {
            let at = self.random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 0x10;
        }
        store(self, bytes);
        Ok(())
    }

    fn get(&mut self, volume: usize, object: &str, offset: u64, into: &mut [u8]) -> Result<(), VolumeError> {
        self.ask(volume, 2, object)?;
        let range = offset as usize..offset as usize + into.len();
        let found = self.object(volume, object);
        let part = found.as_ref().and_then(|(bytes, _)| bytes.get(range.clone()));
        let unreadable = found.as_ref().and_then(|(_, at)| *at).is_some_and(|at| range.contains(&(at as usize)));
        let unharmed = self.unharmed(volume, object).filter(|_| !self.are_volumes_honest);
        if unreadable || unharmed.is_some_and(|unharmed| unharmed.get(range) != part) {
            self.volumes[volume].failed.insert(object.to_owned());
        }
        let (name, object_name) = (name_of(volume), object.to_owned());
        match (&found, part) {
            (None, _) => Err(VolumeError::NoObject { volume: name, object: object_name }),
            (Some((bytes, _)), None) => {
                let (length, needed) = (bytes.len() as u64, offset + into.len() as u64);
                Err(VolumeError::Short { volume: name, object: object_name, length, needed })
            }
            _ if unreadable => {
                let why = "a block cannot be read".to_owned();
                Err(VolumeError::Damaged { volume: name, object: object_name, why })
            }
            (Some(_), Some(part)) => {
                into.copy_from_slice(part);
                if self.has_trouble(volume, VolumeTrouble::LiesOnReads) && !into.is_empty() {
                    let at = self.random.below(into.len() as u64) as usize;
                    into[at] ^= 0x20;
                    self.volumes[volume].failed.insert(object_name);
                }
                Ok(())
            }
        }
    }
}

pub(crate) fn away(volume: usize, why: &str) -> VolumeError {
    VolumeError::Away { volume: name_of(volume), why: why.to_owned() }
}

/// Does what somebody else does: on a thread of its own, for threads keep things; who waits here waits for it.
fn aside(others: Meanwhile) {
    #[cfg(feature = "planted-bugs")]
    let bug = stere_faults::Bug::ALL.into_iter().find(|bug| stere_faults::is_planted(*bug));
    let done = std::thread::scope(|scope| {
        let work = move || {
            #[cfg(feature = "planted-bugs")]
            stere_faults::plant(bug);
            others();
        };
        scope.spawn(work).join()
    });
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

/// What a pool calls the volume with this number of the machine.
pub fn name_of(volume: usize) -> String {
    format!("volume-{volume}")
}

/// The number of the machine's volume that the pool calls so.
pub fn number_of(name: &str) -> Option<usize> {
    name.strip_prefix("volume-")?.parse().ok()
}

impl Machine {
    /// Adds an empty volume, and tells its number.
    pub fn add_volume(&self) -> usize {
        let mut state = self.state.lock();
        state.volumes.push(VolumeState::default());
        state.volumes.len() - 1
    }

    pub fn volume_count(&self) -> usize {
        self.state.lock().volumes.len()
    }

    /// A volume as the stack sees it.
    pub fn volume(self: &Arc<Machine>, volume: usize) -> Arc<dyn Volume> {
        match self.cabinet(volume) {
            Some(cabinet) => Arc::new(LibraryVolume::new(self.clone(), volume, cabinet)),
            None => Arc::new(SimVolume { machine: self.clone(), volume }),
        }
    }

    /// Somebody else does what he waits to do.
    pub(crate) fn let_others_in(&self) {
        let meanwhile = self.meanwhile.lock().take();
        if let Some(others) = meanwhile {
            aside(others);
        }
    }

    /// While any volume is read next, this is done first: calls do not overlap here, but who reads a volume lets others in.
    pub(crate) fn set_meanwhile(&self, meanwhile: Option<Meanwhile>) {
        *self.meanwhile.lock() = meanwhile;
    }

    /// From now on the volume does this wrong, or nothing.
    pub fn set_trouble(&self, volume: usize, trouble: Option<VolumeTrouble>) {
        let mut state = self.state.lock();
        let now_ns = state.clock_ns;
        let volume = &mut state.volumes[volume];
        (volume.trouble, volume.trouble_since_ns) = (trouble, now_ns);
    }

    /// What a volume does wrong; what is wrong with a library's cartridges counts as well.
    pub fn trouble(&self, volume: usize) -> Option<VolumeTrouble> {
        let of_library = self.cabinet(volume).filter(|cabinet| cabinet.is_wrong()).map(|_| VolumeTrouble::Outage);
        self.state.lock().trouble(volume).or(of_library)
    }

    /// Whether any object of any volume was harmed and is so still.
    pub fn is_any_harmed(&self) -> bool {
        let state = self.state.lock();
        state.volumes.iter().flat_map(|volume| volume.objects.values()).any(|object| object.unharmed.is_some())
    }

    /// Nothing is wrong with any volume while `look` looks, not even with objects that were harmed.
    pub fn with_honest_volumes<T>(&self, look: impl FnOnce() -> T) -> T {
        self.put_libraries_right();
        let before = std::mem::replace(&mut self.state.lock().are_volumes_honest, true);
        let seen = look();
        self.state.lock().are_volumes_honest = before;
        seen
    }

    /// Harms the `pick`-th object whose name begins like this; false if there is none, or it is harmed already.
    pub fn harm(&self, volume: usize, prefix: &str, pick: u64, harm: Harm) -> bool {
        let State { volumes, random, .. } = &mut *self.state.lock();
        let objects = &mut volumes[volume].objects;
        let names: Vec<String> = objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
        if names.is_empty() {
            return false;
        }
        let (at, other) = ((pick % names.len() as u64) as usize, random.below(names.len() as u64) as usize);
        let other = objects[&names[other]].bytes.clone();
        let Some(object) = objects.get_mut(&names[at]).filter(|object| object.unharmed.is_none()) else { return false };
        let Some(bytes) = object.bytes.take().filter(|bytes| !bytes.is_empty()) else { return false };
        object.harm = Some(harm);
        object.bytes = match harm {
            Harm::Missing => None,
            Harm::Cut => Some(Arc::new(bytes[..random.below(bytes.len() as u64) as usize].to_vec())),
            Harm::Old if other.as_ref().is_some_and(|other| *other != bytes) => other,
            Harm::Unreadable => {
                object.unreadable = Some(random.below(bytes.len() as u64));
                Some(bytes.clone())
            }
            Harm::Flipped | Harm::Old => {
                object.harm = Some(Harm::Flipped);
                let mut changed = bytes.to_vec();
                changed[random.below(bytes.len() as u64) as usize] ^= 1 << random.below(8);
                Some(Arc::new(changed))
            }
        };
        object.unharmed = Some(bytes);
        true
    }

    /// An object of any volume that holds what `is_wanted` looks for.
    pub fn any_object(&self, is_wanted: &dyn Fn(&[u8]) -> bool) -> Option<String> {
        let state = self.state.lock();
        let mut objects = state.volumes.iter().flat_map(|volume| &volume.objects);
        let found = objects.find(|(_, object)| object.bytes.as_ref().is_some_and(|bytes| is_wanted(bytes)));
        found.map(|(name, _)| name.clone())
    }

    /// Whether an object was harmed, and not stored anew since.
    pub fn is_harmed(&self, volume: usize, object: &str) -> bool {
        self.state.lock().unharmed(volume, object).is_some()
    }

    /// Whether the pool deleted an object, and did not put it again.
    pub fn is_deleted(&self, volume: usize, object: &str) -> bool {
        self.state.lock().volumes[volume].deleted.contains(object)
    }

    /// What was done to an object, if it was not stored anew since.
    pub fn harm_of(&self, volume: usize, object: &str) -> Option<Harm> {
        self.state.lock().volumes[volume].objects.get(object)?.harm
    }

    /// Whether any object could not be read, or not rightly, since the step of the history began.
    pub fn has_any_failed(&self) -> bool {
        let is_wrong = |volume| self.has_failed(volume, VolumeLabel::OBJECT);
        (0..self.volume_count()).any(is_wrong) || self.state.lock().volumes.iter().any(|one| !one.failed.is_empty())
    }

    /// Whether an object could not be read, or not rightly, since the step of the history began; without the right label none can.
    pub fn has_failed(&self, volume: usize, object: &str) -> bool {
        if self.cabinet(volume).is_some_and(|cabinet| cabinet.is_wrong()) {
            return true;
        }
        let state = self.state.lock();
        let is_another = matches!(state.trouble(volume), Some(VolumeTrouble::Exchanged | VolumeTrouble::Mislabelled));
        let failed = &state.volumes[volume].failed;
        is_another || failed.contains(object) || failed.contains(VolumeLabel::OBJECT)
    }
}

/// A volume of a machine, as the stack sees it.
struct SimVolume {
    machine: Arc<Machine>,
    volume: usize,
}

impl Volume for SimVolume {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        self.machine.state.lock().put(self.volume, object, bytes)
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], _: &MediumWait) -> Result<(), VolumeError> {
        self.machine.let_others_in();
        self.machine.state.lock().get(self.volume, object, offset, into)
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        let mut state = self.machine.state.lock();
        state.ask(self.volume, 3, object)?;
        Ok(state.object(self.volume, object).map(|(bytes, _)| bytes.len() as u64))
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        let mut state = self.machine.state.lock();
        state.ask(self.volume, 4, object)?;
        let is_cut = state.boundary();
        if !is_cut || state.random.chance(1, 2) {
            let medium = state.medium(self.volume);
            if let Some(gone) = medium.objects.remove(object) {
                medium.note_gone(object, gone.bytes.map_or(0, |bytes| bytes.len() as u64));
            }
        }
        if is_cut { Err(away(self.volume, "the power went off")) } else { Ok(()) }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        let mut state = self.machine.state.lock();
        state.ask(self.volume, 5, prefix)?;
        let names: Vec<String> = state.medium(self.volume).objects.keys().cloned().collect();
        let mut found: Vec<(String, u64)> = Vec::new();
        for name in names.into_iter().filter(|name| name.starts_with(prefix)) {
            let length = state.object(self.volume, &name).map(|(bytes, _)| bytes.len() as u64);
            found.extend(length.map(|length| (name, length)));
        }
        if state.trouble(self.volume) == Some(VolumeTrouble::ListsLate) {
            let VolumeState { put_lately, gone_lately, .. } = state.volumes[self.volume].clone();
            found.retain(|(name, _)| !put_lately.contains(name) || state.random.chance(1, 2));
            let gone = gone_lately.into_iter().filter(|(name, _)| name.starts_with(prefix));
            found.extend(gone.filter(|_| state.random.chance(1, 2)));
            found.sort_unstable();
        }
        Ok(found)
    }

    fn may_be_exchanged(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        name_of(self.volume)
    }
}

#[cfg(test)]
mod tests;
