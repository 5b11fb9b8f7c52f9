//! A volume that is known to be the right one whenever it is used: its label says so.
//!
//! A medium may be exchanged for another while nobody looks, also for another volume of the same pool, which has objects of the same
//! names. Invariants: nothing is asked of a volume whose label was not read since it was away last; where media can be exchanged
//! with nobody being told, the label is read before every request, and after every put, so that nothing is entered as being on one
//! volume that was written to another. Read next: `lib.rs`; the tier enters volumes and copies segments to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stere_device::{Cancellation, Medium, MediumWait, Take, Volume, VolumeError};
use stere_faults::{Bug, is_planted};
use stere_format::{VolumeId, VolumeLabel};

/// The label on a volume, if there is a good one.
pub fn read_label(volume: &dyn Volume) -> Result<Option<VolumeLabel>, VolumeError> {
    read_label_for(volume, &Cancellation::NONE)
}

fn read_label_for(volume: &dyn Volume, cancellation: &Cancellation) -> Result<Option<VolumeLabel>, VolumeError> {
    let Some(length) = volume.length_for(VolumeLabel::OBJECT, cancellation)? else { return Ok(None) };
    let mut bytes = vec![0; (length as usize).min(VolumeLabel::BYTES_MAX)];
    volume.get(VolumeLabel::OBJECT, 0, &mut bytes, &MediumWait::cancelled_by(cancellation))?;
    Ok(VolumeLabel::decode(&bytes).ok())
}

/// What is wrong with what is there, for who needs this volume.
pub fn stranger(label: Option<VolumeLabel>, id: VolumeId) -> Option<String> {
    match label {
        Some(label) if label.volume == id => None,
        Some(label) => Some(format!("it is medium '{}' of the pool '{}'", label.name, label.pool_name)),
        None => Some("it has no label of stere's".to_owned()),
    }
}

/// A volume, and which one it must be.
pub struct LabelledVolume {
    inner: Arc<dyn Volume>,
    id: VolumeId,
    name: String,
    is_known: AtomicBool,
}

impl LabelledVolume {
    /// Nothing is asked of it yet.
    pub fn new(inner: Arc<dyn Volume>, id: VolumeId, name: &str) -> LabelledVolume {
        LabelledVolume { inner, id, name: name.to_owned(), is_known: AtomicBool::new(false) }
    }

    fn check(&self, cancellation: &Cancellation) -> Result<(), VolumeError> {
        let is_told = !self.inner.may_be_exchanged() || is_planted(Bug::ExchangeUnnoticed);
        if is_told && self.is_known.load(Ordering::Acquire) {
            return Ok(());
        }
        self.is_known.store(false, Ordering::Release);
        match stranger(read_label_for(&*self.inner, cancellation)?, self.id) {
            None => {
                self.is_known.store(true, Ordering::Release);
                Ok(())
            }
            Some(found) => {
                let volume = format!("{} (for medium {})", self.inner.describe(), self.name);
                Err(VolumeError::Stranger { volume, found })
            }
        }
    }

    fn ask<T>(&self, act: impl FnOnce(&dyn Volume) -> Result<T, VolumeError>) -> Result<T, VolumeError> {
        self.ask_for(&Cancellation::NONE, act)
    }

    fn ask_for<T>(
        &self,
        cancellation: &Cancellation,
        act: impl FnOnce(&dyn Volume) -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        self.check(cancellation)?;
        let outcome = act(&*self.inner);
        if outcome.as_ref().is_err_and(VolumeError::is_passing) && !self.inner.is_proven_by_its_media() {
            // Who knows what comes back.
            self.is_known.store(false, Ordering::Release);
        }
        outcome
    }
}

impl Volume for LabelledVolume {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        self.ask(|volume| volume.put(object, bytes))?;
        self.check(&Cancellation::NONE)
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        self.ask_for(&wait.cancellation, |volume| volume.get(object, offset, into, wait))
    }

    fn stream(&self, object: &str, length: usize, take: &Take, cancellation: &Cancellation) -> Result<(), VolumeError> {
        self.ask_for(cancellation, |volume| volume.stream(object, length, take, cancellation))
    }

    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        self.ask_for(cancellation, |volume| volume.stream_part(object, offset, length, take, cancellation))
    }

    fn begins_at(&self, object: &str, offset: u64) -> Option<u64> {
        self.inner.begins_at(object, offset)
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.ask(|volume| volume.length(object))
    }

    fn length_for(&self, object: &str, cancellation: &Cancellation) -> Result<Option<u64>, VolumeError> {
        self.ask_for(cancellation, |volume| volume.length_for(object, cancellation))
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        self.ask(|volume| volume.delete(object))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        self.ask(|volume| volume.list(prefix))
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn media(&self) -> Vec<Medium> {
        self.inner.media()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn estimate(&self, object: &str) -> Option<(String, Duration)> {
        self.inner.estimate(object)
    }

    fn is_proven_by_its_media(&self) -> bool {
        self.inner.is_proven_by_its_media()
    }

    fn may_be_exchanged(&self) -> bool {
        self.inner.may_be_exchanged()
    }

    fn close(&self) {
        self.inner.close();
    }
}

#[cfg(test)]
mod tests;
