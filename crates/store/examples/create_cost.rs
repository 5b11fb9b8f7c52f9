//! What a create of a 4 KiB file costs in the store, on devices in memory: CPU microseconds per file.

use std::sync::Arc;
use std::time::Instant;

use stere_device::MemoryDevice;
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, ExtentFlags, ExtentValue, Key, PoolId, Scheme, Superblock};
use stere_store::{DeviceIn, Error, Io, Owner, Placement, Store, StoreOptions};

const FILES: u64 = 200_000;

fn new_store() -> Store {
    let size_bytes = 4 << 30;
    let layout = DeviceLayout::for_size(size_bytes, 4 << 20).expect("a valid size");
    let superblock = Superblock {
        journal_devices: vec![0],
        pool_name: "cost".into(),
        ..Superblock::first(PoolId([1; 16]), DeviceId([2; 16]), 0, layout)
    };
    let entry = DeviceEntry::of(&superblock, String::new());
    let device = Arc::new(MemoryDevice::new(size_bytes));
    let devices = vec![DeviceIn { index: 0, superblock, device, read_cost: 1 }];
    Store::create(devices, vec![entry], StoreOptions::default()).expect("a new pool")
}

fn main() {
    let store = new_store();
    let placement = Placement { scheme: Scheme { data: 1, parity: 0 }, class: 1, site: stere_format::Site::ANYWHERE };
    let data = vec![7u8; 4096];
    let begin = Instant::now();
    for file in 0..FILES {
        let inode = 100 + file;
        store
            .update(Io::BLOCKING, |tx| {
                tx.get(&Key::dirent_hash(1, file.wrapping_mul(0x9e37_79b9_7f4a_7c15)))?;
                tx.get(&Key::inode(1))?;
                tx.put(Key::dirent_hash(1, file.wrapping_mul(0x9e37_79b9_7f4a_7c15)), &[1; 12]);
                tx.put(Key::dirent(1, file), &[2; 30]);
                tx.put(Key::inode(inode), &[3; 120]);
                tx.put(Key::inode(1), &[3; 120]);
                Ok::<_, Error>(())
            })
            .expect("create");
        let blob = store.append_blob(Io::BLOCKING, placement, Owner { inode, offset: 0 }, &data).expect("append");
        store
            .update(Io::BLOCKING, |tx| {
                tx.insert_blob(&blob);
                let extent =
                    ExtentValue { blob: blob.id, blob_offset: 0, length: 4096, flags: ExtentFlags::Plain, charge: 0 };
                tx.put(Key::extent(inode, 0), &extent.encode());
                tx.put(Key::inode(inode), &[4; 120]);
                Ok::<_, Error>(())
            })
            .expect("write");
    }
    let created = begin.elapsed();
    store.commit(Io::BLOCKING).expect("commit");
    let committed = begin.elapsed();
    store.checkpoint().expect("checkpoint");
    let all = begin.elapsed();
    let per = |time: std::time::Duration| time.as_secs_f64() * 1e6 / FILES as f64;
    println!(
        "per file: create {:.2} us, with commit {:.2} us, with the last checkpoint {:.2} us",
        per(created),
        per(committed),
        per(all)
    );
}
