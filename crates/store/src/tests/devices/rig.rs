//! A pool on devices in memory that come and go.

use std::sync::Arc;

use stere_device::{Device, MemoryDevice};
use stere_format::{DeviceEntry, DeviceId, DeviceIndex, DeviceLayout, ExtentValue, Key, PoolId, Scheme, Superblock};

pub(crate) use crate::tests::{assert_clean, content, read_file, write_file};
use crate::{DeviceIn, Error, Io, MendProgress, Piece, Placement, Store, StoreOptions};

pub const CHUNK_BYTES: u32 = 1 << 20;
pub const MIB: u64 = 1 << 20;

pub fn placement(data: u8, parity: u8) -> Placement {
    Placement { scheme: Scheme { data, parity }, class: data * 16 + parity, site: stere_format::Site::ANYWHERE }
}

pub struct Rig {
    pub devices: Vec<Arc<MemoryDevice>>,
    pub hosts: Vec<String>,
    pub shelves: Vec<String>,
    pub journal_bytes: u64,
}

/// From this size on devices have chunks of 8 MiB.
pub const LARGE_BYTES: u64 = 1 << 30;

pub fn layout(device: &MemoryDevice) -> DeviceLayout {
    let chunk_bytes = if device.size_bytes() >= LARGE_BYTES { 8 * CHUNK_BYTES } else { CHUNK_BYTES };
    DeviceLayout::for_size(device.size_bytes(), chunk_bytes).unwrap()
}

pub fn options() -> StoreOptions {
    StoreOptions { memory_bytes: 32 << 20, hash_key: [7; 16], ..StoreOptions::default() }
}

impl Rig {
    pub fn new(sizes: &[u64]) -> (Rig, Store) {
        Rig::labelled(sizes, &[], &[])
    }

    pub fn labelled(sizes: &[u64], hosts: &[&str], shelves: &[&str]) -> (Rig, Store) {
        let devices: Vec<_> = sizes.iter().map(|size| Arc::new(MemoryDevice::with_volatile_cache(*size))).collect();
        let journal_bytes = devices.iter().map(|device| layout(device).journal_bytes).min().unwrap();
        let hosts = (0..sizes.len()).map(|at| hosts.get(at).map_or(String::new(), |host| (*host).into())).collect();
        let shelves = (0..sizes.len()).map(|at| shelves.get(at).map_or(String::new(), |name| (*name).into())).collect();
        let rig = Rig { devices, hosts, shelves, journal_bytes };
        let all: Vec<DeviceIndex> = (0..sizes.len() as DeviceIndex).collect();
        let devices_in = all.iter().map(|index| rig.new_device(*index)).collect();
        let entries = all.iter().map(|index| rig.entry(*index)).collect();
        let store = Store::create(devices_in, entries, options()).unwrap();
        (rig, store)
    }

    /// A device that nobody has written to yet.
    pub fn new_device(&self, index: DeviceIndex) -> DeviceIn {
        let device = self.devices[usize::from(index)].clone();
        let count = self.devices.len() as DeviceIndex;
        let superblock = Superblock {
            journal_bytes: self.journal_bytes,
            journal_devices: (0..count.min(3)).collect(),
            pool_name: "test".into(),
            host: self.hosts.get(usize::from(index)).cloned().unwrap_or_default(),
            shelf: self.shelves.get(usize::from(index)).cloned().unwrap_or_default(),
            ..Superblock::first(PoolId([9; 16]), DeviceId([index as u8 + 1; 16]), index, layout(&device))
        };
        DeviceIn { index, superblock, device, read_cost: stere_stripe::READ_COST_FAST }
    }

    pub fn entry(&self, index: DeviceIndex) -> DeviceEntry {
        DeviceEntry::of(&self.new_device(index).superblock, format!("d{index}"))
    }

    /// Another device, which the pool does not know.
    pub fn buy(&mut self, size_bytes: u64) -> DeviceIndex {
        self.devices.push(Arc::new(MemoryDevice::with_volatile_cache(size_bytes)));
        self.devices.len() as DeviceIndex - 1
    }

    /// A device with the newest superblock that is on it.
    pub fn device_in(&self, index: DeviceIndex) -> DeviceIn {
        self.found(index).unwrap()
    }

    pub fn found(&self, index: DeviceIndex) -> Option<DeviceIn> {
        let device = self.devices[usize::from(index)].clone();
        let decode = |offset| {
            let mut bytes = vec![0; Superblock::SIZE];
            device.read(offset, &mut bytes).unwrap();
            Superblock::decode(&bytes).ok()
        };
        let offsets = layout(&device).superblock_offsets();
        let superblock = offsets.into_iter().filter_map(decode).max_by_key(|found| found.generation)?;
        let index = superblock.device_index;
        Some(DeviceIn { index, superblock, device, read_cost: stere_stripe::READ_COST_FAST })
    }

    /// Opens with the devices that are up to date, of those given.
    pub fn open(&self, which: &[DeviceIndex]) -> Store {
        let mut found: Vec<DeviceIn> = which.iter().filter_map(|index| self.found(*index)).collect();
        let newest = found.iter().map(|device| device.superblock.generation).max().unwrap();
        // As the pool does: who is one behind was there when a crash came.
        found.retain(|device| device.superblock.generation + 1 >= newest);
        let newest = found.iter().max_by_key(|device| device.superblock.generation).unwrap().superblock.clone();
        for device in &mut found {
            let own = device.superblock.clone();
            device.superblock = Superblock {
                device: own.device,
                device_index: own.device_index,
                layout: own.layout,
                host: own.host,
                shelf: own.shelf,
                ..newest.clone()
            };
        }
        Store::open(found, options()).unwrap().0
    }

    /// Power loss: of the unflushed writes those survive that `keep` names.
    pub fn lose_power(&self, keep: impl Fn(usize) -> bool) {
        self.devices.iter().for_each(|device| {
            device.set_fault_hook(None);
            device.lose_unflushed(&keep);
        });
    }

    /// The same pool on devices of its own.
    pub fn copy(&self) -> Rig {
        let devices = self.devices.iter().map(|device| Arc::new(device.copy())).collect();
        Rig { devices, hosts: self.hosts.clone(), shelves: self.shelves.clone(), journal_bytes: self.journal_bytes }
    }

    pub fn written_bytes(&self, index: DeviceIndex) -> u64 {
        self.devices[usize::from(index)].counters().written_bytes
    }
}

/// Some bytes within one blob of a file.
pub fn read_range(store: &Store, inode: u64, at: usize, length: usize) -> Result<Vec<u8>, Error> {
    const BLOB: usize = 128 << 10;
    let start = at / BLOB * BLOB;
    let piece = store.view(Io::BLOCKING, |view| {
        let value = view.get(&Key::extent(inode, start as u64))?.unwrap();
        let extent = ExtentValue::decode(&value).unwrap();
        let offset = extent.blob_offset + (at - start) as u32;
        Ok::<_, Error>(Piece { blob: view.blob(extent.blob)?, offset, length: length as u32, at: 0 })
    })?;
    let mut out = vec![0; length];
    store.read_blobs(Io::BLOCKING, &[piece], &mut out)?;
    Ok(out)
}

/// Mends until nothing more can be done; what was written.
pub fn mend(store: &Store) -> MendProgress {
    let mut sum = MendProgress::default();
    for _ in 0..10_000 {
        let progress = store.rebuilder.mend_step(4 * MIB).unwrap();
        sum.bytes_written += progress.bytes_written;
        sum.chunks += progress.chunks;
        if progress.is_done {
            sum.is_done = true;
            return sum;
        }
    }
    panic!("mending comes to an end");
}

/// Every chunk of every segment that holds something is there, on devices other than `without`, and agrees with the others.
pub fn assert_complete(store: &Store, without: &[DeviceIndex]) {
    store.commit(Io::BLOCKING).unwrap();
    store.log().wait_for_rows().unwrap();
    for segment in store.segments().all().into_iter().filter(|segment| segment.live_bytes() > 0) {
        let place = segment.placed();
        assert_eq!(place.missing, 0, "segment {} ({:?}) is whole: {place:?}", segment.id, segment.kind);
        for chunk in &place.chunks {
            assert!(!without.contains(&chunk.device), "segment {} ({:?}): {place:?}", segment.id, segment.kind);
        }
        let check = store.log().stripe.check_blocks(segment.id, &place, 1..segment.written_blocks()).unwrap();
        assert_eq!(check.readable.count_ones() as usize, place.chunks.len(), "segment {}", segment.id);
        assert_eq!(check.differing, Vec::<usize>::new(), "segment {} ({:?})", segment.id, segment.kind);
        for (number, chunk) in place.chunks.iter().enumerate() {
            let header = store.log().stripe.read_chunk_header(*chunk).unwrap();
            assert_eq!((header.segment, usize::from(header.chunk)), (segment.id, number));
        }
    }
}

pub struct Files {
    pub placement: Placement,
    pub bytes: usize,
}

pub fn write(store: &Store, files: &[(u64, Placement, usize)]) {
    for (inode, placement, length) in files {
        write_file(store, *placement, *inode, &content(*inode, *length));
    }
    store.commit(Io::BLOCKING).unwrap();
}

pub fn assert_readable(store: &Store, files: &[(u64, Placement, usize)]) {
    for (inode, _, length) in files {
        assert_eq!(read_file(store, *inode, *length).unwrap(), content(*inode, *length), "file {inode}");
    }
}

pub fn some_files(of: Files, inodes: std::ops::Range<u64>) -> Vec<(u64, Placement, usize)> {
    inodes.map(|inode| (inode, of.placement, of.bytes + inode as usize * 777)).collect()
}
