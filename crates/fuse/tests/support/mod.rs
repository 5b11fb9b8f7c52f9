//! A new pool and its mount, for the tests and the example of this crate. Making pools properly is `stere-pool`'s work.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stere_device::Device;
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, PoolId, Superblock};
use stere_fuse::{MountOptions, Session, Unmount};
use stere_naming::{Caller, FileSystem, Io, Options, Timestamp};
use stere_store::{DeviceIn, Store, StoreOptions};

pub fn caller() -> Caller<'static> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let now = Timestamp { seconds: now.as_secs().cast_signed(), nanoseconds: now.subsec_nanos() };
    Caller { uid: 0, gid: 0, groups: &[], umask: 0o022, now, io: Io::BLOCKING, process: 0, request: None }
}

/// A new pool on these devices, with a root directory.
pub fn new_pool(devices: &[Arc<dyn Device>], chunk_bytes: u32, memory_bytes: usize) -> (Arc<Store>, Arc<FileSystem>) {
    let count = u16::try_from(devices.len()).expect("few devices");
    let layout = |index: u16| {
        DeviceLayout::for_size(devices[usize::from(index)].size_bytes(), chunk_bytes).expect("the size is possible")
    };
    let id = |index: u16| DeviceId([u8::try_from(index + 1).expect("few devices"); 16]);
    let superblock = |index: u16| Superblock {
        journal_bytes: (0..count).map(|index| layout(index).journal_bytes).min().expect("a device"),
        journal_devices: (0..count.min(3)).collect(),
        pool_name: "test".into(),
        ..Superblock::first(PoolId([9; 16]), id(index), index, layout(index))
    };
    let entry = |index: u16| DeviceEntry::of(&superblock(index), format!("d{index}"));
    let device_in = |index: u16| DeviceIn {
        index,
        superblock: superblock(index),
        device: Arc::clone(&devices[usize::from(index)]),
        read_cost: 1,
    };
    let options = StoreOptions { memory_bytes, hash_key: [7; 16], ..StoreOptions::default() };
    let store = Store::create((0..count).map(device_in).collect(), (0..count).map(entry).collect(), options);
    let store = Arc::new(store.expect("a new pool"));
    // SAFETY: these take nothing and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    FileSystem::format_for(&store, caller().now, user, group).expect("a root");
    store.commit(Io::BLOCKING).expect("the root is durable");
    let filesystem = FileSystem::new(Arc::clone(&store), Options::default()).expect("a file system");
    (store, Arc::new(filesystem))
}

/// The pool that is on these devices.
pub fn open_pool(devices: &[Arc<dyn Device>], memory_bytes: usize) -> FileSystem {
    let newest = |device: &Arc<dyn Device>| {
        // Copies lie at fixed places that do not depend on what the layout says else.
        let layout = DeviceLayout::for_size(device.size_bytes(), 4 << 20).expect("the size is possible");
        let found = layout.superblock_offsets().into_iter().filter_map(|offset| {
            let mut bytes = vec![0; Superblock::SIZE];
            device.read(offset, &mut bytes).expect("a superblock slot is readable");
            Superblock::decode(&bytes).ok()
        });
        found.max_by_key(|superblock| superblock.generation).expect("a device of a pool has a superblock")
    };
    let device_in = |device: &Arc<dyn Device>| {
        let superblock = newest(device);
        DeviceIn { index: superblock.device_index, superblock, device: Arc::clone(device), read_cost: 1 }
    };
    let options = StoreOptions { memory_bytes, hash_key: [7; 16], ..StoreOptions::default() };
    let (store, _report) = Store::open(devices.iter().map(device_in).collect(), options).expect("the pool opens");
    FileSystem::new(Arc::new(store), Options::default()).expect("a file system")
}

/// A mounted pool with its background work.
pub struct Mounted {
    pub path: PathBuf,
    pub store: Arc<Store>,
    pub filesystem: Arc<FileSystem>,
    pub session: Session,
    background: Background,
    remove_path: bool,
}

struct Background {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

fn background(store: &Arc<Store>, filesystem: &Arc<FileSystem>) -> Background {
    let stop = Arc::new(AtomicBool::new(false));
    let (store, filesystem, stopped) = (Arc::clone(store), Arc::clone(filesystem), Arc::clone(&stop));
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Acquire) {
            let more = filesystem.step(&caller(), 64).expect("background work");
            let more = store.step(false).expect("background work of the store") || more;
            if !more {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    });
    Background { stop, thread }
}

/// Gives a pool to the kernel, on a new directory unless one is named.
pub fn mount(
    (store, filesystem): (Arc<Store>, Arc<FileSystem>),
    mountpoint: Option<&Path>,
    options: &MountOptions,
) -> Mounted {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let path = mountpoint.map_or_else(
        || {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("stere-fuse-{}-{number}", std::process::id()));
            std::fs::create_dir(&path).expect("a mount point");
            path
        },
        Path::to_path_buf,
    );
    let session = stere_fuse::mount(Arc::clone(&filesystem), Arc::clone(&store), &path, options).expect("a mount");
    let background = background(&store, &filesystem);
    Mounted { path, store, filesystem, session, background, remove_path: mountpoint.is_none() }
}

impl Mounted {
    pub fn unmount(self) {
        self.detach();
        self.end();
    }

    /// Unmounts; the process goes on serving until `end`.
    pub fn detach(&self) {
        // Children that other tests fork have our files open for a moment.
        let mut left = 2000;
        while let Err(error) = self.session.unmount(Unmount::Normal) {
            assert!(left > 0, "nothing is open: {error}");
            left -= 1;
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until somebody unmounts.
    pub fn end(self) {
        self.session.wait(|| true).expect("a proper end");
        self.background.stop.store(true, Ordering::Release);
        self.background.thread.join().expect("background work does not fail");
        self.store.close().expect("the pool closes");
        if self.remove_path {
            std::fs::remove_dir(&self.path).expect("the mount point is free again");
        }
    }
}
