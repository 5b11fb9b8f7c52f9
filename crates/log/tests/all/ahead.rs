//! Small records that are read in the order in which they were written: with few device reads, whatever the scheme, and verified;
//! and right after they were written: with none.

use std::sync::Arc;

use stere_device::{BufferPool, MemoryDevice};
use stere_format::{Address, BLOCK_BYTES, DeviceLayout, PoolId, RecordSubject, Scheme, SegmentKind, SummaryEntry};
use stere_log::{Io, Log, LogOptions, Part, StreamKey};
use stere_stripe::{READ_COST_FAST, Stripe};

const CHUNK_BYTES: u32 = 4 << 20;
const DEVICE_BYTES: u64 = 64 << 20;
const RECORDS: u64 = 600;
/// A window is 256 KiB in all.
const WINDOW_BYTES: u64 = 256 << 10;
const UNIT_BYTES: u64 = stere_format::STRIPE_UNIT_BYTES as u64;

struct Rig {
    devices: Vec<Arc<MemoryDevice>>,
    log: Log,
    /// Where each record is, and its content.
    records: Vec<(Address, Vec<u8>)>,
}

/// Most are a block, some are short, some lie over several stripe units.
fn content(number: u64) -> Vec<u8> {
    let length = match number % 10 {
        3 => 700,
        7 => 48 << 10,
        9 => 9 << 10,
        _ => BLOCK_BYTES,
    };
    (0..length as u64).map(|at| (number * 31 + at / 512 * 7 + at % 251) as u8).collect()
}

fn rig(data: u8, parity: u8) -> Rig {
    rig_that_keeps(0, data, parity)
}

/// Keeps so many bytes of rows that were just written.
fn rig_that_keeps(recent_bytes_max: usize, data: u8, parity: u8) -> Rig {
    let scheme = Scheme::new(data, parity).unwrap();
    let stripe = Stripe::new(CHUNK_BYTES, BufferPool::new(64 << 20));
    let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).unwrap();
    let devices: Vec<_> = (0..scheme.width()).map(|_| Arc::new(MemoryDevice::new(DEVICE_BYTES))).collect();
    for (index, device) in (0..).zip(&devices) {
        stripe.attach(index, device.clone(), layout, READ_COST_FAST).unwrap();
    }
    let options = LogOptions { flying_bytes_max: 64 << 20, recent_bytes_max, ..LogOptions::default() };
    let log = Log::new(Arc::new(stripe), PoolId([1; 16]), CHUNK_BYTES, options);
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
    let mut records = Vec::new();
    for number in 0..RECORDS {
        let bytes = content(number);
        let subject = RecordSubject::plain_blob(number, 1, 0, bytes.len() as u32);
        let appended = log
            .append(&key, bytes.len(), Io::BLOCKING, |target| {
                target.copy_from_slice(&bytes);
                SummaryEntry { offset: 0, length: 0, crc32c: 0, subject, hint: Vec::new() }
            })
            .unwrap();
        records.push((appended.address, bytes));
        // Rows of several heights, which begin anywhere.
        if number % 37 == 0 {
            log.close_rows(SegmentKind::Data);
        }
    }
    log.close_rows(SegmentKind::Data);
    log.wait_for_rows().unwrap();
    log.flush().unwrap();
    Rig { devices, log, records }
}

impl Rig {
    /// Device reads so far.
    fn reads(&self) -> u64 {
        self.devices.iter().map(|device| device.counters().reads).sum()
    }

    fn read(&self, number: usize) {
        let (address, bytes) = &self.records[number];
        let segment = self.log.segments.get(address.segment).unwrap();
        let checksums = stere_format::block_checksums(bytes);
        let mut found = vec![0; bytes.len()];
        let (segment, checksums, into) = (&segment, &checksums, &mut found[..]);
        let part = Part { tag: number as u64, segment, address: *address, offset: 0, checksums, into };
        self.log.read(Io::BLOCKING, &mut [part]).unwrap();
        assert!(found == *bytes, "record {number} is as it was written");
    }
}

const SCHEMES: [(u8, u8); 7] = [(1, 0), (1, 1), (2, 0), (2, 1), (3, 2), (8, 1), (9, 1)];

#[test]
fn in_the_order_of_the_log_few_device_reads_are_made() {
    for (data, parity) in SCHEMES {
        let rig = rig(data, parity);
        let before = rig.reads();
        (0..rig.records.len()).for_each(|number| rig.read(number));
        let reads = rig.reads() - before;
        let bytes: u64 = rig.records.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        // What the rows add, and windows that begin in the middle of another one.
        let data_chunks = u64::from(data);
        let window_bytes = match data {
            1 => WINDOW_BYTES,
            _ => WINDOW_BYTES / data_chunks / UNIT_BYTES * UNIT_BYTES * data_chunks,
        };
        if data <= 8 {
            assert!(
                reads <= bytes.div_ceil(window_bytes) * 2 * data_chunks + 20,
                "{data}+{parity}: {reads} reads of {bytes} bytes"
            );
        } else {
            assert!(reads >= RECORDS, "a stripe of {data} is more than a window: {reads} reads");
        }
    }
}

#[test]
fn who_jumps_to_and_fro_reads_what_he_asked_for() {
    for (data, parity) in [(1, 1), (2, 1)] {
        let rig = rig(data, parity);
        let before = rig.reads();
        // Steps of about 600 KiB, to places where nobody read before.
        let jumps: Vec<usize> = (0..RECORDS as usize).map(|number| number * 77 % RECORDS as usize).take(150).collect();
        jumps.iter().for_each(|number| rig.read(*number));
        let reads = rig.reads() - before;
        assert!(reads >= 150, "{data}+{parity}: {reads} reads, so that windows were read for nothing");
    }
}

/// P-4: what comes out of a window is verified, too: what is wrong there is read the careful way, and is right.
#[test]
fn a_window_that_is_wrong_costs_nothing_but_time() {
    for (data, parity) in [(1, 1), (2, 1), (3, 2)] {
        let rig = rig(data, parity);
        let address = rig.records[rig.records.len() / 2].0;
        let placed = rig.log.segments.get(address.segment).unwrap().placed();
        let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).unwrap();
        // Every other block of what one chunk has.
        let chunk = placed.chunks[0];
        let start = layout.slot_offset(chunk.slot).unwrap();
        for block in (1..u64::from(CHUNK_BYTES) / BLOCK_BYTES as u64).step_by(2) {
            rig.devices[usize::from(chunk.device)].corrupt(start + block * BLOCK_BYTES as u64, 64);
        }
        for _ in 0..2 {
            (0..rig.records.len()).for_each(|number| rig.read(number));
        }
    }
}

#[test]
fn what_was_just_written_is_read_from_memory_and_what_was_written_long_ago_from_devices() {
    for (data, parity) in SCHEMES {
        let rig = rig_that_keeps(1 << 20, data, parity);
        let before = rig.reads();
        let newest = rig.records.len() - 1;
        (newest - 10..=newest).for_each(|number| rig.read(number));
        assert_eq!(rig.reads(), before, "{data}+{parity}");
        rig.read(0);
        assert!(rig.reads() > before, "{data}+{parity}: 4 MiB were written since");
    }
}
