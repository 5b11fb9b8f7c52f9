//! Throughput of what every byte passes through: checksum, parity, rows onto devices, verified reads.
//!
//! `cargo bench -p stere-stripe [FOLDER]`: with a folder, real files there (direct I/O) are measured too. Plain numbers,
//! best of several rounds, because this shows orders of magnitude and regressions, not nanoseconds.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stere_device::{Buffer, BufferPool, Completion, Device, FileDevice, FileOptions, MemoryDevice};
use stere_format::{Address, DeviceLayout, Scheme, SegmentChunks, block_checksums, crc32c};
use stere_stripe::{ReadRequest, Stripe, row_capacity, xor_all};

const MIB: usize = 1 << 20;
const CHUNK_BYTES: u32 = 4 << 20;
const ROUNDS: usize = 7;

/// Best rate of several rounds of at least 50 ms.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    work();
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let (start, mut times) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(50) {
            work();
            times += 1;
        }
        best = best.max((bytes * times) as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    best
}

fn say(what: &str, rate: f64) {
    println!("{what:<58} {rate:>7.2} GB/s");
}

fn checksums(data: &[u8]) {
    say("crc32c of 1 MiB", rate(MIB, || _ = black_box(crc32c(black_box(&data[..MIB])))));
    say("crc32c of 4 KiB each of 1 MiB", rate(MIB, || drop(black_box(block_checksums(black_box(&data[..MIB]))))));
    let mut copy = vec![0; MIB];
    say("memcpy of 1 MiB", rate(MIB, || black_box(&mut copy).copy_from_slice(black_box(&data[..MIB]))));
}

fn xor(data: &[u8]) {
    for count in [2, 4, 8] {
        let sources: Vec<&[u8]> = data.chunks(256 << 10).take(count).collect();
        let mut target = vec![0; 256 << 10];
        let bytes = count * target.len();
        say(
            &format!("XOR of {count} units of 256 KiB"),
            rate(bytes, || xor_all(black_box(&mut target), black_box(&sources))),
        );
    }
}

fn stripe_of(devices: &[Arc<dyn Device>]) -> Stripe {
    let stripe = Stripe::new(CHUNK_BYTES, BufferPool::new(64 << 20));
    for (index, device) in devices.iter().enumerate() {
        let layout = DeviceLayout::for_size(device.size_bytes(), CHUNK_BYTES).expect("a device of a possible size");
        stripe.attach(index as u16, Arc::clone(device), layout, 1).expect("chunks of the pool's size");
    }
    stripe
}

fn segment(stripe: &Stripe, data: u8, parity: u8) -> SegmentChunks {
    let scheme = Scheme::new(data, parity).expect("a possible scheme");
    stripe.slots.allocate(scheme, 0).expect("room")
}

const SCHEMES: [(u8, u8); 7] = [(1, 0), (1, 1), (1, 2), (2, 1), (4, 1), (4, 2), (8, 3)];

/// Rows of 1 MiB into a whole segment, again and again.
fn rows(label: &str, stripe: &Stripe, data: &[u8]) {
    for (k, m) in SCHEMES {
        if usize::from(k + m) > stripe.devices.all().len() {
            continue;
        }
        let segment = segment(stripe, k, m);
        let row = Buffer::copy_of(&data[..MIB]).share();
        let height = (MIB / usize::from(k) / 4096) as u32;
        let rows = (CHUNK_BYTES / 4096 - 1) / height;
        let completion = Completion::new();
        let rate = rate(rows as usize * MIB, || {
            for number in 0..rows {
                let outcome = stripe.write_row(1, &segment, 1 + number * height, &row, 0, &completion);
                outcome.expect("a row that fits");
            }
            assert!(completion.wait().is_empty());
        });
        say(&format!("{label}: rows of 1 MiB, {k}+{m} (logical bytes)"), rate);
        stripe.slots.free_now(&segment.chunks);
    }
}

/// Records of 128 KiB behind each other, eight at a time, each 4 KiB verified.
fn reads(label: &str, stripe: &Stripe, data: &[u8], away: usize) {
    for (k, m) in SCHEMES {
        if usize::from(k + m) > stripe.devices.all().len() || usize::from(m) < away {
            continue;
        }
        let mut segment = segment(stripe, k, m);
        segment.missing = (1 << away) - 1;
        let scheme = segment.scheme;
        let row_bytes = (8 * 128 + 4) << 10;
        assert!(row_bytes <= row_capacity(scheme, CHUNK_BYTES / 4096 - 1));
        let completion = Completion::new();
        let whole = SegmentChunks { missing: 0, ..segment.clone() };
        let row = Buffer::copy_of(&data[..row_bytes]).share();
        stripe.write_row(1, &whole, 1, &row, 0, &completion).expect("a row that fits");
        assert!(completion.wait().is_empty());
        let sums: Vec<_> =
            (0..8).map(|record| block_checksums(&data[512 + record * (128 << 10)..][..128 << 10])).collect();
        let mut out = Buffer::zeroed(MIB);
        let rate = rate(MIB, || {
            let checks: Vec<_> =
                sums.iter().map(|sums| |start: usize, bytes: &[u8]| crc32c(bytes) == sums[start / 4096]).collect();
            let mut requests: Vec<ReadRequest<'_>> = out
                .chunks_mut(128 << 10)
                .zip(&checks)
                .enumerate()
                .map(|(record, (out, verify))| ReadRequest {
                    segment: &segment,
                    address: Address {
                        segment: 1,
                        row_block: 1,
                        offset: 512 + (record as u32) * (128 << 10),
                        length: 128 << 10,
                    },
                    range: 0..128 << 10,
                    out,
                    granule_bytes: 4096,
                    verify,
                })
                .collect();
            assert!(stripe.read_many(&mut requests).iter().all(Result::is_ok));
        });
        assert_eq!(out[..], data[512..512 + MIB]);
        say(&format!("{label}: 8 records of 128 KiB, {k}+{m}, {away} chunks away"), rate);
        stripe.slots.free_now(&segment.chunks);
    }
}

/// What an fsync of little data costs: a block to each of two devices, then a flush of both.
fn commits(label: &str, stripe: &Stripe) {
    let devices = stripe.devices.all();
    let block = Buffer::zeroed(4096).share();
    let (mut writes, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        let (start, completion) = (Instant::now(), Completion::new());
        for device in &devices[..2] {
            device.submit_write(0, Arc::clone(&block), 0..4096, completion.ticket(0));
        }
        assert!(completion.wait().is_empty());
        writes.push(start.elapsed());
        assert!(stripe.devices.flush().is_empty());
        whole.push(start.elapsed());
    }
    writes.sort();
    whole.sort();
    let (writes, whole) = (writes[150].as_micros(), whole[150].as_micros());
    println!("{label}: two blocks written {writes} us, and flushed {whole} us (medians)");
}

fn files(folder: &Path, data: &[u8]) {
    for writer_threads in [0, 1, 2, 4] {
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        let mut paths = Vec::new();
        for index in 0..3 {
            let path = folder.join(format!("stere-bench-{index}"));
            drop(std::fs::remove_file(&path));
            let options = FileOptions { writer_threads, ..FileOptions::default() };
            let device = FileDevice::create(&path, 128 << 20, &options).expect("a new file in the folder");
            if index == 0 && writer_threads == 0 {
                println!("{}", device.describe());
            }
            paths.push(path);
            devices.push(Arc::new(device));
        }
        let stripe = stripe_of(&devices);
        rows(&format!("files, {writer_threads} writer threads"), &stripe, data);
        commits(&format!("files, {writer_threads} writer threads"), &stripe);
        if writer_threads == 2 {
            reads("files", &stripe, data, 0);
            reads("files", &stripe, data, 1);
        }
        drop((stripe, devices));
        paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

fn main() {
    let data: Vec<u8> = (0..4 * MIB as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    checksums(&data);
    xor(&data);
    let devices: Vec<Arc<dyn Device>> =
        (0..11).map(|_| Arc::new(MemoryDevice::new(64 << 20)) as Arc<dyn Device>).collect();
    let stripe = stripe_of(&devices);
    rows("memory", &stripe, &data);
    for away in 0..3 {
        reads("memory", &stripe, &data, away);
    }
    if let Some(folder) = std::env::args().skip(1).find(|argument| !argument.starts_with('-')) {
        files(Path::new(&folder), &data);
    }
}
