//! The large-object benchmark of the log-structured file systems' papers: a file of 12,500 frames of 4 KiB, read and replaced in
//! order, at random, and mostly in order. Cold before each part, so that devices are measured; replacing ends with an fsync.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::cold::Cold;
use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Pattern, Random};

const FRAMES: u64 = 12_500;
/// Frames that are read or replaced out of order.
const SOME: usize = 2_500;
/// The mixed part stays in order in so many of ten steps.
const IN_ORDER_OF_TEN: u64 = 8;
const FILE_NUMBER: u64 = 51;

/// Makes the file, durable.
pub fn make(path: &Path, seed: u64) -> Result<Value, BenchError> {
    let pattern = Pattern::new(seed);
    let file = File::create(path).at("create", path)?;
    let mut data = vec![0; BLOCK_SIZE * 250];
    for first in (0..FRAMES).step_by(250) {
        pattern.fill(FILE_NUMBER, first, 0, &mut data);
        file.write_all_at(&data, first * BLOCK_SIZE as u64).at("write", path)?;
    }
    file.sync_all().at("fsync", path)?;
    Ok(json!({ "frames": FRAMES }))
}

/// Reads and replaces; seconds of each part.
pub fn work(path: &Path, seed: u64) -> Result<Value, BenchError> {
    let pattern = Pattern::new(seed);
    let mut random = Random::new(seed);
    let orders = [
        ("sequential", (0..FRAMES).collect()),
        ("random", random.permutation(FRAMES)[..SOME].to_vec()),
        ("mixed", mostly_in_order(&mut random)),
    ];
    let mut seconds = Map::new();
    let cold = Cold::new(None);
    for replaces in [false, true] {
        for (name, order) in &orders {
            cold.make()?;
            let start = Instant::now();
            if replaces {
                replace(&pattern, path, order)?
            } else {
                read(&pattern, path, order)?
            }
            let verb = if replaces { "replace" } else { "read" };
            seconds.insert(format!("{name} {verb}"), json!(start.elapsed().as_secs_f64()));
        }
    }
    Ok(Value::Object(seconds))
}

fn mostly_in_order(random: &mut Random) -> Vec<u64> {
    let mut at = 0;
    let step = |_| {
        at = if random.below(10) < IN_ORDER_OF_TEN { (at + 1) % FRAMES } else { random.below(FRAMES) };
        at
    };
    (0..SOME).map(step).collect()
}

fn read(pattern: &Pattern, path: &Path, order: &[u64]) -> Result<(), BenchError> {
    let file = File::open(path).at("open", path)?;
    let mut data = [0; BLOCK_SIZE];
    for frame in order {
        file.read_exact_at(&mut data, frame * BLOCK_SIZE as u64).at("read", path)?;
        let checked = pattern.check_stamps(FILE_NUMBER, *frame, 0, &data);
        checked.map_err(|what| BenchError::WrongData { path: path.to_owned(), what })?;
    }
    Ok(())
}

fn replace(pattern: &Pattern, path: &Path, order: &[u64]) -> Result<(), BenchError> {
    let file = File::options().write(true).open(path).at("open", path)?;
    let mut data = [0; BLOCK_SIZE];
    for frame in order {
        // Of the same generation, so that it can be read again.
        pattern.fill(FILE_NUMBER, *frame, 0, &mut data);
        file.write_all_at(&data, frame * BLOCK_SIZE as u64).at("write", path)?;
    }
    file.sync_all().at("fsync", path)
}
