//! An aged file system: filled to 80 % of what it says it has, and then used for as much again: files are removed at random and
//! others written, so that what is free lies in pieces. On what is left the usual work is timed.
//!
//! Sizes are spread evenly over powers of two from 4 KiB to 8 MiB, so that most files are small and most bytes are in large ones.
//! Every tenth file that goes is read and compared before; those that stay are too, at the end.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::{Run, small_files};
use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Random};
use crate::report::Metric;

const FULL_PERCENT: u64 = 80;
/// Blocks of the smallest and of the largest file, as powers of two.
const SIZES: std::ops::RangeInclusive<u64> = 0..=11;
const FILES_PER_FOLDER: u64 = 100;
/// What is timed takes less than what is free.
const TIMED_SMALL_FILES: u64 = 5_000;
const TIMED_LARGE_BLOCKS: u64 = (128 << 20) / BLOCK_SIZE as u64;
const BLOCKS_A_PIECE: u64 = 256;
/// Numbers of the patterns of the timed file and, above, of the files that age.
const LARGE: u64 = 1;
const FIRST: u64 = 1 << 20;

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let mut aged = Aged { run, random: Random::new(run.seed), files: Vec::new(), bytes: 0, next: FIRST };
    let (age_spent, written) = run.time(|| aged.age())?;
    let path = run.path("large");
    let (write_spent, ()) = run.time(|| write(run, &path, LARGE, run.scaled(TIMED_LARGE_BLOCKS)))?;
    run.cold.make()?;
    let (read_spent, ()) = run.time(|| check(run, &path, LARGE, run.scaled(TIMED_LARGE_BLOCKS)))?;
    let files = run.scaled(TIMED_SMALL_FILES);
    let mut metrics = small_files::create_read_delete(run, files)?;
    for file in &aged.files {
        check(run, &aged.path_of(file.number), file.number, file.blocks)?;
    }
    let large = run.scaled(TIMED_LARGE_BLOCKS) * BLOCK_SIZE as u64;
    metrics.extend([
        Metric::bytes("aging", written, age_spent).durable("everything at the end: syncfs is inside the time"),
        Metric::bytes("aged_seqwrite", large, write_spent).durable(super::SYNCED),
        super::cold(Metric::bytes("aged_seqread_cold", large, read_spent)),
    ]);
    Ok(metrics)
}

struct Aging {
    number: u64,
    blocks: u64,
}

struct Aged<'a> {
    run: &'a Run,
    random: Random,
    files: Vec<Aging>,
    bytes: u64,
    next: u64,
}

impl Aged<'_> {
    /// Fills, then replaces as many bytes as that were. Returns the bytes written.
    fn age(&mut self) -> Result<u64, BenchError> {
        let (size, free) = self.room()?;
        // Never divided: a file system with much room left does not age.
        let most = free.saturating_sub(size / 100 * (100 - FULL_PERCENT));
        let mut written = 0;
        while self.bytes < most {
            written += self.add()?;
        }
        let filled = written;
        while written < 2 * filled {
            while self.bytes >= most {
                self.remove_one()?;
            }
            written += self.add()?;
        }
        self.run.sync_file_system()?;
        Ok(written)
    }

    fn add(&mut self) -> Result<u64, BenchError> {
        let spread = SIZES.end() - SIZES.start() + 1;
        let power = SIZES.start() + self.random.below(spread);
        let blocks = (1 << power) + self.random.below(1 << power);
        let number = self.next;
        self.next += 1;
        let path = self.path_of(number);
        let folder = path.parent().expect("a file's path has a parent");
        fs::create_dir_all(folder).at("mkdir", folder)?;
        let mut file = File::create_new(&path).at("create", &path)?;
        write_blocks(self.run, &mut file, &path, number, blocks)?;
        self.files.push(Aging { number, blocks });
        self.bytes += blocks * BLOCK_SIZE as u64;
        Ok(blocks * BLOCK_SIZE as u64)
    }

    fn remove_one(&mut self) -> Result<(), BenchError> {
        let at = self.random.below(self.files.len() as u64) as usize;
        let Aging { number, blocks } = self.files.swap_remove(at);
        let path = self.path_of(number);
        if number % 10 == 0 {
            check(self.run, &path, number, blocks)?;
        }
        self.bytes -= blocks * BLOCK_SIZE as u64;
        fs::remove_file(&path).at("unlink", &path)
    }

    fn path_of(&self, number: u64) -> PathBuf {
        self.run.path(&format!("aged/{:04}/{number}", (number - FIRST) / FILES_PER_FOLDER))
    }

    /// Bytes of the file system, and those free.
    fn room(&self) -> Result<(u64, u64), BenchError> {
        let folder = File::open(&self.run.directory).at("open", &self.run.directory)?;
        // SAFETY: all zeros is a valid statvfs, and the call fills it; the descriptor is open.
        let (result, room) = unsafe {
            let mut room: libc::statvfs = std::mem::zeroed();
            (libc::fstatvfs(folder.as_raw_fd(), &mut room), room)
        };
        let outcome = if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
        outcome.at("statvfs", &self.run.directory)?;
        Ok((room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize))
    }
}

fn write(run: &Run, path: &Path, number: u64, blocks: u64) -> Result<(), BenchError> {
    let mut file = File::create(path).at("create", path)?;
    write_blocks(run, &mut file, path, number, blocks)?;
    file.sync_all().at("fsync", path)
}

fn write_blocks(run: &Run, file: &mut File, path: &Path, number: u64, blocks: u64) -> Result<(), BenchError> {
    let mut piece = vec![0; BLOCKS_A_PIECE.min(blocks) as usize * BLOCK_SIZE];
    for first in (0..blocks).step_by(BLOCKS_A_PIECE as usize) {
        let bytes = BLOCKS_A_PIECE.min(blocks - first) as usize * BLOCK_SIZE;
        run.pattern.fill(number, first, 0, &mut piece[..bytes]);
        file.write_all(&piece[..bytes]).at("write", path)?;
    }
    Ok(())
}

/// Reads it and compares the stamp of every block.
fn check(run: &Run, path: &Path, number: u64, blocks: u64) -> Result<(), BenchError> {
    let mut file = File::open(path).at("open", path)?;
    let mut piece = vec![0; BLOCKS_A_PIECE.min(blocks) as usize * BLOCK_SIZE];
    for first in (0..blocks).step_by(BLOCKS_A_PIECE as usize) {
        let bytes = BLOCKS_A_PIECE.min(blocks - first) as usize * BLOCK_SIZE;
        file.read_exact(&mut piece[..bytes]).at("read", path)?;
        let result = run.pattern.check_stamps(number, first, 0, &piece[..bytes]);
        result.map_err(|what| BenchError::WrongData { path: path.to_owned(), what })?;
    }
    Ok(())
}
