//! A subtree that is on a volume only, whose names may be put away.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use stere_device::MemoryVolume;
use stere_format::{Key, VolumeEntry, key};
use stere_naming::{FileSystem, OffloadOutcome, ROOT, SetMode};
use stere_store::Io;

use super::edits::set;
use super::files::{make, mkdir};
use super::volume::{entry, segments_of};
use super::{Rig, caller, reconcile};

pub const DIRECTORIES: usize = 6;
pub const FILES: usize = 150;

pub fn content(directory: usize, number: usize) -> Vec<u8> {
    (0..number * 37).map(|at| (at * 7 + directory * 31 + number) as u8).collect()
}

/// `cold/0/deep` to `cold/5/deep` with files each, everything on the volume only, and a file beside.
pub fn world() -> (Rig, FileSystem, Arc<MemoryVolume>, u64) {
    let (rig, fs) = Rig::new(2, 128 << 20);
    let volume = Arc::new(MemoryVolume::new("cold"));
    let entry = VolumeEntry { takes_metadata: true, ..entry(1, "cold") };
    fs.store().tier.media.add_volume(entry, volume.clone(), "tank", false).unwrap();
    let cold = mkdir(&fs, ROOT, "cold");
    for directory in 0..DIRECTORIES {
        let above = mkdir(&fs, cold, &directory.to_string());
        let deep = mkdir(&fs, above, "deep");
        for number in 0..FILES {
            let inode = make(&fs, deep, &format!("file {number}"), &content(directory, number));
            let value = format!("{number}");
            fs.setxattr(&caller(2), inode, b"user.number", value.as_bytes(), SetMode::Any, false).unwrap();
        }
        fs.symlink(&caller(2), above, b"link", b"deep/file 1").unwrap();
    }
    make(&fs, cold, "direct", b"in the top itself");
    make(&fs, ROOT, "beside", b"has nothing to do with it");
    fs.syncfs(&caller(3)).unwrap();
    set(&fs, cold, "tier", "cold");
    reconcile(&fs);
    (rig, fs, volume, cold)
}

pub fn settle(fs: &FileSystem) {
    while fs.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {}
}

/// Everything below is on volumes only, names that were put away too.
pub fn release(fs: &FileSystem, inode: u64) {
    settle(fs);
    fs.tiers().release_segments(&caller(3), &segments_of(fs, inode)).unwrap();
    fs.store().checkpoint().unwrap();
    fs.store().checkpoint().unwrap();
}

pub fn offload_below(fs: &FileSystem, inode: u64) -> OffloadOutcome {
    release(fs, inode);
    let outcome = fs.offload().offload_below(&caller(3), inode).unwrap();
    release(fs, inode);
    assert!(fs.store().offload().folds(Io::BLOCKING).unwrap().iter().all(|fold| fold.blob.is_released()));
    outcome
}

/// Names with what `ls -l` shows of them.
pub fn listed(fs: &FileSystem, directory: u64) -> Result<BTreeMap<String, (u64, u32, u64)>, stere_naming::Error> {
    let mut names = BTreeMap::new();
    let mut failure = None;
    let mut found = Vec::new();
    fs.readdir(&caller(4), directory, 0, false, &mut |entry| {
        found.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.inode));
        ControlFlow::Continue(())
    })?;
    for (name, inode) in found.into_iter().filter(|(name, _)| name != "." && name != "..") {
        match fs.getattr(&caller(4), inode) {
            Ok(attributes) => {
                names.insert(name, (attributes.size, attributes.mode, inode));
            }
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(names), Err)
}

pub fn find(fs: &FileSystem, directory: u64, path: &[&str]) -> u64 {
    path.iter().fold(directory, |at, name| fs.lookup(&caller(4), at, name.as_bytes()).unwrap().inode)
}

pub fn assert_all_there(fs: &FileSystem, cold: u64) {
    for directory in 0..DIRECTORIES {
        let deep = find(fs, cold, &[&directory.to_string(), "deep"]);
        assert_eq!(listed(fs, deep).unwrap().len(), FILES);
        for number in 0..FILES {
            let inode = find(fs, deep, &[&format!("file {number}")]);
            let expected = content(directory, number);
            let mut bytes = vec![0; expected.len() + 1];
            assert_eq!(fs.read(&caller(4), inode, 0, &mut bytes).unwrap(), expected.len());
            assert!(bytes[..expected.len()] == expected, "{directory} {number}");
            assert_eq!(fs.getxattr(&caller(4), inode, b"user.number").unwrap(), number.to_string().into_bytes());
        }
        let link = find(fs, cold, &[&directory.to_string(), "link"]);
        assert_eq!(fs.readlink(&caller(4), link).unwrap(), b"deep/file 1");
    }
}

pub fn resident_keys(fs: &FileSystem) -> u64 {
    let mut count = 0;
    let (from, to) = (Key::new(key::tree::NAMES, 0, 0, 0), Key::new(key::tree::NAMES + 1, 0, 0, 0));
    fs.store().for_each_resident_key(from, to, |_, _| count += 1).unwrap();
    count
}
