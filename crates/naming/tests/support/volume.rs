//! A medium in memory, and where files lie in segments.

use std::ops::ControlFlow;
use std::sync::Arc;

use stere_device::{MemoryVolume, Volume};
use stere_format::{Succession, VolumeEntry, VolumeId};
use stere_naming::FileSystem;

use super::caller;

/// An entry for a new volume: its number is asked for, and may become another one.
pub fn entry(id: u8, name: &str) -> VolumeEntry {
    VolumeEntry {
        number: 0,
        id: VolumeId([id; 16]),
        class: 3,
        is_offline: false,
        takes_metadata: false,
        succession: Succession::Stays,
        name: name.to_owned(),
        place: format!("memory:{name}"),
    }
}

/// The volume "cold", which takes all that is archived.
pub fn add_volume(fs: &FileSystem) -> Arc<MemoryVolume> {
    let volume = Arc::new(MemoryVolume::new("cold"));
    add(fs, volume.clone());
    volume
}

pub fn add(fs: &FileSystem, volume: Arc<dyn Volume>) {
    fs.store().tier.media.add_volume(entry(1, "cold"), volume, "tank", false).unwrap();
}

/// The segments that an inode and what is below it lie in, one after the other.
pub fn segments_of(fs: &FileSystem, inode: u64) -> Vec<u64> {
    let mut segments = Vec::new();
    fs.tiers()
        .tier_walk(&caller(3), inode, &mut |met| {
            segments.extend(met.segments);
            ControlFlow::Continue(())
        })
        .unwrap();
    segments
}
