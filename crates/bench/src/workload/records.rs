//! The tests of IOZone that ATTEST was measured with (thesis of 2010, sections 4.4.3 and 5.4), on one file in records of 128 KiB:
//! write, write again, read cold and warm, read cold backwards, every 16th record in turn (strided), and in random order; random
//! writes. And its pattern of creating: many empty files in one directory (section 4.4.1).
//!
//! Writes end with an fsync, creating with a syncfs. Every record is compared at the end.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::random::check_generations;
use super::sequential::FILE_NUMBER;
use super::{Run, SYNCED, cold, warm};
use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Random};
use crate::report::Metric;

const RECORD_SIZE: usize = 128 << 10;
const BLOCKS_PER_RECORD: u64 = (RECORD_SIZE / BLOCK_SIZE) as u64;
/// 512 MiB.
const RECORDS: u64 = 4096;
const STRIDE: u64 = 16;
const CREATES: u64 = 10_000;

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let path = run.path("records");
    let records = run.scaled(RECORDS).next_multiple_of(STRIDE);
    let bytes = records * RECORD_SIZE as u64;
    let in_order: Vec<u64> = (0..records).collect();
    let at_random = Random::new(run.seed).permutation(records);
    let mut metrics = Vec::new();
    let (spent, ()) = run.time(|| write(run, &path, &in_order, 0))?;
    metrics.push(Metric::bytes("records_write", bytes, spent).durable(SYNCED));
    let (spent, ()) = run.time(|| write(run, &path, &in_order, 1))?;
    metrics.push(warm(Metric::bytes("records_rewrite", bytes, spent).durable(SYNCED)));
    run.cold.make()?;
    let (spent, ()) = run.time(|| read(run, &path, &in_order, 1))?;
    metrics.push(cold(Metric::bytes("records_read", bytes, spent)));
    let (spent, ()) = run.time(|| read(run, &path, &in_order, 1))?;
    metrics.push(warm(Metric::bytes("records_reread", bytes, spent)));
    let orders = [
        ("records_read_backward", in_order.iter().rev().copied().collect()),
        ("records_read_strided", strided(records)),
        ("records_read_random", at_random.clone()),
    ];
    for (name, order) in orders {
        let order: Vec<u64> = order;
        run.cold.make()?;
        let (spent, ()) = run.time(|| read(run, &path, &order, 1))?;
        metrics.push(cold(Metric::bytes(name, bytes, spent)));
    }
    let (spent, ()) = run.time(|| write(run, &path, &at_random, 2))?;
    metrics.push(warm(Metric::bytes("records_write_random", bytes, spent).durable(SYNCED)));
    run.cold.make()?;
    let generations: HashMap<u64, u64> = (0..records * BLOCKS_PER_RECORD).map(|block| (block, 2)).collect();
    check_generations(run, &path, bytes, &generations)?;
    metrics.push(create(run)?);
    Ok(metrics)
}

/// 0, 16, 32, ..., then 1, 17, ...
fn strided(records: u64) -> Vec<u64> {
    (0..STRIDE).flat_map(|first| (first..records).step_by(STRIDE as usize)).collect()
}

fn write(run: &Run, path: &Path, order: &[u64], generation: u64) -> Result<(), BenchError> {
    let file = File::options().create(true).truncate(false).write(true).open(path).at("open", path)?;
    let mut record = vec![0; RECORD_SIZE];
    for number in order {
        run.pattern.fill(FILE_NUMBER, number * BLOCKS_PER_RECORD, generation, &mut record);
        file.write_all_at(&record, number * RECORD_SIZE as u64).at("write", path)?;
    }
    file.sync_all().at("fsync", path)
}

fn read(run: &Run, path: &Path, order: &[u64], generation: u64) -> Result<(), BenchError> {
    let file = File::open(path).at("open", path)?;
    let mut record = vec![0; RECORD_SIZE];
    for number in order {
        file.read_exact_at(&mut record, number * RECORD_SIZE as u64).at("read", path)?;
        let checked = run.pattern.check_stamps(FILE_NUMBER, number * BLOCKS_PER_RECORD, generation, &record);
        checked.map_err(|what| BenchError::WrongData { path: path.to_owned(), what })?;
    }
    Ok(())
}

fn create(run: &Run) -> Result<Metric, BenchError> {
    let directory = run.path("creates");
    fs::create_dir(&directory).at("mkdir", &directory)?;
    let count = run.scaled(CREATES);
    let work = || {
        for number in 0..count {
            let path = directory.join(format!("file-{number}"));
            File::create_new(&path).at("create", &path)?;
        }
        run.sync_file_system()
    };
    let (spent, ()) = run.time(work)?;
    let found = fs::read_dir(&directory).at("list", &directory)?.count() as u64;
    if found != count {
        let what = format!("{found} names are there, {count} files were made");
        return Err(BenchError::WrongData { path: directory, what });
    }
    Ok(Metric::count("records_create_empty", count, spent).durable(SYNCED))
}
