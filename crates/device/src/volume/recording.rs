//! For tests of what stands before a volume: whether it passes everything on.
//!
//! Most calls of a `Volume` have an answer of their own for who has nothing to say. So whatever wraps one and forgets a call still
//! compiles, and works, but without what the volume could do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::Cancellation;

use super::{Medium, MediumWait, MemoryVolume, Take, Volume, VolumeError};

/// A volume that notes what it was asked.
struct RecordingVolume {
    inner: MemoryVolume,
    asked: Mutex<BTreeSet<&'static str>>,
}

impl RecordingVolume {
    fn note(&self, call: &'static str) -> &MemoryVolume {
        self.asked.lock().insert(call);
        &self.inner
    }
}

impl Volume for RecordingVolume {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        self.note("put").put(object, bytes)
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        self.note("get").get(object, offset, into, wait)
    }

    fn stream(&self, object: &str, length: usize, take: &Take, cancellation: &Cancellation) -> Result<(), VolumeError> {
        self.note("stream").stream(object, length, take, cancellation)
    }

    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        self.note("stream_part").stream_part(object, offset, length, take, cancellation)
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.note("length").length(object)
    }

    fn length_for(&self, object: &str, cancellation: &Cancellation) -> Result<Option<u64>, VolumeError> {
        self.note("length_for").length_for(object, cancellation)
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        self.note("delete").delete(object)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        self.note("list").list(prefix)
    }

    fn describe(&self) -> String {
        self.note("describe").describe()
    }

    fn media(&self) -> Vec<Medium> {
        self.note("media").media()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.note("free_bytes").free_bytes()
    }

    fn estimate(&self, object: &str) -> Option<(String, Duration)> {
        self.note("estimate").estimate(object)
    }

    fn begins_at(&self, _: &str, offset: u64) -> Option<u64> {
        self.note("begins_at");
        Some(offset / 2)
    }

    fn is_proven_by_its_media(&self) -> bool {
        self.note("is_proven_by_its_media").is_proven_by_its_media()
    }

    fn may_be_exchanged(&self) -> bool {
        self.note("may_be_exchanged").may_be_exchanged()
    }

    fn close(&self) {
        self.note("close").close();
    }
}

/// What `wrap` stands before a volume and does not pass on to it, or answers otherwise: names of calls. The object `a` is there.
pub fn calls_that_are_lost(wrap: impl FnOnce(Arc<dyn Volume>) -> Box<dyn Volume>) -> Vec<&'static str> {
    let inner = Arc::new(RecordingVolume { inner: MemoryVolume::new("recording"), asked: Mutex::default() });
    let outer = wrap(inner.clone());
    let took = Arc::new(Mutex::new(Vec::new()));
    let take: Take = {
        let took = took.clone();
        Arc::new(move |piece: &[u8]| took.lock().extend_from_slice(piece))
    };
    let mut part = [0; 2];
    let calls: [(&'static str, &mut dyn FnMut() -> bool); 16] = [
        ("put", &mut || outer.put("a", b"0123").is_ok()),
        ("get", &mut || outer.get("a", 1, &mut part, &MediumWait::NONE).is_ok() && part == *b"12"),
        ("stream", &mut || {
            outer.stream("a", 3, &take, &Cancellation::NONE).is_ok() && std::mem::take(&mut *took.lock()) == b"012"
        }),
        ("stream_part", &mut || {
            outer.stream_part("a", 1, 3, &take, &Cancellation::NONE).is_ok() && *took.lock() == b"123"
        }),
        ("length", &mut || outer.length("a") == Ok(Some(4))),
        ("length_for", &mut || outer.length_for("a", &Cancellation::NONE) == Ok(Some(4))),
        ("list", &mut || outer.list("a") == Ok(vec![("a".into(), 4)])),
        ("delete", &mut || outer.delete("b").is_ok()),
        ("describe", &mut || outer.describe() == "recording"),
        ("media", &mut || outer.media().is_empty()),
        ("free_bytes", &mut || outer.free_bytes().is_none()),
        ("estimate", &mut || outer.estimate("a").is_none()),
        ("begins_at", &mut || outer.begins_at("a", 6) == Some(3)),
        ("is_proven_by_its_media", &mut || !outer.is_proven_by_its_media()),
        ("may_be_exchanged", &mut || !outer.may_be_exchanged()),
        ("close", &mut || {
            outer.close();
            true
        }),
    ];
    let mut lost = Vec::new();
    for (name, call) in calls {
        // What wraps it may ask for itself what it was not asked: only this call counts.
        inner.asked.lock().clear();
        let is_right = call();
        if !is_right || !inner.asked.lock().contains(name) {
            lost.push(name);
        }
    }
    lost
}
