//! A volume in memory, for tests: it counts what is asked of it, and does wrong what it is told to.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{MediumWait, Volume, VolumeError};

/// What a volume does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeFault {
    /// It is away.
    Away,
    /// It takes nothing more.
    Full,
    /// It says that it stored an object, and did not.
    Forgets,
    /// It stores other bytes than it was given.
    Garbles,
    /// It stores half an object.
    Halves,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    fault: Option<VolumeFault>,
    requests: u64,
    free_bytes: Option<u64>,
    /// Requests after which it is away.
    away_after: Option<u64>,
}

/// Objects in memory.
#[derive(Debug)]
pub struct MemoryVolume {
    name: String,
    state: Mutex<State>,
}

impl MemoryVolume {
    pub fn new(name: &str) -> MemoryVolume {
        MemoryVolume { name: name.to_owned(), state: Mutex::default() }
    }

    /// From now on it does this wrong, or nothing.
    pub fn set_fault(&self, fault: Option<VolumeFault>) {
        let mut state = self.state.lock();
        state.fault = fault;
        state.away_after = None;
    }

    /// It serves so many more requests, then it is away.
    pub fn fail_after(&self, requests: u64) {
        let mut state = self.state.lock();
        state.away_after = Some(state.requests + requests);
    }

    /// It says that it has so much room.
    pub fn set_free_bytes(&self, bytes: u64) {
        self.state.lock().free_bytes = Some(bytes);
    }

    /// Requests so far, those that failed too.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    pub fn objects(&self) -> Vec<String> {
        self.state.lock().objects.keys().cloned().collect()
    }

    /// Changes an object behind everybody's back; `None` takes it away.
    pub fn tamper(&self, object: &str, change: impl FnOnce(&mut Vec<u8>) -> bool) {
        let mut state = self.state.lock();
        let Some(mut bytes) = state.objects.remove(object) else { return };
        if change(&mut bytes) {
            state.objects.insert(object.to_owned(), bytes);
        }
    }

    fn ask<T>(&self, answer: impl FnOnce(&mut State) -> Result<T, VolumeError>) -> Result<T, VolumeError> {
        let mut state = self.state.lock();
        state.requests += 1;
        let is_late = state.away_after.is_some_and(|last| state.requests > last);
        if is_late || state.fault == Some(VolumeFault::Away) {
            return Err(VolumeError::Away { volume: self.name.clone(), why: "told so".into() });
        }
        answer(&mut state)
    }

    fn no_object(&self, object: &str) -> VolumeError {
        VolumeError::NoObject { volume: self.name.clone(), object: object.to_owned() }
    }
}

impl Volume for MemoryVolume {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        self.ask(|state| {
            let stored = match state.fault {
                Some(VolumeFault::Full) => return Err(VolumeError::Full { volume: self.name.clone() }),
                Some(VolumeFault::Forgets) => return Ok(()),
                Some(VolumeFault::Garbles) => bytes.iter().map(|byte| !byte).collect(),
                Some(VolumeFault::Halves) => bytes[..bytes.len() / 2].to_vec(),
                Some(VolumeFault::Away) | None => bytes.to_vec(),
            };
            state.objects.insert(object.to_owned(), stored);
            Ok(())
        })
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], _: &MediumWait) -> Result<(), VolumeError> {
        self.ask(|state| {
            let bytes = state.objects.get(object).ok_or_else(|| self.no_object(object))?;
            let (start, needed) = (offset as usize, offset as usize + into.len());
            let part = bytes.get(start..needed).ok_or_else(|| VolumeError::Short {
                volume: self.name.clone(),
                object: object.to_owned(),
                length: bytes.len() as u64,
                needed: needed as u64,
            })?;
            into.copy_from_slice(part);
            Ok(())
        })
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.ask(|state| Ok(state.objects.get(object).map(|bytes| bytes.len() as u64)))
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        self.ask(|state| {
            state.objects.remove(object);
            Ok(())
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        self.ask(|state| {
            let found = state.objects.iter().filter(|(name, _)| name.starts_with(prefix));
            Ok(found.map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect())
        })
    }

    fn free_bytes(&self) -> Option<u64> {
        self.state.lock().free_bytes
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}
