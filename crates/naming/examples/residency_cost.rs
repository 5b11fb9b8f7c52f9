//! What one rule that pins costs where archived segments are released: 100,000 files in 100 directories, all of them on a volume too; half of
//! the segments go. Without any rule, with a rule that matches few files, with one whose files share content, and with `pin` set on one
//! directory. Also what it takes to ask in which unit a file is, and to look for new files among those 100,000, by what was written and by walking over all names.

use std::sync::Arc;
use std::time::Instant;

use stere_device::{Device, MemoryDevice, MemoryVolume};
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, PoolId, Succession, Superblock, VolumeEntry, VolumeId};
use stere_naming::{Caller, FileSystem, Io, OpenFlags, Options, ROOT, SetMode, Timestamp};
use stere_store::{DeviceIn, Store, StoreOptions, TierMarks};

const DIRECTORIES: usize = 100;
const FILES: usize = 1000;
const FILE_BYTES: usize = 4096;
const SIZE_BYTES: u64 = 2 << 30;

fn caller(seconds: i64) -> Caller<'static> {
    let now = Timestamp { seconds, nanoseconds: 0 };
    Caller { uid: 0, gid: 0, groups: &[], umask: 0o022, now, io: Io::BLOCKING, process: 0, request: None }
}

fn file_system() -> FileSystem {
    let layout = DeviceLayout::for_size(SIZE_BYTES, 4 << 20).expect("a possible size");
    let superblock = Superblock {
        journal_bytes: layout.journal_bytes,
        journal_devices: vec![0],
        pool_name: "bench".into(),
        ..Superblock::first(PoolId([9; 16]), DeviceId([1; 16]), 0, layout)
    };
    let entry = DeviceEntry::of(&superblock, "d0".into());
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_volatile_cache(SIZE_BYTES));
    let device = DeviceIn { index: 0, superblock, device, read_cost: 1 };
    let options = StoreOptions { memory_bytes: 256 << 20, hash_key: [7; 16], ..StoreOptions::default() };
    let store = Store::create(vec![device], vec![entry], options).expect("a pool");
    FileSystem::format(&store, caller(1).now).expect("a root");
    let fs = FileSystem::new(Arc::new(store), Options::default()).expect("a file system");
    let entry = VolumeEntry {
        number: 0,
        id: VolumeId([1; 16]),
        class: 3,
        is_offline: false,
        takes_metadata: false,
        succession: Succession::Stays,
        name: "cold".to_owned(),
        place: "memory:cold".to_owned(),
    };
    fs.store().tier.media.add_volume(entry, Arc::new(MemoryVolume::new("cold")), "tank", false).expect("a volume");
    fs
}

fn say(fs: &FileSystem, inode: u64, key: &str, value: &str) {
    let name = format!("user.stere.{key}");
    fs.setxattr(&caller(3), inode, name.as_bytes(), value.as_bytes(), SetMode::Any, false).expect("a policy");
}

/// The directories and one file of each.
fn fill(fs: &FileSystem, is_shared: bool) -> Vec<(u64, u64)> {
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at * 7) as u8).collect();
    let mut found = Vec::new();
    for directory in 0..DIRECTORIES {
        let inode = fs.mkdir(&caller(2), ROOT, format!("d{directory}").as_bytes(), 0o755).expect("a directory").inode;
        let mut last = 0;
        for number in 0..FILES {
            let name = format!("file {number}.{}", if number % 500 == 7 { "index" } else { "data" });
            let flags = OpenFlags { write: true, ..OpenFlags::default() };
            let (made, handle) = fs.create(&caller(2), inode, name.as_bytes(), 0o644, flags).expect("a file");
            fs.write(&caller(2), made.inode, 0, &bytes, false).expect("a write");
            fs.release(&caller(2), made.inode, handle).expect("closing");
            last = made.inode;
        }
        found.push((inode, last));
    }
    if is_shared {
        let (made, handle) = fs
            .create(&caller(2), ROOT, b"copy", 0o644, OpenFlags { write: true, ..OpenFlags::default() })
            .expect("a file");
        fs.syncfs(&caller(2)).expect("saved");
        fs.copy_range(&caller(2), found[50].1, 0, made.inode, 0, FILE_BYTES as u64).expect("a copy");
        fs.release(&caller(2), made.inode, handle).expect("closing");
    }
    found
}

fn once(what: &str, rules: &str, pins_directory: bool, is_shared: bool) {
    let fs = file_system();
    let found = fill(&fs, is_shared);
    say(&fs, ROOT, "tier", "cold");
    fs.syncfs(&caller(3)).expect("saved");
    while fs.reconciler().reconcile_step(&caller(3), 64 << 20).expect("reconciled") {}
    while fs.store().tier.step(true, &|_| Vec::new()).expect("copied out").is_busy {}
    (0..3).for_each(|_| fs.store().checkpoint().expect("a checkpoint"));
    // Not the first time that it is found out how segments were used.
    let used = fs.store().space().used_percent();
    fs.store().tier.media.set_tier_marks(TierMarks::new(used, used - 1).expect("marks")).expect("marks");
    fs.eviction().keep_room(&caller(2000)).expect("room");
    fs.policy().load_rules(&caller(4), rules).expect("rules");
    if pins_directory {
        say(&fs, found[3].0, "pin", "yes");
    }
    while fs.reconciler().reconcile_step(&caller(3), 64 << 20).expect("reconciled") {}
    let used = fs.store().space().used_percent();
    let low = (used / 2).max(1);
    fs.store().tier.media.set_tier_marks(TierMarks::new(used, low).expect("marks")).expect("marks");
    let start = Instant::now();
    let released = fs.eviction().keep_room(&caller(2001)).expect("room");
    let took = start.elapsed();
    let start = Instant::now();
    for (_, file) in &found {
        fs.units().unit_of(Io::BLOCKING, *file).expect("asked");
    }
    let unit = start.elapsed() / DIRECTORIES as u32;
    let left = fs.store().tier.stager.releasable_segments().len();
    println!("{what:<40} {took:>10.1?} for {} segments, {left} left; unit_of {unit:.1?}", released.unwrap_or(0));
}

/// One new file each time, and a look for it.
fn look() {
    let fs = file_system();
    let found = fill(&fs, false);
    say(&fs, ROOT, "tier", "cold");
    fs.syncfs(&caller(3)).expect("saved");
    while fs.reconciler().reconcile_step(&caller(3), 64 << 20).expect("reconciled") {}
    for looks_at_all in [true, false, true, false, true, false, true, false, true, false] {
        let file = found[7].1;
        fs.write(&caller(4), file, 0, b"changed", false).expect("a write");
        fs.syncfs(&caller(4)).expect("saved");
        let start = Instant::now();
        fs.reconciler().send_new_down(&caller(5), looks_at_all).expect("looked");
        while fs.reconciler().reconcile_step(&caller(5), 64 << 20).expect("reconciled") {}
        println!(
            "{:<40} {:>10.1?}",
            if looks_at_all { "a look at all names" } else { "a look at what was written" },
            start.elapsed()
        );
    }
}

fn main() {
    look();
    for _ in 0..2 {
        once("no rule", "", false, false);
        once("a rule pins 2 of 1,000 files", "*.index: pin=yes", false, false);
        once("a rule pins one directory", "/d3/*: pin=yes", false, false);
        once("the same, and one file is shared", "/d3/*: pin=yes", false, true);
        once("pin=yes on that directory", "", true, false);
        once("a rule for units that matches nothing", "/elsewhere: unit=yes", false, false);
    }
}
