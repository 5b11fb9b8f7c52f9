//! What a front end costs: names and small files with nothing synced and nothing checked, so that a file system that
//! keeps nothing can run it too.
//!
//! Stats are taken with the kernel's names forgotten (each asks the daemon), reads with everything cached.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;

use super::{Run, warm};
use crate::cold;
use crate::error::{At, BenchError};
use crate::pattern::BLOCK_SIZE;
use crate::report::Metric;

const FILES: u64 = 20_000;
const FILES_PER_DIRECTORY: u64 = 200;
const READ_ROUNDS: u64 = 2;

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let files = run.scaled(FILES);
    let paths: Vec<PathBuf> =
        (0..files).map(|number| run.path(&format!("d{:03}/f{number:05}", number / FILES_PER_DIRECTORY))).collect();
    for number in 0..files.div_ceil(FILES_PER_DIRECTORY) {
        let directory = run.path(&format!("d{number:03}"));
        fs::create_dir(&directory).at("mkdir", &directory)?;
    }
    let (create_time, ()) = run.time(|| create(run, &paths))?;
    run.sync_file_system()?;
    cold::forget_names()?;
    let (stat_time, ()) =
        run.time(|| paths.iter().try_for_each(|path| fs::metadata(path).at("stat", path).map(drop)))?;
    read(&paths)?;
    let (read_time, ()) = run.time(|| (0..READ_ROUNDS).try_for_each(|_| read(&paths)))?;
    Ok(vec![
        Metric::count("fe_create", files, create_time),
        Metric::count("fe_stat", files, stat_time).cached("all but the kernel's names and attributes"),
        warm(Metric::count("fe_read", files * READ_ROUNDS, read_time)),
    ])
}

fn create(run: &Run, paths: &[PathBuf]) -> Result<(), BenchError> {
    let mut data = [0; BLOCK_SIZE];
    for (number, path) in paths.iter().enumerate() {
        run.pattern.fill(number as u64, 0, 0, &mut data);
        let mut file = File::create_new(path).at("create", path)?;
        file.write_all(&data).at("write", path)?;
    }
    Ok(())
}

fn read(paths: &[PathBuf]) -> Result<(), BenchError> {
    let mut data = [0; BLOCK_SIZE];
    for path in paths {
        let mut file = File::open(path).at("open", path)?;
        let _length = file.read(&mut data).at("read", path)?;
    }
    Ok(())
}
