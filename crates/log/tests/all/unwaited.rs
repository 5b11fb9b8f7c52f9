//! Small reads that may not wait: left for the caller, served when it comes back, and never with wrong bytes.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stere_device::Call;
use stere_device::pending::Source;
use stere_device::{BufferPool, Device, DeviceError, MemoryDevice, PendingRead, Piece, Ticket};
use stere_format::{Address, DeviceLayout, PoolId, RecordSubject, Scheme, SegmentKind, SummaryEntry};
use stere_log::{Io, Log, LogError, LogOptions, Part, StreamKey};
use stere_stripe::{READ_COST_FAST, Stripe};

const CHUNK_BYTES: u32 = 4 << 20;
const DEVICE_BYTES: u64 = 64 << 20;
const RECORD_BYTES: usize = 96 << 10;
const RECORDS: usize = 40;

/// Its reads can be made by others: they have arrived as soon as they are asked for, wrong ones if it lies.
struct Leaving {
    memory: MemoryDevice,
    lies: AtomicBool,
}

struct Null(File);

impl Source for Null {
    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn ended(&self) {}
}

impl Device for Leaving {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.memory.block_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.read(offset, buffer)
    }

    fn pending_read(&self, offset: u64, length: usize) -> Option<PendingRead> {
        let mut buffer = stere_device::Buffer::zeroed(length + 512);
        self.memory.read(offset, &mut buffer[512..]).unwrap();
        buffer[600] ^= u8::from(self.lies.load(Ordering::Relaxed));
        let source = Box::new(Null(File::open("/dev/null").unwrap()));
        Some(PendingRead::new(source, offset, buffer, 512..512 + length, Duration::from_secs(1)))
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        self.memory.submit_write_gathered(offset, pieces, ticket);
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

struct Rig {
    devices: Vec<Arc<Leaving>>,
    stripe: Arc<Stripe>,
    log: Log,
    records: Vec<(Address, Vec<u8>)>,
}

fn rig(data: u8, parity: u8) -> Rig {
    let scheme = Scheme::new(data, parity).unwrap();
    let stripe = Arc::new(Stripe::new(CHUNK_BYTES, BufferPool::new(64 << 20)));
    let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).unwrap();
    let device = || Arc::new(Leaving { memory: MemoryDevice::new(DEVICE_BYTES), lies: AtomicBool::new(false) });
    let devices: Vec<_> = (0..scheme.width()).map(|_| device()).collect();
    for (index, device) in (0..).zip(&devices) {
        stripe.attach(index, device.clone(), layout, READ_COST_FAST).unwrap();
    }
    let options = LogOptions { flying_bytes_max: 64 << 20, recent_bytes_max: 0, ..LogOptions::default() };
    let log = Log::new(stripe.clone(), PoolId([1; 16]), CHUNK_BYTES, options);
    let key = StreamKey {
        scheme,
        class: 0,
        kind: SegmentKind::Data,
        temperature: 0,
        home: None,
        tertiary: 0,
        site: stere_format::Site::ANYWHERE,
        of_others: false,
    };
    let record = |number: usize| {
        let bytes: Vec<u8> = (0..RECORD_BYTES).map(|at| (number * 31 + at / 512 * 7 + at % 251) as u8).collect();
        let subject = RecordSubject::plain_blob(number as u64, 1, 0, bytes.len() as u32);
        let appended = log.append(&key, bytes.len(), Io::BLOCKING, |target| {
            target.copy_from_slice(&bytes);
            SummaryEntry { offset: 0, length: 0, crc32c: 0, subject, hint: Vec::new() }
        });
        (appended.unwrap().address, bytes)
    };
    let records = (0..RECORDS).map(record).collect();
    log.close_rows(SegmentKind::Data);
    log.wait_for_rows().unwrap();
    log.flush().unwrap();
    Rig { devices, stripe, log, records }
}

impl Rig {
    /// Reads a part of a record, which must be right if it is read at all.
    fn read(&self, io: Io<'_>, number: usize, offset: usize, length: usize) -> Result<(), LogError> {
        let (address, bytes) = &self.records[number];
        let segment = self.log.segments.get(address.segment).unwrap();
        let checksums = stere_format::block_checksums(bytes);
        let mut found = vec![0; length];
        let (segment, checksums, into) = (&segment, &checksums, &mut found[..]);
        let part = Part { tag: number as u64, segment, address: *address, offset: offset as u32, checksums, into };
        self.log.read(io, &mut [part])?;
        assert!(found == bytes[offset..offset + length], "record {number} is as it was written");
        Ok(())
    }

    /// What a read that may not wait leaves.
    fn collect(&self, number: usize, offset: usize, length: usize) -> Vec<PendingRead> {
        let call = Call::collecting();
        let outcome = self.read(Io::NON_BLOCKING.of(&call), number, offset, length);
        assert!(matches!(outcome, Err(LogError::WouldBlock)));
        call.into_reads()
    }

    /// Repeats a read with what has arrived.
    fn read_with(
        &self,
        arrived: Vec<PendingRead>,
        number: usize,
        offset: usize,
        length: usize,
    ) -> Result<(), LogError> {
        self.read(Io::NON_BLOCKING.of(&Call::arrived(arrived)), number, offset, length)
    }
}

#[test]
fn small_reads_are_left_and_served_when_they_have_arrived() {
    for (data, parity) in [(1, 0), (1, 1), (2, 1), (3, 2)] {
        let rig = rig(data, parity);
        assert!(matches!(rig.read(Io::NON_BLOCKING, 3, 0, 4096), Err(LogError::WouldBlock)), "nobody collects");
        // Whole blocks, a bit of one, and what lies on several chunks.
        let wanted = [(3, 4096, 4096), (20, 9000, 10), (11, 30 << 10, 60 << 10), (35, RECORD_BYTES - 5, 5)];
        for (number, offset, length) in wanted {
            let reads = rig.collect(number, offset, length);
            assert!(!reads.is_empty() && (data > 1 || reads.len() == 1), "{data}+{parity}: {reads:?}");
            rig.read_with(reads, number, offset, length).unwrap();
        }
        let others = rig.collect(3, 8192, 4096);
        let outcome = rig.read_with(others, 3, 16384, 4096);
        assert!(matches!(outcome, Err(LogError::WouldBlock)), "what has arrived is something else");
    }
}

#[test]
fn large_reads_and_those_that_follow_others_are_not_left() {
    let rig = rig(2, 1);
    assert!(rig.collect(3, 0, 80 << 10).is_empty(), "large");
    for _ in 0..2 {
        let reads = rig.collect(30, 0, 4096);
        assert_eq!(reads.len(), 1, "what was only tried is followed by nothing");
        drop(reads);
    }
    let reads = rig.collect(30, 0, 4096);
    rig.read_with(reads, 30, 0, 4096).unwrap();
    assert!(rig.collect(30, 8192, 4096).is_empty(), "a window is read where reads may wait");
    rig.read(Io::BLOCKING, 30, 8192, 4096).unwrap();
    rig.read(Io::NON_BLOCKING, 30, 12288, 4096).unwrap();
}

/// P-4: what arrived wrong is not handed out, and is read where it can be had elsewhere.
#[test]
fn what_arrives_wrong_is_no_answer() {
    for (data, parity) in [(1, 1), (2, 1)] {
        let rig = rig(data, parity);
        rig.devices.iter().for_each(|device| device.lies.store(true, Ordering::Relaxed));
        let reads = rig.collect(7, 4096, 8192);
        let outcome = rig.read_with(reads, 7, 4096, 8192);
        assert!(matches!(outcome, Err(LogError::WouldBlock)));
        rig.read(Io::DEVICES_ONLY, 7, 4096, 8192).unwrap();
    }
}

#[test]
fn an_absent_device_leaves_its_reads_to_calls_that_wait() {
    let rig = rig(2, 1);
    let segment = rig.log.segments.get(rig.records[0].0.segment).unwrap();
    let first = segment.placed().chunks[0].device;
    rig.stripe.detach(first);
    let left: Vec<bool> = (0..RECORDS).map(|number| !rig.collect(number, 0, 4096).is_empty()).collect();
    assert!(left.contains(&true) && left.contains(&false), "half of the blocks were on it: {left:?}");
    (0..RECORDS).for_each(|number| rig.read(Io::DEVICES_ONLY, number, 0, 4096).unwrap());
}
