//! Random histories against what was held: each version is, byte for byte, what its name held until then (P-80, P-81), also after
//! crashes at any moment.

use crate::support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_naming::{
    Caller, Error, FileSystem, KEEP_SIZE, OpenFlags, PUNCH_HOLE, ROOT, SetAttributes, SetMode, Timestamp,
};
use support::edits::Random;
use support::files::assert_clean;
use support::{Rig, caller};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const NOW: i64 = 1_798_761_600;
/// So many seconds a version is kept; each step takes one.
const KEPT_SECONDS: i64 = 60;
const COUNT: usize = 6;

/// A directory and a name, by their places.
type Path = (usize, usize);

/// What a path held, and until when.
#[derive(Clone)]
struct Held {
    bytes: Vec<u8>,
    until: i64,
}

struct History {
    random: Random,
    now: i64,
    directories: [u64; 2],
    /// What is in each path now.
    files: BTreeMap<Path, Vec<u8>>,
    /// What was in it, the oldest first, without regard to what went.
    past: BTreeMap<Path, Vec<Held>>,
}

impl History {
    fn who(&self) -> Caller<'static> {
        Caller { now: Timestamp { seconds: self.now, nanoseconds: 0 }, ..caller(self.now) }
    }

    fn path(&mut self) -> Path {
        (self.random.next(2) as usize, self.random.next(NAMES.len() as u64) as usize)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = [1, 100, 5000, 200_000, 400_000][self.random.next(5) as usize] + self.random.next(50) as usize;
        let seed = self.random.next(256) as u8;
        (0..length).map(|at| seed.wrapping_add((at / 7) as u8)).collect()
    }

    /// What a path held ends now.
    fn ends(&mut self, path: Path) {
        let Some(bytes) = self.files.get(&path).filter(|bytes| !bytes.is_empty()) else { return };
        let held = Held { bytes: bytes.clone(), until: self.now };
        self.past.entry(path).or_default().push(held);
    }

    fn step(&mut self, fs: &FileSystem) {
        self.now += 1;
        let path = self.path();
        let (directory, name) = (self.directories[path.0], NAMES[path.1].as_bytes());
        let exists = self.files.contains_key(&path);
        match self.random.next(8) {
            0 | 1 => self.put(fs, path),
            2 | 3 if exists => self.edit(fs, path),
            4 if exists => {
                let size = self.random.next(1 + self.files[&path].len() as u64 * 2);
                self.ends(path);
                let inode = fs.lookup(&self.who(), directory, name).unwrap().inode;
                let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
                fs.setattr(&self.who(), inode, &set).unwrap();
                self.files.get_mut(&path).unwrap().resize(size as usize, 0);
            }
            5 if exists => {
                self.ends(path);
                fs.unlink(&self.who(), directory, name).unwrap();
                self.files.remove(&path);
            }
            6 if exists => {
                let to = self.path();
                let (new_directory, new_name) = (self.directories[to.0], NAMES[to.1].as_bytes());
                if to != path {
                    self.ends(to);
                    let moved = self.files.remove(&path).unwrap();
                    self.files.insert(to, moved);
                }
                fs.rename(&self.who(), directory, name, new_directory, new_name, 0).unwrap();
            }
            7 => while fs.step(&self.who(), 3).unwrap() {},
            _ => {}
        }
    }

    /// Opened and emptied, then written and closed.
    fn put(&mut self, fs: &FileSystem, path: Path) {
        self.ends(path);
        let (bytes, who) = (self.bytes(), self.who());
        let flags = OpenFlags { write: true, truncate: true, exclusive: false, read: false };
        let (made, handle) = fs.create(&who, self.directories[path.0], NAMES[path.1].as_bytes(), 0o644, flags).unwrap();
        let half = bytes.len() / 2;
        fs.write(&who, made.inode, 0, &bytes[..half], false).unwrap();
        fs.write(&who, made.inode, half as u64, &bytes[half..], false).unwrap();
        fs.release(&who, made.inode, handle).unwrap();
        self.files.insert(path, bytes);
    }

    /// Opened once, changed in some places, closed; at times it is removed before that.
    fn edit(&mut self, fs: &FileSystem, path: Path) {
        let (directory, name, who) = (self.directories[path.0], NAMES[path.1].as_bytes(), self.who());
        self.ends(path);
        let inode = fs.lookup(&who, directory, name).unwrap().inode;
        let handle = fs.open(&who, inode, OpenFlags { write: true, ..OpenFlags::default() }).unwrap();
        let mut bytes = self.files[&path].clone();
        for _ in 0..1 + self.random.next(3) {
            let at = self.random.next(1 + bytes.len() as u64) as usize;
            if self.random.next(4) == 0 {
                fs.fallocate(&who, inode, at as u64, 10_000, PUNCH_HOLE | KEEP_SIZE).unwrap();
                let end = bytes.len().min(at + 10_000);
                bytes[at..end].fill(0);
            } else {
                let piece = self.bytes();
                fs.write(&who, inode, at as u64, &piece, false).unwrap();
                bytes.resize(bytes.len().max(at + piece.len()), 0);
                bytes[at..at + piece.len()].copy_from_slice(&piece);
            }
        }
        self.files.insert(path, bytes);
        if self.random.next(4) == 0 {
            self.now += 1;
            self.ends(path);
            fs.unlink(&self.who(), directory, name).unwrap();
            self.files.remove(&path);
        }
        fs.release(&self.who(), inode, handle).unwrap();
    }

    /// What versions of a path there should be, when all that was to go has gone.
    fn left(&self, path: Path) -> Vec<&Held> {
        let past = self.past.get(&path).map_or(&[][..], Vec::as_slice);
        let newest = &past[past.len().saturating_sub(COUNT)..];
        newest.iter().filter(|held| held.until + KEPT_SECONDS > self.now).collect()
    }

    /// Holds everything against the file system.
    fn compare(&mut self, fs: &FileSystem) {
        while fs.step(&self.who(), 64).unwrap() {}
        for (path, (directory, name)) in self.paths() {
            let found = versions(fs, directory, name);
            let wanted = self.left(path);
            let moments = |all: &[&Held]| all.iter().map(|held| held.until).collect::<Vec<_>>();
            assert_eq!(moments(&found.iter().collect::<Vec<_>>()), moments(&wanted), "{name} at {}", self.now);
            for (found, wanted) in found.iter().zip(wanted) {
                assert!(found.bytes == wanted.bytes, "{name} in {directory} until {}", found.until);
            }
            let now = content_of(fs, directory, name);
            assert!(now.as_ref() == self.files.get(&path), "{name} in {directory} now");
        }
    }

    /// After a crash: everything there is was there at some moment. From now on that is what counts.
    fn believe(&mut self, fs: &FileSystem) {
        for (path, (directory, name)) in self.paths() {
            let found = versions(fs, directory, name);
            let past = self.past.get(&path).map_or(&[][..], Vec::as_slice);
            for held in &found {
                let is_known = past.iter().any(|known| known.until == held.until && known.bytes == held.bytes);
                assert!(is_known, "{name} in {directory} until {} is new", held.until);
            }
            self.past.insert(path, found);
            match content_of(fs, directory, name) {
                Some(bytes) => self.files.insert(path, bytes),
                None => self.files.remove(&path),
            };
        }
    }

    /// All there can be, with directory and name.
    fn paths(&self) -> Vec<(Path, (u64, &'static str))> {
        let all = (0..2).flat_map(|directory| (0..NAMES.len()).map(move |name| (directory, name)));
        all.map(|path| (path, (self.directories[path.0], NAMES[path.1]))).collect()
    }
}

fn content(fs: &FileSystem, inode: u64) -> Vec<u8> {
    let size = fs.getattr(&caller(NOW), inode).unwrap().size as usize;
    let mut bytes = vec![0; size];
    assert_eq!(fs.read(&caller(NOW), inode, 0, &mut bytes).unwrap(), size);
    bytes
}

fn content_of(fs: &FileSystem, directory: u64, name: &str) -> Option<Vec<u8>> {
    match fs.lookup(&caller(NOW), directory, name.as_bytes()) {
        Ok(found) => Some(content(fs, found.inode)),
        Err(Error::NotFound) => None,
        Err(error) => panic!("{name}: {error}"),
    }
}

fn versions(fs: &FileSystem, directory: u64, name: &str) -> Vec<Held> {
    let who = caller(NOW);
    let below = |directory, name: &str| fs.lookup(&who, directory, name.as_bytes()).ok().map(|found| found.inode);
    let Some(drawer) = below(directory, ".versions").and_then(|shelf| below(shelf, name)) else { return Vec::new() };
    let mut found = Vec::new();
    fs.readdir(&who, drawer, 0, false, &mut |entry| {
        if !entry.name.starts_with(b".") {
            found.push((entry.name.to_vec(), entry.inode));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    let held = |(_, inode): &(Vec<u8>, u64)| {
        let until = fs.getattr(&who, *inode).unwrap().ctime.seconds;
        Held { bytes: content(fs, *inode), until }
    };
    found.iter().map(held).collect()
}

fn run(seed: u64, setting: Option<(&str, &str)>) {
    let (rig, mut fs) = Rig::new(2, 128 << 20);
    let top = fs.mkdir(&caller(NOW), ROOT, b"top", 0o755).unwrap().inode;
    let set = |fs: &FileSystem, key: &str, value: &str| {
        let name = format!("user.stere.{key}");
        fs.setxattr(&caller(NOW), top, name.as_bytes(), value.as_bytes(), SetMode::Any, false).unwrap();
    };
    set(&fs, "versions", &format!("{COUNT},{KEPT_SECONDS}s"));
    setting.iter().for_each(|(key, value)| set(&fs, key, value));
    let directories = ["x", "y"].map(|name| fs.mkdir(&caller(NOW), top, name.as_bytes(), 0o755).unwrap().inode);
    fs.syncfs(&caller(NOW)).unwrap();
    let (files, past) = (BTreeMap::new(), BTreeMap::new());
    let mut history = History { random: Random(seed), now: NOW, directories, files, past };
    for _ in 0..12 {
        for _ in 0..history.random.next(30) {
            history.step(&fs);
        }
        match history.random.next(3) {
            0 => history.compare(&fs),
            1 => {
                fs.syncfs(&history.who()).unwrap();
                fs = rig.reopen(fs, history.random.next(2) == 0);
                history.compare(&fs);
            }
            _ => {
                let mut random = Random(history.random.next(u64::MAX));
                fs = rig.crash(fs, |_| random.next(2) == 0);
                history.believe(&fs);
            }
        }
        assert_clean(&fs);
    }
}

#[test]
fn every_version_is_what_was_held() {
    for seed in 0..24 {
        run(seed, None);
    }
}

#[test]
fn every_version_of_compressed_files_too() {
    for seed in 100..108 {
        run(seed, Some(("compress", "lz4")));
    }
}
