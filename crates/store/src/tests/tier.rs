//! Segments on volumes: copied out, released, read, brought back; with volumes that fail in every way, and crashes at every request
//! and write.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use stere_device::{MemoryVolume, VolumeFault};
use stere_format::{ExtentValue, Key, Succession, VolumeEntry, VolumeId};

use super::devices::rig::*;
use crate::{Error, Io, Move, Owner, Placement, RecallMode, Store, TertiaryProgress};

mod beginning;
mod beside;
mod clusters;
mod costs;
mod crashes;
mod faults;
mod fold;
mod metadata;
mod moving;
mod parity;
mod repack;
mod retire;

/// Files as `write` takes them.
type Files = Vec<(u64, Placement, usize)>;

fn entry(name: &str, class: u8) -> VolumeEntry {
    let id = VolumeId([name.len() as u8; 16]);
    let (name, place) = (name.into(), format!("memory:{name}"));
    VolumeEntry {
        number: 0,
        id,
        class,
        is_offline: false,
        takes_metadata: true,
        succession: Succession::Stays,
        name,
        place,
    }
}

fn add(store: &Store, name: &str, volume: &Arc<MemoryVolume>) -> u8 {
    store.tier.media.add_volume(entry(name, 3), volume.clone(), "tank", false).unwrap()
}

fn describe(inodes: &BTreeSet<u64>) -> Vec<u8> {
    inodes.iter().flat_map(|inode| format!("{inode}\n").into_bytes()).collect()
}

/// Works until nothing is left to do.
fn settle(store: &Store) -> TertiaryProgress {
    for _ in 0..1000 {
        let progress = store.tier.step(true, &describe).unwrap();
        if !progress.is_busy {
            return progress;
        }
    }
    panic!("the work comes to an end");
}

fn blobs_of(store: &Store, inode: u64) -> Vec<u64> {
    let found = store.view(Io::BLOCKING, |view| {
        let mut blobs = Vec::new();
        view.scan(Key::extent(inode, 0), Key::extent(inode, u64::MAX), |_, bytes| {
            blobs.push(ExtentValue::decode(bytes).unwrap().blob);
            ControlFlow::Continue(())
        })?;
        Ok::<_, Error>(blobs)
    });
    found.unwrap()
}

/// Sends files down to a set of volumes.
fn archive(store: &Store, files: &[(u64, Placement, usize)], set: u16) -> Result<(), Error> {
    for (inode, placement, _) in files {
        let handle = |id: u64| store.view(Io::BLOCKING, |view| view.blob(id)).unwrap();
        let owner = Owner { inode: *inode, offset: 0 };
        let blobs = blobs_of(store, *inode).into_iter().map(handle);
        let moves: Vec<Move> = blobs.map(|blob| Move { blob, owner, recoded: None }).collect();
        store.cleaning().archive(&moves, *placement, set)?;
    }
    store.commit(Io::BLOCKING)
}

fn segments_of(store: &Store, files: &[(u64, Placement, usize)]) -> Vec<u64> {
    let blobs = files.iter().flat_map(|(inode, _, _)| blobs_of(store, *inode));
    let segments = blobs.map(|id| store.view(Io::BLOCKING, |view| view.blob(id)).unwrap().segment_id());
    segments.collect::<BTreeSet<u64>>().into_iter().collect()
}

fn is_released(store: &Store, files: &[(u64, Placement, usize)]) -> bool {
    segments_of(store, files).iter().all(|id| store.segments().get(*id).unwrap().is_released())
}

fn free_slots(store: &Store) -> u64 {
    (0..8).filter_map(|index| store.devices.device_usage(index).ok()).map(|usage| u64::from(usage.free)).sum()
}

/// A pool of two devices that has a volume.
fn with_volume() -> (Rig, Store, Arc<MemoryVolume>) {
    with_volume_beside(2)
}

fn with_volume_beside(devices: usize) -> (Rig, Store, Arc<MemoryVolume>) {
    let (rig, store) = Rig::new(&vec![64 * MIB; devices]);
    let volume = Arc::new(MemoryVolume::new("cold"));
    add(&store, "cold", &volume);
    (rig, store, volume)
}

/// The same, with files that are on the volume too.
fn archived() -> (Rig, Store, Arc<MemoryVolume>, Files) {
    archived_beside(2)
}

fn archived_beside(devices: usize) -> (Rig, Store, Arc<MemoryVolume>, Files) {
    let (rig, store, volume) = with_volume_beside(devices);
    let files = some();
    write(&store, &files);
    archive(&store, &files, 1).unwrap();
    settle(&store);
    (rig, store, volume, files)
}

/// The same, with files that are on the volume only.
fn released() -> (Rig, Store, Arc<MemoryVolume>, Files) {
    let (rig, store, volume, files) = archived();
    store.tier.stager.release(&segments_of(&store, &files)).unwrap();
    store.checkpoint().unwrap();
    (rig, store, volume, files)
}

/// Three files of together a few segments, two copies each.
fn some() -> Files {
    (10..13).map(|inode| (inode, placement(1, 1), 900_000)).collect()
}
