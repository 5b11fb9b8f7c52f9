//! What the checksums cost: a large file written, read from one end to the other and read in pieces of 4 KiB, for each of them in turn;
//! the fastest round of each, and its ratio to crc32c. In the process, on a device in memory, so nothing hides the cost.

use std::sync::Arc;
use std::time::Instant;

use stere_device::{Device, MemoryDevice};
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, PoolId, Superblock};
use stere_naming::{Caller, FileSystem, Io, OpenFlags, Options, ROOT, SetMode, Timestamp};
use stere_store::{DeviceIn, Store, StoreOptions};

const FILE_BYTES: usize = 256 << 20;
const PIECE_BYTES: usize = 1 << 20;
const SMALL_READS: usize = 20_000;
const ROUNDS: usize = 7;
const KINDS: [&str; 4] = ["crc32c", "xxh3", "blake3", "none"];

fn caller() -> Caller<'static> {
    let now = Timestamp { seconds: 1, nanoseconds: 0 };
    Caller { uid: 0, gid: 0, groups: &[], umask: 0o022, now, io: Io::BLOCKING, process: 0, request: None }
}

fn file_system() -> FileSystem {
    let size_bytes = 1 << 30;
    let layout = DeviceLayout::for_size(size_bytes, 4 << 20).expect("a possible size");
    let superblock = Superblock {
        journal_bytes: layout.journal_bytes,
        journal_devices: vec![0],
        pool_name: "bench".into(),
        ..Superblock::first(PoolId([9; 16]), DeviceId([1; 16]), 0, layout)
    };
    let entry = DeviceEntry::of(&superblock, "d0".into());
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(size_bytes));
    let device = DeviceIn { index: 0, superblock, device, read_cost: 1 };
    let options =
        StoreOptions { memory_bytes: 128 << 20, hash_key: [7; 16], keeps_recent: false, ..StoreOptions::default() };
    let store = Store::create(vec![device], vec![entry], options).expect("a pool");
    FileSystem::format(&store, caller().now).expect("a root");
    FileSystem::new(Arc::new(store), Options::default()).expect("a file system")
}

/// MB a second of writing, of reading, and thousands of small reads a second.
fn once(kind: &str, bytes: &[u8]) -> [f64; 3] {
    let fs = file_system();
    fs.setxattr(&caller(), ROOT, b"user.stere.checksum", kind.as_bytes(), SetMode::Any, false).expect("a policy");
    fs.setxattr(&caller(), ROOT, b"user.stere.copies", b"1", SetMode::Any, false).expect("a policy");
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (made, handle) = fs.create(&caller(), ROOT, b"f", 0o644, flags).expect("a file");
    let rate = |begun: Instant| FILE_BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for at in (0..FILE_BYTES).step_by(PIECE_BYTES) {
        fs.write(&caller(), made.inode, at as u64, &bytes[at..at + PIECE_BYTES], false).expect("a write");
    }
    fs.syncfs(&caller()).expect("a sync");
    let written = rate(begun);
    fs.release(&caller(), made.inode, handle).expect("closing");
    let mut out = vec![0; PIECE_BYTES];
    let begun = Instant::now();
    for at in (0..FILE_BYTES).step_by(PIECE_BYTES) {
        assert_eq!(fs.read(&caller(), made.inode, at as u64, &mut out).expect("a read"), PIECE_BYTES);
    }
    let read = rate(begun);
    let (begun, mut place) = (Instant::now(), 1_usize);
    for _ in 0..SMALL_READS {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (place >> 20) % (FILE_BYTES / 4096) * 4096;
        assert_eq!(fs.read(&caller(), made.inode, at as u64, &mut out[..4096]).expect("a read"), 4096);
    }
    [written, read, SMALL_READS as f64 / 1e3 / begun.elapsed().as_secs_f64()]
}

fn main() {
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    let mut best = [[0.0_f64; 3]; KINDS.len()];
    for round in 0..ROUNDS {
        for turn in 0..KINDS.len() {
            let at = (turn + round) % KINDS.len();
            for (best, seen) in best[at].iter_mut().zip(once(KINDS[at], &bytes)) {
                *best = best.max(seen);
            }
        }
    }
    for (kind, rates) in KINDS.iter().zip(best) {
        let ratio = |which: usize| rates[which] / best[0][which];
        println!(
            "{kind:7} writes {:5.0} MB/s ({:.2})   reads {:5.0} MB/s ({:.2})   4 KiB {:4.0} thousand/s ({:.2})",
            rates[0],
            ratio(0),
            rates[1],
            ratio(1),
            rates[2],
            ratio(2)
        );
    }
}
