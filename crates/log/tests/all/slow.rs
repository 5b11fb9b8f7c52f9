//! A device whose writes do not end: who can writes elsewhere, and only who cannot waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stere_device::{BufferPool, Device, DeviceError, MemoryDevice, Piece, Ticket};
use stere_format::{DeviceLayout, PoolId, RecordSubject, Scheme, SegmentKind, SummaryEntry};
use stere_log::{Io, Log, LogError, LogOptions, StreamKey};
use stere_stripe::{READ_COST_FAST, Stripe};

const CHUNK_BYTES: u32 = 4 << 20;
const DEVICE_BYTES: u64 = 256 << 20;
const RECORD_BYTES: usize = 128 << 10;

/// Keeps writes until they are let go.
struct Holding {
    memory: MemoryDevice,
    is_holding: AtomicBool,
    held: Mutex<Vec<(u64, Vec<Piece>, Ticket)>>,
}

impl Holding {
    fn let_go(&self) {
        self.is_holding.store(false, Ordering::SeqCst);
        for (offset, pieces, ticket) in std::mem::take(&mut *self.held.lock()) {
            self.memory.submit_write_gathered(offset, pieces, ticket);
        }
    }
}

impl Device for Holding {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.memory.block_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.read(offset, buffer)
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        match self.is_holding.load(Ordering::SeqCst) {
            true => self.held.lock().push((offset, pieces, ticket)),
            false => self.memory.submit_write_gathered(offset, pieces, ticket),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.memory.discard(offset, length)
    }

    fn describe(&self) -> String {
        self.memory.describe()
    }
}

fn log(count: u16) -> (Vec<Arc<Holding>>, Log) {
    let stripe = Stripe::new(CHUNK_BYTES, BufferPool::new(64 << 20));
    let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).unwrap();
    let hold = |_| {
        let memory = MemoryDevice::new(DEVICE_BYTES);
        Arc::new(Holding { memory, is_holding: AtomicBool::new(false), held: Mutex::default() })
    };
    let devices: Vec<Arc<Holding>> = (0..count).map(hold).collect();
    for (index, device) in (0..).zip(&devices) {
        stripe.attach(index, device.clone(), layout, READ_COST_FAST).unwrap();
    }
    let options = LogOptions { flying_bytes_max: 64 << 20, ..LogOptions::default() };
    (devices, Log::new(Arc::new(stripe), PoolId([1; 16]), CHUNK_BYTES, options))
}

fn key(parity: u8, class: u8) -> StreamKey {
    let scheme = Scheme::new(1, parity).unwrap();
    StreamKey {
        scheme,
        class,
        kind: SegmentKind::Data,
        temperature: 0,
        home: None,
        tertiary: 0,
        site: stere_format::Site::ANYWHERE,
        of_others: false,
    }
}

fn append(log: &Log, key: &StreamKey, blob: u64) -> Result<(), LogError> {
    let subject = RecordSubject::plain_blob(blob, 1, 0, RECORD_BYTES as u32);
    log.append(key, RECORD_BYTES, Io::NON_BLOCKING, |target| {
        target.fill(blob as u8);
        SummaryEntry { offset: 0, length: 0, crc32c: 0, subject, hint: Vec::new() }
    })
    .map(drop)
}

/// P-23: a slow device delays nobody who does not need it. Only a bounded number of writes waits for it.
#[test]
fn streams_go_on_beside_a_device_that_hangs() {
    let (devices, log) = log(4);
    devices[1].is_holding.store(true, Ordering::SeqCst);
    // Several times what may be under way: nobody may wait, or this would fail.
    let rounds = 110_u64 << 20 >> 17;
    for blob in 0..rounds {
        for class in 0..2 {
            append(&log, &key(1, class), blob).unwrap();
        }
    }
    let held = devices[1].held.lock().len();
    assert!(held > 0, "some of it was meant for the device");
    assert!(held <= 40, "{held} writes wait");
    devices[1].let_go();
    log.close_rows(SegmentKind::Data);
    log.wait_for_rows().unwrap();
    assert!(log.segments.all().iter().all(|segment| segment.missing() == 0), "every copy was written");
}

/// Who cannot do without the device waits for it, with few writes of its own before it; others do not.
#[test]
fn who_needs_the_device_that_hangs_waits_alone() {
    let (devices, log) = log(3);
    devices[2].is_holding.store(true, Ordering::SeqCst);
    let mut blobs = 0..;
    let blocked = (&mut blobs).take(400).find(|blob| append(&log, &key(2, 0), *blob).is_err());
    assert!(blocked.is_some(), "three copies need all three devices");
    let held = devices[2].held.lock().len();
    assert!(held <= 40, "{held} writes wait");
    for blob in (&mut blobs).take(400) {
        append(&log, &key(1, 1), blob).unwrap();
    }
    devices[2].let_go();
    append(&log, &key(2, 0), 1).unwrap();
}
