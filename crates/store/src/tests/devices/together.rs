//! Devices change and chunks move while others write, read, delete, clean and make checkpoints.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stere_format::{DeviceIndex, DeviceState};

use super::rig::*;
use crate::tests::remove_file;
use crate::{Io, Store};

const WRITERS: u64 = 3;
const FILES_EACH: u64 = 6;

/// Writes, reads and removes files of its own, round after round; the inodes of those that are left, with their lengths.
fn work(store: &Store, writer: u64, stop: &AtomicBool) -> Vec<(u64, usize)> {
    let schemes = [placement(1, 1), placement(2, 1), placement(1, 2)];
    let mut round = 0;
    let mut files: Vec<(u64, usize)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let inode = 1000 + writer * 1_000_000 + round;
        let length = 20_000 + (round as usize * 7919) % 400_000;
        write_file(store, schemes[(round % 3) as usize], inode, &content(inode, length));
        files.push((inode, length));
        if round % 3 == 0 {
            store.commit(Io::BLOCKING).unwrap();
        }
        let (seen, length) = files[(round * 31 % files.len() as u64) as usize];
        assert_eq!(read_file(store, seen, length).unwrap(), content(seen, length), "file {seen}");
        if files.len() as u64 > FILES_EACH {
            let (gone, _) = files.remove((round * 17 % FILES_EACH) as usize);
            remove_file(store, gone);
        }
        round += 1;
    }
    files
}

/// One device after the other is emptied and taken back, given up and taken back, or goes away and comes back.
fn change_devices(rig: &Rig, store: &Store, stop: &AtomicBool, changes: &AtomicU64) {
    let count = rig.devices.len() as DeviceIndex;
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let index = turn % count;
        let empty = || {
            for _ in 0..400 {
                let progress = store.rebuilder.mend_step(2 * MIB).unwrap();
                if progress.is_done || stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        };
        match turn % 3 {
            0 => {
                store.devices.set_device_state(index, DeviceState::Leaving).unwrap();
                empty();
                store.devices.set_device_state(index, DeviceState::Active).unwrap();
            }
            1 => {
                store.devices.set_device_state(index, DeviceState::Failed).unwrap();
                empty();
                store.devices.set_device_state(index, DeviceState::Active).unwrap();
            }
            _ => {
                if store.devices.detach_device(index, false).is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                    store.devices.attach_device(rig.device_in(index)).unwrap();
                }
                store.rebuilder.set_rebalancing(true);
                empty();
            }
        }
        changes.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn everything_goes_on_while_devices_change() {
    let (rig, store) = Rig::new(&[64 * MIB, 64 * MIB, 96 * MIB, 64 * MIB, 64 * MIB]);
    let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = Instant::now();
    let files = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || work(store, writer, stop))
            })
            .collect();
        let changer = scope.spawn(|| change_devices(&rig, &store, &stop, &changes));
        let background = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                store.step(true).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        while begin.elapsed() < Duration::from_secs(5)
            && !writers.iter().any(std::thread::ScopedJoinHandle::is_finished)
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        let files: Vec<(u64, usize)> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        changer.join().unwrap();
        background.join().unwrap();
        files
    });
    println!("{} changes of devices, {} files left", changes.load(Ordering::Relaxed), files.len());
    assert!(changes.load(Ordering::Relaxed) > 3);
    assert!(store.failure().is_none());
    let all_read = |store: &Store| {
        for (inode, length) in &files {
            assert_eq!(read_file(store, *inode, *length).unwrap(), content(*inode, *length), "file {inode}");
        }
    };
    store.commit(Io::BLOCKING).unwrap();
    for index in 0..5 {
        store.devices.set_device_state(index, DeviceState::Active).unwrap();
    }
    mend(&store);
    all_read(&store);
    assert_complete(&store, &[]);
    assert_clean(&store);
    drop(store);
    rig.lose_power(|_| false);
    let store = rig.open(&[0, 1, 2, 3, 4]);
    all_read(&store);
    assert_clean(&store);
    mend(&store);
    assert_complete(&store, &[]);
}
