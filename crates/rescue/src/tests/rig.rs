//! A pool on devices in memory with files whose every word tells where it belongs.

use std::collections::BTreeMap;
use std::sync::Arc;

use stere_device::{Device, MemoryDevice};
use stere_format::{FileKind, InodeValue, Key};
use stere_naming::{Caller, FileSystem, Io, OpenFlags, ROOT, SetMode, Timestamp};
use stere_pool::{Assembly, Candidate, CreateOptions, DeviceClass, NewDevice, OpenOptions, create};

use super::memory_sink::MemorySink;
use crate::report::Report;
use crate::sink::Verdict;

const MIB: u64 = 1 << 20;

pub fn caller() -> Caller<'static> {
    let now = Timestamp { seconds: 1_000_000, nanoseconds: 5 };
    Caller { uid: 0, gid: 0, groups: &[], umask: 0o022, now, io: Io::BLOCKING, process: 0, request: None }
}

/// The word of a file at an offset, in a version of it; never zero. Of every second file it repeats, so that it is compressed
/// where that is asked for.
fn word(file: u64, version: u64, offset: u64) -> u64 {
    let offset = if file & 1 == 0 { offset / 512 * 512 } else { offset };
    let mut value = (file << 40 ^ version << 56 ^ offset).wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (value ^ value >> 31) | 1
}

pub fn content(file: u64, version: u64, offset: u64, length: usize) -> Vec<u8> {
    assert_eq!(offset % 8, 0);
    let words = (0..length.div_ceil(8) as u64).flat_map(|at| word(file, version, offset + at * 8).to_le_bytes());
    words.take(length).collect()
}

#[derive(Clone)]
pub struct File {
    /// What its words are made from.
    pub number: u64,
    pub inode: u64,
    pub versions: u64,
    pub content: Vec<u8>,
}

#[derive(Clone, Default)]
pub struct Expected {
    pub files: BTreeMap<Vec<u8>, File>,
    pub inodes: BTreeMap<Vec<u8>, InodeValue>,
    /// What was removed: it may be found where metadata are lost, under its inode.
    removed: Vec<File>,
}

impl Expected {
    /// Whether every word of a content belongs to this file at its place, or is a hole.
    fn is_possible(&self, file: &File, content: &[u8]) -> bool {
        content.chunks(8).enumerate().all(|(at, bytes)| {
            let is_hole = bytes.iter().all(|byte| *byte == 0);
            is_hole
                || (1..=file.versions)
                    .any(|version| word(file.number, version, at as u64 * 8).to_le_bytes().starts_with(bytes))
        })
    }

    /// Nothing called whole differs, and no word is where it never was.
    pub fn judge(&self, sink: &MemorySink, report: &Report) {
        for (path, verdict) in sink.verdicts().filter(|(_, verdict)| *verdict == Verdict::Whole) {
            let Some(file) = self.files.get(path) else { continue };
            let content = sink.content(path).expect("a whole file was made");
            assert!(content == file.content, "{} is called {verdict:?} and differs", String::from_utf8_lossy(path));
        }
        for path in sink.paths().filter(|path| sink.kind(path) == Some(FileKind::File)) {
            let content = sink.content(path).expect("it was made");
            let in_lost_and_found = path.strip_prefix(b"/lost+found/");
            let inode = in_lost_and_found.and_then(|name| String::from_utf8_lossy(name).parse::<u64>().ok());
            let is_known = match in_lost_and_found {
                // Whatever is in lost+found belongs to the inode that it is named after, or to any.
                Some(_) => self
                    .files
                    .values()
                    .chain(&self.removed)
                    .filter(|file| inode.is_none_or(|inode| file.inode == inode))
                    .any(|file| self.is_possible(file, &content)),
                // What was removed may come back where only older leaves are left.
                None if path == b"/removed" => self.is_possible(&self.removed[0], &content),
                None => self.files.get(path).is_some_and(|file| self.is_possible(file, &content)),
            };
            let is_empty = content.iter().all(|byte| *byte == 0);
            assert!(
                is_known || is_empty,
                "{} holds what it never held; {:?}",
                String::from_utf8_lossy(path),
                report.counts
            );
        }
    }

    /// Every file is there byte for byte, with this verdict.
    pub fn assert_all(&self, sink: &MemorySink, verdict: Verdict) {
        for (path, file) in &self.files {
            let shown = String::from_utf8_lossy(path);
            let content = sink.content(path).unwrap_or_else(|| panic!("{shown} is not there"));
            assert!(content == file.content, "{shown} differs");
            assert_eq!(sink.verdict(path), Some(verdict), "{shown}");
        }
    }

    /// Every attribute of every inode is there.
    pub fn assert_attributes(&self, sink: &MemorySink) {
        for (path, value) in &self.inodes {
            let made = sink.get(path).unwrap_or_else(|| panic!("{} is not there", String::from_utf8_lossy(path)));
            let attributes = made.attributes.as_ref().expect("attributes are known");
            assert_eq!((attributes.mode, attributes.uid, attributes.gid), (value.mode, value.uid, value.gid));
            assert_eq!((attributes.atime, attributes.mtime), (value.atime, value.mtime));
            // What is no device keeps something else there.
            let is_device = matches!(value.kind(), Some(FileKind::BlockDevice | FileKind::CharacterDevice));
            assert_eq!((&made.target, made.rdev), (&value.symlink_target, if is_device { value.rdev } else { 0 }));
        }
        let xattrs = &sink.get(b"/attributed").and_then(|made| made.attributes.as_ref()).expect("it is there").xattrs;
        assert_eq!(*xattrs, [(b"user.colour".to_vec(), b"green".to_vec())]);
    }
}

/// An open pool.
pub struct Rig {
    pub devices: Vec<Arc<MemoryDevice>>,
    pub files: FileSystem,
}

fn open(devices: &[Arc<MemoryDevice>]) -> FileSystem {
    let candidate = |(number, device): (usize, &Arc<MemoryDevice>)| {
        let device: Arc<dyn Device> = device.clone();
        Candidate { path: format!("/images/{number}"), device }
    };
    let assembly = Assembly::new(devices.iter().enumerate().map(candidate).collect()).unwrap();
    let options = OpenOptions { memory_bytes: 64 << 20, ..OpenOptions::default() };
    let opened = assembly.open(&options, &|_| None).unwrap();
    FileSystem::new(Arc::new(opened.store), stere_naming::Options::default()).unwrap()
}

impl Rig {
    pub fn empty_of_pool(count: usize, seed: u8) -> Rig {
        let devices: Vec<_> = (0..count).map(|_| Arc::new(MemoryDevice::with_volatile_cache(80 * MIB))).collect();
        let new = |(number, device): (usize, &Arc<MemoryDevice>)| NewDevice {
            path: format!("/images/{number}"),
            device: device.clone(),
            name: String::new(),
            class: DeviceClass::Ssd,
            tags: Vec::new(),
            host: String::new(),
            shelf: String::new(),
            foreign: None,
        };
        let options = CreateOptions { pool_name: "tank".into(), memory_bytes: 64 << 20, ..CreateOptions::default() };
        let mut state = seed;
        let mut randomness = |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(5).wrapping_add(17);
                *byte = state;
            }
        };
        let store = create(devices.iter().enumerate().map(new).collect(), &options, &mut randomness).unwrap();
        FileSystem::format(&store, caller().now).unwrap();
        let files = FileSystem::new(Arc::new(store), stere_naming::Options::default()).unwrap();
        Rig { devices, files }
    }

    /// A pool with everything that there can be in one, some of it changed after a checkpoint, all of it synced.
    pub fn filled(count: usize) -> (Rig, Expected) {
        let mut rig = Rig::empty_of_pool(count, 3);
        let mut expected = Expected::default();
        let mut directories = vec![(ROOT, Vec::new())];
        for number in 0..6u64 {
            let (parent, path) = directories[number as usize / 2].clone();
            let name = format!("directory {number}");
            let made = rig.files.mkdir(&caller(), parent, name.as_bytes(), 0o750).unwrap();
            let compress: &[u8] = [&b""[..], b"zstd", b"lz4"][number as usize % 3];
            rig.files.setxattr(&caller(), made.inode, b"user.stere.compress", compress, SetMode::Any, false).unwrap();
            directories.push((made.inode, [&path, &b"/"[..], name.as_bytes()].concat()));
        }
        for number in 0..160u64 {
            let (parent, path) = directories[number as usize % directories.len()].clone();
            let length = match number % 20 {
                0 => 400_000,
                1..4 => 40_000 + number as usize * 77,
                4 => 0,
                _ => 100 + number as usize * 31,
            };
            let name = format!("a file with a rather long name, number {number}");
            rig.write_in(&mut expected, parent, &path, name.as_bytes(), number + 1, length);
        }
        rig.others(&mut expected);
        rig.commit();
        rig.files.store().checkpoint().unwrap();
        rig.change(&mut expected);
        rig.commit();
        rig.note_inodes(&mut expected);
        (rig, expected)
    }

    pub fn write_file(&mut self, expected: &mut Expected, name: &[u8], number: u64, length: usize) -> u64 {
        self.write_in(expected, ROOT, b"", name, number, length)
    }

    fn write_in(
        &mut self,
        expected: &mut Expected,
        parent: u64,
        path: &[u8],
        name: &[u8],
        number: u64,
        length: usize,
    ) -> u64 {
        let (made, handle) = self.files.create(&caller(), parent, name, 0o640, OpenFlags::default()).unwrap();
        let content = content(number, 1, 0, length);
        self.files.write(&caller(), made.inode, 0, &content, false).unwrap();
        self.files.release(&caller(), made.inode, handle).unwrap();
        let file = File { number, inode: made.inode, versions: 1, content };
        expected.files.insert([path, b"/", name].concat(), file);
        made.inode
    }

    /// What is no plain file.
    fn others(&mut self, expected: &mut Expected) {
        let inode = self.write_file(expected, b"attributed", 501, 5000);
        self.files.setxattr(&caller(), inode, b"user.colour", b"green", SetMode::Any, false).unwrap();
        self.files.symlink(&caller(), ROOT, b"link", b"directory 0/nowhere").unwrap();
        self.files.mknod(&caller(), ROOT, b"fifo", 0o10_600, 0).unwrap();
        self.files.mknod(&caller(), ROOT, b"null", 0o20_666, 0x103).unwrap();
        let linked = self.write_file(expected, b"first name", 502, 9000);
        self.files.link(&caller(), linked, ROOT, b"second name").unwrap();
        let file = expected.files[&b"/first name"[..]].clone();
        expected.files.insert(b"/second name".to_vec(), file);
        self.write_file(expected, b"removed", 503, 30_000);
        let sparse = self.write_file(expected, b"sparse", 504, 4096);
        self.write_at(expected, b"/sparse", sparse, 1_000_000, 10_000, 1);
    }

    fn write_at(&mut self, expected: &mut Expected, path: &[u8], inode: u64, at: u64, length: usize, version: u64) {
        let file = expected.files.get_mut(path).unwrap();
        let bytes = content(file.number, version, at, length);
        let handle = self.files.open(&caller(), inode, OpenFlags { write: true, ..OpenFlags::default() }).unwrap();
        self.files.write(&caller(), inode, at, &bytes, false).unwrap();
        self.files.release(&caller(), inode, handle).unwrap();
        let end = at as usize + length;
        if file.content.len() < end {
            file.content.resize(end, 0);
        }
        file.content[at as usize..end].copy_from_slice(&bytes);
        file.versions = file.versions.max(version);
    }

    /// Changes after the checkpoint.
    fn change(&mut self, expected: &mut Expected) {
        self.files.unlink(&caller(), ROOT, b"removed").unwrap();
        expected.removed.extend(expected.files.remove(&b"/removed"[..]));
        let paths: Vec<(Vec<u8>, u64)> =
            expected.files.iter().step_by(7).map(|(path, file)| (path.clone(), file.inode)).collect();
        for (path, inode) in paths.iter().filter(|(path, _)| !path.ends_with(b"name")) {
            if expected.files[path].content.len() > 20_000 {
                self.write_at(expected, path, *inode, 8192, 9000, 2);
            }
        }
        self.write_file(expected, b"late", 505, 150_000);
    }

    pub fn write_with_parity(&mut self, expected: &mut Expected) {
        let (made, handle) = self.files.create(&caller(), ROOT, b"parity", 0o640, OpenFlags::default()).unwrap();
        self.files.setxattr(&caller(), made.inode, b"user.stere.parity", b"3+1", SetMode::Any, false).unwrap();
        let content = content(600, 1, 0, 3_000_000);
        self.files.write(&caller(), made.inode, 0, &content, false).unwrap();
        self.files.release(&caller(), made.inode, handle).unwrap();
        expected.files.insert(b"/parity".to_vec(), File { number: 600, inode: made.inode, versions: 1, content });
        self.commit();
    }

    fn note_inodes(&self, expected: &mut Expected) {
        let mut paths: Vec<(Vec<u8>, u64)> =
            expected.files.iter().map(|(path, file)| (path.clone(), file.inode)).collect();
        for name in [&b"link"[..], b"fifo", b"null", b"directory 0"] {
            let inode = self.files.lookup(&caller(), ROOT, name).unwrap().inode;
            paths.push(([b"/", name].concat(), inode));
        }
        for (path, inode) in paths {
            let value = self.files.store().view(Io::BLOCKING, |view| stere_file::inode_if_any(view, inode));
            let value: Result<_, stere_file::Error> = value;
            expected.inodes.insert(path, value.unwrap().unwrap());
        }
    }

    /// Names and inodes that no call would ever make.
    pub fn forge(&self) {
        use stere_format::DirentValue;
        let directory = self.files.lookup(&caller(), ROOT, b"directory 0").unwrap().inode;
        let value = |inode: u64| self.files.store().view(Io::BLOCKING, |view| stere_file::inode_if_any(view, inode));
        let value: Result<_, stere_file::Error> = value(directory);
        let value = value.unwrap().unwrap();
        let entries = [
            (b"directory 0".to_vec(), ROOT, FileKind::Directory),
            (b"..".to_vec(), directory, FileKind::Directory),
            (b".".to_vec(), directory + 100, FileKind::File),
            (b"directory 0".to_vec(), 4000, FileKind::File),
            (b"nothing".to_vec(), 4000, FileKind::File),
        ];
        let changed: Result<(), stere_store::Error> = self.files.store().update(Io::BLOCKING, |transaction| {
            for (sequence, (name, inode, kind)) in (7000u64..).zip(&entries) {
                let entry = DirentValue { inode: *inode, kind: *kind, key: 0, name: name.clone() };
                transaction.put(Key::dirent(ROOT, sequence), &entry.encode());
            }
            // Two directories that lie in each other, and a file that lies nowhere.
            for (inode, parent) in [(5001, 5002), (5002, 5001)] {
                let lost = InodeValue { parent, nlink: 2, ..value.clone() };
                transaction.put(Key::inode(inode), &lost.encode());
                let entry = DirentValue { inode: parent, kind: FileKind::Directory, key: 0, name: b"other".to_vec() };
                transaction.put(Key::dirent(inode, 16), &entry.encode());
            }
            let file = InodeValue { mode: 0o100_644, nlink: 1, size: 12, ..value.clone() };
            transaction.put(Key::inode(5003), &file.encode());
            Ok(())
        });
        changed.unwrap();
        self.commit();
    }

    pub fn commit(&self) {
        self.files.syncfs(&caller()).unwrap();
    }

    /// Closes the pool in order.
    pub fn close(self) -> Vec<Arc<MemoryDevice>> {
        self.commit();
        self.files.store().close().unwrap();
        self.devices
    }

    pub fn close_and_reopen(&mut self) {
        self.commit();
        self.files.store().close().unwrap();
        self.files = open(&self.devices);
    }

    /// What a power cut leaves.
    pub fn abandon(self) -> Vec<Arc<MemoryDevice>> {
        self.devices.iter().map(|device| Arc::new(device.copy_as_flushed())).collect()
    }
}
