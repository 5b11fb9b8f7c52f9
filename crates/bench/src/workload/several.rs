//! Several at once: 8 writers that stream, each to a file of its own and all to one; and 8 threads of which each reads 70 and
//! writes 30 of 100 blocks, at random.
//!
//! Every writer has its own part of a shared file and every mixing thread its own blocks, so that what must be found is known.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::random::check_generations;
use super::sequential::{FILE_NUMBER, write_file};
use super::{Run, SYNCED, cold, in_parallel};
use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Random};
use crate::report::Metric;

const THREADS: u64 = 8;
const BYTES_EACH: u64 = 64 << 20;
const PIECE_SIZE: usize = 1 << 20;
const MIXED_FILE_SIZE: u64 = 512 << 20;
const MIXED_OPERATIONS_EACH: u64 = 8_000;
const READS_OF_TEN: u64 = 7;

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let each = run.scaled(BYTES_EACH).next_multiple_of(PIECE_SIZE as u64);
    let own = |writer: u64| (run.path(&format!("own-{writer}")), writer, 0);
    let shared = |writer: u64| (run.path("shared"), THREADS, writer * each);
    let own_metric = write_and_check(run, "several_own_write", each, &own)?;
    let shared_metric = write_and_check(run, "several_shared_write", each, &shared)?;
    Ok(vec![own_metric, shared_metric, mix(run)?])
}

/// Where a writer writes: its file, that file's number, and the offset at which it begins.
type Place = (PathBuf, u64, u64);

fn write_and_check(
    run: &Run,
    name: &'static str,
    each: u64,
    place: &(dyn Fn(u64) -> Place + Sync),
) -> Result<Metric, BenchError> {
    let (spent, _) = run.time(|| in_parallel(THREADS, |writer| write_part(run, &place(writer), each)))?;
    run.cold.make()?;
    in_parallel(THREADS, |writer| check_part(run, &place(writer), each))?;
    Ok(Metric::bytes(name, each * THREADS, spent).durable(SYNCED))
}

fn write_part(run: &Run, (path, number, start): &Place, length: u64) -> Result<(), BenchError> {
    let file = File::options().create(true).truncate(false).write(true).open(path).at("open", path)?;
    let mut piece = vec![0; PIECE_SIZE];
    for offset in (*start..start + length).step_by(PIECE_SIZE) {
        run.pattern.fill(*number, offset / BLOCK_SIZE as u64, 0, &mut piece);
        file.write_all_at(&piece, offset).at("write", path)?;
    }
    file.sync_all().at("fsync", path)
}

fn check_part(run: &Run, (path, number, start): &Place, length: u64) -> Result<(), BenchError> {
    let file = File::open(path).at("open", path)?;
    let mut piece = vec![0; PIECE_SIZE];
    for offset in (*start..start + length).step_by(PIECE_SIZE) {
        file.read_exact_at(&mut piece, offset).at("read", path)?;
        let checked = run.pattern.check_all(*number, offset / BLOCK_SIZE as u64, 0, &piece);
        checked.map_err(|what| BenchError::WrongData { path: path.clone(), what })?;
    }
    Ok(())
}

fn mix(run: &Run) -> Result<Metric, BenchError> {
    let path = run.path("mixed");
    let size = run.scaled(MIXED_FILE_SIZE).next_multiple_of(PIECE_SIZE as u64);
    write_file(run, &path, size)?;
    run.cold.make()?;
    let operations = run.scaled(MIXED_OPERATIONS_EACH);
    let (spent, generations) =
        run.time(|| in_parallel(THREADS, |thread| mix_one(run, &path, size, thread, operations)))?;
    run.cold.make()?;
    check_generations(run, &path, size, &generations.into_iter().flatten().collect())?;
    Ok(cold(Metric::count("several_mixed", operations * THREADS, spent).durable(SYNCED)))
}

/// Reads and writes blocks whose number, divided by the number of threads, leaves this thread's; returns what it wrote.
fn mix_one(run: &Run, path: &Path, size: u64, thread: u64, operations: u64) -> Result<HashMap<u64, u64>, BenchError> {
    let file = File::options().read(true).write(true).open(path).at("open", path)?;
    // SAFETY: the descriptor is open; the call only gives advice.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    let mut random = Random::new(run.seed * THREADS + thread);
    let mut generations: HashMap<u64, u64> = HashMap::new();
    let mut data = [0; BLOCK_SIZE];
    for _ in 0..operations {
        let block = random.below(size / BLOCK_SIZE as u64 / THREADS) * THREADS + thread;
        let offset = block * BLOCK_SIZE as u64;
        let generation = generations.get(&block).copied().unwrap_or(0);
        if random.below(10) < READS_OF_TEN {
            file.read_exact_at(&mut data, offset).at("read", path)?;
            let checked = run.pattern.check_stamps(FILE_NUMBER, block, generation, &data);
            checked.map_err(|what| BenchError::WrongData { path: path.to_owned(), what })?;
        } else {
            run.pattern.fill(FILE_NUMBER, block, generation + 1, &mut data);
            file.write_all_at(&data, offset).at("write", path)?;
            generations.insert(block, generation + 1);
        }
    }
    file.sync_all().at("fsync", path)?;
    Ok(generations)
}
