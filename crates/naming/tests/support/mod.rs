//! A file system on devices in memory, for tests of this crate.
#![allow(dead_code)]

pub mod calls;
pub mod cold;
pub mod edits;
pub mod files;
pub mod keys;
pub mod pair;
pub mod random;
pub mod volume;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use stere_device::{Device, MemoryDevice};
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, PoolId, Superblock};
use stere_naming::{Caller, Error, FileSystem, Io, Options, Timestamp};
use stere_store::{DeviceIn, Store, StoreOptions};

const CHUNK_BYTES: u32 = 1 << 20;

pub struct Rig {
    pub devices: Vec<Arc<MemoryDevice>>,
    pub options: Options,
    mounts: AtomicU8,
}

pub fn caller(seconds: i64) -> Caller<'static> {
    Caller {
        uid: 0,
        gid: 0,
        groups: &[],
        umask: 0o022,
        now: Timestamp { seconds, nanoseconds: 0 },
        io: Io::BLOCKING,
        process: 0,
        request: None,
    }
}

fn store_options() -> StoreOptions {
    StoreOptions { memory_bytes: 64 << 20, hash_key: [7; 16], ..StoreOptions::default() }
}

fn read_superblock(device: &MemoryDevice, size_bytes: u64) -> Superblock {
    let layout = DeviceLayout::for_size(size_bytes, CHUNK_BYTES).expect("the size is possible");
    let found = layout.superblock_offsets().into_iter().filter_map(|offset| {
        let mut bytes = vec![0; Superblock::SIZE];
        device.read(offset, &mut bytes).expect("a superblock slot is readable");
        Superblock::decode(&bytes).ok()
    });
    found.max_by_key(|superblock| superblock.generation).expect("a device of a pool has a superblock")
}

impl Rig {
    pub fn new(count: u16, size_bytes: u64) -> (Rig, FileSystem) {
        Rig::unlike(&vec![size_bytes; usize::from(count)])
    }

    /// A pool of devices of these sizes.
    pub fn unlike(sizes_bytes: &[u64]) -> (Rig, FileSystem) {
        let count = u16::try_from(sizes_bytes.len()).expect("few devices");
        let new_device = |size_bytes: &u64| Arc::new(MemoryDevice::with_volatile_cache(*size_bytes));
        let devices: Vec<_> = sizes_bytes.iter().map(new_device).collect();
        let layout = |index: u16| {
            DeviceLayout::for_size(sizes_bytes[usize::from(index)], CHUNK_BYTES).expect("the size is possible")
        };
        let journal_bytes = (0..count.min(3)).map(|index| layout(index).journal_bytes).min().expect("a device");
        let superblock = |index: u16| Superblock {
            journal_bytes,
            journal_devices: (0..count.min(3)).collect(),
            pool_name: "test".into(),
            ..Superblock::first(PoolId([9; 16]), DeviceId([index as u8 + 1; 16]), index, layout(index))
        };
        let entry = |index: u16| DeviceEntry::of(&superblock(index), format!("d{index}"));
        let devices_in = (0..count)
            .map(|index| DeviceIn {
                index,
                superblock: superblock(index),
                device: devices[usize::from(index)].clone(),
                read_cost: 1,
            })
            .collect();
        let store = Store::create(devices_in, (0..count).map(entry).collect(), store_options()).expect("a new pool");
        FileSystem::format(&store, caller(1).now).expect("a root");
        store.commit(Io::BLOCKING).expect("the root is durable");
        let rig = Rig { devices, options: Options::default(), mounts: AtomicU8::new(0) };
        let file_system = FileSystem::new(Arc::new(store), rig.mount_options()).expect("a file system");
        (rig, file_system)
    }

    /// The file system as it is found after the process has ended; the devices keep what they were given, or with
    /// `power_loss` only what was flushed.
    pub fn reopen(&self, file_system: FileSystem, power_loss: bool) -> FileSystem {
        self.crash(file_system, |_| !power_loss)
    }

    /// As `reopen`; of what was not flushed the devices keep what `keep` says.
    pub fn crash(&self, file_system: FileSystem, mut keep: impl FnMut(usize) -> bool) -> FileSystem {
        drop(file_system);
        for device in &self.devices {
            device.lose_unflushed(&mut keep);
        }
        self.open_without(&[])
    }

    /// The file system with the devices that are left; nothing of it may be in use.
    pub fn open_without(&self, gone: &[u16]) -> FileSystem {
        let left: Vec<_> = (0..)
            .zip(&self.devices)
            .filter(|(index, _)| !gone.contains(index))
            .map(|(_, device)| device.clone())
            .collect();
        self.open(&left)
    }

    /// The file system on these devices, which hold a pool like this one.
    pub fn open(&self, devices: &[Arc<MemoryDevice>]) -> FileSystem {
        self.try_open(devices).expect("a file system")
    }

    /// As `open`, of a pool whose names may be anything.
    pub fn try_open(&self, devices: &[Arc<MemoryDevice>]) -> Result<FileSystem, Error> {
        let devices_in = devices
            .iter()
            .map(|device| {
                let superblock = read_superblock(device, device.size_bytes());
                DeviceIn { index: superblock.device_index, superblock, device: device.clone(), read_cost: 1 }
            })
            .collect();
        let (store, _report) = Store::open(devices_in, store_options()).expect("the pool opens");
        FileSystem::new(Arc::new(store), self.mount_options())
    }

    /// What is drawn anew for every mount.
    fn mount_options(&self) -> Options {
        let mut options = self.options.clone();
        options.files.encryption_salt = Some([self.mounts.fetch_add(1, Ordering::Relaxed); 16]);
        options
    }

    /// What was written to the devices since they were made.
    pub fn written_bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.counters().written_bytes).sum()
    }

    /// The devices as they are now, to be spoilt.
    pub fn images(&self) -> Vec<Arc<MemoryDevice>> {
        self.devices.iter().map(|device| Arc::new(device.copy())).collect()
    }
}

/// Runs the background work to its end.
pub fn reconcile(fs: &FileSystem) {
    for _ in 0..10_000 {
        if !fs.reconciler().reconcile_step(&caller(7), 1 << 20).unwrap() {
            fs.store().commit(Io::BLOCKING).unwrap();
            return;
        }
    }
    panic!("reconciling does not end");
}
