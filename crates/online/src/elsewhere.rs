//! Devices that come back under another path: looked for among the block devices of the machine, and in the directories where the pool's
//! image files are.
//!
//! Of files only those count that come after the device was missed: what lay beside it then was put there by somebody who meant it.
//! Labels are read, which wakes disks and costs reads, so a candidate is looked at once, and again only when something else is behind its
//! name: another size, another inode, another disk (the kernel numbers them).

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stere_format::DeviceEntry;

use crate::running::{Running, lock};
use stere_machine::devices::block_devices;

/// Directories with more entries are none that devices are kept in.
const ENTRIES_MAX: usize = 4096;

/// What is behind a path: device and inode, or the number of the device and of the disk in it; and the size.
type Behind = (u64, u64, u64);

/// What was looked at, so that it is not looked at again and again.
#[derive(Default)]
pub struct Elsewhere {
    seen: HashMap<PathBuf, Behind>,
    /// Some device is missed, and what files there were then is noted.
    is_begun: bool,
}

fn number_in(path: &Path) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// What is behind a block device; none if nothing is.
fn behind_node(path: &Path) -> Option<Behind> {
    let about = Path::new("/sys/class/block").join(path.file_name()?);
    let sectors = number_in(&about.join("size"));
    // A partition has the number of its disk.
    let disk = [about.join("diskseq"), fs::canonicalize(&about).ok()?.parent()?.join("diskseq")];
    let sequence = disk.iter().map(|path| number_in(path)).find(|number| *number > 0).unwrap_or(0);
    (sectors > 0).then(|| (fs::metadata(path).map_or(0, |metadata| metadata.rdev()), sequence, sectors * 512))
}

fn behind_file(path: &Path) -> Option<Behind> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((metadata.dev(), metadata.ino(), metadata.len()))
}

impl Elsewhere {
    /// Where one of these is, that is not where it was. What is found once and cannot be used is not found again.
    pub fn find<'a>(&mut self, running: &Running, away: &[&'a DeviceEntry]) -> Option<(&'a DeviceEntry, String)> {
        if away.is_empty() {
            self.is_begun = false;
            return None;
        }
        let candidates = candidates(running);
        if !std::mem::replace(&mut self.is_begun, true) {
            let files = candidates.iter().filter(|(path, _)| !path.starts_with("/dev"));
            self.seen.extend(files.cloned());
        }
        self.seen.retain(|path, _| candidates.iter().any(|(candidate, _)| candidate == path));
        for (path, behind) in candidates {
            let fits = |entry: &&&DeviceEntry| behind.2 >= entry.size_bytes;
            if self.seen.get(&path) == Some(&behind) || !away.iter().any(|entry| fits(&entry)) {
                continue;
            }
            self.seen.insert(path.clone(), behind);
            let text = path.display().to_string();
            let found = away.iter().filter(fits).find(|entry| running.is_there(entry, &text));
            if let Some(entry) = found {
                return Some((entry, text));
            }
        }
        None
    }
}

/// Block devices, and files beside the pool's files, that are not used by the pool now.
fn candidates(running: &Running) -> Vec<(PathBuf, Behind)> {
    let entries = running.store.device_entries();
    let known: Vec<PathBuf> = entries.iter().filter_map(|entry| running.path_of(entry)).map(PathBuf::from).collect();
    let used: Vec<Behind> = {
        let places = lock(&running.places);
        let paths = places.attached.values().map(|attached| PathBuf::from(&attached.path));
        paths.filter_map(|path| behind_file(&path).or_else(|| behind_node(&path))).collect()
    };
    let mut folders: Vec<&Path> =
        known.iter().filter(|path| !path.starts_with("/dev")).filter_map(|path| path.parent()).collect();
    folders.sort_unstable();
    folders.dedup();
    let in_folder = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let files = folders.into_iter().flat_map(in_folder).filter_map(|path| Some((behind_file(&path)?, path)));
    let nodes = block_devices().into_iter().filter_map(|path| Some((behind_node(&path)?, path)));
    let found = files.chain(nodes).filter(|(behind, _)| !used.contains(behind));
    found.map(|(behind, path)| (path, behind)).collect()
}
