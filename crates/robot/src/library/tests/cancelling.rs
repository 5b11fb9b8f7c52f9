//! What a drive still does for a request that nobody wants any more: bytes, and time as it passes in the simulated library.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stere_device::Cancellation;

use super::*;

const BLOCK_BYTES: u32 = 65_536;

/// For waits that end at once where the product is right.
const LONG: Duration = Duration::from_secs(20);

/// Waits until it is so; false if that takes too long.
fn comes(is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > LONG {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// One drive that reads a block in 0.14 s, and one cartridge with these objects of two million bytes, 4.3 s each.
fn slow_drive(names: &[&str]) -> (SimulatedLibrary, Library, Vec<u8>) {
    let simulated = simulated(Model::HIGHLIGHT, 1, 1);
    let library = open_with(&simulated, LibraryOptions { block_bytes: BLOCK_BYTES, ..options() });
    let bytes = content(5, 2_000_000);
    names.iter().for_each(|name| library.put(name, &bytes).unwrap());
    (simulated, library, bytes)
}

fn block_time() -> Duration {
    Model::HIGHLIGHT.reading(u64::from(BLOCK_BYTES))
}

/// What has arrived, and what the time was when nobody wanted it any more.
#[derive(Default)]
struct Arrived {
    bytes: AtomicUsize,
    is_gone: AtomicBool,
    at: Mutex<Duration>,
}

impl Arrived {
    fn go(&self, simulated: &SimulatedLibrary) {
        *self.at.lock() = simulated.elapsed();
        self.is_gone.store(true, Ordering::SeqCst);
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }
}

/// P-95, P-146: what nobody wants any more ends at the next block if who asked is at the drive himself, as all are who fetch ahead; the drive
/// is free for others then, and stands where it is thought to.
#[test]
fn who_reads_himself_ends_at_the_next_block() {
    let (simulated, library, bytes) = slow_drive(&["segments/1", "segments/2"]);
    let arrived = Arc::new(Arrived::default());
    let take: Take = {
        let (arrived, simulated) = (arrived.clone(), simulated.clone());
        Arc::new(move |piece: &[u8]| {
            if arrived.bytes.fetch_add(piece.len(), Ordering::SeqCst) > 200_000 && !arrived.is_gone() {
                arrived.go(&simulated);
            }
        })
    };
    let gone = arrived.clone();
    let ended = library.stream("segments/1", bytes.len(), &take, &Cancellation::when(move || gone.is_gone()));
    let spent = simulated.elapsed() - *arrived.at.lock();
    assert!(matches!(ended, Err(VolumeError::GivenUp { .. })), "{ended:?}");
    assert!(arrived.bytes() < 200_000 + 2 * BLOCK_BYTES as usize, "{} bytes", arrived.bytes());
    assert!(spent <= block_time(), "the drive went on for {spent:?}");
    assert!(whole(&library, "segments/1").unwrap() == bytes && whole(&library, "segments/2").unwrap() == bytes);
}

/// P-95: the same if another one, who waits for the drive too, reads it for him: he says so while he waits.
#[test]
fn what_another_one_reads_for_somebody_ends_at_the_next_block() {
    let (simulated, library, bytes) = slow_drive(&["segments/1", "segments/2", "segments/3"]);
    let library = &library;
    let (begun, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let holding: Take = {
        let (begun, go_on) = (begun.clone(), go_on.clone());
        Arc::new(move |_: &[u8]| {
            // At its first piece, and not for ever.
            if !begun.swap(true, Ordering::SeqCst) {
                comes(|| go_on.load(Ordering::SeqCst));
            }
        })
    };
    // Who is killed: held in his look until then, so that it is another one who takes the drive when it is free, and his request with it.
    let arrived = Arc::new(Arrived::default());
    let looks = Arc::new(AtomicUsize::new(0));
    let look = {
        let (arrived, looks) = (arrived.clone(), looks.clone());
        move || {
            looks.fetch_add(1, Ordering::SeqCst);
            comes(|| arrived.is_gone())
        }
    };
    let take: Take = {
        let (arrived, looks, simulated) = (arrived.clone(), looks.clone(), simulated.clone());
        Arc::new(move |piece: &[u8]| {
            if arrived.bytes.fetch_add(piece.len(), Ordering::SeqCst) > 200_000 && !arrived.is_gone() {
                arrived.go(&simulated);
                // He has said so before he looks once more.
                assert!(comes(|| looks.load(Ordering::SeqCst) > 1), "he waits on until the drive has ended it");
            }
        })
    };
    let end = Arc::new(Mutex::new(None));
    let first_of_next: Take = {
        let (end, simulated) = (end.clone(), simulated.clone());
        Arc::new(move |_: &[u8]| _ = end.lock().get_or_insert(simulated.elapsed()))
    };
    thread::scope(|scope| {
        let holder = scope.spawn(|| library.stream("segments/1", bytes.len(), &holding, &Cancellation::NONE));
        assert!(comes(|| begun.load(Ordering::SeqCst)));
        let killed = scope.spawn(|| library.stream("segments/2", bytes.len(), &take, &Cancellation::when(look)));
        assert!(comes(|| looks.load(Ordering::SeqCst) > 0));
        let next = scope.spawn(|| library.stream("segments/3", bytes.len(), &first_of_next, &Cancellation::NONE));
        assert!(comes(|| library.state.lock().waiting.len() == 2));
        go_on.store(true, Ordering::SeqCst);
        holder.join().unwrap().unwrap();
        let killed = killed.join().unwrap();
        assert!(matches!(killed, Err(VolumeError::GivenUp { .. })), "{killed:?}");
        next.join().unwrap().unwrap();
    });
    assert!(arrived.bytes() < 200_000 + 2 * BLOCK_BYTES as usize, "{} bytes", arrived.bytes());
    // The next object has a seek and a block before its first byte is there.
    let spent = end.lock().unwrap() - *arrived.at.lock();
    let model = Model::HIGHLIGHT;
    let most = 2 * block_time() + model.positioning(0, model.capacity_bytes);
    assert!(spent <= most, "the drive went on for {spent:?} before it turned to the next, {most:?} is the most");
    assert!(whole(library, "segments/2").unwrap() == bytes);
}

/// P-95: who waits while another one has the drive ends at once, and the drive does nothing for him.
#[test]
fn who_waits_for_the_drive_ends_at_once() {
    let (simulated, library, bytes) = slow_drive(&["segments/1", "segments/2"]);
    let (begun, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let holding: Take = {
        let (begun, go_on) = (begun.clone(), go_on.clone());
        Arc::new(move |_: &[u8]| {
            // At its first piece, and not for ever.
            if !begun.swap(true, Ordering::SeqCst) {
                comes(|| go_on.load(Ordering::SeqCst));
            }
        })
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| library.stream("segments/2", bytes.len(), &holding, &Cancellation::NONE));
        assert!(comes(|| begun.load(Ordering::SeqCst)));
        let before = simulated.elapsed();
        let waited = whole_unless(&library, "segments/1", &Cancellation::when(|| true));
        let is_first_under_way = !first.is_finished();
        let spent = simulated.elapsed() - before;
        go_on.store(true, Ordering::SeqCst);
        assert!(matches!(waited, Err(VolumeError::GivenUp { .. })), "{:?}", waited.map(|bytes| bytes.len()));
        assert!(is_first_under_way && spent.is_zero(), "it did not wait for it, and the drive did nothing: {spent:?}");
        first.join().unwrap().unwrap();
    });
    assert!(whole(&library, "segments/1").unwrap() == bytes && whole(&library, "segments/2").unwrap() == bytes);
}
