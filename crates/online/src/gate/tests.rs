//! What stands before a volume in a mount passes on what it is asked.

use stere_format::{PoolId, VolumeId, VolumeLabel};

use super::*;

/// Else what a volume can do is not done in a mount, however well the store does it with the volume itself.
#[test]
fn everything_is_passed_on() {
    let lost = stere_device::calls_that_are_lost(|inner| {
        let (volume, name) = (VolumeId([3; 16]), "archive".to_owned());
        let label = VolumeLabel { pool: PoolId([7; 16]), pool_name: "tank".into(), volume, name: name.clone() };
        inner.put(VolumeLabel::OBJECT, &label.encode()).unwrap();
        let inner = LabelledVolume::new(inner, volume, &name);
        Box::new(Labelled::new(inner, name, Arc::default()))
    });
    assert_eq!(lost, [""; 0]);
}

/// A server that gives a few bytes now and then, for as long as it is asked.
struct Trickling {
    inner: stere_device::MemoryVolume,
    /// Bytes at once, ten times a second.
    bytes: usize,
}

impl Volume for Trickling {
    fn put(&self, object: &str, bytes: &[u8]) -> std::result::Result<(), VolumeError> {
        self.inner.put(object, bytes)
    }

    fn get(
        &self,
        object: &str,
        offset: u64,
        into: &mut [u8],
        wait: &MediumWait,
    ) -> std::result::Result<(), VolumeError> {
        if object == VolumeLabel::OBJECT {
            return self.inner.get(object, offset, into, wait);
        }
        let take: Take = Arc::new(|_| {});
        self.stream(object, into.len(), &take, &wait.cancellation)
    }

    fn stream(
        &self,
        _: &str,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> std::result::Result<(), VolumeError> {
        let mut given = 0;
        while given < length {
            if cancellation.is_cancelled() {
                return Err(VolumeError::GivenUp { volume: "a server".into() });
            }
            std::thread::sleep(Duration::from_millis(100));
            take(&vec![1; self.bytes.min(length - given)]);
            given += self.bytes;
        }
        Ok(())
    }

    fn stream_part(
        &self,
        object: &str,
        _: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> std::result::Result<(), VolumeError> {
        self.stream(object, length, take, cancellation)
    }

    fn length(&self, object: &str) -> std::result::Result<Option<u64>, VolumeError> {
        self.inner.length(object)
    }

    fn delete(&self, object: &str) -> std::result::Result<(), VolumeError> {
        self.inner.delete(object)
    }

    fn list(&self, prefix: &str) -> std::result::Result<Vec<(String, u64)>, VolumeError> {
        self.inner.list(prefix)
    }

    fn describe(&self) -> String {
        "a server".into()
    }
}

/// One that gives so many bytes ten times a second, in a mount whose readers wait for a second.
fn trickling(bytes: usize) -> Labelled {
    let (inner, volume) = (stere_device::MemoryVolume::new("a server"), VolumeId([3; 16]));
    let label = VolumeLabel { pool: PoolId([7; 16]), pool_name: "tank".into(), volume, name: "archive".to_owned() };
    inner.put(VolumeLabel::OBJECT, &label.encode()).unwrap();
    let gate = Arc::new(Gate::default());
    gate.set_timeout(Duration::from_secs(1));
    let inner = LabelledVolume::new(Arc::new(Trickling { inner, bytes }), volume, "archive");
    Labelled::new(inner, "archive".into(), gate)
}

/// P-202: what comes so slowly that nobody can use it ends about as soon as what does not come; what comes slowly, comes whole.
#[test]
fn what_trickles_ends_with_the_timeout() {
    let take: Take = Arc::new(|_| {});
    let volume = trickling(10);
    let begun = Instant::now();
    let outcomes = [
        volume.stream("o", 1 << 20, &take, &Cancellation::NONE),
        volume.stream_part("o", 0, 1 << 20, &take, &Cancellation::NONE),
        volume.get("o", 0, &mut [0; 4096], &MediumWait::of_reader(Cancellation::NONE)),
    ];
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    for outcome in outcomes {
        let Err(VolumeError::Away { why, .. }) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains("bytes a second"), "{why}");
    }
    assert!(volume.complaint.lock().unwrap().as_ref().is_some_and(|text| text.contains("bytes a second")));
    let slow = trickling(1000);
    slow.stream("o", 20_000, &take, &Cancellation::NONE).unwrap();
    slow.get("o", 0, &mut [0; 10_000], &MediumWait::of_reader(Cancellation::NONE)).unwrap();
}
