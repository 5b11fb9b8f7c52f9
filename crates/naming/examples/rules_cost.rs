//! What rules cost per create: 10,000 creates in one directory, with none and with 1,000 rules, alternately; the fastest of each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stere_device::{Device, MemoryDevice};
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, PoolId, Superblock};
use stere_naming::{Caller, FileSystem, Io, OpenFlags, Options, ROOT, SetMode, Timestamp};
use stere_store::{DeviceIn, Store, StoreOptions};

const CREATES: usize = 10_000;
const ROUNDS: usize = 12;

fn caller() -> Caller<'static> {
    let now = Timestamp { seconds: 1, nanoseconds: 0 };
    Caller { uid: 0, gid: 0, groups: &[], umask: 0o022, now, io: Io::BLOCKING, process: 0, request: None }
}

fn file_system() -> FileSystem {
    let size_bytes = 256 << 20;
    let layout = DeviceLayout::for_size(size_bytes, 1 << 20).expect("a possible size");
    let superblock = Superblock {
        journal_bytes: layout.journal_bytes,
        journal_devices: vec![0],
        pool_name: "bench".into(),
        ..Superblock::first(PoolId([9; 16]), DeviceId([1; 16]), 0, layout)
    };
    let entry = DeviceEntry::of(&superblock, "d0".into());
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_volatile_cache(size_bytes));
    let device = DeviceIn { index: 0, superblock, device, read_cost: 1 };
    let options = StoreOptions { memory_bytes: 128 << 20, hash_key: [7; 16], ..StoreOptions::default() };
    let store = Store::create(vec![device], vec![entry], options).expect("a pool");
    FileSystem::format(&store, caller().now).expect("a root");
    FileSystem::new(Arc::new(store), Options::default()).expect("a file system")
}

/// Rules of all kinds: most by extension, as people write them, some by prefix, by path and by size.
fn rules(count: usize) -> String {
    let rule = |at: usize| match at % 10 {
        0 => format!("log-{at}-*: copies=3"),
        1 => format!("src/dir{at}/*.c: compress=lz4"),
        2 => format!("*.x{at} size>{at}M: class=archive"),
        _ => format!("*.e{at}: compress=zstd, copies=2"),
    };
    (0..count).map(rule).collect::<Vec<_>>().join("\n")
}

fn once(rules: &str) -> Duration {
    let fs = file_system();
    let directory = fs.mkdir(&caller(), ROOT, b"d", 0o755).expect("a directory").inode;
    fs.setxattr(&caller(), directory, b"user.stere.rules", rules.as_bytes(), SetMode::Any, false).expect("rules");
    let start = Instant::now();
    for number in 0..CREATES {
        let name = format!("file {number}.e{}", number % 2000);
        let (made, handle) =
            fs.create(&caller(), directory, name.as_bytes(), 0o644, OpenFlags::default()).expect("a file");
        fs.release(&caller(), made.inode, handle).expect("closing");
    }
    start.elapsed()
}

fn main() {
    let many = rules(1000);
    let (mut without, mut with) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        without = without.min(once(""));
        with = with.min(once(&many));
    }
    let each = |all: Duration| all.as_nanos() as f64 / CREATES as f64 / 1000.0;
    println!("{CREATES} creates: {:.2} us each without rules, {:.2} us with 1,000", each(without), each(with));
    println!("ratio {:.3}", with.as_secs_f64() / without.as_secs_f64());
}
