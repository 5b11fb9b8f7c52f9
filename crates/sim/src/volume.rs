//! Simulated tertiary volumes: objects in memory that survive power cuts, are away, lie, and lose what they had.
//!
//! A volume shares its machine's power, clock and chance: power can go off in the middle of any put or delete, and what was under
//! way then is there wholly, in part or not at all. *VolumeTrouble* is what a volume does wrong with requests while it lasts: whoever
//! writes must find that out. *Harm* is what happens to an object that was right: then, and only then, a read may fail, and no
//! volume ever makes it give other bytes. What harm took is kept aside, so that the oracle can look at it. Read next:
//! `tertiary.rs` (what histories do with volumes).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stere_device::{Patience, Volume, VolumeError};

use crate::device::{Machine, Meanwhile, State};

/// How long a request takes.
const REQUEST_NS: u64 = 40_000_000;

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
}

impl Harm {
    pub const ALL: [Harm; 4] = [Harm::Missing, Harm::Flipped, Harm::Cut, Harm::Old];
}

/// An object; what was harmed has what it really was beside it.
#[derive(Debug, Clone, Default)]
struct Object {
    bytes: Option<Arc<Vec<u8>>>,
    unharmed: Option<Arc<Vec<u8>>>,
    harm: Option<Harm>,
}

/// A volume as its machine keeps it.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeState {
    objects: BTreeMap<String, Object>,
    trouble: Option<VolumeTrouble>,
    /// Objects that could not be read, or not rightly, since the step of the history began.
    failed: BTreeSet<String>,
}

impl VolumeState {
    pub fn begin_step(&mut self) {
        self.failed.clear();
    }
}

impl State {
    fn has_trouble(&mut self, volume: usize, trouble: VolumeTrouble) -> bool {
        let has_it = !self.are_volumes_honest && self.volumes[volume].trouble == Some(trouble);
        has_it && (matches!(trouble, VolumeTrouble::Outage | VolumeTrouble::Full) || self.random.chance(1, 2))
    }

    /// Time, power and outages, which all requests share.
    fn ask(&mut self, volume: usize, request: u64, object: &str) -> Result<(), VolumeError> {
        if self.is_off {
            return Err(away(volume, "the power is off"));
        }
        self.count_request();
        self.clock_ns += REQUEST_NS;
        self.note(usize::MAX - volume, request, u64::from(stere_format::crc32c(object.as_bytes())), 0);
        if self.has_trouble(volume, VolumeTrouble::Outage) || self.has_trouble(volume, VolumeTrouble::Flaky) {
            self.volumes[volume].failed.insert(object.to_owned());
            return Err(away(volume, "503"));
        }
        Ok(())
    }

    /// What is to be had under this name, and whether that is not what it should be.
    fn object(&self, volume: usize, object: &str) -> Option<Arc<Vec<u8>>> {
        let found = self.volumes[volume].objects.get(object)?;
        match &found.unharmed {
            Some(bytes) if self.are_volumes_honest => Some(bytes.clone()),
            _ => found.bytes.clone(),
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
            state.volumes[volume].objects.insert(object.to_owned(), stored);
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
        let part = found.as_ref().and_then(|bytes| bytes.get(range.clone()));
        let unharmed = self.unharmed(volume, object).filter(|_| !self.are_volumes_honest);
        if unharmed.is_some_and(|unharmed| unharmed.get(range) != part) {
            self.volumes[volume].failed.insert(object.to_owned());
        }
        let (name, object_name) = (name_of(volume), object.to_owned());
        match (&found, part) {
            (None, _) => Err(VolumeError::NoObject { volume: name, object: object_name }),
            (Some(bytes), None) => {
                let (length, needed) = (bytes.len() as u64, offset + into.len() as u64);
                Err(VolumeError::Short { volume: name, object: object_name, length, needed })
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

fn away(volume: usize, why: &str) -> VolumeError {
    VolumeError::Away { volume: name_of(volume), why: why.to_owned() }
}

/// Does what somebody else does: on a thread of its own, for threads keep things; who waits here waits for it.
fn aside(others: Meanwhile) {
    #[cfg(feature = "planted-bugs")]
    let bug = stere_device::planted::Bug::ALL.into_iter().find(|bug| stere_device::planted::is_planted(*bug));
    let done = std::thread::scope(|scope| {
        let work = move || {
            #[cfg(feature = "planted-bugs")]
            stere_device::planted::plant(bug);
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
        Arc::new(SimVolume { machine: self.clone(), volume })
    }

    /// While any volume is read next, this is done first: calls do not overlap here, but who reads a volume lets others in.
    pub(crate) fn set_meanwhile(&self, meanwhile: Option<Meanwhile>) {
        *self.meanwhile.lock() = meanwhile;
    }

    /// From now on the volume does this wrong, or nothing.
    pub fn set_trouble(&self, volume: usize, trouble: Option<VolumeTrouble>) {
        self.state.lock().volumes[volume].trouble = trouble;
    }

    pub fn trouble(&self, volume: usize) -> Option<VolumeTrouble> {
        self.state.lock().volumes[volume].trouble
    }

    /// Nothing is wrong with any volume while `look` looks, not even with objects that were harmed.
    pub fn with_honest_volumes<T>(&self, look: impl FnOnce() -> T) -> T {
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

    /// What was done to an object, if it was not stored anew since.
    pub fn harm_of(&self, volume: usize, object: &str) -> Option<Harm> {
        self.state.lock().volumes[volume].objects.get(object)?.harm
    }

    /// Whether any object could not be read, or not rightly, since the step of the history began.
    pub fn has_any_failed(&self) -> bool {
        self.state.lock().volumes.iter().any(|volume| !volume.failed.is_empty())
    }

    /// Whether an object could not be read, or not rightly, since the step of the history began.
    pub fn has_failed(&self, volume: usize, object: &str) -> bool {
        self.state.lock().volumes[volume].failed.contains(object)
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

    fn get(&self, object: &str, offset: u64, into: &mut [u8], _: Patience) -> Result<(), VolumeError> {
        let meanwhile = self.machine.meanwhile.lock().take();
        if let Some(others) = meanwhile {
            aside(others);
        }
        self.machine.state.lock().get(self.volume, object, offset, into)
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        let mut state = self.machine.state.lock();
        state.ask(self.volume, 3, object)?;
        Ok(state.object(self.volume, object).map(|bytes| bytes.len() as u64))
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        let mut state = self.machine.state.lock();
        state.ask(self.volume, 4, object)?;
        let is_cut = state.boundary();
        if !is_cut || state.random.chance(1, 2) {
            state.volumes[self.volume].objects.remove(object);
        }
        if is_cut { Err(away(self.volume, "the power went off")) } else { Ok(()) }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        let mut state = self.machine.state.lock();
        state.ask(self.volume, 5, prefix)?;
        let names: Vec<String> = state.volumes[self.volume].objects.keys().cloned().collect();
        let found = names.into_iter().filter(|name| name.starts_with(prefix));
        let found = found.filter_map(|name| {
            let length = state.object(self.volume, &name)?.len() as u64;
            Some((name, length))
        });
        Ok(found.collect())
    }

    fn describe(&self) -> String {
        name_of(self.volume)
    }
}

#[cfg(test)]
mod tests;
