//! Threads that call: which calls they choose, how these are made on a mount, and what each answers. A thread holds its own open files, so
//! each has locks of its own: by flock(2), by fcntl(2) for two ranges of its open file, and by fcntl(2) for the process, of which each
//! mount has one. Read next: `model.rs`.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::MACHINES;
use super::history::Call;
use super::model::{ANCHORS, FILES, FOLDERS, LOCKS, Op, Ret};

const FLOCK: usize = 0;
/// Of the process: all threads on one mount are one holder, so only the first there takes it.
const OF_PROCESS: usize = 3;

pub fn any_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

pub fn any_time_below(most: Duration) -> Duration {
    Duration::from_nanos(any_seed() % most.as_nanos() as u64)
}

/// Makes what the names stand on: files that stay, and files that are locked.
pub fn make_anchors(point: &Path) -> [u64; ANCHORS] {
    for folder in ["names", "anchors", "locks"] {
        fs::create_dir(point.join(folder)).unwrap();
    }
    for lock in 0..LOCKS {
        File::create(point.join(format!("locks/{lock}"))).unwrap();
    }
    std::array::from_fn(|number| {
        let file = File::create(point.join(format!("anchors/{number}"))).unwrap();
        file.metadata().unwrap().ino()
    })
}

pub struct Caller {
    thread: usize,
    point: PathBuf,
    /// What is locked.
    files: [File; LOCKS],
    is_held: [bool; LOCKS],
    random: u64,
}

fn name_of(file: usize) -> String {
    format!("names/f{file}")
}

fn folder_name_of(folder: usize) -> String {
    format!("names/d{folder}")
}

/// The errno of a call that did not succeed.
fn answer(result: io::Result<Ret>) -> Ret {
    result.unwrap_or_else(|error| Ret::Refused(error.raw_os_error().expect("an error of the system")))
}

fn outcome(result: i32) -> io::Result<Ret> {
    if result == 0 { Ok(Ret::Done) } else { Err(io::Error::last_os_error()) }
}

impl Caller {
    pub fn new(point: &Path, thread: usize, seed: u64) -> Caller {
        let open = |lock: usize| {
            let opened = File::options().read(true).write(true).open(point.join(format!("locks/{lock}")));
            opened.expect("a file that is locked")
        };
        let random = seed.wrapping_add(thread as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let (files, is_held) = (std::array::from_fn(open), [false; LOCKS]);
        Caller { thread, point: point.to_owned(), files, is_held, random }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % bound
    }

    fn choose(&mut self) -> Op {
        let (file, other, folder) = (self.below(FILES), self.below(FILES), self.below(FOLDERS));
        match self.below(20) {
            0..=3 => Op::Create(file),
            4..=6 => Op::Unlink(file),
            7..=9 => Op::Rename(file, other),
            10 | 11 => Op::Link { anchor: self.below(ANCHORS), file },
            12 | 13 => Op::Stat(file),
            14 => Op::MakeFolder(folder),
            15 => Op::RemoveFolder(folder),
            16 => Op::RenameFolder(folder, self.below(FOLDERS)),
            _ => self.choose_lock(),
        }
    }

    fn choose_lock(&mut self) -> Op {
        let kinds = if self.thread < MACHINES { LOCKS } else { OF_PROCESS };
        let (lock, holder) = (self.below(kinds), self.thread);
        match self.is_held[lock] {
            true => Op::Unlock { lock, holder },
            false => Op::Lock { lock, holder, is_shared: self.below(3) == 0 },
        }
    }

    /// So many calls, one after the other, with some time between.
    pub fn calls(&mut self, count: usize, pause_max: Duration) -> Vec<Call> {
        let one = |_| {
            if !pause_max.is_zero() {
                std::thread::sleep(any_time_below(pause_max));
            }
            let op = self.choose();
            self.call(op)
        };
        (0..count).map(one).collect()
    }

    pub fn call(&mut self, op: Op) -> Call {
        let called = Instant::now();
        let ret = answer(self.perform(op));
        let returned = Instant::now();
        match (op, ret) {
            (Op::Lock { lock, .. }, Ret::Done) => self.is_held[lock] = true,
            (Op::Unlock { lock, .. }, _) => self.is_held[lock] = false,
            _ => {}
        }
        Call { thread: self.thread, op, ret, called, returned }
    }

    fn perform(&self, op: Op) -> io::Result<Ret> {
        let file = |number: usize| self.point.join(name_of(number));
        let folder = |number: usize| self.point.join(folder_name_of(number));
        let done = |()| Ret::Done;
        match op {
            Op::Create(name) => File::create_new(file(name)).and_then(|made| Ok(Ret::Created(made.metadata()?.ino()))),
            Op::Unlink(name) => fs::remove_file(file(name)).map(done),
            Op::Rename(from, to) => fs::rename(file(from), file(to)).map(done),
            Op::Link { anchor, file: name } => {
                fs::hard_link(self.point.join(format!("anchors/{anchor}")), file(name)).map(done)
            }
            Op::Stat(name) => fs::symlink_metadata(file(name)).map(|found| Ret::Found(found.ino())),
            Op::Links(name) => {
                let found = fs::symlink_metadata(file(name))?;
                Ok(Ret::Links { inode: found.ino(), links: found.nlink() })
            }
            Op::MakeFolder(name) => fs::create_dir(folder(name)).map(done),
            Op::RemoveFolder(name) => fs::remove_dir(folder(name)).map(done),
            Op::RenameFolder(from, to) => fs::rename(folder(from), folder(to)).map(done),
            Op::StatFolder(name) => fs::symlink_metadata(folder(name)).map(|_| Ret::Done),
            Op::ListFolder(name) => {
                let listed = fs::read_dir(self.point.join("names"))?.collect::<io::Result<Vec<_>>>()?;
                let is_there = listed.iter().any(|entry| entry.path() == folder(name));
                if is_there { Ok(Ret::Done) } else { Err(io::Error::from_raw_os_error(libc::ENOENT)) }
            }
            Op::Lock { lock, is_shared, .. } => self.lock(lock, if is_shared { libc::F_RDLCK } else { libc::F_WRLCK }),
            Op::Unlock { lock, .. } => self.lock(lock, libc::F_UNLCK),
        }
    }

    fn lock(&self, lock: usize, kind: i32) -> io::Result<Ret> {
        let file = self.files[lock].as_raw_fd();
        if lock == FLOCK {
            let how = match kind {
                libc::F_RDLCK => libc::LOCK_SH,
                libc::F_WRLCK => libc::LOCK_EX,
                _ => libc::LOCK_UN,
            };
            // SAFETY: a lock of a file that is open.
            return outcome(unsafe { libc::flock(file, how | libc::LOCK_NB) });
        }
        // SAFETY: all zeros are a lock of the whole file.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = kind as i16;
        range.l_start = lock as i64;
        range.l_len = 1;
        let command = if lock == OF_PROCESS { libc::F_SETLK } else { libc::F_OFD_SETLK };
        // SAFETY: a lock of a file that is open.
        outcome(unsafe { libc::fcntl(file, command, &range) })
    }
}
