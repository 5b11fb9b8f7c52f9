//! Random reads and writes of 4 KiB in one file of 1 GiB.
//!
//! Reads go through the page cache with read-ahead switched off by `posix_fadvise(RANDOM)`, every block at most once, so
//! that each is a miss. Depth 16 is 16 threads that read synchronously. Writes may hit a block twice; the last one counts.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::sequential::{FILE_NUMBER, FILE_SIZE, write_file};
use super::{Run, SYNCED, cold, in_parallel, warm};
use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Random};
use crate::report::Metric;

const READS_DEEP: u64 = 64 << 10;
const READS_SINGLE: u64 = 16 << 10;
const WRITES: u64 = 32 << 10;
const DEPTH: usize = 16;
const WRITES_PER_FSYNC: usize = 32;

pub fn run_reads(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let path = run.path("large");
    let size = run.scaled(FILE_SIZE);
    write_file(run, &path, size)?;
    let order = Random::new(run.seed).permutation(size / BLOCK_SIZE as u64);
    let deep = &order[..run.scaled(READS_DEEP) as usize];
    let single = &order[order.len() - run.scaled(READS_SINGLE) as usize..];
    run.cold.make()?;
    let (deep_time, ()) = run.time(|| read_by_threads(run, &path, deep, DEPTH))?;
    run.cold.make()?;
    let (single_time, ()) = run.time(|| read_by_threads(run, &path, single, 1))?;
    Ok(vec![
        cold(Metric::count("randread4k_qd16", deep.len() as u64, deep_time)),
        cold(Metric::count("randread4k_qd1", single.len() as u64, single_time)),
    ])
}

pub fn run_writes(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let path = run.path("large");
    let size = run.scaled(FILE_SIZE);
    write_file(run, &path, size)?;
    let mut random = Random::new(run.seed);
    let mut offsets = |count: u64| (0..count).map(|_| random.below(size / BLOCK_SIZE as u64)).collect::<Vec<_>>();
    let (often, once) = (offsets(run.scaled(WRITES)), offsets(run.scaled(WRITES)));
    let mut generations = HashMap::new();
    let (often_time, ()) = run.time(|| write_blocks(run, &path, &often, 1, WRITES_PER_FSYNC))?;
    generations.extend(often.iter().map(|block| (*block, 1)));
    run.sync_file_system()?;
    let (once_time, ()) = run.time(|| write_blocks(run, &path, &once, 2, usize::MAX))?;
    generations.extend(once.iter().map(|block| (*block, 2)));
    run.cold.make()?;
    check_generations(run, &path, size, &generations)?;
    // Emptied, so that many small pieces go at once, and written again in order.
    let (again_time, ()) = run.time(|| write_file(run, &path, size))?;
    Ok(vec![
        warm(Metric::count("randwrite4k_fs32", often.len() as u64, often_time).durable("every 32 writes, by fsync")),
        warm(Metric::count("randwrite4k", once.len() as u64, once_time).durable(SYNCED)),
        warm(Metric::bytes("rewrite_emptied", size, again_time).durable(SYNCED)),
    ])
}

fn read_by_threads(run: &Run, path: &Path, blocks: &[u64], threads: usize) -> Result<(), BenchError> {
    let file = File::open(path).at("open", path)?;
    // SAFETY: the descriptor is open; the call only gives advice.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    let parts: Vec<&[u64]> = blocks.chunks(blocks.len().div_ceil(threads)).collect();
    in_parallel(parts.len() as u64, |thread| read_blocks(run, &file, path, parts[thread as usize])).map(drop)
}

fn read_blocks(run: &Run, file: &File, path: &Path, blocks: &[u64]) -> Result<(), BenchError> {
    let mut data = [0; BLOCK_SIZE];
    for block in blocks {
        file.read_exact_at(&mut data, block * BLOCK_SIZE as u64).at("read", path)?;
        run.pattern
            .check_stamps(FILE_NUMBER, *block, 0, &data)
            .map_err(|what| BenchError::WrongData { path: path.to_owned(), what })?;
    }
    Ok(())
}

fn write_blocks(run: &Run, path: &Path, blocks: &[u64], generation: u64, per_fsync: usize) -> Result<(), BenchError> {
    let file = File::options().write(true).open(path).at("open", path)?;
    let mut data = [0; BLOCK_SIZE];
    for (index, block) in blocks.iter().enumerate() {
        run.pattern.fill(FILE_NUMBER, *block, generation, &mut data);
        file.write_all_at(&data, block * BLOCK_SIZE as u64).at("write", path)?;
        if (index + 1) % per_fsync == 0 {
            file.sync_all().at("fsync", path)?;
        }
    }
    file.sync_all().at("fsync", path)
}

/// Every block of the file, byte by byte; those that the map does not name are as they were first written.
pub fn check_generations(run: &Run, path: &Path, size: u64, generations: &HashMap<u64, u64>) -> Result<(), BenchError> {
    let file = File::open(path).at("open", path)?;
    let mut data = [0; BLOCK_SIZE];
    for block in 0..size / BLOCK_SIZE as u64 {
        file.read_exact_at(&mut data, block * BLOCK_SIZE as u64).at("read", path)?;
        let generation = generations.get(&block).copied().unwrap_or(0);
        run.pattern
            .check_all(FILE_NUMBER, block, generation, &data)
            .map_err(|what| BenchError::WrongData { path: path.to_owned(), what })?;
    }
    Ok(())
}
