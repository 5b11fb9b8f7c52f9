//! A nearly full pool under the calls of two ordinary users at once, beside the history and on devices of its own (P-6, P-158).
//!
//! The oracle: what is written to devices is bounded by what was accepted, and what one call writes by the pool's size; the background
//! comes to rest; what was accepted can be made durable and is there after a new mount. Read next: `pool.rs`.

use std::sync::Arc;

use stere_naming::{Error, OpenFlags, ROOT, SetMode};
use stere_store::CleanerPolicy;

use crate::content::pattern;
use crate::device::Machine;
use crate::history::{History, Stop};
use crate::pool::{Mounted, PoolConfig, caller};
use crate::random::Random;
use crate::run::MIB;

/// P-158: to all devices together, what cleaning writes included.
const WRITTEN_PER_ACCEPTED_MAX: u64 = 20;
/// What a change that holds no bytes counts as, for it changes blocks of metadata.
const CHANGE_BYTES: u64 = 4096;
const CALLS: usize = 500;
/// Rounds in which the background must have come to rest.
const ROUNDS_MAX: usize = 5_000;
const SIZES: [usize; 8] = [1, 300, 4096, 20_000, 60_000, 131_072, 300_000, 600_000];
const PUNCH: u32 = 3;
const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: true };

/// A file, and what it holds.
struct File {
    directory: u64,
    name: Vec<u8>,
    inode: u64,
    bytes: Vec<u8>,
}

struct NearlyFull {
    machine: Arc<Machine>,
    mounted: Mounted,
    random: Random,
    /// One is compressed.
    directories: [u64; 2],
    /// Of each user.
    files: [Vec<File>; 2],
    made: u64,
    pool_bytes: u64,
    accepted: u64,
}

fn failure<T>(text: String) -> Result<T, Stop> {
    Err(Stop::Failure(format!("in a nearly full pool: {text}")))
}

fn must<T>(what: &str, outcome: Result<T, Error>) -> Result<T, Stop> {
    outcome.or_else(|error| failure(format!("{what}: {error}")))
}

/// Plays calls in a nearly full pool.
pub(crate) fn try_nearly_full(history: &mut History, seed: u64) -> Result<(), Stop> {
    let mut random = Random::new(seed);
    let machine = Machine::new(random.fork());
    let size_bytes = *random.pick(&[64, 72, 100]) * MIB;
    let memory_bytes = *random.pick(&[16 << 20, 64 << 20]);
    let dirty_bytes_max = *random.pick(&[1 << 20, 64 << 20]);
    let config = PoolConfig::of(&[size_bytes; 2]).blocks(&[4096; 2]).memory(memory_bytes);
    let config = config.dirty(dirty_bytes_max, random.between(1, 5));
    let config = config.cleaner(*random.pick(&CleanerPolicy::ALL));
    let mounted = config.create(&machine).map_err(Stop::Failure)?;
    let make = |name: &[u8]| must("mkdir", mounted.files.mkdir(&caller(&machine), ROOT, name, 0o755));
    let directories = [make(b"pressed")?.inode, make(b"plain")?.inode];
    let pressed =
        mounted.files.setxattr(&caller(&machine), directories[0], b"user.stere.compress", b"zstd", SetMode::Any, false);
    must("asking for compression", pressed)?;
    let mut nearly = NearlyFull {
        machine,
        mounted,
        random,
        directories,
        files: Default::default(),
        made: 0,
        pool_bytes: 2 * size_bytes,
        accepted: 0,
    };
    nearly.fill()?;
    nearly.play()?;
    let (machine, files) = nearly.end()?;
    let mounted = config.mount(&machine).map_err(Stop::Failure)?;
    for file in files.iter().flatten() {
        let mut found = vec![0; file.bytes.len() + 1];
        let length = must("read", mounted.files.read(&caller(&machine), file.inode, 0, &mut found))?;
        if found[..length] != file.bytes[..] {
            return failure(format!("inode {} is not what was accepted after a new mount", file.inode));
        }
    }
    history.summary.nearly_full += 1;
    Ok(())
}

impl NearlyFull {
    fn free_percent(&self) -> u64 {
        let statistics = self.mounted.files.statfs();
        statistics.blocks_free * 100 / statistics.blocks.max(1)
    }

    fn fill(&mut self) -> Result<(), Stop> {
        while self.free_percent() > 3 {
            let user = self.random.below(2) as usize;
            if !self.create(user)? {
                break;
            }
            self.background(false)?;
        }
        self.accepted = 0;
        Ok(())
    }

    fn play(&mut self) -> Result<(), Stop> {
        let begin = self.machine.written_bytes();
        for _ in 0..CALLS {
            // Whoever's turn it is.
            let user = self.random.below(2) as usize;
            let before = self.machine.written_bytes();
            let had_room = self.call(user)?;
            self.bound_call(before)?;
            if self.random.chance(1, 4) {
                let before = self.machine.written_bytes();
                self.background(false)?;
                self.bound_call(before)?;
            }
            if !had_room && self.random.chance(1, 4) {
                self.unlink(user)?;
            }
        }
        let (written, accepted) = (self.machine.written_bytes() - begin, self.accepted);
        if written > WRITTEN_PER_ACCEPTED_MAX * accepted {
            return failure(format!("{written} bytes are written for {accepted} that were accepted"));
        }
        Ok(())
    }

    fn bound_call(&self, before: u64) -> Result<(), Stop> {
        let written = self.machine.written_bytes() - before;
        match written > self.pool_bytes {
            true => failure(format!("one call wrote {written} bytes")),
            false => Ok(()),
        }
    }

    /// What was accepted can be made durable, and then nothing goes on for ever.
    fn end(self) -> Result<(Arc<Machine>, [Vec<File>; 2]), Stop> {
        must("syncfs", self.mounted.files.syncfs(&caller(&self.machine)))?;
        let begin = self.machine.written_bytes();
        let mut rounds = 0;
        while self.background(true)? {
            rounds += 1;
            if rounds > ROUNDS_MAX || self.machine.written_bytes() - begin > self.pool_bytes {
                let written = self.machine.written_bytes() - begin;
                return failure(format!("the background does not come to rest: {written} bytes in {rounds} rounds"));
            }
        }
        let findings = self.mounted.store.checker.check(true);
        match must("check", findings.map_err(Error::from))?.findings {
            findings if !findings.is_empty() => return failure(format!("the check finds {findings:?}")),
            _ => {}
        }
        must("close", self.mounted.files.close(&caller(&self.machine)))?;
        Ok((self.machine, self.files))
    }

    fn background(&self, idle: bool) -> Result<bool, Stop> {
        let files = must("step of the files", self.mounted.files.step(&caller(&self.machine), 100))?;
        let policy = self.mounted.files.reconciler().reconcile_step(&caller(&self.machine), 32 << 20);
        let policy = must("storing files as their policy says", policy)?;
        let store = must("step of the store", self.mounted.store.step(idle).map_err(Error::from))?;
        Ok(files | policy | store)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        match self.random.chance(1, 2) {
            true => pattern(self.random.next_u64(), length),
            false => (0..length).map(|at| (at / 37 % 11) as u8).collect(),
        }
    }

    /// Notes what a call led to; false where there was no room. What it then did in part is looked up.
    fn note(&mut self, what: &str, user: usize, at: usize, outcome: Result<u64, Error>) -> Result<bool, Stop> {
        match outcome {
            Ok(bytes) => {
                self.accepted += bytes.max(CHANGE_BYTES);
                Ok(true)
            }
            Err(Error::NoSpace) => {
                let (inode, most) = (self.files[user][at].inode, self.files[user][at].bytes.len() + (8 << 20));
                let mut found = vec![0; most];
                let length = must("read", self.mounted.files.read(&caller(&self.machine), inode, 0, &mut found))?;
                found.truncate(length);
                self.files[user][at].bytes = found;
                Ok(false)
            }
            Err(error) => failure(format!("{what}: {error}")),
        }
    }

    fn create(&mut self, user: usize) -> Result<bool, Stop> {
        let (directory, length) = (*self.random.pick(&self.directories), *self.random.pick(&SIZES));
        self.made += 1;
        let name = format!("f{}", self.made).into_bytes();
        let bytes = self.bytes(length);
        let files = self.mounted.files.clone();
        let (made, handle) = match files.create(&caller(&self.machine), directory, &name, 0o644, FLAGS) {
            Err(Error::NoSpace) => return Ok(false),
            made => must("create", made)?,
        };
        self.files[user].push(File { directory, name, inode: made.inode, bytes: Vec::new() });
        let at = self.files[user].len() - 1;
        let had_room = self.write_at(user, at, 0, &bytes)?;
        must("release", files.release(&caller(&self.machine), made.inode, handle))?;
        Ok(had_room)
    }

    fn write_at(&mut self, user: usize, at: usize, offset: usize, bytes: &[u8]) -> Result<bool, Stop> {
        let inode = self.files[user][at].inode;
        let written = self.mounted.files.write(&caller(&self.machine), inode, offset as u64, bytes, false);
        if let Ok(length) = written {
            let file = &mut self.files[user][at].bytes;
            file.resize(file.len().max(offset + length), 0);
            file[offset..offset + length].copy_from_slice(&bytes[..length]);
        }
        self.note("write", user, at, written.map(|length| length as u64))
    }

    /// A call of any kind; false if there was no room.
    fn call(&mut self, user: usize) -> Result<bool, Stop> {
        if self.files[user].len() < 10 || self.random.chance(1, 5) {
            return self.create(user);
        }
        let at = self.random.below(self.files[user].len() as u64) as usize;
        let (inode, size) = (self.files[user][at].inode, self.files[user][at].bytes.len());
        let files = self.mounted.files.clone();
        match self.random.below(16) {
            0..6 => {
                let (offset, length) = (self.random.below(size as u64 + 1) as usize, *self.random.pick(&SIZES));
                let bytes = self.bytes(length);
                self.write_at(user, at, offset, &bytes)
            }
            6 => {
                let size = self.random.below(size.max(200_000) as u64);
                let cut = stere_naming::SetAttributes { size: Some(size), ..Default::default() };
                let cut = files.setattr(&caller(&self.machine), inode, &cut).map(|_| 0);
                if cut.is_ok() {
                    self.files[user][at].bytes.resize(size as usize, 0);
                }
                self.note("truncate", user, at, cut)
            }
            7 | 8 => self.allocate(user, at),
            9..13 => self.copy(user, at),
            13 => {
                let directory = *self.random.pick(&self.directories);
                self.made += 1;
                let name = format!("r{}", self.made).into_bytes();
                let file = &mut self.files[user][at];
                let renamed =
                    files.rename(&caller(&self.machine), file.directory, &file.name, directory, &name, 0).map(|_| 0);
                if renamed.is_ok() {
                    (file.directory, file.name) = (directory, name);
                }
                self.note("rename", user, at, renamed)
            }
            14 => {
                let (name, length) = (format!("user.{}", self.random.below(4)), *self.random.pick(&SIZES[..4]));
                let value = self.bytes(length);
                let set = files.setxattr(&caller(&self.machine), inode, name.as_bytes(), &value, SetMode::Any, false);
                self.note("setxattr", user, at, set.map(|()| length as u64))
            }
            _ => {
                let synced = files.fsync(&caller(&self.machine), inode, false);
                must("fsync", synced).map(|()| true)
            }
        }
    }

    fn allocate(&mut self, user: usize, at: usize) -> Result<bool, Stop> {
        let mode = *self.random.pick(&[0, 1, PUNCH, PUNCH]);
        let (offset, length) = (self.random.below(200_000), 1 + self.random.below(300_000));
        let inode = self.files[user][at].inode;
        let done = self.mounted.files.fallocate(&caller(&self.machine), inode, offset, length, mode);
        let bytes = &mut self.files[user][at].bytes;
        let end = (offset + length) as usize;
        match (&done, mode) {
            (Ok(()), 0) => bytes.resize(bytes.len().max(end), 0),
            (Ok(()), PUNCH) if bytes.len() > offset as usize => {
                let end = end.min(bytes.len());
                bytes[offset as usize..end].fill(0);
            }
            _ => {}
        }
        self.note("fallocate", user, at, done.map(|()| if mode == PUNCH { 0 } else { length }))
    }

    /// From a file of anybody, by reference where that is possible or not.
    fn copy(&mut self, user: usize, at: usize) -> Result<bool, Stop> {
        let other = self.random.below(2) as usize;
        if self.files[other].is_empty() {
            return Ok(true);
        }
        let from_at = self.random.below(self.files[other].len() as u64) as usize;
        let source = &self.files[other][from_at];
        let (from, inode) = (source.inode, self.files[user][at].inode);
        let (source_size, size) = (source.bytes.len() as u64, self.files[user][at].bytes.len() as u64);
        if from == inode || source_size == 0 {
            return Ok(true);
        }
        let mut start = self.random.below(source_size);
        let mut to = self.random.below(size + 1);
        let length = 1 + self.random.below(source_size - start);
        if self.random.chance(1, 2) {
            start = start / 131_072 * 131_072;
            to = start.min(size / 131_072 * 131_072);
        }
        let copied = self.mounted.files.copy_range(&caller(&self.machine), from, start, inode, to, length);
        if let Ok(length) = copied {
            let (start, to, length) = (start as usize, to as usize, length as usize);
            let piece = self.files[other][from_at].bytes[start..start + length].to_vec();
            let bytes = &mut self.files[user][at].bytes;
            bytes.resize(bytes.len().max(to + length), 0);
            bytes[to..to + length].copy_from_slice(&piece);
        }
        self.note("copy", user, at, copied)
    }

    fn unlink(&mut self, user: usize) -> Result<(), Stop> {
        if self.files[user].len() < 10 {
            return Ok(());
        }
        let at = self.random.below(self.files[user].len() as u64) as usize;
        let File { directory, name, .. } = self.files[user].swap_remove(at);
        must("unlink", self.mounted.files.unlink(&caller(&self.machine), directory, &name))?;
        self.accepted += CHANGE_BYTES;
        Ok(())
    }
}
