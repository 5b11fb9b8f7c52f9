//! P-6: who needs room waits for those that free it.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use stere_device::MemoryDevice;
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, FileKind, PoolId, Superblock, Timestamp};
use stere_store::{DeviceIn, Store, StoreOptions};

use super::*;
use crate::{Files, Options};

const ROOT: u64 = 1;
const CHUNK_BYTES: u32 = 1 << 20;
const DEVICE_BYTES: u64 = 64 << 20;
const WRITE_BYTES: usize = 1 << 20;

fn context() -> Context<'static> {
    Context { now: Timestamp { seconds: 1, nanoseconds: 0 }, io: Io::BLOCKING, request: None }
}

pub(crate) fn new_files() -> Files {
    let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).unwrap();
    let superblock = Superblock {
        journal_bytes: layout.journal_bytes,
        journal_devices: vec![0],
        pool_name: "test".into(),
        ..Superblock::first(PoolId([9; 16]), DeviceId([1; 16]), 0, layout)
    };
    let entry = DeviceEntry::of(&superblock, "d0".into());
    let device = Arc::new(MemoryDevice::with_volatile_cache(DEVICE_BYTES));
    let options = StoreOptions { memory_bytes: 64 << 20, hash_key: [7; 16], ..StoreOptions::default() };
    let device = DeviceIn { index: 0, superblock, device, read_cost: 1 };
    let store = Store::create(vec![device], vec![entry], options).unwrap();
    store
        .update(Io::BLOCKING, |transaction| {
            while transaction.allocate_inode() < ROOT {}
            let directory = FileKind::Directory.mode_bits() | 0o755;
            keys::put_inode(transaction, ROOT, &InodeValue::new(directory, 0, 0, ROOT, context().now));
            Ok::<_, Error>(())
        })
        .unwrap();
    Files::new(Arc::new(store), Options::default()).unwrap()
}

fn new_file(files: &Files) -> u64 {
    let made = files.store().update(Io::BLOCKING, |transaction| {
        let inode = transaction.allocate_inode();
        let value = InodeValue::new(FileKind::File.mode_bits() | 0o644, 0, 0, ROOT, context().now);
        keys::put_inode(transaction, inode, &InodeValue { nlink: 1, ..value });
        Ok::<_, Error>(inode)
    });
    made.unwrap()
}

/// Writes until there is no room; how much was accepted.
fn fill(files: &Files, inode: u64) -> u64 {
    let data = vec![inode as u8; WRITE_BYTES];
    let mut written = 0;
    while let Ok(more) = files.writer.write(&context(), inode, written, &data) {
        written += more as u64;
        files.writeback.save(&context(), inode).unwrap();
    }
    written
}

/// A full pool of one file that has lost its name.
fn full_and_removed() -> (Files, u64, u64) {
    let files = new_files();
    let (writer, big) = (new_file(&files), new_file(&files));
    files.open(&context(), big).unwrap();
    assert!(fill(&files, big) > DEVICE_BYTES / 2);
    files
        .orphans
        .removing(&context(), big, |transaction, unlink| {
            let value = InodeValue { nlink: 0, ..keys::inode(transaction, big)? };
            Ok::<_, Error>(((), unlink.apply(transaction, big, value, true)?))
        })
        .unwrap();
    assert!(fill(&files, writer) == 0, "it is open, so its room is not free");
    (files, writer, big)
}

#[test]
fn a_writer_waits_for_room_that_another_is_freeing() {
    let (files, writer, big) = full_and_removed();
    let written = std::thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        let files = &files;
        let freer = scope.spawn(move || {
            let _freeing = files.orphans.freeing(Io::BLOCKING).unwrap();
            let held = files.table.hold(big);
            let mut state = held.write(Io::BLOCKING).unwrap();
            state.opens = 0;
            begun.send(()).unwrap();
            // Long enough for a writer that does not wait to be refused.
            std::thread::sleep(Duration::from_millis(300));
            files.orphans.discard(big, &mut state);
            while !files.orphans.free_step(&context(), big).unwrap() {}
        });
        has_begun.recv().unwrap();
        let written = files.writer.write(&context(), writer, 0, &[1; WRITE_BYTES]);
        freer.join().unwrap();
        written
    });
    assert_eq!(written.unwrap(), WRITE_BYTES);
}

#[test]
fn who_must_not_wait_is_told_so_while_another_frees() {
    let (files, writer, big) = full_and_removed();
    let _freeing = files.orphans.freeing(Io::BLOCKING).unwrap();
    let never = Context { io: Io::NON_BLOCKING, ..context() };
    assert!(files.writer.write(&never, writer, 0, &[1; WRITE_BYTES]).unwrap_err().would_block());
    assert!(files.orphans.forget(&never, big).unwrap_err().would_block());
}

#[test]
fn a_kernel_that_forgets_what_another_has_locked_waits_for_nobody() {
    let (files, writer, big) = full_and_removed();
    files.orphans.note(big, OrphanKind::Removed);
    let held = files.table.hold(big);
    let mut state = held.write(Io::BLOCKING).unwrap();
    state.opens = 0;
    // Were this to wait for the entry, it would wait for ever.
    files.orphans.forget(&context(), big).unwrap();
    drop(state);
    assert!(!files.step(&context(), usize::MAX).unwrap());
    assert!(fill(&files, writer) > DEVICE_BYTES / 2);
}
