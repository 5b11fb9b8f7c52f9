//! The large object of the papers in two steps, so that a script can do something to the file between them (archive it, release it):
//! made, then read and replaced in order, at random, and mostly in order. Cold before each part; replacing ends with an fsync.
//! Read next: `workload/large_object.rs`, which is the same in one step, beside other file systems.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::cold::Cold;
use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Pattern, Random};
use crate::workload::large_object::{FRAMES, FRAMES_SCATTERED, mostly_next, read, replace};
use crate::workload::sequential::FILE_NUMBER;

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

/// Reads and replaces; seconds of each part. What replaces is of the same generation, so that it can be read again.
pub fn work(path: &Path, seed: u64) -> Result<Value, BenchError> {
    let pattern = Pattern::new(seed);
    let mut random = Random::new(seed);
    let orders: [(_, Vec<u64>); 3] = [
        ("sequential", (0..FRAMES).collect()),
        ("random", random.permutation(FRAMES)[..FRAMES_SCATTERED as usize].to_vec()),
        ("mixed", mostly_next(&mut random, FRAMES_SCATTERED)),
    ];
    let mut seconds = Map::new();
    let cold = Cold::new(None);
    for replaces in [false, true] {
        for (name, order) in &orders {
            cold.make()?;
            let start = Instant::now();
            if replaces {
                replace(&pattern, path, order, 0)?
            } else {
                read(&pattern, path, order, &HashMap::new())?
            }
            let verb = if replaces { "replace" } else { "read" };
            seconds.insert(format!("{name} {verb}"), json!(start.elapsed().as_secs_f64()));
        }
    }
    Ok(Value::Object(seconds))
}
