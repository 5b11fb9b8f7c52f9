//! Media of one machine, used by another through a conversation: every call passes, nothing else of the machine is reached, and whoever waits
//! is told when the machine is gone (P-298).

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use stere_control::spec::DeviceSpec;
use stere_device::{MemoryVolume, calls_that_are_lost};
use stere_online::far_media::{FarMedia, FarVolume};

use super::*;

const PLACE: &str = "dir:/mnt/usb,host=n2";

/// An owner, and a machine that serves one medium.
struct Served {
    media: Arc<FarMedia>,
    /// What the machine has of the conversation.
    stream: UnixStream,
    /// The machine has ended it.
    is_over: Arc<AtomicBool>,
}

impl Served {
    fn by(volume: Arc<dyn Volume>) -> Served {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (media, stream) = (Arc::<FarMedia>::default(), ours.try_clone().unwrap());
        let ((known, is_known), is_over) = (channel(), Arc::new(AtomicBool::new(false)));
        let over = is_over.clone();
        std::thread::spawn(move || {
            let places = [PLACE.to_owned()];
            converse(&ours, &places, Box::new(move |_| Ok(volume.clone())), || known.send(()).unwrap());
            over.store(true, Ordering::Release);
        });
        let owner = media.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(theirs.try_clone().unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let Ok(Request::ServeMedia { host, places }) = serde_json::from_str(&line) else { panic!("{line}") };
            owner.serve(host, places, theirs, reader);
        });
        is_known.recv_timeout(Duration::from_secs(10)).unwrap();
        Served { media, stream, is_over }
    }

    fn volume(&self) -> FarVolume {
        FarVolume::of_host(PLACE, &self.media)
    }
}

#[test]
fn every_call_reaches_the_medium() {
    let lost = calls_that_are_lost(|volume| Box::new(Served::by(volume).volume()));
    // Of its place, kind and machine it is known here what there is; of a length the machine asks for whoever may give up.
    assert_eq!(lost, ["length", "describe", "is_proven_by_its_media", "may_be_exchanged"]);
}

#[test]
fn large_objects_go_in_pieces() {
    let inner = Arc::new(MemoryVolume::new("usb"));
    let served = Served::by(inner.clone());
    let volume = served.volume();
    for length in [0, 1, LINE_CONTENT_BYTES, LINE_CONTENT_BYTES + 1, 2 * LINE_CONTENT_BYTES + 77] {
        let bytes: Vec<u8> = (0..length).map(|at| (at / 3) as u8).collect();
        volume.put("o", &bytes).unwrap();
        assert_eq!(inner.length("o"), Ok(Some(length as u64)));
        let mut read = vec![1; length];
        volume.get("o", 0, &mut read, &MediumWait::NONE).unwrap();
        assert!(read == bytes, "{length}");
        let took = Arc::new(Mutex::new(Vec::new()));
        let take: Take = {
            let took = took.clone();
            Arc::new(move |piece: &[u8]| lock(&took).extend_from_slice(piece))
        };
        volume.stream("o", length, &take, &Cancellation::NONE).unwrap();
        assert!(*lock(&took) == bytes, "{length}");
    }
    assert!(matches!(volume.get("p", 0, &mut [0], &MediumWait::NONE), Err(VolumeError::NoObject { .. })));
    assert!(matches!(volume.get("o", 1 << 40, &mut [0], &MediumWait::NONE), Err(VolumeError::Short { .. })));
}

#[test]
fn nothing_else_of_the_machine_is_reached() {
    let served = Served::by(Arc::new(MemoryVolume::new("usb")));
    for name in ["../passwd", "a/../../b", "/etc/passwd", "", "a//b", "./a", "a.partial", "a\0b"] {
        assert!(matches!(served.volume().put(name, b"x"), Err(VolumeError::NoObject { .. })), "{name:?}");
        assert!(served.volume().delete(name).is_err(), "{name:?}");
    }
    let other = FarVolume::of_host("dir:/etc,host=n2", &served.media);
    assert!(matches!(other.list(""), Err(VolumeError::Away { .. })));
}

/// Reads do not end until they are cancelled, if they hear that, or somebody lets them go; streams give a byte now and then meanwhile.
struct Hung {
    hears: bool,
    cancelled: AtomicBool,
    let_go: AtomicBool,
}

impl Hung {
    fn new(hears: bool) -> Arc<Hung> {
        Arc::new(Hung { hears, cancelled: AtomicBool::new(false), let_go: AtomicBool::new(false) })
    }

    fn hang(&self, cancellation: &Cancellation, meanwhile: impl Fn()) -> std::result::Result<(), VolumeError> {
        while !(self.let_go.load(Ordering::Acquire) || self.hears && cancellation.is_cancelled()) {
            meanwhile();
            std::thread::sleep(Duration::from_millis(10));
        }
        self.cancelled.store(true, Ordering::Release);
        Err(VolumeError::GivenUp { volume: "hung".into() })
    }
}

impl Volume for Hung {
    fn put(&self, _: &str, _: &[u8]) -> std::result::Result<(), VolumeError> {
        Ok(())
    }

    fn get(&self, _: &str, _: u64, _: &mut [u8], wait: &MediumWait) -> std::result::Result<(), VolumeError> {
        self.hang(&wait.cancellation, || {})
    }

    fn stream(
        &self,
        _: &str,
        _: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> std::result::Result<(), VolumeError> {
        self.hang(cancellation, || take(b"x"))
    }

    fn length(&self, _: &str) -> std::result::Result<Option<u64>, VolumeError> {
        Ok(None)
    }

    fn delete(&self, _: &str) -> std::result::Result<(), VolumeError> {
        Ok(())
    }

    fn list(&self, _: &str) -> std::result::Result<Vec<(String, u64)>, VolumeError> {
        Ok(Vec::new())
    }

    fn describe(&self) -> String {
        "hung".into()
    }
}

#[test]
fn a_call_ends_when_nobody_wants_it_or_its_machine_is_gone() {
    let hung = Hung::new(true);
    let served = Served::by(hung.clone());
    let begun = Instant::now();
    let wait = MediumWait::of_reader(Cancellation::when(move || begun.elapsed() > Duration::from_millis(300)));
    assert!(matches!(served.volume().get("o", 0, &mut [0], &wait), Err(VolumeError::GivenUp { .. })));
    while !hung.cancelled.load(Ordering::Acquire) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the machine goes on for nobody");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Others go on meanwhile; and a machine that is gone is said so at once.
    assert_eq!(served.volume().length("o"), Ok(None));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| served.volume().get("o", 0, &mut [0], &MediumWait::NONE));
        std::thread::sleep(Duration::from_millis(200));
        served.stream.shutdown(Shutdown::Both).unwrap();
        let Err(VolumeError::Away { why, .. }) = waiting.join().unwrap() else { panic!("it is away") };
        assert!(why.contains("n2"), "{why}");
    });
    assert!(matches!(served.volume().length("o"), Err(VolumeError::Away { .. })));
    assert!(served.volume().free_bytes().is_none() && served.volume().media().is_empty());
}

#[test]
fn a_stream_that_trickles_is_given_up_too() {
    let served = Served::by(Hung::new(true));
    let begun = Instant::now();
    let cancellation = Cancellation::when(move || begun.elapsed() > Duration::from_millis(500));
    let streamed = served.volume().stream("o", 1 << 20, &(Arc::new(|_: &[u8]| {}) as Take), &cancellation);
    assert!(matches!(streamed, Err(VolumeError::GivenUp { .. })), "{streamed:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_disk_that_hangs_holds_up_its_own_calls_only() {
    let hung = Hung::new(false);
    let served = Served::by(hung.clone());
    let wait = || MediumWait::of_reader(Cancellation::when(|| true));
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..20).map(|_| scope.spawn(|| served.volume().get("o", 0, &mut [0], &wait()))).collect();
        let outcomes = calls.into_iter().map(|call| call.join().unwrap());
        assert!(outcomes.into_iter().all(|outcome| matches!(outcome, Err(VolumeError::GivenUp { .. }))));
    });
    assert_eq!(served.volume().length("o"), Ok(None));
    // The machine can begin the next conversation, though none of these calls has ended.
    served.stream.shutdown(Shutdown::Both).unwrap();
    let begun = Instant::now();
    while !served.is_over.load(Ordering::Acquire) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the conversation does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!hung.cancelled.load(Ordering::Acquire), "they hang still");
    hung.let_go.store(true, Ordering::Release);
}

#[test]
fn media_of_this_machine_are_named_for_all() {
    let add = |texts: &[&str]| Change::Add {
        devices: texts.iter().map(|text| text.parse::<DeviceSpec>().unwrap()).collect(),
        spare: false,
        force: false,
        rebalance: false,
    };
    let (named, change) = named_for_all(&add(&["dir:/mnt/a,name=A"]), "n2").unwrap();
    assert_eq!(named, ["dir:/mnt/a,host=n2"]);
    let Change::Add { devices, .. } = &change else { panic!("{change:?}") };
    assert_eq!((devices[0].path.to_str(), devices[0].name.as_str()), (Some("dir:/mnt/a,host=n2"), "A"));
    assert!(named_for_all(&change, "n3").is_none(), "it is named already");
    assert!(named_for_all(&add(&["s3://cold"]), "n2").is_none() && named_for_all(&add(&["/dev/sdb"]), "n2").is_none());
    let path = Some("robot:/dev/sg3,drive=/dev/sg1".into());
    let online = Change::Online { device: "T".into(), path, wipe: false };
    assert_eq!(named_for_all(&online, "n2").unwrap().0, ["robot:/dev/sg3,drive=/dev/sg1,host=n2"]);
}
