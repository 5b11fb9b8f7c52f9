//! Rows of unreplicated data after they were written: in memory until they are flushed, where that can help them.

use std::sync::Arc;

use stere_device::{BufferPool, MemoryDevice};
use stere_format::{DeviceLayout, PoolId, RecordSubject, Scheme, SegmentKind, SummaryEntry};
use stere_log::{Io, Log, LogOptions, StreamKey};
use stere_stripe::{READ_COST_FAST, Stripe};

const MIB: usize = 1 << 20;
const CHUNK_BYTES: u32 = 4 << 20;
const DEVICE_BYTES: u64 = 64 << 20;
const RECORD_BYTES: usize = 128 << 10;

/// A log over so many devices to which 9 MiB were written with one copy.
fn written(devices: u16) -> Log {
    let stripe = Stripe::new(CHUNK_BYTES, BufferPool::new(64 * MIB));
    let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).unwrap();
    for index in 0..devices {
        let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
        stripe.attach(index, device, layout, READ_COST_FAST).unwrap();
    }
    let options = LogOptions { flying_bytes_max: 6 * MIB, ..LogOptions::default() };
    let log = Log::new(Arc::new(stripe), PoolId([1; 16]), CHUNK_BYTES, options);
    let scheme = Scheme::new(1, 0).unwrap();
    let key = StreamKey {
        scheme,
        class: 0,
        kind: SegmentKind::Data,
        temperature: 0,
        home: Some(0),
        tertiary: 0,
        site: stere_format::Site::ANYWHERE,
        of_others: false,
    };
    for blob in 0..(9 * MIB / RECORD_BYTES) as u64 {
        let subject = RecordSubject::plain_blob(blob, 1, 0, RECORD_BYTES as u32);
        let fill = |target: &mut [u8]| {
            target.fill(blob as u8);
            SummaryEntry { offset: 0, length: 0, crc32c: 0, subject, hint: Vec::new() }
        };
        log.append(&key, RECORD_BYTES, Io::NON_BLOCKING, fill).unwrap();
    }
    log.close_rows(SegmentKind::Data);
    log.wait_for_rows().unwrap();
    log
}

/// P-5: until it is flushed, another device can take it; a commit comes before there is too much of it.
#[test]
fn beside_another_device_rows_are_kept_until_they_are_flushed() {
    let log = written(2);
    assert!(log.rows.wants_commit(u64::MAX), "more is kept than may be");
    assert_eq!(log.buffers.retained_bytes(), 0, "all of it is in memory");
    log.flush().unwrap();
    assert!(!log.rows.wants_commit(u64::MAX));
    assert!(log.buffers.retained_bytes() >= 9 * MIB);
}

#[test]
fn with_no_other_device_nothing_is_kept_and_memory_is_used_again() {
    let log = written(1);
    assert!(!log.rows.wants_commit(u64::MAX));
    let retained = log.buffers.retained_bytes();
    assert!((1..=4 * MIB).contains(&retained), "{retained} bytes for rows one after another");
}
