//! What damage costs a reader, and how fast scrubbing is, on image files: `rot DIRECTORY [RUNS]`.
//!
//! The table of Loris (2010), section 6: a file of 100 MB with two copies is read through a corrupted block of 4 KiB, through
//! 64 KiB, and through a corrupted tree node; milliseconds above the same read when all is well, medians. Then a scrub pass
//! against reading the same bytes of the same files, with as many reads under way, and doing nothing with them. The last line
//! is all of it as JSON. `cargo xtask bench repair` runs it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use stere_device::{Buffer, Device, FileDevice, FileOptions};
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, ExtentValue, Key, PoolId, SegmentKind, Superblock, key};
use stere_naming::{Caller, FileSystem, Io, OpenFlags, Options, ROOT, Timestamp};
use stere_store::{DeviceIn, Store, StoreOptions};

const DEVICE_BYTES: u64 = 1 << 30;
const CHUNK_BYTES: u32 = 4 << 20;
const FILE_BYTES: usize = 100_000_000;
const OTHER_FILE_BYTES: usize = 400_000_000;
const READ_BYTES: usize = 128 << 10;
/// As many as scrubbing has under way.
const RAW_READS_PER_DEVICE: usize = 2;
const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };

fn open_device(path: &Path) -> FileDevice {
    FileDevice::open(path, &FileOptions::default()).expect("an image file")
}

fn caller() -> Caller<'static> {
    let now = Timestamp { seconds: 1, nanoseconds: 0 };
    Caller { uid: 0, gid: 0, groups: &[], umask: 0o022, now, io: Io::BLOCKING, process: 0, request: None }
}

fn store_options() -> StoreOptions {
    StoreOptions { memory_bytes: 128 << 20, hash_key: [7; 16], ..StoreOptions::default() }
}

struct Pool {
    paths: Vec<PathBuf>,
}

impl Pool {
    fn create(directory: &Path) -> Pool {
        let paths: Vec<PathBuf> = (0..2).map(|index| directory.join(format!("rot-{index}.img"))).collect();
        paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
        let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).expect("the size is possible");
        let (mut devices, mut entries) = (Vec::new(), Vec::new());
        for (index, path) in (0u16..).zip(&paths) {
            let device = FileDevice::create(path, DEVICE_BYTES, &FileOptions::default()).expect("an image file");
            let superblock = Superblock {
                journal_devices: vec![0, 1],
                pool_name: "rot".into(),
                ..Superblock::first(PoolId([9; 16]), DeviceId([index as u8 + 1; 16]), index, layout)
            };
            entries.push(DeviceEntry::of(&superblock, format!("d{index}")));
            devices.push(DeviceIn { index, superblock, device: Arc::new(device), read_cost: 1 });
        }
        let store = Store::create(devices, entries, store_options()).expect("a pool");
        FileSystem::format(&store, caller().now).expect("a root");
        store.close().expect("a close");
        Pool { paths }
    }

    fn open(&self) -> FileSystem {
        let devices = self.paths.iter().map(|path| {
            let device = open_device(path);
            let found = DeviceLayout::superblock_offsets_for_size(DEVICE_BYTES).into_iter().filter_map(|offset| {
                let mut bytes = vec![0; Superblock::SIZE];
                device.read(offset, &mut bytes).expect("a readable device");
                Superblock::decode(&bytes).ok()
            });
            let superblock = found.max_by_key(|superblock| superblock.generation).expect("a superblock");
            DeviceIn { index: superblock.device_index, superblock, device: Arc::new(device), read_cost: 1 }
        });
        let (store, _) = Store::open(devices.collect(), store_options()).expect("the pool opens");
        FileSystem::new(Arc::new(store), Options::default()).expect("a file system")
    }

    /// Turns bytes of an image around.
    fn rot(&self, device: u16, offset: u64, length: u64) {
        let file = OpenOptions::new().read(true).write(true).open(&self.paths[usize::from(device)]).expect("the image");
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, offset).expect("a readable image");
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        file.write_all_at(&bytes, offset).expect("a writable image");
        file.sync_all().expect("a sync");
    }
}

/// Where both copies of a part of the file lie.
fn places_of(fs: &FileSystem, inode: u64, offset: u64) -> Vec<(u16, u64)> {
    let (segment, at) = fs
        .store()
        .view(Io::BLOCKING, |view| {
            let mut found = None;
            view.scan(Key::extent(inode, offset + 1), Key::extent(inode, u64::MAX), |key, value| {
                if key.kind == key::kind::EXTENT {
                    found = ExtentValue::decode(value).ok().map(|extent| (key.position, extent));
                }
                std::ops::ControlFlow::Break(())
            })?;
            let (end, extent) = found.expect("the file has this part");
            let handle = view.blob(extent.blob)?;
            let start = end - u64::from(extent.length).next_multiple_of(4096);
            let address = handle.value.address;
            let at = u64::from(address.row_block) * 4096 + u64::from(address.offset) + u64::from(extent.blob_offset);
            Ok::<_, stere_store::Error>((address.segment, at + (offset - start)))
        })
        .expect("a view");
    let segment = fs.store().segments().get(segment).expect("the segment");
    let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).expect("as before");
    let place = |place: &stere_format::ChunkPlace| (place.device, layout.slot_offset(place.slot).expect("a slot") + at);
    segment.chunks().iter().map(place).collect()
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Reads the file from its start to its end; the whole time, and that of the read at `offset`.
fn read_through(fs: &FileSystem, inode: u64, offset: usize) -> (f64, f64) {
    let mut out = vec![0; READ_BYTES];
    let (begun, mut one) = (Instant::now(), 0.0);
    for at in (0..FILE_BYTES).step_by(READ_BYTES) {
        let read = Instant::now();
        fs.read(&caller(), inode, at as u64, &mut out).expect("a read");
        if (at..at + READ_BYTES).contains(&offset) {
            one = milliseconds(read);
        }
    }
    (milliseconds(begun), one)
}

fn damaged_content(pool: &Pool, inode: u64, bytes: u64, runs: usize) -> String {
    let offset = 50 * READ_BYTES * 8;
    let (mut whole, mut one) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let fs = pool.open();
        read_through(&fs, inode, offset);
        let healthy = read_through(&fs, inode, offset);
        // Whichever copy is read has so much damage in this one read, and the other copy has it elsewhere.
        for (copy, (device, at)) in (0..).zip(places_of(&fs, inode, offset as u64)) {
            pool.rot(device, at + copy * bytes, bytes);
        }
        let damaged = read_through(&fs, inode, offset);
        let totals = fs.store().repair_totals();
        assert!(totals.blocks >= bytes / 4096, "it was found and repaired");
        whole.push(damaged.0 - healthy.0);
        one.push(damaged.1 - healthy.1);
        assert!(fs.store().scrubber.scrub().expect("a pass").is_clean());
        fs.store().close().expect("a close");
    }
    let name = format!("{} KiB of content", bytes >> 10);
    let (one_median, whole_median) = (median(one.clone()), median(whole.clone()));
    println!("{name:<28}{one_median:>12.2}{whole_median:>16.2}");
    format!("{{\"damage\": \"{name}\", \"request_ms\": {one:?}, \"file_ms\": {whole:?}}}")
}

/// The first read after a mount; with one copy of every tree node and checkpoint bad, where that is told. Time, and blocks that
/// were repaired by it.
fn first_read(pool: &Pool, inode: u64, bad_copy: Option<usize>) -> (f64, u64) {
    let fs = pool.open();
    let before = fs.store().repair_totals().blocks;
    let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).expect("as before");
    for segment in fs.store().segments().all() {
        let (Some(copy), SegmentKind::Meta) = (bad_copy, segment.kind) else { continue };
        let place = segment.chunks()[copy];
        let start = layout.slot_offset(place.slot).expect("a slot");
        pool.rot(place.device, start + 4096, u64::from(segment.written_blocks() - 1) * 4096);
    }
    let begun = Instant::now();
    fs.read(&caller(), inode, (FILE_BYTES / 2) as u64, &mut [0; 4096]).expect("a read");
    let time = milliseconds(begun);
    let blocks = fs.store().repair_totals().blocks - before;
    assert!(fs.store().scrubber.scrub().expect("a pass").is_clean());
    fs.store().close().expect("a close");
    (time, blocks)
}

fn damaged_metadata(pool: &Pool, inode: u64, runs: usize) -> String {
    let mut above = Vec::new();
    let mut blocks = 0;
    for _ in 0..runs {
        let (healthy, _) = first_read(pool, inode, None);
        // The copy that is read is the one that is faster at the time.
        let damaged = [0, 1].into_iter().map(|copy| first_read(pool, inode, Some(copy)));
        let found: Vec<(f64, u64)> = damaged.filter(|(_, repaired)| *repaired > 0).collect();
        blocks = found.iter().map(|(_, repaired)| *repaired).max().unwrap_or(blocks);
        above.extend(found.into_iter().map(|(time, _)| time - healthy));
    }
    println!(
        "{:<28}{:>12.2}   ({blocks} blocks of nodes, {} of {runs} runs)",
        "tree nodes on the way",
        median(above.clone()),
        above.len()
    );
    format!("{{\"damage\": \"tree nodes\", \"blocks\": {blocks}, \"request_ms\": {above:?}}}")
}

/// What of each device holds segments with live data.
fn used(fs: &FileSystem) -> Vec<Vec<(u64, usize)>> {
    let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).expect("as before");
    let mut ranges: Vec<Vec<(u64, usize)>> = vec![Vec::new(); 2];
    for segment in fs.store().segments().all().iter().filter(|segment| segment.live_bytes() > 0) {
        for place in segment.chunks() {
            let start = layout.slot_offset(place.slot).expect("a slot");
            ranges[usize::from(place.device)].push((start, segment.written_blocks() as usize * 4096));
        }
    }
    ranges
}

/// Reads these ranges in pieces of a chunk, from both devices at once; bytes and milliseconds.
fn raw_read(pool: &Pool, ranges: &[Vec<(u64, usize)>]) -> (u64, f64) {
    let devices: Vec<FileDevice> = pool.paths.iter().map(|path| open_device(path)).collect();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (device, ranges) in devices.iter().zip(ranges) {
            for first in 0..RAW_READS_PER_DEVICE {
                scope.spawn(move || {
                    let mut buffer = Buffer::zeroed(CHUNK_BYTES as usize);
                    for (start, length) in ranges.iter().skip(first).step_by(RAW_READS_PER_DEVICE) {
                        device.read(*start, &mut buffer.as_mut_slice()[..*length]).expect("a read");
                    }
                });
            }
        }
    });
    let elapsed = milliseconds(begun);
    (ranges.iter().flatten().map(|(_, length)| *length as u64).sum(), elapsed)
}

fn scrub_rate(pool: &Pool, runs: usize) -> String {
    let (mut ratios, mut raws, mut scrubs) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..runs {
        let mut ranges = Vec::new();
        let mut scrub = || {
            let fs = pool.open();
            ranges = used(&fs);
            let begun = Instant::now();
            let report = fs.store().scrubber.scrub().expect("a pass");
            let rate = report.bytes_checked as f64 / milliseconds(begun) / 1e3;
            assert!(report.is_clean() && report.repaired_blocks == 0, "{report:?}");
            rate
        };
        let raw = |ranges: &[Vec<(u64, usize)>]| {
            let (bytes, raw_ms) = raw_read(pool, ranges);
            bytes as f64 / raw_ms / 1e3
        };
        // Each is first every other time.
        let (scrub, raw) = if run % 2 == 0 {
            let rate = scrub();
            (rate, raw(&ranges))
        } else {
            let fs = pool.open();
            let ranges = used(&fs);
            drop(fs);
            let rate = raw(&ranges);
            (scrub(), rate)
        };
        ratios.push(scrub / raw);
        raws.push(raw);
        scrubs.push(scrub);
    }
    let (raw, scrub, ratio) = (median(raws.clone()), median(scrubs.clone()), median(ratios.clone()));
    println!("scrub: {scrub:.0} MB/s; bare reads of the same bytes: {raw:.0} MB/s; ratio {ratio:.2}");
    format!("{{\"scrub_mb_s\": {scrubs:?}, \"raw_mb_s\": {raws:?}, \"ratio\": {ratios:?}}}")
}

/// A file of so many random bytes.
fn make_file(fs: &FileSystem, name: &[u8], bytes: usize) -> u64 {
    let (made, handle) = fs.create(&caller(), ROOT, name, 0o644, FLAGS).expect("a file");
    let mut state = 1u64;
    for at in (0..bytes).step_by(READ_BYTES) {
        let piece: Vec<u8> = (0..READ_BYTES.min(bytes - at))
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        fs.write(&caller(), made.inode, at as u64, &piece, false).expect("a write");
    }
    fs.release(&caller(), made.inode, handle).expect("a release");
    made.inode
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().expect("usage: rot DIRECTORY [RUNS]"));
    let runs: usize = arguments.next().map_or(5, |runs| runs.parse().expect("RUNS is a number"));
    let pool = Pool::create(&directory);
    let fs = pool.open();
    let inode = make_file(&fs, b"file", FILE_BYTES);
    // What is scrubbed beside it, so that a pass takes long enough to be timed.
    make_file(&fs, b"other", OTHER_FILE_BYTES);
    fs.syncfs(&caller()).expect("a sync");
    fs.store().close().expect("a close");
    drop(fs);
    println!("{:<28}{:>12}{:>16}", "ms above a healthy read of", "the request", "the whole file");
    let content = [4 << 10, 64 << 10].map(|bytes| damaged_content(&pool, inode, bytes, runs));
    let nodes = damaged_metadata(&pool, inode, runs);
    let scrub = scrub_rate(&pool, runs);
    println!("{{\"reads\": [{}, {}, {nodes}], \"scrub\": {scrub}}}", content[0], content[1]);
    pool.paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
}
