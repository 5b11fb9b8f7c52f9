//! P-158: a nearly full pool under mixed calls: what is written to devices is bounded by what was accepted and for each call, and the
//! background comes to rest once nobody calls any more. `STERE_FULL_SEED`, `_COUNT`, `_MIB` and `_CALLS` tell what is played.

use crate::support;

use stere_naming::{Error, FileSystem, OpenFlags, ROOT, SetAttributes, SetMode};
use support::random::Random;
use support::{Rig, caller};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: true };
const PUNCH: u32 = 3;
const MIB: u64 = 1 << 20;
/// To both devices together, what cleaning writes included.
const WRITTEN_PER_ACCEPTED_MAX: u64 = 20;
const SIZES: [usize; 8] = [1, 300, 4096, 20_000, 60_000, 131_072, 600_000, 2_000_000];

struct File {
    directory: u64,
    name: Vec<u8>,
    inode: u64,
}

/// A pool that is being filled, and what was accepted and written meanwhile.
struct Full<'a> {
    rig: &'a Rig,
    fs: &'a FileSystem,
    random: Random,
    directories: [u64; 2],
    files: Vec<File>,
    next: u64,
    noise: Vec<u8>,
    words: Vec<u8>,
    /// Far offsets, holes, links and policies too.
    is_wild: bool,
    accepted: u64,
    /// The most that one call wrote, and which it was.
    worst: (u64, String),
}

impl Full<'_> {
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let source = if self.random.below(2) == 0 { &self.noise } else { &self.words };
        let at = self.random.below((source.len() - length) as u64) as usize;
        source[at..at + length].to_vec()
    }

    fn any_file(&mut self) -> usize {
        self.random.below(self.files.len() as u64) as usize
    }

    fn size(&self, inode: u64) -> u64 {
        self.fs.getattr(&caller(3), inode).unwrap().size
    }

    /// Carries out a call and measures it; false if there was no room.
    fn call(&mut self, what: &str, call: impl FnOnce(&mut Self) -> Result<u64, Error>) -> bool {
        let before = self.rig.written_bytes();
        let outcome = call(self);
        let written = self.rig.written_bytes() - before;
        if written > self.worst.0 {
            self.worst = (written, format!("{what}: {outcome:?}"));
        }
        match outcome {
            Ok(accepted) => {
                self.accepted += accepted;
                true
            }
            Err(Error::NoSpace) => false,
            Err(error) => panic!("{what}: {error}"),
        }
    }

    fn create(&mut self, length: usize) -> bool {
        let directory = self.random.pick(&self.directories);
        self.next += 1;
        let name = format!("f{}", self.next).into_bytes();
        let data = self.bytes(length);
        self.call("create", |full| {
            let (made, handle) = full.fs.create(&caller(3), directory, &name, 0o644, FLAGS)?;
            full.files.push(File { directory, name, inode: made.inode });
            let written = full.fs.write(&caller(3), made.inode, 0, &data, false);
            full.fs.release(&caller(3), made.inode, handle).expect("what was accepted is saved");
            Ok(written? as u64)
        })
    }

    fn unlink(&mut self, at: usize) {
        let File { directory, name, .. } = self.files.swap_remove(at);
        self.call("unlink", |full| full.fs.unlink(&caller(4), directory, &name).map(|()| 0));
    }

    fn copy(&mut self, from: u64, to: u64) -> bool {
        let size = self.size(from);
        if from == to || size == 0 {
            return true;
        }
        let mut start = self.random.below(size);
        let most = self.random.pick(&[200_000, 2_000_000]).min(size - start);
        let (mut length, mut at) = (1 + self.random.below(most), self.random.below(self.size(to) + 1));
        if self.random.below(2) == 0 {
            start = start / 131_072 * 131_072;
            length = (length / 4096 * 4096).max(4096).min(size - start);
            at = start.min(self.size(to) / 131_072 * 131_072);
        }
        self.call("copy", |full| full.fs.copy_range(&caller(4), from, start, to, at, length))
    }

    /// A call of any kind on any file; false if there was no room.
    fn any_call(&mut self, sizes: &[usize]) -> bool {
        if self.files.len() < 40 || self.random.below(5) == 0 {
            let length = self.random.pick(sizes);
            return self.create(length);
        }
        let at = self.any_file();
        let inode = self.files[at].inode;
        if self.is_wild && self.random.below(4) == 0 {
            return self.wild_call(at);
        }
        match self.random.below(20) {
            0..6 => {
                let (length, offset) = (self.random.pick(sizes), self.random.below(self.size(inode) + 1));
                let data = self.bytes(length);
                self.call("write", |full| {
                    full.fs.write(&caller(4), inode, offset, &data, false).map(|length| length as u64)
                })
            }
            6 => {
                let size = Some(self.random.below(self.size(inode).max(400_000)));
                let cut = SetAttributes { size, ..SetAttributes::default() };
                self.call("truncate", |full| full.fs.setattr(&caller(4), inode, &cut).map(|_| 0))
            }
            7..9 => {
                let mode = self.random.pick(&[0, 0, 1, 1, PUNCH]);
                let most = self.random.pick(&[30_000, 300_000, 4_000_000]);
                let (offset, length) = (self.random.below(300_000), 1 + self.random.below(most));
                let accepted = if mode == PUNCH { 0 } else { length };
                self.call("fallocate", |full| {
                    full.fs.fallocate(&caller(4), inode, offset, length, mode).map(|()| accepted)
                })
            }
            9..17 => {
                let from = self.any_file();
                let from = self.files[from].inode;
                self.copy(from, inode)
            }
            17 => {
                let (directory, name) = (self.random.pick(&self.directories), format!("r{}", self.next).into_bytes());
                self.next += 1;
                let (old_directory, old_name) = (self.files[at].directory, self.files[at].name.clone());
                self.call("rename", |full| {
                    full.fs.rename(&caller(4), old_directory, &old_name, directory, &name, 0)?;
                    full.files[at] = File { directory, name, inode };
                    Ok(0)
                })
            }
            18 => {
                let (name, length) = (format!("user.{}", self.random.below(4)), 1 + self.random.below(30_000) as usize);
                let data = self.bytes(length);
                self.call("setxattr", |full| {
                    full.fs
                        .setxattr(&caller(4), inode, name.as_bytes(), &data, SetMode::Any, false)
                        .map(|()| length as u64)
                })
            }
            _ => self.call("fsync", |full| full.fs.fsync(&caller(4), inode, false).map(|()| 0)),
        }
    }

    /// What reaches far, or changes what is kept and where.
    fn wild_call(&mut self, at: usize) -> bool {
        let inode = self.files[at].inode;
        match self.random.below(9) {
            0 => {
                let (length, offset) = (self.random.pick(&SIZES), self.random.scaled(44));
                let data = self.bytes(length);
                self.call("write far", |full| {
                    full.fs.write(&caller(4), inode, offset, &data, false).map(|length| length as u64)
                })
            }
            1 => {
                let size = Some(self.random.scaled(44));
                let cut = SetAttributes { size, ..SetAttributes::default() };
                self.call("truncate far", |full| full.fs.setattr(&caller(4), inode, &cut).map(|_| 0))
            }
            2 => {
                let (offset, length) = (self.random.scaled(40), 1 + self.random.scaled(32));
                let mode = self.random.pick(&[0, 1, PUNCH, 0x10, 0x11, 8, 0x20]);
                self.call("fallocate far", |full| match full.fs.fallocate(&caller(4), inode, offset, length, mode) {
                    Err(Error::NoSpace) => Err(Error::NoSpace),
                    Err(_) => Ok(0),
                    Ok(()) => Ok(if mode == PUNCH { 0 } else { length.min(1 << 30) }),
                })
            }
            3 | 4 => {
                let from = self.any_file();
                let from = self.files[from].inode;
                let (start, to) = (self.random.below(self.size(from) + 1), self.random.below(self.size(inode) + 1));
                let length = self.random.pick(&[1 << 20, 1 << 24, 1 << 31]);
                self.call("copy far", |full| match full.fs.copy_range(&caller(4), from, start, inode, to, length) {
                    Err(Error::NoSpace) => Err(Error::NoSpace),
                    Err(_) => Ok(0),
                    Ok(copied) => Ok(copied.min(1 << 24)),
                })
            }
            5 => {
                let (key, value) = self.random.pick(&[
                    ("compress", "zstd"),
                    ("compress", "none"),
                    ("compress", "lz4"),
                    ("copies", "1"),
                    ("copies", "2"),
                    ("record", "4K"),
                    ("record", "128K"),
                    ("versions", "3"),
                    ("versions", "no"),
                    ("class", "scratch"),
                    ("class", "normal"),
                ]);
                let target = if self.random.below(4) == 0 { self.random.pick(&self.directories) } else { inode };
                let name = format!("user.stere.{key}");
                self.call("policy", |full| {
                    match full.fs.setxattr(&caller(4), target, name.as_bytes(), value.as_bytes(), SetMode::Any, false) {
                        Err(Error::NoSpace) => Err(Error::NoSpace),
                        _ => Ok(0),
                    }
                })
            }
            6 => {
                let (directory, name) = (self.random.pick(&self.directories), format!("l{}", self.next).into_bytes());
                self.next += 1;
                self.call("link", |full| match full.fs.link(&caller(4), inode, directory, &name) {
                    Err(Error::NoSpace) => Err(Error::NoSpace),
                    Err(_) => Ok(0),
                    Ok(_) => {
                        full.files.push(File { directory, name, inode });
                        Ok(0)
                    }
                })
            }
            7 => {
                let from = inode;
                let size = self.size(from);
                let (start, to) = (self.random.below(size + 1), self.random.below(2 * size + 1));
                let length = self.random.below(2_000_000);
                self.call("copy within", |full| match full.fs.copy_range(&caller(4), from, start, from, to, length) {
                    Err(Error::NoSpace) => Err(Error::NoSpace),
                    Err(_) => Ok(0),
                    Ok(copied) => Ok(copied.min(1 << 24)),
                })
            }
            _ => self.call("sync", |full| full.fs.syncfs(&caller(4)).map(|()| 0)),
        }
    }

    fn background(&mut self) {
        self.call("background", |full| {
            full.fs.step(&caller(5), 100)?;
            full.fs.reconciler().reconcile_step(&caller(5), 32 << 20)?;
            full.fs.store().step(false)?;
            Ok(0)
        });
    }

    fn has_room(&self, percent: u64) -> bool {
        let statistics = self.fs.statfs();
        statistics.blocks_free * 100 >= statistics.blocks * percent
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn run(seed: u64, size_bytes: u64, calls: usize) {
    let (rig, fs) = Rig::new(2, size_bytes);
    let made = |name: &str| fs.mkdir(&caller(2), ROOT, name.as_bytes(), 0o755).unwrap().inode;
    let directories = [made("pressed"), made("plain")];
    fs.setxattr(&caller(2), directories[0], b"user.stere.compress", b"zstd", SetMode::Any, false).unwrap();
    let mut random = Random(seed);
    let noise = (0..4 << 20).map(|_| random.below(256) as u8).collect();
    let words = (0_u32..900_000)
        .flat_map(|number| format!("{} ", number.wrapping_mul(7919) % 10007).into_bytes())
        .take(4 << 20)
        .collect();
    let mut full = Full {
        rig: &rig,
        fs: &fs,
        random,
        directories,
        files: Vec::new(),
        next: 0,
        noise,
        words,
        is_wild: seed % 2 == 0,
        accepted: 0,
        worst: (0, String::new()),
    };
    while full.next < 2000 && full.create(300) {}
    while full.has_room(4) {
        let length = full.random.pick(&SIZES);
        if !full.create(length) {
            break;
        }
        full.background();
    }
    (full.accepted, full.worst.0) = (0, 0);
    let begin = rig.written_bytes();
    for call in 0..calls {
        let (at_edge, sizes) = (call / 500 % 2 == 0, if call / 1000 % 2 == 0 { &SIZES[..6] } else { &SIZES[..] });
        let had_room = full.any_call(sizes);
        if full.random.below(4) == 0 {
            full.background();
        }
        if !at_edge && call % 8 == 0 {
            while !full.has_room(1 + call as u64 / 500 % 3) && full.files.len() > 40 {
                let at = full.any_file();
                full.unlink(at);
            }
        } else if !had_room && full.random.below(10) == 0 {
            let at = full.any_file();
            full.unlink(at);
        }
    }
    let written = rig.written_bytes() - begin;
    println!(
        "seed {seed}: {} MiB accepted, {} MiB written, at most {} MiB by one call, {}",
        full.accepted / MIB,
        written / MIB,
        full.worst.0 / MIB,
        full.worst.1
    );
    assert!(written <= WRITTEN_PER_ACCEPTED_MAX * full.accepted, "{written} bytes for {}", full.accepted);
    assert!(full.worst.0 <= 2 * size_bytes, "one call wrote {} bytes: {}", full.worst.0, full.worst.1);
    come_to_rest(&fs, &rig, 2 * size_bytes);
}

/// The background has an end, and writes less than the pool's size until then.
fn come_to_rest(fs: &FileSystem, rig: &Rig, size_bytes: u64) {
    let begin = rig.written_bytes();
    let step = || {
        let files = fs.step(&caller(9), 100).unwrap();
        // A step looks at one file that waits for another policy.
        let policy = fs.reconciler().reconcile_step(&caller(9), 32 << 20).unwrap();
        files | policy | fs.store().step(true).unwrap()
    };
    let rounds = (0..20_000).find(|_| !step());
    assert!(rounds.is_some(), "the background does not come to rest");
    assert!(rig.written_bytes() - begin <= size_bytes, "{} bytes written at rest", rig.written_bytes() - begin);
    assert_eq!(fs.store().checker.check(true).unwrap().findings, []);
}

/// P-158
#[test]
fn what_is_written_is_bounded() {
    let first = number("STERE_FULL_SEED", 1);
    for seed in first..first + number("STERE_FULL_COUNT", 2) {
        run(seed, number("STERE_FULL_MIB", 128) * MIB, number("STERE_FULL_CALLS", 6000) as usize);
    }
}

/// Every segment of a full pool gets holes, so that the cleaner has victims everywhere and hardly any room to move them to.
fn full_of_holes(seed: u64, sizes: &[u64], copies: &str, hole_percent: u64) {
    let (rig, fs) = Rig::unlike(sizes);
    if copies != "kinds" {
        fs.setxattr(&caller(2), ROOT, b"user.stere.copies", copies.as_bytes(), SetMode::Any, false).unwrap();
    }
    let mut random = Random(seed);
    let mut files = Vec::new();
    let mut refused = 0;
    while refused < 12 {
        let name = format!("f{}", files.len() + refused).into_bytes();
        let Ok((made, handle)) = fs.create(&caller(3), ROOT, &name, 0o644, FLAGS) else { break };
        let length =
            if copies == "kinds" { 1 + random.scaled(20) as usize } else { 100_000 + random.below(400_000) as usize };
        if copies == "kinds" {
            let kind = random.pick(&[
                ("class", "scratch"),
                ("class", "normal"),
                ("class", "precious"),
                ("class", "archive"),
                ("copies", "1"),
                ("copies", "2"),
                ("copies", "3"),
                ("parity", "2+1"),
                ("compress", "zstd"),
                ("record", "4K"),
            ]);
            drop(fs.setxattr(
                &caller(3),
                made.inode,
                format!("user.stere.{}", kind.0).as_bytes(),
                kind.1.as_bytes(),
                SetMode::Any,
                false,
            ));
        }
        match fs.write(&caller(3), made.inode, 0, &vec![seed as u8; length], false) {
            Ok(written) if written == length => files.push((made.inode, length as u64)),
            _ => refused += 1,
        }
        fs.release(&caller(3), made.inode, handle).unwrap();
    }
    fs.syncfs(&caller(4)).unwrap();
    for (inode, length) in &files {
        for block in 0..length / 4096 {
            if random.below(100) < hole_percent {
                match fs.fallocate(&caller(5), *inode, block * 4096, 4096, PUNCH) {
                    Ok(()) | Err(Error::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    fs.syncfs(&caller(5)).unwrap();
    come_to_rest(&fs, &rig, sizes.iter().sum());
}

/// P-158
#[test]
fn a_full_pool_with_holes_in_every_segment_comes_to_rest() {
    for (sizes, copies) in [
        (&[64 * MIB, 64 * MIB][..], "kinds"),
        (&[64 * MIB, 200 * MIB], "kinds"),
        (&[64 * MIB, 64 * MIB, 64 * MIB], "kinds"),
        (&[256 * MIB, 256 * MIB], "kinds"),
        (&[64 * MIB, 64 * MIB], "2"),
        (&[64 * MIB, 200 * MIB], "2"),
        (&[64 * MIB, 64 * MIB, 64 * MIB], "1"),
        (&[64 * MIB, 100 * MIB, 160 * MIB], "3"),
        (&[256 * MIB, 256 * MIB], "2"),
    ] {
        for hole_percent in [15, 22, 30, 50] {
            full_of_holes(1, sizes, copies, hole_percent);
        }
    }
}
