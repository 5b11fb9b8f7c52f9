//! How long a reader waits for the first byte of a file, and for all of it, reading once from front to end.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::error::{At, BenchError};

const READ_BYTES: usize = 128 << 10;

pub fn run(path: &Path) -> Result<Value, BenchError> {
    let mut buffer = vec![0; READ_BYTES];
    let start = Instant::now();
    let mut file = File::open(path).at("open", path)?;
    let mut bytes = file.read(&mut buffer[..1]).at("read", path)?;
    let first = start.elapsed();
    loop {
        match file.read(&mut buffer).at("read", path)? {
            0 => break,
            more => bytes += more,
        }
    }
    let all = start.elapsed();
    Ok(json!({ "bytes": bytes, "first_seconds": first.as_secs_f64(), "seconds": all.as_secs_f64() }))
}
