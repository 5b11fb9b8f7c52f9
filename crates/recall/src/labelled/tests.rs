//! P-153: another medium at a volume's place is noticed before anything is asked of it.

use std::sync::atomic::AtomicUsize;

use stere_device::{Cancellation, MemoryVolume};
use stere_format::PoolId;

use super::*;

/// A place where either of two media lies.
struct Place {
    media: [MemoryVolume; 2],
    at: AtomicUsize,
    /// While something is put, the other one comes.
    is_hasty: AtomicBool,
}

impl Place {
    fn here(&self) -> &MemoryVolume {
        &self.media[self.at.load(Ordering::Acquire)]
    }
}

impl Volume for Place {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        if self.is_hasty.swap(false, Ordering::AcqRel) {
            self.at.fetch_xor(1, Ordering::AcqRel);
        }
        self.here().put(object, bytes)
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        self.here().get(object, offset, into, wait)
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.here().length(object)
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        self.here().delete(object)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        self.here().list(prefix)
    }

    fn describe(&self) -> String {
        "place".into()
    }

    fn may_be_exchanged(&self) -> bool {
        true
    }
}

fn place() -> (Arc<Place>, LabelledVolume) {
    let media = [MemoryVolume::new("one"), MemoryVolume::new("other")];
    for (number, medium) in media.iter().enumerate() {
        let (volume, name) = (VolumeId([number as u8; 16]), format!("volume {number}"));
        let label = VolumeLabel { pool: PoolId([7; 16]), pool_name: "tank".into(), volume, name };
        medium.put(VolumeLabel::OBJECT, &label.encode()).unwrap();
    }
    let place = Arc::new(Place { media, at: AtomicUsize::new(0), is_hasty: AtomicBool::new(false) });
    (place.clone(), LabelledVolume::new(place, VolumeId([0; 16]), "volume 0"))
}

fn is_stranger<T: std::fmt::Debug>(outcome: &Result<T, VolumeError>) -> bool {
    matches!(outcome, Err(error @ VolumeError::Stranger { .. }) if error.to_string().contains("medium 'volume 1'"))
}

#[test]
fn nothing_is_asked_of_another_medium() {
    let (place, volume) = place();
    volume.put("a", b"right").unwrap();
    place.media[1].put("a", b"wrong").unwrap();
    place.at.store(1, Ordering::Release);
    let mut bytes = [0; 5];
    assert!(is_stranger(&volume.get("a", 0, &mut bytes, &MediumWait::NONE)) && bytes == [0; 5]);
    let take: Take = Arc::new(|_: &[u8]| panic!("nothing is given out"));
    let streamed =
        [volume.stream("a", 5, &take, &Cancellation::NONE), volume.stream_part("a", 1, 2, &take, &Cancellation::NONE)];
    assert!(streamed.iter().all(is_stranger));
    assert!(is_stranger(&volume.length("a")) && is_stranger(&volume.list("")));
    assert!(is_stranger(&volume.put("b", b"more")) && is_stranger(&volume.delete("a")));
    assert_eq!(place.media[1].objects(), ["a", VolumeLabel::OBJECT], "nothing was written there, nothing deleted");
    place.at.store(0, Ordering::Release);
    volume.get("a", 0, &mut bytes, &MediumWait::NONE).unwrap();
    assert_eq!(&bytes, b"right");
}

#[test]
fn what_was_put_while_media_were_exchanged_does_not_count() {
    let (place, volume) = place();
    place.is_hasty.store(true, Ordering::Release);
    assert!(is_stranger(&volume.put("a", b"right")));
    place.at.store(0, Ordering::Release);
    assert_eq!(volume.length("a").unwrap(), None);
}

/// Also what a volume need not answer: where an object is begun best, what its media are, what it takes still.
#[test]
fn everything_is_passed_on() {
    let lost = stere_device::calls_that_are_lost(|inner| {
        let volume = VolumeId([0; 16]);
        let label = VolumeLabel { pool: PoolId([7; 16]), pool_name: "tank".into(), volume, name: "volume 0".into() };
        inner.put(VolumeLabel::OBJECT, &label.encode()).unwrap();
        Box::new(LabelledVolume::new(inner, volume, "volume 0"))
    });
    assert_eq!(lost, [""; 0]);
}
