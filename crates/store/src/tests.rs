//! The store on devices in memory: what was committed survives losing everything that was not flushed.

use std::sync::Arc;

use stere_device::memory::Fault;
use stere_device::{Device, MemoryDevice, Operation};
use stere_format::{
    Counters, DeviceEntry, DeviceId, DeviceLayout, ExtentFlags, ExtentValue, JournalHeader, JournalPosition, Key,
    PoolId, Scheme, Superblock, key,
};
use stere_log::Segment;

mod damage;
pub(crate) mod devices;
mod full;
mod leaving;
mod mirrors;
mod overtaken;
mod places;
mod reuse;
mod stranded;
mod tier;
mod unproven;
mod void;
mod wish;

use crate::{DeviceIn, Error, Io, NewBlob, Owner, Piece, Placement, RecoveryReport, Store, StoreOptions};

pub(crate) const CHUNK_BYTES: u32 = 1 << 20;
pub(crate) const SINGLE: Placement =
    Placement { scheme: Scheme { data: 1, parity: 0 }, class: 1, site: stere_format::Site::ANYWHERE };
pub(crate) const COPIES: Placement =
    Placement { scheme: Scheme { data: 1, parity: 1 }, class: 2, site: stere_format::Site::ANYWHERE };
pub(crate) const PARITY: Placement =
    Placement { scheme: Scheme { data: 2, parity: 1 }, class: 3, site: stere_format::Site::ANYWHERE };

pub(crate) struct Rig {
    pub devices: Vec<Arc<MemoryDevice>>,
    pub superblocks: Vec<Superblock>,
}

pub(crate) fn options() -> StoreOptions {
    StoreOptions { memory_bytes: 32 << 20, hash_key: [7; 16], ..StoreOptions::default() }
}

impl Rig {
    pub fn new(count: u16, size_bytes: u64) -> (Rig, Store) {
        Rig::unlike(&vec![size_bytes; usize::from(count)])
    }

    fn unlike(sizes_bytes: &[u64]) -> (Rig, Store) {
        let count = sizes_bytes.len() as u16;
        let new_device = |size_bytes: &u64| Arc::new(MemoryDevice::with_volatile_cache(*size_bytes));
        let devices: Vec<_> = sizes_bytes.iter().map(new_device).collect();
        let layout = |index: u16| DeviceLayout::for_size(sizes_bytes[index as usize], CHUNK_BYTES).unwrap();
        let journal_bytes = (0..count.min(3)).map(|index| layout(index).journal_bytes).min().unwrap();
        let superblocks: Vec<Superblock> = (0..count)
            .map(|index| Superblock {
                journal_bytes,
                journal_devices: (0..count.min(3)).collect(),
                pool_name: "test".into(),
                ..Superblock::first(PoolId([9; 16]), DeviceId([index as u8 + 1; 16]), index, layout(index))
            })
            .collect();
        let entry = |superblock: &Superblock| DeviceEntry::of(superblock, format!("d{}", superblock.device_index));
        let entries = superblocks.iter().map(entry).collect();
        let mut rig = Rig { devices, superblocks };
        let store = Store::create(rig.devices_in(), entries, options()).unwrap();
        rig.read_superblocks();
        (rig, store)
    }

    pub fn devices_in(&self) -> Vec<DeviceIn> {
        self.devices
            .iter()
            .zip(&self.superblocks)
            .map(|(device, superblock)| DeviceIn {
                index: superblock.device_index,
                superblock: superblock.clone(),
                device: device.clone(),
                read_cost: stere_stripe::READ_COST_FAST,
            })
            .collect()
    }

    pub fn read_superblocks(&mut self) {
        for (device, superblock) in self.devices.iter().zip(&mut self.superblocks) {
            let newest = superblock
                .layout
                .superblock_offsets()
                .into_iter()
                .filter_map(|offset| {
                    let mut bytes = vec![0; Superblock::SIZE];
                    device.read(offset, &mut bytes).unwrap();
                    Superblock::decode(&bytes).ok()
                })
                .max_by_key(|found| found.generation);
            *superblock = newest.unwrap();
        }
    }

    /// Power loss: what `keep` names of the unflushed writes survives; then the pool is opened again.
    pub fn crash(&mut self, store: Store, keep: impl Fn(usize) -> bool) -> (Store, RecoveryReport) {
        drop(store);
        for device in &self.devices {
            device.lose_unflushed(&keep);
        }
        self.reopen()
    }

    pub fn reopen(&mut self) -> (Store, RecoveryReport) {
        self.read_superblocks();
        Store::open(self.devices_in(), options()).unwrap()
    }
}

pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

pub(crate) fn write_file(store: &Store, placement: Placement, inode: u64, data: &[u8]) -> Vec<u64> {
    let mut ids = Vec::new();
    for (index, piece) in data.chunks(128 << 10).enumerate() {
        let offset = (index * (128 << 10)) as u64;
        let owner = Owner { inode, offset };
        let new: NewBlob = store.append_blob(Io::BLOCKING, placement, owner, piece).unwrap();
        store
            .update(Io::BLOCKING, |transaction| {
                transaction.insert_blob(&new);
                let extent = ExtentValue {
                    blob: new.id,
                    blob_offset: 0,
                    length: new.length(),
                    flags: ExtentFlags::Plain,
                    charge: 0,
                };
                transaction.put(Key::extent(inode, offset), &extent.encode());
                Ok::<_, Error>(())
            })
            .unwrap();
        ids.push(new.id);
    }
    ids
}

pub(crate) fn read_file(store: &Store, inode: u64, length: usize) -> Result<Vec<u8>, Error> {
    let pieces = store.view(Io::BLOCKING, |view| {
        let mut extents = Vec::new();
        view.scan(Key::extent(inode, 0), Key::extent(inode + 1, 0), |key, value| {
            if key.kind == stere_format::key::kind::EXTENT {
                extents.push((key.position, ExtentValue::decode(value).unwrap()));
            }
            std::ops::ControlFlow::Continue(())
        })?;
        extents
            .into_iter()
            .map(|(at, extent)| {
                let blob = view.blob(extent.blob)?;
                Ok(Piece { blob, offset: extent.blob_offset, length: extent.length, at: at as usize })
            })
            .collect::<Result<Vec<_>, Error>>()
    })?;
    let mut out = vec![0; length];
    store.read_blobs(Io::BLOCKING, &pieces, &mut out)?;
    Ok(out)
}

pub(crate) fn remove_file(store: &Store, inode: u64) {
    store
        .update(Io::BLOCKING, |transaction| {
            let mut extents = Vec::new();
            transaction.scan(Key::extent(inode, 0), Key::extent(inode + 1, 0), |key, value| {
                if key.kind == stere_format::key::kind::EXTENT {
                    extents.push((*key, ExtentValue::decode(value).unwrap()));
                }
                std::ops::ControlFlow::Continue(())
            })?;
            for (key, extent) in extents {
                transaction.delete(key);
                transaction.release_blob(extent.blob, extent.blob_offset..extent.blob_offset + extent.length)?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
}

pub(crate) fn assert_clean(store: &Store) {
    let report = store.checker.check(true).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

/// P-1: what was committed survives.
#[test]
fn committed_data_survives_losing_all_that_was_not_flushed() {
    for placement in [SINGLE, COPIES, PARITY] {
        let (mut rig, store) = Rig::new(3, 64 << 20);
        let data = content(1, 700_001);
        write_file(&store, placement, 10, &data);
        store.commit(Io::BLOCKING).unwrap();
        write_file(&store, placement, 11, &content(2, 50_000));
        let (store, report) = rig.crash(store, |_| false);
        assert_eq!(report.groups_cut, 0);
        assert_eq!(read_file(&store, 10, data.len()).unwrap(), data);
        assert_clean(&store);
        let data = content(3, 300_000);
        write_file(&store, placement, 12, &data);
        store.close().unwrap();
        drop(store);
        let (store, report) = rig.reopen();
        assert!(report.clean);
        assert_eq!(read_file(&store, 12, data.len()).unwrap(), data);
        assert_clean(&store);
    }
}

/// P-2, P-5: a journal record may survive the power cut that took the data it names; then it does not count.
#[test]
fn an_unproven_tail_whose_data_is_lost_is_cut() {
    for survives in [false, true] {
        let (mut rig, store) = Rig::new(1, 64 << 20);
        write_file(&store, SINGLE, 10, &content(1, 4096));
        store.commit(Io::BLOCKING).unwrap();
        write_file(&store, SINGLE, 11, &content(2, 4096));
        let refuse_flush = |operation, _, _| (operation == Operation::Flush).then_some(Fault::Error);
        rig.devices[0].set_fault_hook(Some(Box::new(refuse_flush)));
        let error = store.commit(Io::BLOCKING).unwrap_err();
        assert!(store.failure().is_some(), "after a failed flush nothing more is promised: {error}");
        rig.devices[0].set_fault_hook(None);
        // The row was submitted first, the journal record after it.
        let (store, report) = rig.crash(store, |index| survives || index > 0);
        assert_eq!(report.groups_cut, u64::from(!survives));
        assert_eq!(read_file(&store, 10, 4096).unwrap(), content(1, 4096));
        let expected = if survives { content(2, 4096) } else { vec![0; 4096] };
        assert_eq!(read_file(&store, 11, 4096).unwrap(), expected, "either whole or not at all");
        assert_clean(&store);
        // What was cut stays cut: the next record with its number belongs to a new epoch.
        write_file(&store, SINGLE, 12, &content(3, 4096));
        store.commit(Io::BLOCKING).unwrap();
        let (store, _) = rig.crash(store, |_| false);
        assert_eq!(read_file(&store, 12, 4096).unwrap(), content(3, 4096));
        assert_clean(&store);
    }
}

/// P-8: accounting is exact after many checkpoints and a crash.
#[test]
fn checkpoints_keep_everything_and_free_what_is_dead() {
    let (mut rig, store) = Rig::new(2, 64 << 20);
    let mut expected = Vec::new();
    for round in 0..60u64 {
        let data = content(round, 900_000);
        write_file(&store, COPIES, 100 + round, &data);
        if round >= 8 {
            remove_file(&store, 100 + round - 8);
            expected.remove(0);
        }
        expected.push((100 + round, data));
        if round % 5 == 0 {
            store.checkpoint().unwrap();
        }
        if round % 3 == 0 {
            store.commit(Io::BLOCKING).unwrap();
        }
        while store.step(false).unwrap() {}
    }
    for (inode, data) in &expected {
        assert_eq!(&read_file(&store, *inode, data.len()).unwrap(), data);
    }
    assert_clean(&store);
    store.commit(Io::BLOCKING).unwrap();
    let (store, _) = rig.crash(store, |_| false);
    for (inode, data) in &expected {
        assert_eq!(&read_file(&store, *inode, data.len()).unwrap(), data);
    }
    assert_clean(&store);
}

/// P-6: full never means stuck.
#[test]
fn a_full_pool_takes_deletions_and_then_data_again() {
    let (mut rig, store) = Rig::new(1, 64 << 20);
    for round in 0..3u64 {
        let mut written = Vec::new();
        let full = loop {
            let inode = 1000 * (round + 1) + written.len() as u64;
            let data = content(inode, 100_000);
            let reservation = match store.space().reserve(Io::BLOCKING, SINGLE, data.len() as u64) {
                Ok(reservation) => reservation,
                Err(error) => break error,
            };
            write_file(&store, SINGLE, inode, &data);
            drop(reservation);
            written.push(inode);
        };
        assert!(matches!(full, Error::NoSpace), "{full}");
        assert!(written.len() > 350, "most of 64 MiB is usable, not only {} files", written.len());
        // Holes everywhere: every second file goes, then the room is used again.
        for inode in written.iter().step_by(2) {
            remove_file(&store, *inode);
        }
        for inode in 0..written.len() as u64 / 3 {
            write_file(&store, SINGLE, 500_000 + inode, &content(inode, 100_000));
        }
        for inode in written.iter().skip(1).step_by(2) {
            assert_eq!(read_file(&store, *inode, 100_000).unwrap(), content(*inode, 100_000));
            remove_file(&store, *inode);
        }
        for inode in 0..written.len() as u64 / 3 {
            remove_file(&store, 500_000 + inode);
        }
        store.commit(Io::BLOCKING).unwrap();
    }
    assert_clean(&store);
    let (store, _) = rig.crash(store, |_| false);
    assert_clean(&store);
}

/// P-9, P-16: slots are reused and nodes fetched again, through crashes.
#[test]
fn the_tree_is_far_larger_than_the_cache_and_random_crashes_lose_nothing_committed() {
    let (mut rig, mut store) = Rig::new(2, 128 << 20);
    let mut model = std::collections::BTreeMap::new();
    let mut state = 1u64;
    for round in 0..40u64 {
        for _ in 0..400 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let inode = (state >> 33) % 5000;
            let value = content(state, 200 + (state % 300) as usize);
            let delete = state % 5 == 0;
            store
                .update(Io::BLOCKING, |transaction| {
                    match delete {
                        true => transaction.delete(Key::inode(inode)),
                        false => transaction.put(Key::inode(inode), &value),
                    }
                    Ok::<_, Error>(())
                })
                .unwrap();
            match delete {
                true => model.remove(&inode),
                false => model.insert(inode, value),
            };
        }
        match round % 4 {
            0 => store.checkpoint().unwrap(),
            1 => store.commit(Io::BLOCKING).unwrap(),
            2 => {
                store.commit(Io::BLOCKING).unwrap();
                let salt = state;
                (store, _) = rig.crash(store, |index| (salt >> (index % 60)) & 1 == 1);
            }
            _ => {}
        }
    }
    store.commit(Io::BLOCKING).unwrap();
    let (store, _) = rig.crash(store, |_| false);
    let mut found = std::collections::BTreeMap::new();
    store
        .for_each_key(Key::inode(0), Key::blob(0), |key, value| {
            found.insert(key.object, value.to_vec());
        })
        .unwrap();
    assert!(found == model, "keys differ after recovery");
    assert_clean(&store);
}

/// Rots the journal block at this place behind the start of the region on one device.
fn rot_journal(rig: &Rig, device: usize, at: u64) {
    let offset = rig.superblocks[device].layout.journal_offset;
    rig.devices[device].corrupt(offset + at, 64);
}

/// Three commits of one small file each; every record is one block of the journal and a little more.
fn three_commits(count: u16) -> (Rig, Store, u64) {
    let (mut rig, store) = Rig::new(count, 64 << 20);
    store.close().unwrap();
    drop(store);
    let (store, _) = rig.reopen();
    rig.read_superblocks();
    let start = rig.superblocks[0].journal_start.position;
    for inode in 10..13 {
        write_file(&store, COPIES, inode, &content(inode, 4096));
        store.commit(Io::BLOCKING).unwrap();
    }
    (rig, store, start)
}

/// P-7: rot in the middle of the journal is mended from the other mirror.
#[test]
fn a_rotten_journal_record_is_taken_from_the_other_mirror_and_written_again() {
    let (mut rig, store, start) = three_commits(2);
    drop(store);
    rot_journal(&rig, 0, start);
    let (store, report) = rig.reopen();
    assert_eq!(report.records_repaired, 1);
    for inode in 10..13 {
        assert_eq!(read_file(&store, inode, 4096).unwrap(), content(inode, 4096));
    }
    assert_clean(&store);
    drop(store);
    rot_journal(&rig, 1, start);
    let (store, report) = rig.reopen();
    assert_eq!(report.records_repaired, 1, "the first mirror holds the record again");
    assert_eq!(read_file(&store, 12, 4096).unwrap(), content(12, 4096));
}

/// P-7: rot in the middle of the journal without another copy is refused, not quietly cut short.
/// P-7: a sector of the journal that cannot be read, where nothing is, does not hide that commits were durable.
#[test]
fn an_unreadable_sector_in_the_journal_hides_no_proof() {
    let (mut rig, store, _) = three_commits(1);
    let (start, handle) = {
        let handle = store.view(Io::BLOCKING, |view| view.blob(1)).unwrap();
        (store.single_steps().journal_end().unwrap().offset, handle)
    };
    let chunk = handle.segment.chunks()[0];
    let row = rig.superblocks[0].layout.slot_offset(chunk.slot).unwrap()
        + u64::from(handle.value.address.row_block) * 4096
        + u64::from(handle.value.address.offset);
    drop((handle, store));
    rig.devices[0].corrupt(row, 4096);
    let bad = start + 8192;
    rig.devices[0].set_fault_hook(Some(Box::new(move |operation, offset, length| {
        (operation == Operation::Read && (offset..offset + length).contains(&bad)).then_some(Fault::Error)
    })));
    let (_store, report) = rig.reopen();
    assert_eq!(report.groups_cut, 0, "the first commit is proven by the later ones");
}

#[test]
fn a_journal_that_is_rotten_in_the_middle_is_refused() {
    let (mut rig, store, start) = three_commits(1);
    drop(store);
    rot_journal(&rig, 0, start);
    rig.read_superblocks();
    let error = Store::open(rig.devices_in(), options()).err().unwrap();
    assert!(matches!(error, Error::JournalDamaged { .. }), "{error}");
}

/// P-7: a torn last record was never acknowledged as durable by a later one: it is cut.
#[test]
fn a_torn_last_journal_record_is_cut() {
    let (mut rig, store, _) = three_commits(1);
    let end = store.single_steps().journal_end().unwrap().at.position;
    drop(store);
    rot_journal(&rig, 0, end - 4096);
    let (store, report) = rig.reopen();
    assert_eq!(report.records_repaired, 0);
    assert_eq!(read_file(&store, 11, 4096).unwrap(), content(11, 4096));
    assert_clean(&store);
}

/// P-7: what users write may look like a record of the journal; it proves nothing.
#[test]
fn a_forged_record_in_the_journal_proves_nothing() {
    let (mut rig, store) = Rig::new(1, 64 << 20);
    store.commit(Io::BLOCKING).unwrap();
    let (pool, epoch, position, sequence) = {
        let end = store.single_steps().journal_end().unwrap();
        (store.log().pool_id(), end.epoch, end.at.position, end.at.sequence)
    };
    // Before the value in its record: the header, the operation, the key, the length.
    let before = JournalHeader::SIZE + 1 + Key::SIZE + 4;
    let mut value = vec![0; 4 * 4096];
    for block in 1..4 {
        let at = JournalPosition { position: position + block * 4096, sequence: sequence + 1 };
        let forged = JournalHeader {
            pool,
            epoch,
            at,
            durable_sequence: sequence,
            checkpoint_generation: 1,
            counters: Counters::default(),
            group_end: true,
            payload_length: 0,
            payload_crc32c: stere_format::crc32c(&[]),
        };
        let place = block as usize * 4096 - before;
        value[place..place + JournalHeader::SIZE].copy_from_slice(&forged.encode());
    }
    let key = Key::new(key::tree::NAMES, 10, key::kind::XATTR, 1);
    store
        .update(Io::BLOCKING, |transaction| {
            transaction.put(key, &value);
            Ok::<_, Error>(())
        })
        .unwrap();
    store.commit(Io::BLOCKING).unwrap();
    let (start, region_bytes) = (rig.superblocks[0].layout.journal_offset, rig.superblocks[0].journal_bytes);
    let mut block = vec![0; 4096];
    rig.devices[0].read(start + (position + 4096) % region_bytes, &mut block).unwrap();
    assert!(JournalHeader::decode(&block).is_ok(), "the forged header lies where a header could be");
    drop(store);
    rig.read_superblocks();
    let (store, report) = Store::open(rig.devices_in(), options()).unwrap();
    assert_eq!(report.groups_cut, 0);
    let found = store.view(Io::BLOCKING, |view| view.get(&key)).unwrap();
    assert_eq!(found.as_deref(), Some(&value[..]));
}

/// P-1: every mount begins an epoch of the journal, and may end before it makes a checkpoint.
#[test]
fn many_crashes_one_after_the_other_lose_nothing_committed() {
    let (mut rig, mut store) = Rig::new(2, 64 << 20);
    for inode in 10..60 {
        write_file(&store, COPIES, inode, &content(inode, 4096));
        store.commit(Io::BLOCKING).unwrap();
        (store, _) = rig.crash(store, |_| false);
    }
    for inode in 10..60 {
        assert_eq!(read_file(&store, inode, 4096).unwrap(), content(inode, 4096));
    }
    assert_clean(&store);
}

/// What is counted as live in all is what the segments count, also of the checkpoint record that a mount found.
#[test]
fn live_bytes_add_up_after_a_mount() {
    let (mut rig, store) = Rig::new(2, 64 << 20);
    let assert_sums_agree = |store: &Store| {
        let raw =
            |segment: &Segment| segment.live_bytes() * segment.scheme.width() as u64 / u64::from(segment.scheme.data);
        let of_segments: u64 = store.segments().all().iter().map(|segment| raw(segment)).sum();
        assert_eq!(store.space().statistics(SINGLE.scheme).live_raw_bytes, of_segments);
    };
    write_file(&store, COPIES, 10, &content(1, 200_000));
    assert_sums_agree(&store);
    store.close().unwrap();
    assert_sums_agree(&store);
    drop(store);
    let (store, _) = rig.reopen();
    assert_sums_agree(&store);
    store.checkpoint().unwrap();
    assert_sums_agree(&store);
}
