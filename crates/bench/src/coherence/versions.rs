//! Files that are replaced by rename while others read them: each reader has one whole version from its first byte to its last, however often
//! the name is given away meanwhile. Read next: `order.rs`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{BLOCK, Content, Place, Plant, Random, Shared, Stamp, at};

const NAMES: u64 = 3;
const BLOCKS_MAX: u64 = 64;
/// Numbers of these files in stamps, behind those of blocks; the number of blocks is part of it.
const FIRST_NUMBER: u64 = 1000;

pub struct Versions {
    places: Vec<Place>,
}

fn name(version: u64) -> String {
    format!("version-{version}")
}

fn content(version: u64, blocks: u64, write: u64, writer: u64) -> Vec<u8> {
    assert!(blocks > 0, "an empty version says nothing");
    let mut bytes = vec![0; blocks as usize * BLOCK];
    let file = (FIRST_NUMBER + version) << 32 | blocks;
    for (index, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
        Stamp { file, index: index as u64, write, writer }.fill(block);
    }
    bytes
}

/// The write that all of these bytes are of.
fn whole(version: u64, bytes: &[u8]) -> Option<u64> {
    let blocks = (bytes.len() / BLOCK) as u64;
    let Some(Content::Stamped(first)) = bytes.get(..BLOCK).map(Content::of) else { return None };
    let is_right = |(index, block)| {
        let file = (FIRST_NUMBER + version) << 32 | blocks;
        Content::of(block) == Content::Stamped(Stamp { file, index: index as u64, ..first })
    };
    (bytes.len() % BLOCK == 0 && bytes.chunks_exact(BLOCK).enumerate().all(is_right)).then_some(first.write)
}

impl Versions {
    pub fn make(shared: &Shared) -> Result<Versions, String> {
        let versions = Versions { places: (0..NAMES).map(|_| Place::default()).collect() };
        for version in 0..NAMES {
            versions.replace_one(shared, 0, version, 1)?;
        }
        Ok(versions)
    }

    fn replace_one(&self, shared: &Shared, machine: usize, version: u64, blocks: u64) -> Result<(), String> {
        let Some(number) = shared.clock.number() else {
            shared.is_over.store(true, Ordering::Relaxed);
            return Ok(());
        };
        let (new, path) = (shared.path(machine, &format!("new-{machine}")), shared.path(machine, &name(version)));
        at("write", &new, fs::write(&new, content(version, blocks, number, machine as u64)))?;
        shared.clock.begin(number);
        if !shared.is_planted(Plant::Unrenamed, number) {
            at("rename", &path, fs::rename(&new, &path))?;
        }
        shared.clock.end(number);
        self.places[version as usize].written(&shared.clock, number);
        shared.count(&shared.counts.writes, 1);
        Ok(())
    }

    pub fn replace(&self, shared: &Shared, machine: usize, mut random: Random) {
        shared.repeat(|| {
            self.replace_one(shared, machine, random.below(NAMES), 1 + random.below(BLOCKS_MAX))?;
            std::thread::sleep(Duration::from_micros(random.below(5000)));
            Ok(())
        });
    }

    pub fn read(&self, shared: &Shared, machine: usize, mut random: Random) {
        shared.repeat(|| {
            let version = random.below(NAMES);
            let (place, path) = (&self.places[version as usize], shared.path(machine, &name(version)));
            let floor = place.floor();
            let open = at("open", &path, File::open(&path))?;
            shared.count(&shared.counts.opens, 1);
            let first =
                read_slowly(shared, &open, &mut random).map_err(|error| format!("{}: {error}", path.display()))?;
            let Some(write) = whole(version, &first) else {
                return Err(format!(
                    "machine {machine} reads {} bytes of {} that are no version",
                    first.len(),
                    name(version)
                ));
            };
            shared.count(&shared.counts.blocks, (first.len() / BLOCK) as u64);
            if !place.may_show(&shared.clock, write, floor) {
                return Err(format!("machine {machine} opens {} and finds a version that was replaced", name(version)));
            }
            if random.below(4) == 0 {
                std::thread::sleep(Duration::from_micros(random.below(5000)));
                let again =
                    read_slowly(shared, &open, &mut random).map_err(|error| format!("{}: {error}", path.display()))?;
                if again != first {
                    return Err(format!("machine {machine} has {} open, and it became another", name(version)));
                }
            }
            Ok(())
        });
    }
}

/// The whole file in several calls, with time in between for a rename.
fn read_slowly(shared: &Shared, open: &File, random: &mut Random) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let (start, more) = (bytes.len(), (1 + random.below(BLOCKS_MAX)) as usize * BLOCK);
        bytes.resize(start + more, 0);
        let read = open.read_at(&mut bytes[start..], start as u64)?;
        bytes.truncate(start + read);
        shared.count(&shared.counts.reads, 1);
        if read == 0 {
            return Ok(bytes);
        }
        if random.below(8) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(1000)));
        }
    }
}
