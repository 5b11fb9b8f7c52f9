//! HighLight's large object (Kohl, Stonebraker, Staelin 1993, after Stonebraker and Olson): a file of 51.2 MB in frames of
//! 4 KiB, read and replaced frame by frame: in order, at random, and 80/20 (four of five frames follow the one before, the
//! fifth is anywhere).
//!
//! Every phase starts cold, as there; replacing ends with an fsync. They took 2,500 frames in order and 250 otherwise,
//! which today is over in milliseconds; here it is the whole object in order and 2,500 frames otherwise.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::random::check_generations;
use super::sequential::{FILE_NUMBER, write_file};
use super::{Run, SYNCED, cold};
use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Pattern, Random};
use crate::report::Metric;

/// 51.2 MB are 12,500 frames; as the file is written in pieces of 1 MiB, a few more lie behind them.
pub(crate) const FRAMES: u64 = 12_500;
const FILE_BYTES: u64 = 49 << 20;
pub(crate) const FRAMES_SCATTERED: u64 = 2_500;

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let path = run.path("object");
    write_file(run, &path, FILE_BYTES)?;
    let mut random = Random::new(run.seed);
    let scattered = run.scaled(FRAMES_SCATTERED);
    let orders = [
        ("lo_sequential_read", "lo_sequential_replace", (0..run.scaled(FRAMES)).collect()),
        ("lo_random_read", "lo_random_replace", (0..scattered).map(|_| random.below(FRAMES)).collect()),
        ("lo_8020_read", "lo_8020_replace", mostly_next(&mut random, scattered)),
    ];
    let mut generations = HashMap::new();
    let mut metrics = Vec::new();
    for (generation, (read_name, replace_name, frames)) in (1..).zip(orders) {
        let frames: Vec<u64> = frames;
        run.cold.make()?;
        let (spent, ()) = run.time(|| read(&run.pattern, &path, &frames, &generations))?;
        metrics.push(cold(Metric::count(read_name, frames.len() as u64, spent)));
        run.cold.make()?;
        let (spent, ()) = run.time(|| replace(&run.pattern, &path, &frames, generation))?;
        metrics.push(cold(Metric::count(replace_name, frames.len() as u64, spent).durable(SYNCED)));
        generations.extend(frames.iter().map(|frame| (*frame, generation)));
    }
    run.cold.make()?;
    check_generations(run, &path, FILE_BYTES, &generations)?;
    Ok(metrics)
}

/// Four of five follow the one before them.
pub(crate) fn mostly_next(random: &mut Random, count: u64) -> Vec<u64> {
    let mut frame = 0;
    let mut step = || {
        frame = if random.below(5) < 4 { (frame + 1) % FRAMES } else { random.below(FRAMES) };
        frame
    };
    (0..count).map(|_| step()).collect()
}

pub(crate) fn read(
    pattern: &Pattern,
    path: &Path,
    frames: &[u64],
    generations: &HashMap<u64, u64>,
) -> Result<(), BenchError> {
    let file = File::open(path).at("open", path)?;
    let mut data = [0; BLOCK_SIZE];
    for frame in frames {
        file.read_exact_at(&mut data, frame * BLOCK_SIZE as u64).at("read", path)?;
        let generation = generations.get(frame).copied().unwrap_or(0);
        let checked = pattern.check_stamps(FILE_NUMBER, *frame, generation, &data);
        checked.map_err(|what| BenchError::WrongData { path: path.to_owned(), what })?;
    }
    Ok(())
}

pub(crate) fn replace(pattern: &Pattern, path: &Path, frames: &[u64], generation: u64) -> Result<(), BenchError> {
    let file = File::options().write(true).open(path).at("open", path)?;
    let mut data = [0; BLOCK_SIZE];
    for frame in frames {
        pattern.fill(FILE_NUMBER, *frame, generation, &mut data);
        file.write_all_at(&data, frame * BLOCK_SIZE as u64).at("write", path)?;
    }
    file.sync_all().at("fsync", path)
}
