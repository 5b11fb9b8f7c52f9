//! How fast a lost device is rebuilt, as a part of what its successors can write: devices in memory that take their time, each
//! like a disk that does one thing after the other.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stere_device::{Device, DeviceError, MemoryDevice, Piece, Ticket};
use stere_format::{
    DeviceEntry, DeviceId, DeviceIndex, DeviceLayout, ExtentFlags, ExtentValue, Key, PoolId, Scheme, Superblock,
};
use stere_store::{DeviceIn, Error, Io, Owner, Placement, Store, StoreOptions};

const RATE_BYTES_PER_SECOND: f64 = 150e6;
const CHUNK_BYTES: u32 = 4 << 20;
const SIZE_BYTES: u64 = 1 << 30;

/// One head: what is asked of it is done in turn, each at the device's rate.
#[derive(Clone)]
struct Head {
    free_at: Arc<Mutex<Instant>>,
}

impl Head {
    fn busy_for(&self, bytes: usize) {
        let end = {
            let mut free_at = self.free_at.lock().expect("no panic while it is held");
            let begin = (*free_at).max(Instant::now());
            *free_at = begin + Duration::from_secs_f64(bytes as f64 / RATE_BYTES_PER_SECOND);
            *free_at
        };
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
    }
}

type Write = (u64, Vec<Piece>, Ticket);

struct Disk {
    medium: Arc<MemoryDevice>,
    head: Head,
    queue: Mutex<Sender<Write>>,
}

impl Disk {
    fn new() -> Disk {
        let medium = Arc::new(MemoryDevice::new(SIZE_BYTES));
        let head = Head { free_at: Arc::new(Mutex::new(Instant::now())) };
        let (sender, receiver) = channel::<Write>();
        let (own, arm) = (medium.clone(), head.clone());
        std::thread::spawn(move || {
            for (offset, pieces, ticket) in receiver {
                arm.busy_for(pieces.iter().map(|piece| piece.bytes().len()).sum());
                own.submit_write_gathered(offset, pieces, ticket);
            }
        });
        Disk { medium, head, queue: Mutex::new(sender) }
    }
}

impl Device for Disk {
    fn size_bytes(&self) -> u64 {
        self.medium.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        4096
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.head.busy_for(buffer.len());
        self.medium.read(offset, buffer)
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        // A ticket that is dropped counts as a failed write.
        let _ = self.queue.lock().expect("no panic while it is held").send((offset, pieces, ticket));
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.medium.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.medium.discard(offset, length)
    }

    fn parallel(&self) -> Option<Arc<dyn stere_device::Parallel>> {
        Some(Arc::new(Threads))
    }

    fn describe(&self) -> String {
        "a disk in memory".into()
    }
}

struct Threads;

impl stere_device::Parallel for Threads {
    fn run<'a>(&self, jobs: Vec<stere_device::Job<'a>>) {
        std::thread::scope(|scope| jobs.into_iter().for_each(|job| drop(scope.spawn(job))));
    }
}

fn device(index: DeviceIndex) -> (DeviceIn, DeviceEntry) {
    let layout = DeviceLayout::for_size(SIZE_BYTES, CHUNK_BYTES).expect("a valid size");
    let id = DeviceId([index as u8 + 1; 16]);
    let superblock = Superblock {
        journal_devices: vec![0, 1, 2],
        pool_name: "rebuild".into(),
        ..Superblock::first(PoolId([1; 16]), id, index, layout)
    };
    let entry = DeviceEntry::of(&superblock, format!("d{index}"));
    (DeviceIn { index, superblock, device: Arc::new(Disk::new()), read_cost: 1 }, entry)
}

fn fill(store: &Store, placement: Placement, bytes: u64) {
    let mut data = vec![0u8; 128 << 10];
    for piece in 0..bytes / data.len() as u64 {
        data.iter_mut().zip(piece.to_le_bytes().iter().cycle()).for_each(|(byte, value)| *byte = *value);
        let offset = piece * data.len() as u64;
        let blob = store.append_blob(Io::BLOCKING, placement, Owner { inode: 9, offset }, &data).expect("append");
        let extent =
            ExtentValue { blob: blob.id, blob_offset: 0, length: blob.length(), flags: ExtentFlags::Plain, charge: 0 };
        store
            .update(Io::BLOCKING, |transaction| {
                transaction.insert_blob(&blob);
                transaction.put(Key::extent(9, offset), &extent.encode());
                Ok::<_, Error>(())
            })
            .expect("update");
    }
    store.commit(Io::BLOCKING).expect("commit");
}

/// The old device is gone and a new one takes its place: the new one's own write rate is the bar.
fn replace(scheme: Scheme, devices: u16, content_bytes: u64) {
    let (given, entries) = (0..devices).map(device).unzip();
    let store = Store::create(given, entries, StoreOptions::default()).expect("a new pool");
    fill(&store, Placement { scheme, class: 1, site: stere_format::Site::ANYWHERE }, content_bytes);
    store.devices.detach_device(1, false).expect("the others have everything");
    let (new, entry) = device(200);
    store.devices.replace_device(1, new, entry).expect("replaced");
    let (begin, mut bytes) = (Instant::now(), 0);
    loop {
        let progress = store.rebuilder.mend_step(64 << 20).expect("mended");
        bytes += progress.bytes_written;
        if progress.is_done {
            break;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let rate = bytes as f64 / seconds;
    println!(
        "{scheme} on {devices}, {} MiB of content: {} MiB rebuilt in {seconds:.2} s, {:.0} MB/s, {:.2} of the new device's rate",
        content_bytes >> 20,
        bytes >> 20,
        rate / 1e6,
        rate / RATE_BYTES_PER_SECOND
    );
}

fn main() {
    let copies = Scheme { data: 1, parity: 1 };
    for content_bytes in [60 << 20, 600 << 20] {
        replace(copies, 3, content_bytes);
    }
    replace(Scheme { data: 4, parity: 1 }, 6, 1 << 30);
    replace(Scheme { data: 4, parity: 2 }, 7, 1 << 30);
}
