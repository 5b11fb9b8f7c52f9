//! Media as a mount uses them: checked against their labels, waited for by readers, and told about.
//!
//! A medium may be away when the pool is mounted and come later, or be exchanged for another while nobody looks: the store's
//! `LabelledVolume` reads its label whenever that may be so. Readers may wait for it; background work never does.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stere_device::{Cancellation, Medium, MediumWait, Take, Volume, VolumeError};
use stere_store::LabelledVolume;

mod trickle;

use trickle::Trickle;

const POLL: Duration = Duration::from_millis(250);

/// So soon after a read waited in vain it is taken for the same reader who asks for it once more; of so many reads.
const ASKED_AGAIN: Duration = Duration::from_secs(2);
const WAITED_MAX: usize = 64;

/// How long readers wait for volumes, and whether they may wait at all any more.
#[derive(Default)]
pub struct Gate {
    timeout_ms: AtomicU64,
    is_closed: AtomicBool,
    /// Requests to all volumes since the pool was opened.
    requests: AtomicU64,
    /// Volumes by their numbers, as they were opened last.
    pub(crate) opened: Mutex<BTreeMap<u8, Arc<Labelled>>>,
}

impl Gate {
    pub(crate) fn opened(&self) -> BTreeMap<u8, Arc<Labelled>> {
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

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Acquire))
    }

    fn has_time_since(&self, start: Instant) -> bool {
        !self.is_closed.load(Ordering::Acquire) && start.elapsed() < self.timeout()
    }
}

/// A volume that is known to be the right one whenever it is used, and waited for by readers.
pub struct Labelled {
    inner: LabelledVolume,
    name: String,
    /// What it said last, where that may pass.
    complaint: Mutex<Option<String>>,
    /// Reads that wait for it.
    waiting: AtomicU64,
    /// Reads that waited as long as they may, and when that was over: the kernel asks once more, page by page, for what it read ahead.
    waited: Mutex<VecDeque<(String, Range<u64>, Instant)>>,
    /// Somebody looks whether it is there.
    pub(crate) is_looked_for: AtomicBool,
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
    pub(crate) fn new(inner: LabelledVolume, name: String, gate: Arc<Gate>) -> Labelled {
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

    /// A library has its own times: a cartridge has to get into a drive first.
    fn get_once(
        &self,
        object: &str,
        offset: u64,
        into: &mut [u8],
        wait: &MediumWait,
    ) -> std::result::Result<(), VolumeError> {
        if self.inner.is_proven_by_its_media() {
            return self.use_it(|volume| volume.get(object, offset, into, wait));
        }
        let trickle = Trickle::of_whole(self.gate.timeout(), into.len());
        let wait = MediumWait { cancellation: trickle.cancellation(&wait.cancellation), ..*wait };
        self.use_it(|volume| trickle.explain(volume.get(object, offset, into, &wait), || self.describe()))
    }

    fn stream_watched(
        &self,
        take: &Take,
        cancellation: &Cancellation,
        stream: impl FnOnce(&dyn Volume, &Take, &Cancellation) -> std::result::Result<(), VolumeError>,
    ) -> std::result::Result<(), VolumeError> {
        let trickle = Trickle::new(self.gate.timeout());
        let (take, cancellation) = (trickle.take(take), trickle.cancellation(cancellation));
        self.use_it(|volume| trickle.explain(stream(volume, &take, &cancellation), || self.describe()))
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
            let outcome = self.get_once(object, offset, into, wait);
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
        self.stream_watched(take, cancellation, |volume, take, cancellation| {
            volume.stream(object, length, take, cancellation)
        })
    }

    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> std::result::Result<(), VolumeError> {
        self.stream_watched(take, cancellation, |volume, take, cancellation| {
            volume.stream_part(object, offset, length, take, cancellation)
        })
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

#[cfg(test)]
mod tests;
